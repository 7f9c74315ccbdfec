"""The allocation engine for sticky fill: items to owners within quotas, fewest claims lost, and why.

It knows neither tasks nor Kafka: items and owners are numbers. What is allowed per owner is worked out in `engine/spread.py`;
rack costs are not its business (`_rack.py`).
"""

from __future__ import annotations

import enum
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.grants import Wishes, grant
from task_assignor.engine.items import Pairs, quotas
from task_assignor.engine.keep_shares import KeepProblem
from task_assignor.engine.polish import MOST_ARCS, Polish
from task_assignor.engine.polish_network import RackCosts
from task_assignor.engine.spread import ShareProblem, Shares
from task_assignor.sdk.columns import BoolArray, Int8Array, Int32Array, Int64Array

NOBODY: Final = -1


class Reason(enum.IntEnum):
    """Why an item went to its owner."""

    CLAIM = 0
    """It was there before, and stays."""
    STATE = 1
    """It could not stay, or was nowhere, and its owner has its state."""
    ROOM = 2
    """Its owner had room."""


@attrs.frozen(eq=False)
class Allocation:
    """The answer: an owner and a reason per item.

    Args:
        owner: (N,) owner numbers.
        reason: (N,) `Reason` numbers.
    """

    owner: Int32Array
    reason: Int8Array


@attrs.frozen(eq=False)
class Problem:
    """Items to be allocated.

    Args:
        is_first_kind: (N,) the items that are spread first (stateful tasks).
        weight: (C,) weights of the owners, at least 1.
        claims: who had which item; of several claims on one item the newest generation counts, others do not.
        state: who has state of which item, and how far behind it is.
        keep_all_claims: claims come before shares: nobody loses an item to make the shares even.
        share: (C,) exact number of items of each owner, decided elsewhere; None: floor or ceil of the share by weight.
    """

    is_first_kind: BoolArray
    weight: Int64Array
    claims: Pairs
    state: Pairs
    keep_all_claims: bool = False
    share: Int64Array | None = None

    def bounds(self) -> tuple[Int64Array, Int64Array]:
        """(C,) least and most items of each owner."""
        return quotas(self.weight, len(self.is_first_kind)) if self.share is None else (self.share, self.share)


def allocate(problem: Problem) -> Allocation:
    """Give every item an owner.

    In this order: every owner has floor or ceil of its share by weight, or the share that is given (unless all claims are
    to be kept); fewest claims are lost; the spread of the first kind, then of all items per unit of weight is smallest; items that lost their
    owner, or had none, go where their state is, least behind first; the rest in turn, by number.

    Ties go to the smaller owner number. The work is O(N log N) but for
    the flows: of claims that owners compete for, of state in the way of other state, and of `engine/polish.py`, which makes
    all goals exact up to some ten thousand items.
    """
    items, owners = len(problem.is_first_kind), len(problem.weight)
    if not owners:
        return Allocation(np.full(items, NOBODY, dtype=np.int32), np.full(items, Reason.ROOM, dtype=np.int8))
    claimant = settle_claims(problem)
    claimed = _count(claimant[claimant >= 0], problem.is_first_kind[claimant >= 0], owners)
    state = problem.state.where(_order_of_state(problem.state))
    demand = _demand(problem, claimant, state, owners)
    shares = _shares(problem, claimed, demand)
    placed = _place(problem, claimant, state, shares)
    if items > MOST_ARCS:
        # It would not be polished; what that would need takes a second at a million items.
        return placed
    owner = polish_of(problem).improve(placed.owner.astype(np.int64))
    if (owner == placed.owner).all():
        return placed
    return Allocation(owner.astype(np.int32), reasons(problem, owner))


def polish_of(problem: Problem, racks: RackCosts | None = None) -> Polish:
    """What is to be polished of an answer to the problem.

    Args:
        problem: the items and owners.
        racks: what items cost on racks, instead of lost claims alone.
    """
    floor, ceil = problem.bounds()
    claims = newest_claims(problem)
    state = problem.state.where(_order_of_state(problem.state))
    return Polish(
        problem.is_first_kind,
        problem.weight,
        floor,
        ceil,
        claims.item,
        claims.owner,
        state.item,
        state.owner,
        state.places(),
        problem.keep_all_claims,
        racks,
    )


