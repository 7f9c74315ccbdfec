"""What an assignor returns: `AssignedTask`, `KafkaStreamsAssignment`, `TaskAssignment`, and the same as columns."""

from __future__ import annotations

import enum
import operator
import weakref
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

import attrs
import numpy as np

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.columns import (
    MISSING,
    Int8Array,
    Int32Array,
    Int64Array,
    Role,
    StateColumns,
    check_columns,
    check_length,
    check_range,
    columns_reduce,
    int8_column,
    int32_column,
    int64_column,
    offsets_of,
)
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.ids import ProcessId, TaskId
from task_assignor.sdk.integers import INT64_MAX, plain_int
from task_assignor.sdk.text import shown


@attrs.frozen
class AssignedTask:
    """A task in its role on a client (KIP-924, User APIs, `KafkaStreamsAssignment.AssignedTask`).

    Args:
        id: the task.
        type: `AssignedTask.Type.ACTIVE` or `AssignedTask.Type.STANDBY`.

    Raises:
        StateException: a value is of the wrong kind.
    """

    class Type(enum.Enum):
        """Whether a client processes a task or only keeps a copy of its state."""

        ACTIVE = "ACTIVE"
        STANDBY = "STANDBY"

    id: TaskId
    type: Type

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.id, TaskId):
            raise StateException(
                f"The id of an AssignedTask ({shown(self.id)}) must be a TaskId. Maybe use TaskId.parse(text)."
            )
        if not isinstance(self.type, AssignedTask.Type):
            raise StateException(
                f"The type of an AssignedTask ({shown(self.type)}) must be AssignedTask.Type.ACTIVE or .STANDBY."
            )

    def __str__(self) -> str:
        return f"{self.type.value} {self.id}"


TaskType = AssignedTask.Type

_TYPES = (TaskType.ACTIVE, TaskType.STANDBY)
# A key is made once per task id, a comparison makes two.
_sort_key = operator.attrgetter("id.sort_key")


