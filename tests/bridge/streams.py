"""A real Kafka Streams application in Java, one process per instance, and what it says of itself."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs
import pytest

from task_assignor.bridge import jar_path
from task_assignor.bridge.keys import PREFIX, PYTHON_CLASS
from tests.bridge.jar import compile_java
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, missing, wait_until
from tests.kafka.jars import JVM_OPTIONS, KafkaUnavailableError, class_path, java_command, run_tool

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = Path(__file__).parent / "java"
# Where instances leave without a word, the group learns of it after this.
SESSION_MS: Final = 6_000


def compiled(folder: Path, version: str | None = None) -> str:
    """Class path with the applications in `java/`, compiled into `folder`, the bridge and a release of Kafka."""
    libraries = f"{jar_path()}{os.pathsep}{class_path(version)}"
    compile_java(list(SOURCES.glob("*.java")), folder, libraries)
    return f"{folder}{os.pathsep}{libraries}"


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Class path of the applications in `java/`, see `compiled`."""
    try:
        return compiled(tmp_path_factory.mktemp("classes"))
    except KafkaUnavailableError as error:
        missing(str(error))
        raise


def python_decides(*command: str, assignor: str = "sticky", **more: object) -> dict[str, object]:
    """The settings that let a Python assignor decide; `more` with underscores for dots."""
    words = command or (sys.executable, "-m", "task_assignor", "bridge", "serve")
    own = {f"{PREFIX}{key.replace('_', '.')}": value for key, value in more.items()}
    return {
        "task.assignor.class": PYTHON_CLASS,
        f"{PREFIX}class": assignor,
        f"{PREFIX}command": shlex.join(words),
        f"{PREFIX}timeout.ms": 60_000,
        f"{PREFIX}retry.ms": 1_000,
        **own,
    }


def resident_bytes(pid: int) -> int:
    """What a process has in memory."""
    listed = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    return int(listed) * 1024


