"""The shell around a client's state machine: threads, connection, clock and the jobs. It decides nothing.

`run_client` is what a launcher runs, in an operating system process of its own or inside a Spark task.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyarrow as pa

from task_assignor.runtime import processors
from task_assignor.runtime.blame import text_of
from task_assignor.runtime.commits import RunLayout
from task_assignor.runtime.errors import ClientException, TaskCorruptedException, TaskMigratedException
from task_assignor.runtime.log import Log
from task_assignor.runtime.machines.client import (
    Answered,
    ClientEvent,
    ClientInstruction,
    ClientMachine,
    Connect,
    Connected,
    Disconnected,
    End,
    HeartbeatDue,
    JobDone,
    LeaveRequested,
    Outcome,
    Received,
    RunJob,
    SendToCoordinator,
    StartHeartbeats,
    StateLost,
)
from task_assignor.runtime.machines.client_task import Job, JobKind, Share, ShareDone, SnapshotFailed, SnapshotWritten
from task_assignor.runtime.machines.protocol import (
    Hello,
    TaskClosed,
    TaskDone,
    TaskFailed,
    TaskResult,
    ToCoordinator,
)
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.machines.works import SHARE
from task_assignor.runtime.repartition import RepartitionLog
from task_assignor.runtime.shells.heartbeat import HeartbeatProcess
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.places import rack_of, tags_of
from task_assignor.runtime.shells.transport import Channel, connect
from task_assignor.runtime.steps import Steps, step
from task_assignor.runtime.storage import BackgroundWriter
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.task import (
    StreamTask,
    TaskEnvironment,
    failure_of,
    local_positions,
    positions_on_disk,
    share_snapshot,
)
from task_assignor.sdk import TaskId
from task_assignor.sdk.text import named

_log = logging.getLogger(__name__)
_RETRY_S = 0.1


def run_client(bootstrap: ClientBootstrap, attempt: str) -> str:
    """Run a client until the application stops it; the whole client, in the calling thread and a few others.

    At SIGTERM it leaves in order: its batches are committed and its tasks given to others. After a lost connection (or if it was given up because it was not heard of) it joins again as a new member.

    Args:
        bootstrap: who it is, where the coordinator is, what is computed.
        attempt: what executes it, for the commit records: a process, a Spark task attempt.

    Returns:
        Why the application stopped it.

    Raises:
        ClientException: it ended although nobody told it to: the coordinator cannot be reached, or another client
            has taken its name. Whoever launched it may start another one.
        TopicException: a topic cannot be opened.
    """
    # One task is one thread: several clients share a machine, and polars would start a thread per core in each.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    # At its first conversion pyarrow imports pandas, where that is installed: not while a processor's time is measured.
    pa.scalar(0)
    if any(_is_ready_made(found.processor) for found in bootstrap.topology.sub_topologies):
        # They compute with it, and to import it takes as long as many batches.
        importlib.import_module("polars")
    shell = _ClientShell(bootstrap, attempt)
    with _leaving_at_sigterm(shell):
        return shell.run()


@contextmanager
def _leaving_at_sigterm(shell: _ClientShell) -> Iterator[None]:
    """SIGTERM means to leave in order; a second one, to end at once. Only a process's first thread can hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        shell.leave("SIGTERM")

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_ready_made(factory: object) -> bool:
    return getattr(factory, "__module__", "").startswith(processors.__name__)


@attrs.frozen
class _ReadyToSend:
    """A message that had to wait for the disk, about a task."""

    task: TaskId
    message: ToCoordinator


