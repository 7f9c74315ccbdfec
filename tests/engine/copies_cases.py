"""Random questions about copies for the tests, all answers to small ones, and Kafka's own search to compare with."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
from hypothesis import strategies as st

from task_assignor.engine.copies.flow import Prices
from task_assignor.engine.copies.goals import CopiedItems, CopyProblem, Room, Total
from task_assignor.engine.copies.placement import Copies
from task_assignor.engine.items import Pairs
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.columns import Int64Array

NOTHING = Pairs.of([], [])


@attrs.frozen
class Shape:
    """How large random questions are."""

    items: int = 4
    owners: int = 4
    keys: int = 2
    copies: int = 2


@st.composite
def problems(draw: st.DrawFn, shape: Shape) -> CopyProblem:
    """Questions with uneven weights, tags, claims and costs."""
    owners = draw(st.integers(2, shape.owners))
    items = draw(st.integers(1, shape.items))
    number = draw(st.integers(1, shape.copies))

    def column(low: int, high: int, length: int) -> Int64Array:
        return np.array(draw(st.lists(st.integers(low, high), min_size=length, max_size=length)), dtype=np.int64)

    main = column(-1, owners - 1, items)
    wanted = number * column(0, 1, items)
    pair = st.tuples(st.integers(0, items - 1), st.integers(0, owners - 1), st.integers(0, 3))
    claims = draw(st.lists(pair, max_size=3 * items, unique_by=lambda one: one[:2]))
    keys = draw(st.integers(0, shape.keys))
    prices = None
    if draw(st.booleans()):
        costs = draw(st.sampled_from([(10, 1), (1, 0), (0, 1), (3, 2)]))
        table = column(0, 2, 9).reshape(3, 3)
        prices = Prices(RowCosts.of_table(column(0, 2, items), table), column(0, 2, owners), *costs, costs)
    return CopyProblem(
        main_owner=main,
        room=Room.even(main, wanted, column(1, draw(st.sampled_from([1, 3])), owners)),
        claims=Pairs.of(*(np.array([row[part] for row in claims], dtype=np.int64) for part in range(3))),
        tags=column(-1, 2, owners * keys).reshape(owners, keys),
        prices=prices,
    )


def check(problem: CopyProblem, copies: Copies) -> None:
    """As many copies as are needed, apart, and no owner beyond its bounds."""
    count = np.bincount(copies.owner, minlength=len(problem.room.low))
    assert np.bincount(copies.item, minlength=len(problem.main_owner)).tolist() == problem.room.needs.tolist()
    keys = copies.item * len(count) + copies.owner
    assert (np.diff(keys) > 0).all()
    assert not (problem.main_owner[copies.item] == copies.owner).any()
    assert (problem.room.low <= count).all()
    assert (count <= problem.room.high).all()


def total(problem: CopyProblem, copies: Copies) -> Total:
    """How good the answer is, goal after goal."""
    items = CopiedItems(problem)
    return items.total(items.table(np.searchsorted(items.number, copies.item), copies.owner))


def best(problem: CopyProblem) -> Total:
    """How good the best of all answers is."""
    items, room = CopiedItems(problem), problem.room
    item = np.repeat(np.arange(len(items)), items.needs)
    choices = [
        itertools.combinations([owner for owner in range(items.owners) if owner != main], need)
        for main, need in zip(items.main.tolist(), items.needs.tolist(), strict=True)
    ]
    found = []
    for every in itertools.product(*choices):
        owner = np.array([one for chosen in every for one in chosen], dtype=np.int64)
        count = np.bincount(owner, minlength=items.owners)
        if (room.low <= count).all() and (count <= room.high).all():
            found.append(items.total(items.table(item, owner)))
    return min(found)


def again(problem: CopyProblem, copies: Copies) -> CopyProblem:
    """The question that a second call asks: items and copies are where the first one put them."""
    item = np.flatnonzero(problem.main_owner >= 0)
    claims = Pairs.of(np.append(copies.item, item), np.append(copies.owner, problem.main_owner[item]))
    return attrs.evolve(problem, claims=claims)


def swapped_in_pairs(problem: CopyProblem) -> Total:
    """What Kafka's search would reach (KIP-925, `optimizeStandbyTasks`): swaps between two clients that keep tag values.

    Of each pair of clients all swaps that pay, best first, in four rounds over all pairs.
    """
    items = CopiedItems(problem)
    held = items.table(items.claim_item, items.claim_owner)
    for _ in range(4):
        changed = False
        for first, second in itertools.combinations(range(items.owners), 2):
            while True:
                better = _best_swap(items, held, first, second)
                if better is None:
                    break
                held, changed = better, True
        if not changed:
            break
    return items.total(held)


def _best_swap(items: CopiedItems, held: Int64Array, first: int, second: int) -> Int64Array | None:
    """The swap of two copies between two owners that saves most; None: none saves anything."""

    def movable(source: int, target: int) -> list[tuple[int, int]]:
        has, free = (held[:, 1:] == source).any(axis=1), ~(held == target).any(axis=1)
        chosen = []
        for row in np.flatnonzero(has & free).tolist():
            moved = _moved(held, row, source, target)
            if items.missing(moved) == 0:
                chosen.append((items.total(moved).cost, row))
        return sorted(chosen)

    give, take = movable(first, second), movable(second, first)
    if not give or not take:
        return None
    moved = _moved(_moved(held, give[0][1], first, second), take[0][1], second, first)
    return moved if items.total(moved).cost < items.total(held).cost else None


def _moved(held: Int64Array, row: int, source: int, target: int) -> Int64Array:
    moved = held.copy()
    moved[row, 1 + int(np.flatnonzero(moved[row, 1:] == source)[0])] = target
    return moved
