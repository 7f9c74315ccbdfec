"""The tasks of a client whose tasks are Spark tasks: the driver's side. What the other side does is in `pinned_worker`."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from task_assignor.runtime import ClientBootstrap, ClientException
from task_assignor.runtime.machines.client.task import Job, JobKind, Share, SnapshotFailed
from task_assignor.runtime.machines.client.values import Outcome, StateLost
from task_assignor.runtime.machines.protocol import (
    START,
    SnapshotTaken,
    TaskClosed,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskResult,
)
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.shells.tasks import Surroundings
from task_assignor.runtime.shells.transport import Channel, Listener
from task_assignor.runtime.steps import step
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted, said
from task_assignor.spark.executors import Executor, live_executors, run_on
from task_assignor.spark.jobs import OURS, failed_attempts, reason_of, repeated_failure, running_executors
from task_assignor.spark.pinned_worker import (
    Look,
    Misplaced,
    NewPermit,
    Opened,
    Pinned,
    Reply,
    Request,
    Serve,
    Stepped,
    pinned_function,
)

_LOOK_S: Final = 0.1
_AGAIN_S: Final = 0.5
_EXPLAINED_S: Final = 1.0
_ENDS_S: Final = 1.0
_STEPS_S: Final = 0.5

logger = logger_of(__name__)


class Door:
    """Where the Spark tasks of a run come in.

    Args:
        bind_host: address to listen on.
        bind_port: port to listen on; 0: any that is free.
        authkey: secret of the connections.
        host: address that they connect to.
    """

    def __init__(self, bind_host: str, bind_port: int, authkey: bytes, host: str) -> None:
        self._listener = Listener(bind_host, bind_port, authkey, Opened | Reply | Stepped, self._welcome)
        self.address = (host, self._listener.port)
        self._expected: dict[str, Future[Channel[Any]]] = {}
        self._lock = threading.Lock()
        self._listener.start()

    def expect(self, token: str) -> Future[Channel[Any]]:
        """The connection of the Spark task with this token, when it comes."""
        with self._lock:
            self._expected[token] = Future()
            return self._expected[token]

    def forget(self, token: str) -> None:
        """Who comes with this token is sent away."""
        with self._lock:
            self._expected.pop(token, None)

    def _welcome(self, channel: Channel[Any]) -> None:
        try:
            opened = channel.receive()
            with self._lock:
                waiting = self._expected.pop(opened.token, None) if isinstance(opened, Opened) else None
            if waiting is not None:
                waiting.set_result(channel)
                return
        except (EOFError, OSError, ValueError) as error:
            logger.debug("A Spark task did not come in: %s", error)
        channel.close()
        channel.release()

    def close(self) -> None:
        """Nobody comes in any more."""
        self._listener.close()


class _GoneError(Exception):
    """The Spark task has ended in the middle."""


class _SparkJob:
    """A Spark job of one Spark task on one executor, in a thread of its own."""

    def __init__(self, spark: SparkSession, executor: Executor, what: str, work: bytes) -> None:
        self.group = f"{OURS}{uuid.uuid4()}"
        self.began = time.monotonic()
        self.outcome: Any = None
        self.error: BaseException | None = None
        self._has_slot = False
        self._spark = spark
        context = spark.sparkContext
        payload = pickle.dumps(Pinned(executor.executor_id, work))

        def run() -> None:
            context.setJobGroup(self.group, what, interruptOnCancel=True)
            try:
                self.outcome = run_on(spark, executor, payload, pinned_function())
            except BaseException as error:  # noqa: BLE001 (Py4J and Spark raise their own kinds; nobody else hears of it)
                self.error = error

        self._thread = InheritableThread(target=run, name=self.group, daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def has_slot(self) -> bool:
        """Its Spark task runs, or ran when that was asked before: it may have ended since, and nobody has heard of it yet."""
        self._has_slot = self._has_slot or bool(running_executors(self._spark, self.group))
        return self._has_slot

    def why_failing(self) -> str:
        """Why it has failed, or fails again and again; "": it does not."""
        if self.error is not None:
            return reason_of(self._spark, said(self.error))
        reason = repeated_failure(self._spark, self.group)
        return reason_of(self._spark, reason) if reason else ""

    def last_failure(self) -> str:
        """What Spark says of the newest attempt that failed; "": none did."""
        with suppress(Py4JError, OSError):
            for attempt in reversed(failed_attempts(self._spark, self.group)):
                return reason_of(self._spark, attempt.message)
        return ""

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def cancel(self) -> None:
        with suppress(Py4JError, OSError):  # the session was stopped meanwhile, or its JVM has ended
            self._spark.sparkContext.cancelJobGroup(self.group)


class _Place:
    """A Spark task that is a stream task."""

    def __init__(self, job: _SparkJob, channel: Channel[Any]) -> None:
        self.job = job
        self._channel = channel
        self._open: dict[int, Future[Any]] = {}
        self._steps: dict[int, str] = {}
        """Request -> what is done for it, if that is new."""
        self._numbers = 0
        self._is_gone = False
        self._lock = threading.Lock()
        threading.Thread(target=self._read, name="pinned-reader", daemon=True).start()

    def ask(self, work: Job | Share) -> Any:
        """Have something done there, and wait for what comes of it.

        Raises:
            _GoneError: it has ended.
        """
        answer: Future[Any] = Future()
        try:
            with self._lock:
                if self._is_gone:
                    raise _GoneError
                self._numbers += 1
                self._open[self._numbers] = answer
                self._channel.send(Request(self._numbers, work))
                number = self._numbers
        except OSError as error:
            raise _GoneError from error
        while not wait([answer], _STEPS_S).done:
            # Who waits there gets on as the other side does.
            doing = self._steps.pop(number, None)
            if doing is not None:
                step(doing)
        return answer.result()

    def tell(self, permit: NewPermit) -> None:
        """What it makes counts with this permit from now on."""
        with suppress(OSError), self._lock:  # whoever asks it next hears that it has ended
            self._channel.send(permit)

    def _read(self) -> None:
        try:
            while True:
                message: Reply | Stepped = self._channel.receive()
                if isinstance(message, Stepped):
                    self._steps[message.number] = message.doing
                    continue
                with self._lock:
                    waiting = self._open.pop(message.number)
                waiting.set_result(message.outcome)
        except BaseException as error:
            if not isinstance(error, (EOFError, OSError)):
                logger.warning("What came from a Spark task cannot be read", exc_info=True)
            with self._lock:
                self._is_gone = True
                left, self._open = self._open, {}
            for waiting in left.values():
                waiting.set_exception(_GoneError())
        finally:
            self._channel.close()
            self._channel.release()

    def end(self) -> None:
        """Its Spark task may end."""
        with suppress(OSError), self._lock:
            self._channel.send(None)

    def cut(self) -> None:
        """Let go of it, whatever it does."""
        self._channel.close()
        self.job.cancel()


class PinnedTasks:
    """Tasks that are Spark tasks on one executor; a task's first job begins its Spark task, closing it ends that.

    Args:
        spark: the session.
        bootstrap: the client.
        payload: the same, as `pickle_bootstrap` makes it.
        executor: where its tasks belong.
        door: where they come in.
        authkey: secret of that.
        lost: told if the executor is not there any more.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: ClientBootstrap,
        payload: bytes,
        executor: Executor,
        door: Door,
        authkey: bytes,
        lost: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._payload = payload
        self._executor = executor
        self._door = door
        self._authkey = authkey
        self._lost = lost
        self._places: dict[TaskId, _Place] = {}
        self._opening: set[_SparkJob] = set()
        self._permit = NewPermit()
        self._telling = threading.Lock()
        self._is_closed = False

    def surroundings(self) -> Surroundings:
        """What there is on the executor: asked in a Spark job.

        Raises:
            ClientException: it cannot be asked.
        """
        what = f"Look at {self._executor} for {self._bootstrap.spec.name} of {self._bootstrap.application_id}"
        try:
            found = self._begin(what, lambda: pickle.dumps(Look(self._payload)), lambda job: job.outcome)
        except _GoneError as error:
            raise ClientException(f"{self._executor} is not there any more") from error
        assert isinstance(found, Surroundings)
        return found

    def do(self, job: Job) -> Outcome:
        """Have a job done in the Spark task of its task."""
        try:
            if job.kind is JobKind.CLOSE:
                return self._close(job)
            place = self._places.get(job.task)
            if place is None:
                if job.order is not None and job.order.base != START:
                    raise _GoneError
                place = self._open(job.task)
                with self._telling:
                    self._places[job.task] = place
                    place.tell(self._permit)
            return self._asked(place, job)
        except _GoneError:
            return StateLost(TaskFailure(job.task, "client", self._story(job.task)))
        except ClientException as error:
            return TaskFailure(job.task, "client", str(error))

    @staticmethod
    def _asked(place: _Place, job: Job) -> Outcome:
        outcome: Outcome = place.ask(job)
        return outcome

    def _close(self, job: Job) -> Outcome:
        place = self._places.pop(job.task, None)
        if place is None:
            return TaskClosed(job.task)
        with suppress(_GoneError):
            outcome = self._asked(place, job)
            place.end()
            return outcome
        place.cut()
        return TaskClosed(job.task)

    def _story(self, task: TaskId) -> str:
        """How the Spark task of a task ended that should not have; it is gone afterwards."""
        place = self._places.pop(task, None)
        said = ""
        if place is not None:
            until = time.monotonic() + _EXPLAINED_S
            while not said and time.monotonic() < until:
                said = place.job.last_failure()
                time.sleep(_LOOK_S)
            place.cut()
        if self._is_lost():
            self._lost(f"{self._executor} is lost")
        story = f"The Spark task of task {task} on {self._executor} has ended: {said or 'Spark does not say why'}"
        logger.warning("%s", story)
        return story

    def take_permit(self, permit: bytes, first: int) -> None:
        """All places get it."""
        with self._telling:
            self._permit = NewPermit(permit, first)
            for place in list(self._places.values()):
                place.tell(self._permit)

    def is_due(self, task: TaskId) -> bool:  # noqa: ARG002 - a protocol's
        """Never: runs with pinned jobs end when all is read."""
        return False

    def make_durable(self, result: TaskResult, tell: Callable[[TaskDone | TaskFailed], None]) -> None:
        """It is: the Spark task has seen to that."""
        tell(TaskDone(result))

    def share(self, job: Share) -> TaskSnapshot | SnapshotFailed:
        """Have a snapshot written by the Spark task of its task."""
        place = self._places.get(job.task)
        try:
            if place is None:
                raise _GoneError
            outcome: SnapshotTaken | SnapshotFailed = place.ask(job)
        except _GoneError:
            return SnapshotFailed(f"the Spark task of task {job.task} has ended")
        return outcome.snapshot if isinstance(outcome, SnapshotTaken) else outcome

    def begin_no_more(self) -> None:
        """Let go of Spark tasks that wait for a slot: they have not begun, and begin no more. May be called from any thread."""
        self._is_closed = True

    def wait_for_slot(self, seconds: float) -> bool:
        """One of the Spark tasks has waited so long for a slot. May be asked from any thread, and is asked more often than that."""
        waiting = [job for job in list(self._opening) if not job.has_slot()]
        return any(job.began <= time.monotonic() - seconds for job in waiting)

    def close(self) -> None:
        """End all Spark tasks; those that do not end by themselves are cancelled."""
        self.begin_no_more()
        places, self._places = list(self._places.values()), {}
        for place in places:
            place.end()
        until = time.monotonic() + _ENDS_S
        for place in places:
            place.job.join(max(until - time.monotonic(), 0))
            place.cut()
        for job in list(self._opening):
            job.cancel()

    # Spark tasks.

    def _open(self, task: TaskId) -> _Place:
        """Start the Spark task of a task."""
        name = self._bootstrap.topology.of_task(task).name
        what = (
            f"Task {task} ({name}) of {self._bootstrap.application_id}: {self._bootstrap.spec.name}, {self._executor}"
        )
        coming: dict[str, Future[Channel[Any]]] = {}

        def work() -> bytes:
            token = str(uuid.uuid4())
            coming[token] = self._door.expect(token)
            return pickle.dumps(Serve(self._payload, self._door.address, self._authkey, token, task))

        def opened(job: _SparkJob) -> _Place | None:
            # The newest: where Spark ran it elsewhere, nobody came.
            channel = list(coming.values())[-1]
            wait([channel], _LOOK_S)
            return _Place(job, channel.result()) if channel.done() else None

        try:
            place: _Place = self._begin(what, work, opened)
            return place
        finally:
            for token in coming:
                self._door.forget(token)

    def _begin(self, what: str, work: Callable[[], bytes], result: Callable[[_SparkJob], Any]) -> Any:
        """Start a Spark job on the executor, again where Spark has run it elsewhere, until there is a result.

        Raises:
            ClientException: there is none.
            _GoneError: the executor is not there any more.
        """
        began = time.monotonic()
        limit_s = self._bootstrap.options.startup_timeout_ms / 1000
        elsewhere: list[str] = []
        while not self._is_closed:
            job = _SparkJob(self._spark, self._executor, what, work())
            self._opening.add(job)
            try:
                found = self._await(job, what, result)
            finally:
                self._opening.discard(job)
            if not isinstance(found, Misplaced):
                return found
            elsewhere.append(found.executor)
            logger.warning("%s: Spark ran it on executor %s, so it is tried again.", what, found.executor)
            if time.monotonic() - began > limit_s:
                raise ClientException(
                    f"{what}: it belongs on executor {self._executor.executor_id}, where the assignor put it, but Spark has run it on "
                    f"{', '.join(sorted(set(elsewhere)))} ({counted(len(elsewhere), 'time')} in {limit_s:.0f} s), where nothing was done. "
                    "Maybe other Spark jobs hold the slots of that executor, or spark.locality.wait is short (at least 3s is good)."
                )
            time.sleep(_AGAIN_S)
        raise _GoneError

    def _await(self, job: _SparkJob, what: str, result: Callable[[_SparkJob], Any]) -> Any:
        look = time.monotonic() + _AGAIN_S
        while True:
            found = result(job)
            if found is None and isinstance(job.outcome, Misplaced):
                found = job.outcome
            if found is not None:
                return found
            if self._is_closed:
                job.cancel()
                raise _GoneError
            if not job.runs and job.outcome is not None and not isinstance(job.outcome, Misplaced):
                # It has run and ended without coming in: somebody has sent it away.
                raise _GoneError
            if time.monotonic() >= look or not job.runs:
                look = time.monotonic() + _AGAIN_S
                # To wait for a slot is not to hang.
                step(f"it waits for a slot of {self._executor}")
                self._check(job, what)
            job.join(_LOOK_S)

    def _check(self, job: _SparkJob, what: str) -> None:
        if self._is_lost():
            job.cancel()
            self._lost(f"{self._executor} is lost")
            raise _GoneError
        reason = job.why_failing()
        if reason:
            job.cancel()
            raise ClientException(f"{what} failed: {reason}")

    def _is_lost(self) -> bool:
        return self._executor.executor_id not in {one.executor_id for one in live_executors(self._spark)}
