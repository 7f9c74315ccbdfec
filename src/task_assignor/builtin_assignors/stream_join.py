"""`StreamJoinTaskAssignor`: equal partitions of sub-topologies that are joined share a client (KIP-315 on tasks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np

from task_assignor.builtin_assignors.sticky import previous_state
from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignmentColumns,
    ConfigException,
    ConfigKey,
    Role,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array
from task_assignor.utils._copies import place_copies
from task_assignor.utils._engine import Pairs, Problem, allocate

STREAM_JOIN_GROUPS: Final = "stream.join.groups"
_LAG_BITS: Final = 40
IntArray = Int32Array | Int64Array


def parse_join_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """The groups of sub-topologies that the setting `stream.join.groups` names.

    Args:
        text: sub-topology numbers; commas within a group, semicolons between groups: `0,1;2`.

    Raises:
        ConfigException: not of that form, or a sub-topology is named twice.

    Examples:
        >>> parse_join_groups("0,1; 2")
        ((0, 1), (2,))
    """
    groups: list[tuple[int, ...]] = []
    for part in text.split(";"):
        names = [name.strip() for name in part.split(",")]
        if not all(name.isascii() and name.isdigit() for name in names):
            raise ConfigException(
                f"The {STREAM_JOIN_GROUPS} ({text!r}) must be sub-topology numbers, with commas within a group and "
                "semicolons between groups, such as 0,1;2."
            )
        groups.append(tuple(int(name) for name in names))
    named = [number for group in groups for number in group]
    for number in named:
        if named.count(number) > 1:
            raise ConfigException(f"The {STREAM_JOIN_GROUPS} ({text!r}) must not name sub-topology {number} twice.")
    return tuple(groups)


def _check(value: object) -> str | None:
    try:
        parse_join_groups(str(value))
    except ConfigException as error:
        return str(error)
    return None


class StreamJoinTaskAssignor(TaskAssignor):
    """Keeps what is joined together: equal partitions of a join group's sub-topologies run on one client.

    Its goals, in this order, for one join group after the other (those with most tasks first):

    1. tasks of a join group with the same partition are on one client, and so are their standbys;
    2. every client has floor or ceil of its thread-weighted share of the group's partitions: newcomers get their fair
       share, taken from those that have most;
    3. fewest partitions move; of several claims the newest generation counts, then the one with more tasks;
    4. partitions with stateful tasks are spread evenly, then all;
    5. partitions that move go where their state is.

    The join groups come from the setting `stream.join.groups` (`0,1;2`; a sub-topology that it does not name is a group
    of its own). By default sub-topologies with equal numbers of partitions form a group (Faust's rule).

    KIP-315 leaves partitions out that not all topics have. A task must have an owner, so here they are placed too.
    """

    config_keys = (
        ConfigKey(
            name=STREAM_JOIN_GROUPS,
            type="string",
            default=None,
            doc="Stream join assignor: sub-topologies that are joined, such as 0,1;2. "
            "Default: those with equal numbers of partitions.",
            validator=_check,
        ),
    )

    def __init__(self) -> None:
        self._groups: tuple[tuple[int, ...], ...] | None = None

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `stream.join.groups`."""
        text = configs.get(STREAM_JOIN_GROUPS)
        self._groups = None if text is None else parse_join_groups(str(text))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the goals.

        Raises:
            ConfigException: `stream.join.groups` names a sub-topology that the application does not have.
        """
        columns = application_state.columns
        units = _Units.of(columns, _join_group_of(columns, self._groups))
        owner = units.owners()
        copies = units.standbys(owner, application_state.assignment_configs.num_standby_replicas)
        return TaskAssignment.of_columns(
            AssignmentColumns.of(columns, owner[units.unit].astype(np.int32), copies[0], copies[1])
        )


def _join_group_of(columns: StateColumns, groups: tuple[tuple[int, ...], ...] | None) -> Int64Array:
    """(G,) number of the join group of every (topology, sub-topology)."""
    tasks = columns.tasks
    first = tasks.group_offsets[:-1]
    topology, subtopology = tasks.topology[first].astype(np.int64), tasks.subtopology[first].astype(np.int64)
    if groups is None:
        size = np.diff(tasks.group_offsets)
        return np.unique(np.stack([topology, size], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    known = set(subtopology.tolist())
    for number in (number for group in groups for number in group):
        if number not in known:
            raise ConfigException(
                f"The {STREAM_JOIN_GROUPS} name sub-topology {number}, but the application has only "
                f"{', '.join(map(str, sorted(known))) or 'none'}."
            )
    group_of = {number: -1 - index for index, group in enumerate(groups) for number in group}
    joined = np.array([group_of.get(number, number) for number in subtopology.tolist()], dtype=np.int64)
    return np.unique(np.stack([topology, joined], axis=1).reshape(-1, 2), axis=0, return_inverse=True)[1].reshape(-1)


@attrs.frozen(eq=False)
class _Units:
    """What must not be torn apart: the tasks of one join group with the same partition.

    Args:
        columns: the state.
        unit: (T,) unit number of every task.
        join_group: (U,) join group of every unit.
        is_stateful: (U,) a task of the unit is stateful.
    """

    columns: StateColumns
    unit: Int64Array
    join_group: Int64Array
    is_stateful: BoolArray

    @classmethod
    def of(cls, columns: StateColumns, join_group_of: Int64Array) -> _Units:
        tasks = columns.tasks
        group = join_group_of[tasks.group]
        width = int(tasks.partition.max(initial=0)) + 1
        keys, unit = np.unique(group * width + tasks.partition, return_inverse=True)
        is_stateful = np.zeros(len(keys), dtype=np.bool_)
        is_stateful[unit[tasks.is_stateful]] = True
        return cls(columns, unit, keys // width, is_stateful)

    def owners(self) -> Int64Array:
        """(U,) client number of every unit."""
        size = np.bincount(self.join_group[self.unit]) if len(self.unit) else np.zeros(0, dtype=np.int64)
        owner = np.full(len(self.join_group), -1, dtype=np.int64)
        weight = self.columns.clients.num_processing_threads
        claims, state = self._claims(), self._state()
        load = np.zeros(len(weight), dtype=np.int64)
        number_of = np.zeros(len(self.join_group), dtype=np.int64)
        for group in np.lexsort((np.arange(len(size)), -size)).tolist():
            units = np.flatnonzero(self.join_group == group)
            number_of[units] = np.arange(len(units))
            problem = Problem(
                is_first_kind=self.is_stateful[units],
                weight=weight,
                claims=_of_group(claims, self.join_group == group, number_of),
                state=_of_group(state, self.join_group == group, number_of),
                load=load,
            )
            owner[units] = allocate(problem).owner
            members = np.isin(self.unit, units)
            load += np.bincount(owner[self.unit[members]].clip(0), minlength=len(weight)) if len(weight) else 0
        return owner

    def _claims(self) -> Pairs:
        """Clients that had active tasks of a unit: newest generation first, then most stateful tasks, then most tasks."""
        client, task = self.columns.previous.pairs(Role.ACTIVE)
        generation = self.columns.clients.generation
        age = np.unique(np.where(generation == MISSING, -1, generation), return_inverse=True)[1].reshape(-1)
        stateful = self.columns.tasks.is_stateful[task].astype(np.int64)
        unit, owner, (many, all_tasks) = self._sums(client, task, (stateful, np.ones(len(task), dtype=np.int64)))
        base = int(all_tasks.max(initial=0)) + 1
        return Pairs.of(unit, owner, (age[owner] * base + many) * base + all_tasks)

    def _state(self) -> Pairs:
        """Clients with state of a unit: state of most tasks first, then least lag."""
        state = previous_state(self.columns)
        lag = np.minimum(state.rank, (1 << _LAG_BITS) - 1)
        unit, owner, (number, lags) = self._sums(state.owner, state.item, (np.ones(len(lag), dtype=np.int64), lag))
        missing = int(number.max(initial=0)) - number
        return Pairs.of(unit, owner, (missing << _LAG_BITS) + np.minimum(lags, (1 << _LAG_BITS) - 1))

    def _sums(
        self, client: IntArray, task: IntArray, values: tuple[Int64Array, ...]
    ) -> tuple[Int64Array, Int64Array, tuple[Int64Array, ...]]:
        """Values of (client, task) pairs, added up by (unit, client)."""
        clients = max(len(self.columns.clients), 1)
        keys, inverse = np.unique(self.unit[task] * clients + client, return_inverse=True)
        sums = []
        for value in values:
            total = np.zeros(len(keys), dtype=np.int64)
            np.add.at(total, inverse.reshape(-1), value)
            sums.append(total)
        return keys // clients, keys % clients, tuple(sums)

    def standbys(self, owner: Int64Array, num_standby_replicas: int) -> tuple[Int64Array, Int64Array]:
        """(task, client) of the standbys: those of one unit on the same clients."""
        tasks = self.columns.tasks
        logged = np.zeros(len(owner), dtype=np.bool_)
        logged[self.unit[tasks.has_changelog]] = True
        copies = place_copies(
            owner,
            np.where(logged, num_standby_replicas, 0),
            self.columns.clients.num_processing_threads,
            self._state(),
        )
        member = np.flatnonzero(tasks.has_changelog)
        member = member[np.argsort(self.unit[member], kind="stable")]
        start = np.searchsorted(self.unit[member], copies.item)
        count = np.searchsorted(self.unit[member], copies.item, side="right") - start
        first = np.repeat(start - (np.cumsum(count) - count), count)
        return member[np.arange(int(count.sum())) + first], np.repeat(copies.owner, count).astype(np.int64)


def _of_group(pairs: Pairs, is_member: BoolArray, number_of: Int64Array) -> Pairs:
    chosen = pairs.where(is_member[pairs.item])
    return Pairs(number_of[chosen.item], chosen.owner, chosen.rank)
