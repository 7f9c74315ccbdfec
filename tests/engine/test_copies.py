"""Copies: complete, apart, even, tag values different, cheap, most where they were; quick however lopsided the input."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.copies import at_once as copy_at_once
from task_assignor.engine.copies import cells as copy_cells
from task_assignor.engine.copies import placement as copies
from task_assignor.engine.copies.flow import MOST_PAIRS, Prices
from task_assignor.engine.copies.goals import CopiedItems, CopyGoal, CopyProblem, Room
from task_assignor.engine.copies.placement import Copies, place_copies
from task_assignor.engine.items import Pairs
from task_assignor.engine.places import cells_first
from task_assignor.engine.places.cells_first import MOST_ENTRIES
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.columns import Int64Array
from tests.budget import examples
from tests.engine.copies_cases import NOTHING, Shape, again, best, check, problems, total


def ask(
    main: Int64Array, number: int, weight: Int64Array, claims: Pairs = NOTHING, tags: Int64Array | None = None
) -> CopyProblem:
    """A question about so many copies of every item."""
    room = Room.even(main, np.full(len(main), number), weight)
    none = np.zeros((len(weight), 0), dtype=np.int64)
    return CopyProblem(main_owner=main, room=room, claims=claims, tags=none if tags is None else tags)


def answer(
    problem: CopyProblem, by_cells: bool = False, entries: int = MOST_ENTRIES, most: int = -1, at_once: int = -1
) -> Copies:
    """The checked answer.

    Args:
        problem: the question.
        by_cells: by the path for large sizes.
        entries: there, most pairs of row and zone in one flow.
        most: there, most pairs of class and owner in one flow.
        at_once: there, most pairs of class and cell in one flow for all.
    """
    with pytest.MonkeyPatch.context() as patch:
        if by_cells:
            patch.setattr(copies, "MOST_PAIRS", most)
            patch.setattr(copy_at_once, "MOST_PAIRS", at_once)
            patch.setattr(cells_first, "MOST_ENTRIES", entries)
        found = place_copies(problem)
    check(problem, found)
    return found


@settings(max_examples=examples(100))
@given(problems(Shape()))
def test_no_other_placement_is_better_by_any_goal_before(problem: CopyProblem) -> None:
    """Compared with all placements within the bounds, goal after goal; exact means exact."""
    found = answer(problem)

    reached, possible = total(problem, found), best(problem) if len(CopiedItems(problem)) else None
    assert possible is None or possible <= reached
    if found.exact == frozenset(CopyGoal):
        assert possible is None or reached == possible
        assert found.bound == reached.cost


@settings(max_examples=examples(60))
@given(problems(Shape(keys=1, copies=3)))
def test_with_one_tag_key_all_goals_are_reached_exactly(problem: CopyProblem) -> None:
    found = answer(problem)

    assert found.exact == frozenset(CopyGoal)


@settings(max_examples=examples(90))
@given(
    problems(Shape(items=12, owners=7, keys=3, copies=3)),
    st.booleans(),
    st.sampled_from([-1, 20, 40, 60]),
    st.sampled_from([-1, MOST_PAIRS]),
)
def test_a_second_call_changes_nothing(problem: CopyProblem, by_cells: bool, most: int, at_once: int) -> None:
    found = answer(problem, by_cells, most=most, at_once=at_once)
    second = answer(again(problem, found), by_cells, most=most, at_once=at_once)

    assert (second.item.tolist(), second.owner.tolist()) == (found.item.tolist(), found.owner.tolist())


def test_racks_are_looked_at_as_a_second_call_would_even_if_the_first_look_finds_nothing() -> None:
    """Where no copy was before the flow finds nothing cheaper that can be dealt out; from where the copies are now it does."""
    table = np.array([[2, 0], [1, 0], [1, 2]])
    prices = Prices(RowCosts.of_table(np.array([2, 0]), table), np.array([0, 1, 1, 1, 0]), 2, 2, (2, 2))
    problem = attrs.evolve(ask(np.array([4, 1]), 2, np.array([2, 1, 2, 2, 2])), prices=prices)
    found = answer(problem, by_cells=True)

    assert answer(again(problem, found), by_cells=True).owner.tolist() == found.owner.tolist()


@settings(max_examples=examples(90))
@given(
    problems(Shape(items=12, owners=7, keys=3, copies=3)),
    st.sampled_from([-1, 20, 40, 60]),
    st.sampled_from([-1, MOST_PAIRS]),
)
def test_the_path_for_large_sizes_is_never_better_and_its_bound_never_lies(
    problem: CopyProblem, most: int, at_once: int
) -> None:
    exact, found = answer(problem), answer(problem, by_cells=True, most=most, at_once=at_once)

    if exact.exact == frozenset(CopyGoal):
        assert total(problem, exact) <= total(problem, found)
        if {CopyGoal.LOADS, CopyGoal.TAGS, CopyGoal.COST} <= found.exact:
            assert total(problem, exact)[:2] == total(problem, found)[:2]
    if found.bound is not None:
        assert found.bound <= exact.cost or not problem.tags.shape[1]
        assert found.bound <= found.cost


@settings(max_examples=examples(60))
@given(problems(Shape(items=12, owners=7, keys=2, copies=3)), st.integers(0, 6))
def test_zones_without_a_flow_have_a_bound_that_never_lies(problem: CopyProblem, entries: int) -> None:
    """With more different costs than one flow should have."""
    exact, found = answer(problem), answer(problem, by_cells=True, entries=entries)

    if exact.exact == frozenset(CopyGoal):
        assert total(problem, exact) <= total(problem, found)
    if found.bound is not None:
        assert found.bound <= exact.cost or not problem.tags.shape[1]
        assert found.bound <= found.cost
    assert (CopyGoal.COST in found.exact) == (found.bound == found.cost)


def priced(items: int, weight: Int64Array, racks: int, number: int, random: np.random.Generator) -> CopyProblem:
    """Owners in racks by turns; every item has replicas in three racks, where its copies cost nothing but a move."""
    table = np.ones((items, racks), dtype=np.int64)
    np.put_along_axis(table, np.argsort(random.random((items, racks)), axis=1)[:, :3], 0, axis=1)
    owners = len(weight)
    main = random.permutation(np.arange(items) % owners)
    zone = np.arange(owners) % racks
    return attrs.evolve(
        ask(main, number, weight),
        prices=Prices(RowCosts.of_table(np.arange(items), table), zone, 10, 1, (10, 1)),
    )


def test_items_that_all_cost_something_else_are_as_cheap_as_they_can_be() -> None:
    """2800 items, each with partitions on racks of its own, in 30 racks of one owner each: none where the main one is."""
    items, racks, random = 2_800, 30, np.random.default_rng(1)
    table = random.permuted(np.tile(np.repeat([1, 2, 3], [3, 9, 18]), (items, 1)), axis=1)
    prices = Prices(RowCosts.of_table(np.arange(items), table), np.arange(racks), 10, 1, (10, 1))
    main = np.arange(items) % racks
    problem = attrs.evolve(ask(main, 1, np.ones(racks, dtype=np.int64)), prices=prices)
    found = answer(problem, by_cells=True)

    assert CopyGoal.COST in found.exact
    assert found.bound == found.cost


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("at_once", [-1, MOST_PAIRS])
@pytest.mark.parametrize(
    ("owners", "racks", "number"),
    [
        (12, 12, 3),
        pytest.param(40, 20, 3, marks=pytest.mark.thorough),
        pytest.param(40, 8, 5, marks=pytest.mark.thorough),
        pytest.param(24, 6, 4, marks=pytest.mark.thorough),
    ],
)
def test_copies_in_racks_of_few_owners_know_of_each_other(
    owners: int, racks: int, number: int, at_once: int, is_uneven: bool
) -> None:
    """By zones alone all copies of an item go where there is room for one, so none could go anywhere."""
    random = np.random.default_rng(1)
    weight = random.integers(1, 9, owners) if is_uneven else np.ones(owners, dtype=np.int64)
    problem = priced(2_000, weight, racks, number, random)
    exact, found = answer(problem), answer(problem, by_cells=True, at_once=at_once)

    assert exact.exact == frozenset(CopyGoal)
    if at_once < 0:
        assert found.cost <= 1.25 * exact.cost
    else:
        assert CopyGoal.COST in found.exact
        assert found.cost == exact.cost == found.bound


def test_what_flows_over_owners_found_counts_if_others_would_be_too_large() -> None:
    """With three tag keys that must not lose values; what cells of equal tags leave open costs nine times as much."""
    items, owners, number, random = 1_000, 20, 3, np.random.default_rng(1)
    main = np.arange(items) % owners
    held = Pairs.of(np.repeat(np.arange(items), number), ((main[:, None] + 1 + np.arange(number)) % owners).reshape(-1))
    counts = np.bincount(held.owner)
    table = 1 - (np.argsort(random.random((10, 5)), axis=1) < 3).astype(np.int64)
    problem = CopyProblem(
        main_owner=main,
        room=Room(np.full(items, number), counts, counts),
        claims=held,
        tags=random.integers(0, [3, 4, 10], (owners, 3)),
        keeps_tags=True,
        prices=Prices(RowCosts.of_table(random.integers(0, 10, items), table), np.arange(owners) % 5, 10, 1, (10, 1)),
    )
    found = answer(problem, by_cells=True, most=10_000)

    assert found.bound is not None
    assert found.cost <= 1.4 * found.bound


def test_the_path_for_large_sizes_is_nearly_as_good() -> None:
    """Items in ten zones with two copies: nearly all of the values, and of what stays, that the exact flow reaches."""
    rng, items, owners = np.random.default_rng(1), 3_000, 60
    main = rng.integers(0, owners, items)
    tags = np.stack([np.arange(owners) % 3, np.arange(owners) // 10], axis=1)
    held = np.stack([(main + 1 + rng.integers(0, 20, items)) % owners, (main + 30) % owners], axis=1)
    problem = ask(
        main, 2, np.ones(owners, dtype=np.int64), Pairs.of(np.repeat(np.arange(items), 2), held.reshape(-1)), tags
    )
    exact, found = total(problem, answer(problem)), total(problem, answer(problem, by_cells=True))

    values = items * 2 * 3
    assert found.missing - exact.missing <= 0.01 * values
    assert found.away <= 1.25 * exact.away


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=examples(24))
def test_of_very_many_claims_as_many_are_kept_as_can_be(seed: int, states: int) -> None:
    """Each item takes its best, then they make room for each other: as many as one flow over single owners keeps."""
    draws = np.random.default_rng(seed)
    items, owners = int(draws.integers(1, 60)), int(draws.integers(2, 12))
    claims = np.unique(draws.integers(0, [items, owners], (states * items, 2)), axis=0)
    main, wanted = np.full(items, -1), np.ones(items, dtype=np.int64)
    problem = CopyProblem(
        main_owner=main,
        room=Room.even(main, wanted, np.ones(owners, dtype=np.int64)),
        claims=Pairs.of(claims[:, 0], claims[:, 1], draws.integers(0, 3, len(claims))),
        tags=np.zeros((owners, 0), dtype=np.int64),
    )
    kept = copy_cells._kept(CopiedItems(problem))

    assert kept.sum() == problem.room.needs.sum() - total(problem, answer(problem)).away


def test_of_several_claims_on_a_copy_the_cheap_one_is_kept() -> None:
    """Two owners had copies of items; the second one's rack has a replica, though it is further behind."""
    main, one = np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64)
    problem = CopyProblem(
        main_owner=main,
        room=Room(one, np.zeros(3, dtype=np.int64), np.full(3, 4)),
        claims=Pairs.of([0, 0, 1, 1, 2, 2, 3, 3], [1, 2] * 4, [0, 1] * 4),
        tags=np.zeros((3, 0), dtype=np.int64),
        prices=Prices(RowCosts.of_table(main, np.array([[1, 0]])), np.array([0, 0, 1]), 10, 1, (10, 1)),
    )

    assert copy_cells._kept(CopiedItems(problem)).tolist() == [False, True] * 4


