"""Changelog topics of window stores do not grow for ever: what has expired goes, what counts stays, whoever takes over."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.purging import Needed, Purging
from task_assignor.runtime.errors import CorruptLogException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import PARTITIONS, ends_of, killer, starts_of, write_records
from tests.kafka.topics.test_sinks import Join
from tests.runtime.support import QUICK, stream

Unique = Callable[[str], str]
SMALL = attrs.evolve(QUICK, max_batch_rows=20)
BATCHES = st.lists(st.tuples(st.integers(1, 9), st.none() | st.integers(0, 50), st.none() | st.integers(0, 50)))


@given(BATCHES, st.integers(0, 30))
def test_what_is_needed_is_never_given_up_whoever_takes_over(
    batches: list[tuple[int, int | None, int | None]], taken_over_at: int
) -> None:
    needed, end, before = Needed(), 0, -1
    written: list[tuple[int, int]] = []
    for number, (records, newest, expiry) in enumerate(batches):
        if number == taken_over_at:
            needed = Needed.of(needed.first, needed.newest, end)
        end += records
        if newest is not None:
            written.append((end, newest))
        before = max(before, -1 if expiry is None else expiry)
        needed.add(end, newest)
        needed.expire(expiry)
        gone = [time for offset, time in written if offset <= needed.first]
        assert all(time < before for time in gone)
        assert not end or needed.first < end, "the last records say where expiry and stream time are"


def test_all_but_the_last_goes_when_all_has_expired() -> None:
    needed = Needed()
    for end in range(1, 11):
        needed.add(end, end)
    needed.expire(5)
    assert needed.first == 4
    needed.expire(100)
    assert needed.first == 9
    assert needed.newest == 10


def test_what_is_known_of_a_long_window_does_not_grow_with_its_batches() -> None:
    """All batches of a window of a day were remembered, one by one, and copied with each batch."""
    needed = Needed()
    for end in range(1, 100_001):
        needed.add(end, end)
        needed.expire(end - 50_000)
    assert len(needed.blocks) < 2_000
    assert needed.newest == 100_000
    assert 49_000 < needed.first < 50_000


@pytest.mark.kafka
def test_records_are_removed_again_when_an_answer_was_lost(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """Clients are let go of when brokers have been away, and do not answer any more: nothing was ever removed from there on."""
    servers, topic = kafka_cluster.bootstrap_servers, unique("changelog")
    make_topics(servers, topic, partitions=1)
    write_records(servers, topic, stream(20, 3, seed=1), partitions=1)
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers}), 60_000)
    purging = Purging(connection, topic, 0)
    purging.remove(6, 6)
    connection._forget_clients()

    def is_removed() -> bool:
        purging.remove(12, 12)
        return starts_of(servers, topic) == [12]

    wait_until(is_removed, "what was asked for later is removed, too", seconds=20)


@pytest.mark.kafka
def test_the_changelogs_of_a_join_stay_as_long_as_its_windows(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(kafka_cluster, unique, rows=600)
    names = [f"{join.application_id}-join-{side}-changelog" for side in ("left", "right")]
    for number in range(3):
        if number:
            join.add(600)
        # The second run loses a client; the third begins without its folder, from what is left in Kafka.
        folder = tmp_path / ("run" if number < 2 else "other")
        watch = killer(after_commits=20) if number == 1 else None
        join.application(folder, clients=2, options=SMALL).run(watch)
        join.check()
        # Some ten batches each time, and one or two of them are in the windows.
        for name in names:
            wait_until(
                functools.partial(is_shorter, join, name, 2 + number), f"{name} is shorter than what was written"
            )
    admin = AdminClient({"bootstrap.servers": join.servers})
    last = enumerate(ends_of(join.servers, names[0], IsolationLevel.READ_UNCOMMITTED))
    for done in admin.delete_records([TopicPartition(names[0], *end) for end in last]).values():
        done.result(60)
    # What somebody else has removed is missed.
    shutil.rmtree(tmp_path / "other")
    join.add(100)
    with pytest.raises(CorruptLogException, match=rf"{names[0]}, partition \d, has no offset"):
        join.application(tmp_path / "other", clients=2, options=SMALL).run()


def is_shorter(join: Join, topic: str, times: int) -> bool:
    """The records that are there are so many times fewer than those that were written."""
    written = sum(ends_of(join.servers, topic, IsolationLevel.READ_UNCOMMITTED))
    admin = AdminClient({"bootstrap.servers": join.servers})
    first: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    found = admin.list_offsets({TopicPartition(topic, partition): first for partition in range(PARTITIONS)})
    removed = sum(int(done.result(60).offset) for done in found.values())
    return (written - removed) * times < written
