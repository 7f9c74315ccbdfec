"""Runs that go on while the topics of Kafka that they read grow: new records, SIGTERM, partitions that are added."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from task_assignor.kafka.topics import KafkaTopics
from task_assignor.kafka.topics.committed import RecordsLostException
from task_assignor.runtime import BatchesCommitted, RunEvent
from task_assignor.runtime.errors import CommitLogException, TopicException
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import PARTITIONS, rows_of, write_records
from tests.kafka.topics.test_sinks import Counting, committed_rows
from tests.runtime.support import QUICK

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
PIECES, ROWS = 4, 300


def test_records_are_processed_as_they_come_until_sigterm_and_the_next_run_goes_on(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    assert threading.current_thread() is threading.main_thread(), "else nobody handles the signal"
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    read, pieces = 0, 1

    def on_event(event: RunEvent) -> None:
        nonlocal read, pieces
        if not isinstance(event, BatchesCommitted):
            return
        read += event.rows_in
        if read == pieces * ROWS and pieces < PIECES:
            pieces += 1
            counting.add(ROWS)
            if pieces == PIECES:
                # What has just come may be in progress: it is committed whole, or left to the next run.
                os.kill(os.getpid(), signal.SIGTERM)

    first = counting.run(tmp_path / "run", until="stopped", on_event=on_event)
    assert first.stopped == "SIGTERM"
    assert (PIECES - 1) * ROWS <= first.rows_in <= PIECES * ROWS
    assert committed_rows(counting) == first.rows_in, "what was processed is committed in Kafka, and nothing else"
    second = counting.run(tmp_path / "run")
    assert first.rows_in + second.rows_in == PIECES * ROWS
    counting.check()


def test_partitions_that_are_added_end_the_run_with_what_to_do(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task_assignor.kafka.topics.log.CHECK_S", 0.2)
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    admin = AdminClient({"bootstrap.servers": counting.servers})
    is_added = False

    def on_event(event: RunEvent) -> None:
        nonlocal is_added
        if isinstance(event, BatchesCommitted) and not is_added:
            is_added = True
            for done in admin.create_partitions([NewPartitions(counting.source, PARTITIONS + 2)]).values():
                done.result(60)

    complaint = (
        rf"The topic '{counting.source}' .* has {PARTITIONS + 2} partitions, and had {PARTITIONS} when the run began"
    )
    with pytest.raises(TopicException, match=complaint):
        counting.run(tmp_path / "run", until="stopped", on_event=on_event)
    # Neither is the next run taken in by them.
    with pytest.raises(
        StreamsException,
        match=f"has {PARTITIONS} partitions, but needs {PARTITIONS + 2}. Maybe its sources were given more",
    ):
        counting.run(tmp_path / "run")


def test_partitions_that_are_added_to_an_output_are_told_and_cost_no_rows(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records of a key are in another partition from then on, without a word; at the end of the run, and before the next one."""
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    admin = AdminClient({"bootstrap.servers": counting.servers})
    is_added = False

    def on_event(event: RunEvent) -> None:
        nonlocal is_added
        if isinstance(event, BatchesCommitted) and not is_added:
            is_added = True
            for done in admin.create_partitions([NewPartitions(counting.output, PARTITIONS + 2)]).values():
                done.result(60)

    told = f"The topic {counting.output} has {PARTITIONS + 2} partitions, and had {PARTITIONS} when it was last written"
    counting.run(tmp_path / "run", on_event=on_event, options=attrs.evolve(QUICK, max_batch_rows=20))
    assert caplog.text.count(told) == 1
    counting.add(ROWS)
    caplog.clear()
    counting.run(tmp_path / "run")
    assert caplog.text.count(told) == 1, "at its beginning; what it has written since is in all of them"
    totals = [(row["key"], row["count"]) for row in rows_of(counting.servers, counting.output)]
    assert len(set(totals)) == len(totals), "each total is told once"
    assert dict(sorted(totals)) == Counter(counting.rows.column("key").to_pylist())


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_output_that_is_deleted_while_a_run_goes_on_is_named(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, is_made_anew: bool
) -> None:
    """It was said that the cluster does not answer; and nothing where it was made anew and had got as long again."""
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    read = 0

    def on_event(event: RunEvent) -> None:
        nonlocal read
        before, read = read, read + (event.rows_in if isinstance(event, BatchesCommitted) else 0)
        if before < (ROWS if is_made_anew else 1) <= read:
            committed_rows(counting)
            delete_output(counting, is_made_anew=is_made_anew)

    said = (
        f"The topic {counting.output} was deleted and created anew while the run went on"
        if is_made_anew
        else f"{counting.output} is not there any more: somebody has deleted it|Maybe somebody has deleted a topic"
    )
    with pytest.raises(StreamsException, match=said):
        counting.run(
            tmp_path / "run", on_event=on_event, options=attrs.evolve(QUICK, max_batch_rows=20), timeout_ms=12_000
        )


