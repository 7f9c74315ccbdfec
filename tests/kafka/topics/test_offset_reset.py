"""Topics of Kafka whose retention was faster than the application: with `auto.offset.reset` it goes on; and where it begins."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import attrs
import pytest
from confluent_kafka import IsolationLevel, Producer

from task_assignor.kafka.topics import KafkaTopics
from task_assignor.runtime import BatchesCommitted, RunEvent, StreamsApplication
from task_assignor.runtime.errors import CorruptLogException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics
from tests.kafka.topics.records import ends_of, rows_of, stream_topic, write_records
from tests.kafka.topics.test_gone import remove, remove_all
from tests.kafka.topics.test_sinks import Counting
from tests.runtime.support import QUICK, count_topology, settings, stream

pytestmark = pytest.mark.kafka
EARLIEST, LATEST = (attrs.evolve(QUICK, auto_offset_reset=reset) for reset in ("earliest", "latest"))


def _counted(counting: Counting) -> int:
    """Rows that the newest counts are made of."""
    newest = {row["key"]: row["count"] for row in rows_of(counting.servers, counting.output)}
    return sum(newest.values())


def test_a_run_keeps_its_state_where_retention_took_what_it_had_not_read(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "run")
    counting.add(3_000)
    ends = remove_all(counting.servers, counting.source)
    counting.add(100)
    with pytest.raises(CorruptLogException, match=r"any more\. Its retention .* with auto\.offset\.reset=earliest"):
        counting.run(tmp_path / "run")
    result = counting.run(tmp_path / "run", options=EARLIEST)
    assert result.lost_records == 3_000
    assert result.rows_in == sum(ends) - 400 + 100
    assert result.batches_here <= 2 * len(ends), "what has gone takes no batches"
    assert _counted(counting) == 500
    counting.add(50)
    assert counting.run(tmp_path / "run").rows_in == 50
    assert _counted(counting) == 550


def test_a_run_whose_folder_is_lost_goes_on_from_its_group_though_what_follows_has_gone(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """The state is that of the changelog; the first run without the setting says so, and spoils nothing."""
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    counting.add(100)
    remove_all(counting.servers, counting.source)
    counting.add(50)
    with pytest.raises(CorruptLogException, match=r"any more\. Its retention .* with auto\.offset\.reset=earliest"):
        counting.run(tmp_path / "run")
    assert counting.run(tmp_path / "run", options=EARLIEST).lost_records == 100
    assert _counted(counting) == 450


def test_records_that_go_while_a_run_goes_on_are_counted(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """What was fetched before they went is processed, and what was not is lost: all of them one or the other."""
    counting = Counting(kafka_cluster, unique, rows=100)
    told: list[int] = []

    def on_event(event: RunEvent) -> None:
        if not isinstance(event, BatchesCommitted):
            return
        told.append(event.rows_in)
        if sum(told) == 100:
            counting.add(2_000)
            remove_all(counting.servers, counting.source)
            counting.add(300)
        if sum(told) == 2_400:
            application.request_stop("all is read")

    application = counting.application(tmp_path / "run", options=EARLIEST)
    result = application.run(until="stopped", on_event=on_event)
    assert result.rows_in == 2_400
    assert _counted(counting) == 2_400 - result.lost_records


@pytest.mark.parametrize("options", [LATEST, attrs.evolve(QUICK, auto_offset_reset="by_duration:PT0S")])
def test_a_new_application_passes_over_what_is_there_but_not_over_what_its_group_has_committed(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, options: object
) -> None:
    counting = Counting(kafka_cluster, unique, rows=400)
    assert counting.run(tmp_path / "run", options=options).rows_in == 0
    counting.add(100)
    assert counting.run(tmp_path / "run", options=options).rows_in == 100
    counting.add(50)
    shutil.rmtree(tmp_path / "run")
    assert counting.run(tmp_path / "run", options=options).rows_in == 50
    assert _counted(counting) == 150


def test_an_application_begins_by_the_time_of_records(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Their own time, which brokers know, whatever column the topic's time is in; in some partitions nothing is as new."""
    name, servers = unique("timed"), kafka_cluster.bootstrap_servers
    make_topics(servers, name, partitions=2)
    now_ms = round(time.time() * 1_000)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for partition, ages_h in enumerate([[5, 3, 1, 2, 1], [5, 4]]):
        for age in ages_h:
            producer.produce(
                name, b'{"key": 1, "at": 5, "value": ""}', partition=partition, timestamp=now_ms - age * 3_600_000
            )
    assert producer.flush(60) == 0
    log = KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]).open(name)
    assert log.offsets_for_time(now_ms - 2 * 3_600_000) == [2, 2]
    assert log.offsets_for_time(now_ms - 36_500 * 86_400_000) == log.offsets_for_time(-1) == [0, 0], (
        "before 1970, as by P36500D"
    )
    application = StreamsApplication(
        count_topology(name),
        settings(application_id=name, auto_offset_reset="by_duration:PT2H30M"),
        topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(name)]),
        run_dir=tmp_path / "run",
        clients=1,
        options=QUICK,
    )
    assert application.run().rows_in == 3


def test_records_that_go_before_the_first_batch_do_not_end_a_run_that_may_go_on(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Its folder says where it began, which is gone by then."""
    counting = Counting(kafka_cluster, unique, rows=0)
    assert counting.run(tmp_path / "run", options=EARLIEST).rows_in == 0
    write_records(counting.servers, counting.source, stream(200, 40, seed=7))
    ends = ends_of(counting.servers, counting.source, IsolationLevel.READ_COMMITTED)
    remove(counting.servers, counting.source, *(end - 10 for end in ends))
    result = counting.run(tmp_path / "run", options=EARLIEST)
    assert (result.rows_in, result.lost_records) == (200, 200 - 10 * len(ends))
    assert _counted(counting) == 10 * len(ends)
