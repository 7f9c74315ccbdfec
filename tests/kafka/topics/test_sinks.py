"""Tasks write topics of Kafka: every row once, whoever is killed, fenced or cut off, and state from the changelog topics."""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.kafka.topics.committing import Committer
from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    ClientLost,
    CommitLogException,
    LocalProcessLauncher,
    Processor,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
)
from task_assignor.runtime.errors import CorruptLogException, TopicException
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, wait_until
from tests.kafka.topics.records import (
    PARTITIONS,
    commits_of_a_stranger,
    forget_offsets,
    in_any_order,
    killer,
    records_of,
    rows_of,
    stream_topic,
    write_records,
    write_streams_to_kafka,
)
from tests.runtime.support import (
    AFTER_MS,
    BEFORE_MS,
    QUICK,
    CountByKey,
    count_topology,
    plain_join,
    settings,
    stream,
)

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


class Join:
    """A join of two topics of Kafka into a third."""

    def __init__(
        self, cluster: KafkaCluster, unique: Unique, rows: int = 3_000, keys: int = 150, replicas: int = 1
    ) -> None:
        self.servers = cluster.bootstrap_servers
        self.application_id = unique("join")
        self.left, self.right, self.joined = unique("left"), unique("right"), unique("joined")
        self.tables = write_streams_to_kafka(self.servers, self.left, self.right, rows, keys, replicas=replicas)
        make_topics(self.servers, self.joined, partitions=3, replicas=replicas)

    def add(self, rows: int, keys: int = 150) -> None:
        """Rows after those that are there, half as many on the right."""
        begin = max(table.column("at").to_numpy().max() for table in self.tables)
        more = stream(rows, keys, seed=3), stream(rows // 2, keys, seed=4)
        later = [table.set_column(1, "at", pa.array(table.column("at").to_numpy() + begin)) for table in more]
        for name, table in zip((self.left, self.right), later, strict=True):
            write_records(self.servers, name, table)
        left, right = (pa.concat_tables(pair) for pair in zip(self.tables, later, strict=True))
        self.tables = left, right

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The rows of the plain join."""
        rows: list[dict[str, Any]] = plain_join(*self.tables).to_pylist()
        return rows

    def topics(self, *more: KafkaTopic, timeout_ms: int = 60_000) -> KafkaTopics:
        known = (stream_topic(self.left), stream_topic(self.right), KafkaTopic(self.joined, key="key", timestamp="at"))
        return KafkaTopics({"bootstrap.servers": self.servers}, (*known, *more), timeout_ms)

    def application(self, run_dir: Path, clients: int = 3, **more: Any) -> StreamsApplication:
        join = WindowedJoin(left=self.left, right=self.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
        given = {
            "options": QUICK,
            "topics_root": self.topics(),
            "launcher": LocalProcessLauncher(start_method="forkserver"),
            **more,
        }
        return StreamsApplication(
            Topology([join.sub_topology("join", output=self.joined)]),
            settings(application_id=self.application_id, num_standby_replicas=1),
            run_dir=run_dir,
            clients=clients,
            **given,
        )

    def check(self) -> None:
        """What readers see is the plain join, each row once."""
        assert in_any_order(rows_of(self.servers, self.joined)) == in_any_order(self.expected)


def test_a_join_with_a_killed_client_is_in_the_topic_once(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(kafka_cluster, unique)
    result = join.application(tmp_path / "run").run(killer(after_commits=3))
    assert result.lost_clients
    assert result.rows_out == len(join.expected)
    join.check()
    with pytest.raises(CommitLogException, match=rf"is the topic '{join.joined}' of bootstrap.servers="):
        result.table(join.joined)
    # Keys decide the partition, as Kafka's own partitioner would.
    assert {key for key, _ in records_of(join.servers, join.joined)} == {
        row["key"].to_bytes(8, "big") for row in join.expected
    }


def test_a_zombie_can_write_nothing(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    join = Join(kafka_cluster, unique)
    processes: list[int] = []
    commits = 0

    def watch(event: RunEvent) -> None:
        nonlocal commits
        if isinstance(event, ClientJoined):
            processes.append(event.pid)
        elif isinstance(event, BatchesCommitted):
            commits += 1
            if commits == 3:
                os.kill(processes[0], signal.SIGSTOP)
        elif isinstance(event, ClientLost):
            # The heartbeat process has a session of its own to end: the zombie wakes up while others have its tasks.
            with suppress(ProcessLookupError):
                os.kill(processes[0], signal.SIGCONT)

    result = join.application(tmp_path / "run").run(watch)
    assert result.rows_out == len(join.expected)
    join.check()


class DiesBeforeItTells(CountByKey):
    """Dies once when a transaction is over (or just before), before the coordinator hears of it."""

    def __init__(self, marker: str, after: bool) -> None:
        self._marker = marker
        self._after = after

    def init(self, context: TaskContext) -> None:
        flush, together, marker, after = Committer._flush, Committer._commit_together, self._marker, self._after

        def dies(is_after: bool) -> None:
            # The third batch of whichever task comes to it first; before that nothing is at stake.
            if is_after == after and context.batch >= 2 and not Path(marker).exists():
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def flushes(committer: Committer, *arguments: Any) -> None:
            flush(committer, *arguments)
            dies(is_after=False)

        def commits(committer: Committer, *arguments: Any) -> None:
            together(committer, *arguments)
            dies(is_after=True)

        setattr(Committer, "_flush", flushes)  # noqa: B010
        setattr(Committer, "_commit_together", commits)  # noqa: B010


class Counting:
    """A processor with a key-value store, from a topic of Kafka into another."""

    def __init__(self, cluster: KafkaCluster, unique: Unique, rows: int = 2_000) -> None:
        self.servers = cluster.bootstrap_servers
        self.application_id = unique("count")
        self.source, self.output = unique("source"), unique("counts")
        make_topics(self.servers, self.source, self.output, partitions=PARTITIONS)
        self.rows = stream(rows, 40, seed=7)
        write_records(self.servers, self.source, self.rows)

    def add(self, rows: int) -> None:
        more = stream(rows, 40, seed=8)
        write_records(self.servers, self.source, more)
        self.rows = pa.concat_tables([self.rows, more])

    def run(self, run_dir: Path, *given: Any, **more: Any) -> Any:
        """Arguments are those of `application`, and those of `run` by name."""
        listeners = {name: more.pop(name) for name in ("on_event", "until", "on_line") if name in more}
        return self.application(run_dir, *given, **more).run(**listeners)

    def application(
        self,
        run_dir: Path,
        processor: Callable[[], Any] = CountByKey,
        clients: int = 2,
        options: RuntimeOptions = QUICK,
        topics_settings: Mapping[str, object] | None = None,
        timeout_ms: int = 60_000,
    ) -> StreamsApplication:
        (sub,) = count_topology(self.source).sub_topologies
        topology = Topology([SubTopology("count", self.source, processor, stores=sub.stores, outputs=self.output)])
        topics = KafkaTopics(
            topics_settings or {"bootstrap.servers": self.servers},
            [stream_topic(self.source), KafkaTopic(self.output, key="key")],
            timeout_ms,
        )
        return StreamsApplication(
            topology,
            settings(application_id=self.application_id),
            topics_root=topics,
            run_dir=run_dir,
            clients=clients,
            options=options,
            launcher=LocalProcessLauncher(start_method="forkserver"),
        )

    @property
    def changelog(self) -> str:
        (sub,) = count_topology(self.source).sub_topologies
        return f"{self.application_id}-{sub.stores[0].name}-changelog"

    def check(self) -> None:
        """The counts that were told of a key go up to the last one, none twice."""
        told: dict[int, list[Mapping[str, int]]] = {}
        for row in rows_of(self.servers, self.output):
            told.setdefault(row["key"], []).append(row)
        expected = self.rows.group_by("key").aggregate([("at", "sum"), ("at", "count")]).to_pylist()
        assert {row["key"]: (row["at_count"], row["at_sum"]) for row in expected} == {
            key: (rows[-1]["count"], rows[-1]["sum"]) for key, rows in told.items()
        }
        for rows in told.values():
            counts = [row["count"] for row in rows]
            assert counts == sorted(set(counts)), "each total is told once, in order"


def committed_rows(counting: Counting) -> int:
    """The sum of the offsets that the application's group has committed; its records have no gaps."""
    group = Consumer({"bootstrap.servers": counting.servers, "group.id": counting.application_id})
    asked = [TopicPartition(counting.source, partition) for partition in range(PARTITIONS)]
    found = sum(max(each.offset, 0) for each in group.committed(asked, 60))
    group.close()
    return found


@pytest.mark.parametrize("after", [True, False], ids=["after the transaction", "before it is committed"])
def test_a_client_killed_between_transaction_and_record(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, after: bool
) -> None:
    counting = Counting(kafka_cluster, unique)
    processor = functools.partial(DiesBeforeItTells, str(tmp_path / "died"), after)
    result = counting.run(tmp_path / "run", processor)
    assert result.lost_clients
    counting.check()


def coordinator_dies(counting: Counting, run_dir: Path) -> None:
    """Run until Kafka has committed what the coordinator is about to record, and then be gone."""
    append, records = CommitLog.append, 0

    def dies(log: CommitLog, record: CommitRecord) -> None:
        nonlocal records
        records += any(task.outputs for task in record.tasks.values())
        if records == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        append(log, record)

    CommitLog.append = dies  # type: ignore[assignment,method-assign]
    counting.run(run_dir)


def test_a_coordinator_killed_between_transaction_and_record(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique)
    driver = multiprocessing.get_context("spawn").Process(target=coordinator_dies, args=(counting, tmp_path / "run"))
    driver.start()
    driver.join(300)
    assert driver.exitcode == -signal.SIGKILL
    processed = committed_rows(counting)
    recorded = sum(
        end - start
        for record in CommitLog(tmp_path / "run").records()
        for task in record.tasks.values()
        for start, end in task.offsets.values()
    )
    assert processed > recorded, "Kafka is ahead of the record"
    result = counting.run(tmp_path / "run")
    # The record is rebuilt from what Kafka says, and nothing is processed a second time.
    assert result.rows_in == counting.rows.num_rows - recorded
    counting.check()


def test_a_run_whose_folder_is_lost_goes_on_from_what_kafka_has(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique)
    first = counting.run(tmp_path / "run")
    counting.check()
    shutil.rmtree(tmp_path / "run")
    counting.add(600)
    result = counting.run(tmp_path / "other")
    counting.check()
    assert (result.rows_in, result.rows_found) == (first.rows_in + 600, first.rows_in)
    assert f"Outputs are in the topics of bootstrap.servers={counting.servers}." in str(result)
    assert {file.topic for record in result.commits.records() for task in record.tasks.values()
            for file in task.changelogs.values()} == {counting.changelog}  # fmt: skip
    # And once more, now with the record: the state comes from the changelog topic.
    shutil.rmtree(tmp_path / "other" / "clients", ignore_errors=True)
    counting.add(600)
    events: list[RunEvent] = []
    counting.run(tmp_path / "other", on_event=events.append)
    counting.check()
    # What Kafka compacts to: the last record of each key is its count.
    kept = dict(records_of(counting.servers, counting.changelog))
    assert len(kept) == len(set(counting.rows.column("key").to_pylist()))


def forget_records(counting: Counting, offsets: Callable[[int], int]) -> None:
    """Have retention take the records of the source before an offset: what it is of an offset that the group has committed."""
    group = Consumer({"bootstrap.servers": counting.servers, "group.id": counting.application_id})
    asked = [TopicPartition(counting.source, partition) for partition in range(PARTITIONS)]
    gone = [TopicPartition(each.topic, each.partition, offsets(each.offset)) for each in group.committed(asked, 60)]
    group.close()
    admin = AdminClient({"bootstrap.servers": counting.servers})
    for done in admin.delete_records(gone).values():
        done.result(60)


def test_a_run_whose_folder_is_lost_has_its_state_though_all_that_it_read_is_gone(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "run")
    forget_records(counting, lambda committed: committed)
    shutil.rmtree(tmp_path / "run")
    counting.add(400)
    counting.run(tmp_path / "other")
    counting.check()


def test_records_that_went_before_they_were_processed_are_missed_in_a_new_folder_too(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "run")
    counting.add(400)
    forget_records(counting, lambda committed: committed + 1)
    with pytest.raises(CorruptLogException, match=rf"{counting.source}, partition \d, has no offset \d+ any more"):
        counting.run(tmp_path / "other")


def test_a_client_without_state_goes_on_from_a_snapshot_and_the_changes_after_it(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """The snapshot is in the run folder, the changes are in Kafka."""
    counting = Counting(kafka_cluster, unique)
    run = tmp_path / "run"

    def wait(event: RunEvent) -> None:
        deadline = time.monotonic() + 60
        late = (
            [task for task, batch in event.batches.items() if batch >= 3] if isinstance(event, BatchesCommitted) else []
        )
        while not all(any(run.glob(f"snapshots/*/{task.partition}/*-*")) for task in late):
            assert time.monotonic() < deadline, f"no snapshots of {late}"
            time.sleep(0.005)

    options = attrs.evolve(QUICK, max_batch_rows=50, snapshot_changelog_bytes=100, checkpoint_every_commits=4)
    first = counting.run(run, options=options, on_event=wait)
    shutil.rmtree(run / "clients")
    counting.add(600)
    second = counting.run(run, options=options)
    counting.check()
    logged = sum(
        file.rows
        for record in first.commits.records()
        for task in record.tasks.values()
        for file in task.changelogs.values()
    )
    restores = [found for found in second.restores if found.role == "active"]
    assert {(found.origin, found.fetched_bytes > 0) for found in restores} == {("shared", True)}
    assert sum(found.rows for found in restores) < logged / 2, "only what came after the snapshots"


def test_changelog_topics_of_another_size_or_policy_are_refused(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    for partitions, complaint in (
        (3, f"has 3 partitions, but needs {PARTITIONS}"),
        (PARTITIONS, "has cleanup.policy=delete, but must have cleanup.policy=compact"),
    ):
        counting = Counting(kafka_cluster, unique, rows=10)
        make_topics(counting.servers, counting.changelog, partitions=partitions)
        with pytest.raises(TopicException, match=rf"{counting.changelog}' {complaint}"):
            counting.run(tmp_path / unique("run"))


class Pass(Processor):
    """Gives what it reads."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """The same rows."""
        (rows,) = batch.values()
        return rows


class Grow(Processor):
    """Gives texts of two million letters."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """A row for each."""
        (rows,) = batch.values()
        return pa.table({"k": [text * 2_000_000 for text in rows.column("k").to_pylist()]}) if rows.num_rows else None


def pass_on(
    cluster: KafkaCluster,
    source: KafkaTopic,
    output: KafkaTopic,
    values: Sequence[bytes],
    folder: Path,
    processor: type[Processor] = Pass,
    **config: Any,
) -> None:
    """Write values into a topic, whose rows are then passed on to another one, which has these settings."""
    make_topics(cluster.bootstrap_servers, source.name, partitions=1)
    make_topics(cluster.bootstrap_servers, output.name, partitions=1, config=config)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(source.name, value)
    assert producer.flush(60) == 0
    StreamsApplication(
        Topology([SubTopology("pass", source.name, processor, outputs=output.name)]),
        settings(application_id=f"pass-{source.name}"),
        topics_root=KafkaTopics({"bootstrap.servers": cluster.bootstrap_servers}, [source, output]),
        run_dir=folder,
        clients=1,
        options=QUICK,
        launcher=LocalProcessLauncher(start_method="forkserver"),
    ).run()


def test_rows_of_a_key_alone_come_back_that_of_none_too(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    schema = pa.schema([("k", pa.string())])
    source, output = unique("source"), unique("keys")
    values = [b'{"k":"a"}', b'{"k":null}', b'{"k":""}']
    in_key = KafkaTopic(output, schema, "k", key_in="key")
    pass_on(kafka_cluster, KafkaTopic(source, schema, "k"), in_key, values, tmp_path / "run")
    assert records_of(kafka_cluster.bootstrap_servers, output) == [(b"a", b"{}"), (None, b"{}"), (b"", b"{}")]
    log = KafkaTopics({"bootstrap.servers": kafka_cluster.bootstrap_servers}, [in_key]).open(output)
    assert log.fetch(0, 0, log.end_offsets()[0]).rows.column("k").to_pylist() == ["a", None, ""]


@pytest.mark.parametrize("time", ["null", '"1969-12-31T23:59:59.999Z"', '"1970-01-01T00:00:00Z"'])
def test_a_time_that_a_record_cannot_have_is_not_lost(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, time: str
) -> None:
    """Kafka would put the time of now in its place."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
    source, output = unique("source"), unique("timed")
    values = [b'{"k":"a","at":"1970-01-01T00:00:00.001Z"}', f'{{"k":"b","at":{time}}}'.encode()]
    timed = KafkaTopic(output, key="k", timestamp="at", timestamp_in="record")
    complaint = rf"A row for the output '{output}' has .* as 'at', which cannot be the time of a record"
    with pytest.raises(StreamsException, match=complaint):
        pass_on(kafka_cluster, KafkaTopic(source, schema, "k", "at"), timed, values, tmp_path / "run")
    assert records_of(kafka_cluster.bootstrap_servers, output) == []


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"cleanup.policy": "compact"}, r"\(INVALID_RECORD\)\. Maybe the topic is compacted, and a row has no key"),
        ({"max.message.bytes": "100"}, r"\(MSG_SIZE_TOO_LARGE\)\. Maybe a row is larger than the topic's max"),
        ({"message.timestamp.after.max.ms": "1"}, r"\(INVALID_TIMESTAMP\)\. Maybe a row's time is further from now"),
    ],
)
def test_what_brokers_refuse_is_not_tried_again_and_the_reason_is_said(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, config: dict[str, Any], complaint: str
) -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms", "UTC"))])
    source, output = unique("source"), KafkaTopic(unique("refused"), timestamp="at")
    values = [b'{"k":"%b","at":"2999-12-31T00:00:00Z"}' % os.urandom(300).hex().encode()]
    with pytest.raises(StreamsException, match=rf"The results of task 0_0 cannot be written: .*{complaint}") as refused:
        pass_on(kafka_cluster, KafkaTopic(source, schema, "k", "at"), output, values, tmp_path / "run", **config)
    assert "TaskMigrated" not in str(refused.value)


