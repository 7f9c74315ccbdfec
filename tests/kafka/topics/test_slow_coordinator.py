"""A broker that answers later than is waited for. In processes of their own: librdkafka aborted the one that had asked."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka
_ASK = """
import sys
from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.membership import Membership
from task_assignor.kafka.topics.offsets import _held_back

servers, group, topic, what = sys.argv[1:]

def of_another_client():
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers}), 60_000)
    membership = Membership(connection, group, [topic])
    return connection, {
        "members": membership._describe,
        "offsets": lambda seconds: _held_back(connection, group, [(topic, 0)], seconds),
    }[what]

connection, ask = of_another_client()
connection.ask("ask", ask)
print("asked", flush=True)
sys.stdin.readline()
# It looks for the coordinator first, and gives up before it knows.
connection, ask = of_another_client()
for _ in range(2):
    try:
        ask(0.5)
    except Exception:
        pass
print("gave up", flush=True)
sys.stdin.readline()
connection.ask("ask", ask)
print("lives", flush=True)
"""


@pytest.mark.parametrize("what", ["members", "offsets"])
def test_an_answer_of_a_coordinator_that_comes_late_ends_nobody(
    kafka_cluster: KafkaCluster, unique: Unique, what: str
) -> None:
    topic, group = unique("topic"), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    command = [sys.executable, "-c", _ASK, kafka_cluster.bootstrap_servers, group, topic, what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asked\n"
        kafka_cluster.send(0, signal.SIGSTOP)
        try:
            print(file=asking.stdin, flush=True)
            assert asking.stdout.readline() == "gave up\n"
        finally:
            kafka_cluster.send(0, signal.SIGCONT)
        print(file=asking.stdin, flush=True)
        assert asking.stdout.readline() == "lives\n"
    assert asking.returncode == 0
