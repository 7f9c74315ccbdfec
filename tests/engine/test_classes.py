"""Classes of items: items are of one class if all their labels are equal, however far apart labels are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine import classes as module
from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.items import rank_within
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


class Positions(np.ndarray[Any, np.dtype[np.int64]]):
    """Positions in lists that count how many of them are looked at."""

    looked_at = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **arguments: Any) -> Any:
        Positions.looked_at += self.size
        return getattr(ufunc, method)(*(np.asarray(each) for each in inputs), **arguments)


def test_one_long_list_among_many_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a task of which every client has state: all others are not looked at for each of its values."""
    item = np.concatenate([np.zeros(500, dtype=np.int64), np.arange(1000)])
    monkeypatch.setattr(module, "rank_within", lambda keys: rank_within(keys).view(Positions))

    labels = labels_of_lists(1000, item, np.append(np.arange(500), item[500:]))

    assert len(np.unique(labels)) == 1000
    assert Positions.looked_at < 20 * len(item)
