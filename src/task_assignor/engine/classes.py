"""Classes of items: items of one class are alike in all that counts, so a flow sees the class alone."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.sdk.columns import Int64Array


def numbered(keys: Int64Array) -> Int64Array:
    """(N,) the place of each key, from 0, among the distinct ones."""
    if not len(keys):
        return np.zeros(0, dtype=np.int64)
    most = int(keys.max())
    if int(keys.min()) >= 0 and most <= 4 * len(keys) + 1_000:
        is_there = np.zeros(most + 1, dtype=np.bool_)
        is_there[keys] = True
        places: Int64Array = (np.cumsum(is_there) - 1)[keys]
        return places
    return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)


def labels_of_lists(items: int, item: Int64Array, value: Int64Array) -> Int64Array:
    """(items,) a number per item, equal for items whose lists of values are equal; 0: the list is empty.

    Args:
        items: number of items.
        item: (M,) ascending.
        value: (M,) from 0; an item's values in order.
    """
    label = np.zeros(items, dtype=np.int64)
    position = np.arange(len(item)) - np.searchsorted(item, item)
    width = int(value.max(initial=0)) + 2
    for place in range(int(position.max(initial=-1)) + 1):
        rows = position == place
        members = item[rows]
        # Above all labels so far, which shorter lists keep.
        label[members] = int(label.max()) + 1 + numbered(label[members] * width + value[rows] + 1)
    return label


@attrs.frozen(eq=False)
class Classes:
    """Items in classes.

    Args:
        of: (N,) class of each item.
        size: (K,) number of items of each class.
        first: (K,) one item of each class, the first.
    """

    of: Int64Array
    size: Int64Array
    first: Int64Array

    @classmethod
    def alike(cls, *labels: Int64Array) -> Classes:
        """Items are of one class if all their labels, from 0, are equal."""
        label = labels[0]
        for other in labels[1:]:
            label = numbered(label * (int(other.max(initial=0)) + 1) + other)
        of = numbered(label)
        first = np.zeros(int(of.max(initial=-1)) + 1, dtype=np.int64)
        first[of[::-1]] = np.arange(len(of))[::-1]
        return cls(of, np.bincount(of, minlength=len(first)), first)

    def __len__(self) -> int:
        return len(self.size)
