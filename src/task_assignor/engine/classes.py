"""Classes of items: items of one class are alike in all that counts, so a flow sees the class alone."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.items import rank_within
from task_assignor.sdk.arrays import numbered, order_by
from task_assignor.sdk.columns import Int64Array

_LARGEST: Final = 2**62


def labels_of_lists(items: int, item: Int64Array, value: Int64Array) -> Int64Array:
    """(items,) a number per item, equal for items whose lists of values are equal; 0: the list is empty.

    Args:
        items: number of items.
        item: (M,) ascending.
        value: (M,) from 0; an item's values in order.
    """
    label, largest = np.zeros(items, dtype=np.int64), 0
    position = rank_within(item)
    width = int(value.max(initial=0)) + 2
    # One after the other: the first values of all lists, the second ones, and so on. Few lists may be very long.
    for rows in np.split(order_by(position), np.cumsum(np.bincount(position))[:-1]):
        members = item[rows]
        # Above all labels so far, which shorter lists keep.
        label[members] = largest + 1 + numbered(label[members] * width + value[rows] + 1)
        largest = int(label[members].max(initial=0))
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
    def alike(cls, *labels: npt.NDArray[np.integer[Any] | np.bool_]) -> Classes:
        """Items are of one class if all their labels are equal; classes are in the order of the labels, the first counts most."""
        label, size = np.zeros(len(labels[0]), dtype=np.int64), 1
        for other in labels:
            low, high = int(other.min(initial=0)), int(other.max(initial=0))
            if size > _LARGEST // (high - low + 1):
                label, other, low = numbered(label), numbered(other.astype(np.int64)), 0
                size, high = int(label.max()) + 1, int(other.max())
            label = label * (high - low + 1) + (other.astype(np.int64) - low)
            size *= high - low + 1
        of = numbered(label)
        first = np.zeros(int(of.max(initial=-1)) + 1, dtype=np.int64)
        first[of[::-1]] = np.arange(len(of))[::-1]
        return cls(of, np.bincount(of, minlength=len(first)), first)

    def __len__(self) -> int:
        return len(self.size)
