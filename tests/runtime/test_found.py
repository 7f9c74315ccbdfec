"""What others had made of an order, but nobody had heard of, becomes the answer to it, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import write_topic
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.runtime.machines.protocol import START, TaskOrder
from task_assignor.runtime.machines.records import FileRef
from task_assignor.runtime.tasks.results import Found, Made, TaskResults
from task_assignor.runtime.tasks.task import StreamTask, TaskEnvironment
from task_assignor.runtime.topics.topic import Topic
from task_assignor.sdk import TaskId
from tests.runtime.support import count_topology

TASK = TaskId(0, 0)
CHANGES = FileRef.of_topic("totals-changelog", 1, 0, 0, 0, 1)


class _Elsewhere:
    """Like transactions: looks what is committed when it begins, and not again until it is closed."""

    def __init__(self, has_begun: bool = False, changelogs: Mapping[str, FileRef] | None = None) -> None:
        self.has_begun = has_begun
        self.changelogs = {"totals": CHANGES} if changelogs is None else changelogs

    def of_task(self, task: TaskId, topology: Any, files: TaskResults) -> Any:
        return self

    def begin(self, order: TaskOrder) -> Found | None:
        has_begun, self.has_begun = self.has_begun, True
        return None if has_begun else Found(Made({}, self.changelogs), {"x": (0, 2)}, 1, None, {"seen": 2})

    def changes(self, *given: object, **more: object) -> pa.Table:
        raise TaskMigratedException("brokers do not answer")

    def close(self) -> None:
        self.has_begun = False


def task_of(tmp_path: Path, results: _Elsewhere) -> tuple[StreamTask, TaskOrder]:
    """A task whose results are there, and an order for it."""
    rows = pa.table({"key": pa.array([1, 2], pa.int64()), "at": pa.array([1, 2], pa.int64())})
    write_topic(tmp_path / "topics", "x", rows, partitions=1, key="key")
    logs = {"x": Topic.open(tmp_path / "topics", "x")}
    more: Any = {"results": results}
    environment = TaskEnvironment("app", "run", tmp_path / "run", tmp_path / "state", logs, **more)
    task = StreamTask(TASK, count_topology("x").of_task(TASK), environment)
    return task, TaskOrder(TASK, 0, 1, {"x": (0, 2)}, START)


def test_what_was_found_is_looked_for_again_if_the_state_could_not_go_along(tmp_path: Path) -> None:
    """The next try did not see it, and processed again what was committed."""
    results = _Elsewhere()
    task, order = task_of(tmp_path, results)
    for _ in range(2):
        with pytest.raises(TaskMigratedException, match="brokers do not answer"):
            task.process(order)
        assert not results.has_begun


def test_what_was_found_counts_what_it_had_counted(tmp_path: Path) -> None:
    """Bad records of a batch whose client was killed before it told of it were counted nowhere."""
    task, order = task_of(tmp_path, _Elsewhere(changelogs={}))
    result = task.process(order)
    assert (result.is_found, result.counters) == (True, {"seen": 2})