class _ClientShell:
    def __init__(self, bootstrap: ClientBootstrap, attempt: str) -> None:
        self._bootstrap = bootstrap
        self._attempt = attempt
        self._writer = BackgroundWriter(RunLayout(bootstrap.run_dir).storage, bootstrap.spec.threads + 1)
        layout = RunLayout(bootstrap.run_dir)
        topics: dict[str, Log] = {
            topic: bootstrap.topics.open(topic, bootstrap.topic_ids.get(topic)) for topic in bootstrap.topology.sources
        }
        specs = bootstrap.topology.specs({name: topic.spec for name, topic in topics.items()})
        topics |= {
            name: RepartitionLog(specs[name], layout, bootstrap.run_id) for name in bootstrap.topology.repartitions
        }
        self._environment = TaskEnvironment(
            bootstrap.application_id,
            bootstrap.run_id,
            bootstrap.run_dir,
            Path(bootstrap.state_dir),
            topics,
            bootstrap.options.compression,
            StoreMemory(bootstrap.options.state_memory_bytes),
            self._writer.put_all,
            bootstrap.topics.results(bootstrap.application_id, bootstrap.topology),
        )
        options = bootstrap.options
        heartbeats = -(-options.snapshot_interval_ms // options.heartbeat_interval_ms)
        self._machine = ClientMachine(bootstrap.spec.threads, options.snapshot_changelog_bytes, heartbeats)
        self._events: queue.SimpleQueue[tuple[Channel | None, ClientEvent | _ReadyToSend]] = queue.SimpleQueue()
        self._channel: Channel | None = None
        self._heartbeats: HeartbeatProcess | None = None
        self._tasks: dict[TaskId, StreamTask] = {}
        self._steps = Steps()
        self._workers = ThreadPoolExecutor(bootstrap.spec.threads, thread_name_prefix=f"{bootstrap.spec.name}-task")
        self._syncs = ThreadPoolExecutor(bootstrap.spec.threads + 1, thread_name_prefix=f"{bootstrap.spec.name}-sync")
        self._shares = ThreadPoolExecutor(1, thread_name_prefix=f"{bootstrap.spec.name}-share")
        self._ended: str | None = None
        self._was_told = False

    def run(self) -> str:
        interval = self._bootstrap.options.heartbeat_interval_ms / 1000
        self._carry_out(self._machine.start())
        due = time.monotonic() + interval
        while self._ended is None:
            try:
                source, event = self._events.get(timeout=max(due - time.monotonic(), 0))
            except queue.Empty:
                due = time.monotonic() + interval
                source, event = None, HeartbeatDue(self._steps.now())
                self._revive_heartbeats()
            # What an older connection still brings is not about the present membership.
            if source is None or source is self._channel:
                if isinstance(event, _ReadyToSend):
                    self._send(event.message)
                    event = Answered(event.task)
                self._carry_out(self._machine.handle(event))
                if self._bootstrap.options.validate_state:
                    self._machine.validate_state()
        self._drop_channel()
        # A job that hangs must not keep the process alive.
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._syncs.shutdown(wait=False, cancel_futures=True)
        self._shares.shutdown(wait=False, cancel_futures=True)
        self._writer.close()
        if not self._was_told:
            raise ClientException(f"The process of {named('client', self._bootstrap.spec.name)} ended: {self._ended}.")
        return self._ended

    def leave(self, reason: str) -> None:
        """End after the batches, when others have the tasks. May be called from any thread and from a signal handler."""
        self._events.put((None, LeaveRequested(reason)))

    def _carry_out(self, instructions: list[ClientInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunJob(job):
                    self._workers.submit(self._run_job, job)
                case Share():
                    self._shares.submit(self._share, instruction)
                case SendToCoordinator(TaskDone(result)):
                    # Meanwhile the next task is processed.
                    self._syncs.submit(self._make_durable, result, self._channel)
                case SendToCoordinator(message):
                    self._send(message)
                case StartHeartbeats(member_id):
                    self._start_heartbeats(member_id)
                case Connect():
                    self._connect()
                case End(reason, was_told):
                    self._ended, self._was_told = reason, was_told

    # Connection.

    def _connect(self) -> None:
        self._drop_channel()
        deadline = time.monotonic() + self._bootstrap.options.rejoin_timeout_ms / 1000
        while True:
            try:
                channel = connect(self._bootstrap.address, self._bootstrap.authkey, timeout_s=5)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    host, port = self._bootstrap.address
                    self._ended = f"the coordinator at {host}:{port} cannot be reached ({error})"
                    return
                time.sleep(_RETRY_S)
        self._channel = channel
        threading.Thread(target=self._read, args=(channel,), name="reader", daemon=True).start()
        self._events.put((channel, Connected(self._hello())))

    def _start_heartbeats(self, member_id: str) -> None:
        try:
            self._heartbeats = HeartbeatProcess(self._bootstrap, member_id, os.getpid())
        except OSError as error:
            # What this process says itself counts too, as long as it can say it.
            _log.warning("No heartbeat process for %s: %s", named("client", self._bootstrap.spec.name), error)

    def _revive_heartbeats(self) -> None:
        if self._heartbeats is not None and not self._heartbeats.runs:
            self._start_heartbeats(self._machine.member_id)

    def _drop_channel(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.end()
            self._heartbeats = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _read(self, channel: Channel) -> None:
        try:
            while True:
                self._events.put((channel, Received(channel.receive())))
        except Exception as error:  # noqa: BLE001 - whatever a broken stream unpickles to
            self._events.put((channel, Disconnected(f"{type(error).__name__}: {error}")))
        finally:
            channel.release()

    def _send(self, message: ToCoordinator) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except OSError as error:
            self._events.put((self._channel, Disconnected(f"{type(error).__name__}: {error}")))

    def _hello(self) -> Hello:
        spec = self._bootstrap.spec
        return Hello(
            spec.name,
            str(spec.process_id(self._bootstrap.application_id)),
            self._bootstrap.run_id,
            spec.threads,
            rack_of(spec, os.environ, self._bootstrap.options),
            tags_of(spec, os.environ),
            spec.host_info,
            self._attempt,
            socket.gethostname(),
            os.getpid(),
            local_positions(self._environment),
        )

    # Jobs; these run in the workers' threads, at most one per task.

    def _run_job(self, job: Job) -> None:
        with self._steps.of(job.kind.value, job.task):
            outcome = self._do(job)
        self._events.put((None, JobDone(job, outcome)))

    def _do(self, job: Job) -> Outcome:
        if job.kind is JobKind.CLOSE:
            self._close(job.task)
            return TaskClosed(job.task, positions_on_disk(self._environment, job.task))
        try:
            task = self._tasks.get(job.task)
            if task is None:
                step("its stores are opened")
                sub_topology = self._bootstrap.topology.sub_topology_of(job.task)
                task = self._tasks.setdefault(job.task, StreamTask(job.task, sub_topology, self._environment))
            if job.kind is JobKind.SNAPSHOT:
                return self._snapshot(task)
            if job.order is not None:
                return task.process(job.order)
            assert job.restore is not None
            return task.restore(job.restore)
        except TaskCorruptedException as error:
            _log.warning("The state of task %s on disk is damaged and built anew: %s", job.task, error)
            return StateLost(failure_of(job.task, error))
        except TaskMigratedException as error:
            _log.warning("Task %s begins again from what is committed: %s", job.task, error)
            return StateLost(failure_of(job.task, error))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it travels to the application
            _log.debug("Task %s failed", job.task, exc_info=True)
            return failure_of(job.task, error)

    def _make_durable(self, result: TaskResult, channel: Channel | None) -> None:
        """A result is told only when no power failure can take its files away."""
        message: ToCoordinator = TaskDone(result)
        try:
            self._writer.wait(file.path for file in result.files if not file.topic)
        except Exception as error:  # noqa: BLE001 - it travels to the application
            message = TaskFailed(failure_of(result.task, error))
        self._events.put((channel, _ReadyToSend(result.task, message)))

    def _close(self, task_id: TaskId) -> None:
        task = self._tasks.pop(task_id, None)
        if task is not None:
            try:
                task.close()
            except BaseException:  # noqa: BLE001 - it is gone anyhow
                _log.warning("The processor of task %s failed to close", task_id, exc_info=True)

    @staticmethod
    def _snapshot(task: StreamTask) -> SnapshotWritten | SnapshotFailed:
        try:
            return task.snapshot()
        except OSError as error:
            # A snapshot saves time and space later, nothing more.
            _log.warning("The snapshot of task %s could not be written", task.task, exc_info=True)
            return SnapshotFailed(text_of(error))

    def _share(self, job: Share) -> None:
        outcome: TaskSnapshot | SnapshotFailed
        try:
            with self._steps.of(SHARE, job.task):
                outcome = share_snapshot(self._environment, job.task, job.written, job.newest)
        except Exception as error:  # noqa: BLE001 - it travels to the application; the task goes on
            _log.warning(
                "The snapshot of task %s could not be written to %s", job.task, self._bootstrap.run_dir, exc_info=True
            )
            outcome = SnapshotFailed(text_of(error))
        self._events.put((None, ShareDone(job.task, outcome)))
