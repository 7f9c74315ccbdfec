"""A state as a JSON document, in both directions. Files of such documents are in `snapshot_files.py`, assignments in `snapshot_assignment.py`.

The form is that of Kafka's own types in camel case; `schemas/state.schema.json` describes it. It is read straight into
columns, since a state of 100 000 tasks is an ordinary document.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from task_assignor.sdk.columns import StateColumns
from task_assignor.sdk.config_def import ValueProblem, parse_value
from task_assignor.sdk.configs import ASSIGNMENT_KEYS, AssignmentConfigs
from task_assignor.sdk.errors import SnapshotException, StateException
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.json_checks import (
    FORMAT_VERSION,
    Bad,
    check_id,
    check_integer,
    check_list,
    check_members,
    check_strings,
    check_version,
    wrong,
)
from task_assignor.sdk.json_text import parse_json, without_collection
from task_assignor.sdk.snapshot_clients import ClientReader, write_clients
from task_assignor.sdk.snapshot_tasks import read_tasks, write_tasks
from task_assignor.sdk.state import ApplicationState
from task_assignor.sdk.text import camel_case, shown

_STATE: Final = frozenset({"formatVersion", "id", "nowMs", "configs", "tasks", "clients"})
_GROUP: Final = frozenset({"topics", "members"})
"""Members of another kind of document: that of a consumer group."""
_CONFIGS: Final = MappingProxyType({camel_case(name): name for name in ASSIGNMENT_KEYS})
"""Member -> attribute of `AssignmentConfigs`, whose limits hold here too."""


def state_from_json(document: str | bytes | Mapping[str, Any]) -> ApplicationState:
    """The state that a document describes.

    Args:
        document: JSON text, or what `json.loads` made of it.

    Raises:
        SnapshotException: it describes none; with the path of the offending value.

    Examples:
        >>> state = state_from_json('''{
        ...   "tasks": [{"id": "0_0", "isStateful": false, "topicPartitions": []}],
        ...   "clients": [{"processId": "00000000-0000-0000-0000-000000000001", "numProcessingThreads": 2}]}''')
        >>> state
        ApplicationState(1 task, 1 client)
    """
    return state_of_value(parse_json(document) if isinstance(document, (str, bytes)) else document)


def state_of_value(value: Any) -> ApplicationState:
    """As `state_from_json`, for a parsed document: a string in it is a string, not one more JSON text."""
    with without_collection():
        return _state_of_value(value)


def _state_of_value(value: Any) -> ApplicationState:
    try:
        if isinstance(value, dict) and "tasks" not in value and value.keys() >= _GROUP:
            raise Bad(
                "The document is a consumer group, not the state of an application. Only `task-assignor plan` takes it."
            )
        check_version(value)
        members = check_members(value, _STATE, ("tasks", "clients"))
        if members.get("id") is not None:
            check_id(members["id"], ".id")
        now_ms = check_integer(members.get("nowMs", 0), 0, INT64_MAX, ".nowMs")
        configs = _configs(members.get("configs", {}))
        tasks, numbers = read_tasks(check_list(members["tasks"], ".tasks"))
        clients = ClientReader(check_list(members["clients"], ".clients"), tasks, numbers)
    except Bad as bad:
        raise bad.at("$") from None
    try:
        return ApplicationState(StateColumns(tasks, clients.columns, clients.previous, clients.lags), configs, now_ms)
    except StateException as error:
        raise SnapshotException(f"$: {error}") from error


def _configs(value: Any) -> AssignmentConfigs:
    members = check_members(value, frozenset(_CONFIGS), (), ".configs")
    attributes: dict[str, Any] = {}
    for name, given in members.items():
        attribute = _CONFIGS[name]
        key = ASSIGNMENT_KEYS[attribute]
        path = f".configs.{name}"
        if given is None and key.default is None:
            attributes[attribute] = None
            continue
        # Texts are parsed in settings; in JSON a number is a number and a list is a list.
        if key.type in ("int", "long") and type(given) is not int:
            raise wrong(given, "an integer" if key.default is not None else "an integer or null", path)
        if key.type == "list":
            check_strings(given, path)
        try:
            attributes[attribute] = parse_value(key, given)
        except ValueProblem as problem:
            raise wrong(given, problem.expected, path) from problem
    return AssignmentConfigs(**attributes)


def state_to_json(state: ApplicationState, id: str | int | None = None) -> dict[str, Any]:
    """The document that describes a state, ready for `json.dumps`: everything sorted, equal for equal states.

    Args:
        state: the state.
        id: a name for the document, a string or an integer.

    Raises:
        SnapshotException: the state is not an `ApplicationState`, or the `id` is of another kind.
    """
    if not isinstance(state, ApplicationState):
        raise SnapshotException(f"The state ({shown(state)}) must be an ApplicationState.")
    try:
        _ = None if id is None else check_id(id, ".id")
    except Bad as bad:
        raise bad.at("$") from None
    columns = state.columns
    ids = [str(task_id) for task_id in columns.tasks.task_ids()]
    return {
        "formatVersion": FORMAT_VERSION,
        **({} if id is None else {"id": id}),
        "nowMs": state.now_ms,
        "configs": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in (
                (name, getattr(state.assignment_configs, attribute)) for name, attribute in _CONFIGS.items()
            )
        },
        "tasks": write_tasks(columns.tasks, ids),
        "clients": write_clients(columns, ids),
    }
