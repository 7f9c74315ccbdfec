"""Files of snapshots: one document or many, plain or compressed, from a path or standard input."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import random
import re
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from task_assignor.sdk import (
    SnapshotException,
    StateRecord,
    TaskAssignment,
    assignment_from_json,
    assignment_to_json,
    iter_states,
    read_assignment,
    read_state,
    state_from_json,
    state_to_json,
    write_assignment,
    write_state,
)
from tests.sdk.documents import FIRST, document

ONE = json.dumps(document())
PRETTY = json.dumps(document(), indent=2)
PLACEMENTS: list[dict[str, Any]] = [{"processId": FIRST, "activeTasks": ["0_0"], "standbyTasks": []}]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def outcomes(path: Path | str) -> list[tuple[int, Any, bool]]:
    """(line, id, whether there is a state)."""
    return [(record.line, record.id, record.state is not None) for record in iter_states(path)]


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x", "x.json.gz"])
@pytest.mark.parametrize("text", [ONE, ONE + "\n", "\n\n" + ONE, PRETTY, "\ufeff" + ONE])
@pytest.mark.parametrize("compressed", [False, True])
def test_one_document_is_read_whatever_the_file_is_called(
    written: Callable[[str, str | bytes], Path], name: str, text: str, compressed: bool
) -> None:
    path = written(name, gzip.compress(text.encode()) if compressed else text)
    assert state_to_json(read_state(path)) == state_to_json(state_from_json(document()))
    assert [found[1:] for found in outcomes(path)] == [("small", True)]


def test_json_lines_are_read_one_after_the_other(written: Callable[[str, str | bytes], Path]) -> None:
    lines = [json.dumps({**document(), "id": number}) for number in range(3)]
    path = written("x.jsonl", "\n".join([lines[0], "", lines[1], "   ", lines[2], ""]))
    assert outcomes(path) == [(1, 0, True), (3, 1, True), (5, 2, True)]


def test_a_bad_line_does_not_hide_the_others(written: Callable[[str, str | bytes], Path]) -> None:
    wrong = json.dumps({**document(), "id": "wrong", "tasks": 3})
    path = written("x.jsonl", "\n".join(["{", ONE, wrong, '{"id": "empty"}', "nonsense", ONE]))
    records = list(iter_states(path))
    assert [(record.line, record.id, record.state is not None) for record in records[:5]] == [
        (1, None, False),
        (2, "small", True),
        (3, "wrong", False),
        (4, "empty", False),
        (5, None, False),
    ]
    assert [None if record.error is None else record.error.path for record in records[1:5]] == [
        None,
        "$.tasks",
        "$",
        "$",
    ]
    assert len(records) == 6


@pytest.mark.parametrize(
    "bad", ['{"nowMs":' + "9" * 5_000 + " x", '{"a":' + "9" * 5_000 + ',"b":' + "[" * 100_000, "[" * 100_000]
)
def test_no_line_hides_the_others_whatever_a_parser_makes_of_it(
    written: Callable[[str, str | bytes], Path], bad: str
) -> None:
    assert outcomes(written("x.jsonl", f"{ONE}\n{bad}\n{ONE}\n")) == [
        (1, "small", True),
        (2, None, False),
        (3, "small", True),
    ]


def _gzipped(parts: Iterable[bytes]) -> bytes:
    packed = zlib.compressobj(9, wbits=31)
    return b"".join([*map(packed.compress, parts), packed.flush()])


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([b"\n" * 1_000_000] * 60, "is empty"),
        ([b" " * 1_000_000] * 60, "is empty"),
        ([b" \r\n" * 300_000, ONE.encode()] * 60, [(300_000 * number + 1, "small", True) for number in range(1, 61)]),
        ([b" " * 60_000_000, ONE.encode()], [(1, "small", True)]),
        ([b'{"tasks":', *[b" " * 1_000_000] * 60, b"[]}"], "line 1: More than 1,048,576 blanks in a row"),
        ([b'{"tasks":\n', *[b"\n" * 1_000_000] * 60, b"[]}"], "line 1: More than 1,048,576 blanks in a row"),
        ([ONE.encode(), b"\n" * 60_000_000], [(1, "small", True)]),
    ],
    ids=["lines", "spaces", "lines between", "before", "within a line", "within", "after"],
)
def test_megabytes_of_blanks_cost_neither_time_nor_memory(
    written: Callable[[str, str | bytes], Path], parts: list[bytes], found: str | list[Any]
) -> None:
    """Kilobytes of gzip that hold a hundred megabytes: seconds for each of them, and as much memory, before."""
    path = written("x.json.gz", _gzipped(parts))
    assert path.stat().st_size < 500_000
    begin = time.process_time()
    if isinstance(found, str):
        with pytest.raises(SnapshotException, match=found):
            list(iter_states(path))
    else:
        assert outcomes(path) == found
    # It takes half a second; a loop in Python over the blanks took more than ten.
    assert time.process_time() - begin < 5


def test_the_memory_for_blanks_is_bounded(written: Callable[[str, str | bytes], Path]) -> None:
    path = written("x.json.gz", _gzipped([b" " * 1_000_000] * 30))
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotException, match="is empty"):
            list(iter_states(path))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_columns_of_errors_count_from_the_beginning_of_the_line(
    written: Callable[[str, str | bytes], Path],
) -> None:
    indented = "\n" * 70_000 + "   { x\n}"
    (record,) = iter_states(written("x.json", gzip.compress(indented.encode())))
    assert "column 6" in str(record.error)


def test_a_bad_line_among_others_is_one_even_if_it_is_not_utf_8(written: Callable[[str, str | bytes], Path]) -> None:
    path = written("x", b"\xff\n" + ONE.encode() + b"\n\xfe{}\n")
    assert outcomes(path) == [(1, None, False), (2, "small", True), (3, None, False)]


def test_scenarios_hold_a_state(written: Callable[[str, str | bytes], Path]) -> None:
    good = {"id": "s1", "operation": "ha", "state": document(), "note": []}
    wrong = {"id": "s2", "state": {**document(), "tasks": 3}}
    first, second = iter_states(written("x.jsonl", f"{json.dumps(good)}\n{json.dumps(wrong)}\n"))
    assert (first.id, first.document["operation"]) == ("s1", "ha")
    assert second.error is not None
    assert (second.id, second.error.path) == ("s2", "$.state.tasks")
    assert str(second.error).startswith("$.state.tasks: The value must be a list")


@pytest.mark.parametrize("name", ["x.json", "x.json.gz", "x"])
def test_a_broken_document_of_many_lines_is_one_error_with_its_line(
    written: Callable[[str, str | bytes], Path], name: str
) -> None:
    broken = PRETTY.replace('"nowMs"', "nowMs")
    (record,) = iter_states(written(name, broken))
    assert record.line == 0
    assert "line 4, column 3" in str(record.error)


@pytest.mark.parametrize("name", ["x.json", "x"])
def test_objects_within_a_broken_document_are_no_documents(
    written: Callable[[str, str | bytes], Path], name: str
) -> None:
    broken = '{\n  "id": 7\n  "tasks": [\n    {"id": "1_0", "isStateful": false, "topicPartitions": []}\n  ],\n  "clients": []\n}\n'
    (record,) = iter_states(written(name, broken))
    assert "line 3, column 3" in str(record.error)


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x", "x.gz"])
def test_noise_is_one_error(written: Callable[[str, str | bytes], Path], name: str) -> None:
    noise = random.Random(2).randbytes(2_000_000)
    (record,) = iter_states(written(name, noise))
    assert "UTF-8" in str(record.error)


@pytest.mark.parametrize("content", ["", "\n\n", "  \n"])
def test_an_empty_file_is_an_error(written: Callable[[str, str | bytes], Path], content: str) -> None:
    for data in (content.encode(), gzip.compress(content.encode())):
        with pytest.raises(SnapshotException, match="is empty"):
            list(iter_states(written("x.jsonl", data)))


def test_files_that_cannot_be_read_are_named(written: Callable[[str, str | bytes], Path], tmp_path: Path) -> None:
    packed = gzip.compress(ONE.encode())
    paths: list[tuple[str | Path, str]] = [
        (tmp_path / "missing.json", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        ("", "name of the file must not be empty"),
        (Path("a\0b"), "cannot be read: embedded null byte"),
        (written("cut.gz", packed[:-20]), "cannot be read: its gzip data is cut off"),
        (written("wrong.gz", packed[:20] + b"xxxxxxxx" + packed[28:]), "cannot be read: its gzip data is damaged"),
        (written("tail.gz", packed + b"xyz"), "cannot be read: its gzip data is damaged"),
    ]
    for path, message in paths:
        with pytest.raises(SnapshotException, match=message):
            list(iter_states(path))


@pytest.mark.parametrize("text", ['"x"', json.dumps(ONE)])
def test_a_string_is_no_document_even_if_it_holds_one(written: Callable[[str, str | bytes], Path], text: str) -> None:
    path = written("x.json", text)
    (record,) = iter_states(path)
    assert str(record.error).startswith("$: The value must be an object, but is '")
    with pytest.raises(SnapshotException, match="must be a list, but is '"):
        read_assignment(path)


@pytest.mark.parametrize("name", ["x.json", "x"])
@pytest.mark.parametrize("text", [f"[{ONE}, {ONE}]", f"{PRETTY}\n{PRETTY}\n", f"{ONE} {ONE}"])
def test_several_documents_that_are_not_on_lines_of_their_own_lead_to_json_lines(
    written: Callable[[str, str | bytes], Path], name: str, text: str
) -> None:
    (record,) = iter_states(written(name, text))
    assert "(JSON Lines)" in str(record.error)


def test_one_state_is_wanted(written: Callable[[str, str | bytes], Path]) -> None:
    with pytest.raises(SnapshotException, match="must hold one state, but holds several"):
        read_state(written("x.jsonl", f"{ONE}\n{ONE}\n"))
    with pytest.raises(SnapshotException) as caught:
        read_state(written("x.json", ONE.replace('"isStateful": true', '"isStateful": 1')))
    assert caught.value.path == "$.tasks[0].isStateful"
    assert re.fullmatch(
        r"\S+x\.json: \$\.tasks\[0\]\.isStateful: The value must be true or false, but is 1\.", str(caught.value)
    )


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (ONE.encode(), PRETTY.encode(), gzip.compress(ONE.encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        assert [found[1:] for found in outcomes("-")] == [("small", True)]


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    state = state_from_json(document())
    write_state(state, path, id="mine")
    first = path.read_bytes()
    assert state_to_json(read_state(path)) == state_to_json(state)
    assert outcomes(path) == [(1, "mine", True)]
    write_state(read_state(path), path, id="mine")
    assert path.read_bytes() == first
    assert first.startswith(b"\x1f\x8b") == name.endswith(".gz")
    write_assignment(assignment_from_json(PLACEMENTS), path)
    assert assignment_to_json(read_assignment(path)) == PLACEMENTS


def test_written_files_joined_are_json_lines(tmp_path: Path) -> None:
    state = state_from_json(document())
    for number in range(2):
        write_state(state, tmp_path / f"{number}.json", id=number)
    joined = tmp_path / "all.jsonl"
    joined.write_bytes(b"".join((tmp_path / f"{number}.json").read_bytes() for number in range(2)))
    assert outcomes(joined) == [(1, 0, True), (2, 1, True)]


def test_one_assignment_is_wanted(written: Callable[[str, str | bytes], Path]) -> None:
    text = json.dumps(PLACEMENTS)
    with pytest.raises(SnapshotException, match="must hold one assignment"):
        read_assignment(written("x.jsonl", f"{text}\n{text}\n"))
    for wrong in ("[", '[{"processId": 1}]'):
        with pytest.raises(SnapshotException, match=r"^\S+x\.json: \$.*(not JSON|is missing)"):
            read_assignment(written("x.json", wrong))


def test_states_are_read_as_they_are_asked_for(written: Callable[[str, str | bytes], Path]) -> None:
    """A file of any length is read line by line."""
    states = iter_states(written("x.jsonl", "\n".join([ONE] * 3)))
    assert isinstance(next(states), StateRecord)
    states.close()  # type: ignore[attr-defined]


class FullStream(io.StringIO):
    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_standard_output_is_written(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_from_json(document())
    write_state(state, "-", id="a")
    write_assignment(TaskAssignment([]), "-")
    first, second = capsys.readouterr().out.splitlines()
    assert json.loads(first) == state_to_json(state, "a")
    assert json.loads(second) == []
    monkeypatch.setattr(sys, "stdout", FullStream())
    with pytest.raises(SnapshotException, match="standard output cannot be written: No space left on device"):
        write_state(state, "-")
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where it was closed
    with pytest.raises(SnapshotException, match="standard output cannot be written: it is closed"):
        write_state(state, "-")


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    state = state_from_json(document())
    for path in (tmp_path / "no" / "such.json", tmp_path):
        with pytest.raises(SnapshotException, match=f"^{path} cannot be written: "):
            write_state(state, path)
    with pytest.raises(SnapshotException, match="name of the file must not be empty"):
        write_state(state, "")


@pytest.mark.parametrize("wrong", [True, 1.5, [1]])
def test_an_id_is_a_string_or_an_integer(wrong: Any) -> None:
    with pytest.raises(SnapshotException, match=r"^\$\.id: The value must be a string or an integer"):
        state_to_json(state_from_json(document()), wrong)


def test_only_states_and_assignments_are_written() -> None:
    with pytest.raises(SnapshotException, match=r"The state \(None\) must be an ApplicationState"):
        state_to_json(None)  # type: ignore[arg-type]
    with pytest.raises(SnapshotException, match=r"must be a TaskAssignment. Maybe wrap it"):
        assignment_to_json({})  # type: ignore[arg-type]
