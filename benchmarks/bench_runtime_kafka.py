"""Jobs that read topics of Kafka and write one, exactly once: ours and the same in Kafka Streams, in turn, on a broker of their own.

What is timed is the whole process, from its start until the group has committed the ends of all sources. Then rows come as
they do in production, and the time of each result is measured: from when the younger of its rows was produced until a reader of what is committed
has it. Both have their defaults, two processing threads (two clients of one each here), and JSON. More figures: `python -m
benchmarks.bench_runtime_kafka --rows 1000000 --rate 5000`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.case import Case, Facts, Goal, Timed, Work
from benchmarks.machine import used_by_tree

ROWS, RATE, SECONDS = 1_000_000, 5_000, 20
PARTITIONS, THREADS, KEYS = 8, 2, 100_000
WINDOW_MS, GRACE_MS = 5_000, 1_000
BEGIN: Final = 0.25
"""Results of so much of the time at the beginning are not counted: everything starts then."""
SOURCES, RESULTS = ("left", "right"), "results"
JOBS = ("copy", "join")
_LOOK_S, _STARTED_S, _LONGEST_S = 0.05, 6.0, 900.0
_SPAWN: Final = multiprocessing.get_context("spawn")


@attrs.frozen
class Outcome:
    """What a run to the end gave.

    Args:
        seconds: from the start of the process until everything is committed.
        cpu: processor seconds of the process and its children.
        results: committed rows of the output.
    """

    seconds: float
    cpu: float
    results: int


@attrs.frozen
class Latencies:
    """What a run under load gave.

    Args:
        ms: (N,) sorted; of each result.
        cores: processors that the process and its children used meanwhile, on average.
    """

    ms: Any
    cores: float

    def quantile(self, share: float) -> float:
        """So many of the results were there within these ms."""
        return float(self.ms[int((len(self.ms) - 1) * share)])


def cases(is_quick: bool = False) -> list[Case]:
    """Both jobs to the end; results under load are for the command, since they take half a minute however soon they come."""
    rows = 2_000 if is_quick else ROWS
    common: dict[str, Any] = {"needs": ("confluent_kafka", "pyarrow"), "is_heavy": True}
    found = []
    for job in JOBS:
        for who in (_STREAMS, _OURS):
            found += [
                Case(
                    f"topics/{job}, to the end, {who}",
                    partial(_prepare, who, job, rows),
                    describe=_describe,
                    against=f"topics/{job}, to the end, {_STREAMS}" if who == _OURS else None,
                    amount=(rows * _sources_of(job), "rows"),
                    goal=Goal(times_faster=1) if who == _OURS else None,
                    **common,
                ),
            ]
    return found


_OURS, _STREAMS = "ours", "Kafka Streams"


def _describe(outcome: Outcome) -> Facts:
    return {"CPU s": round(outcome.cpu, 1), "results": outcome.results}


def _prepare(who: str, job: str, rows: int) -> Work:
    def work() -> Timed:
        outcome = to_the_end(who, job, rows)
        return Timed(outcome.seconds, outcome)

    return work


def _sources_of(job: str) -> int:
    return len(SOURCES) if job == "join" else 1


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("key", pa.int64()), ("at", pa.int64()), ("n", pa.int64())])


@contextmanager
def _broker(partitions: int) -> Iterator[str]:
    """A broker with empty topics of so many partitions; gives its address."""
    from tests.kafka.broker import KafkaCluster
    from tests.kafka.fixtures import make_topics

    with KafkaCluster([None], heap="1g") as cluster:
        make_topics(cluster.bootstrap_servers, *SOURCES, RESULTS, partitions=partitions)
        yield cluster.bootstrap_servers


# The jobs.


@attrs.frozen
class _Job:
    """A process that does a job.

    Args:
        pid: the process.
        lives: it has not ended.
        stop: end it.
    """

    pid: int
    lives: Callable[[], bool]
    stop: Callable[[], None]

    def check(self) -> None:
        """Raise SystemExit if it has ended by itself."""
        if not self.lives():
            raise SystemExit("The job has ended: there is nothing to measure.")


@contextmanager
def _running(who: str, job: str, servers: str, *, window_ms: int, grace_ms: int, ends: bool) -> Iterator[_Job]:
    """A job in a process of its own; `ends`: ours ends with what is there, as Kafka Streams cannot."""
    with tempfile.TemporaryDirectory(prefix="task-assignor-bench-") as folder:
        if who == _STREAMS:
            running = _streams(job, servers, window_ms, grace_ms, folder)
        else:
            running = _ours(job, servers, window_ms, grace_ms, folder, ends)
        try:
            yield running
        finally:
            running.stop()


def _streams(job: str, servers: str, window_ms: int, grace_ms: int, folder: str) -> _Job:
    from tests.kafka.jars import class_path, java_command

    command = [java_command(), "-Xmx2g", "-cp", class_path(), str(Path(__file__).parent / "java" / "StreamsJob.java")]
    arguments = [servers, "bench", job, str(THREADS), str(window_ms), str(grace_ms), folder]
    process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def stop() -> None:
        process.communicate(timeout=60)

    return _Job(process.pid, lambda: process.poll() is None, stop)


def _ours(job: str, servers: str, window_ms: int, grace_ms: int, folder: str, ends: bool) -> _Job:
    over = _SPAWN.Event()
    process = _SPAWN.Process(target=_run, args=(job, servers, window_ms, grace_ms, folder, ends, over))
    process.start()
    assert process.pid is not None

    def stop() -> None:
        over.set()
        process.join(60)

    return _Job(process.pid, process.is_alive, stop)


def _run(job: str, servers: str, window_ms: int, grace_ms: int, folder: str, ends: bool, over: Event) -> None:
    """The process of ours."""
    from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
    from task_assignor.runtime import Processor, StreamsApplication, SubTopology, Topology, WindowedJoin
    from task_assignor.sdk import StreamsConfig

    class Copying(Processor):
        def process_batch(self, batch: Any, context: Any) -> Any:  # noqa: ARG002
            return batch[SOURCES[0]]

    join = WindowedJoin(
        left=SOURCES[0],
        right=SOURCES[1],
        before_ms=window_ms,
        after_ms=window_ms,
        left_grace_ms=grace_ms,
        right_grace_ms=grace_ms,
    )
    copy = SubTopology("copy", SOURCES[:1], Copying, outputs=(RESULTS,))
    topics = [KafkaTopic(name, _schema(), "key", "at") for name in SOURCES[: _sources_of(job)]]
    application = StreamsApplication(
        Topology([join.sub_topology("join", RESULTS) if job == "join" else copy]),
        StreamsConfig({"application.id": "bench", "task.assignor.class": "sticky"}),
        topics_root=KafkaTopics({"bootstrap.servers": servers}, [*topics, KafkaTopic(RESULTS, key="key")]),
        run_dir=folder,
        clients=THREADS,
    )

    def wait() -> None:
        over.wait()
        application.request_stop("measured")

    threading.Thread(target=wait, daemon=True).start()
    application.run(until="available_now" if ends else "stopped")


# To the end.


def to_the_end(who: str, job: str, rows: int, partitions: int = PARTITIONS) -> Outcome:
    """Rows of each source that are there already, until all is committed."""
    with _broker(partitions) as servers:
        for seed, name in enumerate(SOURCES[: _sources_of(job)]):
            _write(servers, name, rows, seed, partitions)
        begin = time.perf_counter()
        window_ms = max(rows // 20, 1)
        with _running(who, job, servers, window_ms=window_ms, grace_ms=0, ends=True) as running:
            cpu = _await(servers, running, rows * _sources_of(job), begin)
            seconds = time.perf_counter() - begin
        return Outcome(seconds, cpu, _count(servers))


def _write(servers: str, topic: str, rows: int, seed: int, partitions: int) -> None:
    import numpy as np
    import pyarrow as pa
    from confluent_kafka import Producer

    from task_assignor.kafka.topics import JsonSerde
    from task_assignor.runtime.arrow.keys import partitions_of

    random = np.random.default_rng(seed)
    ids = random.integers(0, KEYS, rows)
    table = pa.table({"key": ids, "at": np.arange(rows) + 1_700_000_000_000, "n": np.arange(rows)}, schema=_schema())
    keys, places = _keys(ids), partitions_of(table, ["key"], partitions).tolist()
    producer = Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 10_000_000}
    )
    times = table.column("at").to_pylist()
    for value, key, place, at in zip(JsonSerde().serialize(table), keys, places, times, strict=True):
        producer.produce(topic, value, key, partition=place, timestamp=at)
    if producer.flush(_LONGEST_S):
        raise SystemExit("The broker does not take the rows.")


def _keys(ids: Any) -> list[bytes]:
    """As Kafka's LongSerializer has them."""
    data = ids.astype(">i8").tobytes()
    return [data[start : start + 8] for start in range(0, len(data), 8)]


