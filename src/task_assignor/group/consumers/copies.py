"""Items of several groups, and copies of them, on members: even within each group, even over all, and where they were. One flow.

A class is items of one group that are alike. Nodes are classes, the pools of the groups, (group, member) pairs, members; and
(group, origin, member) where the items of an origin are several classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import NOBODY
from task_assignor.sdk.columns import Int64Array


@attrs.frozen
class ItemClass:
    """Items of a group that are alike.

    Args:
        group: their group.
        items: the items, ascending.
        costs: member -> (first, second) cost of an item there.
        away: the costs at all other members of the group; None: they may not have it.
        origin: items of the group of equal origin are spread evenly over the members that may have them, as far as the first
            costs leave room; None: this does not matter.
    """

    group: int
    items: tuple[int, ...]
    costs: dict[int, tuple[int, int]]
    away: tuple[int, int] | None = None
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
        copies: how many different members each item of each group goes to; less than the classes have costs for.

    Returns:
        For each class its items' members, item by item.
    """
    pair_group = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    pair_member = np.concatenate([np.zeros(0, dtype=np.int64), *groups])
    pair = {key: number for number, key in enumerate(zip(pair_group.tolist(), pair_member.tolist(), strict=True))}
    sizes = np.zeros(len(groups), dtype=np.int64)
    for one in classes:
        sizes[one.group] += len(one.items) * copies[one.group]
    first_pool = len(classes)
    first_pair = first_pool + len(groups)
    first_member = first_pair + len(pair)
    sink = first_member + members
    arcs = Arcs(goals=4)
    keys = [(one.group, one.origin) for one in classes]
    totals, of_key = Counter[tuple[int, int | None]](), Counter(keys)
    for key, one in zip(keys, classes, strict=True):
        totals[key] += len(one.items) * copies[one.group]
    spreads: dict[tuple[int, int | None, int], int] = {}
    rows = []
    for number, (key, one) in enumerate(zip(keys, classes, strict=True)):
        count, share = len(one.items), totals[key] // max(len(one.costs), 1)
        for member, (first, second) in one.costs.items():
            end, node = first_pair + pair[one.group, member], spreads.get((*key, member))
            if one.origin is None:
                rows.append((number, end, count, first, second, number, member))
            elif of_key[key] == 1:
                # The class is its own origin.
                rows += [
                    (number, end, room, first, second + more, number, member) for room, more in _rooms(share, count)
                ]
            else:
                if node is None:
                    node = spreads[*key, member] = sink + 1 + len(spreads)
                    rows += [(node, end, room, 0, more, NOBODY, member) for room, more in _rooms(share, totals[key])]
                rows.append((number, node, count, first, second, number, member))
    table = np.array(rows, dtype=np.int64).reshape(-1, 7)
    named = arcs.add(table[:, 0], table[:, 1], table[:, 2], 0, 0, table[:, 3], table[:, 4])
    pooled = [
        (number, first_pool + one.group, len(one.items), *one.away) for number, one in enumerate(classes) if one.away
    ]
    away = np.array(pooled, dtype=np.int64).reshape(-1, 5)
    to_pool = arcs.add(away[:, 0], away[:, 1], away[:, 2], 0, 0, away[:, 3], away[:, 4])
    out = arcs.add(first_pool + pair_group, first_pair + np.arange(len(pair)), sizes[pair_group])
    least = (sizes // [len(group) for group in groups])[pair_group]
    pairs, owners = first_pair + np.arange(len(pair)), first_member + pair_member
    arcs.add(pairs, owners, least)
    arcs.add(pairs, owners, 1, 1)
    arcs.add(pairs, owners, sizes[pair_group], 3)
    base = np.bincount(pair_member, weights=least, minlength=members).astype(np.int64)
    of_member = np.bincount(pair_member, minlength=members)
    arcs.add(first_member + np.arange(members), sink, base)
    step = np.arange(len(pair)) - np.repeat(np.cumsum(of_member) - of_member, of_member)
    arcs.add(
        first_member + np.repeat(np.arange(members), of_member), sink, 1, 0, 2 * (np.repeat(base, of_member) + step) + 1
    )
    arcs.add(first_member + np.arange(members), sink, int(sizes.sum()), 0, 2 * int(base.max(initial=0) + len(pair)) + 1)
    supplies = np.zeros(sink + 1 + len(spreads), dtype=np.int64)
    supplies[: len(classes)] = [len(one.items) * copies[one.group] for one in classes]
    supplies[sink] = -int(sizes.sum())
    # On a cycle what is spread lies between two other nodes.
    longest = (sink + 2) * (2 if spreads else 1)
    flows = solve(
        Network(
            supplies, arcs, changes=(2 * longest * (int(base.max(initial=0)) + len(pair)), 2 * longest, 4 * longest)
        )
    )
    pools = [_in_turn(pair_member, flows[out], pair_group == group) for group in range(len(groups))]
    taken = dict(zip(away[:, 0].tolist(), flows[to_pool].tolist(), strict=True))
    chosen: list[dict[int, int]] = [{} for _ in classes]
    for (*_, number, member), flow in zip(rows, flows[named].tolist(), strict=True):
        if number != NOBODY:
            chosen[number][member] = chosen[number].get(member, 0) + flow
    found: list[list[list[int]]] = []
    for number, one in enumerate(classes):
        turns = [member for member in sorted(chosen[number]) for _ in range(chosen[number][member])]
        turns += [pools[one.group].pop() for _ in range(taken.get(number, 0))]
        # No member is there more often than there are items, so going round gives every item different members.
        found.append([turns[position :: len(one.items)] for position in range(len(one.items))])
    return found


def _rooms(share: int, count: int) -> list[tuple[int, int]]:
    """(how many, cost of one): an even share costs nothing, one more a little, and more than that too much to be even."""
    parts = ((min(share, count), 0), (min(1, count - share), 1), (count - share - 1, 2))
    return [(room, cost) for room, cost in parts if room > 0]


def _in_turn(pair_member: Int64Array, flows: Int64Array, mine: np.typing.NDArray[np.bool_]) -> list[int]:
    """The members of a pool round by round, the last first."""
    members, counts = pair_member[mine], flows[mine]
    turn = np.repeat(members, counts)
    number = np.arange(len(turn)) - np.repeat(np.cumsum(counts) - counts, counts)
    result: list[int] = turn[np.argsort(number, kind="stable")][::-1].tolist()
    return result
