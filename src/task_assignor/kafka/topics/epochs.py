"""Which record of a partition was read last, and under which leader it was written: a later run sees whether it is still that one.

Each leader of a partition has an epoch of its own, which is part of what it writes. Where one is elected that lacks some records, others
come in the place of these, with their offsets and another epoch. Source: KIP-101 and KIP-320, leader epochs.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Self

import attrs

_MOST_PARTS: Final = 16
"""So many fetches of a partition are remembered: of a task's batch the end is among the last ones."""


@attrs.frozen
class RecordSeal:
    """A record as it is known again.

    Args:
        offset: its offset.
        epoch: epoch of the leader that wrote it.
    """

    offset: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """What `str` gave; None: nothing is known."""
        offset, _, epoch = text.partition("@")
        return cls(int(offset), int(epoch)) if epoch else None

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


class EpochsRead:
    """The records of a topic that were read last."""

    def __init__(self) -> None:
        self._parts: dict[int, deque[tuple[Sequence[int], int | None]]] = defaultdict(
            partial(deque, maxlen=_MOST_PARTS)
        )
        """Partition -> ascending offsets of records that came together, and the epoch of all of them."""

    def add(self, partition: int, records: Sequence[Any]) -> None:
        """Note records that have come, in the order of their offsets."""
        if not records:
            return
        is_one = epoch_of(records[0]) == epoch_of(records[-1])
        parts = [records] if is_one else [list(part) for _, part in itertools.groupby(records, epoch_of)]
        for part in parts:
            first, last = part[0].offset(), part[-1].offset()
            is_whole = last - first + 1 == len(part)
            offsets = range(first, last + 1) if is_whole else array("q", (record.offset() for record in part))
            self._parts[partition].append((offsets, epoch_of(part[0])))

    def before(self, partition: int, offset: int) -> RecordSeal | None:
        """The last of these records before an offset; None: none is known, or brokers have not said its epoch."""
        # Of an offset that was read twice the newest counts: another record may have come there.
        found = [
            (offsets[place - 1], epoch)
            for offsets, epoch in reversed(self._parts[partition].copy())
            if (place := bisect_left(offsets, offset))
        ]
        last, epoch = max(found, key=itemgetter(0), default=(0, None))
        return None if epoch is None else RecordSeal(last, epoch)


def epoch_of(record: Any) -> int | None:
    """The epoch of the leader that wrote a record; None: brokers have not said it."""
    epoch: int | None = record.leader_epoch()
    return None if epoch is None or epoch < 0 else epoch
