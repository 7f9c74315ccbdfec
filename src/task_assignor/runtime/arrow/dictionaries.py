"""Dictionaries of Arrow, which it can neither merge nor write in all cases, and types with others in the place of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def retyped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with others in its place and in that of the lists, maps and structs in it.

    Args:
        kind: the type.
        change: type -> that which takes its place; of a list, map or struct with what is in it changed.
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = kind.value_field.with_type(retyped(kind.value_type, change))
        return change(pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item))
    if pa.types.is_fixed_size_list(kind):
        return change(pa.list_(kind.value_field.with_type(retyped(kind.value_type, change)), kind.list_size))
    if pa.types.is_map(kind):
        key, item = (field.with_type(retyped(field.type, change)) for field in (kind.key_field, kind.item_field))
        return change(pa.map_(key, item, kind.keys_sorted))
    if pa.types.is_struct(kind):
        return change(pa.struct([field.with_type(retyped(field.type, change)) for field in kind]))
    return change(kind)


def decoded(column: pa.ChunkedArray | pa.Array, at_once: int = 1 << 30) -> pa.ChunkedArray:
    """The values of a dictionary, of whatever type: Arrow's own cast knows no structs and lists.

    Args:
        column: the dictionary.
        at_once: texts of so many bytes are one chunk at most: Arrow takes no more than 2 GiB, and some versions of it give wrong ones.
    """
    pieces = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        step = max(at_once // _longest_text(chunk.dictionary), 1)
        starts = range(0, max(len(chunk), 1), step)
        pieces += [chunk.dictionary.take(chunk.indices.slice(start, step)) for start in starts]
    return pa.chunked_array(pieces, column.type.value_type)


def _longest_text(values: pa.Array) -> int:
    """Bytes of the longest of the values, at least 1; of what is no text 1."""
    is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    return (pc.max(pc.binary_length(values)).as_py() or 1) if is_text else 1


def encoded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as a dictionary, which Arrow itself makes of texts only."""
    chunks = [chunk.dictionary_encode() for chunk in column.chunks]
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(chunk.indices.cast(kind.index_type), chunk.dictionary, ordered=kind.ordered)
            for chunk in chunks
        ],
        kind,
    )


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values as a column, as `pyarrow.array` makes it; but that knows no dictionaries of times, say, and makes such with places
    beyond their values where they are in structs that are null, of which polars panics.
    """  # noqa: D205
    if "dictionary<" not in str(kind):
        return pa.array(values, kind)
    found = pa.array(values, retyped(kind, value_type_of))
    if pa.types.is_dictionary(kind):
        return encoded(pa.chunked_array([found]), kind).chunk(0)
    try:
        return found.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(values, kind)


def reencoded(table: pa.Table) -> pa.Table:
    """The same rows with dictionaries of which Arrow can make one: it does not where null is among the values, or where these are
    structs or lists, and makes other numbers of half floats.
    """  # noqa: D205
    for place, kind in enumerate(table.schema.types):
        if "dictionary<" not in str(kind):
            continue
        column = table.column(place)
        if not pa.types.is_dictionary(kind):
            if any(map(_has_null_among_values, column.chunks)):
                with suppress(pa.ArrowException):
                    column = column.cast(retyped(kind, value_type_of)).cast(kind)
                    table = table.set_column(place, table.schema.field(place), column)
        elif pa.types.is_null(kind.value_type):
            table = table.set_column(place, table.schema.field(place), pa.nulls(len(column), kind))
        elif pa.types.is_nested(kind.value_type):
            table = table.set_column(place, table.schema.field(place), _with_one_dictionary(column))
        elif kind.value_type == pa.float16() or any(chunk.dictionary.null_count for chunk in column.chunks):
            with suppress(pa.ArrowNotImplementedError):
                values = column.cast(kind.value_type).combine_chunks()
                whole = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
                table = table.set_column(place, table.schema.field(place), encoded(whole, kind))
    return table


def _has_null_among_values(array: pa.Array) -> bool:
    """Whether a dictionary in it has."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return bool(array.dictionary.null_count)
    if pa.types.is_struct(kind):
        return any(_has_null_among_values(array.field(place)) for place in range(kind.num_fields))
    return hasattr(array, "values") and _has_null_among_values(array.values)


def value_type_of(kind: pa.DataType) -> pa.DataType:
    """The type of a dictionary's values; any other type is as it was."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _with_one_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same values in one chunk, with those of the dictionaries that are there; Arrow cannot tell which of them are equal."""
    kind, chunks = column.type, column.chunks
    if not chunks:
        return column
    starts = np.cumsum([0, *(len(chunk.dictionary) for chunk in chunks)])
    # Those that are used, or files that are merged would have more and more that are not.
    places = pa.concat_arrays(
        [pc.add(chunk.indices.cast(pa.int64()), int(starts[number])) for number, chunk in enumerate(chunks)]
    ).dictionary_encode()
    values = pa.concat_arrays([chunk.dictionary for chunk in chunks]).take(places.dictionary)
    index = places.indices.cast(kind.index_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(index, values, ordered=kind.ordered)], kind)


def in_one_piece(table: pa.Table) -> pa.Table:
    """The same rows with one chunk for each column, as far as Arrow's types allow."""
    return combined(reencoded(table))


def combined(table: pa.Table) -> pa.Table:
    """The same rows with one chunk for each column where Arrow has room for that: of texts it makes several then, in lists and structs none."""
    try:
        return table.combine_chunks()
    except pa.ArrowInvalid:
        columns = [pa.chunked_array(_fewer(column.chunks), column.type) for column in table.columns]
        return pa.table(columns, schema=table.schema)


def _fewer(chunks: Sequence[pa.Array]) -> Iterator[pa.Array]:
    """The same values in as few arrays as halves of halves allow."""
    try:
        if chunks:
            yield pa.concat_arrays(chunks)
    except pa.ArrowInvalid:
        if len(chunks) == 1:
            raise
        for half in (chunks[: len(chunks) // 2], chunks[len(chunks) // 2 :]):
            yield from _fewer(half)


def not_in_arrow(schema: pa.Schema) -> str | None:
    """The first column that Arrow writes into its files, but does not read again (dictionaries of dictionaries, or of types of their
    own); None: it reads all of them.
    """  # noqa: D205
    for field in schema:
        kind = pa.schema([pa.field(field.name, field.type)])
        try:
            is_read = "dictionary<" not in str(field.type) or pa.ipc.read_schema(kind.serialize()) == kind
        except pa.ArrowException:
            is_read = False
        if not is_read:
            return f"{field.name!r} of type {field.type}"
    return None
