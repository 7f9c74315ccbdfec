"""A soak by one command: an application that is run again and again on a topic that grows, while its clients are killed.

`python -m tests.runtime.soak --minutes 30`. Memory and open files of the driver, disk use and files of what is not to grow, and
the time to resume must stay flat: of the second half of the cycles, the line through them may not rise by more than a quarter of
its height. What bounds them is set so low that half an hour of small batches gets there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    LocalProcessLauncher,
    RunEvent,
    StreamsApplication,
    append_topic,
    write_topic,
)
from tests.runtime.support import QUICK, count_topology, settings

ROWS, KEYS = 2_000, 50
MAY_RISE = 0.25
GROWS = {"output"}
"""What a run gives."""
OPTIONS = attrs.evolve(
    QUICK, checkpoint_every_commits=8, snapshot_changelog_bytes=10_000, history_bytes=20_000, output_retention_ms=5_000
)


def _rows(number: int) -> pa.Table:
    """The rows of a cycle."""
    numbers = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"key": numbers % KEYS, "at": numbers, "value": numbers.astype(str)})


def _disk_use(run: Path) -> tuple[int, int]:
    """Bytes below the folder of the run of what is not to grow, and files."""
    sizes = [path.stat().st_size for entry in run.iterdir() if entry.name not in GROWS for path in _files(entry)]
    return sum(sizes), len(sizes)


def _files(entry: Path) -> Iterator[Path]:
    return (path for path in (entry, *entry.rglob("*")) if path.is_file())


def _memory() -> int:
    """Bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rise(values: list[float]) -> float:
    """By how much a line through the second half rises from its first to its last value, in parts of its middle.

    Its slope is the median of those between any two of them (Theil and Sen): some that are far off change nothing.
    """
    half = np.array(values[len(values) // 2 :])
    first, second = np.triu_indices(len(half), 1)
    slope = np.median((half[second] - half[first]) / (second - first))
    return float(slope * (len(half) - 1) / max(np.median(half), 1e-9))


def soak(root: Path, minutes: float) -> dict[str, list[float]]:
    """Run for so long; gives what was measured at the end of each cycle."""
    chance = random.Random(0)
    names = ("memory (bytes)", "open files", "disk (bytes)", "files", "resume (CPU seconds)")
    measured: dict[str, list[float]] = {name: [] for name in names}
    end, cycle = time.monotonic() + minutes * 60, 0
    write_topic(root / "topics", "left", _rows(0), partitions=4, key=["key"], timestamp="at")
    while time.monotonic() < end or cycle < 4:
        if cycle:
            append_topic(root / "topics", "left", _rows(cycle))
        app = StreamsApplication(
            count_topology(),
            settings(num_standby_replicas=1),
            topics_root=root / "topics",
            run_dir=root / "run",
            clients=2,
            launcher=LocalProcessLauncher(start_method="forkserver"),
            options=OPTIONS,
        )
        # Of the driver alone, so that it does not matter what else the machine does.
        begin = time.process_time()
        resumed: list[float] = []
        pids: list[int] = []

        def watch(
            event: RunEvent, begin: float = begin, resumed: list[float] = resumed, pids: list[int] = pids
        ) -> None:
            match event:
                case ClientJoined(pid=pid):
                    pids.append(pid)
                case BatchesCommitted():
                    resumed.append(time.process_time() - begin)
                    if pids and chance.random() < 0.1:
                        os.kill(pids.pop(), signal.SIGKILL)

        result = app.run(watch)
        assert result.rows_in == ROWS, f"cycle {cycle} read {result.rows_in} rows, not {ROWS}"
        open_files = len(list(Path("/proc/self/fd").iterdir()))
        for values, value in zip(
            measured.values(), (_memory(), open_files, *_disk_use(root / "run"), resumed[0]), strict=True
        ):
            values.append(value)
        cycle += 1
    return measured


def main() -> None:
    """Soak, print the figures, and exit with 1 if one of them rises."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    folder = Path(tempfile.mkdtemp(prefix="task-assignor-soak-"))
    try:
        measured = soak(folder, parser.parse_args().minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rising = []
    for name, values in measured.items():
        sys.stdout.write(
            f"{name}: {values[0]:.4g} at first, {values[len(values) // 2]:.4g} in the middle, {values[-1]:.4g} after "
            f"{len(values)} cycles, rises by {rise(values):.1%}\n"
        )
        if rise(values) > MAY_RISE:
            rising.append(name)
    sys.stdout.write(f"rising: {', '.join(rising) or 'nothing'}\n")
    sys.exit(bool(rising))


if __name__ == "__main__":
    main()
