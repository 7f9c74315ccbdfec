"""Whether two states say the same, however their dictionaries of names are numbered. Nothing is compared for order here."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs
import numpy as np

from task_assignor.sdk.arrays import Int32Array
from task_assignor.sdk.columns import ClientColumns, StateColumns, TaskColumns

# A column of numbers into a dictionary, and where its dictionary is.
_CODED = {
    TaskColumns: {
        "topology": "topology_names",
        "store_set": "store_sets",
        "partition_topic": "topics",
        "partition_rack_set": "rack_sets",
    },
    ClientColumns: {"rack": "racks"},
}


def same_states(first: StateColumns, second: StateColumns) -> bool:
    """Whether the columns hold the same tasks, clients, previous tasks and lags."""
    return first is second or all(
        _same_tables(getattr(first, name), getattr(second, name)) for name in ("tasks", "clients", "previous", "lags")
    )


def _same_tables(first: attrs.AttrsInstance, second: attrs.AttrsInstance) -> bool:
    coded = _CODED.get(type(first), {})
    for field in attrs.fields(type(first)):
        if not field.init or field.name in coded.values():
            continue
        one, two = getattr(first, field.name), getattr(second, field.name)
        if field.name in coded:
            dictionaries = (getattr(table, coded[field.name]) for table in (first, second))
            if not _same_coded(one, two, *dictionaries):
                return False
        elif not (np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two):
            return False
    return True


def _same_coded(first: Int32Array, second: Int32Array, names: Sequence[Hashable], others: Sequence[Hashable]) -> bool:
    if len(first) != len(second):
        return False
    numbers: dict[Hashable, int] = {}
    # The last entry is what -1, nothing, becomes.
    one, two = (
        np.array([*(numbers.setdefault(name, len(numbers)) for name in listed), -1]) for listed in (names, others)
    )
    return bool((one[first] == two[second]).all())
