"""The allocation engine for sticky fill: items to owners within quotas, fewest claims lost, and why.

It knows neither tasks nor Kafka: items and owners are numbers. What is allowed per owner is worked out in `_spread.py`;
rack costs are not its business (`_rack.py`).
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.columns import BoolArray, Int8Array, Int32Array, Int64Array
from task_assignor.utils._spread import ShareProblem, Shares, even_counts

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
class Pairs:
    """Pairs (item, owner) with a number each.

    Args:
        item: (N,) item numbers.
        owner: (N,) owner numbers.
        rank: (N,) of claims the generation (a greater one is newer), of state how far it is behind (less is better).
    """

    item: Int64Array
    owner: Int64Array
    rank: Int64Array

    @classmethod
    def of(cls, item: npt.ArrayLike, owner: npt.ArrayLike, rank: npt.ArrayLike | None = None) -> Pairs:
        """Pairs from anything array-like; without ranks all are 0."""
        items = np.asarray(item, dtype=np.int64)
        ranks = np.zeros(len(items), dtype=np.int64) if rank is None else np.asarray(rank, dtype=np.int64)
        return cls(items, np.asarray(owner, dtype=np.int64), ranks)

    def where(self, chosen: npt.NDArray[np.bool_] | Int64Array) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.item[chosen], self.owner[chosen], self.rank[chosen])


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
        load: (C,) what the owners have already from elsewhere; of equal choices the least loaded gets more.
    """

    is_first_kind: BoolArray
    weight: Int64Array
    claims: Pairs
    state: Pairs
    keep_all_claims: bool = False
    load: Int64Array | None = None


def allocate(problem: Problem) -> Allocation:
    """Give every item an owner.

    In this order: every owner has floor or ceil of its share by weight (unless all claims are to be kept); fewest claims
    are lost; the spread of the first kind, then of all items per unit of weight is smallest; items that lost their
    owner, or had none, go where their state is, least behind first; the rest in turn, by number.

    Ties go to the owner with less load from elsewhere, then to the smaller owner number. The work is O(N log N) for items with at most one claim.
    """
    items, owners = len(problem.is_first_kind), len(problem.weight)
    if not owners:
        return Allocation(np.full(items, NOBODY, dtype=np.int32), np.full(items, Reason.ROOM, dtype=np.int8))
    claimant = settle_claims(problem)
    claimed = _count(claimant[claimant >= 0], problem.is_first_kind[claimant >= 0], owners)
    state = problem.state.where(_order_of_state(problem.state))
    demand = _demand(problem, claimant, state, owners)
    shares = _shares(problem, claimed, demand)
    return _place(problem, claimant, state, shares)


