"""What becomes of a record that cannot be processed, or comes too late: the settings, and the rows that are kept aside."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import retyped
from task_assignor.runtime.arrow.frames import to_records
from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.runtime.topics.spec import check_name
from task_assignor.sdk import TaskId
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted

_log = logger_of(__name__)
_EVERY_S: Final = 60.0
_LONGEST: Final = 400_000
"""A row of dead letters may be a record of Kafka, which takes 1 MB if nothing else is said, and JSON makes texts longer."""
_LONGEST_ERROR: Final = 20_000
DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("error", pa.string()),
        ("record", pa.string()),
    ]
)
"""Columns of a dead-letter output; `reason` is "bad" or "late", `record` the row as JSON, for people: the exact one is in
the topic, at its offset. See `letters_of`."""


@attrs.frozen
class DeadLetters:
    """Records that are left out go to an output, each with topic, partition, offset and error (KIP-1034).

    Args:
        output: name of the output. It is added to the sub-topology; several settings may name the same one.

    Raises:
        TopologyException: the name is not allowed.
    """

    output: str

    def __attrs_post_init__(self) -> None:
        try:
            check_name("output", self.output)
        except TopicException as error:
            raise TopologyException(str(error)) from None


LeftOut = Literal["stop", "skip"] | DeadLetters
"""What becomes of a record that is left out: the run stops with an error that names it; it is counted; it is kept aside."""


def check_left_out(where: str, name: str, value: object) -> None:
    """Raise TopologyException if it is no setting for records that are left out."""
    if not isinstance(value, DeadLetters):
        check_choice(
            f"{where}: {name}", value, ("stop", "skip"), TopologyException, or_else="DeadLetters(name of an output)"
        )


@attrs.define
class _Untold:
    """What the log has not said yet of one kind of records.

    Args:
        told_s: when something was said last, in seconds of the monotonic clock.
        number: so many have been left out since.
        first: which was the first of them, and why.
    """

    told_s: float
    number: int = 0
    first: str = ""


class LeftOutLog:
    """What the log says of records that a task leaves out: of each kind the first at once, then one line a minute at the most.

    Args:
        task: the task.
    """

    def __init__(self, task: TaskId) -> None:
        self._task = task
        self._untold: dict[str, _Untold] = {}

    def note(self, kind: str, number: int, first: str) -> None:
        """Records are left out.

        Args:
            kind: what they are, for one ("late record").
            number: how many.
            first: which is the first of them, and why.
        """
        known = self._untold.get(kind)
        if known is None:
            self._untold[kind] = _Untold(time.monotonic())
            _log.warning("Task %s leaves %s out, the first of which is %s.", self._task, counted(number, kind), first)
            return
        known.first = known.first or first
        known.number += number
        self.tell()

    def tell(self, *, is_over: bool = False) -> None:
        """Say what has not been said for a minute, or, at the end, at all. Tries that did not count are in the numbers, too."""
        now = time.monotonic()
        for kind, known in self._untold.items():
            if known.number and (is_over or now - known.told_s >= _EVERY_S):
                _log.warning(
                    "Task %s has left %s out in the last %.0f s, the first of which was %s.",
                    self._task,
                    counted(known.number, f"more {kind}"),
                    max(now - known.told_s, 1),
                    known.first,
                )
                self._untold[kind] = _Untold(now)


def letters_of(
    topic: str,
    partition: int,
    offsets: Sequence[int],
    reason: str,
    errors: Sequence[str],
    records: Sequence[str | None],
) -> pa.Table:
    """Rows of a dead-letter output.

    Args:
        topic: where the records come from.
        partition: its partition.
        offsets: (N,) their offsets.
        reason: "bad" or "late".
        errors: (N,) why they are left out.
        records: (N,) they as JSON. Of one of more than 400 000 bytes there is the beginning: as `begins`, with `bytes`, how many it has.
    """
    count = len(offsets)
    told = [error if len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]}..." for error in errors]
    columns = [[topic] * count, [partition] * count, offsets, [reason] * count, told, [*map(_shortened, records)]]
    return pa.table(columns, schema=DEAD_LETTER_SCHEMA)


def _shortened(record: str | None) -> str | None:
    # Most are shorter, whatever they are in UTF-8.
    if record is None or len(record) <= _LONGEST // 4 or len(whole := record.encode()) <= _LONGEST:
        return record
    begins = whole[: _LONGEST // 4].decode(errors="ignore")
    return json.dumps({"begins": begins, "bytes": len(whole)}, ensure_ascii=False)


def as_json(rows: pa.Table) -> list[str]:
    """Rows as JSON; what JSON does not know as its text. In a column with a time that Python does not know times are numbers."""
    return [json.dumps(_known(record), default=str, ensure_ascii=False) for record in _records(rows)]


def _records(rows: pa.Table) -> list[dict[str, Any]]:
    try:
        return to_records(rows)
    except ValueError:
        for place, name in enumerate(rows.schema.names):
            column = rows.column(place)
            try:
                to_records(rows.select([place]))
            except ValueError:
                rows = rows.set_column(place, name, column.cast(retyped(column.type, _number)))
        return to_records(rows)


def _number(kind: pa.DataType) -> pa.DataType:
    return {32: pa.int32(), 64: pa.int64()}.get(kind.bit_width, kind) if pa.types.is_temporal(kind) else kind


def _known(value: object) -> object:
    # What `json` would write of these is no JSON.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _known(found) for name, found in value.items()}
    return [_known(found) for found in value] if isinstance(value, (list, tuple)) else value
