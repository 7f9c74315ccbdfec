"""A real Kafka cluster (KRaft) on loopback for tests and for `make broker`: one broker per rack, from the released jars.

Environment:
    KAFKA_VERSION: the release of its brokers, for example 3.9.1, in place of that in pom.xml, which all other Java is.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kafka.jars import JVM_OPTIONS, KafkaUnavailableError, class_path, default_version, java_command
from tests.processes import Server

VERSION: Final = os.environ.get("KAFKA_VERSION") or None
START_SECONDS: Final = 120
STOP_SECONDS: Final = 10
_ADDRESS_TAKEN: Final = "Address already in use"
# ApiVersions, version 0: the smallest request. A port that accepts connections says little, an answer to this says: ready.
_API_VERSIONS: Final = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
_SETTINGS: Final = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    # Rows of tests are of 1970: retention, which goes by the time of records, would take them within half a minute.
    "log.retention.ms": "-1",
    "controlled.shutdown.enable": "false",
    # Groups form at once, and members that die are noticed soon.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Everything that Kafka keeps three times in production, once; and few of each.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # The default is a buffer of 128 MB.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.cleaner.io.buffer.size": str(64 << 10),
    # What can be compacted is looked for at once.
    "log.cleaner.backoff.ms": "100",
}


class BrokerFailedError(Exception):
    """A broker ended or did not become ready; the message has the end of its log."""


class KafkaCluster:
    """A cluster to be used as a context manager; its data is deleted at the end.

    Attributes:
        format_options: more options of Kafka's command that formats the folders of data.

    Args:
        racks: one broker per entry, in that rack; None: in no rack. The first one is the controller, too.
        settings: more settings of all brokers, over those that make a small cluster quick.
        heap: heap of each broker, as `-Xmx` takes it.
        port: port of the first broker; 0: a free one.
        version: release of the brokers; None: that of pom.xml.

    Raises:
        KafkaUnavailableError: there is no Java, or there are no jars.
        BrokerFailedError: a broker does not become ready within two minutes.
    """

    format_options: Sequence[str] = ()

    def __init__(
        self,
        racks: Sequence[str | None] = (None,),
        settings: Mapping[str, str] | None = None,
        heap: str = "256m",
        port: int = 0,
        version: str | None = VERSION,
    ) -> None:
        self.racks = tuple(racks)
        self._settings = dict(settings or {})
        self._heap = heap
        self._version = version
        self._port = port
        self._ports: list[int] = []
        self._brokers: list[Server] = []
        self._folder = Path()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def log(self, broker: int = 0) -> str:
        """What a broker has logged (warnings and errors)."""
        path = self._folder / f"broker-{broker}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        """Start all brokers and wait until each of them answers."""
        attempts = 1 if self._port else 3
        for attempt in range(attempts):
            try:
                self._start()
            except BrokerFailedError as error:
                self._stop()
                # A port that was free may be taken by the time the broker wants it.
                if _ADDRESS_TAKEN not in str(error) or attempt == attempts - 1:
                    raise
            except BaseException:
                self._stop()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all brokers and delete their data."""
        self._stop()

    def kill(self, broker: int) -> None:
        """End a broker as a power cut would."""
        self._brokers[broker].kill()
        self._brokers[broker].wait()

    def send(self, broker: int, number: signal.Signals) -> None:
        """Send a signal to a broker."""
        self._brokers[broker].send_signal(number)

    def restart(self, broker: int) -> None:
        """Start a broker that was killed, with its data and on its port, and wait until it answers."""
        self._brokers[broker] = self._launch(broker)
        self._await_ready(broker, time.monotonic() + START_SECONDS)

    def restart_without(self, broker: int, *partitions: str) -> None:
        """Kill a broker and start it again without what it has of partitions (`<topic>-<number>`), as if it had lost that."""
        self.kill(broker)
        for partition in partitions:
            shutil.rmtree(self._folder / f"data-{broker}" / partition)
        self.restart(broker)

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="task-assignor-kafka-"))
        *self._ports, controller = _free_ports(len(self.racks) + 1)
        if self._port:
            self._ports[0] = self._port
        cluster = cluster_id(uuid.uuid4().bytes)
        formatting = []
        for broker in range(len(self.racks)):
            file = self._properties(broker)
            settings = self._broker_settings(broker, controller)
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            command = self._java(
                "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file), *self.format_options
            )
            formatting.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            )
        for process in formatting:
            printed = process.communicate(timeout=START_SECONDS)[0]
            if process.returncode:
                raise BrokerFailedError(f"kafka.tools.StorageTool failed: {printed.decode(errors='replace')[-2000:]}")
        self._brokers = [self._launch(broker) for broker in range(len(self.racks))]
        end = time.monotonic() + START_SECONDS
        for broker in range(len(self.racks)):
            self._await_ready(broker, end)

    def _broker_settings(self, broker: int, controller: int) -> dict[str, str]:
        listener = f"PLAINTEXT://127.0.0.1:{self._ports[broker]}"
        settings = _SETTINGS | {
            "node.id": str(broker + 1),
            "process.roles": "broker" if broker else "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": listener if broker else f"{listener},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listener,
            "log.dirs": str(self._folder / f"data-{broker}"),
        }
        rack = self.racks[broker]
        return settings | ({"broker.rack": rack} if rack else {}) | self._settings

    def _properties(self, broker: int) -> Path:
        return self._folder / f"broker-{broker}.properties"

    def _java(self, *arguments: str) -> list[str]:
        logging = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
        return [
            java_command(),
            *JVM_OPTIONS,
            f"-Xmx{self._heap}",
            *logging,
            "-cp",
            class_path(self._version),
            *arguments,
        ]

    def _launch(self, broker: int) -> Server:
        command = self._java("kafka.Kafka", str(self._properties(broker)))
        with (self._folder / f"broker-{broker}.log").open("ab") as log:
            return Server(command, log, self._folder)

    def _await_ready(self, broker: int, end: float) -> None:
        process = self._brokers[broker]
        while not _answers(self._ports[broker]):
            try:
                code = process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                if time.monotonic() < end:
                    continue
                problem = f"is not ready after {START_SECONDS} s"
            else:
                problem = f"ended with exit code {code}"
            raise BrokerFailedError(f"broker {broker} {problem}; the end of its log:\n{self.log(broker)[-3000:]}")

    def _stop(self) -> None:
        for process in self._brokers:
            process.send_signal(signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for process in self._brokers:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._brokers = []
        shutil.rmtree(self._folder, ignore_errors=True)


def cluster_id(data: bytes) -> str:
    """The id of a cluster in Kafka's form; it never starts with `-`, which the command line would take for an option."""
    return base64.urlsafe_b64encode(bytes([data[0] & 0x7F]) + data[1:]).decode().rstrip("=")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster until it is interrupted."""
    parser = argparse.ArgumentParser(
        prog="make broker ARGS=...", description="A Kafka cluster on loopback to play with."
    )
    parser.add_argument(
        "--brokers", type=int, default=1, help="so many, in racks a, b, c, ... (default: 1, in no rack)"
    )
    parser.add_argument("--port", type=int, default=9092, help="port of the first one; 0: a free one (default: 9092)")
    options = parser.parse_args(arguments)
    racks = [None] if options.brokers == 1 else [chr(ord("a") + broker) for broker in range(options.brokers)]
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    sys.stdout.write(
        f"Starting Apache Kafka {VERSION or default_version()} (the first time Maven fetches 120 MB) ...\n"
    )
    try:
        with KafkaCluster(racks, {"auto.create.topics.enable": "true"}, port=options.port) as cluster:
            sys.stdout.write(f"bootstrap.servers={cluster.bootstrap_servers}\nCtrl-C stops it and deletes its data.\n")
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (KafkaUnavailableError, BrokerFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
