"""The allocation engine against brute force, and what must hold however large the input."""

from __future__ import annotations

import itertools
from fractions import Fraction

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.actives import allocation as actives
from task_assignor.engine.actives.allocation import allocate
from task_assignor.engine.actives.problem import Bearers, ItemGoal, Problem, RackCosts
from task_assignor.engine.items import Pairs, quotas
from task_assignor.engine.row_costs import RowCosts
from tests.budget import examples


@st.composite
def problems(draw: st.DrawFn, several_claims: bool) -> Problem:
    """Small allocation problems, some with given shares; with `several_claims` an item may be claimed more than once."""
    items = draw(st.integers(0, 6))
    owners = draw(st.integers(1, 4 if items < 6 else 3))
    weight = draw(st.lists(st.integers(1, 3), min_size=owners, max_size=owners))
    pair = st.tuples(st.integers(0, max(items - 1, 0)), st.integers(0, owners - 1), st.integers(0, 2))
    key = (lambda one: one[:2]) if several_claims else (lambda one: one[0])
    claims = draw(st.lists(pair, max_size=2 * items, unique_by=key)) if items else []
    state = draw(st.lists(pair, max_size=2 * items, unique_by=lambda one: one[:2])) if items else []
    kinds = draw(st.lists(st.booleans(), min_size=items, max_size=items))
    keep_all = draw(st.booleans())
    racks = None
    if draw(st.booleans()) and not keep_all:
        rows, number = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        local = np.array(draw(st.lists(st.booleans(), min_size=rows * number, max_size=rows * number)))
        entry = np.flatnonzero(local)
        costs = RowCosts(
            np.array(draw(st.lists(st.integers(0, rows - 1), min_size=items, max_size=items)), dtype=np.int64),
            np.full(rows, draw(st.integers(1, 3))),
            entry // number,
            entry % number,
            np.zeros(len(entry), dtype=np.int64),
            number,
        )
        racks = RackCosts(
            costs,
            draw(st.integers(0, 2)),
            np.array(draw(st.lists(st.integers(0, number - 1), min_size=owners, max_size=owners)), dtype=np.int64),
        )
    holders = draw(st.none() | st.lists(st.integers(0, owners - 1), min_size=items, max_size=items))
    weights = np.array(weight, dtype=np.int64)
    given = () if holders is None else (np.bincount(np.array(holders, dtype=np.int64), minlength=owners),) * 2
    return Problem(
        np.array(kinds, dtype=np.bool_),
        weights,
        _pairs(claims),
        _pairs(state),
        keep_all,
        given or quotas(weights, items),
        racks,
    )


def _pairs(rows: list[tuple[int, int, int]]) -> Pairs:
    return Pairs.of(*(np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)))


def _counting_claims(problem: Problem) -> dict[int, set[int]]:
    """Item -> owners whose claim on it is of the newest generation."""
    rows = list(
        zip(*(c.tolist() for c in (problem.claims.item, problem.claims.owner, problem.claims.rank)), strict=True)
    )
    newest: dict[int, int] = {}
    for item, _, generation in rows:
        newest[item] = max(generation, newest.get(item, generation))
    return {item: {owner for one, owner, age in rows if one == item and age == newest[item]} for item in newest}


def _unevenness(counts: np.ndarray, weight: np.ndarray) -> Fraction:
    return sum(
        (Fraction(count**2, one) for count, one in zip(counts.tolist(), weight.tolist(), strict=True)), Fraction()
    )


