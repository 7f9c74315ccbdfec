"""Values as JSON and back: what is read is what was written, and what is something else is named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.encoding import Value, decode, encode, reader_of
from task_assignor.runtime.machines.protocol import (
    Heartbeat,
    Leave,
    Position,
    Running,
    TaskDone,
    TaskResult,
    ToClient,
    ToCoordinator,
    Welcome,
    Work,
)
from task_assignor.runtime.machines.records import CommitRecord, FileRef, Part, Seal, TaskCommit
from task_assignor.sdk import TaskId

TASK = TaskId(1, 7, "orders__of_today")
FILE = FileRef("output/out/7/0.arrow", Seal(3, 400, "0123abcd"), (("x", "int64"),))
COMMIT = TaskCommit(TASK, 2, "c", "p", "m", "pid 7", 4, {"t": (3, 9)}, {"out": FILE}, {}, 9, {"late": 1}, 0.25, -5)
RECORD = CommitRecord(0, "app", 1, 4, 1_000, {TASK: COMMIT}, opened_by="me")


def _message(counters: dict[str, int]) -> TaskDone:
    return TaskDone(TaskResult(TASK, 2, 4, {"t": (3, 9)}, {"out": FILE}, {}, Position(2, 4, 9, -5), counters))


@given(st.dictionaries(st.text(), st.integers()), st.text())
def test_what_is_read_is_what_was_written(counters: dict[str, int], reason: str) -> None:
    """Whatever users count and say: numbers of any size, all of Unicode."""
    read = reader_of(ToCoordinator)
    position = {TASK: Position(1, 2, 3)}
    for message in (_message(counters), Leave(reason), Heartbeat(position, 1, 2), Running({3: Work("process", TASK)})):
        assert read(encode(message)) == message
    assert decode(encode(RECORD), CommitRecord) == RECORD


@given(st.text(st.characters(codec=None)))
def test_what_is_no_unicode_is_escaped(reason: str) -> None:
    """Names of files may have any bytes, so errors may have halves of surrogates."""
    (found,) = json.loads(encode(Leave(f"\udcff{reason}")))[1:]
    assert found == f"\udcff{reason}".encode(errors="backslashreplace").decode()
    assert reader_of(ToCoordinator)(encode(_message({"\udcff": 1}))).result.counters == {"\\udcff": 1}


def test_numbers_and_texts_of_numpy_are_numbers_and_texts() -> None:
    assert encode([np.int64(3), np.float64(0.5), np.str_("x")]) == b'[3,0.5,"x"]'
    with pytest.raises(TypeError):
        encode([object()])


def test_a_record_is_for_people_too() -> None:
    document = json.loads(encode(RECORD))
    assert [*document][:2] == ["formatVersion", "number"]
    assert document["openedBy"] == "me"
    assert document["tasks"][str(TASK)]["offsets"] == {"t": [3, 9]}
    assert not {"rebalance", "snapshots"} & document.keys(), "what there is none of is not said"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"formatVersion": 5}, "formatVersion 5 is not 9"),
        ({"formatVersion": 10}, "formatVersion 10 is not 9; a newer task-assignor wrote it"),
        ({"formatVersion": "x"}, "formatVersion 'x' is not 9"),
        ({"number": -1}, r"Expected `int` >= 0 - at `\$.number`"),
        ({"number": "1"}, r"Expected `int`, got `str` - at `\$.number`"),
        ({"epoch": None}, r"at `\$.epoch`"),
        ({"tasks": {"7": {}}}, r"The task id \('7'\) must have the form .* at `key` in `\$.tasks`"),
        ({"tasks": {"0_0": {"task": 7}}}, r"The task id \(7\) must have .* at `\$.tasks\[...\].task`"),
        ({"tasks": {"0_0": {"task": "0_0"}}}, r"missing required field `batch` - at `\$.tasks\[...\]`"),
        ({"tasks": {"0_0": {"task": []}}}, r"at `\$.tasks\[...\].task`"),
    ],
)
def test_what_is_no_record_is_named(change: dict[str, Any], told: str) -> None:
    document = json.loads(encode(RECORD)) | change
    with pytest.raises(ValueError, match=told):
        decode(json.dumps(document).encode(), CommitRecord)
    document.pop("formatVersion")
    with pytest.raises(ValueError, match="formatVersion None is not 9"):
        decode(json.dumps(document).encode(), CommitRecord)


def test_what_is_no_document_is_named() -> None:
    for raw in (b"", b"{", b"[]", b"7", b'"x"', b"\xff"):
        for kind in (CommitRecord, Checkpoint):
            with pytest.raises(ValueError):  # noqa: PT011 - msgspec says what it is
                decode(raw, kind)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "/x"])
def test_names_of_parts_stay_in_their_folder(name: str) -> None:
    """They become paths."""
    told = "is no name of a part"
    if name:
        with pytest.raises(ValueError, match=told):
            Part(name, Seal(1, 1, ""))
        with pytest.raises(ValueError, match=rf"{told} - at `\$\[0\]`"):
            decode(encode([[name, [1, 1, ""]]]), list[Part])


def test_what_is_no_message_is_named() -> None:
    read = reader_of(ToClient)
    assert read(encode(Welcome("m"))) == Welcome("m")
    for raw, told in (
        (encode(Leave("it is from a client")), "Invalid value 'Leave'"),
        (b'["Welcome"]', "length"),
        (b'["Welcome", 7]', "Expected `str`, got `int`"),
        (b"\x80\x04\x95pickle", "malformed"),
        (b'{"Welcome": 1}', "Expected `array`"),
    ):
        with pytest.raises(ValueError, match=told):
            read(raw)


def test_values_are_equal_or_not_equal() -> None:
    """The stream time of a position follows from its batch. msgspec's `!=` did not ask for that, and called all of them different."""
    one, same, other = Position(2, 4, 9, -5), Position(2, 4, 9, 7), Position(2, 4, 8, -5)
    assert one == same
    assert not one != same  # noqa: SIM202
    assert one != other
    assert not one == other  # noqa: SIM201
    assert one != (2, 4, 9, -5)


def test_who_says_what_is_equal_says_what_is_not() -> None:
    kinds, found = [Value], set[type]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        found |= {kind} if "__eq__" in vars(kind) else set()
    assert Position in found
    assert all("__ne__" in vars(kind) for kind in found)
