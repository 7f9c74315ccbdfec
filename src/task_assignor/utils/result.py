"""`AssignmentResult`: what every utility returns, a new mapping that also says what happened. How it came about is elsewhere."""

from __future__ import annotations

import enum
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from types import MappingProxyType

import attrs

from task_assignor.sdk import (
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.sdk.assignment import codes_of
from task_assignor.utils.placement import Placement


class SkipReason(enum.Enum):
    """Why a utility left the assignment as it was.

    Attributes:
        STRATEGY_NONE: `rack.aware.assignment.strategy` is `none`, the default.
        COST_MISSING: the traffic cost or the non-overlap cost is neither configured nor given for this call.
        CLIENT_WITHOUT_RACK: a client has no `client.rack`.
        PARTITION_WITHOUT_RACKS: the racks of a partition that counts are not known.
        NO_TASKS: none of the selected tasks is placed in the role that is looked at.
    """

    STRATEGY_NONE = "STRATEGY_NONE"
    COST_MISSING = "COST_MISSING"
    CLIENT_WITHOUT_RACK = "CLIENT_WITHOUT_RACK"
    PARTITION_WITHOUT_RACKS = "PARTITION_WITHOUT_RACKS"
    NO_TASKS = "NO_TASKS"


@attrs.frozen
class Skipped:
    """Why nothing was done, for programs and for people.

    Args:
        reason: the kind of reason.
        message: one sentence that names what is at fault (a client, a partition, a setting).
    """

    reason: SkipReason
    message: str

    def __str__(self) -> str:
        return self.message


def _placement_or_objects(
    assignments: Mapping[ProcessId, KafkaStreamsAssignment]
    | Iterable[KafkaStreamsAssignment]
    | AssignmentColumns
    | Placement,
) -> Placement | dict[ProcessId, KafkaStreamsAssignment]:
    if isinstance(assignments, Placement):
        return assignments
    given = assignments.assignments() if isinstance(assignments, AssignmentColumns) else assignments
    by_client: dict[ProcessId, KafkaStreamsAssignment] = {}
    for value in sorted(TaskAssignment(given).assignment, key=lambda value: value.process_id.signed_halves):
        if by_client.setdefault(value.process_id, value) is not value:
            raise StateException(f"Client {value.process_id} is twice in the assignment. Maybe merge its tasks.")
    return by_client


def _sorted(shortages: Mapping[TaskId, int] | Iterable[tuple[TaskId, int]]) -> dict[TaskId, int]:
    return dict(sorted(shortages.items() if isinstance(shortages, Mapping) else shortages))


@attrs.define(eq=False, repr=False)
class AssignmentResult(Mapping[ProcessId, KafkaStreamsAssignment]):
    """An assignment, process id -> `KafkaStreamsAssignment` in process-id order, with what is known about it.

    A new object on every call: what a utility was given is never changed. Hand it to the next utility, or to
    `TaskAssignment(...)` to return it from an assignor. (KIP-924, Read-only APIs, `TaskAssignmentUtils`, whose methods change
    their argument instead.) Its objects are made when somebody asks for one.

    Attributes:
        cost_before: cost of the input in the utility's own terms; None: the utility has no cost, or it was skipped.
        cost_after: cost of this assignment in the same terms.
        lower_bound: no assignment that keeps the utility's promises can cost less; equal to `cost_after`: a proven optimum.
        skipped: why nothing was done; None: it was done (and may still have found nothing to change).
        inexact: codes of goals that were perhaps not reached exactly, for example because the input is large: those of
            this utility, and those of what it was given. `TaskAssignment` takes them over.
    """

    _given: Placement | dict[ProcessId, KafkaStreamsAssignment] = attrs.field(
        alias="assignments", converter=_placement_or_objects
    )
    cost_before: int | None = attrs.field(default=None, kw_only=True)
    cost_after: int | None = attrs.field(default=None, kw_only=True)
    lower_bound: int | None = attrs.field(default=None, kw_only=True)
    skipped: Skipped | None = attrs.field(default=None, kw_only=True)
    # A view of it could not be pickled.
    _shortages: dict[TaskId, int] = attrs.field(default=(), kw_only=True, alias="shortages", converter=_sorted)
    inexact: frozenset[str] = attrs.field(default=(), kw_only=True, converter=codes_of)
    _made: dict[ProcessId, KafkaStreamsAssignment] | None = attrs.field(init=False, default=None)

    @property
    def _objects(self) -> dict[ProcessId, KafkaStreamsAssignment]:
        if self._made is None:
            given = self._given
            self._made = given if isinstance(given, dict) else {a.process_id: a for a in given.columns().assignments()}
        return self._made

    @property
    def placement(self) -> Placement | None:
        """The placement, if the result was made of one and nobody has changed one of its assignments since; else None."""
        if not isinstance(self._given, Placement) or (self._made is not None and self.columns is None):
            return None
        return self._given

    @property
    def columns(self) -> AssignmentColumns | None:
        """The columns, if the result was made of them and nobody has changed one of its assignments since; else None."""
        return TaskAssignment(self._objects.values()).columns

    @property
    def shortages(self) -> Mapping[TaskId, int]:
        """Task -> number of copies that should exist but could not be placed."""
        return MappingProxyType(self._shortages)

    @property
    def gap(self) -> int | None:
        """How far the cost may be from the optimum at most: `cost_after - lower_bound`; 0: proven optimal."""
        if self.cost_after is None or self.lower_bound is None:
            return None
        return self.cost_after - self.lower_bound

    def __getitem__(self, process_id: ProcessId) -> KafkaStreamsAssignment:
        return self._objects[process_id]

    def __iter__(self) -> Iterator[ProcessId]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def items(self) -> ItemsView[ProcessId, KafkaStreamsAssignment]:
        """Pairs of process id and assignment."""
        return self._objects.items()

    def values(self) -> ValuesView[KafkaStreamsAssignment]:
        """The assignments."""
        return self._objects.values()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._facts())})"

    def _facts(self) -> list[str]:
        facts = [f"{len(self)} clients"]
        if self.cost_before is not None:
            facts.append(f"cost {self.cost_before} -> {self.cost_after}")
        if self.lower_bound is not None:
            facts.append(f"lower bound {self.lower_bound}")
        if self.skipped is not None:
            facts.append(f"skipped: {self.skipped}")
        if self.shortages:
            facts.append(f"{sum(self.shortages.values())} copies missing")
        if self.inexact:
            facts.append(f"not exact: {', '.join(sorted(self.inexact))}")
        return facts
