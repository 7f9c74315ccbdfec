"""Spreading copies over tag values: counts stay within bounds, nothing meets, and no other placement is more diverse."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.copies import Copies, place_copies
from task_assignor.engine.items import Pairs
from task_assignor.engine.tag_spread import spread_by_tags
from tests.budget import examples

Placement = list[tuple[int, int]]


def _diversity(values: np.ndarray, main: np.ndarray, pairs: Placement) -> int:
    """Different (key, value) pairs of the holders of each item, added up."""
    holders: dict[int, list[int]] = {item: [int(owner)] for item, owner in enumerate(main) if owner >= 0}
    for item, owner in pairs:
        holders.setdefault(item, []).append(owner)
    return sum(
        len({(key, value) for owner in owners for key, value in enumerate(values[owner].tolist()) if value >= 0})
        for owners in holders.values()
    )


@st.composite
def placements(draw: st.DrawFn, most_copies: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tag values, main owners, and copies that are apart."""
    owners, keys = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    items = draw(st.integers(1, 5 if owners < 4 else 4))
    rows = st.lists(st.integers(-1, 2), min_size=keys, max_size=keys)
    values = np.array(draw(st.lists(rows, min_size=owners, max_size=owners)), dtype=np.int64)
    main = np.array(draw(st.lists(st.integers(0, owners - 1), min_size=items, max_size=items)), dtype=np.int64)
    pairs = []
    for item in range(items):
        others = [owner for owner in range(owners) if owner != main[item]]
        pairs += [(item, owner) for owner in draw(st.permutations(others))[: draw(st.integers(0, most_copies))]]
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return values, main, table[:, 0], table[:, 1]


def _check(main: np.ndarray, before: Placement, after: Placement) -> None:
    assert Counter(owner for _, owner in before) == Counter(owner for _, owner in after)
    assert Counter(item for item, _ in before) == Counter(item for item, _ in after)
    assert len(set(after)) == len(after)
    assert all(main[item] != owner for item, owner in after)
    assert after == sorted(after)


def _copies(owners: int, item: np.ndarray, owner: np.ndarray, slack: tuple[int, int] = (0, 0)) -> Copies:
    """The copies, sorted; each owner may have so many fewer or more."""
    order = np.lexsort((owner, item))
    count = np.bincount(owner, minlength=owners)
    return Copies(
        item[order].astype(np.int32),
        owner[order].astype(np.int32),
        np.zeros(0, dtype=np.int64),
        np.maximum(count - slack[0], 0),
        count + slack[1],
    )


def _run(values: np.ndarray, main: np.ndarray, copies: Copies, claims: Pairs | None = None) -> Placement:
    found = spread_by_tags(values, main, copies, Pairs.of([], []) if claims is None else claims)
    return list(zip(*(part.tolist() for part in found), strict=True))


