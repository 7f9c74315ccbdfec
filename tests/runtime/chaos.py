"""Runs of real processes that meet every kind of trouble, decided by a seed; and what must be true of them at the end.

A run has lives: one ends when its driver dies or is asked to stop, the power of all machines fails, or it stops with a clear
error because a disk is full, a file is damaged, or a client does not share the folder of the run. Then the trouble is mended
and the next life goes on. At the end the outputs must be those of a plain computation, row by
row, and every committed batch must have run where the assignment of its generation said.
"""

from __future__ import annotations

import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    CommitLog,
    DerivedStream,
    Forwarded,
    KeyValueStoreSpec,
    Launcher,
    LaunchPlan,
    MarkerReached,
    Output,
    Processor,
    Rebalanced,
    RecordProcessor,
    RunEvent,
    RunResult,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    write_topic,
)
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import StreamsException
from tests.runtime.chaos_acts import DriverDied, Trouble, send
from tests.runtime.chaos_files import Damage, lose
from tests.runtime.chaos_markers import AskedMarkers, GrowingTopic
from tests.runtime.support import settings

ROWS, KEYS, PARTITIONS, BATCH_ROWS = 480, 12, 4, 12
OPTIONS = RuntimeOptions(
    max_batch_rows=BATCH_ROWS,
    heartbeat_interval_ms=50,
    session_timeout_ms=1_000,
    rejoin_timeout_ms=2_000,
    max_poll_interval_ms=2_000,
    stop_timeout_ms=1_000,
    max_attempts=99,
    startup_timeout_ms=600_000,
    checkpoint_every_commits=8,
    snapshot_changelog_bytes=2_000,
    state_cleanup_delay_ms=300,
    validate_state=True,
)
MAX_LIVES = 12
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("count", pa.int64()), ("sum", pa.int64())])
ASSIGNORS = (
    "task_assignor.builtin_assignors.StickyTaskAssignor",
    "task_assignor.builtin_assignors.HighAvailabilityTaskAssignor",
    "tests.runtime.assignors.ScatteringAssignor",
)


KINDS = (
    *("kill", "stop", "slow", "hang", "driver", "drain", "power", "scale", "sigterm", "full", "damage", "elsewhere"),
    *("grow", "shed", "marker"),
)
"""Killed with -9; stopped, and resumed as a zombie; slow; hanging; the driver dies; the driver is asked to stop; power fails,
and what was not synced is lost; more or fewer clients; asked to leave; a disk is full; a file is gone, torn, or has a flipped
bit; a folder is not shared; the topic gains rows, or loses what was read; somebody asks for a cut over all tasks."""


class PowerFailed(DriverDied):
    """All machines lose power."""


class Apart:
    """A launcher whose first client has another folder where the run should be.

    Args:
        launcher: launches all the same.
        folder: the other folder.
    """

    def __init__(self, launcher: Launcher, folder: str | Path) -> None:
        self._launcher = launcher
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def start(self, plan: LaunchPlan) -> None:
        """Start all clients, one of them elsewhere."""
        first, *others = plan.bootstraps
        self._launcher.start(attrs.evolve(plan, bootstraps=(attrs.evolve(first, run_dir=str(self._folder)), *others)))