class Instance:
    """One process of the application."""

    def __init__(self, command: list[str], name: str, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=folder,
            env=environment,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def has_ended(self) -> bool:
        """The JVM is gone."""
        return self._process.poll() is not None

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def all(self, pattern: str) -> list[str]:
        """The lines in which a regular expression is found."""
        return [line for line in list(self.lines) if re.search(pattern, line)]

    def _tasks(self) -> tuple[str, list[str], list[str]]:
        lines = self.all("^TASKS ")
        if not lines:
            return "", [], []
        _, state, active, standby, _ = lines[-1].split(" ")
        return state, [one for one in active.split(",") if one], [one for one in standby.split(",") if one]

    @property
    def state(self) -> str:
        """Kafka's name of it."""
        return self._tasks()[0]

    @property
    def active(self) -> list[str]:
        """Ids of the tasks that it processes."""
        return self._tasks()[1]

    @property
    def standby(self) -> list[str]:
        """Ids of the tasks that it has copies of."""
        return self._tasks()[2]

    def tell(self, command: str) -> None:
        """Give a command, see StreamsApp.java."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def metrics(self) -> dict[str, float]:
        """The numbers that JMX shows."""
        before = len(self.all("^JMX "))
        self.tell("jmx")
        wait_until(lambda: len(self.all("^JMX .* [.]$")) > before, f"metrics of {self.name}")
        pairs = (one.split("=") for one in self.all("^JMX ")[-1].split() if "=" in one)
        return {name: float(value) for name, value in pairs}

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()

    def children(self) -> list[int]:
        """Ids of the processes below it."""
        listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        parents: dict[int, int] = {int(pid): int(parent) for pid, parent in map(str.split, listed.splitlines())}
        found = {self.pid}
        while len(more := found | {pid for pid, parent in parents.items() if parent in found}) > len(found):
            found = more
        return sorted(found - {self.pid})


@attrs.define
class StreamsGroup:
    """The instances of one application with topics of its own; a context manager that ends them all.

    Args:
        cluster: the brokers.
        name: application id.
        folder: for the state of the instances.
        java: class path, see `compiled`.
        tasks: partitions of both topics.
        standbys: `num.standby.replicas`.
        settings: more settings of every instance.
        current_folder: where the instances run.
        times: when the group notices what; the streams protocol knows them on the brokers alone.
        replica_brokers: ids of the brokers that have a replica, by partition of the topics; None: all of them.
    """

    cluster: KafkaCluster
    name: str
    folder: Path
    java: str
    tasks: int = 6
    standbys: int = 1
    settings: Mapping[str, object] = attrs.field(factory=dict)
    current_folder: Path = ROOT
    times: Mapping[str, object] = attrs.field(
        factory=lambda: {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
    )
    replica_brokers: list[list[int]] | None = None
    instances: dict[str, Instance] = attrs.field(factory=dict, init=False)
    rows: int = attrs.field(default=0, init=False)

    def __enter__(self) -> Self:
        """Create the topics."""
        names = (f"{self.name}-{topic}" for topic in ("left", "right", "joined"))
        make_topics(
            self.cluster.bootstrap_servers,
            *names,
            partitions=self.tasks,
            replicas=len(self.cluster.racks),
            brokers=self.replica_brokers,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all instances; where the test failed, show what they said."""
        if kind is not None:
            for instance in self.instances.values():
                sys.stderr.write(f"---- {instance.name}\n" + "\n".join(instance.lines[-60:]) + "\n")
        for instance in self.instances.values():
            instance.kill()

    def start(self, name: str, settings: Mapping[str, object] | None = None) -> Instance:
        """Start an instance; one that had the name must have ended."""
        all_settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "application.id": self.name,
            "client.id": name,
            "state.dir": self.folder / f"{self.name}-{name}",
            "num.standby.replicas": self.standbys,
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 100,
            "replication.factor": len(self.cluster.racks),
            **self.times,
            "left": f"{self.name}-left",
            "right": f"{self.name}-right",
            "joined": f"{self.name}-joined",
            **self.settings,
            **(settings or {}),
        }
        command = [java_command(), *JVM_OPTIONS, "-Xmx160m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["-Dorg.slf4j.simpleLogger.log.taskassignor=info", "-cp", self.java, "StreamsApp"]
        # As where the package is installed: its command is on the path.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}
        command += [f"{key}={value}" for key, value in all_settings.items()]
        instance = Instance(command, name, self.current_folder, environment)
        self.instances[name] = instance
        return instance

    def describe(self) -> str:
        """What the application prints of its topology."""
        topics = [f"{topic}={self.name}-{topic}" for topic in ("left", "right", "joined")]
        return run_tool([java_command(), *JVM_OPTIONS, "-cp", self.java, "StreamsApp", *topics, "describe=only"])

    def running(self) -> list[Instance]:
        """The instances that have not ended."""
        return [one for one in self.instances.values() if not one.has_ended]

    def wait_until_settled(self) -> None:
        """Wait until all instances run, every task is active once, and has its standbys."""
        wait_until(self._is_settled, f"every task has an owner and standbys: {len(self.running())} instances")

    def _is_settled(self) -> bool:
        running = self.running()
        active = sorted(task for one in running for task in one.active)
        standbys = sum(len(one.standby) for one in running)
        wanted = self.tasks * min(self.standbys, len(running) - 1)
        ids = sorted(f"0_{partition}" for partition in range(self.tasks))
        return active == ids and standbys == wanted and all(one.state == "RUNNING" for one in running)

    def feed(self, count: int) -> None:
        """Write so many pairs of records with equal keys, evenly over the partitions.

        Let the group settle before the first ones, and have them joined before tasks move: Kafka Streams (4.3.1) takes a task that
        moves with a store on disk of which it knows no offset yet for corrupted, and with it aborts what the other tasks of its thread
        have not committed, without processing that again. Rows are lost then, whoever assigns.
        """
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers})
        for row in range(self.rows, self.rows + count):
            for side in ("left", "right"):
                producer.produce(f"{self.name}-{side}", key=f"k{row}", value=side[0], partition=row % self.tasks)
        assert producer.flush(60) == 0
        self.rows += count

    def expect_all_rows_once(self) -> None:
        """Wait until every pair was joined, and see that none was twice."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        topic = f"{self.name}-joined"
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(self.tasks)])
        keys: list[str] = []

        def all_there() -> bool:
            keys.extend(_keys(consumer.consume(1000, timeout=0.2)))
            return len(keys) >= self.rows

        wait_until(all_there, f"{self.rows} joined rows")
        # What was written twice would be there by now, or be of the same transaction.
        keys.extend(_keys(consumer.consume(1000, timeout=0.2)))
        consumer.close()
        assert sorted(keys) == sorted(f"k{row}" for row in range(self.rows))

    def expect_no_thread_lost(self) -> None:
        """No instance ever reported an exception."""
        assert [line for one in self.instances.values() for line in one.all("THREAD DIED")] == []


def _keys(messages: Iterable[Any]) -> list[str]:
    for message in messages:
        assert message.error() is None, message.error()
    return [message.key().decode() for message in messages]
