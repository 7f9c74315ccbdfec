"""The published JSON Schemas: they agree with what is read, as far as a schema can say it."""

from __future__ import annotations

import importlib.resources
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from task_assignor.sdk import (
    SnapshotException,
    assignment_from_json,
    assignment_to_json,
    state_from_json,
    state_to_json,
)
from task_assignor.sdk.config_def import ConfigKey, limits
from task_assignor.sdk.configs import ASSIGNMENT_KEYS, MAX_RACK_AWARE_ASSIGNMENT_TAGS
from task_assignor.sdk.text import camel_case
from task_assignor.testing import application_states, task_assignments
from tests.sdk.documents import FIRST, SECOND, Place, changed, document, places, without
from tests.vectors import FOLDER, vectors

SCHEMAS = {
    name: json.loads(
        importlib.resources.files("task_assignor.sdk").joinpath("schemas", f"{name}.schema.json").read_text()
    )
    for name in ("state", "assignment")
}
STATE, ASSIGNMENT = (Draft202012Validator(SCHEMAS[name]) for name in ("state", "assignment"))

# What the reader refuses and a schema cannot express.
BEYOND_A_SCHEMA = re.compile(
    "|".join(
        (
            "must be there once",
            "so there cannot be a lag of it",
            "cannot be active and standby on one client",
            "and the task has no endOffsetSum to stand for it",
            "of a TaskId .* must be an int from 0 to 2147483647",
            r"but is -?\d+\.0\.$",  # for a schema 1.0 is an integer
        )
    )
)


def is_read(value: Any, read: Any = state_from_json) -> tuple[bool, str]:
    try:
        read(value)
    except SnapshotException as error:
        return False, str(error)
    return True, ""


def check_that_both_agree(value: Any, schema: Draft202012Validator = STATE, read: Any = state_from_json) -> None:
    is_taken, message = is_read(value, read)
    valid = schema.is_valid(value)
    assert valid or not is_taken, "the schema refuses what is read"
    assert is_taken or not valid or BEYOND_A_SCHEMA.search(message), f"the schema takes what is refused: {message}"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == f"urn:task-assignor:{name}:1"


def few_and_many() -> list[Any]:
    groups = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))
    return [(group, 10) for group in groups] + [pytest.param(group, None, marks=pytest.mark.slow) for group in groups]


@pytest.mark.parametrize(("group", "count"), few_and_many())
def test_the_vectors_are_valid_as_they_stand(group: str, count: int | None) -> None:
    """Some of middle size have all that a document can have; of the large ones a schema sees the same a thousand times."""
    by_size = sorted(vectors(group), key=lambda vector: len(str(vector.json["state"])))
    first = 0 if count is None else (len(by_size) - count) // 2
    for vector in by_size[first:][:count]:
        STATE.validate(vector.json["state"])
        for placements in (vector.json.get("assignment"), (vector.json["expected"] or {}).get("assignment")):
            if placements is not None:
                ASSIGNMENT.validate(placements)


@given(application_states(lags_known=False), st.data())
def test_what_is_written_is_valid(state: Any, data: st.DataObject) -> None:
    STATE.validate(state_to_json(state, id=3))
    ASSIGNMENT.validate(assignment_to_json(data.draw(task_assignments(state))))


def test_everything_that_the_schema_names_is_read() -> None:
    """The example holds every member of every object of the schema."""
    properties = {
        name
        for schema in (SCHEMAS["state"], *SCHEMAS["state"]["$defs"].values())
        for name in schema.get("properties", {})
    } | set(SCHEMAS["state"]["properties"]["configs"]["properties"])
    assert properties <= {part for place in places(document()) for part in place}
    STATE.validate(document())


@pytest.mark.parametrize("place", [place for place in places(document()) if isinstance(place[-1], str)], ids=str)
def test_a_member_may_be_left_out_for_both_or_for_neither(place: Place) -> None:
    check_that_both_agree(without(place))


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-4, 5)
    | st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, 59_999, 60_000, 65_535, 65_536, 1.5, 1.0, -0.0])
    | st.text(max_size=3)
    | st.sampled_from(
        ["0_0", "0_9", "00_1", "a__0_0", "0_99999999999", "none", "min_traffic", FIRST, SECOND, FIRST.upper()]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["host", "port", "0_0", "0_1", "m1", "id", "x"]) | st.text(max_size=2), inner, max_size=3
        )
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("tasks", 0, "isStateful"), False),
        (("tasks", 2, "stateStoreNames"), ["a"]),
        (("tasks", 2, "topicPartitions", 0, "isChangelog"), True),
    ],
)
def test_for_both_a_task_without_state_has_neither_stores_nor_changelogs(place: Place, value: Any) -> None:
    assert not STATE.is_valid(changed(place, value))
    check_that_both_agree(changed(place, value))


@given(st.sampled_from(places(document())), junk)
def test_reader_and_schema_agree_on_any_change(place: Place, value: Any) -> None:
    check_that_both_agree(changed(place, value))


@given(st.sampled_from(places(document())), st.text(min_size=1, max_size=3), junk)
def test_reader_and_schema_agree_on_any_new_member(place: Place, name: str, value: Any) -> None:
    whole = document()
    inner: Any = whole
    for part in place:
        inner = inner[part]
    if isinstance(inner, dict):
        inner[name] = value
    check_that_both_agree(whole)


ANSWER: dict[str, Any] = {
    "formatVersion": 1,
    "id": "x",
    "assignment": [
        {"processId": FIRST, "activeTasks": ["0_0"], "standbyTasks": ["0_1"], "followupRebalanceDeadlineMs": -5},
        {"processId": SECOND, "activeTasks": [], "standbyTasks": []},
    ],
}


@given(st.sampled_from(places(ANSWER)), junk)
def test_reader_and_schema_agree_on_assignments(place: Place, value: Any) -> None:
    whole = json.loads(json.dumps(ANSWER))
    inner: Any = whole
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    for form in (whole, whole["assignment"]):
        check_that_both_agree(form, ASSIGNMENT, assignment_from_json)


def as_schema(key: ConfigKey) -> dict[str, Any]:
    """What a schema says of the values of a setting."""
    if key.type == "list":
        return {"$ref": "#/$defs/names", "maxItems": MAX_RACK_AWARE_ASSIGNMENT_TAGS}
    if key.choices:
        return {"enum": list(key.choices)}
    low, high = limits(key)
    number = {"type": "integer", "minimum": low, "maximum": high}
    return {"anyOf": [number, {"type": "null"}]} if key.default is None else number


def test_limits_of_settings_are_those_of_the_one_table() -> None:
    """`AssignmentConfigs`, settings, snapshots and the schema: one table of limits."""

    def resolved(value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(each) for each in value]
        if not isinstance(value, dict):
            return value
        name = value.get("$ref", "").removeprefix("#/$defs/")
        return (
            SCHEMAS["state"]["$defs"][name]
            if name in ("int32", "int64")
            else {k: resolved(v) for k, v in value.items()}
        )

    said = SCHEMAS["state"]["properties"]["configs"]["properties"]
    assert {name: resolved(value) for name, value in said.items()} == {
        camel_case(name): as_schema(key) for name, key in ASSIGNMENT_KEYS.items()
    }
