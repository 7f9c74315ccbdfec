"""Runs that read and write topics of a real cluster of three brokers, while a seed decides who is killed, stopped and asked to leave.

    python -m tests.kafka.topics.chaos --seeds 20

Besides what `tests.runtime.chaos_acts` does to clients and the driver, brokers are killed and started again, or stand still for a
while, the topic grows, and the folder of the run is lost between two lives. One broker at a time is away, as replicas are made for: with
them nothing that was committed may be gone. At the end readers of committed records must see the rows of a plain computation, each
once. Prints a line of JSON for each seed.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import pyarrow as pa

from task_assignor.kafka.topics import KafkaTopic, KafkaTopics
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    ClientLost,
    CommitLog,
    KeyValueStoreSpec,
    Output,
    Processor,
    Repartitioned,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
)
from task_assignor.sdk import StreamsException
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import in_any_order, rows_of, write_records
from tests.runtime import chaos
from tests.runtime.chaos_acts import DriverDied, Trouble, arguments, run_seeds
from tests.runtime.support import settings

OPTIONS: RuntimeOptions = attrs.evolve(
    chaos.OPTIONS, session_timeout_ms=3_000, rejoin_timeout_ms=5_000, max_poll_interval_ms=120_000
)
ACTS = (
    *("kill", "stop", "scale", "sigterm", "driver", "drain", "grow", "grow"),
    *("broker", "broker", "broker", "pause"),
)
"""`broker`: one is killed with -9 and started again; `pause`: one stands still for some seconds."""
REPLICATED = {
    **{f"{topic}.replication.factor": "3" for topic in ("default", "offsets.topic", "transaction.state.log")},
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
SOURCE, TOTALS, SUMS = "left", "totals-out", "sums-out"
BY_REST = pa.schema([("rest", pa.int64()), ("at", pa.int64()), ("value", pa.int64())])
RESTS = 7
MAX_LIVES = 10
LONGEST_AWAY_S = 8.0
LONGEST_PAUSE_S = 15.0


class ByRest(Processor):
    """Rows by another key."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rest of the value."""
        rows = batch[SOURCE]
        rest = pa.array([value % RESTS for value in rows.column("value").to_pylist()], pa.int64())
        return pa.table([rest, rows.column("at"), rows.column("value")], schema=BY_REST)


@attrs.define
class Brokers:
    """Of a cluster at most one broker is away at a time, for a while.

    Args:
        cluster: the cluster.
    """

    cluster: KafkaCluster
    is_away: bool = False
    """One has been, in this life."""
    _comes_back: threading.Thread | None = None
    _failed: list[Exception] = attrs.field(factory=list)

    def kill(self, broker: int, seconds: float) -> None:
        """Kill one, which is started again later; if none is away."""
        if self._goes_away():
            self.cluster.kill(broker)
            self._later(seconds, partial(self.cluster.restart, broker))

    def pause(self, broker: int, seconds: float) -> None:
        """Have one stand still for a while; if none is away."""
        if self._goes_away():
            self.cluster.send(broker, signal.SIGSTOP)
            self._later(seconds, partial(self.cluster.send, broker, signal.SIGCONT))

    def wait(self) -> None:
        """Wait until all are there."""
        if self._comes_back is not None:
            self._comes_back.join()
        assert not self._failed, self._failed

    def _goes_away(self) -> bool:
        if self._comes_back is not None and self._comes_back.is_alive():
            return False
        self.is_away = True
        return True

    def _later(self, seconds: float, what: partial[None]) -> None:
        def come_back() -> None:
            try:
                what()
            except Exception as error:  # noqa: BLE001 -- whoever waits says so
                self._failed.append(error)

        self._comes_back = threading.Timer(seconds, come_back)
        self._comes_back.start()


