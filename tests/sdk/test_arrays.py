"""Sets of numbers by sorting: the same answers as numpy's own, whatever the order and however many are equal."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.sdk.arrays import are_in, distinct, numbered, order_by, place_of, rows_of, values_of
from tests.budget import examples

NUMBERS = st.lists(st.integers(-5, 20) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=12)


@given(NUMBERS)
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    given_values = np.array(values, dtype=np.int64)

    assert distinct(given_values).tolist() == np.unique(given_values).tolist()
    assert given_values.tolist() == values


@given(NUMBERS, NUMBERS)
def test_membership_is_that_of_numpy(values: list[int], known: list[int]) -> None:
    columns = np.array(values, dtype=np.int64), np.array(known, dtype=np.int64)

    assert are_in(*columns).tolist() == np.isin(*columns).tolist()


@settings(max_examples=examples(100))
@given(st.data())
def test_rows_are_ordered_as_lexsort_orders_them(data: st.DataObject) -> None:
    """Also where the keys do not fit into one number, and where only one of them does."""
    rows = data.draw(st.sampled_from([0, 1, 7, 600]))
    keys = []
    for _ in range(data.draw(st.integers(1, 4))):
        bits, seed = data.draw(st.integers(0, 62)), data.draw(st.integers(0, 99))
        keys.append(np.random.default_rng(seed).integers(-(2**bits), 2**bits, rows, endpoint=True))

    assert order_by(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    assert numbered(keys[0]).tolist() == np.unique(keys[0], return_inverse=True)[1].reshape(-1).tolist()


@settings(max_examples=examples(80))
@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 12)))
def test_numbers_are_looked_up_in_an_ascending_column(known: list[int], wanted: list[int]) -> None:
    """The first row of each, its value, and -1 or the default where there is none."""
    known.sort()
    column, values = np.array(known, dtype=np.int64), np.arange(len(known)) * 10
    rows = [known.index(one) if one in known else -1 for one in wanted]

    assert rows_of(column, np.array(wanted, dtype=np.int64)).tolist() == rows
    found = values_of(column, values, np.array(wanted, dtype=np.int64), -5)
    assert found.tolist() == [row * 10 if row >= 0 else -5 for row in rows]


@given(NUMBERS, st.integers(-(2**63), 2**63 - 1))
def test_the_place_of_a_number_is_that_of_numpy(known: list[int], wanted: int) -> None:
    column = np.array(sorted(known), dtype=np.int64)

    assert place_of(column, wanted) == np.searchsorted(column, wanted)


def test_a_number_is_looked_up_without_a_copy_of_the_column() -> None:
    """To numpy a number of Python has 64 bits: each lag of a client with 500 000 was a copy of these."""
    column = np.arange(0, 200_000, 2, dtype=np.int32)
    tracemalloc.start()
    try:
        assert [place_of(column, wanted) for wanted in (-1, 0, 7, 199_998, 2**31 - 1)] == [0, 0, 4, 99_999, 100_000]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
