"""An assignment as a JSON document, in both directions: a list of placements, one per client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from task_assignor.sdk.assignment import AssignedTask, AssignmentColumns, KafkaStreamsAssignment, TaskAssignment
from task_assignor.sdk.columns import MISSING, Role
from task_assignor.sdk.errors import SnapshotException
from task_assignor.sdk.ids import ProcessId, TaskId
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.json_checks import (
    Bad,
    check_distinct,
    check_id,
    check_integer,
    check_list,
    check_members,
    check_version,
    parse_process_id,
    parse_task_id,
    wrong,
)
from task_assignor.sdk.json_text import parse_json
from task_assignor.sdk.text import shown

_DOCUMENT: Final = frozenset({"formatVersion", "id", "assignment", "inexact"})
_PLACEMENT: Final = frozenset({"processId", "activeTasks", "standbyTasks", "followupRebalanceDeadlineMs"})
_ACTIVE, _STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


def assignment_from_json(document: str | bytes | Mapping[str, Any] | Sequence[Any]) -> TaskAssignment:
    """The assignment that a document describes: a list of placements, or an object with such a list as `assignment`.

    Whether it is right for a state is not asked here (`task_assignor.validation`): a process may come twice, and a
    task may have two owners or be unknown.

    Args:
        document: JSON text, or what `json.loads` made of it.

    Raises:
        SnapshotException: it describes none; with the path of the offending value.

    Examples:
        >>> text = '[{"processId": "00000000-0000-0000-0000-000000000001", "activeTasks": ["0_0"], "standbyTasks": []}]'
        >>> assignment_from_json(text)
        TaskAssignment([KafkaStreamsAssignment(00000000-0000-0000-0000-000000000001, [ACTIVE 0_0])])
    """
    return assignment_of_value(parse_json(document) if isinstance(document, (str, bytes)) else document)


def assignment_of_value(value: Any) -> TaskAssignment:
    """As `assignment_from_json`, for a parsed document: a string in it is a string, not one more JSON text."""
    inexact: list[str] = []
    try:
        path = ""
        if isinstance(value, dict):
            check_version(value)
            members = check_members(value, _DOCUMENT, ("assignment",))
            if members.get("id") is not None:
                check_id(members["id"], ".id")
            inexact = _inexact_codes(members.get("inexact"))
            value, path = members["assignment"], ".assignment"
        placements = []
        for position, placement in enumerate(check_list(value, path)):
            try:
                placements.append(_placement(placement))
            except Bad as bad:
                raise bad.within(f"{path}[{position}]") from None
    except Bad as bad:
        raise bad.at("$") from None
    return TaskAssignment(placements, inexact=inexact)


def _inexact_codes(value: Any) -> list[str]:
    path = ".inexact"
    codes = [] if value is None else check_list(value, path)
    for position, code in enumerate(codes):
        if not isinstance(code, str):
            raise wrong(code, "a string", f"{path}[{position}]")
    check_distinct(codes, codes, path)
    return codes


def _placement(value: Any) -> KafkaStreamsAssignment:
    members = check_members(value, _PLACEMENT, ("processId", "activeTasks", "standbyTasks"))
    process_id = parse_process_id(members["processId"], ".processId")
    active = _task_ids(members["activeTasks"], ".activeTasks")
    standby = _task_ids(members["standbyTasks"], ".standbyTasks")
    in_both = set(active) & set(standby)
    if in_both:
        task_id = min(in_both)
        path = f".standbyTasks[{standby.index(task_id)}]"
        raise Bad(f"The task {task_id} cannot be active and standby on one client ({process_id}).", path)
    assigned = [AssignedTask(task_id, _ACTIVE) for task_id in active]
    assigned += [AssignedTask(task_id, _STANDBY) for task_id in standby]
    placement = KafkaStreamsAssignment.of(process_id, assigned)
    deadline = members.get("followupRebalanceDeadlineMs")
    if deadline is None:
        return placement
    return placement.with_followup_rebalance(
        check_integer(deadline, -INT64_MAX, INT64_MAX, ".followupRebalanceDeadlineMs")
    )


def _task_ids(value: Any, path: str) -> list[TaskId]:
    texts = check_list(value, path)
    ids = [parse_task_id(text, f"{path}[{position}]") for position, text in enumerate(texts)]
    check_distinct(ids, texts, path)
    return ids


def assignment_to_json(assignment: TaskAssignment) -> list[dict[str, Any]]:
    """The placements of an assignment, ready for `json.dumps`: sorted by process id, their tasks by task id.

    Whether it is right is not asked: what `assignment_from_json` would refuse (a task in both roles) is written too.

    Args:
        assignment: the assignment. Wrap what a utility returned: `TaskAssignment(result)`.

    Raises:
        SnapshotException: it is not a `TaskAssignment`.
    """
    if not isinstance(assignment, TaskAssignment):
        raise SnapshotException(
            f"The assignment ({shown(assignment)}) must be a TaskAssignment. Maybe wrap it: TaskAssignment(...)."
        )
    columns = assignment.columns
    return [
        {
            "processId": str(process_id),
            "activeTasks": active,
            "standbyTasks": standby,
            **({} if deadline is None else {"followupRebalanceDeadlineMs": deadline}),
        }
        for process_id, active, standby, deadline in (_objects(assignment) if columns is None else _rows(columns))
    ]


def document_to_json(assignment: TaskAssignment) -> dict[str, Any]:
    """The members of a document that holds an assignment: `assignment`, and `inexact` if there is anything to say."""
    document: dict[str, Any] = {"assignment": assignment_to_json(assignment)}
    return {**document, "inexact": sorted(assignment.inexact)} if assignment.inexact else document


_Placements = Iterator[tuple[ProcessId, list[str], list[str], int | None]]


def _objects(assignment: TaskAssignment) -> _Placements:
    # Stable: a process that is listed twice keeps the order of its two lists.
    for placement in sorted(assignment, key=lambda placement: placement.process_id.signed_halves):
        tasks = placement.tasks.values()
        yield (
            placement.process_id,
            [str(task.id) for task in tasks if task.type is _ACTIVE],
            [str(task.id) for task in tasks if task.type is _STANDBY],
            placement.followup_rebalance_deadline_ms,
        )


def _rows(columns: AssignmentColumns) -> _Placements:
    for client, process_id in enumerate(columns.state.clients.process_ids):
        rows = columns.rows_of(client)
        active, standby = (
            list(
                map(str, columns.state.tasks.task_ids(np.sort(columns.task[rows][columns.role[rows] == role]).tolist()))
            )
            for role in (Role.ACTIVE, Role.STANDBY)
        )
        deadline = int(columns.deadline_ms[client])
        yield process_id, active, standby, None if deadline == MISSING else deadline