def _goals(problem: Problem, owner: np.ndarray) -> tuple[Fraction | int, ...]:
    """Items outside the shares, claims lost, sums of load² / weight of stateful items and of all, items away from their
    state; for the others that moved, how many owners are less behind; claims lost."""
    floor, ceil = problem.share
    counts = np.bincount(owner, minlength=len(problem.weight))
    first = np.bincount(owner[problem.is_stateful], minlength=len(problem.weight))
    claims = _counting_claims(problem)
    lost = sum(int(owner[item]) not in claimants for item, claimants in claims.items())
    cost = lost
    if problem.racks is not None:
        racks = problem.racks
        cost = racks.move * lost + int(racks.costs.at(racks.costs.row, racks.rack[owner]).sum())
    outside = int((np.maximum(floor - counts, 0) + np.maximum(counts - ceil, 0)).sum())
    pairs = zip(problem.state.item.tolist(), problem.state.owner.tolist(), strict=True)
    state = dict(zip(pairs, problem.state.rank.tolist(), strict=True))
    moved = [item for item in {item for item, _ in state} if int(owner[item]) not in claims.get(item, ())]
    with_state = [item for item in moved if (item, int(owner[item])) in state]
    behind = sum(
        other == item and rank < state[item, int(owner[item])]
        for item in with_state
        for (other, _), rank in state.items()
    )
    return (
        *((lost, outside) if problem.keep_all_claims else (outside, cost)),
        *(_unevenness(number, problem.weight) for number in (first, counts)),
        len(moved) - len(with_state),
        behind,
        lost,
    )


def _best(problem: Problem) -> tuple[Fraction | int, ...]:
    items, owners = len(problem.is_stateful), len(problem.weight)
    everything = itertools.product(range(owners), repeat=items)
    return min(_goals(problem, np.array(owner, dtype=np.int64)) for owner in everything)


def test_of_several_claims_the_newest_count() -> None:
    claims = Pairs.of([1, 0, 1, 1], [2, 1, 1, 0], [5, 0, 7, 7])
    kept = Problem(np.zeros(2, dtype=np.bool_), np.ones(3, dtype=np.int64), claims, Pairs.of([], [])).claims
    assert (kept.item.tolist(), kept.owner.tolist()) == ([0, 1, 1], [1, 0, 1])


@settings(max_examples=examples(80))
@given(problems(several_claims=False))
def test_all_goals_are_reached_where_claims_are_single(problem: Problem) -> None:
    """Shares, claims, both spreads and state equal the best of all allocations."""
    assert _goals(problem, allocate(problem).owner) == _best(problem)


@settings(max_examples=examples(80))
@given(problems(several_claims=True))
def test_all_goals_are_reached_also_where_owners_compete(problem: Problem) -> None:
    """With several claims on an item, all goals equal the best of all allocations too."""
    assert _goals(problem, allocate(problem).owner) == _best(problem)


