"""Repartition topics in Kafka, in trouble: writers and readers that die between Kafka's commit and the record of it, topics that change."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import OFFSET_INVALID, Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics, committed, committing
from task_assignor.kafka.topics.committing import Committer
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BatchesCommitted,
    ClientJoined,
    CommitLogException,
    LocalProcessLauncher,
    Processor,
    Repartitioned,
    RunEvent,
    StreamsApplication,
    SubTopology,
    TaskContext,
    TopicException,
    Topology,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import PARTITIONS, delete_group, forget_offsets, rows_of, stream_topic, write_records
from tests.kafka.topics.test_sinks import Unique
from tests.runtime.support import QUICK, settings, stream

pytestmark = pytest.mark.kafka
GROUPS = pa.schema([("group", pa.string()), ("at", pa.int64()), ("key", pa.int64())])


class ToGroups(Processor):
    """Rows by another key."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The group is made of the key."""
        (rows,) = batch.values()
        group = pc.cast(pc.bit_wise_and(rows.column("key"), 7), pa.string())
        return pa.table([group, rows.column("at"), rows.column("key")], schema=GROUPS)


class DiesBeforeItTells(ToGroups):
    """Dies once when its first transaction is over, before the coordinator hears of it.

    Args:
        marker: the file that says that it has.
        room: characters of metadata that brokers take; where they are few, it says nothing of ends.
    """

    def __init__(self, marker: str, room: int) -> None:
        self._marker = marker
        self._room = room

    def init(self, context: TaskContext) -> None:
        """Kafka's commit is the last that it does."""
        setattr(committed, "_MOST_METADATA", self._room)  # noqa: B010 (it is final)
        together, marker = Committer._commit_together, self._marker

        def dies(committer: Committer, group: Any) -> None:
            together(committer, group)
            if any(each.task == context.task_id for each in group) and not Path(marker).exists():
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(Committer, "_commit_together", dies)  # noqa: B010


class DoesNotSayWhere(ToGroups):
    """Records are said to be there, but not at which offsets, as of those that are sent a second time."""

    def __init__(self) -> None:
        self._noting = committing._noting

    def init(self, context: TaskContext) -> None:
        """Only of outputs."""

        def nowhere(ends: dict[Any, int], place: Any) -> Callable[[Any, Any], None]:
            note = self._noting(ends, place)
            if place[0].endswith("-changelog"):
                return note
            return lambda error, _: note(error, SimpleNamespace(offset=lambda: OFFSET_INVALID))

        setattr(committing, "_noting", nowhere)  # noqa: B010


class Regrouped:
    """Rows of a topic, by another key counted."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, rows: int = 300, partitions: int = PARTITIONS) -> None:
        self.partitions = partitions
        self.servers = cluster.bootstrap_servers
        self.application_id = unique("regrouped")
        self.source, self.counts = unique("source"), unique("counts")
        make_topics(self.servers, self.source, self.counts, partitions=partitions)
        self.rows = stream(rows, 40, seed=7)
        write_records(self.servers, self.source, self.rows, partitions)

    @property
    def internal(self) -> str:
        """The topic of Kafka for the repartition topic."""
        return f"{self.application_id}-by-group-repartition"

    def add(self, rows: int) -> None:
        """Rows after those that are there."""
        self.write(stream(rows, 40, seed=8))

    def write(self, more: pa.Table) -> None:
        """These, too."""
        write_records(self.servers, self.source, more, self.partitions)
        self.rows = pa.concat_tables([self.rows, more])

    def application(
        self,
        run_dir: Path,
        processor: Callable[[], Processor] = ToGroups,
        clients: int = 2,
        in_files: bool = False,
        **more: Any,
    ) -> StreamsApplication:
        """The application."""
        by_group = Repartitioned("by-group", GROUPS, key="group", partitions=3, timestamp="at")
        counts = Aggregation(source="by-group", aggregates={"rows": Aggregate.count()})
        topology = Topology(
            [
                SubTopology("group", self.source, processor, outputs=by_group),
                counts.sub_topology("count", self.counts, topics=[by_group.spec]),
            ]
        )
        topics = KafkaTopics(
            {"bootstrap.servers": self.servers},
            [stream_topic(self.source), *([] if in_files else [KafkaTopic(self.counts, key="group")])],
        )
        given = {"options": QUICK, "launcher": LocalProcessLauncher(start_method="forkserver"), **more}
        return StreamsApplication(
            topology,
            settings(application_id=self.application_id),
            topics_root=topics,
            run_dir=run_dir,
            clients=clients,
            **given,
        )

    def forget_offsets(self) -> None:
        """The group has none of the source any more."""
        forget_offsets(self.servers, self.application_id, self.source, range(self.partitions))

    def check(self) -> None:
        """The newest count of each group is that of a plain computation."""
        found = {row["group"]: row["rows"] for row in rows_of(self.servers, self.counts)}
        groups = [str(key & 7) for key in self.rows.column("key").to_pylist()]
        assert found == {group: groups.count(group) for group in groups}


@pytest.mark.parametrize("room", [4096, 1])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_what_was_written_by_who_died_before_it_told_is_read(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, room: int, is_hidden: bool
) -> None:
    """Nothing is written after it that would tell of it; a transaction that is open may hide it, too."""
    regrouped = Regrouped(kafka_cluster, unique, rows=100, partitions=1)
    stranger = Producer({"bootstrap.servers": regrouped.servers, "transactional.id": unique("stranger")})
    stranger.init_transactions(60)
    hides, ended = threading.Event(), threading.Event()

    def hide(event: RunEvent) -> None:
        if isinstance(event, ClientJoined) and is_hidden and not hides.is_set():
            hides.set()
            stranger.begin_transaction()
            for partition in range(3):
                stranger.produce(regrouped.internal, b"nothing that anybody reads", partition=partition)
            assert not stranger.flush(60)
        elif isinstance(event, BatchesCommitted) and hides.is_set() and not ended.is_set():
            ended.set()
            stranger.abort_transaction(60)

    dying = functools.partial(DiesBeforeItTells, str(tmp_path / "died"), room)
    result = regrouped.application(tmp_path / "run", dying).run(hide)
    assert result.lost_clients
    assert ended.is_set() == is_hidden
    regrouped.check()


def test_what_is_written_is_read_though_kafka_does_not_say_where_it_is(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    regrouped = Regrouped(kafka_cluster, unique, rows=100, partitions=1)
    regrouped.application(tmp_path / "run", DoesNotSayWhere).run()
    regrouped.check()


def test_partitions_that_somebody_adds_meanwhile_get_no_rows(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Nobody reads them, in this run."""
    regrouped = Regrouped(kafka_cluster, unique, rows=3_000)
    application = regrouped.application(tmp_path / "run")
    commits = 0

    def grow(event: RunEvent) -> None:
        nonlocal commits
        if isinstance(event, BatchesCommitted):
            commits += 1
            if commits == 2:
                admin = AdminClient({"bootstrap.servers": regrouped.servers})
                for done in admin.create_partitions([NewPartitions(regrouped.internal, 7)]).values():
                    done.result(60)
                application.scale(3)

    application.run(grow)
    regrouped.check()
    with pytest.raises(TopicException, match="-by-group-repartition' has 7 partitions, but 3 are declared"):
        regrouped.application(tmp_path / "run").run()


