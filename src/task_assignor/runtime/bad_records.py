"""What becomes of a record that cannot be processed, or comes too late: the settings, and the rows that are kept aside."""

from __future__ import annotations

import json
import math
from typing import Any, Final, Literal

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.runtime.topic_spec import check_name
from task_assignor.sdk.text import shown

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
the topic, at its offset."""


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
    if value not in ("stop", "skip") and not isinstance(value, DeadLetters):
        raise TopologyException(
            f"{where}: {name} ({shown(value)}) must be 'stop', 'skip' or DeadLetters(name of an output)."
        )


def as_json(record: dict[str, Any]) -> str:
    """A row as JSON; what JSON does not know as its text."""
    return json.dumps(_known(record), default=str, ensure_ascii=False)


def _known(value: object) -> object:
    # What `json` would write of these is no JSON.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _known(found) for name, found in value.items()}
    return [_known(found) for found in value] if isinstance(value, (list, tuple)) else value