@st.composite
def pooled_problems(draw: st.DrawFn) -> Problem:
    """Items in pools, in each of which every bearer is an owner."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda sizes: sum(sizes) <= 6))
    bearers = draw(st.integers(1, 3))
    weight = np.array(draw(st.lists(st.integers(1, 4), min_size=bearers, max_size=bearers)), dtype=np.int64)
    items, pools = sum(sizes), len(sizes)
    pool = np.repeat(np.arange(pools), sizes)
    pair = st.tuples(st.integers(0, items - 1), st.integers(0, bearers - 1), st.integers(0, 2))
    claims, state = (draw(st.lists(pair, max_size=2 * items, unique_by=lambda one: one[:2])) for _ in range(2))
    floors, ceils = (np.concatenate(part) for part in zip(*(quotas(weight, size) for size in sizes), strict=True))

    def of_owners(rows: list[tuple[int, int, int]]) -> Pairs:
        return _pairs([(item, int(pool[item]) * bearers + one, rank) for item, one, rank in rows])

    return Problem(
        np.array(draw(st.lists(st.booleans(), min_size=items, max_size=items)), dtype=np.bool_),
        np.tile(weight, pools),
        of_owners(claims),
        of_owners(state),
        share=(floors, ceils),
        item_pool=pool,
        owner_pool=np.repeat(np.arange(pools), bearers),
        bearers=Bearers(
            np.tile(np.arange(bearers), pools),
            weight,
            np.array(draw(st.lists(st.integers(0, 5), min_size=bearers, max_size=bearers)), dtype=np.int64),
            draw(st.integers(1, 3)),
        ),
    )


def _goals_of_pools(problem: Problem, owner: np.ndarray) -> tuple[Fraction | int, ...]:
    """As `_goals`, but the loads of bearers are even after the shares."""
    bearers, (outside, *later) = problem.bearers, _goals(problem, owner)
    assert bearers is not None
    loads = bearers.load + bearers.size * np.bincount(bearers.of[owner], minlength=len(bearers.weight))
    return outside, _unevenness(loads, bearers.weight), *(later[place] for place in (0, 1, 3, 4))


@settings(max_examples=examples(60))
@given(pooled_problems())
def test_all_goals_are_reached_where_owners_of_pools_share_bearers(problem: Problem) -> None:
    """Loads of bearers, claims, stateful items of owners and state equal the best of all allocations within the pools."""
    found = allocate(problem)
    item_pool, owner_pool = problem.item_pool, problem.owner_pool
    bearers = len(owner_pool) // (int(owner_pool.max()) + 1)
    ways = itertools.product(range(bearers), repeat=len(item_pool))
    owners = (item_pool * bearers + np.array(way) for way in ways)

    assert found.exact == frozenset(ItemGoal)
    assert (owner_pool[found.owner] == item_pool).all()
    assert _goals_of_pools(problem, found.owner) == min(_goals_of_pools(problem, owner) for owner in owners)


@settings(max_examples=examples(30))
@given(pooled_problems())
def test_with_too_many_choices_bearers_have_even_loads_and_that_alone_is_said_to_be_exact(problem: Problem) -> None:
    exact = allocate(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actives, "MOST_CHOICES", 0)
        found = allocate(problem)

    assert _goals_of_pools(problem, found.owner)[:2] == _goals_of_pools(problem, exact.owner)[:2]
    assert ItemGoal.COST in found.exact or {ItemGoal.SHARES, ItemGoal.EVEN} == found.exact


@settings(max_examples=examples(80))
@given(problems(several_claims=True))
def test_with_too_many_choices_the_goals_that_are_said_to_be_exact_are(problem: Problem) -> None:
    """Each item looks at one claimant, or one owner of state, at a time; the result says what that gave up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actives, "MOST_CHOICES", 0)
        found = allocate(problem)
    goals, best = _goals(problem, found.owner), _best(problem)
    order = [
        ItemGoal.SHARES,
        ItemGoal.COST,
        ItemGoal.EVEN_STATEFUL,
        ItemGoal.EVEN,
        ItemGoal.STATE,
        ItemGoal.LEAST_BEHIND,
    ]
    if problem.keep_all_claims:
        order[:2] = [ItemGoal.COST, ItemGoal.SHARES]

    for goal, reached, possible in zip(order, goals, best, strict=False):
        if goal not in found.exact:
            break
        assert reached == possible
    assert order[0] in found.exact


def test_with_too_many_choices_each_item_looks_at_one_state_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three items have state on the same three owners, each of which takes one; whether there is a better way is not known."""
    state = _pairs([(item, 3 - behind, behind) for item in range(3) for behind in range(3)])
    problem = Problem(np.ones(4, dtype=np.bool_), np.ones(4, dtype=np.int64), _pairs([]), state)
    monkeypatch.setattr(actives, "MOST_CHOICES", 0)
    found = allocate(problem)

    assert sorted(found.owner[:3].tolist()) == [1, 2, 3]
    assert found.exact == frozenset(ItemGoal) - {ItemGoal.STATE, ItemGoal.LEAST_BEHIND}


def test_with_too_many_claims_what_is_exact_depends_on_the_order_of_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two items is claimed by both owners, and costs nothing on the rack of one of them alone."""
    claims = _pairs([(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)])
    plain = Problem(np.ones(2, dtype=np.bool_), np.ones(2, dtype=np.int64), claims, _pairs([]))
    costs = RowCosts.of_table(np.arange(2), np.array([[0, 1], [1, 0]]))
    dear = attrs.evolve(plain, racks=RackCosts(costs, 10, np.arange(2)))
    assert allocate(dear).owner.tolist() == [0, 1]
    monkeypatch.setattr(actives, "MOST_CHOICES", 0)
    preserved, racks = allocate(attrs.evolve(plain, keep_all_claims=True)), allocate(dear)

    assert allocate(plain).exact == {ItemGoal.SHARES, ItemGoal.COST}
    assert preserved.exact == {ItemGoal.COST}
    # Which claim counts is chosen without a look at racks.
    assert racks.owner.tolist() == [1, 0]
    assert racks.exact == {ItemGoal.SHARES}


