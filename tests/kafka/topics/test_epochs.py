"""Which record before an offset was read last, and its leader's epoch: where offsets have gaps, leaders change, and nothing is known."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from task_assignor.kafka.topics.epochs import EpochsRead, RecordSeal


@attrs.frozen
class Record:
    at: int
    under: int | None

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return self.under


def read(*parts: Sequence[tuple[int, int | None]]) -> EpochsRead:
    epochs = EpochsRead()
    for part in parts:
        epochs.add(0, [Record(*record) for record in part])
    return epochs


@pytest.mark.parametrize(
    ("offset", "last"),
    [(0, None), (1, "0@3"), (3, "2@3"), (4, "2@3"), (5, "4@5"), (6, "4@5"), (10, "9@5"), (99, "9@5")],
)
def test_the_last_record_before_an_offset(offset: int, last: str | None) -> None:
    """Between the records are markers of transactions, which nobody reads and which may have a later epoch."""
    epochs = read([(0, 3), (1, 3), (2, 3)], [(2, 3), (4, 5)], [], [(7, 5), (9, 5)])
    found = epochs.before(0, offset)
    assert found == (None if last is None else RecordSeal.parse(last))
    assert str(found or "") == (last or "")
    assert epochs.before(1, offset) is None, "of another partition nothing is known"


def test_what_brokers_do_not_say_is_not_known() -> None:
    assert read([(0, None), (1, None)]).before(0, 2) is None
    assert read([(0, 3)], [(1, -1)]).before(0, 2) is None
    assert RecordSeal.parse("") is None


def test_of_a_record_that_was_read_twice_the_newest_counts() -> None:
    """Between two tries of a batch another one may have come in its place: the next run would be refused."""
    assert read([(0, 3), (1, 3)], [(0, 3), (1, 4)]).before(0, 2) == RecordSeal(1, 4)


def test_what_was_read_long_ago_is_forgotten() -> None:
    epochs = read(*([(number, 1)] for number in range(100)))
    assert epochs.before(0, 50) is None
    assert epochs.before(0, 100) == RecordSeal(99, 1)
