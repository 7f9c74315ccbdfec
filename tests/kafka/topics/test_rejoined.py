"""A client that was given up and comes back, late with what it had been ordered before: others have its tasks by then."""

from __future__ import annotations

import functools
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from task_assignor.kafka.topics.transactions import TaskTransactions
from task_assignor.runtime import TaskContext
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.shells.client_shell import ClientShell
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import wait_until
from tests.kafka.topics.test_sinks import Counting, Unique
from tests.runtime.support import CountByKey

pytestmark = pytest.mark.kafka


class IsLate(CountByKey):
    """Once a client is cut off when it has just taken an order, and joins again and goes on with that when others have its tasks.

    Args:
        folder: where the files are by which the clients wait for each other.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def init(self, context: TaskContext) -> None:
        """Of the task that comes first to its third batch."""
        begin, folder = TaskTransactions.begin, Path(self._folder)
        late, taken, looked = (folder / name for name in ("late", "taken", "looked"))
        folder.mkdir(exist_ok=True)

        def goes_on_late(task: TaskTransactions, order: TaskOrder) -> Any:
            committer = task._results.committer
            # It has not begun anything yet.
            committer._end()
            permits = committer.permits
            (shell,) = [found for found in gc.get_objects() if isinstance(found, ClientShell)]
            assert shell._channel is not None
            connect = shell._connect

            def connect_late() -> None:
                wait_until(taken.exists, "somebody else has its task")
                connect()

            setattr(shell, "_connect", connect_late)  # noqa: B010
            shell._channel.close()
            wait_until(lambda: committer.permits >= permits + 2, "it has joined again")
            found = begin(task, order)
            before = task._committed()
            looked.touch()
            wait_until(lambda: task._committed() != before, "somebody else has committed its batch")
            return found

        def wrapped(task: TaskTransactions, order: TaskOrder) -> Any:
            if order.batch >= 2 and not late.exists():
                late.write_text(f"{order.task} {os.getpid()}")
                return goes_on_late(task, order)
            found = begin(task, order)
            if late.exists() and late.read_text().split()[0] == str(order.task) and not looked.exists():
                taken.touch()
                wait_until(looked.exists, "the one that was given up has looked")
            return found

        if not hasattr(TaskTransactions, "is_wrapped"):
            setattr(TaskTransactions, "is_wrapped", True)  # noqa: B010
            setattr(TaskTransactions, "begin", wrapped)  # noqa: B010


def test_what_it_was_ordered_before_is_there_once(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    counting = Counting(kafka_cluster, unique)
    result = counting.run(tmp_path / "run", functools.partial(IsLate, str(tmp_path / "files")))
    assert (tmp_path / "files" / "looked").exists()
    assert result.lost_clients
    counting.check()
