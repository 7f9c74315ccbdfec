"""Placing copies of tasks by one flow over (task, client) pairs, tag diversity included where a flow can say it.

Exact for the rules it is given; which rules a task gets, and what happens where no flow can say the rule, is in
`engine/standby_search.py`.
"""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.sdk.columns import BoolArray, Int64Array


@attrs.frozen(eq=False, kw_only=True)
class Copies:
    """The copies of U tasks on C clients, what each place costs, and how diverse their holders must be.

    Args:
        held: (U, C) who has which copy now.
        active: (U,) client that has the task active (never a copy as well); -1: nobody.
        crossings: (U, C) cross-rack partitions of a copy there.
        costs: cost of one of these, cost of a copy that is not where one is now.
        solver_costs: two smaller costs that order all changes on a simple cycle in the same way (see `small_costs`).
        tag_value: (C, G) number of the client's value of each tag key; -1: no such tag.
        needed: (U,) least number of distinct (key, value) pairs over all holders of the task, the active one included.
    """

    held: BoolArray
    active: Int64Array
    crossings: Int64Array
    costs: tuple[int, int]
    solver_costs: tuple[int, int]
    tag_value: Int64Array
    needed: Int64Array

    @property
    def cost(self) -> Int64Array:
        """(U, C) cost of a copy there, moving included, in the solver's costs."""
        return self.crossings * self.solver_costs[0] + self.solver_costs[1] * ~self.held

    @property
    def allowed(self) -> BoolArray:
        """(U, C) everywhere but on the active owner."""
        allowed = np.ones(self.held.shape, dtype=np.bool_)
        rows = np.flatnonzero(self.active >= 0)
        allowed[rows, self.active[rows]] = False
        return allowed

    def with_active(self, held: BoolArray) -> BoolArray:
        """(U, C) all holders, the active owners included."""
        holders = held.copy()
        rows = np.flatnonzero(self.active >= 0)
        holders[rows, self.active[rows]] = True
        return holders

    def distinct(self, held: BoolArray, key: int) -> Int64Array:
        """(U,) distinct values of one tag key over all holders, the active one included."""
        count: Int64Array = self.present(self.with_active(held), key).sum(axis=1)
        return count

    def present(self, holders: BoolArray, key: int) -> BoolArray:
        """(U, V) which values of the key the holders have."""
        values = self.tag_value[:, key]
        has = np.flatnonzero(values >= 0)
        one_hot = np.zeros((len(values), int(values.max(initial=-1)) + 1), dtype=np.float32)
        one_hot[has, values[has]] = 1
        # Single precision is exact here: sums of at most 2^24 ones.
        return holders.astype(np.float32) @ one_hot > 0.5

    def diversity(self, held: BoolArray) -> Int64Array:
        """(U,) distinct (key, value) pairs over all holders, the active one included."""
        total = np.zeros(len(held), dtype=np.int64)
        for key in range(self.tag_value.shape[1]):
            total += self.distinct(held, key)
        return total

    def total(self, held: BoolArray) -> tuple[int, int]:
        """(cost, copies that are not where they are now) of a placement: what is minimised, in this order."""
        moves = int((held & ~self.held).sum())
        return int(self.crossings[held].sum()) * self.costs[0] + moves * self.costs[1], moves


@attrs.frozen(eq=False, kw_only=True)
class Rules:
    """What a flow must respect, task by task.

    Args:
        supply: (U,) copies to place.
        allowed: (U, C) where they may go; each client takes at most one copy of a task.
        slots: (C,) copies that each client gets.
        cover_key: (U,) tag key of which the copies must bring `cover_need` values that the active owner has not; -1: none.
        cover_need: (U,) at most the supply.
        same_vector: (U,) copies go to clients with the same tag values as their holders now (of all keys).
        held: (U, C) the holders now, for `same_vector`.
    """

    supply: Int64Array
    allowed: BoolArray
    slots: Int64Array
    cover_key: Int64Array
    cover_need: Int64Array
    same_vector: BoolArray
    held: BoolArray


def place_copies(copies: Copies, rules: Rules) -> BoolArray:
    """(U, C) the cheapest placement under the rules, with the fewest moves among the cheapest.

    Raises:
        InfeasibleFlowError: the rules cannot be met.
        FlowError: the costs are too large for exact arithmetic.
    """
    graph = _Graph(copies, rules)
    return graph.solve()