class RunningTotals(RecordProcessor):
    """For each record the count and sum of its key so far: a row lost, done twice or out of turn is seen in all that follow.

    Args:
        marks: folder for the traces of what happens once.
        slow: values at which it takes its time.
        hangs_at: a value at which it does not return, the first time.
        full_at: a value at which the disk is full, the first time.
    """

    def __init__(self, marks: Path, slow: frozenset[int], hangs_at: int, full_at: int) -> None:
        self._marks = marks
        self._slow = slow
        self._hangs_at = hangs_at
        self._full_at = full_at

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """Add a record to the totals of its key."""
        value = record["value"]
        if value in self._slow:
            time.sleep(0.02)
        if value == self._hangs_at and self._is_first("hang"):
            time.sleep(3600)
        if value == self._full_at and self._is_first("full"):
            # Every write of this process ends in an error of the operating system from here on.
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        totals = context.key_value_store("totals")
        known = totals.get(record["key"]) or {"count": 0, "sum": 0}
        new = {"count": known["count"] + 1, "sum": known["sum"] + value}
        totals.put(record["key"], new)
        return [{"key": record["key"], "value": value, **new}]

    def _is_first(self, what: str) -> bool:
        try:
            (self._marks / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def output_schema(self) -> pa.Schema:
        """The record and its totals."""
        return SCHEMA


def source() -> pa.Table:
    """The rows of the topic."""
    numbers = range(ROWS)
    keys = pa.array([number * 7 % KEYS for number in numbers], pa.int64())
    return pa.table({"key": keys, "at": pa.array(numbers, pa.int64()), "value": pa.array(numbers, pa.int64())})


def _some(rows: pa.Table) -> list[bool]:
    """Which rows are summed."""
    return [value * value % 11 > 2 for value in rows.column("value").to_pylist()]


class Some(Processor):
    """Forwards such rows."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Of its only source."""
        made_of = np.flatnonzero(_some(batch["left"]))
        context.forward(batch["left"].take(pa.array(made_of)), made_of=made_of)


def reference() -> set[tuple[int, ...]]:
    """What the output must be, computed at once."""
    totals: dict[int, tuple[int, int]] = {}
    rows: set[tuple[int, ...]] = set()
    for row in source().to_pylist():
        count, total = totals.get(row["key"], (0, 0))
        totals[row["key"]] = (count + 1, total + row["value"])
        rows.add((row["key"], row["value"], *totals[row["key"]]))
    return rows


@attrs.define
class Chaos(Trouble):
    """One run with trouble, from its first life to its last.

    Args:
        can_be_full: disks may be full for a client.
    """

    acts: Sequence[str] = (
        *("kill", "kill", "stop", "scale", "scale", "sigterm", "driver", "drain", "power"),
        *("grow", "shed", "shed", "marker", "marker"),
    )
    options: RuntimeOptions = OPTIONS
    can_be_full: bool = True
    _topic: GrowingTopic = attrs.field(init=False)
    _markers: AskedMarkers = attrs.field(init=False)
    _awaited: str | None = None
    """The marker that this life goes up to, in which the topic may grow for ever; "": not asked for yet; None: no such life."""

    # A run.

    def _run(self) -> None:
        (self.root / "marks").mkdir(parents=True)
        rows = source()
        first = self._random.choice((ROWS // 2, ROWS * 3 // 4, ROWS))
        write_topic(self._at("topics"), "left", rows[:first], partitions=PARTITIONS, key=["key"], timestamp="at")
        self._topic = GrowingTopic(self._at("topics"), "left", rows, first)
        self._markers = AskedMarkers(self._topic, "totals-out")
        topology = self._topology()
        config = settings(
            task_assignor_class=self._random.choice(ASSIGNORS),
            num_standby_replicas=self._random.choice((0, 1)),
            acceptable_recovery_lag=5,
        )
        clients = self._random.randint(2, 3)
        for life in range(MAX_LIVES):
            launcher = self.launcher()
            is_apart = life < MAX_LIVES // 2 and self._random.random() < 0.1
            if is_apart:
                self._note("elsewhere", "a client has another folder")
                launcher = cast("Launcher", Apart(launcher, self._at("elsewhere")))
            app = StreamsApplication(
                topology,
                config,
                topics_root=self._at("topics"),
                run_dir=self._at("run"),
                clients=clients,
                launcher=launcher,
                options=self.options,
            )
            # The last lives are quiet: a run must come to its end.
            self._begin_life(app, self._random.randint(1, 3) if life < MAX_LIVES // 2 else 0)
            self._awaited = "" if self._random.random() < 0.3 else None
            if life >= MAX_LIVES // 2:
                self._topic.grow(ROWS)
            self._markers.begin_life(is_continuous=self._awaited is not None)
            before_full = self._has_been("full")
            with self._damage(life) as damage:
                found, error = self._live()
            if found is not None:
                break
            is_full = self._has_been("full") and not before_full
            if error is not None and not (is_full or is_apart):
                assert damage.is_named_in(str(error)), f"{damage or 'nothing was wrong'}, but: {error}"
        else:
            raise AssertionError(f"it did not come to its end in {MAX_LIVES} lives: {self.happened}")
        for kind in ("hang", "full"):
            self.kinds[kind] += self._has_been(kind)
        self._check(found)

    def _at(self, folder: str) -> str | Path:
        """Where a folder is that all see: of topics, or of the run."""
        return self.root / folder

    def _has_been(self, kind: str) -> bool:
        """What a processor does once has been done."""
        return (self.root / "marks" / kind).exists()

    def _live(self) -> tuple[RunResult | None, Exception | None]:
        """One life: its result, if the run came to its end; or its error, if it has one.

        Raises:
            KeyboardInterrupt: somebody else asked this process to stop.
        """
        assert self._app is not None
        was_whole = self._topic.is_whole
        try:
            if self._awaited is None:
                result = self._app.run(self._on_event)
                is_at_end = not result.stopped
            else:
                result = self._app.run(self._on_event, until=self._is_at_end)
                is_at_end = self._awaited in self._markers.reached
            self._markers.end_life()
            if not (is_at_end or self._is_drained):
                raise KeyboardInterrupt(result.stopped)
            # A life that goes up to the ends which it found has not read what the topic gained meanwhile.
            if is_at_end and (was_whole if self._awaited is None else self._topic.is_whole):
                return result, None
            self._topic.grow(self._random.randint(1, ROWS))
            return None, None
        except PowerFailed:
            return None, self._lose_what_is_not_synced()
        except DriverDied:
            return None, None
        except (StreamsException, OSError) as error:
            self.happened.append(f"{type(error).__name__}: {error}")
            self._markers.end_life()
            return None, error
        finally:
            self._resume_all()

    def _topology(self) -> Topology:
        chance = self._random
        slow = frozenset(chance.sample(range(ROWS), 12))
        self.kinds["slow"] += 1
        hangs_at = chance.randrange(ROWS) if chance.random() < 0.15 else -1
        full_at = chance.randrange(ROWS) if chance.random() < 0.25 and self.can_be_full else -1
        store = KeyValueStoreSpec(
            "totals", pa.schema([("key", pa.int64())]), pa.schema([("count", pa.int64()), ("sum", pa.int64())])
        )
        processor = partial(RunningTotals, self.root / "marks", slow, hangs_at, full_at)
        totals = SubTopology("totals", "left", processor, [store], [Output("totals-out", SCHEMA)])
        if not self._has_sums:
            return Topology(totals)
        some = DerivedStream("some", TopicSpec("left", PARTITIONS, source().schema, ("key",), "at"), filter=_some)
        sums = Aggregation(source="some", aggregates={"count": Aggregate.count(), "sum": Aggregate.sum("value")})
        parts = [totals, sums.sub_topology("sums", "sums", topics=[some.spec])]
        if self.seed % 4 == 1:
            return Topology(parts, derived=some)
        return Topology([*parts, SubTopology("some", "left", Some, outputs=Forwarded("some", source().schema))])

    @property
    def _has_sums(self) -> bool:
        """The same tasks compute something ready-made besides."""
        return self.seed % 2 == 1

    # What happens.

    def _is_at_end(self, event: RunEvent) -> bool:
        """A life in which the topic may grow ends with a marker that has all of its rows."""
        assert self._app is not None
        if self._awaited == "" and isinstance(event, Rebalanced):
            self._awaited = self._markers.ask(self._app)
        if not isinstance(event, MarkerReached) or event.name != self._awaited:
            return False
        if not self._topic.is_whole:
            self._topic.grow(ROWS // 8)
            self._awaited = self._markers.ask(self._app)
            return False
        return True

    def _on_event(self, event: RunEvent) -> None:
        self._markers.hear(event)
        super()._on_event(event)

    def _do(self, kind: str, pid: int) -> None:
        assert self._app is not None
        match kind:
            case "grow":
                self._topic.grow(BATCH_ROWS)
            case "shed":
                self._topic.shed(self._at("run"))
            case "marker":
                self._markers.ask(self._app)
            case "power":
                for found in self._pids.values():
                    send(found, signal.SIGKILL)
                raise PowerFailed
            case _:
                super()._do(kind, pid)

    def _lose_what_is_not_synced(self) -> StreamsException | None:
        """Whatever no commit names may be gone, torn, or full of zeros, and of the snapshots of clients anything.

        Returns:
            None; or why nobody can say what the commits name: the file that is damaged is one of the log.
        """
        run = self.root / "run"
        commits = CommitLog(run)
        try:
            named = {*commits.output_files().paths(), *commits.checkpoint().replaced}
            records = list(commits.records())
        except StreamsException as error:
            return error
        for record in records:
            named.update(path for snapshot in record.snapshots.values() for path in snapshot.paths.values())
            for commit in record.tasks.values():
                named.update(file.path for file in (*commit.outputs.values(), *commit.changelogs.values()))
        lost = 0
        for folder in ("output", "changelog", "snapshots", "clients"):
            for path in sorted((run / folder).rglob("*")):
                if path.is_file() and str(path.relative_to(run)) not in named and self._random.random() < 0.7:
                    lost += 1
                    lose(path, self._random)
        self.happened.append(f"{lost} files lost")
        return None

    # Damage between two lives.

    def _damage(self, life: int) -> Damage:
        if life == 0 or self._random.random() < 0.6:
            return Damage(None, self._random)
        files = (path for folder in ("run", "topics") for path in (self.root / folder).rglob("*"))
        victim = self._random.choice(sorted(path for path in files if path.is_file() and path.stat().st_size))
        damage = Damage(victim, self._random)
        self._note("damage", str(damage))
        return damage

    # What must hold.

    def _check(self, result: RunResult) -> None:
        rows = [tuple(row.values()) for row in result.table("totals-out").select(SCHEMA.names).to_pylist()]
        assert len(rows) == ROWS, f"{len(rows)} rows in place of {ROWS}: {self.happened}"
        expected = reference()
        assert set(rows) == expected, f"other rows than of a plain computation: {self.happened}"
        if self._has_sums:
            last = {row["key"]: (row["count"], row["sum"]) for row in result.table("sums").to_pylist()}
            some = source().filter(pa.array(_some(source()))).to_pylist()
            sums = {key: [row["value"] for row in some if row["key"] == key] for key in range(KEYS)}
            assert last == {key: (len(found), sum(found)) for key, found in sums.items()}, f"sums: {self.happened}"
        self._markers.check(self._at("run"), {row[1]: row for row in expected})
        check_owners(CommitLog(self._at("run")))


def check_owners(commits: CommitLog) -> None:
    """Every committed batch ran where the assignment of its generation said."""
    assignments: dict[int, Mapping[str, Any]] = {}
    for record in commits.records():
        if record.rebalance is not None:
            assignments[record.rebalance.generation] = record.rebalance.clients
        for commit in record.tasks.values():
            client, tasks = assignments[commit.generation][commit.member_id]
            assert client == commit.client
            assert commit.task in tasks.active


def main() -> None:
    """Seeds from the command line: the first and how many."""
    # Between two runs, too, a signal ends it so that what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    first, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    failed = []
    kinds: Counter[str] = Counter()
    for seed in range(first, first + count):
        chaos = Chaos(folder / str(seed), seed)
        begin = time.monotonic()
        try:
            chaos.run()
            shutil.rmtree(chaos.root)
        except Exception as error:  # noqa: BLE001 - the next seed has its turn
            failed.append(seed)
            sys.stdout.write(f"seed {seed}: {''.join(traceback.format_exception(error))[-3000:]}\n")
        kinds += chaos.kinds
        sys.stdout.write(f"seed {seed}: {time.monotonic() - begin:.1f} s; {'; '.join(chaos.happened)[:600]}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{count} seeds, failed: {failed}; what was done to them: {dict(kinds)}\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
