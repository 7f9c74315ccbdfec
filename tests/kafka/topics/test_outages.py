"""A broker that is gone for good under tasks that read and write topics; and a stranger with their transactional id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from task_assignor.runtime import BatchesCommitted, RunEvent
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import missing
from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.topics.test_sinks import Join

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A broker of our own: others must not wait for it."""
    try:
        with KafkaCluster() as found:
            yield found
    except KafkaUnavailableError as error:
        missing(str(error))


def at_commit(number: int, what: Callable[[], object]) -> Callable[[RunEvent], None]:
    """Does something at a commit of a run."""
    commits = 0

    def watch(event: RunEvent) -> None:
        nonlocal commits
        if isinstance(event, BatchesCommitted):
            commits += 1
            if commits == number:
                what()

    return watch


def test_a_stranger_with_the_transactional_id_costs_time_and_no_rows(
    cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(cluster, unique, rows=2_000)

    def fence() -> None:
        for partition in range(4):
            stranger = Producer(
                {"bootstrap.servers": join.servers, "transactional.id": f"{join.application_id}-0_{partition}"}
            )
            stranger.init_transactions(60)

    join.application(tmp_path / "run", clients=2).run(at_commit(2, fence))
    join.check()


def test_a_broker_that_stays_away_ends_the_run(unique: Unique, tmp_path: Path) -> None:
    try:
        with KafkaCluster() as cluster:
            join = Join(cluster, unique, rows=2_000)
            application = join.application(tmp_path / "run", clients=2, topics_root=join.topics(timeout_ms=1_000))
            with pytest.raises(StreamsException, match=rf"the cluster at {join.servers} has not answered for 1 s"):
                application.run(at_commit(2, lambda: cluster.kill(0)))
    except KafkaUnavailableError as error:
        missing(str(error))