@attrs.define(kw_only=True)
class KafkaChaos(Trouble):
    """One run with trouble, from its first life to its last.

    Args:
        cluster: of three brokers.
    """

    cluster: KafkaCluster
    acts: Sequence[str] = ACTS
    options: RuntimeOptions = OPTIONS
    _brokers: Brokers = attrs.field(init=False)
    _written: int = 0
    """So many rows the topic has."""
    _folders: int = 0
    """So many folders of the run were lost."""

    def _run(self) -> None:
        self.root.mkdir(parents=True)
        self._brokers = Brokers(self.cluster)
        servers = self.cluster.bootstrap_servers
        make_topics(servers, SOURCE, TOTALS, SUMS, partitions=chaos.PARTITIONS, replicas=3)
        self._grow(self._random.choice((chaos.ROWS // 2, chaos.ROWS * 3 // 4, chaos.ROWS)))
        try:
            self._live_until_its_end()
        finally:
            self._brokers.wait()
        expected = [dict(zip(chaos.SCHEMA.names, row, strict=True)) for row in chaos.reference()]
        assert in_any_order(rows_of(servers, TOTALS)) == in_any_order(expected), f"other rows: {self.happened}"
        if self._has_sums:
            last = {row["rest"]: (row["count"], row["sum"]) for row in rows_of(servers, SUMS)}
            values = chaos.source().column("value").to_pylist()
            rests = {value % RESTS: [other for other in values if other % RESTS == value % RESTS] for value in values}
            assert last == {rest: (len(found), sum(found)) for rest, found in rests.items()}, f"sums: {self.happened}"
        chaos.check_owners(CommitLog(self._folder))

    @property
    def _folder(self) -> Path:
        return self.root / f"run-{self._folders}"

    def _live_until_its_end(self) -> None:
        topology, clients = self._topology(), self._random.randint(2, 3)
        config = settings(
            task_assignor_class=self._random.choice(chaos.ASSIGNORS),
            num_standby_replicas=self._random.choice((0, 1)),
            acceptable_recovery_lag=5,
        )
        for life in range(MAX_LIVES):
            app = StreamsApplication(
                topology,
                config,
                topics_root=self._topics(),
                run_dir=self._folder,
                clients=clients,
                launcher=self.launcher(),
                options=self.options,
            )
            is_quiet = life >= MAX_LIVES // 2
            self._begin_life(app, 0 if is_quiet else self._random.randint(1, 4))
            if is_quiet:
                self._grow(chaos.ROWS)
            if self._live():
                return
            self._brokers.wait()
            if self._random.random() < 0.2:
                self._note("folder", "the folder of the run is lost")
                shutil.rmtree(self._folder)
                self._folders += 1
            self._grow(self._random.randint(1, chaos.ROWS))
        raise AssertionError(f"it did not come to its end in {MAX_LIVES} lives: {self.happened}")

    def _live(self) -> bool:
        """One life; gives whether it has read all rows."""
        assert self._app is not None
        was_whole = self._written == chaos.ROWS
        self._brokers.is_away = False
        try:
            result = self._app.run(self._on_event)
        except DriverDied:
            return False
        except StreamsException as error:
            if not self._brokers.is_away:
                raise AssertionError(f"all brokers were there, but it ended; {self.happened}") from error
            self.happened.append(f"{type(error).__name__}: {error}")
            return False
        finally:
            self._resume_all()
        if result.stopped and not self._is_drained:
            raise KeyboardInterrupt(result.stopped)
        # It goes up to the ends that it has found.
        return was_whole and not result.stopped

    def _do(self, kind: str, pid: int) -> None:
        match kind:
            case "grow":
                self._grow(chaos.BATCH_ROWS)
            case "broker":
                self._brokers.kill(self._random.randrange(3), self._random.uniform(0, LONGEST_AWAY_S))
            case "pause":
                self._brokers.pause(self._random.randrange(3), self._random.uniform(1, LONGEST_PAUSE_S))
            case _:
                super()._do(kind, pid)

    def _on_event(self, event: RunEvent) -> None:
        if isinstance(event, ClientLost):
            self.happened.append(f"{event.client} was lost: {event.reason}")
        super()._on_event(event)

    def _grow(self, count: int) -> None:
        new = chaos.source().slice(self._written, count)
        if new.num_rows:
            write_records(self.cluster.bootstrap_servers, SOURCE, new, chaos.PARTITIONS)
            self._written += new.num_rows

    def _topics(self) -> KafkaTopics:
        known = [KafkaTopic(SOURCE, chaos.source().schema, "key", "at"), KafkaTopic(TOTALS, key="key")]
        known += [KafkaTopic(SUMS, key="rest")] if self._has_sums else []
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers, "request.timeout.ms": "5000"}
        return KafkaTopics(servers, known)

    def _topology(self) -> Topology:
        (self.root / "marks").mkdir()
        slow = frozenset(self._random.sample(range(chaos.ROWS), 12))
        processor = partial(chaos.RunningTotals, self.root / "marks", slow, hangs_at=-1, full_at=-1)
        key, _, *totals = chaos.SCHEMA
        store = KeyValueStoreSpec("totals", pa.schema([key]), pa.schema(totals))
        part = SubTopology("totals", SOURCE, processor, [store], [Output(TOTALS, chaos.SCHEMA)])
        if not self._has_sums:
            return Topology(part)
        by_rest = Repartitioned("by-rest", BY_REST, key="rest", partitions=3, timestamp="at")
        sums = Aggregation(source="by-rest", aggregates={"count": Aggregate.count(), "sum": Aggregate.sum("value")})
        return Topology(
            [
                part,
                SubTopology("by-rest", SOURCE, ByRest, outputs=by_rest),
                sums.sub_topology("sums", SUMS, topics=[by_rest.spec]),
            ]
        )

    @property
    def _has_sums(self) -> bool:
        """There are sums by another key besides."""
        return self.seed % 2 == 1


def run(seed: int, folder: Path) -> KafkaChaos:
    """One seed, with a cluster of its own."""
    with KafkaCluster(["a", "b", "c"], REPLICATED) as cluster:
        found = KafkaChaos(root=folder / "run", seed=seed, cluster=cluster)
        found.run()
    return found


def main() -> None:
    """Some seeds, a line each."""
    run_seeds(arguments(__doc__, seeds=20).parse_args(), run)


if __name__ == "__main__":
    main()
