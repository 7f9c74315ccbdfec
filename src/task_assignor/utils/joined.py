"""`place_joined_actives`: active tasks that belong together stay together. The engine decides; here they become its items."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.actives.allocation import allocate, one_claim_each
from task_assignor.engine.actives.group_shares import Wishes, group_shares, sizes
from task_assignor.engine.actives.problem import Bearers, ItemGoal, Problem
from task_assignor.engine.even import even_levels
from task_assignor.engine.items import Pairs, quotas, rank_within, sums
from task_assignor.sdk import MISSING, ApplicationState, Role, StateColumns
from task_assignor.sdk.arrays import distinct, distinct_and_numbers, numbered, order_by, rows_of
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.utils.given import check_has_clients, numbers_of_groups
from task_assignor.utils.goals import Goal, inexact_actives
from task_assignor.utils.history import previous_state_of_units, sums_of_units
from task_assignor.utils.placement import Placement
from task_assignor.utils.result import AssignmentResult

MOST_TOGETHER: Final = 30_000
"""Pairs of a join group and a client that are decided together."""


def place_joined_actives(application_state: ApplicationState, join_group: npt.ArrayLike) -> AssignmentResult:
    """Give every task an active owner, tasks of one join group with the same partition together.

    The goals, in this order; such tasks together count as one *partition* of their group:

    1. of every join group, every client has floor or ceil of its thread-weighted share of the partitions;
    2. the clients' total loads (tasks per thread) are even;
    3. fewest partitions move; of several claims the newest generation counts, then the one with more stateful tasks,
       then with more tasks;
    4. in each group, partitions with stateful tasks are spread evenly;
    5. partitions that move go where their state is: of most tasks, then least behind.

    All groups with equally many tasks per partition are decided together, those with most first.
    `AssignmentResult.inexact` names the goals that were perhaps not reached exactly: where partitions differ in their tasks,
    those that another choice for the larger ones might reach better; with more than 30 000 pairs of a group
    and a client shares are chosen first, as if of several clients that claim a partition one did; with more than 500 000
    pairs, what no claim and no state decides is dealt out group by group.

    Args:
        application_state: tasks, clients and history.
        join_group: (T,) number of the join group of each task, by task id.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        StateException: not one group per task.
        TaskAssignmentException: there are tasks but no clients.

    Source: KIP-315, Assignment Strategy, on tasks.
    """
    check_has_clients(application_state)
    columns = application_state.columns
    units = _Units.of(columns, numbers_of_groups(join_group, len(columns.tasks)))
    owner, inexact = units.owners()
    return AssignmentResult(Placement.of(columns, owner[units.unit]), inexact=inexact)


@attrs.frozen(eq=False)
class _Units:
    """What must not be torn apart: the tasks of one join group with the same partition.

    Args:
        weight: (C,) threads of the clients.
        unit: (T,) unit number of every task.
        join_group: (U,) join group of every unit.
        is_stateful: (U,) a task of the unit is stateful.
        claims: clients that had active tasks of a unit, of the newest generation.
        state: who has state of which unit.
    """

    weight: Int64Array
    unit: Int64Array
    join_group: Int64Array
    is_stateful: BoolArray
    claims: Pairs
    state: Pairs

    @classmethod
    def of(cls, columns: StateColumns, group: Int64Array) -> _Units:
        tasks = columns.tasks
        width = int(tasks.partition.max(initial=0)) + 1
        keys, unit = distinct_and_numbers(group * width + tasks.partition)
        is_stateful = np.zeros(len(keys), dtype=np.bool_)
        is_stateful[unit[tasks.is_stateful]] = True
        claims, state = _claims(columns, unit).newest(), previous_state_of_units(columns, unit)
        weight = columns.clients.num_processing_threads.astype(np.int64)
        return cls(weight, unit, keys // width, is_stateful, claims, state)

    def owners(self) -> tuple[Int64Array, frozenset[Goal]]:
        """(U,) client number of every unit, and the goals that were perhaps not reached exactly."""
        if not len(self.join_group):
            return np.zeros(0, dtype=np.int64), frozenset()
        is_small = (int(self.join_group[-1]) + 1) * len(self.weight) <= MOST_TOGETHER
        owner, inexact = self._owners_together() if is_small else self._owners_by_shares()
        return owner, inexact | self._left_open_by_sizes(owner)

    def _left_open_by_sizes(self, owner: Int64Array) -> frozenset[Goal]:
        """Goals that might be reached better if units of several sizes were decided together, not those with most tasks first."""
        claims, weight, size = self.claims, self.weight, np.bincount(self.unit)
        if size.min() == size.max():
            return frozenset()
        exact = {ItemGoal.SHARES} if len(self.state) else {ItemGoal.SHARES, ItemGoal.STATE, ItemGoal.LEAST_BEHIND}
        step = int(np.gcd.reduce(size))
        load, total = sums(owner, size // step, len(weight)), int(size.sum()) // step
        low, high = even_levels(weight, np.zeros_like(weight), np.full_like(weight, total), total)
        if ((low <= load) & (load <= high)).all():
            exact |= {ItemGoal.EVEN}
            is_kept = claims.have(np.arange(len(owner)), owner)
            if is_kept[claims.item].all():
                exact |= {ItemGoal.COST}
                if is_kept.all() and len(claims) == len(owner):
                    # There is but one way for all of them to stay.
                    exact = set(ItemGoal)
        return inexact_actives(exact)

    def _owners_by_shares(self) -> tuple[Int64Array, frozenset[Goal]]:
        """Which client gets how many units of each join group comes first, which ones these are second."""
        weight, claims = self.weight, self.claims
        items, load = np.bincount(self.join_group), np.bincount(self.join_group[self.unit])
        shares = group_shares(weight, items, load, self._wishes())
        # A client is an owner of its own for each join group of which it has a share.
        keys, units = shares.group * len(weight) + shares.owner, np.arange(len(self.join_group))
        found = allocate(
            Problem(
                self.is_stateful,
                weight[shares.owner],
                self._of_owners(self.claims, keys, units),
                self._of_owners(self.state, keys, units),
                share=(shares.items, shares.items),
                item_pool=self.join_group,
                owner_pool=shares.group,
            )
        )
        # Shares were chosen before the goals that come after them, and as if each unit had one claimant.
        exact = {ItemGoal.SHARES}
        if shares.is_exact:
            exact |= {ItemGoal.EVEN}
            is_lost = ~claims.have(units, shares.owner[found.owner])
            if len(distinct(claims.item)) == len(claims) or not is_lost[claims.item].any():
                exact |= {ItemGoal.COST} & found.exact
        return shares.owner[found.owner], inexact_actives(exact)

    def _owners_together(self) -> tuple[Int64Array, frozenset[Goal]]:
        """The same, where all join groups whose units have equally many tasks are one problem."""
        weight = self.weight
        items, load = np.bincount(self.join_group), np.bincount(self.join_group[self.unit])
        size = sizes(items, load)
        low, high = (np.stack(part) for part in zip(*(quotas(weight, one) for one in items.tolist()), strict=True))
        # What is not decided yet counts with what everybody gets of it for sure.
        borne = size @ low
        owner, inexact = np.full(len(self.join_group), -1, dtype=np.int64), frozenset[Goal]()
        for one in distinct(size)[::-1].tolist():
            groups, units = np.flatnonzero(size == one), np.flatnonzero(size[self.join_group] == one)
            number = np.full(len(self.join_group), -1, dtype=np.int64)
            number[units] = np.arange(len(units))
            client = np.tile(np.arange(len(weight)), len(groups))
            keys = np.repeat(groups, len(weight)) * len(weight) + client
            borne -= one * low[groups].sum(axis=0)
            found = allocate(
                Problem(
                    self.is_stateful[units],
                    np.tile(weight, len(groups)),
                    self._of_owners(self.claims, keys, number),
                    self._of_owners(self.state, keys, number),
                    share=(low[groups].reshape(-1), high[groups].reshape(-1)),
                    item_pool=np.searchsorted(groups, self.join_group[units]),
                    owner_pool=np.repeat(np.arange(len(groups)), len(weight)),
                    bearers=Bearers(client, weight, borne, one),
                )
            )
            owner[units] = client[found.owner]
            borne += one * np.bincount(owner[units], minlength=len(weight))
            inexact |= inexact_actives(found.exact)
        return owner, inexact

    def _of_owners(self, pairs: Pairs, keys: Int64Array, number: Int64Array) -> Pairs:
        """The pairs of unit and client as pairs of item and owner.

        Args:
            pairs: the pairs.
            keys: the owners' join groups and clients.
            number: (U,) item of each unit; -1: its join group is not looked at.
        """
        wanted = self.join_group[pairs.item] * len(self.weight) + pairs.owner
        owner = rows_of(keys, wanted)
        return Pairs(number[pairs.item], owner, pairs.rank).where(owner >= 0)

    def _wishes(self) -> Wishes:
        """How much of the join groups clients claim, and how much of their state they have.

        Of several clients that claim a unit it counts as that of one, so that as many as can be keep theirs.
        """
        state, units, clients = self.state, len(self.join_group), len(self.weight)
        claimed = one_claim_each(self.claims, units, *quotas(self.weight, units))
        warm = state.where(~claimed.have(state.item, state.owner))
        best = warm.where(order_by(warm.item, warm.rank, warm.owner))
        best = best.where(rank_within(best.item) == 0)
        item = np.concatenate([claimed.item, warm.item, best.item])
        owner = np.concatenate([claimed.owner, warm.owner, best.owner])
        keys, pair = distinct_and_numbers(self.join_group[item] * clients + owner)
        parts = np.split(pair, np.cumsum([len(claimed), len(warm)]))
        counts = (np.bincount(part, minlength=len(keys)) for part in parts)
        return Wishes(keys // clients, keys % clients, *counts)


def _claims(columns: StateColumns, unit: Int64Array) -> Pairs:
    """Clients that had active tasks of a unit: newest generation first, then most stateful tasks, then most tasks."""
    client, task = columns.previous.pairs(Role.ACTIVE)
    generation = columns.clients.generation
    age = numbered(np.where(generation == MISSING, -1, generation))
    stateful = columns.tasks.is_stateful[task].astype(np.int64)
    one = np.ones(len(task), dtype=np.int64)
    item, owner, (many, all_tasks) = sums_of_units(columns, unit, client, task, stateful, one)
    base = int(all_tasks.max(initial=0)) + 1
    return Pairs.of(item, owner, (age[owner] * base + many) * base + all_tasks)
