"""Fixtures that give a test a real broker; `tests/conftest.py` makes them known to all tests."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.kafka.broker import KafkaCluster
from tests.kafka.jars import KafkaUnavailableError

WAIT_SECONDS = 90
Unique = Callable[[str], str]
"""What the fixture `unique` gives."""
_names = itertools.count(1)


def missing(reason: str) -> None:
    """Skip the test, or fail it where REQUIRE_KAFKA=1 says that nothing may be missing."""
    if os.environ.get("REQUIRE_KAFKA", "") not in ("", "0"):
        pytest.fail(f"REQUIRE_KAFKA is set, and this test {reason}")
    pytest.skip(reason)


def _running(racks: Sequence[str | None]) -> Iterator[KafkaCluster]:
    try:
        cluster = KafkaCluster(racks).__enter__()
    except KafkaUnavailableError as error:
        missing(str(error))
        raise
    yield cluster
    cluster.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """One broker for all tests of the session: topics and groups need names of their own, see `unique`."""
    yield from _running([None])


@pytest.fixture(scope="session")
def rack_cluster() -> Iterator[KafkaCluster]:
    """Three brokers in the racks a, b and c, for all tests of the session."""
    yield from _running(["a", "b", "c"])


@pytest.fixture
def unique() -> Unique:
    """Makes a name of a topic or a group that no other test of the session uses."""
    return lambda name: f"{name}-{next(_names)}"


def make_topics(
    servers: str,
    *names: str,
    partitions: int,
    replicas: int = 1,
    brokers: list[list[int]] | None = None,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create topics, each partition on so many brokers or on the given ones, and wait until all brokers know them."""
    admin = pytest.importorskip("confluent_kafka.admin")
    where = {"replication_factor": replicas} if brokers is None else {"replica_assignment": brokers}
    wanted = [admin.NewTopic(name, partitions, config=dict(config or {}), **where) for name in names]
    # By a name of its own: what nobody refers to is closed, and what it was asked for fails.
    client = admin.AdminClient({"bootstrap.servers": servers})
    for created in client.create_topics(wanted).values():
        created.result(60)

    def is_known(server: str) -> bool:
        # What a new client asks first is asked of that broker. The controller has answered before the brokers know.
        found = admin.AdminClient({"bootstrap.servers": server}).list_topics(timeout=60).topics
        return all(name in found and len(found[name].partitions) == partitions for name in names)

    wait_until(lambda: all(map(is_known, servers.split(","))), "all brokers know the topics")


def wait_until(holds: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Ask again and again until something holds; for what has no event to wait for.

    Raises:
        AssertionError: it does not within so many seconds.
    """
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