def test_rows_of_the_future_pass_through(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    """Brokers refuse records of more than an hour ahead."""
    regrouped = Regrouped(kafka_cluster, unique, rows=100)
    ahead = pa.array([round(time.time() * 1000) + days * 86_400_000 for days in (0, 1, 400)])
    regrouped.write(pa.table({"key": [1, 2, 3], "at": ahead, "value": ["a", "b", "c"]}))
    regrouped.application(tmp_path / "run").run()
    regrouped.check()


def test_rows_are_not_counted_again_where_only_readers_are_known(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Kafka forgets the offsets of each partition by itself."""
    regrouped = Regrouped(kafka_cluster, unique, rows=100)
    regrouped.application(tmp_path / "run").run()
    regrouped.forget_offsets()
    # The folder knows how far it is.
    regrouped.add(100)
    regrouped.application(tmp_path / "run").run()
    regrouped.check()
    regrouped.forget_offsets()
    with pytest.raises(TopicException, match=r"-repartition' has records of a former life"):
        regrouped.application(tmp_path / "other").run()


def test_a_name_that_is_too_long_for_kafka_is_told_with_its_parts(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    regrouped = Regrouped(kafka_cluster, unique, rows=10)
    regrouped.application_id = "x" * 240
    with pytest.raises(
        TopicException, match=r"-by-group-repartition' in Kafka, of .* of application.id and the name of a"
    ):
        regrouped.application(tmp_path / "run").run()


def test_a_run_that_would_go_on_with_other_repartition_topics_is_refused(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Its offsets are those of files, or of a topic that is gone; what is written anew has the same ones."""
    moved = Regrouped(kafka_cluster, unique, rows=100)
    moved.application(tmp_path / "files", in_files=True).run()
    with pytest.raises(
        CommitLogException, match=r"by-group, id: is .*, was not there.*in Kafka where outputs are, else"
    ):
        moved.application(tmp_path / "files").run()
    regrouped = Regrouped(kafka_cluster, unique, rows=100)
    regrouped.application(tmp_path / "run").run()
    with pytest.raises(
        CommitLogException, match=r"by-group, id: was .*, is gone\. \(.*Repartition topics are in Kafka where"
    ):
        regrouped.application(tmp_path / "run", in_files=True).run()
    admin = AdminClient({"bootstrap.servers": regrouped.servers})
    delete_group(regrouped.servers, regrouped.application_id)
    admin.delete_topics([regrouped.internal])[regrouped.internal].result(60)
    regrouped.add(100)
    with pytest.raises(CommitLogException, match=r"by-group, id: was .*A topic with another id was written anew"):
        regrouped.application(tmp_path / "run").run()
