"""What is no snapshot: one clear error with the path of the value, whatever it is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import SnapshotException, TaskAssignment, assignment_from_json, state_from_json
from tests.sdk.documents import FIRST, SECOND, changed, document, places, without

LONG = 2**63


def refused(value: Any) -> SnapshotException:
    with pytest.raises(SnapshotException) as caught:
        state_from_json(value)
    assert str(caught.value).startswith(caught.value.path)
    assert len(str(caught.value)) < 1_000
    return caught.value


@pytest.mark.parametrize(
    ("place", "values", "path"),
    [
        (("formatVersion",), [0, 2, "1", 1.0, True, None], "$.formatVersion"),
        (("id",), [1.5, True, [], {}], "$.id"),
        (("nowMs",), [-1, LONG, 1.5, "0", None, True], "$.nowMs"),
        (("configs",), [None, [], 3, "x"], "$.configs"),
        (("configs", "acceptableRecoveryLag"), [-1, LONG, 1.5, "1", None, True], "$.configs.acceptableRecoveryLag"),
        (("configs", "maxWarmupReplicas"), [0, 2**31, 1.5, "1", None, False], "$.configs.maxWarmupReplicas"),
        (("configs", "numStandbyReplicas"), [-1, 2**31, 0.0, "1", None, True], "$.configs.numStandbyReplicas"),
        (("configs", "probingRebalanceIntervalMs"), [59_999, LONG, None], "$.configs.probingRebalanceIntervalMs"),
        (
            ("configs", "rackAwareAssignmentTags"),
            [None, "zone", {}, list("abcdef")],
            "$.configs.rackAwareAssignmentTags",
        ),
        (("configs", "rackAwareAssignmentTags", 0), ["", 1, None], "$.configs.rackAwareAssignmentTags[0]"),
        (("configs", "rackAwareTrafficCost"), [-1, 2**31, 0.5, "1", True], "$.configs.rackAwareTrafficCost"),
        (("configs", "rackAwareNonOverlapCost"), [-1, 2**31, 0.5, "1", True], "$.configs.rackAwareNonOverlapCost"),
        (("configs", "rackAwareAssignmentStrategy"), ["", "NONE", None, 1], "$.configs.rackAwareAssignmentStrategy"),
        (("tasks",), [None, {}, "x", 1], "$.tasks"),
        (("tasks", 1), [None, [], "0_1", 1], "$.tasks[1]"),
        (("tasks", 1, "id"), ["", "1", "0_1_", "a_b", "0_99999999999", 1, None, [], "-1_0"], "$.tasks[1].id"),
        (("tasks", 1, "id"), ["0_0", "00_0"], "$.tasks[1].id"),
        (("tasks", 1, "isStateful"), [0, 1, "true", None, [], False], "$.tasks[1].isStateful"),
        (("tasks", 2, "stateStoreNames"), [["a"]], "$.tasks[2].isStateful"),
        (("tasks", 2, "topicPartitions", 0, "isChangelog"), [True], "$.tasks[2].isStateful"),
        (("tasks", 1, "stateStoreNames"), [None, "a", {}, 1], "$.tasks[1].stateStoreNames"),
        (("tasks", 0, "stateStoreNames", 1), ["a", "", 1, None], "$.tasks[0].stateStoreNames[1]"),
        (("tasks", 1, "topicPartitions"), [None, {}, 1], "$.tasks[1].topicPartitions"),
        (("tasks", 0, "topicPartitions", 1), [None, [], "in"], "$.tasks[0].topicPartitions[1]"),
        (("tasks", 0, "topicPartitions", 1, "topic"), ["", 1, None, []], "$.tasks[0].topicPartitions[1].topic"),
        (
            ("tasks", 0, "topicPartitions", 1, "partition"),
            [-1, 2**31, 0.5, "0", True, None],
            "$.tasks[0].topicPartitions[1].partition",
        ),
        (("tasks", 0, "topicPartitions", 1, "isSource"), [0, None, "x"], "$.tasks[0].topicPartitions[1].isSource"),
        (("tasks", 0, "topicPartitions", 1, "isChangelog"), [0, None, []], "$.tasks[0].topicPartitions[1].isChangelog"),
        (("tasks", 0, "topicPartitions", 1, "rackIds"), ["r", {}, 1], "$.tasks[0].topicPartitions[1].rackIds"),
        (("tasks", 0, "topicPartitions", 0, "rackIds", 1), ["", "r1", 1], "$.tasks[0].topicPartitions[0].rackIds[1]"),
        (("tasks", 0, "topicPartitions", 1, "topic"), ["in"], "$.tasks[0].topicPartitions[1]"),
        (("tasks", 1, "endOffsetSum"), [-1, -2, LONG, 1.5, "1", True], "$.tasks[1].endOffsetSum"),
        (("clients",), [None, {}, 1], "$.clients"),
        (("clients", 1), [None, [], SECOND], "$.clients[1]"),
        (("clients", 1, "processId"), ["", "x", 1, None, FIRST, FIRST.replace("-", "")], "$.clients[1].processId"),
        (
            ("clients", 1, "numProcessingThreads"),
            [0, -1, 2**31, 1.5, "1", True, None],
            "$.clients[1].numProcessingThreads",
        ),
        (("clients", 1, "consumers"), [None, [], "m"], "$.clients[1].consumers"),
        (("clients", 1, "consumers", "m3"), [None, {}, "0_1"], "$.clients[1].consumers.m3"),
        (("clients", 1, "consumers", "m3"), [["0_1", "0_1"], ["0_1", "x"]], "$.clients[1].consumers.m3[1]"),
        (("clients", 0, "hostInfo"), [[], "example:80", 1], "$.clients[0].hostInfo"),
        (("clients", 0, "hostInfo", "host"), ["", 1, None], "$.clients[0].hostInfo.host"),
        (("clients", 0, "hostInfo", "port"), [-1, 2**31, "80", 1.5, True], "$.clients[0].hostInfo.port"),
        (("clients", 1, "rackId"), ["", 1, [], True], "$.clients[1].rackId"),
        (("clients", 0, "clientTags"), [None, [], "x"], "$.clients[0].clientTags"),
        (("clients", 0, "clientTags", "zone"), [None, 1, []], "$.clients[0].clientTags.zone"),
        (("clients", 0, "previousActiveTasks"), [None, {}, "0_0"], "$.clients[0].previousActiveTasks"),
        (
            ("clients", 0, "previousActiveTasks", 1),
            ["x", "0_0", 1, None, [], {}],
            "$.clients[0].previousActiveTasks[1]",
        ),
        (("clients", 0, "previousStandbyTasks"), [["0_1", "00_1"]], "$.clients[0].previousStandbyTasks[1]"),
        (("clients", 0, "taskLags"), [[], "x", 1], "$.clients[0].taskLags"),
        (("clients", 0, "taskLags", "0_0"), [-1, -4, LONG, 1.5, "1", None, True], "$.clients[0].taskLags['0_0']"),
        (("clients", 0, "taskLags", "9_9"), [1], "$.clients[0].taskLags['9_9']"),
        (("clients", 0, "taskLags", "x"), [1], "$.clients[0].taskLags.x"),
        (("clients", 0, "taskLags", "00_0"), [1], "$.clients[0].taskLags"),
        (("clients", 0, "generation"), [-1, LONG, 1.5, "1", True], "$.clients[0].generation"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(place: tuple[str | int, ...], values: list[Any], path: str) -> None:
    for value in values:
        assert path == refused(changed(place, value)).path, value


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (("tasks",), "$"),
        (("clients",), "$"),
        (("tasks", 1, "id"), "$.tasks[1]"),
        (("tasks", 1, "isStateful"), "$.tasks[1]"),
        (("tasks", 1, "topicPartitions"), "$.tasks[1]"),
        (("tasks", 0, "topicPartitions", 1, "topic"), "$.tasks[0].topicPartitions[1]"),
        (("tasks", 0, "topicPartitions", 1, "partition"), "$.tasks[0].topicPartitions[1]"),
        (("tasks", 0, "topicPartitions", 1, "isSource"), "$.tasks[0].topicPartitions[1]"),
        (("tasks", 0, "topicPartitions", 1, "isChangelog"), "$.tasks[0].topicPartitions[1]"),
        (("clients", 1, "processId"), "$.clients[1]"),
        (("clients", 1, "numProcessingThreads"), "$.clients[1]"),
        (("clients", 0, "hostInfo", "host"), "$.clients[0].hostInfo"),
        (("clients", 0, "hostInfo", "port"), "$.clients[0].hostInfo"),
    ],
)
def test_a_missing_member_is_named(place: tuple[str | int, ...], path: str) -> None:
    error = refused(without(place))
    assert (path, True) == (error.path, f"The member {place[-1]} is missing" in str(error))


@pytest.mark.parametrize(
    ("place", "near"),
    [
        (("task",), "tasks"),
        (("format_version",), "formatVersion"),
        (("configs", "numStandbyReplica"), "numStandbyReplicas"),
        (("tasks", 0, "stateful"), "isStateful"),
        (("tasks", 0, "endOffsetsSum"), "endOffsetSum"),
        (("tasks", 0, "topicPartitions", 0, "rackId"), "rackIds"),
        (("clients", 0, "processid"), "processId"),
        (("clients", 0, "previousActiveTask"), "previousActiveTasks"),
        (("clients", 0, "hostInfo", "ports"), "port"),
    ],
)
def test_an_unknown_member_names_the_known_one_that_may_be_meant(place: tuple[str | int, ...], near: str) -> None:
    error = refused(changed(place, 1))
    assert error.path.endswith(f".{place[-1]}")
    assert f"The member is not known. Maybe {near} is meant." in str(error)


def test_an_unknown_member_like_no_other_lists_the_known_ones() -> None:
    assert "Known are: host, port." in str(refused(changed(("clients", 0, "hostInfo", "zzz"), 1)))


@pytest.mark.parametrize("members", [{}, {"whatIsNew": 1}, {"configs": {"whatIsNew": 1}}])
def test_a_newer_form_says_so(members: dict[str, Any]) -> None:
    """Also one with members that are new, or without some that were: of those only the names were said to be unknown."""
    newer = {"formatVersion": 2, **members}
    for read, other in ((state_from_json, document()), (assignment_from_json, {"assignment": []})):
        for whole in (newer, {**other, **newer}):
            with pytest.raises(SnapshotException, match=r"^\$\.formatVersion: .* Maybe a newer task-assignor wrote it"):
                read(whole)


def test_a_lag_that_is_missing_names_task_and_client() -> None:
    error = refused(without(("clients", 1, "taskLags", "0_0")))
    assert error.path == "$.clients[1].taskLags"
    assert f"The lag of task 0_0 on client {SECOND} is missing, and the task has no endOffsetSum" in str(error)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("", "$", "column 1"),
        ("{", "$", "column 2"),
        ('{"tasks": [],\n  "clients": [}', "$", "line 2, column 15"),
        ("{'tasks': []}", "$", "not JSON"),
        ('{"tasks": [], "clients": []} x', "$", "column 30"),
        ("nonsense", "$", "not JSON"),
        ("null", "$", "must be an object, but is null"),
        ("[]", "$", "must be an object, but is a list"),
        ("3", "$", "must be an object, but is 3"),
        ('"x"', "$", "must be an object, but is 'x'"),
        ('{"tasks": [], "clients": [], "nowMs": NaN}', "$.nowMs", "'NaN'"),
        ('{"tasks": [], "clients": [], "nowMs": -Infinity}', "$.nowMs", "'-Infinity'"),
        ('{"tasks": [], "clients": [], "nowMs": 1e400}', "$.nowMs", "inf"),
        ('{"tasks": [], "clients": [], "nowMs": 1.0}', "$.nowMs", "1.0"),
        (f'{{"tasks": [], "clients": [], "nowMs": {10**30}}}', "$.nowMs", str(10**30)),
        (f'{{"tasks": [], "clients": [], "nowMs": {"9" * 10_000}}}', "$.nowMs", "a JSON number that fits into 64 bits"),
        ('{"tasks": [], "tasks": [], "clients": []}', "$.tasks", "is there twice"),
        ('{"tasks": [{"id": "0_0", "id": "0_1"}], "clients": []}', "$.tasks[0].id", "is there twice"),
        ('{"tasks": [], "clients": [{"taskLags": {"0_0": 1, "0_0": 1}}]}', "$.clients[0].taskLags['0_0']", "twice"),
        ('{"tasks": [], "clients": [{"consumers": {"m": [], "m": []}}]}', "$.clients[0].consumers.m", "twice"),
        ('{"a": {"b": 1, "b": 2}, "a": 3}', "$.a", "twice"),
        ('{"a": NaN, "a": 3}', "$.a", "twice"),
    ],
)
def test_texts_that_are_no_documents(text: str, path: str, message: str) -> None:
    for form in (text, text.encode()):
        error = refused(form)
        assert (path, True) == (error.path, message in str(error)), str(error)


def test_bytes_that_are_not_utf_8_say_where() -> None:
    data = json.dumps(document()).encode()
    assert "byte 7 (0xff) is not" in str(refused(data[:7] + b"\xff" + data[7:]))


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (" x", "is not JSON: column 5011"),
        (',"b":' + "[" * 100_000, "nested too deeply"),
        (',"nowMs":1}', "$.nowMs: The member must be there once"),
        ("}", "$.nowMs: The value"),
    ],
    ids=["not JSON", "too deep", "twice", "too large"],
)
def test_a_number_of_thousands_of_digits_hides_nothing_that_follows(rest: str, message: str) -> None:
    """Python refuses to read such a number; how the text goes on must still be looked at."""
    assert message in str(refused('{"nowMs":' + "9" * 5_000 + rest))


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"tasks":[{"id":'])
def test_deep_nesting_is_an_error_and_no_crash(opening: str) -> None:
    assert "nested too deeply" in str(refused(opening * 200_000))


def test_deep_nesting_that_is_parsed_already_is_an_error_too() -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    for place in places(document()):
        refused(changed(place, deep))


@pytest.mark.parametrize("kind", ["bytes", "letters", "digits", "one string"])
def test_ten_megabytes_of_noise_are_one_short_error(kind: str) -> None:
    noise = random.Random(1).randbytes(10_000_000)
    texts: dict[str, str | bytes] = {
        "bytes": noise,
        "letters": noise.hex(),
        "digits": "1" * 10_000_000,
        "one string": json.dumps(noise.hex()),
    }
    refused(texts[kind])


def test_a_very_long_name_does_not_make_a_very_long_error() -> None:
    refused(changed(("x" * 1_000_000,), 1))
    refused(changed(("clients", 0, "consumers", "y" * 1_000_000), 1))
    refused(changed(("tasks", 0, "id"), "z" * 1_000_000))
    refused(changed(("clients", 0, "taskLags", "z" * 1_000_000), 1))
    refused(changed(("clients", 0, "processId"), "z" * 1_000_000))


def test_a_document_must_be_what_json_makes() -> None:
    for value in (None, 3, (), object(), changed((3,), 1), changed(("tasks", 0, 3), 1)):
        refused(value)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["0_0", FIRST, -2]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(places(document())), junk)
def test_any_value_anywhere_is_read_or_refused_with_a_path(place: tuple[str | int, ...], value: Any) -> None:
    whole = changed(place, value)
    try:
        state_from_json(whole)
    except SnapshotException as error:
        path = error.path
    else:
        path = "$"
    assert path.startswith("$")


@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    for read in (state_from_json, assignment_from_json):
        try:
            read(text)
        except SnapshotException as error:
            path = error.path
        else:
            path = "$"
        assert path.startswith("$")


def placement(**changes: Any) -> list[dict[str, Any]]:
    return [{"processId": FIRST, "activeTasks": ["0_0"], "standbyTasks": ["0_1"], **changes}]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (None, "$"),
        (3, "$"),
        ({}, "$"),
        ({"assignment": None}, "$.assignment"),
        ({"assignment": [], "formatVersion": 2}, "$.formatVersion"),
        ({"assignment": [], "id": 1.5}, "$.id"),
        ({"assignment": [], "state": {}}, "$.state"),
        ({"assignment": placement(activeTasks=None)}, "$.assignment[0].activeTasks"),
        ([None], "$[0]"),
        ([{}], "$[0]"),
        (placement(processId="x"), "$[0].processId"),
        (placement(activeTasks="0_0"), "$[0].activeTasks"),
        (placement(activeTasks=["0_0", "x"]), "$[0].activeTasks[1]"),
        (placement(activeTasks=["0_0", "00_0"]), "$[0].activeTasks[1]"),
        (placement(standbyTasks=["0_2", "0_0"]), "$[0].standbyTasks[1]"),
        (placement(standbyTask=[]), "$[0].standbyTask"),
        (placement(followupRebalanceDeadlineMs=1.5), "$[0].followupRebalanceDeadlineMs"),
        (placement(followupRebalanceDeadlineMs=LONG), "$[0].followupRebalanceDeadlineMs"),
        (placement(followupRebalanceDeadlineMs=True), "$[0].followupRebalanceDeadlineMs"),
    ],
)
def test_what_is_no_assignment(value: Any, path: str) -> None:
    with pytest.raises(SnapshotException) as caught:
        assignment_from_json(value)
    assert path == caught.value.path


def test_a_deadline_may_be_null() -> None:
    assert isinstance(assignment_from_json(placement(followupRebalanceDeadlineMs=None)), TaskAssignment)


def test_a_consumer_group_is_called_one() -> None:
    """It was said that its member `kind` is not known, and maybe `id` is meant."""
    with pytest.raises(SnapshotException, match="The document is a consumer group, not the state of an application"):
        state_from_json({"id": "g", "kind": "sticky", "topics": {"t": 1}, "members": []})
