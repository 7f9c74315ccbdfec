"""Read-only numpy arrays: how columns are made, checked, grouped and pickled. What is in them is said in `columns.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, UnionType
from typing import Any, Final, TypeVar, cast

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.checks import string_pairs, strings
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.text import shown

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]
Number = TypeVar("Number", bound=np.generic)
INT64_BITS: Final = 63
"""Bits of a number of 64 bits that are not its sign."""
_FEW: Final = 500
"""With fewer rows the simplest sort takes the least time."""


def read_only(values: npt.ArrayLike, dtype: npt.DTypeLike) -> Any:
    """`values` as a contiguous array of `dtype` that cannot be written; copied only if somebody could still write it.

    Raises:
        StateException: values would not survive the conversion (floats, numbers out of range), or are not a list.
    """
    try:
        array = given = np.asarray(values)
    except ValueError as error:
        raise StateException("A column must be a list of values, but holds lists.") from error
    target = np.dtype(dtype)
    if array.ndim != 1:
        raise StateException(f"A column must be a list of values, but has the shape {array.shape}.")
    if not array.size:
        array = array.astype(target)
    if array.dtype != target:
        # numpy takes booleans for numbers; where somebody gives a mask for numbers, that is nothing that was meant.
        if target.kind == "i" and array.dtype.kind not in "iu":
            raise StateException(f"A column of kind {target} cannot be made from values of kind {array.dtype}.")
        if not np.can_cast(array.dtype, target, "safe"):
            if target.kind == "b":
                raise StateException(f"A column of booleans cannot be made from values of kind {array.dtype}.")
            info = np.iinfo(target)
            if int(array.min()) < info.min or int(array.max()) > info.max:
                raise StateException(
                    f"A column of kind {target} cannot hold numbers from {array.min()} to {array.max()}."
                )
        array = array.astype(target)
    # Of a list numpy makes an array; what else there is, such as a pandas Series, may give its own.
    is_theirs = array is given and not isinstance(values, list | tuple)
    if _others_may_write(array) or (array.flags.writeable and is_theirs):
        array = array.copy()
    array.flags.writeable = False
    return np.ascontiguousarray(array) if not array.flags.c_contiguous else array


def _others_may_write(array: npt.NDArray[Any]) -> bool:
    """Whether the memory belongs to somebody who can write it: a view can be read-only though its base is not."""
    # The stubs say that a base is an array; it may also be anything else that lends its memory.
    base: Any = array.base
    while base is not None:
        if not isinstance(base, np.ndarray):
            return bool(array.flags.writeable)
        if base.flags.writeable:
            return True
        base = base.base
    return False


def int64_column(values: npt.ArrayLike) -> Int64Array:
    """A read-only column of 64-bit integers."""
    return cast(Int64Array, read_only(values, np.int64))


def int32_column(values: npt.ArrayLike) -> Int32Array:
    """A read-only column of 32-bit integers."""
    return cast(Int32Array, read_only(values, np.int32))


def int8_column(values: npt.ArrayLike) -> Int8Array:
    """A read-only column of 8-bit integers."""
    return cast(Int8Array, read_only(values, np.int8))


def bool_column(values: npt.ArrayLike) -> BoolArray:
    """A read-only column of booleans."""
    return cast(BoolArray, read_only(values, np.bool_))


def as_tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    """`values` as a tuple; one text would be its letters.

    Raises:
        StateException: not a list.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise StateException(f"A column must be a list of values, but is {shown(values)}.")
    return tuple(values)


