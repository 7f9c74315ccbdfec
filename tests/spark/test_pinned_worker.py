"""The Spark task that is a stream task, without Spark: what it does when something ends."""

from __future__ import annotations

import pickle
import socket
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from task_assignor.runtime import ClientException
from task_assignor.runtime.machines.client.task import Job, JobKind
from task_assignor.runtime.machines.encoding import reader_of
from task_assignor.runtime.machines.protocol import TaskClosed
from task_assignor.runtime.shells.transport import Channel
from task_assignor.sdk import TaskId
from task_assignor.spark.pinned_worker import (
    Misplaced,
    NewPermit,
    Pinned,
    Reply,
    Request,
    Stepped,
    _Worker,
    do_here,
)

A = TaskId(0, 0)
PATIENCE_S = 8


class FakeTasks:
    """Tasks whose only job waits for a permit that is none."""

    def __init__(self) -> None:
        self.fails = False
        self._none_any_more = threading.Event()

    def do(self, job: Job) -> Any:
        if self.fails:
            raise MemoryError("no more")
        assert self._none_any_more.wait(PATIENCE_S)
        return TaskClosed(job.task)

    def take_permit(self, permit: bytes, first: int) -> None:
        if not permit and not first:
            self._none_any_more.set()

    def close(self) -> None:
        """Nothing is open."""


class Place:
    """A worker, and who asks it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            here = socket.create_connection(door.getsockname())
            there, _ = door.accept()
        self.tasks = FakeTasks()
        self.channel: Channel[Reply | Stepped] = Channel(here, reader_of(Reply | Stepped))
        self._worker = _Worker(self.tasks, Channel(there, reader_of(Request | NewPermit | None)), "attempt", 0.05)  # type: ignore[arg-type]
        self.ended: BaseException | str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.ended = self._worker.run()
        except BaseException as error:  # noqa: BLE001
            self.ended = error

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.channel.release()


def test_where_nobody_can_look_there_is_one_executor_in_local_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS, which has no /proc, every Spark task thought that it was elsewhere, and no pinned run ever began.

    On a cluster the executor was said to be too busy.
    """
    monkeypatch.setattr("task_assignor.spark.pinned_worker.executor_process", lambda: ("unknown", 1))
    with pytest.raises(pickle.UnpicklingError):
        do_here(pickle.dumps(Pinned("driver", b"looked at")))
    with pytest.raises(ClientException, match=r"/proc does not. Pinned jobs need Linux"):
        do_here(pickle.dumps(Pinned("7", b"looked at")))
    monkeypatch.setattr("task_assignor.spark.pinned_worker.executor_process", lambda: ("8", 1))
    assert do_here(pickle.dumps(Pinned("7", b"looked at"))) == Misplaced("8")


def test_who_waits_for_a_job_that_breaks_hears_that_it_has_ended(place: Place) -> None:
    """It ran in a thread of its own, where nobody saw the error, and waited for an answer for ever."""
    place.tasks.fails = True
    place.channel.send(Request(1, Job(JobKind.CLOSE, A)))
    with pytest.raises((EOFError, OSError)):
        deque(iter(place.channel.receive, None))
    place.join()
    assert isinstance(place.ended, MemoryError), "Spark says why"


def test_a_job_that_waits_for_a_permit_does_not_hold_the_slot_when_its_client_has_gone(place: Place) -> None:
    place.channel.send(NewPermit(b"1", 1))
    place.channel.send(Request(1, Job(JobKind.CLOSE, A)))
    assert isinstance(place.channel.receive(), Stepped)
    place.channel.close()
    place.join()
    assert isinstance(place.ended, str)