def _cases(items: int, owners: int) -> dict[str, tuple[Int64Array, Int64Array, Pairs]]:
    random = np.random.default_rng(1)
    ones = np.ones(owners, dtype=np.int64)
    even = np.arange(items) % owners
    huge = np.where(np.arange(owners) == 0, 2**31 - 1, 1)
    first = random.integers(0, owners, items)
    three = Pairs.of(np.repeat(np.arange(items), 3), ((first[:, None] + np.arange(3)) % owners).reshape(-1))
    return {
        "even": (even, ones, NOTHING),
        "in blocks": (np.arange(items) * owners // items, ones, NOTHING),
        "half on one": (np.where(np.arange(items) % 2, 0, even), ones, NOTHING),
        "random weights": (even, random.integers(1, 50, owners), NOTHING),
        "one huge weight": (even, huge, NOTHING),
        "three claims": (even, ones, three),
        "all claims on one": (even, ones, Pairs.of(np.arange(items), np.ones(items))),
    }


@pytest.mark.parametrize("name", _cases(10, 5))
@pytest.mark.parametrize("owners", [5, 1_000])
def test_a_hundred_thousand_items_need_no_search_one_by_one(name: str, owners: int) -> None:
    """With three copies each. What meets at first is dealt out class by class, or many at a time."""
    main, weight, claims = _cases(100_000, owners)[name]

    answer(ask(main, 3, weight, claims))


def test_copies_everywhere_need_no_search() -> None:
    """As many copies as other owners: there is one placement."""
    items, owners = 100_000, 5

    answer(ask(np.arange(items) % owners, owners - 1, np.ones(owners, dtype=np.int64)))


@settings(max_examples=examples(40))
@given(st.integers(2, 7), st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_dealing_out_is_complete_too(owners: int, items: int, number: int, seed: int) -> None:
    """What is used for many items and owners places all copies, apart, on any input."""
    random = np.random.default_rng(seed)

    answer(ask(random.integers(0, owners, items), number, random.integers(1, 4, owners)), by_cells=True)


def test_the_copies_of_one_owners_items_are_spread_over_the_others() -> None:
    """If a client dies, its tasks are taken over by all others, neighbours by different ones."""
    items, owners = 60, 4
    main = np.arange(items) * owners // items
    found = answer(ask(main, 1, np.ones(owners, dtype=np.int64)))

    for owner in range(owners):
        theirs = found.owner[main[found.item] == owner].tolist()
        assert sorted(np.unique(theirs, return_counts=True)[1].tolist()) == [5, 5, 5]
        assert all(one != other for one, other in itertools.pairwise(theirs))


def test_copies_stay_where_they_were() -> None:
    """Placing copies again from an even placement changes nothing."""
    main, weight = np.arange(1_000) % 10, np.ones(10, dtype=np.int64)
    first = answer(ask(main, 2, weight))
    second = answer(ask(main, 2, weight, Pairs.of(first.item, first.owner)))

    assert (second.item.tolist(), second.owner.tolist()) == (first.item.tolist(), first.owner.tolist())
    assert np.ptp(np.bincount(first.owner)) == 0


@pytest.mark.parametrize("owners", [2, 3, 7])
def test_few_owners_are_even_and_quick(owners: int) -> None:
    """With few owners nearly every copy that is dealt out without care would land on its main owner."""
    main = np.arange(50_000) % owners
    found = answer(ask(main, 1, np.ones(owners, dtype=np.int64)))

    assert np.ptp(np.bincount(np.append(main, found.owner), minlength=owners)) <= 1


def test_of_copies_that_must_leave_an_owner_those_least_behind_stay() -> None:
    """Owner 1 had all, and may keep 4 of 12 copies, of items that are alike: those with the smallest ranks."""
    main, rank = np.zeros(12, dtype=np.int64), np.array([7, 3, 9, 1, 8, 2, 6, 5, 4, 10, 11, 12])
    claims = Pairs.of(np.arange(12), np.ones(12), rank)
    found = answer(ask(main, 1, np.array([3, 1, 1, 1]), claims))

    assert found.item[found.owner == 1].tolist() == np.sort(np.argsort(rank)[:4]).tolist()


def test_zones_count_before_staying_and_of_copies_that_may_stay_those_that_were_there_do() -> None:
    """Zones a, a, b, b; owner 1 may keep one of its copies of the items of owner 2, and takes one that is new."""
    main, tags = np.array([0, 0, 2, 2]), np.array([[0], [0], [1], [1]])
    claims = Pairs.of([0, 1, 2, 3], [1, 2, 3, 1])

    assert answer(ask(main, 1, np.ones(4, dtype=np.int64), claims, tags)).owner.tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize("number", [1, 2])
def test_a_hundred_thousand_items_in_three_zones_are_spread_quickly(number: int) -> None:
    """Every item has all the zones that it can have."""
    items, owners = 100_000, 300
    main, tags = np.arange(items) % owners, (np.arange(owners) % 3)[:, None]
    found = answer(ask(main, number, np.ones(owners, dtype=np.int64), tags=tags))

    zones = np.zeros((items, 3), dtype=np.bool_)
    zones[np.arange(items), main % 3] = True
    zones[found.item, found.owner % 3] = True
    assert zones.sum(axis=1).tolist() == [1 + number] * items


def test_a_tag_that_every_owner_has_to_itself_does_not_keep_zones_from_counting() -> None:
    """400 hosts, but for one that has none, in two zones: too many kinds of owners, so zones alone decide."""
    owners, items = 1_000, 4_000
    hosts = np.arange(owners) - 1
    main, tags = np.arange(items) % owners, np.stack([hosts, np.arange(owners) % 2], axis=1)
    found = answer(ask(main, 1, np.ones(owners, dtype=np.int64), tags=tags))

    assert (main[found.item] % 2 != found.owner % 2).all()


@pytest.mark.parametrize(("items", "is_exact"), [(2, True), (3, False)])
def test_placed_by_cells_tags_are_exact_where_none_is_missing(
    monkeypatch: pytest.MonkeyPatch, items: int, is_exact: bool
) -> None:
    """Two of three owners have one tag value, so of three items one is with both of them."""
    owner, wanted = np.arange(items), np.ones(items, dtype=np.int64)
    room, tags = Room.even(owner, wanted, np.ones(3, dtype=np.int64)), np.array([[0], [0], [1]])
    problem = CopyProblem(main_owner=owner, room=room, claims=Pairs.of([], []), tags=tags)
    monkeypatch.setattr(copies, "MOST_PAIRS", 0)

    assert (CopyGoal.TAGS in place_copies(problem).exact) == is_exact


def test_where_copies_cannot_be_dealt_out_a_flow_places_them_whatever_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, two = np.arange(3), np.full(3, 2, dtype=np.int64)
    room = Room.even(owner, two, np.ones(3, dtype=np.int64))
    problem = CopyProblem(main_owner=owner, room=room, claims=Pairs.of([], []), tags=np.zeros((3, 0), dtype=np.int64))
    monkeypatch.setattr(copies, "MOST_PAIRS", 0)
    monkeypatch.setattr(copies, "place_by_cells", lambda _items, _at_once: None)
    found = place_copies(problem)

    assert found.owner.tolist() == [1, 2, 0, 2, 0, 1]
    assert found.exact == frozenset(CopyGoal)