def test_an_output_that_is_made_anew_is_named_though_another_application_uses_the_same_topics(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Which topics the first one had found was forgotten when the second one began."""
    first, second = Counting(kafka_cluster, unique, rows=ROWS), Counting(kafka_cluster, unique, rows=ROWS)
    first.run(tmp_path / "first")
    one, other = first.application(tmp_path / "first"), second.application(tmp_path / "second")
    topics = [each._topics_at for each in (one, other)]
    assert isinstance(topics[0], KafkaTopics)
    assert isinstance(topics[1], KafkaTopics)
    shared = attrs.evolve(topics[0], topics=(*topics[0].topics, *topics[1].topics))
    shared.prepare(first.application_id, one._topology, one._tasks)
    shared.prepare(second.application_id, other._topology, other._tasks)
    delete_output(first, is_made_anew=True)
    with pytest.raises(RecordsLostException, match=f"The topic {first.output} was deleted and created anew"):
        shared.check_results(first.application_id, one._topology, one._tasks)


def delete_output(counting: Counting, *, is_made_anew: bool) -> None:
    """Delete the topic; make it anew with records that reach as far as those before."""
    admin = AdminClient({"bootstrap.servers": counting.servers})
    admin.delete_topics([counting.output])[counting.output].result(60)
    if is_made_anew:
        wait_until(lambda: counting.output not in admin.list_topics(timeout=60).topics, "the topic is gone")
        make_topics(counting.servers, counting.output, partitions=PARTITIONS)
        for _ in range(PARTITIONS):
            write_records(counting.servers, counting.output, counting.rows)


@pytest.mark.parametrize("stays", [True, False])
def test_a_run_ends_when_another_one_of_its_application_has_begun_and_stays(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stays: bool
) -> None:
    """Both waited for rows and knew nothing of each other; then each took the tasks away from the other, again and again."""
    monkeypatch.setattr("task_assignor.kafka.topics.log.CHECK_S", 0.2)
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    topics_settings = {"bootstrap.servers": counting.servers, "session.timeout.ms": 4_000}
    first, other = (counting.application(tmp_path / name, topics_settings=topics_settings) for name in ("run", "other"))
    found: list[int] = []
    rows = [0, 0]

    def run_other() -> None:
        found.append(
            other.run(
                until="stopped" if stays else "available_now", on_event=lambda event: on_event(event, 1)
            ).rows_found
        )
        if not stays:
            counting.add(ROWS)

    thread = threading.Thread(target=run_other)

    def on_event(event: RunEvent, of: int = 0) -> None:
        rows[of] += event.rows_in if isinstance(event, BatchesCommitted) else 0
        if rows == [ROWS, 0] and of == 0 and thread.ident is None:
            thread.start()
        if rows[0] == 2 * ROWS:
            first.request_stop()

    try:
        if stays:
            complaint = rf"Another run of the application '{counting.application_id}' has begun, with another run_dir"
            with pytest.raises(CommitLogException, match=complaint):
                first.run(until="stopped", on_event=on_event)
        else:
            assert first.run(until="stopped", on_event=on_event).rows_in == 2 * ROWS
    finally:
        other.request_stop()
        thread.join()
    assert stays or found == [ROWS], "it has gone on where that one was"
    counting.check()


def test_a_run_that_may_not_have_the_folder_does_not_end_the_one_that_has(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("task_assignor.kafka.topics.log.CHECK_S", 0.1)
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    read = 0

    def on_event(event: RunEvent) -> None:
        nonlocal read
        if isinstance(event, BatchesCommitted):
            read += event.rows_in
            if read == ROWS:
                with pytest.raises(CommitLogException, match="runs on"):
                    counting.run(tmp_path / "run")
                threading.Timer(2, os.kill, (os.getpid(), signal.SIGTERM)).start()

    assert counting.run(tmp_path / "run", until="stopped", on_event=on_event).stopped == "SIGTERM"


def test_a_source_that_has_lost_its_end_is_noticed_though_the_run_folder_is_lost(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """What came there was passed over until there was as much as before."""
    counting = Counting(kafka_cluster, unique, rows=ROWS)
    counting.run(tmp_path / "run")
    group = Consumer({"bootstrap.servers": counting.servers, "group.id": counting.application_id})
    (at,) = group.committed([TopicPartition(counting.source, 0)], 60)
    # A broker forgets no records when it is told so; what the group has committed is as if there had been more.
    at.offset += 1_000
    writer = Producer({"bootstrap.servers": counting.servers, "transactional.id": unique("writer")})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.send_offsets_to_transaction([at], group.consumer_group_metadata(), 60)
    writer.commit_transaction(60)
    group.close()
    said = rf"The topic {counting.source}, partition 0, ends at offset \d+, and the group {counting.application_id} has committed offset"
    with pytest.raises(StreamsException, match=said):
        counting.run(tmp_path / "lost")
