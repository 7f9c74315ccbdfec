"""The one notion of even: the least sum of load² / weight, whatever the weights and however large the bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.even import Steps, even_counts, order_of_prices
from tests.budget import examples

LARGEST = 2**31 - 1


def _unevenness(counts: Iterable[int], weight: list[int]) -> Fraction:
    return sum((Fraction(count * count, one) for count, one in zip(counts, weight, strict=True)), Fraction())


@settings(max_examples=examples(100))
@given(st.data())
def test_no_other_numbers_within_the_bounds_are_more_even(data: st.DataObject) -> None:
    owners = data.draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 4), min_size=owners, max_size=owners)
    weight = [1 + one for one in data.draw(row)]
    if data.draw(st.booleans()):
        weight = [LARGEST - one for one in weight]
    least, room = data.draw(row), data.draw(row)
    ranges = [range(low, low + more + 1) for low, more in zip(least, room, strict=True)]
    total = data.draw(st.integers(sum(least), sum(least) + sum(room)))
    counts = even_counts(np.array(weight), np.array(least), np.array(least) + np.array(room), total)
    found = tuple(counts.tolist())

    assert sum(found) == total
    assert all(count in allowed for count, allowed in zip(found, ranges, strict=True))
    best = min(_unevenness(other, weight) for other in itertools.product(*ranges) if sum(other) == total)
    assert _unevenness(found, weight) == best


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 6, 16, 140, LARGEST)), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(0, 60),
)
def test_the_cheapest_steps_are_taken_however_many_owners_there_are(rows: list[tuple[int, int]], more: int) -> None:
    """One by one each item goes where it costs least: that is right, but slow."""
    weight, least = [weight for weight, _ in rows], [least for _, least in rows]
    counts = list(least)
    for _ in range(more):
        cheapest = min(range(len(rows)), key=lambda owner: Fraction(2 * counts[owner] + 1, weight[owner]))
        counts[cheapest] += 1
    found = even_counts(np.array(weight), np.array(least), np.array(least) + more, sum(least) + more).tolist()
    assert (sum(found), _unevenness(found, weight)) == (sum(counts), _unevenness(tuple(counts), weight))


def test_many_small_owners_get_their_part_beside_a_large_one() -> None:
    weight = np.array([140, *[6] * 10])
    assert even_counts(weight, 0 * weight, 0 * weight + 20, 20).tolist() == [12, *[1] * 8, 0, 0]


@settings(max_examples=examples(80))
@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, LARGEST)), max_size=20))
def test_prices_are_ordered_exactly(rows: list[tuple[int, int]]) -> None:
    """Also those that differ by less than a float can hold."""
    rows += [(LARGEST - 2, LARGEST - 1), (LARGEST - 1, LARGEST), (2, 4), (1, 2)]
    exact = [Fraction(numerator, weight) for numerator, weight in rows]
    places = order_of_prices(*(np.array(column) for column in zip(*rows, strict=True)))

    assert places.tolist() == [sorted(set(exact)).index(one) for one in exact]


def test_a_thousand_different_weights_and_wide_bounds_are_quick() -> None:
    """One owner of weight 1 has a million items already; all others stay next to their share of what is left."""
    owners, items = 1_000, 1_000_000
    weight = np.random.default_rng(1).integers(1, LARGEST, owners)
    weight[0] = 1
    least = np.where(np.arange(owners) == 0, items, 0)
    counts = even_counts(weight, least, least + items, 2 * items)

    assert int(counts.sum()) == 2 * items
    assert int(counts[0]) == items
    share = weight[1:] * (items / weight[1:].sum())
    assert (np.abs(counts[1:] - share) <= 2).all()


def test_more_goes_to_smaller_numbers() -> None:
    one = np.ones(4, dtype=np.int64)

    assert even_counts(one, 0 * one, 9 * one, 6).tolist() == [2, 2, 1, 1]


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5))
def test_steps_cover_the_bounds_and_are_single_around_the_load(rows: list[tuple[int, int, int]]) -> None:
    least, more, at = (np.array(column) for column in zip(*rows, strict=True))
    most = least + more
    load = np.clip(at, least, most)
    steps = Steps.around(load, least, most)

    assert np.bincount(steps.owner, steps.end - steps.start, len(least)).tolist() == more.tolist()
    assert steps.are_exact_at(load)
    far = np.where(load - least > most - load, least, most)
    is_near = (np.abs(far - load) <= 1).all()
    assert steps.are_exact_at(far) or not is_near
