"""What is in a run folder after thousands of small batches and several resumes: of each kind of file no more than is said."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import CommitLog, StreamsApplication, append_topic
from task_assignor.runtime.stores.memory_rows import ALIKE
from task_assignor.runtime.stores.rows import IN_MEMORY
from task_assignor.runtime.stores.window import KIND as OF_WINDOWS
from task_assignor.runtime.stores.window import MAX_SEGMENTS
from tests.runtime.support import QUICK, application, stream, write_streams
from tests.runtime.test_repartition import counting_topology, expected_counts, last_counts

RUNS, ROWS, EVERY = 6, 900, 16
CLIENTS, TASKS = 2, 5


def _app(root: Path) -> StreamsApplication:
    options = attrs.evolve(
        QUICK,
        max_batch_rows=4,
        snapshot_changelog_bytes=4_000,
        checkpoint_every_commits=EVERY,
        output_retention_ms=0,
    )
    return application(root, counting_topology(), clients=CLIENTS, options=options)


def _files(run: Path) -> tuple[Counter[str], Counter[str]]:
    """Kind of file -> how many, and their bytes."""
    files, size = Counter[str](), Counter[str]()
    for path in run.rglob("*"):
        if path.is_file():
            kind = path.relative_to(run).parts[0]
            files[kind] += 1
            size[kind] += path.stat().st_size
    return files, size


@pytest.mark.slow
def test_nothing_in_a_run_folder_grows_with_the_batches_but_what_is_said(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=ROWS, keys=50, partitions=2)
    seen: list[tuple[Counter[str], Counter[str]]] = []
    batches = 0
    for number in range(RUNS):
        if number:
            span = 600_000 * number
            for name, rows in (("left", ROWS), ("right", ROWS // 2)):
                new = stream(rows, 50, seed=10 * number + rows % 7)
                new = new.set_column(1, "at", pa.array([at + span for at in new.column("at").to_pylist()]))
                append_topic(tmp_path / "topics", name, new)
                left, right = (
                    (pa.concat_tables([left, new]), right) if name == "left" else (left, pa.concat_tables([right, new]))
                )
        batches = _app(tmp_path).run().batches
        seen.append(_files(tmp_path / "run"))
    assert last_counts(tmp_path) == expected_counts(left, right)
    assert batches > 2_000

    files, size = seen[-1]
    commits = CommitLog(tmp_path / "run").last
    # As many in the last run as in the second: the batches in between are gone.
    for kind in ("changelog", "replaced"):
        assert files[kind] <= 2 * max(seen[1][0][kind], 8), f"{kind}: {[found[kind] for found, _ in seen]}"
    newest = [task.recovery.snapshots[0] for task in CommitLog(tmp_path / "run").checkpoint().state.tasks.values()]
    parts = [(saved.kind, len(saved.parts)) for snapshot in newest for saved in snapshot.stores.values()]
    assert max(count for kind, count in parts if kind == OF_WINDOWS) <= MAX_SEGMENTS
    assert max(count for kind, count in parts if kind == IN_MEMORY) <= 1 + ALIKE * math.log(batches, ALIKE)
    # Two checkpoints have two snapshots of each task, which share most of their parts.
    for kind in ("snapshots", "clients"):
        assert files[kind] <= 2 * sum(count for _, count in parts) + 8 * TASKS, f"{kind}: {parts}"
    assert files["repartition"] == 0, "all is read"
    assert files["checkpoints"] == 2
    # Since the checkpoint before the newest one, which may be late; and the first record of each run.
    assert files["commits"] <= 8 * EVERY + RUNS, f"{[found['commits'] for found, _ in seen]} of {commits}"
    assert files["history"] <= math.log2(commits) + 1
    assert size["history"] < 500 * commits, "what each batch said, compressed: the one thing that stays"
    assert files["output"] <= 40 * TASKS, f"{[found['output'] for found, _ in seen]}"
    assert files["states"] <= 100
    assert files["log"] <= 64
