"""`balance_subtopology`: tasks in cheap racks, while no client gets more than its share of a sub-topology.

With one sub-topology alone its share is what a client has anyway: that is `min_traffic`. Clients of one rack with equally
many tasks (with one sub-topology: all of a rack) are alike, a *kind*. First it is decided which kind each task goes to, then the
tasks of a kind are dealt to its clients. If that moves no task within its kind, the placement is the optimum. If it does,
small problems are solved again client by client; large ones keep it, and the cost without these moves is the lower bound.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.along import along
from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import rank_within
from task_assignor.engine.places.min_cost import min_cost_places
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.engine.places.transport import are_few_places, cheapest_of_few_places
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import are_in, order_by, values_of
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.utils.rack_costs import solver_costs

MOST_TASKS: Final = 50_000
MOST_SHARES: Final = 50_000
"""Up to so many tasks, and pairs of client and sub-topology, what is not proven optimal is solved again client by client."""
MOST_DEALT: Final = 2_000_000
"""Up to so many such pairs a flow deals tasks with the fewest moves; beyond, tasks are dealt in turn and change places."""
MOST_ROUNDS: Final = 40
"""So often tasks above a share look for a partner to change places with, before their kind is dealt anew."""
_STRIDE: Final = 2_654_435_761
"""Scatters the partners, the same way every time."""


class Subtopologies:
    """Tasks whose clients keep their numbers, and have at most their share of each sub-topology.

    Args:
        rows: what the tasks cost in racks.
        group: (N,) sub-topology of each task, 0..G-1; each has a task.
        client: (N,) client that has the task, 0..C-1; each has a task.
        rack: (C,) rack of each client.
        costs: of one cross-rack partition, of one moved task.
        ties_stay: of two placements that cost the same, take that with fewer moves; else that with less traffic.
    """

    def __init__(
        self,
        rows: RowCosts,
        group: Int64Array,
        client: Int64Array,
        rack: Int64Array,
        costs: tuple[int, int],
        ties_stay: bool,
    ) -> None:
        self.rows, self.costs, self.ties_stay = rows, costs, ties_stay
        self.group, self.client, self.rack = group, client, rack
        self.counts, self.group_size = np.bincount(client, minlength=len(rack)), np.bincount(group)
        keys = rack * (len(client) + 1) + (self.counts if len(self.group_size) > 1 else 0)
        # A client and the number of clients of each kind, and the kind of each client.
        _, self.first, kind, self.size = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        self.kind = kind.reshape(-1)

    def balanced(self) -> tuple[Int64Array, int]:
        """(N,) new clients, and how many moves there may be too many; 0: it is the optimum."""
        target = self._target()
        placed = self._dealt(target)
        within = int(((placed != self.client) & (target == self.kind[self.client])).sum())
        pairs = len(self.rack) * len(self.group_size)
        if within and pairs <= MOST_SHARES and len(self.client) <= MOST_TASKS:
            clients, groups = np.arange(len(self.rack)), np.arange(len(self.group_size))
            return self._flow(self.rack, self.client, self.group, self._most(clients[:, None], groups)), 0
        return placed, within

    def _flow(self, rack: Int64Array, own: Int64Array, group: Int64Array, most: Int64Array) -> Int64Array:
        """(N,) the cheapest owner of each task, which is a client or a kind of clients.

        Args:
            rack: (P,) rack of each owner; owners keep their number of tasks.
            own: (N,) owner that has the task.
            group: (N,) group of each task. If all are in one the numbers are all that counts.
            most: (P, G) most tasks of each group of each owner.
        """
        owners, groups = most.shape
        racks, numbers = self.rows.cells, np.bincount(own, minlength=owners)
        traffic, move = solver_costs(*self.costs, self.rows, most.size + owners, racks * groups)
        costs, group_of_row = self.rows.times(traffic).split(group, groups)
        problem = PlacesProblem(
            costs=costs,
            item_place=own * groups + group,
            row_hub=group_of_row,
            move_cost=np.full(len(costs), move),
            cell_hub=np.tile(np.arange(groups), racks),
            place_cell=(rack[:, None] * groups + np.arange(groups)).reshape(-1),
            place_upper=most.reshape(-1) if groups > 1 else None,
            place_owner=np.repeat(np.arange(owners), groups) if groups > 1 else None,
            lower=numbers,
            upper=numbers,
            ties_stay=self.ties_stay,
        )
        place = cheapest_of_few_places(problem) if are_few_places(problem) else None
        place = min_cost_places(problem).place if place is None else place
        owner: Int64Array = place // groups
        return owner

    def _most(self, clients: Int64Array, groups: Int64Array) -> Int64Array:
        """Most tasks of each group on the client beside it."""
        # Kafka's arithmetic, in its order, in doubles: ceil(14 * 1.0 / 50 * 25) is 8.
        share = self.counts[clients] * 1.0 / len(self.client) * self.group_size[groups]
        most: Int64Array = np.ceil(share).astype(np.int64)
        return most

    def _above(self, tasks: Int64Array, client: Int64Array) -> Int64Array:
        """Those of the tasks, ascending, that are more than a share where they are: the last ones of each.

        Tasks that have left their client come last.

        Args:
            tasks: numbers of tasks.
            client: (N,) where all tasks are.
        """
        tasks = tasks[order_by(client[tasks] != self.client[tasks])]
        rank = rank_within(client[tasks] * len(self.group_size) + self.group[tasks])
        return np.sort(tasks[rank >= self._most(client[tasks], self.group[tasks])])

    def _target(self) -> Int64Array:
        """(N,) kind that each task goes to, cheapest if the clients of a kind may have together what each may have."""
        rack, own = self.rack[self.first], self.kind[self.client]
        limits = self._limits()
        number = np.where(limits, np.cumsum(limits), 0)
        most = np.full((len(rack), int(limits.sum()) + 1), len(own))
        most[:, 1:] = self.size[:, None] * self._most(self.first[:, None], np.flatnonzero(limits))
        return self._flow(rack, own, number[self.group], most)

    def _limits(self) -> BoolArray:
        """(G,) whether the shares keep the group as a whole out of any kind; if there is but one, numbers do that."""
        if len(self.group_size) == 1:
            return np.zeros(1, dtype=np.bool_)
        sizes, group, of_size = np.unique(self.group_size, return_index=True, return_inverse=True)
        most = self.size[:, None] * self._most(self.first[:, None], group)
        limits: BoolArray = np.any(most < sizes, axis=0)
        return limits[of_size.reshape(-1)]

    def _dealt(self, target: Int64Array) -> Int64Array:
        """(N,) a client of the target's kind for each task; who can stay stays."""
        stays = target == self.kind[self.client]
        if len(self.rack) * len(self.group_size) <= MOST_DEALT:
            return self._dealt_by_flow(target, stays)
        stays[self._above(np.flatnonzero(stays), self.client)] = False
        room = self.counts - np.bincount(self.client[stays], minlength=len(self.rack))
        free = np.repeat(np.arange(len(room)), room)
        # Tasks of one group go to one client after the other.
        movers = np.flatnonzero(~stays)
        movers = movers[order_by(target[movers], self.group[movers])]
        placed = self.client.copy()
        placed[movers] = free[order_by(self.kind[free], rank_within(free), free)]
        return self._within_shares(placed, movers)

    def _dealt_by_flow(self, target: Int64Array, stays: BoolArray) -> Int64Array:
        """As many as can be stay: a flow (kind, group) -> client, which counts tasks and does not look at single ones."""
        clients, groups, kinds = len(self.rack), len(self.group_size), len(self.size)
        supply = np.bincount(target * groups + self.group, minlength=kinds * groups)
        pair = np.arange(clients * groups)
        of_client, of_group = np.divmod(pair, groups)
        source = self.kind[of_client] * groups + of_group
        most = np.minimum(self._most(of_client, of_group), supply[source])
        key, items = self.client * groups + self.group, np.flatnonzero(stays)
        wanted = np.bincount(key[items], minlength=len(pair))
        staying = np.minimum(wanted, most)
        arcs = Arcs()
        stay = arcs.add(source, kinds * groups + of_client, staying, 0)
        come = arcs.add(source, kinds * groups + of_client, most - staying, 1)
        flows = solve(Network(np.concatenate([supply, -self.counts]), arcs))
        # Only where not all can stay does it matter who does.
        is_short = (flows[stay] < wanted)[key[items]]
        some = items[is_short]
        some = some[rank_within(key[some]) < flows[stay][key[some]]]
        items = np.append(items[~is_short], some)
        at = target * groups + self.group
        at[items] = kinds * groups + self.client[items]
        return along(at, source, kinds * groups + of_client, flows[come]) - kinds * groups

    def _within_shares(self, placed: Int64Array, movers: Int64Array) -> Int64Array:
        """The placement after tasks above a share have changed places with others of their kind; movers first."""
        everything = np.arange(len(placed))
        for attempt in range(MOST_ROUNDS):
            above = self._above(everything, placed)
            if not len(above):
                return placed
            partners = movers if attempt < MOST_ROUNDS // 2 else everything
            partners = partners[order_by(self.kind[placed[partners]])]
            kinds = self.kind[placed[above]]
            start, end = (np.searchsorted(self.kind[placed[partners]], kinds, side) for side in ("left", "right"))
            above, start, end = (each[end > start] for each in (above, start, end))
            scattered = (np.arange(len(above)) + attempt * _STRIDE) * _STRIDE % (end - start)
            self._change_places(placed, above, partners[start + scattered])
        return self._dealt_anew(placed)

    def _change_places(self, placed: Int64Array, tasks: Int64Array, partners: Int64Array) -> None:
        """Let pairs change places if neither gets above a share by it."""
        first = np.unique(partners, return_index=True)[1]
        first = first[~are_in(partners[first], tasks)]
        tasks, partners = tasks[first], partners[first]
        group, groups = self.group, len(self.group_size)
        keys, numbers = np.unique(placed * groups + group, return_counts=True)
        gets = np.concatenate([placed[partners], placed[tasks]])
        of_group = np.concatenate([group[tasks], group[partners]])
        wanted = gets * groups + of_group
        fits = values_of(keys, numbers, wanted, 0) < self._most(gets, of_group)
        # One more of a group for each client at a time.
        once = np.zeros(len(wanted), dtype=np.bool_)
        once[np.unique(wanted, return_index=True)[1]] = True
        both = (fits & once).reshape(2, -1).all(axis=0)
        placed[tasks[both]], placed[partners[both]] = placed[partners[both]], placed[tasks[both]]

    def _dealt_anew(self, placed: Int64Array) -> Int64Array:
        """The tasks of every kind where one is above a share, dealt in turn: that is always within the shares."""
        kind = self.kind[placed]
        tasks = np.flatnonzero(are_in(kind, kind[self._above(np.arange(len(placed)), placed)]))
        tasks = tasks[order_by(kind[tasks], self.group[tasks])]
        by_kind = order_by(self.kind)
        start = np.searchsorted(self.kind[by_kind], kind[tasks])
        placed = placed.copy()
        placed[tasks] = by_kind[start + rank_within(kind[tasks]) % self.size[kind[tasks]]]
        return placed
