"""Places items that not every member may have: least sum of squares of the sizes, fewest moves, racks, spread: one flow.

Items that are alike (same crowd, same holder, same racks) are a class. A class sends its items to its holder, or into the
pool of its crowd, which costs a move; from there they go to the crowd's members, rack by rack where racks are known.
"""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.group.consumers.even import keep_first
from task_assignor.group.consumers.levels import fair_levels
from task_assignor.group.consumers.table import NOBODY
from task_assignor.sdk.columns import BoolArray, Int64Array


@attrs.frozen(eq=False)
class Racks:
    """Where copies of items are, and where the members are.

    Args:
        kind_of: (P,) items with the same racks are of one kind.
        member: (M,) rack of each member; the last number is for members without one.
        misses: (kinds, racks) 1 where no copy is in the rack, else 0; 0 for members without a rack.
    """

    kind_of: Int64Array
    member: Int64Array
    misses: Int64Array

    @classmethod
    def unknown(cls, items: int, members: int) -> Racks:
        """One rack for all."""
        zeros = np.zeros(items, dtype=np.int64)
        return cls(zeros, np.zeros(members, dtype=np.int64), np.zeros((1, 1), dtype=np.int64))


@attrs.frozen(eq=False)
class Problem:
    """Items, who may have them, who had them.

    Args:
        crowd_of: (P,) crowd of each item.
        crowds: the members of each crowd.
        holder: (P,) who had it, a member of its crowd; -1: nobody.
        keep_order: (P,) its rank among those of its holder: the first stay.
        members: how many members there are.
        racks: the racks.
    """

    crowd_of: Int64Array
    crowds: list[Int64Array]
    holder: Int64Array
    keep_order: Int64Array
    members: int
    racks: Racks


def place(problem: Problem) -> Int64Array:
    """(P,) the member that gets each item."""
    kinds = len(problem.racks.misses)
    pool_of = problem.crowd_of * kinds + problem.racks.kind_of
    pools, pool_of = np.unique(pool_of, return_inverse=True)
    classes, class_of, count = np.unique(
        pool_of * (problem.members + 1) + problem.holder + 1, return_inverse=True, return_counts=True
    )
    class_pool, holder = classes // (problem.members + 1), classes % (problem.members + 1) - 1
    network = _Network.of(problem, pools, class_pool, holder, count)
    flows = solve(network.network)
    # Of each class the first stay with their holder.
    owner = keep_first(np.where(problem.holder == NOBODY, NOBODY, class_of), problem.keep_order, flows[network.stay])
    owner[owner != NOBODY] = problem.holder[owner != NOBODY]
    free = owner == NOBODY
    # From each pool to the racks, from the racks of each crowd to its members.
    into = _deal(free, pool_of, network.gate_pool, network.gate, flows[network.to_gate])
    hands_over = into != NOBODY
    handed = flows[network.to_member] + flows[network.beyond]
    owner[hands_over] = _deal(hands_over, into, network.hand_gate, network.hand_member, handed)[hands_over]
    return owner


def _deal(
    which: BoolArray, group: Int64Array, groups: Int64Array, targets: Int64Array, counts: Int64Array
) -> Int64Array:
    """(P,) target of each of these items, where (group, target, count) says how many of a group go where; else -1."""
    found = np.full(len(which), NOBODY, dtype=np.int64)
    items = np.flatnonzero(which)
    items = items[np.argsort(group[items], kind="stable")]
    order = np.lexsort((targets, groups))
    groups, targets, counts = groups[order], targets[order], counts[order]
    turn = np.repeat(targets, counts)
    number = np.arange(len(turn)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Round by round within each group, so that neighbours go to different members.
    found[items] = turn[np.lexsort((number, np.repeat(groups, counts)))]
    return found


@attrs.frozen(eq=False)
class _Network:
    """The network, and which of its arcs mean what."""

    network: Network
    stay: slice
    to_gate: slice
    gate_pool: Int64Array
    gate: Int64Array
    to_member: slice
    beyond: slice
    hand_gate: Int64Array
    hand_member: Int64Array

    @classmethod
    def of(
        cls, problem: Problem, pools: Int64Array, class_pool: Int64Array, holder: Int64Array, count: Int64Array
    ) -> _Network:
        """Nodes: classes, pools, gates (crowd, rack), members, sink."""
        kinds, racks = problem.racks.misses.shape
        crowds, members = problem.crowds, problem.members
        crowd_sizes = np.bincount(problem.crowd_of, minlength=len(crowds))
        fewest, most = fair_levels(crowd_sizes, crowds, members)
        first_pool = len(count)
        first_gate = first_pool + len(pools)
        first_member = first_gate + len(crowds) * racks
        sink = first_member + members
        arcs = Arcs(goals=4)
        total = len(problem.holder)
        pool_kind, pool_crowd = pools % kinds, pools // kinds
        held = holder != NOBODY
        own_rack = problem.racks.member[np.where(held, holder, 0)]
        stay = arcs.add(
            np.arange(len(count)),
            first_member + np.where(held, holder, 0),
            np.where(held, count, 0),
            0,
            0,
            problem.racks.misses[pool_kind[class_pool], own_rack],
        )
        arcs.add(np.arange(len(count)), first_pool + class_pool, count, 0, held.astype(np.int64))
        gate_pool = np.repeat(np.arange(len(pools)), racks)
        gate = pool_crowd[gate_pool] * racks + np.tile(np.arange(racks), len(pools))
        misses = problem.racks.misses[pool_kind].reshape(-1)
        to_gate = arcs.add(first_pool + gate_pool, first_gate + gate, total, 0, 0, misses)
        hand_member = np.concatenate([np.zeros(0, dtype=np.int64), *crowds])
        hand_crowd = np.repeat(np.arange(len(crowds)), [len(crowd) for crowd in crowds])
        hand_gate = hand_crowd * racks + problem.racks.member[hand_member]
        # No crowd heaps its items on few of its members: who joins later then finds what it may have at many.
        share = -(-crowd_sizes // [len(crowd) for crowd in crowds])[hand_crowd]
        to_member = arcs.add(first_gate + hand_gate, first_member + hand_member, share)
        beyond = arcs.add(first_gate + hand_gate, first_member + hand_member, total, 0, 0, 0, 1)
        # The sum of squares: one more item costs twice the level, and one; the same for all is left out.
        cost = 2 * (fewest - fewest.min())
        arcs.add(first_member + np.arange(members), sink, most - fewest, cost)
        supplies = np.zeros(sink + 1, dtype=np.int64)
        supplies[: len(count)] = count
        supplies[first_member:sink] = -fewest
        supplies[sink] = int(fewest.sum()) - total
        # On a simple cycle a pool has two neighbours, and so has a member.
        turns = 2 * min(len(pools), members) + 2
        network = Network(supplies, arcs, changes=(turns, turns + 2 * len(pools), turns + 2 * len(crowds) * racks))
        return cls(network, stay, to_gate, gate_pool, gate, to_member, beyond, hand_gate, hand_member)
