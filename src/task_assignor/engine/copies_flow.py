"""Copies by flows between classes of items and owners: which can stay, and where the others go. Bounds are in `engine/copies.py`.

Items that have the same owners already and need as many copies more are one class. A class of n items can send up to n
copies to an owner; that is enough: such copies can be dealt out to the items so that none gets two on one owner.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.flow import Arcs, InfeasibleFlowError, Network, most_flow, solve
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array

MOST_CELLS: Final = 400_000
"""Pairs of class and owner; with more the copies are dealt out and swapped instead."""
NOT_CLAIMED: Final = -1
_TINY: Final = 1e-9


@attrs.frozen(eq=False)
class Room:
    """How many copies owners take.

    Args:
        low: (C,) so many in any case.
        spare: (C,) so many more, if `extras` allow.
        extras: how many more all take together.
    """

    low: Int64Array
    spare: Int64Array
    extras: int

    def after(self, used: Int64Array) -> Room:
        """What is left when (C,) `used` copies are placed."""
        beyond = np.maximum(used - self.low, 0)
        return Room(np.maximum(self.low - used, 0), self.spare - beyond, self.extras - int(beyond.sum()))


@attrs.frozen(eq=False)
class _Classes:
    """Classes of items.

    Args:
        of_item: (N,) class of each item.
        size: (K,) number of items.
        need: (K,) copies that each of its items needs.
        allowed: (K, C) owners where a copy may go.
    """

    of_item: Int64Array
    size: Int64Array
    need: Int64Array
    allowed: BoolArray


def complete(holder: Int32Array, need: Int64Array, room: Room) -> tuple[Int64Array, Int64Array] | None:
    """Pairs (item, owner) for all copies that are needed; None: there are too many classes, or it cannot be done.

    Copies of the items of one class are spread over the owners as evenly as their room.

    Args:
        holder: (N, H) owners that an item has already; -1: none.
        need: (N,) copies that it needs.
        room: what the owners take; together as many as are needed.
    """
    owners = len(room.low)
    items = np.flatnonzero(need)
    if not len(items):
        return items, items
    classes = _classes(holder[items], need[items], owners)
    if classes is None:
        return None
    flow = _filled(classes, room)
    if int(flow.sum()) < int(need.sum()):
        return None
    row, owner = _dealt(classes, flow)
    return items[row], owner


def _classes(holder: Int32Array, need: Int64Array, owners: int) -> _Classes | None:
    label = need.copy()
    for column in np.sort(holder, axis=1).T:
        label = np.unique(label * (owners + 1) + column + 1, return_inverse=True)[1].reshape(-1)
    _, first, of_item = np.unique(label, return_index=True, return_inverse=True)
    of_item = of_item.reshape(-1)
    if len(first) * owners > MOST_CELLS:
        return None
    allowed = np.ones((len(first), owners + 1), dtype=np.bool_)
    for column in holder[first].T:
        allowed[np.arange(len(first)), column] = False
    return _Classes(of_item, np.bincount(of_item), need[first], allowed[:, :owners])


def _filled(classes: _Classes, room: Room) -> Int64Array:
    """(K, C) copies of each class for each owner, as many as can be, near to proportional."""
    count, owners = classes.allowed.shape
    capacity = np.where(classes.allowed, classes.size[:, None], 0)
    supply = classes.size * classes.need
    # What everybody takes in any case, and his part of the extras.
    likely = room.low + _shared(room.spare, room.extras)
    start = _proportional(supply, likely, capacity)
    beyond = np.maximum(start.sum(axis=0) - room.low, 0)
    # Nodes: classes, owners, hub of the extras, source, sink.
    hub, source, sink = count + owners, count + owners + 1, count + owners + 2
    row, column = np.nonzero(capacity)
    every, place = np.arange(count), count + np.arange(owners)
    arcs = (
        (np.full(count, source), every, supply, start.sum(axis=1)),
        (row, count + column, capacity[row, column], start[row, column]),
        (place, np.full(owners, sink), room.low, start.sum(axis=0) - beyond),
        (place, np.full(owners, hub), room.spare, beyond),
        (np.array([hub]), np.array([sink]), np.array([room.extras]), np.array([beyond.sum()])),
    )
    tails, heads, capacities, flows = (np.concatenate(part).astype(np.int64) for part in zip(*arcs, strict=True))
    result = most_flow(tails, heads, capacities, flows, source, sink)
    filled = np.zeros_like(capacity)
    filled[row, column] = result[count : count + len(row)]
    return filled


def _shared(spare: Int64Array, extras: int) -> Int64Array:
    """(C,) the extras, shared out in proportion to who may have some, rounded down."""
    total = int(spare.sum())
    return np.minimum(spare, (spare.astype(np.float64) * (extras / total)).astype(np.int64)) if total else spare


def _proportional(supply: Int64Array, room: Int64Array, capacity: Int64Array) -> Int64Array:
    """(K, C) a flow that sends each class's supply to owners in proportion to their room, rounded down."""
    wanted = (capacity > 0) * room[None, :].astype(np.float64)
    wanted *= (supply / np.maximum(wanted.sum(axis=1), 1))[:, None]
    wanted = np.minimum(wanted, capacity)
    wanted *= np.minimum(room / np.maximum(wanted.sum(axis=0), 1), 1)[None, :]
    whole: Int64Array = np.floor(wanted + _TINY).astype(np.int64)
    for sums, limit, part in ((whole.sum(axis=1), supply, whole), (whole.sum(axis=0), room, whole.T)):
        # Rounding may have added one too many.
        for number in np.flatnonzero(sums > limit).tolist():
            part[number, int(np.argmax(part[number]))] -= sums[number] - limit[number]
    return whole


