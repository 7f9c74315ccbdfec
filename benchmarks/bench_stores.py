"""A key-value store on disk, from 10^5 rows on, in memory that is bounded: filling it, changing it, snapshots, restores.

`python -m benchmarks.bench_stores --rows 100000000` fills the largest that we plan for; it takes some 5 GB of disk.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from benchmarks.case import Case, Facts, Goal, Timed, Work

SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (2_000, 4_000)
BATCH_ROWS = 100_000
CHANGED_ROWS = 1_000_000
MEMORY_BYTES = 256 << 20
_SPREAD = 0x9E3779B97F4A7C15
"""An odd number: products with it are all different, and in no order."""


@attrs.frozen
class Outcome:
    """What was seen; times are processor seconds, those of RocksDB's own threads included.

    Args:
        rows: rows of the store.
        fill: time to put them, in batches.
        change: time to look up and put some of them again.
        changed: how many.
        snapshot: time of the first snapshot.
        second: of another one after a batch.
        reopen: until the store is there again as it was left, wall.
        restore: until it is there from the snapshot, wall.
        disk: bytes of its files.
        memory: the most that the process ever had, bytes.
    """

    rows: int
    fill: float
    change: float
    changed: int
    snapshot: float
    second: float
    reopen: float
    restore: float
    disk: int
    memory: int

    def facts(self) -> Facts:
        """For the table."""
        return {
            "fill us/row": round(self.fill / self.rows * 1e6, 2),
            "look up and put us/row": round(self.change / self.changed * 1e6, 2),
            "snapshot s": round(self.snapshot, 2),
            "next snapshot s": round(self.second, 2),
            "open again s": round(self.reopen, 3),
            "restore s": round(self.restore, 2),
            "disk MB": round(self.disk / 1e6),
            "memory MB": round(self.memory / 1e6),
        }


def cases(is_quick: bool = False) -> list[Case]:
    """The sizes that fit into minutes."""
    return [
        Case(
            name=f"stores/on disk, {rows} rows",
            prepare=partial(_prepare, rows),
            describe=lambda outcome: outcome.facts(),
            goal=Goal(gigabytes=1, exponent=1.2),
            series="stores/on disk",
            size=rows,
            amount=(rows, "rows"),
            needs=("rocksdict", "pyarrow"),
            limit_s=1_200.0,
        )
        for rows in (QUICK_SIZES if is_quick else SIZES)
    ]


def _prepare(rows: int) -> Work:
    return partial(_timed, rows)


def _timed(rows: int) -> Timed:
    outcome = run(rows)
    return Timed(outcome.fill, outcome)


def run(rows: int, memory_bytes: int = MEMORY_BYTES, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Fill a store and use it; `tell` hears how that gets on."""
    import pyarrow as pa

    from task_assignor.runtime import KeyValueStoreSpec
    from task_assignor.runtime.stores.memory import StoreMemory

    spec = KeyValueStoreSpec(
        "s", pa.schema([("id", pa.int64())]), pa.schema([("count", pa.int64()), ("sum", pa.float64())]), on_disk=True
    )
    folder = Path(tempfile.mkdtemp(prefix="task-assignor-bench-"))
    try:
        memory = StoreMemory(memory_bytes)
        store = spec.create(folder, memory)

        def put(numbers: np.ndarray, name: str, *, look_up: bool) -> None:
            keys = pa.array((numbers.astype(np.uint64) * np.uint64(_SPREAD)).view(np.int64))
            if look_up:
                before = store.lookup(keys)
                assert before.column("count").null_count == 0
            values = {"count": pa.array(numbers), "sum": pa.array(numbers * 0.5)}
            store.put_table(pa.table({"id": keys, **values}))
            store.drain_changes()
            store.keep(name)

        def fill() -> None:
            for first in range(0, rows, BATCH_ROWS):
                put(np.arange(first, min(first + BATCH_ROWS, rows)), f"filled {first}", look_up=False)
                if (first // BATCH_ROWS + 1) % (rows // BATCH_ROWS // 20 or 1) == 0:
                    tell(f"{first + BATCH_ROWS} rows")

        changed = min(rows, CHANGED_ROWS)
        chance = np.random.default_rng(1)

        def change() -> None:
            for first in range(0, changed, BATCH_ROWS):
                put(chance.integers(0, rows, min(BATCH_ROWS, changed)), f"changed {first}", look_up=True)

        filled, changing = _processor_seconds(fill), _processor_seconds(change)
        tell("changed")
        saved = []
        snapshot = _processor_seconds(lambda: saved.append(store.save()))
        tell("saved")
        put(np.arange(min(rows, BATCH_ROWS)), "last", look_up=True)
        second = _processor_seconds(lambda: saved.append(store.save()))
        store.close()
        begin = time.perf_counter()
        store = spec.create(folder, memory)
        assert (store.kept, len(store)) == ("last", rows)
        reopen = time.perf_counter() - begin
        begin = time.perf_counter()
        store.load(saved[-1], "last")
        restore = time.perf_counter() - begin
        assert len(store) == rows
        disk = sum(size for size in {path.stat().st_ino: path.stat().st_size for path in folder.rglob("*")}.values())
        store.close()
        return Outcome(rows, filled, changing, changed, snapshot, second, reopen, restore, disk, _peak_bytes())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _processor_seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    """One line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=SIZES[-1])
    parser.add_argument("--memory-mb", type=int, default=MEMORY_BYTES >> 20, help="memory that stores may take")
    given = parser.parse_args()

    def tell(what: str) -> None:
        print(f"{what}: {time.process_time():.0f} s, {_peak_bytes() / 1e6:.0f} MB", file=sys.stderr)

    for name, value in run(given.rows, given.memory_mb << 20, tell).facts().items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