class _Graph:
    """Nodes: clients first, then what each task needs."""

    def __init__(self, copies: Copies, rules: Rules) -> None:
        self.copies, self.rules = copies, rules
        self.clients = copies.held.shape[1]
        self.cost = copies.cost
        self.supplies = [-rules.slots]
        self.nodes = self.clients
        # Goals: cost, moves.
        self.arcs = Arcs(goals=2)
        self.found: list[tuple[slice, Int64Array, Int64Array]] = []
        cover = (rules.cover_key >= 0) & (rules.cover_need > 0) & ~rules.same_vector
        plain = np.flatnonzero(~cover & ~rules.same_vector & (rules.supply > 0))
        self._plain(plain)
        self._same_vector(np.flatnonzero(rules.same_vector))
        for key in range(copies.tag_value.shape[1]):
            of_key = cover & (rules.cover_key == key)
            for bound in (True, False):
                self._cover(np.flatnonzero(of_key & ((rules.supply == rules.cover_need) == bound)), key, bound)

    def _new_nodes(self, supplies: Int64Array) -> Int64Array:
        first = self.nodes
        self.nodes += len(supplies)
        self.supplies.append(supplies)
        return np.arange(first, self.nodes)

    def _to_clients(self, tails: Int64Array, tasks: Int64Array, clients: Int64Array) -> None:
        """The last arcs: a copy of the task goes to the client."""
        moves = (~self.copies.held[tasks, clients]).astype(np.int64)
        self.found.append((self.arcs.add(tails, clients, 1, self.cost[tasks, clients], moves), tasks, clients))

    def _plain(self, tasks: Int64Array) -> None:
        nodes = self._new_nodes(self.rules.supply[tasks])
        row, client = np.nonzero(self.rules.allowed[tasks])
        self._to_clients(nodes[row], tasks[row], client)

    def _same_vector(self, tasks: Int64Array) -> None:
        """One node per task and vector of tag values, with as many copies as holders have that vector."""
        if not len(tasks):
            return
        _, vector = np.unique(self.copies.tag_value, axis=0, return_inverse=True)
        vector = vector.reshape(-1)
        vectors = int(vector.max()) + 1
        row, client = np.nonzero(self.rules.held[tasks])
        keys, counts = np.unique(row * vectors + vector[client], return_counts=True)
        nodes = self._new_nodes(counts)
        row, client = np.nonzero(self.rules.allowed[tasks])
        wanted = row * vectors + vector[client]
        where = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        fits = keys[where] == wanted
        self._to_clients(nodes[where[fits]], tasks[row[fits]], client[fits])

    def _cover(self, tasks: Int64Array, key: int, all_cover: bool) -> None:
        """`cover_need` copies go through nodes of the values, one copy through each; the others (if any) where they like."""
        if not len(tasks):
            return
        value = self.copies.tag_value[:, key]
        values = int(value.max(initial=-1)) + 1
        need, supply = self.rules.cover_need[tasks], self.rules.supply[tasks]
        cover = self._new_nodes(need)
        through = self._new_nodes(np.zeros(len(tasks) * values, dtype=np.int64)).reshape(len(tasks), values)
        active = self.copies.active[tasks]
        fresh = np.ones((len(tasks), values), dtype=np.bool_)
        known = np.flatnonzero((active >= 0) & (value[active] >= 0))
        fresh[known, value[active[known]]] = False
        row, of_value = np.nonzero(fresh)
        self.arcs.add(cover[row], through[row, of_value], 1, 0)
        allowed = self.rules.allowed[tasks]
        row, client = np.nonzero(allowed & (value >= 0)[None, :])
        fits = fresh[row, value[client]]
        row, client = row[fits], client[fits]
        if all_cover:
            self._to_clients(through[row, value[client]], tasks[row], client)
            return
        free = self._new_nodes(supply - need)
        pair_row, pair_client = np.nonzero(allowed)
        number = np.full(allowed.shape, -1, dtype=np.int64)
        number[pair_row, pair_client] = self._new_nodes(np.zeros(len(pair_row), dtype=np.int64))
        self.arcs.add(through[row, value[client]], number[row, client], 1, 0)
        self.arcs.add(free[pair_row], number[pair_row, pair_client], 1, 0)
        self._to_clients(number[pair_row, pair_client], tasks[pair_row], pair_client)

    def solve(self) -> BoolArray:
        """The placement."""
        # From one client to the next a path goes through the nodes of one task: pairs, values, cover, free.
        longest = 14 * (self.clients + 2)
        # On a simple cycle each client is met once, by two arcs that may be moves.
        changes = (2 * self.clients,)
        flows = solve(Network(np.concatenate(self.supplies), self.arcs, longest, changes))
        placed = np.zeros(self.copies.held.shape, dtype=np.bool_)
        for arcs, tasks, clients in self.found:
            used = flows[arcs] > 0
            placed[tasks[used], clients[used]] = True
        return placed
