"""Headers of records as a column, as Spark has them: in their order, with all that have the same name. Nothing connects here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.kafka.topics.serdes import SerializationException
from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.topics.spec import TopicSpec

Headers = list[tuple[str, bytes | None]]
"""Those of a record: names and values."""


@attrs.frozen
class HeadedTopicSpec(TopicSpec):
    """What a topic is like with headers as a column: of a row of a table that has nothing else its key is gone.

    Args:
        headers: the column.
    """

    headers: str = attrs.field(kw_only=True)

    @property
    def beside_values(self) -> tuple[str, ...]:
        """The timestamp and the headers."""
        return (*super().beside_values, self.headers)


def check_headers(topic: str, name: str, kind: pa.DataType, *, is_written: bool = False) -> None:
    """See to it that a column can be the headers of records.

    Args:
        topic: what it belongs to, for messages.
        name: the column.
        kind: its type.
        is_written: it is of rows that are written; without declared columns their types may be null where nothing says more.

    Raises:
        TopicException: it cannot.
    """
    if not _is_headers(kind, is_written):
        raise TopicException(
            f"The headers column {name!r} of {topic} has type {kind}; it must be list<struct<key: string, value: binary>>, "
            "pa.list_(pa.struct({'key': pa.string(), 'value': pa.binary()})): values are bytes, and may be null."
        )


def _is_headers(kind: pa.DataType, is_written: bool) -> bool:
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return is_written and bool(types.is_null(kind))
    each = kind.value_type
    if not types.is_struct(each):
        return is_written and bool(types.is_null(each))
    if sorted(field.name for field in each) != ["key", "value"]:
        return False
    key, value = each.field("key").type, each.field("value").type
    is_bytes = types.is_binary(value) or types.is_large_binary(value) or (is_written and types.is_null(value))
    can_be_null = is_written or each.field("value").nullable
    return bool((types.is_string(key) or types.is_large_string(key)) and is_bytes and can_be_null)


def headers_of(record: Any) -> Headers:
    """The headers of a record of confluent-kafka; none: an empty list.

    Raises:
        SerializationException: a name is no UTF-8.
    """
    try:
        found = record.headers()
    except (UnicodeDecodeError, SystemError) as error:
        # So it is told within another `try`; and asked again it would give what is no object of Python.
        found = f"the name of one of its headers is no UTF-8 ({error.__cause__ or error})"
        record.set_headers(found)
    if isinstance(found, str):
        raise SerializationException(found)
    return found or []


def read_headers(records: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The headers of each record; null: it has none.

    Raises:
        SerializationException: those of one cannot be read, and `index` says of which.
    """
    every = Headers()
    ends = [0]
    for index, record in enumerate(records):
        try:
            every += headers_of(record)
        except SerializationException as error:
            raise SerializationException(str(error), index) from None
        ends.append(len(every))
    parts = {"key": [name for name, _ in every], "value": [value for _, value in every]}
    fields = list(kind.value_type)
    items = pa.StructArray.from_arrays([pa.array(parts[field.name], field.type) for field in fields], fields=fields)
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(ends, items, type=kind, mask=pa.array(np.diff(ends) == 0))


def headers_of_rows(topic: str, name: str, column: pa.ChunkedArray) -> list[Headers | None]:
    """The headers of each row's record; none where the row has null, or an empty list.

    Raises:
        TopicException: one has no name.
    """
    if pa.types.is_null(column.type):
        return [None] * len(column)
    # Lists and dictionaries of each row take three times as long.
    every = pc.list_flatten(column)
    if not len(every):
        return [None] * len(column)
    keys = every if every.null_count else pc.struct_field(every, "key")
    if keys.null_count:
        raise TopicException(
            f"A row for the output {topic!r} has a header without a key in {name!r}; only its value may be null."
        )
    pairs = zip(keys.to_pylist(), pc.struct_field(every, "value").to_pylist(), strict=True)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    return [list(itertools.islice(pairs, count)) or None for count in counts]