def test_a_row_may_be_as_large_as_its_topic_allows(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    """Librdkafka has a limit of its own, a million bytes."""
    schema = pa.schema([("k", pa.string())])
    source, output = KafkaTopic(unique("source"), schema, "k"), KafkaTopic(unique("large"), schema, "k")
    config: dict[str, Any] = {"max.message.bytes": "5000000"}
    pass_on(kafka_cluster, source, output, [b'{"k":"a"}', b'{"k":"b"}'], tmp_path / "run", Grow, **config)
    log = KafkaTopics({"bootstrap.servers": kafka_cluster.bootstrap_servers}, [output]).open(output.name)
    texts = log.fetch(0, 0, log.end_offsets()[0]).rows.column("k").to_pylist()
    assert [(text[:1], len(text)) for text in texts] == [("a", 2_000_000), ("b", 2_000_000)]


def test_a_group_with_members_is_refused(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    counting = Counting(kafka_cluster, unique, rows=10)
    member = Consumer({"bootstrap.servers": counting.servers, "group.id": counting.application_id, "client.id": "me"})
    member.subscribe([counting.source])
    wait_until(lambda: member.poll(0.1) is None and member.assignment(), "it is a member")
    with pytest.raises(
        KafkaClusterException, match=rf"The group {counting.application_id} has members \(me at 127.0.0.1"
    ):
        counting.run(tmp_path / "run")
    member.close()
    counting.run(tmp_path / "run")
    counting.check()


def test_offsets_of_one_of_two_topics_that_somebody_has_set_on_are_told(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """The records between were passed over as if they had been processed, without a word."""
    join = Join(kafka_cluster, unique, rows=100)
    join.application(tmp_path / "run", clients=1).run()
    join.add(100)
    group = Consumer({"bootstrap.servers": join.servers, "group.id": join.application_id})
    (before,) = group.committed([TopicPartition(join.right, 0)], 60)
    commit = commits_of_a_stranger(join.servers, join.application_id)
    commit([TopicPartition(join.right, 0, before.offset + 1)])
    said = rf"committed offset {before.offset + 1} of the topic {join.right}, partition 0, but this application has not done it"
    with pytest.raises(KafkaClusterException, match=said):
        join.application(tmp_path / "run", clients=1).run()
    commit([before])
    group.close()
    join.application(tmp_path / "run", clients=1).run()
    join.check()


def test_offsets_of_one_of_two_topics_that_are_gone_are_missed_where_the_folder_is_lost(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """That topic was read anew from its beginning, the other one was not."""
    join = Join(kafka_cluster, unique, rows=100)
    join.application(tmp_path / "run", clients=1).run()
    forget_offsets(join.servers, join.application_id, join.left, [0])
    join.add(100)
    said = (
        rf"The group {join.application_id} has committed offsets of {join.right}, partition 0, but none of {join.left}"
    )
    with pytest.raises(StreamsException, match=said):
        join.application(tmp_path / "other", clients=1).run()
    join.application(tmp_path / "run", clients=1).run()
    join.check()


def test_outputs_that_are_no_topics_are_named(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    counting = Counting(kafka_cluster, unique, rows=10)
    missing = unique("missing")
    for known, complaint in (
        ([KafkaTopic(missing, key="key")], rf"The topic '{missing}' does not exist in bootstrap"),
        (
            [KafkaTopic(missing, key="key")],
            rf"The outputs {missing} are topics of Kafka, but KafkaTopics says nothing of other",
        ),
    ):
        outputs = [missing] if "exist" in complaint else [missing, "other"]
        topology = Topology([SubTopology("count", counting.source, CountByKey, outputs=outputs)])
        topics = KafkaTopics({"bootstrap.servers": counting.servers}, [stream_topic(counting.source), *known])
        application = StreamsApplication(topology, settings(), topics_root=topics, run_dir=tmp_path / "run")
        with pytest.raises(TopicException, match=complaint):
            application.run()