def as_frozensets(values: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    """Sets that do not change with those that were given."""
    return tuple(strings("names in a column of sets", names) for names in as_tuple(values))


def as_tags(values: Iterable[Mapping[str, str]]) -> tuple[Mapping[str, str], ...]:
    """Mappings that cannot be written, and do not change with those that were given."""
    return tuple(MappingProxyType(string_pairs("client_tags", tags)) for tags in as_tuple(values))


def columns_reduce(self: Any) -> tuple[Any, ...]:
    """For the `__reduce__` of columns: they are built anew from their arguments.

    Neither views of dicts nor the flag that makes an array read-only survive pickling by themselves.
    """
    arguments = {field.name: getattr(self, field.name) for field in attrs.fields(type(self)) if field.init}
    if "client_tags" in arguments:
        arguments["client_tags"] = tuple(map(dict, arguments["client_tags"]))
    return _built, (type(self), arguments)


def _built(columns: Callable[..., object], arguments: Mapping[str, object]) -> object:
    return columns(**arguments)


def offsets_of(sorted_keys: npt.NDArray[Any], count: int) -> Int64Array:
    """CSR offsets, shape (count + 1,): rows of key k are `offsets[k]:offsets[k + 1]`; keys must be sorted."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(sorted_keys, minlength=count), out=offsets[1:])
    offsets.flags.writeable = False
    return offsets


def check_length(columns: object, name: str, expected: int) -> None:
    """Raise `StateException` unless the column has that many rows."""
    actual = len(getattr(columns, name))
    if actual != expected:
        raise StateException(
            f"The column {name} of {type(columns).__name__} must have {expected} rows, but has {actual}."
        )


def check_range(name: str, column: npt.NDArray[Any], low: int, high: int) -> None:
    """Raise `StateException` unless all numbers are from `low` to `high - 1`."""
    if column.size and (int(column.min()) < low or int(column.max()) >= high):
        wrong = int(column.min()) if int(column.min()) < low else int(column.max())
        raise StateException(f"The column {name} must hold numbers from {low} to {high - 1}, but holds {wrong}.")


def check_kind(columns: object, name: str, kind: type | UnionType) -> None:
    """Raise `StateException` unless all values of the column are of that kind."""
    for value in getattr(columns, name):
        if not isinstance(value, kind):
            raise StateException(f"The column {name} of {type(columns).__name__} must not hold {shown(value)}.")


def check_names(columns: object, name: str) -> None:
    """Raise `StateException` unless the column holds strings that are distinct and not empty."""
    names = getattr(columns, name)
    if not all(isinstance(one, str) and one for one in names) or len(set(names)) < len(names):
        raise StateException(
            f"The {name} of {type(columns).__name__} must be distinct strings that are not empty, but are {shown(names)}."
        )


def check_increasing(name: str, keys: Int64Array) -> None:
    """Raise `StateException` unless every key is greater than the one before."""
    if len(keys) > 1 and (np.diff(keys) <= 0).any():
        raise StateException(f"The rows of {name} must be distinct and sorted.")


def check_named_rows(name: str, rows: Sequence[tuple[int, int, Any]], count: int) -> None:
    """Raise `StateException` unless rows (number, role, id) are distinct and sorted, with numbers below `count`."""
    keys = [(number, role, one.sort_key) for number, role, one in rows]
    if any(not (0 <= number < count and role in (0, 1)) for number, role, _ in keys):
        raise StateException(f"The rows of {name} must hold numbers from 0 to {count - 1}, and roles.")
    if any(not first < second for first, second in itertools.pairwise(keys)):
        raise StateException(f"The rows of {name} must be distinct and sorted.")


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """(M,) the distinct values, ascending.

    By sorting: the hash table of `np.unique` takes many times longer for millions, and its first call 10 ms.
    """
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def order_by(*keys: npt.NDArray[np.integer[Any] | np.bool_]) -> Int64Array:
    """(N,) the rows in ascending order of the keys, of which the first counts most; equal rows as they come.

    Keys and row numbers are packed into one number, as far as they fit: to sort plain numbers takes a tenth of the time of
    `np.lexsort` (whose last key counts most).
    """
    rows = len(keys[0])
    if rows < _FEW:
        return np.lexsort(keys[::-1])
    room = INT64_BITS - (rows - 1).bit_length()
    order: Int64Array | None = None
    left = list(keys)
    while left:
        packed, used = np.zeros(rows, dtype=np.int64), 0
        while left:
            low, high = int(left[-1].min()), int(left[-1].max())
            bits = (high - low).bit_length()
            if used + bits > room:
                break
            packed |= (left.pop().astype(np.int64) - low) << used
            used += bits
        if not used and left:
            # A key of its own that is too wide to be packed with a row number.
            key = left.pop()
            order = np.argsort(key, kind="stable") if order is None else order[np.argsort(key[order], kind="stable")]
        elif used:
            # In place: of arrays this large each new one costs about as much as what is done with it.
            row = packed if order is None else packed[order]
            row <<= INT64_BITS - room
            row |= np.arange(rows)
            row.sort()
            row &= (1 << (INT64_BITS - room)) - 1
            order = row if order is None else order[row]
    return np.arange(rows) if order is None else order


def place_of(known: npt.NDArray[np.integer], wanted: int) -> int:
    """The first row of an ascending column that holds the number or a greater one; its kind must be able to hold it.

    A number of Python is one of 64 bits for numpy, which would copy all of a column of another kind for each search.
    """
    return int(known.searchsorted(known.dtype.type(wanted)))


def rows_of(known: npt.NDArray[np.integer], wanted: npt.NDArray[np.integer]) -> Int64Array:
    """(M,) the row of each wanted number in an ascending column, the first if there are several; -1: it is not there."""
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    if len(known) == len(wanted) and (known == wanted).all() and (known[1:] > known[:-1]).all():
        return np.arange(len(known))
    if len(wanted) > 1 and not (wanted[1:] >= wanted[:-1]).all():
        most = int(known[-1])
        if int(known[0]) >= 0 and most <= 4 * len(wanted):
            table = np.full(most + 2, -1, dtype=np.int64)
            table[known[::-1]] = np.arange(len(known))[::-1]
            found: Int64Array = table[np.clip(wanted, -1, most + 1)]
            return found
        # Neighbours are searched next to each other: in a random order it takes ten times as long.
        order = order_by(wanted)
        rows = np.empty(len(wanted), dtype=np.int64)
        rows[order] = rows_of(known, wanted[order])
        return rows
    rows = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[rows] == wanted, rows, -1)


def values_of(
    known: npt.NDArray[np.integer], values: Int64Array, wanted: npt.NDArray[np.integer], default: Int64Array | int
) -> Int64Array:
    """(M,) the value of each wanted number, of those that an ascending column knows; of others the default."""
    rows = rows_of(known, wanted)
    found = values[rows] if len(values) else np.zeros_like(rows)
    return np.where(rows >= 0, found, default)


def are_in(values: npt.NDArray[np.integer[Any]], known: npt.NDArray[np.integer[Any]]) -> BoolArray:
    """(N,) which of the values are among the known ones. By binary search, for the same reason, in place of `np.isin`."""
    found: BoolArray = rows_of(np.sort(known), values) >= 0
    return found


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
    order = order_by(keys)
    ordered = keys[order]
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
    return places


def distinct_and_numbers(keys: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(M,) the distinct keys, ascending; (N,) the place of each key among them. As `np.unique`, in less time."""
    number = numbered(keys)
    known = np.empty(int(number.max(initial=-1)) + 1, dtype=np.int64)
    known[number] = keys
    return known, number


def csr_rows(offsets: Int64Array, keys: Sequence[int] | npt.NDArray[Any]) -> Int64Array:
    """Row numbers of the given keys, key by key, of a table grouped by `offsets`."""
    chosen = np.asarray(keys, dtype=np.int64)
    counts = offsets[chosen + 1] - offsets[chosen]
    ends = np.cumsum(counts)
    rows: Int64Array = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
        offsets[chosen] - (ends - counts), counts
    )
    return rows


def csr_pairs(offsets: Int64Array, keys: npt.NDArray[np.integer]) -> tuple[Int64Array, Int64Array]:
    """(position in `keys`, row number) of all rows of the given keys, key by key, of a table grouped by `offsets`."""
    return np.repeat(np.arange(len(keys)), np.diff(offsets)[keys]), csr_rows(offsets, keys)
