"""Classes of items: items are of one class if all their labels are equal, however far apart labels are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.classes import Classes, labels_of_lists
from tests.budget import examples

NUMBERS = st.sampled_from([-(2**61), -1, 0, 1, 2, 2**31, 2**40, 2**61])


@settings(max_examples=examples(80))
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_items_with_equal_labels_are_one_class_in_the_order_of_the_labels(rows: list[tuple[int, ...]]) -> None:
    classes = Classes.alike(*np.array(rows, dtype=np.int64).T)

    known = sorted(set(rows))
    assert classes.of.tolist() == [known.index(row) for row in rows]
    assert classes.size.tolist() == [rows.count(row) for row in known]
    assert classes.first.tolist() == [rows.index(row) for row in known]


@settings(max_examples=examples(80))
@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=10))
def test_lists_have_one_label_if_they_are_equal(lists: list[list[int]]) -> None:
    item = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    value = np.array([number for one in lists for number in one], dtype=np.int64)

    labels = labels_of_lists(len(lists), item, value).tolist()

    for label, one in zip(labels, lists, strict=True):
        assert [other == label for other in labels] == [other == one for other in lists]
        assert (label == 0) == (not one)