def _await(servers: str, running: _Job, rows: int, begin: float) -> float:
    """Until the group has committed so many rows; gives the processor seconds that this took."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    cpu = 0.0
    while time.perf_counter() < begin + _LONGEST_S:
        time.sleep(_LOOK_S)
        # A thread may end while it is looked at.
        with suppress(OSError):
            cpu = used_by_tree(running.pid)
        with suppress(KafkaException):
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("bench")])
            found = asked["bench"].result(60).topic_partitions
            if sum(max(each.offset, 0) for each in found) >= rows:
                return cpu
        running.check()
    raise SystemExit(f"Not everything is committed after {_LONGEST_S:g} s.")


def _count(servers: str) -> int:
    from tests.kafka.topics.records import records_of

    return len(records_of(servers, RESULTS))


# Under load.


def under_load(who: str, job: str, rate: int, seconds: float, partitions: int = PARTITIONS) -> Latencies:
    """So many rows a second of all sources together, for so long."""
    import numpy as np

    with (
        _broker(partitions) as servers,
        _running(who, job, servers, window_ms=WINDOW_MS, grace_ms=GRACE_MS, ends=False) as running,
        tempfile.TemporaryDirectory(prefix="task-assignor-bench-") as folder,
    ):
        over = _SPAWN.Event()
        file = Path(folder, "latencies.npy")
        reader = _SPAWN.Process(target=_read, args=(servers, file, partitions, over), daemon=True)
        writer: BaseProcess = _SPAWN.Process(
            target=_produce, args=(servers, job, rate, seconds, partitions), daemon=True
        )
        reader.start()
        time.sleep(_STARTED_S)
        used, begin = used_by_tree(running.pid), time.time()
        writer.start()
        writer.join()
        cores = (used_by_tree(running.pid) - used) / (time.time() - begin)
        running.check()
        time.sleep(_STARTED_S)
        over.set()
        reader.join()
        found = np.load(file)
    counted = found[found[:, 0] > found[0, 0] + seconds * BEGIN * 1000]
    return Latencies(np.sort(counted[:, 1]), cores)


def _produce(servers: str, job: str, rate: int, seconds: float, partitions: int) -> None:
    """The writer: its own process."""
    import numpy as np
    import pyarrow as pa
    from confluent_kafka import Producer

    from task_assignor.runtime.arrow.keys import partitions_of

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    ids = np.arange(2 * rate)
    keys, places = _keys(ids), partitions_of(pa.table({"key": ids}), ["key"], partitions).tolist()
    random, sources = np.random.default_rng(0), itertools.cycle(SOURCES[: _sources_of(job)])
    begin, written = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        due = int(rate * passed)
        for number, key in enumerate(random.integers(0, len(ids), due - written).tolist(), written):
            at = round(time.time() * 1000)
            value = b'{"key":%d,"at":%d,"n":%d}' % (key, at, number)
            producer.produce(next(sources), value, keys[key], partition=places[key], timestamp=at)
        written = due
        producer.poll(0.01)
    producer.flush(60)


def _read(servers: str, file: Path, partitions: int, over: Event) -> None:
    """The reader of results: its own process; writes when each came, and how long it took, in ms."""
    import numpy as np
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(RESULTS, partition, 0) for partition in range(partitions)])
    found = []
    while not over.is_set():
        for message in consumer.consume(10_000, 0.02):
            if message.error() is None:
                now, row = time.time() * 1000, json.loads(message.value() or b"{}")
                found.append((now, now - max(row["at"], row.get("at_right", 0))))
    consumer.close()
    np.save(file, np.array(found))


def main() -> None:
    """More figures than the table has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=ROWS, help="of each source that are there already; 0: not that")
    parser.add_argument("--rate", type=int, default=RATE, help="rows a second of all sources; 0: not that")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--who", nargs="+", default=[_OURS, _STREAMS], choices=(_OURS, _STREAMS))
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help="of each topic: as many tasks")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    for job, who, _ in itertools.product(given.jobs, given.who, range(given.repeat)):
        if given.rows:
            done = to_the_end(who, job, given.rows, given.partitions)
            rows = given.rows * _sources_of(job)
            print(
                f"{job}, {who}: {done.seconds:.1f} s, {rows / done.seconds:,.0f} rows/s, {done.cpu:.1f} s of processor time, "
                f"{done.results:,} results",
                flush=True,
            )
        if given.rate:
            found = under_load(who, job, given.rate, given.seconds, given.partitions)
            quantiles = ", ".join(f"{share:.0%} {found.quantile(share):.0f} ms" for share in (0.5, 0.9, 0.99, 1))
            print(f"{job}, {who}, {given.rate} rows/s: {quantiles}; {found.cores:.2f} cores", flush=True)


if __name__ == "__main__":
    main()