@attrs.frozen(eq=False)
class AssignmentColumns:
    """An assignment to known clients of known tasks: pairs (client, task, role), sorted by client.

    A wrong answer can be held too (a task with two owners, with none, twice on a client).

    Args:
        state: columns that the numbers refer to.
        client: (N,) client number, ascending.
        task: (N,) task number.
        role: (N,) `Role` number.
        deadline_ms: (C,) follow-up rebalance deadlines, milliseconds since the epoch; `MISSING`: none.
    """

    state: StateColumns = attrs.field(repr=False)
    client: Int32Array = attrs.field(converter=int32_column, repr=False)
    task: Int32Array = attrs.field(converter=int32_column, repr=False)
    role: Int8Array = attrs.field(converter=int8_column, repr=False)
    deadline_ms: Int64Array = attrs.field(converter=int64_column, repr=False)
    offsets: Int64Array = attrs.field(init=False, repr=False)
    """(C + 1,) CSR offsets of the pairs by client."""

    def __attrs_post_init__(self) -> None:
        check_columns(self.state)
        for name in ("task", "role"):
            check_length(self, name, len(self.client))
        check_length(self, "deadline_ms", len(self.state.clients))
        check_range("client", self.client, 0, len(self.state.clients))
        check_range("task", self.task, 0, len(self.state.tasks))
        check_range("role", self.role, 0, len(Role))
        if len(self.client) > 1 and (np.diff(self.client) < 0).any():
            raise StateException("The rows of an assignment must be sorted by client.")
        object.__setattr__(self, "offsets", offsets_of(self.client, len(self.state.clients)))

    @classmethod
    def of(
        cls,
        state: StateColumns,
        active_client: Int32Array | Int64Array,
        standby_task: Int32Array | Int64Array | None = None,
        standby_client: Int32Array | Int64Array | None = None,
        deadline_ms: Int64Array | None = None,
    ) -> AssignmentColumns:
        """Columns from one owner per task and pairs of standbys.

        Args:
            state: columns of the state.
            active_client: (T,) client number of the active owner; -1: nobody.
            standby_task: (S,) task numbers of the standbys.
            standby_client: (S,) their client numbers.
            deadline_ms: (C,) follow-up rebalance deadlines; None: no client has one.

        Raises:
            StateException: the state is not `StateColumns`, columns of the wrong length or kind, or numbers out of range.
        """
        check_columns(state)
        owners = int32_column(active_client)
        if len(owners) != len(state.tasks):
            raise StateException(
                f"The column active_client must have {len(state.tasks)} rows, one per task, but has {len(owners)}."
            )
        check_range("active_client", owners, -1, len(state.clients))
        owned = np.flatnonzero(owners >= 0)
        standbys = int32_column([] if standby_task is None else standby_task)
        holders = int32_column([] if standby_client is None else standby_client)
        if len(standbys) != len(holders):
            raise StateException(
                f"The columns standby_task and standby_client must be of one length, but have {len(standbys)} and "
                f"{len(holders)} rows."
            )
        client = np.concatenate([owners[owned], holders])
        task = np.concatenate([owned, standbys])
        role = np.concatenate([np.full(len(owned), Role.ACTIVE), np.full(len(standbys), Role.STANDBY)])
        order = order_by(client, role, task)
        if deadline_ms is None:
            deadline_ms = np.full(len(state.clients), MISSING)
        return cls(state, client[order], task[order], role[order], deadline_ms)

    __reduce__ = columns_reduce

    def rows_of(self, client: int) -> slice:
        """The rows of one client."""
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def pairs(self, role: Role) -> tuple[Int32Array, Int32Array]:
        """(client, task) of the given role, sorted by client."""
        chosen = self.role == role
        return self.client[chosen], self.task[chosen]

    def active_owner(self) -> Int32Array:
        """(T,) client number of each task's active owner; -1: nobody. With several owners the last client's."""
        owner = np.full(len(self.state.tasks), -1, dtype=np.int32)
        client, task = self.pairs(Role.ACTIVE)
        owner[task] = client
        return owner

    def assignments(self) -> tuple[KafkaStreamsAssignment, ...]:
        """One `KafkaStreamsAssignment` per client of the state, in process-id order; their tasks are read when asked for."""
        return tuple(KafkaStreamsAssignment.of_columns(self, client) for client in range(len(self.state.clients)))


class _Tasks(Mapping[TaskId, AssignedTask]):
    """The tasks of one client at one moment, put in order only if somebody goes through them.

    It shares the dict of the assignment until that changes: who asks after each change for their number, or for one of them,
    would have all of them copied and sorted each time.
    """

    __slots__ = ("__weakref__", "_are_sorted", "_in_order", "_tasks")

    def __init__(self, tasks: dict[TaskId, AssignedTask], *, are_sorted: bool) -> None:
        self._tasks = tasks
        self._are_sorted = are_sorted
        self._in_order: dict[TaskId, AssignedTask] | None = None

    def keep(self) -> None:
        """The assignment is about to change; this stays as it is."""
        self._tasks = dict(self._tasks) if self._in_order is None else self._in_order

    def _ordered(self) -> dict[TaskId, AssignedTask]:
        # A dict of its own in any case: somebody may go through it and change the assignment on the way.
        if self._in_order is None:
            self._in_order = (
                # A copy of a dict hashes nothing.
                dict(self._tasks)
                if self._are_sorted
                else {task.id: task for task in sorted(self._tasks.values(), key=_sort_key)}
            )
        return self._in_order

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    def __getitem__(self, task_id: TaskId) -> AssignedTask:
        return self._tasks[task_id]

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._ordered())

    def keys(self) -> KeysView[TaskId]:
        return self._ordered().keys()

    def values(self) -> ValuesView[AssignedTask]:
        return self._ordered().values()

    def items(self) -> ItemsView[TaskId, AssignedTask]:
        return self._ordered().items()

    def __repr__(self) -> str:
        return repr(self._ordered())