@settings(max_examples=examples(200))
@given(placements(most_copies=1))
def test_with_one_copy_no_placement_with_these_counts_is_more_diverse(
    case: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    values, main, item, owner = case
    before = list(zip(item.tolist(), owner.tolist(), strict=True))
    after = _run(values, main, _copies(len(values), item, owner))

    _check(main, before, after)
    best = max(
        _diversity(values, main, list(zip(item.tolist(), chosen, strict=True)))
        for chosen in set(itertools.permutations(owner.tolist()))
        if all(main[one] != other for one, other in zip(item.tolist(), chosen, strict=True))
    )
    assert _diversity(values, main, after) == best


@settings(max_examples=examples(200))
@given(placements(most_copies=3))
def test_diversity_never_falls_and_a_second_call_changes_nothing(
    case: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    values, main, item, owner = case
    before = list(zip(item.tolist(), owner.tolist(), strict=True))
    after = _run(values, main, _copies(len(values), item, owner))

    _check(main, before, after)
    assert _diversity(values, main, after) >= _diversity(values, main, before)
    again = np.array(after, dtype=np.int64).reshape(-1, 2).T
    assert _run(values, main, _copies(len(values), *again)) == after


@settings(max_examples=examples(200))
@given(placements(most_copies=3), st.tuples(st.integers(0, 1), st.integers(0, 1)))
def test_numbers_of_copies_change_within_bounds_if_that_helps(
    case: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], slack: tuple[int, int]
) -> None:
    """With one copy each: as diverse as brute force, but where a kind's copies do not fit its owners (seldom)."""
    values, main, item, owner = case
    copies = _copies(len(values), item, owner, slack)
    before = list(zip(item.tolist(), owner.tolist(), strict=True))
    after = _run(values, main, copies)
    count = np.bincount([one for _, one in after], minlength=len(values))

    assert Counter(one for one, _ in before) == Counter(one for one, _ in after)
    assert len(set(after)) == len(after)
    assert all(main[one] != other for one, other in after)
    assert (copies.low <= count).all()
    assert (count <= copies.high).all()
    assert _diversity(values, main, after) >= _diversity(
        values, main, _run(values, main, _copies(len(values), item, owner))
    )
    again = np.array(after, dtype=np.int64).reshape(-1, 2).T.astype(np.int32)
    second = Copies(again[0], again[1], copies.short, copies.low, copies.high)
    assert _run(values, main, second) == after


def test_within_bounds_no_placement_of_one_copy_each_is_more_diverse() -> None:
    """600 random cases, of which one misses: its copies for a kind cannot be dealt out to the owners."""
    rng, missed = np.random.default_rng(1), 0
    for _ in range(600):
        owners, items = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        values = rng.integers(-1, 3, (owners, int(rng.integers(1, 3))))
        main = rng.integers(0, owners, items)
        owner = (main + rng.integers(1, owners, items)) % owners
        copies = _copies(owners, np.arange(items), owner, (1, 1))
        found = _diversity(values, main, _run(values, main, copies))
        options = (
            chosen
            for chosen in itertools.product(range(owners), repeat=items)
            if (np.array(chosen) != main).all()
            and (copies.low <= np.bincount(chosen, minlength=owners)).all()
            and (np.bincount(chosen, minlength=owners) <= copies.high).all()
        )
        missed += found < max(_diversity(values, main, list(enumerate(chosen))) for chosen in options)

    assert missed <= 1


def test_copies_that_need_not_move_stay() -> None:
    """Zones a, a, b, b: only the copies in the zone of their item move, and of equal ones those that are new."""
    values = np.array([[0], [0], [1], [1]])
    main = np.array([0, 0, 2, 2])
    item, owner = np.array([0, 1, 2, 3]), np.array([1, 2, 3, 1])

    assert _run(values, main, _copies(4, item, owner), Pairs.of([0], [1])) == [(0, 3), (1, 2), (2, 1), (3, 1)]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_hundred_thousand_items_in_three_zones_are_spread_quickly(copies: int) -> None:
    """After an even placement that knows no zones, every item has all the zones that it can have."""
    items, owners = 100_000, 300
    main, values = np.arange(items) % owners, (np.arange(owners) % 3)[:, None]
    placed = place_copies(main, np.full(items, copies), np.ones(owners, dtype=np.int64), Pairs.of([], []))
    item, owner = spread_by_tags(values, main, placed, Pairs.of([], []))

    zones = np.zeros((items, 3), dtype=np.bool_)
    zones[np.arange(items), main % 3] = True
    zones[item, owner % 3] = True
    assert zones.sum(axis=1).tolist() == [1 + copies] * items
    assert np.ptp(np.bincount(owner, minlength=owners) + np.bincount(main, minlength=owners)) <= 1
    assert not (main[item] == owner).any()


def test_a_tag_that_nearly_every_owner_has_to_itself_does_not_keep_zones_from_counting() -> None:
    """400 hosts in two zones: too many kinds for one flow, so zones alone decide."""
    owners, items = 400, 4_000
    main, values = np.arange(items) % owners, np.stack([np.arange(owners), np.arange(owners) % 2], axis=1)
    placed = place_copies(main, np.full(items, 1), np.ones(owners, dtype=np.int64), Pairs.of([], []))
    item, owner = spread_by_tags(values, main, placed, Pairs.of([], []))

    assert (main[item] % 2 != owner % 2).all()
    assert np.ptp(np.bincount(owner, minlength=owners) + np.bincount(main, minlength=owners)) <= 1


def test_without_different_tags_nothing_is_done() -> None:
    for values in (np.zeros((2, 0), dtype=np.int64), np.array([[0], [0]]), np.array([[-1], [-1]])):
        assert _run(values, np.array([0]), _copies(2, np.array([0]), np.array([1]))) == [(0, 1)]