@settings(max_examples=examples(40))
@given(problems(several_claims=True), st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(problem: Problem, random: object) -> None:
    """Shuffled claims and state give the same answer."""
    shuffled = []
    for pairs in (problem.claims, problem.state):
        order = list(range(len(pairs.item)))
        random.shuffle(order)  # type: ignore[attr-defined]
        shuffled.append(pairs.where(np.array(order, dtype=np.int64)))
    again = attrs.evolve(problem, claims=shuffled[0], state=shuffled[1])

    assert allocate(problem).owner.tolist() == allocate(again).owner.tolist()


@settings(max_examples=examples(40))
@given(problems(several_claims=True))
def test_asked_again_nothing_changes(problem: Problem) -> None:
    """Owners that claim what they were given keep it, whatever racks cost."""
    owner = allocate(problem).owner
    again = attrs.evolve(problem, claims=Pairs.of(np.arange(len(owner)), owner))

    assert allocate(again).owner.tolist() == owner.tolist()


def test_a_newer_generation_wins_whatever_the_order() -> None:
    """The owner with the newer claim keeps the item, be it listed first or last."""
    for rows in itertools.permutations([(0, 0, 5), (0, 1, 7), (1, 0, 5)]):
        problem = Problem(np.ones(2, dtype=np.bool_), np.ones(2, dtype=np.int64), _pairs(list(rows)), _pairs([]))

        assert allocate(problem).owner.tolist() == [1, 0]


def test_items_without_owner_go_where_their_state_is() -> None:
    """Each item goes to its state; where two want one place, both find one if that is possible."""
    state = _pairs([(0, 2, 0), (1, 1, 0), (2, 0, 5), (2, 1, 1)])
    problem = Problem(np.ones(3, dtype=np.bool_), np.ones(3, dtype=np.int64), _pairs([]), state)

    assert allocate(problem).owner.tolist() == [2, 1, 0]


def test_places_count_who_is_less_behind() -> None:
    """Item 0: 5, 0, 5, 7 behind; item 1: 3."""
    state = Pairs.of([0, 1, 0, 0, 0], [0, 0, 1, 2, 3], [5, 3, 0, 5, 7])

    assert state.behind().tolist() == [1, 0, 0, 1, 3]
    assert Pairs.of([], []).behind().tolist() == []


def test_one_leaves_and_one_joins_a_large_group() -> None:
    """Of 100 000 items on 1 000 owners only those move that must."""
    items, owners = 100_000, 1_000
    none = _pairs([])
    kinds = np.ones(items, dtype=np.bool_)
    start = allocate(Problem(kinds, np.ones(owners, dtype=np.int64), none, none)).owner
    staying = np.flatnonzero(start < owners - 1)
    left = allocate(Problem(kinds, np.ones(owners - 1, dtype=np.int64), Pairs.of(staying, start[staying]), none))
    joined = allocate(Problem(kinds, np.ones(owners + 1, dtype=np.int64), Pairs.of(np.arange(items), start), none))

    assert int((left.owner[staying] != start[staying]).sum()) == 0
    assert int((joined.owner != start).sum()) == items // (owners + 1)
