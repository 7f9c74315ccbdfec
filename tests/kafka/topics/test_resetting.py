"""An application begins anew under its name: what it has in Kafka besides its outputs is deleted, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import KafkaTopics
from task_assignor.runtime import BatchesCommitted, CommitLogException, RunEvent
from tests.cli.conftest import Runner, run
from tests.kafka.broker import KafkaCluster
from tests.kafka.topics.records import rows_of
from tests.kafka.topics.test_repartition import Groups
from tests.kafka.topics.test_sinks import Counting

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
__all__ = ["run"]

APP = """
from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import StreamsApplication, SubTopology, Topology
from tests.kafka.topics.records import stream_topic
from tests.runtime.support import CountByKey, count_topology, settings

(sub,) = count_topology("{source}").sub_topologies
topology = Topology([SubTopology("count", "{source}", CountByKey, stores=sub.stores, outputs="{output}")])
topics = KafkaTopics({{"bootstrap.servers": "{servers}"}}, [stream_topic("{source}"), KafkaTopic("{output}", key="key")])
application = StreamsApplication(topology, settings(application_id="{name}"), topics_root=topics, run_dir="run")
"""


def _topics(servers: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).topics)


def test_an_application_that_was_reset_begins_anew_under_its_name(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, run: Runner
) -> None:
    """Its state is empty, all is read once more, and what was written stays."""
    counting = Counting(kafka_cluster, unique, rows=400)
    counting.run(tmp_path / "first")
    text = APP.format(
        source=counting.source, output=counting.output, servers=counting.servers, name=counting.application_id
    )
    for number in range(3):  # a process reads a file once
        (tmp_path / f"counting_{number}.py").write_text(text)
    before = _topics(counting.servers)
    shown = run("reset", "counting_0.py")
    assert (shown.code, shown.err) == (0, "")
    things = [f"  the topic {counting.changelog}", f"  the offsets of the group {counting.application_id}"]
    assert shown.out.splitlines() == [
        f"To be deleted of the application {counting.application_id}:",
        *things,
        "Nothing was deleted. With --yes it is.",
    ]
    assert _topics(counting.servers) == before
    done = run("reset", "counting_1.py", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:3] == [f"Deleted of the application {counting.application_id}:", *things]
    assert before - _topics(counting.servers) == {counting.changelog}
    again = run("reset", "counting_2.py", "--yes")
    assert (again.code, again.out.splitlines()[0]) == (
        0,
        f"The application {counting.application_id} has nothing in Kafka but maybe outputs. To begin anew, give it another run_dir.",
    )
    written = len(rows_of(counting.servers, counting.output))
    assert counting.run(tmp_path / "second").rows_in == 400
    rows = rows_of(counting.servers, counting.output)
    assert len(rows) > written
    assert sum({row["key"]: row["count"] for row in rows}.values()) == 400


def test_repartition_topics_go_too_and_an_old_folder_is_refused(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    groups = Groups(kafka_cluster, unique, rows=300)
    groups.groups(tmp_path / "run").run()
    before = _topics(groups.servers)
    told = groups.groups(tmp_path / "run").reset()
    gone = before - _topics(groups.servers)
    assert groups.internal("by-key") in gone
    assert all(name.startswith(f"{groups.application_id}-") for name in gone)
    assert [*told] == [
        *(f"the topic {name}" for name in sorted(gone)),
        f"the offsets of the group {groups.application_id}",
    ]
    with pytest.raises(CommitLogException, match=r"cannot go on.* was written anew under its name.*another run_dir"):
        groups.groups(tmp_path / "run").run()
    assert groups.groups(tmp_path / "new").run().rows_in


def test_an_application_that_runs_is_not_reset(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    counting = Counting(kafka_cluster, unique, rows=400)
    has_begun = threading.Event()

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            has_begun.set()

    running = counting.application(tmp_path / "run")
    thread = threading.Thread(target=lambda: running.run(until="stopped", on_event=on_event))
    thread.start()
    try:
        assert has_begun.wait(120)
        before = _topics(counting.servers)
        other = counting.application(
            tmp_path / "other", topics_settings={"session.timeout.ms": 6_000, "bootstrap.servers": counting.servers}
        )
        with pytest.raises(
            KafkaClusterException, match=r"has members \(.*\): the application is running\. Nothing was deleted"
        ):
            other.reset()
        assert _topics(counting.servers) == before
    finally:
        running.request_stop("enough")
        thread.join(120)
    assert counting.run(tmp_path / "run").rows_in == 0


def test_nothing_is_in_kafka_of_an_application_that_writes_files(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(kafka_cluster, unique, rows=40)
    application = counting.application(tmp_path / "run")
    (source, _) = application._topics_at.topics  # type: ignore[attr-defined]
    files = application.evolve(topics_root=KafkaTopics({"bootstrap.servers": counting.servers}, [source]))
    files.run()
    assert files.reset() == ()
