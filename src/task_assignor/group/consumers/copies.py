"""Items of several groups, and copies of them, on members: even within each group, even over all, and where they were. One flow.

A class is items of one group that are alike. Nodes are classes, the pools of the groups, (group, member) pairs, members; and
(group, origin, member) where the items of an origin are several classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, Network, Prices, prices_of, solve
from task_assignor.group.consumers.even import rounds
from task_assignor.sdk.arrays import numbered
from task_assignor.sdk.columns import Int64Array

_ALL_AT_ONCE: Final = 100_000
"""Up to so many (class, member) pairs the flow has them all."""
_FIRST: Final = 8
"""Pairs of each class that may be added at first; then ever more."""


@attrs.frozen
class ItemClass:
    """Items of a group that are alike.

    Args:
        group: their group.
        items: the items, ascending.
        costs: member -> (first, second) cost of an item there.
        away: the costs at all other members of the group.
        origin: a member that must not have them; items of the group of equal origin are spread evenly over the others, as far
            as the first costs leave room. None: this does not matter. All classes have one, or none has.
    """

    group: int
    items: tuple[int, ...]
    costs: dict[int, tuple[int, int]]
    away: tuple[int, int]
    origin: int | None = None


def spread(
    classes: Sequence[ItemClass], groups: Sequence[Int64Array], members: int, copies: Sequence[int]
) -> list[list[list[int]]]:
    """Which members get each item.

    In this order: sizes within each group differ by one at most, if the costs leave room; over all groups they are even
    too; the first costs are least, then the second.

    Args:
        classes: all items.
        groups: the members of each group, ascending.
        members: how many members there are.
        copies: how many different members each item of each group goes to.

    Returns:
        For each class its items' members, item by item.
    """
    if not classes:
        return []
    problem = _Problem(classes, groups, members, copies)
    pairs = problem.named
    if not problem.has_origins:
        graph = _Graph(problem, pairs)
        return graph.answer(solve(graph.network))
    if problem.most_pairs <= _ALL_AT_ONCE:
        graph = _Graph(problem, np.union1d(pairs, problem.windows(len(problem.pair_member))))
        return graph.answer(solve(graph.network))
    # Nearly all pairs are for nothing: prices tell which of those that are left out would make it better, until none would.
    pairs, most = np.union1d(pairs, problem.windows(2)), _FIRST
    while True:
        graph = _Graph(problem, pairs)
        flows = solve(graph.network)
        others = np.zeros((0, 7), dtype=np.int64)
        # Other prices of the same flow often tell that what seems to be better is not.
        while (prices := prices_of(graph.network, flows, others[:, 1:].T)) is not None:
            better = list(graph.better(prices, most))
            if not better:
                return graph.answer(flows)
            others = np.concatenate([others, *better])
            most *= 4
        pairs = np.union1d(pairs, others[:, 0])


class _Problem:
    """What is asked, as columns: C classes, G groups, L (group, member) pairs, `members` members.

    A (class, member) pair is one number: class * members + member.
    """

    def __init__(
        self, classes: Sequence[ItemClass], groups: Sequence[Int64Array], members: int, copies: Sequence[int]
    ) -> None:
        self.classes, self.members = classes, members
        lengths = np.array([len(group) for group in groups], dtype=np.int64)
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.pair_group = np.repeat(np.arange(len(groups)), lengths)
        self.pair_member = np.concatenate([np.zeros(0, dtype=np.int64), *groups])
        self.group = np.array([one.group for one in classes], dtype=np.int64)
        self.count = np.array([len(one.items) for one in classes], dtype=np.int64)
        self.supply = self.count * np.array(copies, dtype=np.int64)[self.group]
        self.sizes = np.bincount(self.group, weights=self.supply, minlength=len(groups)).astype(np.int64)
        self.away = np.array([one.away for one in classes], dtype=np.int64)
        self.has_origins = classes[0].origin is not None
        self.origin = np.array([one.origin or 0 for one in classes], dtype=np.int64)
        self.most_pairs = int(lengths[self.group].sum())
        rows = [
            (number * members + member, *cost)
            for number, one in enumerate(classes)
            for member, cost in sorted(one.costs.items())
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        self.named, self.named_costs = table[:, 0], table[:, 1:]
        self.kind = numbered(self.group * members + self.origin)
        self.of_kind = np.bincount(self.kind, weights=self.supply).astype(np.int64)[self.kind]
        self.share = self.of_kind // np.maximum(lengths[self.group] - 1, 1)
        # The arcs of a class that is its own origin are themselves what is spread.
        self.is_alone = np.bincount(self.kind)[self.kind] == 1

    def at(self, group: Int64Array, member: Int64Array) -> Int64Array:
        """The (group, member) pair of each."""
        found: Int64Array = np.searchsorted(
            self.pair_group * self.members + self.pair_member, group * self.members + member
        )
        return found

    def windows(self, spare: int) -> Int64Array:
        """(class, member) pairs: each class goes on round the members of its group where the one before has ended."""
        length = np.diff(self.starts)[self.group]
        width = np.minimum(2 * self.supply + spare, length)
        first = np.cumsum(self.supply) - self.supply
        row = np.repeat(np.arange(len(width)), width)
        step = np.arange(len(row)) - np.repeat(np.cumsum(width) - width, width)
        member = self.pair_member[self.starts[self.group[row]] + (first[row] + step) % length[row]]
        others: Int64Array = (row * self.members + member)[member != self.origin[row]]
        return others

    def costs(self, pairs: Int64Array) -> Int64Array:
        """(N, 2) the costs of (class, member) pairs, the named ones among them."""
        costs: Int64Array = self.away[pairs // self.members]
        costs[np.searchsorted(pairs, self.named)] = self.named_costs
        return costs


class _Graph:
    """The flow over some (class, member) pairs, ascending: the named ones, and where there are origins others too."""

    def __init__(self, problem: _Problem, pairs: Int64Array) -> None:
        self.problem, self.pairs = problem, pairs
        members, sizes, groups = problem.members, problem.sizes, problem.pair_group
        classes = np.arange(len(problem.classes))
        pools = len(classes) + np.arange(len(sizes))
        self.ends = len(classes) + len(sizes) + np.arange(len(groups))
        owners = len(classes) + len(sizes) + len(groups) + np.arange(members)
        sink = len(classes) + len(sizes) + len(groups) + members
        arcs = Arcs(goals=4)
        self.carriers = self._add_pairs(arcs, sink)
        pooled = classes[: 0 if problem.has_origins else None]
        away = problem.away[pooled]
        self.to_pool = arcs.add(
            pooled, pools[problem.group[pooled]], problem.count[pooled], 0, 0, away[:, 0], away[:, 1]
        )
        self.out = arcs.add(pools[groups], self.ends, sizes[groups])
        least = (sizes // np.diff(problem.starts))[groups]
        for room, uneven in ((least, 0), (1, 1), (sizes[groups], 3)):
            arcs.add(self.ends, owners[problem.pair_member], room, uneven)
        base = np.bincount(problem.pair_member, weights=least, minlength=members).astype(np.int64)
        of_member = np.bincount(problem.pair_member, minlength=members)
        step = np.arange(len(groups)) - np.repeat(np.cumsum(of_member) - of_member, of_member)
        most = int(base.max(initial=0)) + len(groups)
        arcs.add(owners, sink, base)
        arcs.add(np.repeat(owners, of_member), sink, 1, 0, 2 * (np.repeat(base, of_member) + step) + 1)
        arcs.add(owners, sink, int(sizes.sum()), 0, 2 * most + 1)
        supplies = np.zeros(sink + 1 + len(self.nodes), dtype=np.int64)
        supplies[classes] = problem.supply
        supplies[sink] = -int(sizes.sum())
        # On a cycle what is spread lies between two other nodes.
        longest = (sink + 2) * (2 if len(self.nodes) else 1)
        self.network = Network(supplies, arcs, changes=(2 * longest * most, 2 * longest, 4 * longest))

    def _add_pairs(self, arcs: Arcs, sink: int) -> list[tuple[slice, Int64Array]]:
        """Arcs, and the pair of each."""
        problem, every = self.problem, np.arange(len(self.pairs))
        row, member = np.divmod(self.pairs, problem.members)
        first, second = problem.costs(self.pairs).T
        end, count = self.ends[problem.at(problem.group[row], member)], problem.count[row]
        self.spreads = self.nodes = row[:0]
        if not problem.has_origins:
            return [(arcs.add(row, end, count, 0, 0, first, second), every)]
        alone = problem.is_alone[row]
        carriers, shared = [], every[~alone]
        for position, room, more in _rooms(every[alone], problem.share[row[alone]], count[alone]):
            where = arcs.add(row[position], end[position], room, 0, 0, first[position], second[position] + more)
            carriers.append((where, position))
        key = problem.kind[row[shared]] * problem.members + member[shared]
        self.spreads, leads, number = np.unique(key, return_index=True, return_inverse=True)
        self.nodes = np.empty(len(leads), dtype=np.int64)
        self.nodes[np.argsort(leads)] = sink + 1 + np.arange(len(leads))
        lead = row[shared[leads]]
        for position, room, more in _rooms(np.arange(len(leads)), problem.share[lead], problem.of_kind[lead]):
            arcs.add(self.nodes[position], end[shared[leads[position]]], room, 0, 0, 0, more)
        where = arcs.add(row[shared], self.nodes[number], count[shared], 0, 0, first[shared], second[shared])
        return [*carriers, (where, shared)]

    def better(self, prices: Prices, most: int) -> Iterator[Int64Array]:
        """Pairs that are left out, and by the prices should not be, a few of each class: with the tail, head and costs of an arc."""
        problem = self.problem
        order = np.argsort(problem.kind, kind="stable")
        for classes in np.split(order, np.flatnonzero(np.diff(problem.kind[order])) + 1):
            group, origin = int(problem.group[classes[0]]), int(problem.origin[classes[0]])
            pairs = np.arange(problem.starts[group], problem.starts[group + 1])
            pairs = pairs[problem.pair_member[pairs] != origin]
            member, head = problem.pair_member[pairs], self.ends[pairs]
            key = problem.kind[classes[0]] * problem.members + member
            place = np.minimum(np.searchsorted(self.spreads, key), max(len(self.spreads) - 1, 0))
            is_node = self.spreads[place] == key if len(self.spreads) else np.zeros(len(key), dtype=np.bool_)
            head = np.where(is_node, self.nodes[place] if len(self.nodes) else 0, head)
            # Where nothing of the origin goes yet, the first costs what the first room costs.
            more = np.where(is_node | (problem.share[classes[0]] > 0), 0, 1)
            first, second = problem.away[classes].T
            helps = prices.may_help(classes[:, None], head, 0, 0, first[:, None], second[:, None] + more)
            wanted = (classes[:, None] * problem.members + member)[helps]
            helps[helps] = self.pairs[np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)] != wanted
            # Most helps seem so only: those of a few classes, or a few of each.
            row, column = np.nonzero(helps & (np.cumsum(helps, axis=1) <= most))
            if len(row):
                tail, none = classes[row], np.zeros(len(row), dtype=np.int64)
                pair = tail * problem.members + member[column]
                yield np.stack([pair, tail, head[column], none, none, first[row], second[row] + more[column]], axis=1)

    def answer(self, flows: Int64Array) -> list[list[list[int]]]:
        """For each class its items' members, item by item."""
        problem = self.problem
        out, to_pool = flows[self.out], flows[self.to_pool].tolist()
        pools = [
            _in_turn(problem.pair_member[start:end], out[start:end]) for start, end in pairwise(problem.starts.tolist())
        ]
        named = np.zeros(len(self.pairs), dtype=np.int64)
        for arcs, position in self.carriers:
            named[position] += flows[arcs]
        row, member = np.divmod(np.repeat(self.pairs, named), problem.members)
        ends = np.cumsum(np.bincount(row, minlength=len(problem.classes))).tolist()
        members = member.tolist()
        found: list[list[list[int]]] = []
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            one = problem.classes[number]
            turns = members[start:end]
            if to_pool:
                turns += [pools[one.group].pop() for _ in range(to_pool[number])]
            # No member is there more often than there are items, so going round gives every item different members.
            found.append([turns[position :: len(one.items)] for position in range(len(one.items))])
        return found


def _rooms(positions: Int64Array, share: Int64Array, count: Int64Array) -> Iterator[tuple[Int64Array, Int64Array, int]]:
    """(where, how many, cost of one): an even share costs nothing, one more a little, and more than that too much to be even."""
    for room, cost in (
        (np.minimum(share, count), 0),
        (np.minimum(1, count - share), 1),
        (count - share - 1, 2),
    ):
        yield positions[room > 0], room[room > 0], cost


def _in_turn(members: Int64Array, counts: Int64Array) -> list[int]:
    """The members of a pool round by round, the last first."""
    result: list[int] = rounds(members, counts)[::-1].tolist()
    return result