def quotas(weight: Int64Array, items: int) -> tuple[Int64Array, Int64Array]:
    """(C,) floor and ceil of each owner's share of the items by weight."""
    total = int(weight.sum())
    if items * int(weight.max(initial=0)) < 2**62:
        scaled = weight * items
        return scaled // total, -(-scaled // total)
    exact = [int(one) * items for one in weight]
    return np.array([one // total for one in exact]), np.array([-(-one // total) for one in exact])


def _count(owner: Int64Array, is_first_kind: BoolArray, owners: int) -> Int64Array:
    """(C, 2) number of items of the first and the second kind per owner."""
    return np.stack(
        [np.bincount(owner[is_first_kind], minlength=owners), np.bincount(owner[~is_first_kind], minlength=owners)],
        axis=1,
    )


def _shares(problem: Problem, claimed: Int64Array, demand: Int64Array) -> Shares:
    items, first_kind = len(problem.is_first_kind), int(problem.is_first_kind.sum())
    floor, ceil = quotas(problem.weight, items)
    if problem.keep_all_claims:
        # Owners keep what they claim; the rest goes to those below their floor, and only then up to the ceil.
        kept = claimed.sum(axis=1)
        least, most = kept, np.maximum(kept, floor)
        if int(most.sum()) < items:
            least, most = most, np.maximum(kept, ceil)
        total = even_counts(problem.weight, least, most, items, kept + demand.sum(axis=1))
        first = even_counts(
            problem.weight, claimed[:, 0], total - claimed[:, 1], first_kind, claimed[:, 0] + demand[:, 0]
        )
        return Shares(total, first)
    return ShareProblem(
        problem.weight, floor, ceil > floor, items - int(floor.sum()), claimed, first_kind, demand, _loads(problem)
    ).solve()


def _loads(problem: Problem) -> Int64Array:
    return np.zeros(len(problem.weight), dtype=np.int64) if problem.load is None else problem.load


def settle_claims(problem: Problem) -> Int64Array:
    """(N,) the one owner whose claim on the item counts; -1: nobody claims it.

    Only claims of an item's newest generation count. Of several the one is chosen with which most claims can be kept.
    """
    items, owners = len(problem.is_first_kind), len(problem.weight)
    claims = problem.claims
    order = np.lexsort((claims.owner, -claims.rank, claims.item))
    claims = claims.where(order)
    newest = np.full(items, np.iinfo(np.int64).min)
    np.maximum.at(newest, claims.item, claims.rank)
    claims = claims.where(claims.rank == newest[claims.item])
    claimant = np.full(items, NOBODY, dtype=np.int64)
    number = np.bincount(claims.item, minlength=items)
    single = number[claims.item] == 1
    claimant[claims.item[single]] = claims.owner[single]
    several = claims.where(~single)
    if len(several.item):
        if problem.keep_all_claims:
            room = np.full(owners, items)
            extras_of, extras = np.zeros(owners, dtype=np.bool_), 0
        else:
            room, ceil = quotas(problem.weight, items)
            extras_of, extras = ceil > room, items - int(room.sum())
        _Settlement(claimant, several, room, extras_of, extras).settle()
    return claimant


class _Settlement:
    """Items that several owners claim go to one of them, so that most claims can be kept (augmenting paths)."""

    def __init__(
        self, claimant: Int64Array, several: Pairs, floor: Int64Array, may_have_extra: BoolArray, extras: int
    ) -> None:
        self.claimant = claimant
        self.choices: dict[int, list[int]] = {}
        for item, owner in zip(several.item.tolist(), several.owner.tolist(), strict=True):
            self.choices.setdefault(item, []).append(owner)
        self.count = np.bincount(claimant[claimant >= 0], minlength=len(floor)).tolist()
        self.floor = floor.tolist()
        self.may_have_extra = may_have_extra.tolist()
        self.extras = extras
        self.held: dict[int, set[int]] = {}

    def settle(self) -> None:
        for item in sorted(self.choices):
            owner = min(self.choices[item], key=lambda one: (self.count[one] - self.floor[one], one))
            self._give(item, owner)
        used = sum(self._uses_extra(owner) for owner in range(len(self.floor)))
        while (path := self._path(used)) is not None:
            for item, owner in path:
                self._give(item, owner)
            used = sum(self._uses_extra(owner) for owner in range(len(self.floor)))

    def _uses_extra(self, owner: int) -> bool:
        return bool(self.may_have_extra[owner] and self.count[owner] > self.floor[owner])

    def _give(self, item: int, owner: int) -> None:
        before = int(self.claimant[item])
        if before >= 0:
            self.count[before] -= 1
            self.held[before].discard(item)
        self.claimant[item] = owner
        self.count[owner] += 1
        self.held.setdefault(owner, set()).add(item)

    def _path(self, used: int) -> list[tuple[int, int]] | None:
        """Items to be handed on, from an owner that cannot keep all its claims to one that can keep one more."""
        over = [
            owner
            for owner in sorted(self.held)
            if self.held[owner]
            and (
                self.count[owner] > self.floor[owner] + self.may_have_extra[owner]
                or (used > self.extras and self._uses_extra(owner))
            )
        ]
        seen: dict[int, tuple[int, int]] = {}
        queue = deque(over)
        visited = set(over)
        while queue:
            giver = queue.popleft()
            for item in sorted(self.held.get(giver, ())):
                for taker in self.choices[item]:
                    if taker in visited:
                        continue
                    visited.add(taker)
                    seen[taker] = (giver, item)
                    has_room = self.count[taker] < self.floor[taker] or (
                        used < self.extras and self.may_have_extra[taker] and self.count[taker] == self.floor[taker]
                    )
                    if has_room:
                        return self._trace(seen, taker)
                    queue.append(taker)
        return None

    @staticmethod
    def _trace(seen: dict[int, tuple[int, int]], taker: int) -> list[tuple[int, int]]:
        path = []
        while taker in seen:
            giver, item = seen[taker]
            path.append((item, taker))
            taker = giver
        return path


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

    Greedy by (how far behind, item, owner); then items that found their places taken push others on, so that as many
    as possible are with their state.
    """
    holder = owner[state.item]
    of_kind = kind[state.item]
    wanted = (room[state.owner, of_kind] > 0) & ((holder < 0) | (surplus[holder, of_kind] > 0))
    state = state.where(wanted & (holder != state.owner))
    stuck: dict[int, list[int]] = {}
    placed: dict[int, list[int]] = {}
    choices: dict[int, list[int]] = {}
    for item, target in zip(state.item.tolist(), state.owner.tolist(), strict=True):
        if reason[item] == Reason.STATE:
            choices[item].append(target)
            continue
        which, before = int(kind[item]), int(owner[item])
        choices.setdefault(item, []).append(target)
        if before >= 0 and not surplus[before, which]:
            continue
        if room[target, which]:
            if before >= 0:
                surplus[before, which] -= 1
            room[target, which] -= 1
            owner[item], reason[item] = target, Reason.STATE
            placed.setdefault(target, []).append(item)
        else:
            stuck.setdefault(item, []).append(target)
    for item in sorted(stuck):
        if owner[item] < 0:
            _push(item, choices, placed, kind, owner, reason, room)


def _push(
    item: int,
    choices: dict[int, list[int]],
    placed: dict[int, list[int]],
    kind: Int64Array,
    owner: Int64Array,
    reason: Int8Array,
    room: Int64Array,
) -> None:
    """Place an item where its state is, moving others that were placed so to further owners of their state."""
    which = int(kind[item])
    came_from: dict[int, tuple[int, int]] = {}
    queue: deque[tuple[int, int]] = deque((item, target) for target in choices[item])
    while queue:
        moved, target = queue.popleft()
        if target in came_from:
            continue
        came_from[target] = (moved, int(owner[moved]))
        if room[target, which]:
            room[target, which] -= 1
            while True:
                moved, before = came_from[target]
                if before >= 0:
                    placed[before].remove(moved)
                owner[moved], reason[moved] = target, Reason.STATE
                placed.setdefault(target, []).append(moved)
                if moved == item:
                    return
                target = before
        queue.extend(
            (other, further)
            for other in placed.get(target, ())
            if kind[other] == which
            for further in choices[other]
            if further not in came_from
        )


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