def _dealt(classes: _Classes, flow: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The flow as pairs (row, owner): each class's copies go round its items, owner after owner.

    No item gets two copies on one owner, since no owner gets more of them than there are items. The items go in steps,
    so that neighbours are not with the same owner.
    """
    order = np.argsort(classes.of_item, kind="stable")
    start = np.cumsum(classes.size) - classes.size
    longest = np.maximum(flow.max(axis=1), 1)
    step = np.maximum(classes.size // longest, 1)
    rank = np.arange(len(order)) - np.repeat(start, classes.size)
    steps = np.repeat(step, classes.size)
    order = order[np.lexsort((rank, rank % steps, np.repeat(np.arange(len(start)), classes.size)))]
    row, owner = np.nonzero(flow)
    copies = flow[row, owner]
    of_class, owner = np.repeat(row, copies), np.repeat(owner, copies)
    total = np.bincount(row, copies, len(start)).astype(np.int64)
    position = np.arange(len(of_class)) - np.repeat(np.cumsum(total) - total, total)
    return order[start[of_class] + position % classes.size[of_class]], owner


def most_kept(
    holder: Int32Array,
    need: Int64Array,
    room: Room,
    claim_item: Int64Array,
    claim_owner: Int64Array,
    claim_place: Int64Array,
) -> BoolArray | None:
    """(P,) which claims to keep so that most are kept and all copies can be placed; None: too many pairs, or impossible.

    Args:
        holder: (N, 1) owner of each item itself.
        need: (N,) copies that each item needs.
        room: what the owners take.
        claim_item: (P,) item of each claim, claims of one item being distinct.
        claim_owner: (P,) its owner.
        claim_place: (P,) how many claims on the item are to be preferred.
    """
    owners = len(room.low)
    if len(need) * owners > MOST_CELLS:
        return None
    allowed = np.ones((len(need), owners + 1), dtype=np.bool_)
    allowed[np.arange(len(need)), holder[:, 0]] = False
    claimed = np.full((len(need), owners), NOT_CLAIMED)
    claimed[claim_item, claim_owner] = claim_place
    row, column = np.nonzero(allowed[:, :owners] & (need > 0)[:, None])
    first_owner, hub, sink = len(need), len(need) + owners, len(need) + owners + 1
    place = first_owner + np.arange(owners)
    arcs = Arcs(goals=2)
    known = claimed[row, column]
    pairs = arcs.add(row, first_owner + column, 1, (known < 0).astype(np.int64), np.maximum(known, 0))
    arcs.add(place, hub, room.spare)
    arcs.add(hub, sink, room.extras)
    supplies = np.concatenate([need, -room.low, [0, int(room.low.sum()) - int(need.sum())]])
    # A simple cycle enters an owner, or the hub, at most once.
    change = 2 * (owners + 1) * (int(claim_place.max(initial=0)) + 1)
    try:
        flow = solve(Network(supplies, arcs, longest_path=2 * owners + 4, changes=(change,)))[pairs] > 0
    except InfeasibleFlowError:
        return None
    placed = np.zeros(claimed.shape, dtype=np.bool_)
    placed[row[flow], column[flow]] = True
    kept: BoolArray = placed[claim_item, claim_owner]
    return kept
