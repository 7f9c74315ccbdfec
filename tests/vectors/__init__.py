"""The recorded answers of Kafka's own classes: `task_level` as objects of the sdk, the others line by line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from task_assignor.sdk import (
    ApplicationState,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    assignment_from_json,
    assignment_to_json,
    state_from_json,
)

FOLDER = Path(__file__).parent / "task_level"


@attrs.frozen
class Vector:
    """One scenario and what the JVM made of it; `json` is the line as it stands (README.md there describes it)."""

    json: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def id(self) -> str:
        """Name of the scenario."""
        return str(self.json["id"])

    @property
    def state(self) -> ApplicationState:
        """The application state; a new object each time."""
        return state_from_json(self.json["state"])

    @property
    def assignment(self) -> TaskAssignment:
        """The assignment of the input, of the operations that have one.

        Raises:
            SnapshotException: a task is active and standby on one client (Kafka throws there as well).
        """
        return assignment_from_json(self.json["assignment"])

    @property
    def expected(self) -> dict[str, Any]:
        """The answer, of vectors that are deterministic."""
        expected = self.json["expected"]
        assert isinstance(expected, dict), f"{self.id} has no single answer"
        return expected

    @property
    def throws(self) -> bool:
        """The JVM threw an exception."""
        return "exception" in (self.json["expected"] or {})


@cache
def vectors(name: str) -> tuple[Vector, ...]:
    """All vectors of `<name>.jsonl.gz`, in the order of the file."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(Vector(json.loads(line)) for line in lines)


def placements_of(
    assignment: TaskAssignment | Iterable[KafkaStreamsAssignment] | Mapping[ProcessId, KafkaStreamsAssignment],
) -> list[dict[str, Any]]:
    """An assignment as the vectors write it: clients by process id, tasks by task id."""
    return assignment_to_json(assignment if isinstance(assignment, TaskAssignment) else TaskAssignment(assignment))


@cache
def lines_of(path: str) -> tuple[dict[str, Any], ...]:
    """The lines of another file of vectors, such as `wire/sticky_userdata`, as they stand."""
    file = Path(__file__).parent / path
    text = file.read_bytes() if file.suffix else gzip.decompress(Path(f"{file}.jsonl.gz").read_bytes())
    return tuple(json.loads(line) for line in text.decode("utf-8").splitlines())