class KafkaStreamsAssignment:
    """The tasks of one client: the one builder that changes (KIP-924, User APIs, `KafkaStreamsAssignment`).

    Made with `of`. A task has one role on a client. As in Kafka, `assign_task` of a standby silently replaces the active
    task of the same id (and the other way round), and `remove_task` removes by id, whatever the role.
    """

    __slots__ = ("_client", "_columns", "_deadline_ms", "_process_id", "_shown", "_tasks")

    def __init__(self, *_args: object, **_named: object) -> None:
        raise StateException(
            "A KafkaStreamsAssignment is made with KafkaStreamsAssignment.of(process_id, assigned_tasks)."
        )

    @classmethod
    def _made(cls, *values: Any) -> Self:
        made = cls.__new__(cls)
        made._set(*values)  # noqa: SLF001
        return made

    def _set(
        self,
        process_id: ProcessId,
        tasks: dict[TaskId, AssignedTask] | None,
        deadline_ms: int | None,
        columns: AssignmentColumns | None = None,
        client: int = -1,
    ) -> None:
        self._process_id = process_id
        self._tasks = tasks
        self._deadline_ms = deadline_ms
        self._columns = columns
        self._client = client
        # What `tasks` shows; it never changes, but is made anew.
        self._shown: _Tasks | None = None

    @classmethod
    def of(cls, process_id: ProcessId, assigned_tasks: Iterable[AssignedTask] = ()) -> Self:
        """An assignment of the given tasks to the client.

        Raises:
            StateException: a task is given in two roles, or something is not what it should be.
        """
        if not isinstance(process_id, ProcessId):
            raise StateException(
                f"The process_id ({shown(process_id)}) must be a ProcessId. Maybe use ProcessId.parse(text)."
            )
        if not isinstance(assigned_tasks, Iterable):
            raise StateException(f"The assigned_tasks ({shown(assigned_tasks)}) must be a list of AssignedTask.")
        tasks: dict[TaskId, AssignedTask] = {}
        for assigned in assigned_tasks:
            _check_assigned(assigned)
            if tasks.setdefault(assigned.id, assigned) != assigned:
                raise StateException(f"Task {assigned.id} cannot be active and standby on one client ({process_id}).")
        return cls._made(process_id, tasks, None)

    @classmethod
    def of_columns(cls, columns: AssignmentColumns, client: int) -> Self:
        """The assignment of client number `client` in the columns, as a view.

        Raises:
            StateException: not `AssignmentColumns`, or it is the number of no client.
        """
        _check_assignment_columns(columns)
        client = whole_number("number of the client", client, 0, len(columns.state.clients) - 1, StateException)
        deadline = int(columns.deadline_ms[client])
        process_id = columns.state.clients.process_ids[client]
        return cls._made(process_id, None, None if deadline == MISSING else deadline, columns, client)

    def with_followup_rebalance(self, rebalance_deadline_ms: int) -> Self:
        """A copy that asks its client to trigger a rebalance once the deadline has passed.

        Args:
            rebalance_deadline_ms: milliseconds since the epoch. Usually `state.now_ms` + something; what has passed
                already, such as 0 (or -1, since Java's instants go back before 1970), means at once. Where each answer asks for
                that, hosts of ours take longer and longer pauses, up to a minute; Kafka Streams does not.

        Raises:
            StateException: not an int of milliseconds.
        """
        deadline_ms = plain_int(rebalance_deadline_ms)
        if type(deadline_ms) is not int or not -INT64_MAX <= deadline_ms <= INT64_MAX:
            raise StateException(
                f"The followup rebalance deadline ({shown(rebalance_deadline_ms)}) must be an int of milliseconds since the "
                "epoch, less than 2^63. Maybe use state.now_ms + a number of milliseconds."
            )
        tasks = None if self._tasks is None else dict(self._tasks)
        return self._made(self._process_id, tasks, deadline_ms, self._columns, self._client)

    @property
    def process_id(self) -> ProcessId:
        """The client."""
        return self._process_id

    @property
    def tasks(self) -> Mapping[TaskId, AssignedTask]:
        """Task id -> task in its role, sorted by task id. Read-only; later changes do not show in it."""
        if self._shown is None:
            # Made of columns they are in order.
            self._shown = _Tasks(self._materialised(), are_sorted=self._columns is not None)
        return self._shown

    def assign_task(self, task: AssignedTask) -> None:
        """Assign a task; if the client has it in the other role, the role is replaced.

        Raises:
            StateException: not an `AssignedTask`.
        """
        _check_assigned(task)
        self._to_be_changed()[task.id] = task

    def remove_task(self, task: AssignedTask) -> None:
        """Remove a task, whatever its role, as Kafka does. Nothing happens if the client does not have it.

        Raises:
            StateException: not an `AssignedTask`.
        """
        _check_assigned(task)
        self._to_be_changed().pop(task.id, None)

    @property
    def followup_rebalance_deadline_ms(self) -> int | None:
        """When the client shall trigger a rebalance, milliseconds since the epoch; None: not at all."""
        return self._deadline_ms

    def _to_be_changed(self) -> dict[TaskId, AssignedTask]:
        tasks = self._materialised()
        if self._shown is not None:
            shown, self._shown = weakref.ref(self._shown), None
            # Does anybody else have it?
            held = shown()
            if held is not None:
                held.keep()
        self._columns = None
        return tasks

    def _materialised(self) -> dict[TaskId, AssignedTask]:
        if self._tasks is None:
            assert self._columns is not None
            rows = self._columns.rows_of(self._client)
            tasks, roles = self._columns.task[rows], self._columns.role[rows]
            # By task: what `tasks` shows. Of a task that is there twice the last row counts.
            order = order_by(tasks)
            ids = self._columns.state.tasks.task_ids(tasks[order].tolist())
            # The columns stay: as long as nothing was changed they are the quicker face.
            self._tasks = {
                task_id: AssignedTask(task_id, _TYPES[role])
                for task_id, role in zip(ids, roles[order].tolist(), strict=True)
            }
        return self._tasks

    @property
    def columns(self) -> tuple[AssignmentColumns, int] | None:
        """The columns this is a view of, and the client number in them; None once it was changed or made of objects."""
        return None if self._columns is None else (self._columns, self._client)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KafkaStreamsAssignment):
            return NotImplemented
        return (self._process_id, self._deadline_ms, self._materialised()) == (
            other._process_id,
            other._deadline_ms,
            other._materialised(),
        )

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        # What changes in one must not change in the other.
        tasks = None if self._tasks is None else dict(self._tasks)
        return self._made(self._process_id, tasks, self._deadline_ms, self._columns, self._client)

    def __repr__(self) -> str:
        tasks = ", ".join(map(str, self.tasks.values()))
        deadline = "" if self._deadline_ms is None else f", followup_rebalance_deadline_ms={self._deadline_ms}"
        return f"KafkaStreamsAssignment({self._process_id}, [{tasks}]{deadline})"


