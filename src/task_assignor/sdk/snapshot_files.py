"""Files of snapshots: one document, or many as JSON Lines; plain, compressed, or standard input. The documents are read elsewhere."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import attrs

from task_assignor.sdk.assignment import TaskAssignment
from task_assignor.sdk.errors import SnapshotException
from task_assignor.sdk.files import replace_file
from task_assignor.sdk.json_text import bad_value, parse_json
from task_assignor.sdk.snapshot import state_of_value, state_to_json
from task_assignor.sdk.snapshot_assignment import assignment_of_value, document_to_json
from task_assignor.sdk.state import ApplicationState
from task_assignor.sdk.text import shown

STANDARD_INPUT: Final = "-"
STANDARD_OUTPUT: Final = "-"
_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_MOST_BLANKS: Final = 1 << 20
"""So many blanks in a row inside a document are no document: gzip makes a thousand times as many of what it is given."""
_NOT_BLANK: Final = re.compile(rb"\S")

Source = str | os.PathLike[str]
_Readable = io.BufferedReader | gzip.GzipFile


@attrs.frozen
class JsonDocument:
    """A document of a file: its value, or why it has none.

    Args:
        line: the line on which it starts, from 1; 0: the file is one document.
        value: what it holds; None if there is an error.
        error: what is wrong with it.
    """

    line: int
    value: Any = None
    error: SnapshotException | None = None


@attrs.frozen
class StateRecord:
    """A state of a file, or why there is none.

    Args:
        line: the line on which it starts, from 1; 0: the file is one document.
        id: the `id` of the document, if it has one.
        state: the state; None if there is an error.
        error: what is wrong with the document.
        document: the parsed document, with whatever else it holds.
    """

    line: int
    id: str | int | None
    state: ApplicationState | None
    error: SnapshotException | None
    document: Any = attrs.field(default=None, repr=False)


def read_state(path: Source) -> ApplicationState:
    """The one state in a file (`-`: standard input; may be compressed with gzip).

    Raises:
        SnapshotException: the file cannot be read, holds no state, or more than one.
    """
    records = iter_states(path)
    first = next(records)
    if first.error is not None or first.state is None:
        raise _of_file(path, first.error or SnapshotException("$: There is no state."))
    if next(records, None) is not None:
        raise SnapshotException(f"{path} must hold one state, but holds several. Maybe use iter_states.")
    return first.state


def iter_states(path: Source) -> Iterator[StateRecord]:
    """The states in a file, one after the other; one that is wrong does not hide those that follow.

    Args:
        path: a snapshot, or many as JSON Lines; `-`: standard input; may be compressed with gzip. A line may also be
            an object that has the snapshot as its member `state`, and perhaps an `id`.

    Raises:
        SnapshotException: the file cannot be read, or is empty.
    """
    for document in iter_documents(path):
        if document.error is not None:
            yield StateRecord(document.line, None, None, document.error)
            continue
        value, place = document.value, ""
        name = value.get("id") if isinstance(value, dict) else None
        name = name if isinstance(name, (str, int)) and not isinstance(name, bool) else None
        if isinstance(value, dict) and "state" in value and "tasks" not in value:
            value, place = value["state"], ".state"
        try:
            if _is_assignment(value):
                raise bad_value(
                    "$", "The value is an assignment, where a state is expected. Maybe the file of states is meant."
                )
            if isinstance(value, list):
                raise bad_value(
                    "$", "The value must be an object, but is a list. Maybe write one state per line (JSON Lines)."
                )
            state = state_of_value(value)
        except SnapshotException as error:
            yield StateRecord(document.line, name, None, error.moved(place), document.value)
        else:
            yield StateRecord(document.line, name, state, None, document.value)


def _is_assignment(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict) and "activeTasks" in value[0]
    return isinstance(value, dict) and "assignment" in value and "tasks" not in value


def read_assignment(path: Source) -> TaskAssignment:
    """The one assignment in a file (`-`: standard input; may be compressed with gzip).

    Raises:
        SnapshotException: the file cannot be read, holds no assignment, or more than one.
    """
    documents = iter_documents(path)
    first = next(documents)
    if first.error is not None:
        raise _of_file(path, first.error)
    if next(documents, None) is not None:
        raise SnapshotException(f"{path} must hold one assignment, but holds several.")
    try:
        return assignment_of_value(first.value)
    except SnapshotException as error:
        raise _of_file(path, error) from None


def _of_file(path: Source, error: SnapshotException) -> SnapshotException:
    """The same error, with the file in front."""
    name = "standard input" if str(path) == STANDARD_INPUT else path
    return SnapshotException(f"{name}: {error}", error.path)


def write_state(state: ApplicationState, path: Source, id: str | int | None = None) -> None:
    """Write a state as one line, so that such files can be joined to JSON Lines.

    Args:
        state: the state.
        path: the file; compressed if its name ends in `.gz`; `-`: standard output.
        id: a name for the document.

    Raises:
        SnapshotException: the file cannot be written, or the `id` is neither a string nor an integer.
    """
    write_document(state_to_json(state, id), path)


def write_assignment(assignment: TaskAssignment, path: Source) -> None:
    """Write an assignment as one line, so that such files can be joined to JSON Lines; with `inexact` if it has any.

    Args:
        assignment: the assignment.
        path: the file; compressed if its name ends in `.gz`; `-`: standard output.

    Raises:
        SnapshotException: the file cannot be written.
    """
    document = document_to_json(assignment)
    write_document(document if assignment.inexact else document["assignment"], path)


def write_document(value: object, path: Source) -> None:
    """Write any value as one line of JSON; see `write_state`."""
    _check_path(path)
    data = (json.dumps(value, separators=(",", ":")) + "\n").encode()
    name = os.fspath(path)
    is_standard_output = name == STANDARD_OUTPUT
    if is_standard_output and sys.stdout is None:
        raise SnapshotException("standard output cannot be written: it is closed.")
    try:
        if is_standard_output:
            sys.stdout.write(data.decode())
            sys.stdout.flush()
        else:
            # Without a time stamp equal states make equal files.
            replace_file(path, gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        name = "standard output" if is_standard_output else name
        raise SnapshotException(f"{name} cannot be written: {reason}.") from error


def iter_documents(path: Source) -> Iterator[JsonDocument]:
    """The JSON documents in a file: one that spans lines, or one per line (blank lines are skipped).

    Which of the two is seen from the content: JSON Lines have a whole document on their first line. If that is
    broken, the name decides (`.json`, `.jsonl`), and after it whether some other line looks like a document.

    Raises:
        SnapshotException: the file cannot be read, or is empty.
    """
    _check_path(path)
    name = "standard input" if os.fspath(path) == STANDARD_INPUT else str(path)
    with _opened(path, name) as file:
        lines = _filled_lines(file, name)
        first = next(lines, None)
        if first is None:
            raise SnapshotException(f"{name} is empty; it must hold a JSON document.")
        document = _document(*first)
        if document.error is not None:
            rest = list(lines)
            whole = _document(0, _joined([first, *rest], name))
            if whole.error is None or not _looks_like_lines(name, [first, *rest]):
                # A broken file that is one line long is broken on that line.
                yield whole if rest or whole.error is None else document
                return
            lines = iter(rest)
        yield document
        for number, line in lines:
            yield _document(number, line)


def _check_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise SnapshotException(f"The path ({shown(path)}) must be that of a file, or - for standard input and output.")
    if os.fspath(path) == "":
        raise SnapshotException("The name of the file must not be empty; standard input and output are -.")


_Line = tuple[int, bytes]
"""The number of a line, from 1, and the line."""


def _filled_lines(file: _Readable, name: str) -> Iterator[_Line]:
    """The lines that are not blank, as soon as they are there. Blank ones cost next to nothing, however many there are."""
    number, line, filled, blanks = 1, bytearray(), False, 0
    while chunk := file.read1(_CHUNK):
        start = 0
        while start < len(chunk):
            if not filled:
                found = _NOT_BLANK.search(chunk, start)
                stop = len(chunk) if found is None else found.start()
                newline = chunk.rfind(b"\n", start, stop)
                if newline >= 0:
                    number += chunk.count(b"\n", start, stop)
                    start = newline + 1
                    line.clear()
                if found is None:
                    # What a line begins with stays, so that errors name the right column; megabytes of it do not matter.
                    line = line + chunk[start:] if len(line) < _MOST_BLANKS else bytearray()
                    break
                end = chunk.find(b"\n", stop) + 1
                if end and not line:
                    # Nearly every line of a document that spans many.
                    yield number, chunk[start:end]
                    number, start = number + 1, end
                    continue
                filled = True
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            part = chunk[start:end]
            blanks = blanks + len(part) if part.isspace() else 0
            _check_blanks(blanks, name, number)
            line += part
            start = end
            if part.endswith(b"\n"):
                yield number, bytes(line)
                number, filled, blanks = number + 1, False, 0
                line.clear()
    if filled:
        yield number, bytes(line)


def _joined(lines: list[_Line], name: str) -> bytes:
    """The document that spans the lines, with the blank ones between them."""
    parts = [lines[0][1]]
    for (last, _), (number, line) in itertools.pairwise(lines):
        if number > last + 1:
            _check_blanks(number - last, name, last)
            parts.append(b"\n" * (number - last - 1))
        parts.append(line)
    return b"".join(parts)


def _check_blanks(blanks: int, name: str, line: int) -> None:
    if blanks > _MOST_BLANKS:
        raise SnapshotException(
            f"{name}, line {line}: More than {_MOST_BLANKS:,} blanks in a row are no JSON document."
        )


def _document(line: int, text: bytes) -> JsonDocument:
    try:
        return JsonDocument(line, parse_json(text.rstrip()))
    except SnapshotException as error:
        return JsonDocument(line, None, error)


def _looks_like_lines(name: str, lines: list[_Line]) -> bool:
    name = name.removesuffix(".gz")
    if name.endswith(".json"):
        return False
    if name.endswith(".jsonl"):
        # Noise shall give one error, not one per line.
        try:
            for _, line in lines:
                line.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return True
    # What is within a document that spans lines is indented, if an object of it has a line of its own.
    return any(isinstance(_document(0, line).value, dict) for _, line in lines if line.startswith(b"{"))


@contextmanager
def _opened(path: Source, name: str) -> Iterator[_Readable]:
    try:
        if os.fspath(path) == STANDARD_INPUT:
            if sys.stdin is None:
                raise SnapshotException(f"{name} cannot be read: it is closed.")
            yield _unpacked(cast(io.BufferedReader, sys.stdin.buffer))
        else:
            with Path(path).open("rb") as file:
                yield _unpacked(file)
    except EOFError as error:
        raise SnapshotException(f"{name} cannot be read: its gzip data is cut off.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SnapshotException(f"{name} cannot be read: its gzip data is damaged.") from error
    except (OSError, ValueError) as error:
        if isinstance(error, SnapshotException):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SnapshotException(f"{name} cannot be read: {reason}.") from error


def _unpacked(file: io.BufferedReader) -> _Readable:
    # The first bytes say it; standard input has no name.
    packed = file.peek(len(_GZIP)).startswith(_GZIP)
    return gzip.GzipFile(fileobj=file) if packed else file