def reasons(problem: Problem, owner: Int64Array) -> Int8Array:
    """(N,) why each item is with its owner."""
    items = np.arange(len(owner))
    kept = newest_claims(problem).have(items, owner)
    with_state = problem.state.have(items, owner)
    return np.select([kept, with_state], [Reason.CLAIM, Reason.STATE], Reason.ROOM).astype(np.int8)


def _count(owner: Int64Array, is_first_kind: BoolArray, owners: int) -> Int64Array:
    """(C, 2) number of items of the first and the second kind per owner."""
    return np.stack(
        [np.bincount(owner[is_first_kind], minlength=owners), np.bincount(owner[~is_first_kind], minlength=owners)],
        axis=1,
    )


def _shares(problem: Problem, claimed: Int64Array, demand: Int64Array) -> Shares:
    items, first_kind = len(problem.is_first_kind), int(problem.is_first_kind.sum())
    floor, ceil = problem.bounds()
    if problem.keep_all_claims:
        return KeepProblem(problem.weight, floor, ceil, claimed, (first_kind, items - first_kind), demand).solve()
    return ShareProblem(
        problem.weight, floor, ceil > floor, items - int(floor.sum()), claimed, first_kind, demand
    ).solve()


def newest_claims(problem: Problem) -> Pairs:
    """The claims of each item's newest generation, sorted by item, then owner."""
    claims = problem.claims.where(np.lexsort((problem.claims.owner, problem.claims.item)))
    newest = np.full(len(problem.is_first_kind), np.iinfo(np.int64).min)
    np.maximum.at(newest, claims.item, claims.rank)
    return claims.where(claims.rank == newest[claims.item])


def settle_claims(problem: Problem) -> Int64Array:
    """(N,) the one owner whose claim on the item counts; -1: nobody claims it.

    Only claims of an item's newest generation count. Of several the one is chosen with which most claims can be kept.
    """
    items = len(problem.is_first_kind)
    claims = newest_claims(problem)
    claimant = np.full(items, NOBODY, dtype=np.int64)
    number = np.bincount(claims.item, minlength=items)
    single = number[claims.item] == 1
    claimant[claims.item[single]] = claims.owner[single]
    several = claims.where(~single)
    if len(several.item):
        _settle(problem, claimant, several)
    return claimant


def _settle(problem: Problem, claimant: Int64Array, several: Pairs) -> None:
    """Give items that several owners claim to one of them, so that as many claims as can be fit into the shares."""
    owners = len(problem.weight)
    floor, ceil = problem.bounds()
    held = np.bincount(claimant[claimant >= 0], minlength=owners)
    may_have_extra = ceil > floor
    # An owner that has more than its floor for itself alone takes an extra item for one of those.
    taken = may_have_extra & (held > floor)
    wishes = Wishes(
        several.item,
        several.owner,
        need=np.ones(len(claimant), dtype=np.int64),
        room=np.maximum(floor - held, 0),
        spare=(may_have_extra & ~taken).astype(np.int64),
        extras=max(len(claimant) - int(floor.sum()) - int(taken.sum()), 0),
    )
    granted = grant(wishes)
    claimant[several.item[granted]] = several.owner[granted]
    # The others are too many wherever they are (unless all claims are to be kept): with those who have least.
    left = several.where(claimant[several.item] < 0)
    count = (held + np.bincount(several.owner[granted], minlength=owners) - floor).tolist()
    choices: dict[int, list[int]] = {}
    for item, owner in zip(left.item.tolist(), left.owner.tolist(), strict=True):
        choices.setdefault(item, []).append(owner)
    for item, candidates in choices.items():
        owner = min(candidates, key=lambda one: (count[one], one))
        count[owner] += 1
        claimant[item] = owner


def _order_of_state(state: Pairs) -> Int64Array:
    return np.lexsort((state.owner, state.item, state.rank))


