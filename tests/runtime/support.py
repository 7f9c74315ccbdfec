"""Topics, processors and plain computations that the tests of the runtime share. Processors must be importable: clients
are other processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime import (
    KeyValueStoreSpec,
    LocalProcessLauncher,
    Output,
    Processor,
    RecordProcessor,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    WindowedJoin,
    write_topic,
)
from task_assignor.runtime.storage import LocalStorage, Storage, as_document, open_document
from task_assignor.runtime.topics.names import version_name
from task_assignor.runtime.topics.versions import FORMER_FORMAT_VERSION
from task_assignor.sdk import StreamsConfig

STICKY = "task_assignor.builtin_assignors.StickyTaskAssignor"
BEFORE_MS, AFTER_MS = 20_000, 40_000
QUICK = RuntimeOptions(
    max_batch_rows=200,
    heartbeat_interval_ms=50,
    session_timeout_ms=5_000,
    startup_timeout_ms=300_000,
    # What is being processed when a test stops its run is done, however slow the machine.
    stop_timeout_ms=60_000,
)


def settings(**more: Any) -> StreamsConfig:
    """Settings of a test application; keyword `num_standby_replicas` is the key `num.standby.replicas`, and so on."""
    given = {key.replace("_", "."): value for key, value in more.items()}
    return StreamsConfig({"application.id": "test", "task.assignor.class": STICKY, **given})


def stream(rows: int, keys: int, seed: int, span_ms: int = 600_000) -> pa.Table:
    """Rows in order of time, with keys that repeat."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "key": random.integers(0, keys, rows),
            "at": np.sort(random.integers(0, span_ms, rows)),
            "value": pa.array([f"{seed}-{number}" for number in range(rows)]),
        }
    )


def description(root: Path, topic: str, version: int = 0) -> Path:
    """The file in which a version of a topic is; where several topics left theirs, that of one of them."""
    (found, *_) = sorted((root / topic / "versions").glob(f"{version:012d}{'*' if version else ''}.json"))
    return found / "~object"


def make_former(storage: Storage, topic: str) -> None:
    """Make a topic that was just written, with few files, one of the format without ids in the names of its versions."""
    (herald,) = (name for name in storage.list(f"{topic}/versions") if "-" in name)
    storage.delete([herald])
    first = version_name(topic, 0, None)
    storage.put(first, as_document({**open_document(storage, first, dict), "formatVersion": FORMER_FORMAT_VERSION}))


def change_description(path: Path, **changes: Any) -> None:
    """Write other things into such a file, with the right checksum."""
    storage = LocalStorage(path.parent.parent)
    path.write_bytes(as_document({**open_document(storage, path.parent.name, dict), **changes}))


