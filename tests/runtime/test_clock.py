"""What is scheduled by the clock in a run that goes on: it happens where no rows come, once, and is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pyarrow as pa

from task_assignor.runtime import (
    BatchesCommitted,
    KeyValueStoreSpec,
    LocalProcessLauncher,
    Output,
    Processor,
    RunEvent,
    StreamsApplication,
    SubTopology,
    TaskContext,
    Topology,
    write_topic,
)
from tests.runtime.support import QUICK, settings

TICKS = pa.schema([("partition", pa.int64()), ("tick", pa.int64())])


class Ticking(Processor):
    """Counts how often the clock has called, in a store."""

    def init(self, context: TaskContext) -> None:
        """Ask for it."""
        self._context = context
        context.schedule(100, "wall_clock_time", self.tick)

    def tick(self, time_ms: int) -> pa.Table:
        """One more."""
        assert time_ms > 0
        store = self._context.key_value_store("ticks")
        number = (store.get(0) or {"ticks": 0})["ticks"] + 1
        store.put(0, {"ticks": number})
        return pa.table({"partition": [self._context.partition], "tick": [number]}, schema=TICKS)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Rows are of no interest, but there are some."""
        assert any(rows.num_rows for rows in batch.values())
        return None


def test_tasks_without_rows_have_their_schedules_called_exactly_once_and_go_on_where_they_were(tmp_path: Path) -> None:
    """Of four partitions one has rows. In two runs, each partition's ticks are numbered without a gap."""
    rows = pa.table({"key": pa.array([1, 1, 1], pa.int64()), "at": pa.array([1, 2, 3], pa.int64())})
    write_topic(tmp_path / "topics", "left", rows, partitions=4, key=["key"], timestamp="at")
    store = KeyValueStoreSpec("ticks", pa.schema([("all", pa.int64())]), pa.schema([("ticks", pa.int64())]))
    topology = Topology([SubTopology("ticking", "left", Ticking, [store], [Output("out", TICKS)])])
    wanted = 0
    for _ in range(2):
        app = StreamsApplication(
            topology,
            settings(),
            topics_root=tmp_path / "topics",
            run_dir=tmp_path / "run",
            clients=2,
            launcher=LocalProcessLauncher(start_method="forkserver"),
            options=attrs.evolve(QUICK, snapshot_changelog_bytes=1, validate_state=True),
        )
        wanted += 3
        seen: dict[int, int] = {}

        def watch(event: RunEvent, app: StreamsApplication = app, seen: dict[int, int] = seen) -> None:
            if isinstance(event, BatchesCommitted):
                for task in event.batches:
                    seen[task.partition] = seen.get(task.partition, 0) + 1
                if len(seen) == 4 and min(seen.values()) > 4:
                    app.request_stop("enough")

        result = app.run(watch, until="stopped")
        ticks = result.table("out").to_pylist()
        for partition in range(4):
            numbers = [row["tick"] for row in ticks if row["partition"] == partition]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(numbers) >= wanted
