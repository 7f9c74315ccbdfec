"""Sub-topologies that read a topic of Kafka together: one transaction of a task has the rows of all."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    CommitLogException,
    LocalProcessLauncher,
    RunResult,
    StreamsApplication,
    Topology,
    WindowedJoin,
)
from task_assignor.runtime.folder_claim import FolderClaim
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import killer, rows_of, stream_topic, write_streams_to_kafka
from tests.kafka.topics.test_sinks import Join, Unique
from tests.runtime.support import AFTER_MS, BEFORE_MS, QUICK, count_topology, settings

pytestmark = pytest.mark.kafka


class JoinAndCount(Join):
    """Beside the join a count of what it reads, in a topic of its own."""

    def __init__(self, cluster: KafkaCluster, unique: Unique) -> None:
        super().__init__(cluster, unique)
        self.counts = unique("counts")
        make_topics(self.servers, self.counts, partitions=3)

    def both(self, run_dir: Path) -> StreamsApplication:
        """The application with both."""
        pairs = WindowedJoin(left=self.left, right=self.right, before_ms=BEFORE_MS, after_ms=AFTER_MS)
        rows = Aggregation(source=self.left, aggregates={"rows": Aggregate.count()})
        topics = self.topics(KafkaTopic(self.counts, key="key"))
        topology = Topology(
            [
                pairs.sub_topology("join", output=self.joined),
                rows.sub_topology("count", output=self.counts, topics=[topics.open(self.left).spec]),
            ]
        )
        return StreamsApplication(
            topology,
            settings(application_id=self.application_id, num_standby_replicas=1),
            topics_root=topics,
            run_dir=run_dir,
            clients=3,
            options=QUICK,
            launcher=LocalProcessLauncher(start_method="forkserver"),
        )


def test_a_join_and_a_count_of_one_topic_are_both_exact_with_a_killed_client(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = JoinAndCount(kafka_cluster, unique)
    result = join.both(tmp_path / "run").run(killer(after_commits=3))
    assert result.lost_clients
    assert {task.subtopology for record in result.commits.records() for task in record.tasks} == {0}
    join.check()
    left = join.tables[0].column("key").to_pylist()
    # A key is in one partition, and its newest row is its last there.
    assert {row["key"]: row["rows"] for row in rows_of(join.servers, join.counts)} == {
        key: left.count(key) for key in left
    }


def test_a_count_that_comes_to_a_topic_later_needs_another_application_id(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """It would count from where the group has committed, whatever the folder of the run is."""
    join = JoinAndCount(kafka_cluster, unique)
    join.application(tmp_path / "run").run()
    join.add(300)
    with pytest.raises(CommitLogException, match=r"Maybe use another run_dir, .* with another application.id"):
        join.both(tmp_path / "run").run()
    with pytest.raises(
        StreamsException, match=r"when there was no store count.*Maybe the topology has gained it since"
    ):
        join.both(tmp_path / "other").run()


def test_outputs_stay_where_they_began(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run went on, with some rows in files and the others in Kafka, and the changes of its stores, too."""
    servers, source, totals = kafka_cluster.bootstrap_servers, unique("source"), unique("totals")
    write_streams_to_kafka(servers, source, unique("other"), 100, 10, 0)
    nothing = unique("nothing")
    make_topics(servers, totals, nothing, partitions=1)

    def run(folder: str, *topics: KafkaTopic, reads: str = source) -> RunResult:
        counted = count_topology(reads).sub_topologies[0]
        topology = Topology([attrs.evolve(counted, outputs=[attrs.evolve(counted.outputs[0], name=totals)])])
        return StreamsApplication(
            topology,
            settings(application_id=f"{totals}-{folder}"),
            topics_root=KafkaTopics({"bootstrap.servers": servers}, [stream_topic(reads), *topics]),
            run_dir=tmp_path / folder,
            clients=1,
            options=QUICK,
            launcher=LocalProcessLauncher(start_method="forkserver"),
        ).run()

    assert run("files").rows_in == 100
    with pytest.raises(
        CommitLogException, match=r'place of the outputs: is "topics of Kafka", was not there.*stay where'
    ):
        run("files", KafkaTopic(totals))
    # A folder of a version that did not write it down goes on where its outputs are.
    with monkeypatch.context() as former:
        former.setattr(FolderClaim, "_has_results", False)
        assert run("kafka", KafkaTopic(totals)).rows_in >= 100
        assert run("no-rows", KafkaTopic(totals), reads=nothing).rows_in == 0
    assert run("no-rows", KafkaTopic(totals), reads=nothing).rows_in == 0
    assert run("kafka", KafkaTopic(totals)).rows_in == 0
    with pytest.raises(CommitLogException, match=r'place of the outputs: was "topics of Kafka", is gone.*stay where'):
        run("kafka")
