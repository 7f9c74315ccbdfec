"""Where a run begins to read a source, and where it goes on if rows have gone: Kafka's `auto.offset.reset` (KIP-1106)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs

from task_assignor.runtime.errors import RowsGoneException
from task_assignor.runtime.tasks.log import Source, refresh_all
from task_assignor.runtime.topics.fetched import Fetched
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk.config_keys import by_duration_ms
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted

_log = logger_of(__name__)


def first_offsets(source: Source, reset: str | None, now_ms: int) -> Sequence[int]:
    """Where an application begins to read a source that has been refreshed, by its partitions.

    Args:
        source: the source.
        reset: `auto.offset.reset`; None: earliest.
        now_ms: the time, ms since 1970.

    Raises:
        TopicException: by a duration, and its rows have no times.
    """
    if reset == "latest":
        return source.end_offsets()
    before_ms = by_duration_ms(reset or "")
    return source.start_offsets() if before_ms is None else source.offsets_for_time(now_ms - before_ms)


@attrs.frozen
class ResetSource:
    """A source of which rows may have been deleted before they were read: it goes on with the first that is there, and says so.

    A `Source` like the one that it is made of.

    Args:
        given: that.
    """

    given: Source

    @property
    def spec(self) -> TopicSpec:
        """What the topic is like."""
        return self.given.spec

    @property
    def topic_id(self) -> str:
        """Its identity."""
        return self.given.topic_id

    def refresh(self) -> None:
        """Look whether it has grown."""
        self.given.refresh()

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Self]) -> None:
        """`refresh` of several."""
        refresh_all(log.given for log in logs)

    def start_offsets(self) -> Sequence[int]:
        """The first offset of every partition that can be read."""
        return self.given.start_offsets()

    def end_offsets(self) -> Sequence[int]:
        """The offset after the last row of every partition."""
        return self.given.end_offsets()

    def offsets_for_time(self, time_ms: int) -> Sequence[int]:
        """Per partition the offset of the first row that is not older, or the end."""
        return self.given.offsets_for_time(time_ms)

    def check(self, starts: Sequence[int], seals: Sequence[str] = ()) -> None:
        """Make sure that what is to be read is there, but for what has been deleted at the beginning."""
        if any(start > end for start, end in zip(starts, self.end_offsets(), strict=True)):
            # Who has passed over what has gone may be further than anybody here has seen yet.
            self.refresh()
        while True:
            try:
                self.given.check(starts, seals)
            except RowsGoneException:
                left = [*map(max, starts, self.start_offsets())]
                if left == [*starts]:
                    raise
                # More may go meanwhile.
                starts = left
            else:
                return

    def seal_before(self, partition: int, offset: int) -> str:
        """What tells the row before an offset from one that has taken its place."""
        return self.given.seal_before(partition, offset)

    def tell_of_hidden(self) -> None:
        """Say which rows cannot be read yet."""
        self.given.tell_of_hidden()

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:
        """The rows that are left of those that are asked for, and how many offsets have gone, be they more than these."""
        begin = start
        while True:
            try:
                found = self.given.fetch(partition, begin, max(begin, end), limit if begin < end else 0)
            except RowsGoneException:
                first = self.start_offsets()[partition]
                if first <= begin:
                    raise
                begin = first
            else:
                break
        if begin > start:
            _log.warning(
                "The topic %s, partition %s, has no offsets from %s to %s any more (%s): they were deleted before they were read, and the run "
                "goes on without them (auto.offset.reset)",
                self.spec.name,
                partition,
                start,
                begin - 1,
                counted(begin - start, "offset"),
            )
        return attrs.evolve(found, lost=begin - start, end=begin if begin > end else found.end)


def with_reset(source: Source, reset: str | None) -> Source:
    """The source as a run reads it.

    Args:
        source: the source.
        reset: `auto.offset.reset`; None: what has gone before it was read ends the run.
    """
    return source if reset is None else ResetSource(source)
