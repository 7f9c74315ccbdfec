"""Records of which no row can be made: they are told from the others, and written as a text that has all that they had."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from task_assignor.kafka.topics.headers import headers_of
from task_assignor.kafka.topics.serdes import SerializationException


def rows_of_readable(
    records: Sequence[Any], rows_of: Callable[[Sequence[Any]], pa.Table]
) -> tuple[pa.Table, dict[int, str]]:
    """The rows of the records that can be read.

    Args:
        records: the records.
        rows_of: one row for each of some; raises `SerializationException` if one cannot be read, whose `index` says which.

    Returns:
        The rows, and place -> why there is none, for each of the others, ascending.

    Raises:
        SerializationException: no row can be made, and it is not said of which record.
    """
    try:
        # As it is nearly always.
        return rows_of(records), {}
    except SerializationException as error:
        known = {_checked(error, len(records)): str(error)}
    tables, failed = [rows_of([])], dict[int, str]()
    start, size = 0, max(len(records) // 2, 1)
    # Up to one that is known, if there is none before it; how much is read in vain depends on how far they are apart.
    while start < len(records):
        if start in known:
            failed[start] = known.pop(start)
            start += 1
            continue
        size = min(size, len(records) - start, *(place - start for place in known))
        try:
            tables.append(rows_of(records[start : start + size]))
        except SerializationException as error:
            place = _checked(error, size)
            known[start + place] = str(error)
            size = max(size // 2, 1)
        else:
            start += size
            size *= 2
    return pa.concat_tables(tables).combine_chunks(), failed


def _checked(error: SerializationException, count: int) -> int:
    if not 0 <= error.index < count:
        raise error
    return error.index


def text_of_record(record: Any) -> str:
    """A record as JSON: `key`, `value`, `timestamp` (ms) and, if there are any, `headers`.

    Bytes are a text if they are UTF-8; else the member is `key_base64` or `value_base64`. Who reads it has every byte again, but for
    headers with a name that is no UTF-8: `headers` then is a text that says so.
    """
    _, time = record.timestamp()
    found: dict[str, Any] = {
        **_member("key", record.key()),
        **_member("value", record.value()),
        "timestamp": None if time < 0 else time,
    }
    try:
        headers = headers_of(record)
    except SerializationException as error:
        found["headers"] = str(error)
    else:
        if headers:
            found["headers"] = [{"name": name, **_member("value", value)} for name, value in headers]
    return json.dumps(found, ensure_ascii=False)


def _member(name: str, given: bytes | str | None) -> dict[str, str | None]:
    if given is None or isinstance(given, str):
        return {name: given}
    try:
        return {name: given.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(given).decode()}
