"""`StreamJoinTaskAssignor`: equal partitions of sub-topologies that are joined share a client (KIP-315 on tasks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np

from task_assignor.builtin_assignors._clients import check_clients
from task_assignor.engine.actives import allocate
from task_assignor.engine.group_shares import GroupShares, Wishes
from task_assignor.engine.items import Pairs
from task_assignor.engine.problem import Problem
from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignmentColumns,
    ConfigException,
    ConfigKey,
    ConfigProblem,
    Role,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array
from task_assignor.utils.history import previous_state
from task_assignor.utils.standbys import standby_pairs

STREAM_JOIN_GROUPS: Final = "stream.join.groups"
MOST_DIGITS: Final = 10
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
        if not all(name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS for name in names):
            raise _wrong_groups(
                text, "sub-topology numbers, with commas within a group and semicolons between groups, such as 0,1;2"
            )
        groups.append(tuple(int(name) for name in names))
    seen: set[int] = set()
    for number in (number for group in groups for number in group):
        if number in seen:
            raise _wrong_groups(text, f"groups that name sub-topology {number} once")
        seen.add(number)
    return tuple(groups)


def _wrong_groups(text: str, expected: str) -> ConfigException:
    return ConfigException.of([ConfigProblem(STREAM_JOIN_GROUPS, text, expected)])


def _check(value: object) -> str | None:
    try:
        parse_join_groups(str(value))
    except ConfigException as error:
        return error.problems[0].expected
    return None


class StreamJoinTaskAssignor(TaskAssignor):
    """Keeps what is joined together: equal partitions of a join group's sub-topologies run on one client.

    Its goals, in this order:

    1. tasks of a join group with the same partition are on one client, and so are their standbys;
    2. of every join group, every client has floor or ceil of its thread-weighted share of the partitions;
    3. the clients' total loads (tasks per thread) are even: newcomers get their fair share, also where groups have fewer
       partitions than there are clients;
    4. fewest partitions move; of several claims the newest generation counts, then the one with more stateful tasks,
       then with more tasks;
    5. in each group, partitions with stateful tasks are spread evenly;
    6. partitions that move go where their state is: of most tasks, then least behind;
    7. standbys: all are placed, loads are even, with `rack.aware.assignment.tags` over as many tag values as that
       allows.

    Who has the ceil of which group is decided over all groups with equally many tasks per partition together, those with
    most first, by goals 3 and 4, then by how many find state. Where the partitions of a group have different numbers of
    tasks, their mean counts; a partition with several equal claims counts as one client's. With more than 500 000 pairs
    of a group and a client, what no claim and no state decides is dealt out group by group.

    The join groups come from the setting `stream.join.groups` (`0,1;2`; a sub-topology that it does not name is a group
    of its own). By default sub-topologies with equal numbers of partitions form a group (Faust's rule).

    KIP-315 (Assignment Strategy) leaves partitions out that not all topics have. A task must have an owner, so here they
    are placed too.
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
            TaskAssignmentException: there are tasks but no clients.
        """
        columns = application_state.columns
        check_clients(columns)
        units = _Units.of(columns, _join_group_of(columns, self._groups))
        owner = units.owners()
        actives = owner[units.unit].astype(np.int32)
        standbys = standby_pairs(columns, application_state.assignment_configs, actives, units.unit, use_racks=False)
        return TaskAssignment.of_columns(AssignmentColumns.of(columns, actives, standbys.task, standbys.client))


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
        weight = self.columns.clients.num_processing_threads
        if not len(weight) or not len(self.join_group):
            return np.full(len(self.join_group), -1, dtype=np.int64)
        items, load = np.bincount(self.join_group), np.bincount(self.join_group[self.unit])
        claims, state = self._claims().newest(), self._state()
        shares = GroupShares(weight, items, load, self._wishes(claims, state)).solve()
        # A client is an owner of its own for each join group of which it has a share.
        keys = shares.group * len(weight) + shares.owner
        found = allocate(
            Problem(
                self.is_stateful,
                weight[shares.owner],
                self._of_owners(claims, keys),
                self._of_owners(state, keys),
                share=shares.items,
                item_pool=self.join_group,
                owner_pool=shares.group,
            )
        )
        return shares.owner[found.owner]

    def _of_owners(self, pairs: Pairs, keys: Int64Array) -> Pairs:
        """The pairs of unit and client as pairs of unit and owner; `keys` are the owners' join groups and clients."""
        wanted = self.join_group[pairs.item] * len(self.columns.clients) + pairs.owner
        owner = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return Pairs(pairs.item, owner, pairs.rank).where(keys[owner] == wanted)

    def _wishes(self, claims: Pairs, state: Pairs) -> Wishes:
        """How much of the join groups clients claim, and how much of their state they have."""
        claimant = self._claimants(claims)
        claimed = np.flatnonzero(claimant >= 0)
        warm = state.where(claimant[state.item] != state.owner)
        best = warm.where(np.lexsort((warm.owner, warm.rank, warm.item)))
        best = best.where(np.unique(best.item, return_index=True)[1])
        units = np.concatenate([claimed, warm.item, best.item])
        owners = np.concatenate([claimant[claimed], warm.owner, best.owner])
        clients = len(self.columns.clients)
        keys, pair = np.unique(self.join_group[units] * clients + owners, return_inverse=True)
        parts = np.split(pair.reshape(-1), np.cumsum([len(claimed), len(warm.item)]))
        counts = (np.bincount(part, minlength=len(keys)) for part in parts)
        return Wishes(keys // clients, keys % clients, *counts)

    def _claimants(self, claims: Pairs) -> Int64Array:
        """(U,) the client as whose each unit counts: of several the one with least of the join group for its threads."""
        weight = self.columns.clients.num_processing_threads
        number = np.bincount(claims.item, minlength=len(self.join_group))
        _, pair = np.unique(self.join_group[claims.item] * len(weight) + claims.owner, return_inverse=True)
        alone = np.bincount(pair.reshape(-1), number[claims.item] == 1)[pair.reshape(-1)]
        order = np.lexsort((claims.owner, alone / weight[claims.owner], claims.item))[::-1]
        claimant = np.full(len(self.join_group), -1, dtype=np.int64)
        claimant[claims.item[order]] = claims.owner[order]
        return claimant

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
