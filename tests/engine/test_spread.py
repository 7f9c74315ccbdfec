"""Even numbers within bounds: the smallest spread there is, whatever the weights and however large the bounds."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.spread import even_counts
from tests.budget import examples


def _spread(counts: tuple[int, ...], weight: list[int]) -> Fraction:
    levels = [Fraction(count, one) for count, one in zip(counts, weight, strict=True)]
    return max(levels) - min(levels)


@settings(max_examples=examples(300))
@given(st.data())
def test_no_other_numbers_within_the_bounds_are_more_even(data: st.DataObject) -> None:
    owners = data.draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 4), min_size=owners, max_size=owners)
    weight = [1 + one for one in data.draw(row)]
    least, room = data.draw(row), data.draw(row)
    ranges = [range(low, low + more + 1) for low, more in zip(least, room, strict=True)]
    total = data.draw(st.integers(sum(least), sum(least) + sum(room)))
    counts = even_counts(np.array(weight), np.array(least), np.array(least) + np.array(room), total)
    found = tuple(counts.tolist())

    assert sum(found) == total
    assert all(count in allowed for count, allowed in zip(found, ranges, strict=True))
    best = min(_spread(other, weight) for other in itertools.product(*ranges) if sum(other) == total)
    assert _spread(found, weight) == best


def test_a_thousand_different_weights_and_wide_bounds_need_little_memory() -> None:
    """One owner of weight 1 has a million items already: the levels between the bounds are far too many to list."""
    owners, items = 1_000, 1_000_000
    weight = np.random.default_rng(1).integers(1, 2**31, owners)
    weight[0] = 1
    least = np.where(np.arange(owners) == 0, items, 0)
    counts = even_counts(weight, least, least + items, 2 * items)

    assert int(counts.sum()) == 2 * items
    assert int(counts[0]) == items
    # All others stay next to their share of what is left.
    share = weight[1:] * (items / weight[1:].sum())
    assert (np.abs(counts[1:] - share) <= 2).all()
