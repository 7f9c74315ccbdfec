"""Sets of numbers by sorting: the same answers as numpy's own, whatever the order and however many are equal."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk.arrays import are_in, distinct

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
