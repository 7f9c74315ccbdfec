"""Copies: complete, apart, as even as they can be, most of them where they were; quick however lopsided the input."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine import copies_flow
from task_assignor.engine.copies import Copies, place_copies
from task_assignor.engine.items import Pairs
from task_assignor.sdk.columns import Int64Array
from tests.budget import examples


def _pairs(rows: list[tuple[int, int, int]]) -> Pairs:
    return Pairs.of(*(np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)))


def _spread(counts: Int64Array, weight: Int64Array) -> Fraction:
    levels = [Fraction(int(count), int(one)) for count, one in zip(counts, weight, strict=True)]
    return max(levels) - min(levels)


def _check(main: Int64Array, needs: Int64Array, copies: Copies, owners: int) -> None:
    assert np.bincount(copies.item, minlength=len(main)).tolist() == np.minimum(needs, owners - 1).tolist()
    assert len(np.unique(copies.item.astype(np.int64) * owners + copies.owner)) == len(copies.item)
    assert not (main[copies.item] == copies.owner).any()


@settings(max_examples=examples(150))
@given(st.data())
def test_no_other_placement_is_more_even_and_with_equal_weights_none_keeps_more(data: st.DataObject) -> None:
    """Compared with all placements of the same number of copies for some of the items."""
    owners = data.draw(st.integers(2, 4))
    items = data.draw(st.integers(1, 5 if owners < 4 else 4))
    equal = data.draw(st.booleans())
    weight = np.array([1 if equal else data.draw(st.integers(1, 3)) for _ in range(owners)], dtype=np.int64)
    main = np.array(data.draw(st.lists(st.integers(0, owners - 1), min_size=items, max_size=items)), dtype=np.int64)
    has_copies = np.array(data.draw(st.lists(st.booleans(), min_size=items, max_size=items)), dtype=np.int64)
    needs = has_copies * data.draw(st.integers(1, owners - 1))
    pair = st.tuples(st.integers(0, items - 1), st.integers(0, owners - 1), st.integers(0, 3))
    claims = data.draw(st.lists(pair, max_size=10, unique_by=lambda one: one[:2]))
    had = {row[:2] for row in claims}
    copies = place_copies(main, needs, weight, _pairs(claims))
    _check(main, needs, copies, owners)

    def score(pairs: list[tuple[int, int]]) -> tuple[Fraction, int]:
        counts = np.bincount(main, minlength=owners) + np.bincount([owner for _, owner in pairs], minlength=owners)
        return _spread(counts, weight), -sum(one in had for one in pairs)

    choices = [
        itertools.combinations([owner for owner in range(owners) if owner != main[item]], int(needs[item]))
        for item in range(items)
    ]
    best = min(
        score([(item, owner) for item, chosen in enumerate(every) for owner in chosen])
        for every in itertools.product(*choices)
    )
    found = score(list(zip(copies.item.tolist(), copies.owner.tolist(), strict=True)))
    assert found[0] == best[0]
    # Of several equally narrow windows (with unequal weights) only one is tried.
    assert found == best or not equal


def _cases(items: int, owners: int) -> dict[str, tuple[Int64Array, Int64Array, Pairs]]:
    random = np.random.default_rng(1)
    ones = np.ones(owners, dtype=np.int64)
    even, none = np.arange(items) % owners, Pairs.of([], [])
    huge = np.where(np.arange(owners) == 0, 2**31 - 1, 1)
    first = random.integers(0, owners, items)
    three = Pairs.of(np.repeat(np.arange(items), 3), ((first[:, None] + np.arange(3)) % owners).reshape(-1))
    return {
        "even": (even, ones, none),
        "in blocks": (np.arange(items) * owners // items, ones, none),
        "half on one": (np.where(np.arange(items) % 2, 0, even), ones, none),
        "random weights": (even, random.integers(1, 50, owners), none),
        "one huge weight": (even, huge, none),
        "three claims": (even, ones, three),
        "all claims on one": (even, ones, Pairs.of(np.arange(items), np.ones(items))),
    }


@pytest.mark.parametrize("name", _cases(10, 5))
@pytest.mark.parametrize("owners", [5, 1_000])
def test_a_hundred_thousand_items_need_no_search_one_by_one(name: str, owners: int) -> None:
    """With three copies each. What conflicts at first is resolved class by class, or many at a time."""
    items = 100_000
    main, weight, claims = _cases(items, owners)[name]
    needs = np.full(items, 3)

    _check(main, needs, place_copies(main, needs, weight, claims), owners)


def test_copies_everywhere_need_no_search() -> None:
    """As many copies as other owners: there is one placement."""
    items, owners = 100_000, 5
    main, needs = np.arange(items) % owners, np.full(items, owners - 1)

    _check(main, needs, place_copies(main, needs, np.ones(owners, dtype=np.int64), Pairs.of([], [])), owners)


@settings(max_examples=examples(100))
@given(st.integers(2, 7), st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_dealing_and_swapping_is_complete_too(owners: int, items: int, copies: int, seed: int) -> None:
    """What is used for many items and owners places all copies, apart, on any input."""
    random = np.random.default_rng(seed)
    main, needs = random.integers(0, owners, items), np.full(items, min(copies, owners - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies_flow, "MOST_CELLS", -1)
        placed = place_copies(main, needs, random.integers(1, 4, owners), Pairs.of([], []))

    _check(main, needs, placed, owners)


def test_the_copies_of_one_owners_items_are_spread_over_the_others() -> None:
    """If a client dies, its tasks are taken over by all others, neighbours by different ones."""
    items, owners = 60, 4
    main = np.arange(items) * owners // items
    copies = place_copies(main, np.ones(items, dtype=np.int64), np.ones(owners, dtype=np.int64), Pairs.of([], []))

    for owner in range(owners):
        theirs = copies.owner[main[copies.item] == owner].tolist()
        assert sorted(np.unique(theirs, return_counts=True)[1].tolist()) == [5, 5, 5]
        assert all(one != other for one, other in itertools.pairwise(theirs))