def write_streams(root: str | Path, rows: int, keys: int, partitions: int = 4) -> tuple[pa.Table, pa.Table]:
    """Topics `left` and `right`; gives what was written."""
    left, right = stream(rows, keys, seed=1), stream(rows // 2, keys, seed=2)
    for name, table in (("left", left), ("right", right)):
        write_topic(root, name, table, partitions=partitions, key=["key"], timestamp="at", segment_rows=rows // 10)
    return left, right


def join_topology() -> Topology:
    """The windowed join of `left` and `right`, into `joined`."""
    join = WindowedJoin(left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS)
    return Topology([join.sub_topology("join", output="joined")])


def plain_join(left: pa.Table, right: pa.Table, before_ms: int = BEFORE_MS, after_ms: int = AFTER_MS) -> pa.Table:
    """The same, computed at once by Arrow's own join."""
    pairs = left.join(right, "key", join_type="inner", right_suffix="_right")
    distance = pc.subtract(pairs.column("at_right"), pairs.column("at"))
    inside = pc.and_(pc.greater_equal(distance, -before_ms), pc.less_equal(distance, after_ms))
    return pairs.filter(inside)


def in_order(table: pa.Table) -> pa.Table:
    """The rows sorted by all columns: for comparing results that have no order."""
    columns = sorted(table.schema.names)
    return table.select(columns).sort_by([(column, "ascending") for column in columns]).combine_chunks()


class CountByKey(Processor):
    """A user's processor with a named store: a running count and sum by key; gives the new totals."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Add the batch to the totals."""
        (rows,) = batch.values()
        if rows.num_rows == 0:
            return None
        sums = rows.group_by("key").aggregate([("at", "sum"), ("at", "count")])
        store = context.key_value_store("totals")
        known = store.lookup(sums.select(["key"]))
        totals = pa.table(
            {
                "key": sums.column("key"),
                "count": pc.add(sums.column("at_count"), pc.fill_null(known.column("count"), 0)),
                "sum": pc.add(sums.column("at_sum"), pc.fill_null(known.column("sum"), 0)),
            }
        )
        store.put_table(totals)
        context.count("keys", totals.num_rows)
        return totals


def count_topology(source: str = "left") -> Topology:
    """Running totals of a topic, into `totals-out`."""
    store = KeyValueStoreSpec(
        "totals", pa.schema([("key", pa.int64())]), pa.schema([("count", pa.int64()), ("sum", pa.int64())])
    )
    schema = pa.schema([("key", pa.int64()), ("count", pa.int64()), ("sum", pa.int64())])
    return Topology([SubTopology("count", source, CountByKey, [store], [Output("totals-out", schema)])])


PATIENCE_S = 280
"""So long a test waits for what must happen, on however slow a machine; a client may hang for 300 s."""


@attrs.frozen
class HeldBack:
    """Makes processors that do no more than the first batches of their task before there is a certain file.

    So a test decides when a run goes on, however fast the machine is.

    Args:
        make: makes the real ones.
        mark: the file. A task that waits for it leaves another one, `<mark>-<task>`.
        batches: so many they do without it.
    """

    make: Callable[[], Processor]
    mark: Path
    batches: int

    def __call__(self) -> Processor:
        """One."""
        return _Waiting(self)

    def __getattr__(self, name: str) -> Any:
        """What else the real factory can do: those of ready-made processors know their columns."""
        if name in ("make", "mark", "batches") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.make, name)


class _Waiting(Processor):
    def __init__(self, plan: HeldBack) -> None:
        self._plan = plan
        self._real = plan.make()

    def init(self, context: TaskContext) -> None:
        """As the real one."""
        self._real.init(context)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Wait, then do it."""
        deadline = time.monotonic() + PATIENCE_S
        if context.batch >= self._plan.batches:
            self._plan.mark.with_name(f"{self._plan.mark.name}-{context.task_id}").touch()
        while context.batch >= self._plan.batches and not self._plan.mark.exists():
            assert time.monotonic() < deadline, "nobody opened the way"
            time.sleep(0.01)
        return self._real.process_batch(batch, context)


def held_back(topology: Topology, mark: Path, batches: int) -> Topology:
    """The same, whose tasks do only so many batches before there is that file."""
    return Topology(
        [attrs.evolve(sub, processor=HeldBack(sub.processor, mark, batches)) for sub in topology.sub_topologies]
    )


class FailsAtRow(Processor):
    """Raises at a certain value of a certain row."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Fail at the row with value 1-700."""
        (rows,) = batch.values()
        if "1-700" in rows.column("value").to_pylist():
            raise ZeroDivisionError("delay per mile of a flight of 0 miles")
        return rows


class DiesAtRow(Processor):
    """Takes its process with it at a certain row."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Die at the row with value 1-700."""
        (rows,) = batch.values()
        if "1-700" in rows.column("value").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


class ChangesColumns(Processor):
    """Gives other columns in every batch."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """A column named after the batch."""
        (rows,) = batch.values()
        return pa.table({f"column-{context.batch}": rows.column("value")})


class PriceAtOrder(RecordProcessor):
    """The newest price of a key, for each order: right only if records come in the order of their times."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]] | None:
        """Remember a price, or look one up."""
        prices = context.key_value_store("prices")
        if topic == "prices":
            prices.put(record["key"], {"value": record["value"]})
            return None
        found = prices.get(record["key"])
        return [{"value": record["value"], "price": None if found is None else found["value"]}]

    def output_schema(self) -> pa.Schema:
        """Order and price."""
        return pa.schema([("value", pa.string()), ("price", pa.string())])


class Watch:
    """Collects the events of a run, and lets a test act on them: `on(type, action)`, from the run's own thread."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []
        self._actions: list[tuple[type, Callable[[Any], object]]] = []
        self._lock = threading.Lock()

    def on(self, kind: type, action: Callable[[Any], object]) -> None:
        """Call `action` for every event of that type."""
        self._actions.append((kind, action))

    def __call__(self, event: RunEvent) -> None:
        """One event."""
        with self._lock:
            self.events.append(event)
        for kind, action in self._actions:
            if isinstance(event, kind):
                action(event)

    def of(self, kind: type) -> list[Any]:
        """The events of a type."""
        with self._lock:
            return [event for event in self.events if isinstance(event, kind)]


def commit_file(run_dir: Path, number: int) -> Path:
    """The file of a commit record: what is put only if absent is a folder with one file."""
    return run_dir / "commits" / f"{number:012d}.json" / "~object"


def application(root: Path, topology: Topology, **more: Any) -> StreamsApplication:
    """An application on `<root>/topics` that runs in `<root>/run`."""
    config = more.pop("config", None) or settings()
    run_dir = more.pop("run_dir", root / "run")
    more.setdefault("options", QUICK)
    more.setdefault("launcher", LocalProcessLauncher(start_method="forkserver"))
    return StreamsApplication(topology, config, topics_root=root / "topics", run_dir=run_dir, **more)
