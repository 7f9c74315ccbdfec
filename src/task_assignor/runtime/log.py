"""What tasks read, wherever it is kept: rows in partitions, numbered by offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from task_assignor.runtime.topics import TopicSpec


class Log(Protocol):
    """Rows in partitions, with offsets without gaps. It may grow; nothing in it changes.

    `Topic` is one, kept in a storage. Methods may be called from any thread.
    """

    @property
    def spec(self) -> TopicSpec:
        """Its name, partitions, schema, key and timestamp column."""

    @property
    def topic_id(self) -> str:
        """Its identity, a UUID: a log that was written anew under its name has another one."""

    def refresh(self) -> None:
        """Look whether it has grown.

        Raises:
            TopicException: it is gone, cannot be read, or was written anew.
        """

    def start_offsets(self) -> Sequence[int]:
        """The first offset of every partition that can be read."""

    def end_offsets(self) -> Sequence[int]:
        """The offset after the last row of every partition, as of the last `refresh`.

        Raises:
            CorruptLogException: what is there cannot be what was written.
        """

    def read(self, partition: int, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows `start` (inclusive) to `end` (exclusive) of a partition.

        Args:
            partition: number of the partition.
            start: first offset.
            end: offset after the last.
            columns: which columns; None: all.

        Raises:
            CorruptLogException: they are not there, or are not what was written.
        """