def _demand(problem: Problem, claimant: Int64Array, state: Pairs, owners: int) -> Int64Array:
    """(C, 2) items without claim whose best state is with the owner."""
    free = state.where(claimant[state.item] < 0)
    items, first = np.unique(free.item, return_index=True)
    return _count(free.owner[first], problem.is_first_kind[items], owners)


def _place(problem: Problem, claimant: Int64Array, state: Pairs, shares: Shares) -> Allocation:
    owners = len(problem.weight)
    second = shares.total - shares.first_kind
    limit = np.stack([shares.first_kind, second], axis=1)
    kind = np.where(problem.is_first_kind, 0, 1)
    has_claim = claimant >= 0
    claimed = _count(claimant[has_claim], problem.is_first_kind[has_claim], owners)
    surplus = np.maximum(claimed - limit, 0)
    room = np.maximum(limit - claimed, 0)
    owner = claimant.copy()
    reason = np.where(has_claim, Reason.CLAIM, Reason.ROOM).astype(np.int8)
    _place_by_state(state, kind, owner, reason, surplus, room)
    _release(kind, owner, reason, surplus)
    for which in (0, 1):
        held = np.bincount(owner[owner >= 0], minlength=owners)
        _deal(
            np.flatnonzero((owner < 0) & (kind == which)), owner, room[:, which], held / problem.weight, problem.weight
        )
    return Allocation(owner.astype(np.int32), reason)


def _place_by_state(
    state: Pairs, kind: Int64Array, owner: Int64Array, reason: Int8Array, surplus: Int64Array, room: Int64Array
) -> None:
    """Hand items without owner, and items of owners that must give some away, to owners that have their state.

    Greedy by (how far behind, item, owner); then others are found for those that stand in the way, so that as many as
    possible are with their state.
    """
    holder = owner[state.item]
    of_kind = kind[state.item]
    wanted = (room[state.owner, of_kind] > 0) & ((holder < 0) | (surplus[holder, of_kind] > 0))
    state = state.where(wanted & (holder != state.owner))
    # Items of one kind that one owner must give away are a group; those that nobody has, one without limit.
    owners = len(room)
    wishes = Wishes(
        state.item,
        2 * state.owner + kind[state.item],
        need=np.ones(len(owner), dtype=np.int64),
        room=room.reshape(-1),
        group=np.where(owner < 0, 2 * owners, 2 * owner + kind),
        budget=np.append(surplus.reshape(-1), len(owner)),
    )
    granted = grant(wishes)
    item, target = state.item[granted], state.owner[granted]
    given = owner[item] >= 0
    np.subtract.at(surplus, (owner[item[given]], kind[item[given]]), 1)
    np.subtract.at(room, (target, kind[item]), 1)
    owner[item], reason[item] = target, Reason.STATE


def _release(kind: Int64Array, owner: Int64Array, reason: Int8Array, surplus: Int64Array) -> None:
    """Take the highest numbers away from owners that still have too many."""
    for which in (0, 1):
        if not surplus[:, which].any():
            continue
        candidates = np.flatnonzero((kind == which) & (owner >= 0) & (reason == Reason.CLAIM))
        candidates = candidates[surplus[owner[candidates], which] > 0][::-1]
        order = np.argsort(owner[candidates], kind="stable")
        candidates = candidates[order]
        holders = owner[candidates]
        starts = np.searchsorted(holders, holders, side="left")
        released = candidates[np.arange(len(candidates)) - starts < surplus[holders, which]]
        owner[released] = NOBODY
        reason[released] = Reason.ROOM


def _deal(
    items: Int64Array, owner: Int64Array, room: Int64Array, level: npt.NDArray[np.float64], weight: Int64Array
) -> None:
    """Deal the items out, the emptiest owner first: neighbours (partitions of one sub-topology) get different owners."""
    if not len(items):
        return
    slots = np.repeat(np.arange(len(room)), room)
    number = np.arange(len(slots)) - np.repeat(np.cumsum(room) - room, room)
    levels = level[slots] + number / weight[slots]
    owner[items] = slots[np.lexsort((slots, levels))][: len(items)]
