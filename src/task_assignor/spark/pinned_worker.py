"""The Spark task that is a stream task: it does what its client in the driver tells it. Where it must run, others decide; it looks."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import attrs
import msgspec

from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.machines.client.task import Job, Share, SnapshotFailed
from task_assignor.runtime.machines.client.values import Outcome
from task_assignor.runtime.machines.client.works import SHARE
from task_assignor.runtime.machines.encoding import Message
from task_assignor.runtime.machines.protocol import SnapshotTaken, TaskDone, TaskFailed, TaskResult
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.shells.tasks import Surroundings, TasksHere, prepare_process
from task_assignor.runtime.shells.transport import Channel, connect
from task_assignor.runtime.steps import Steps, step
from task_assignor.sdk import TaskId
from task_assignor.spark.shipping import sent_function
from task_assignor.spark.where import UNKNOWN, executor_process, read_bootstrap, spark_attempt


@attrs.frozen
class Pinned:
    """What a Spark task is told.

    Args:
        executor: the executor it belongs on.
        work: `Look` or `Serve`, pickled: elsewhere nobody looks into it.
    """

    executor: str
    work: bytes


@attrs.frozen
class Look:
    """Say what there is for a client.

    Args:
        bootstrap: the client, pickled.
    """

    bootstrap: bytes


@attrs.frozen
class Serve:
    """Be a stream task, until told that it is over.

    Args:
        bootstrap: the client, pickled.
        address: where the client listens.
        authkey: secret of that connection.
        token: what the client knows it by.
        task: which.
    """

    bootstrap: bytes = attrs.field(repr=False)
    address: tuple[str, int]
    authkey: bytes = attrs.field(repr=False)
    token: str
    task: TaskId


@attrs.frozen
class Misplaced:
    """Spark ran it elsewhere, so nothing was done.

    Args:
        executor: where it ran.
    """

    executor: str


class Opened(Message, frozen=True):
    """It runs where it should.

    Args:
        token: the one that it was given.
    """

    token: str


class Request(Message, frozen=True):
    """Something to do.

    Args:
        number: what the answer is known by.
        work: what to do; a share is done beside jobs.
    """

    number: int
    work: Job | Share


class NewPermit(Message, frozen=True):
    """What it makes counts with this permit from now on, unless it was ordered in a generation before the first."""

    permit: bytes = b""
    first: int = 0


class Reply(Message, frozen=True):
    """What came of a request."""

    number: int
    outcome: Outcome | SnapshotTaken


class Stepped(Message, frozen=True):
    """A request has got on.

    Args:
        number: which.
        doing: what is done for it now.
    """

    number: int
    doing: str


def pinned_function() -> Callable[[Iterable[bytes]], Any]:
    """What each Spark task does."""
    return sent_function(__name__, do_here.__name__)


def do_here(payload: bytes) -> Surroundings | Misplaced | str:
    """Do what a Spark task is told, if this is the right executor."""
    told: Pinned = pickle.loads(payload)
    executor, process = executor_process()
    # Local mode has no other executor, also where there is no /proc to look at.
    if told.executor not in {executor, "driver"}:
        if executor == UNKNOWN:
            raise ClientException(
                f"Nothing says on which executor this Spark task runs, on {socket.gethostname()}: /proc does not. Pinned jobs need Linux "
                "there, outside of local mode; maybe use SparkLauncher."
            )
        return Misplaced(executor)
    work: Look | Serve = pickle.loads(told.work)
    if isinstance(work, Look):
        # The client is the executor, not this Python worker.
        return attrs.evolve(TasksHere(read_bootstrap(work.bootstrap)).surroundings(), pid=process)
    return _serve(work, spark_attempt(told.executor))


def _serve(told: Serve, attempt: str) -> str:
    bootstrap = read_bootstrap(told.bootstrap)
    prepare_process(bootstrap)
    channel = connect(told.address, told.authkey, 10, Request | NewPermit | None)
    try:
        channel.send(Opened(told.token))
        interval_s = bootstrap.options.heartbeat_interval_ms / 1000
        # A task has one place at a time, and whoever makes another one of it fences the one before.
        return _Worker(TasksHere(bootstrap, str(told.task)), channel, attempt, interval_s).run()
    finally:
        channel.close()
        channel.release()


class _Worker:
    def __init__(
        self, tasks: TasksHere, channel: Channel[Request | NewPermit | None], attempt: str, interval_s: float
    ) -> None:
        self._tasks = tasks
        self._interval_s = interval_s
        self._steps = Steps()
        self._numbers: dict[tuple[str, TaskId], int] = {}
        """Kind and task of what is done now -> the number of its request."""
        self._over = threading.Event()
        self._channel = channel
        self._attempt = attempt
        self._lock = threading.Lock()
        self._batches = self._rows = 0
        self._error: BaseException | None = None

    def run(self) -> str:
        """Serve requests until there are no more; gives a summary."""
        threading.Thread(target=self._tell_steps, name="steps", daemon=True).start()
        with (
            ThreadPoolExecutor(1, thread_name_prefix="share") as shares,
            ThreadPoolExecutor(1, thread_name_prefix="job") as jobs,
        ):
            while True:
                try:
                    request = self._channel.receive()
                except (EOFError, OSError):
                    break  # Nobody waits for an answer any more.
                if request is None:
                    break
                if isinstance(request, NewPermit):
                    self._tasks.take_permit(request.permit, request.first)
                elif isinstance(request.work, Share):
                    shares.submit(self._carry_out, request.number, SHARE, request.work)
                else:
                    jobs.submit(self._carry_out, request.number, request.work.kind.value, request.work)
            # Nobody brings another one, and a job would wait for it.
            self._tasks.take_permit(b"", 0)
        self._over.set()
        self._tasks.close()
        if self._error is not None:
            raise self._error
        return f"{self._batches} batches, {self._rows} rows"

    def _do(self, job: Job) -> Outcome:
        outcome = self._tasks.do(job)
        if not isinstance(outcome, TaskResult):
            return outcome
        step("its files are synced")
        told: Future[TaskDone | TaskFailed] = Future()
        self._tasks.make_durable(outcome, told.set_result)
        if isinstance(durable := told.result(), TaskFailed):
            return durable.failure
        self._batches += 1
        self._rows += sum(end - start for start, end in outcome.offsets.values())
        return msgspec.structs.replace(outcome, attempt=self._attempt)

    def _share(self, work: Share) -> SnapshotTaken | SnapshotFailed:
        outcome = self._tasks.share(work)
        return SnapshotTaken(outcome) if isinstance(outcome, TaskSnapshot) else outcome

    def _carry_out(self, number: int, kind: str, work: Job | Share) -> None:
        self._numbers[kind, work.task] = number
        try:
            with self._steps.of(kind, work.task):
                outcome = self._share(work) if isinstance(work, Share) else self._do(work)
            self._send(Reply(number, outcome))
        except OSError:
            self._channel.close()
        except BaseException as error:  # noqa: BLE001 (nobody else would hear of it, and an answer is waited for)
            self._error = error
            self._channel.close()

    def _send(self, message: Reply | Stepped) -> None:
        with self._lock:
            self._channel.send(message)

    def _tell_steps(self) -> None:
        """What hangs is ended by the coordinator; so it has to hear of what does not."""
        told: dict[int, int] = {}
        with suppress(OSError):
            while not self._over.wait(self._interval_s):
                now = {self._numbers[key]: found for key, found in self._steps.now().items()}
                for number, (count, doing) in now.items():
                    if told.get(number) != count:
                        self._send(Stepped(number, doing))
                told = {number: count for number, (count, _) in now.items()}