class TaskAssignment:
    """What `TaskAssignor.assign` returns: one `KafkaStreamsAssignment` per client (KIP-924, User APIs, `TaskAssignor`).

    Args:
        assignment: the assignments, in any order; also the `Mapping` that the utilities return.
        inexact: codes of goals of the assignor that were perhaps not reached exactly, for example because the input is
            large. The built-in assignors' are those of `task_assignor.utils.Goal`. None: what the utility's result says,
            nothing for other lists. Members of the group are not sent it, and it plays no part in `==`.

    Raises:
        StateException: something in it is no `KafkaStreamsAssignment`, or is not the one of the client that is its key;
            or a code is no string.
    """

    __slots__ = ("_assignment", "_inexact")

    def __init__(
        self,
        assignment: Iterable[KafkaStreamsAssignment] | Mapping[ProcessId, KafkaStreamsAssignment],
        *,
        inexact: Iterable[str] | None = None,
    ) -> None:
        if not isinstance(assignment, Iterable):
            raise StateException(
                f"A TaskAssignment holds a list of KafkaStreamsAssignment objects, but was given {shown(assignment)}."
            )
        values = tuple(assignment.values() if isinstance(assignment, Mapping) else assignment)
        for value in values:
            if not isinstance(value, KafkaStreamsAssignment):
                raise StateException(
                    f"A TaskAssignment holds KafkaStreamsAssignment objects, but was given {shown(value)}."
                )
        if isinstance(assignment, Mapping):
            for key, value in assignment.items():
                if key != value.process_id:
                    raise StateException(
                        f"The key of the assignment of client {value.process_id} must be this ProcessId, but is "
                        f"{shown(key)}. Maybe use {{each.process_id: each for each in ...}}."
                    )
        self._assignment = values
        self._inexact = codes_of(getattr(assignment, "inexact", ()) if inexact is None else inexact)

    @classmethod
    def of_columns(cls, columns: AssignmentColumns, *, inexact: Iterable[str] = ()) -> TaskAssignment:
        """The assignment that the columns hold.

        Raises:
            StateException: not `AssignmentColumns`, or a code is no string.
        """
        _check_assignment_columns(columns)
        return cls(columns.assignments(), inexact=inexact)

    @property
    def inexact(self) -> frozenset[str]:
        """Codes of goals that were perhaps not reached exactly; empty: whatever the assignor seeks is reached."""
        return self._inexact

    @property
    def assignment(self) -> tuple[KafkaStreamsAssignment, ...]:
        """The assignments, in the order given."""
        return self._assignment

    @property
    def columns(self) -> AssignmentColumns | None:
        """The columns, if every client's assignment is an unchanged view of the same ones, in their order; else None."""
        views = [assignment.columns for assignment in self._assignment]
        if not views or views[0] is None:
            return None
        columns: AssignmentColumns = views[0][0]
        if len(views) != len(columns.state.clients):
            return None
        for number, (view, assignment) in enumerate(zip(views, self._assignment, strict=True)):
            if view is None or view[0] is not columns or view[1] != number:
                return None
            deadline = int(columns.deadline_ms[number])
            if (None if deadline == MISSING else deadline) != assignment.followup_rebalance_deadline_ms:
                return None
        return columns

    def __iter__(self) -> Iterator[KafkaStreamsAssignment]:
        return iter(self._assignment)

    def __eq__(self, other: object) -> bool:
        return self._assignment == other._assignment if isinstance(other, TaskAssignment) else NotImplemented

    # What it holds can change.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inexact = f", inexact={sorted(map(str, self._inexact))}" if self._inexact else ""
        return f"TaskAssignment({list(self._assignment)!r}{inexact})"


def codes_of(inexact: object) -> frozenset[str]:
    """The codes of goals that were perhaps not reached exactly.

    Raises:
        StateException: not a list, or one is no string.
    """
    if isinstance(inexact, str) or not isinstance(inexact, Iterable):
        raise StateException(f"The inexact goals ({shown(inexact)}) must be a list of codes.")
    codes = tuple(inexact)
    for code in codes:
        if not isinstance(code, str):
            raise StateException(f"The code of an inexact goal ({shown(code)}) must be a string.")
    return frozenset(codes)


def _check_assignment_columns(columns: object) -> None:
    if not isinstance(columns, AssignmentColumns):
        raise StateException(
            f"The columns ({shown(columns)}) must be AssignmentColumns. Maybe use AssignmentColumns.of(state.columns, owners)."
        )


def _check_assigned(assigned: object) -> None:
    if not isinstance(assigned, AssignedTask):
        raise StateException(f"An assigned task ({shown(assigned)}) must be an AssignedTask(task_id, type).")
