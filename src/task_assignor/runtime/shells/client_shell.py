"""The shell around a client's state machine: threads, connection, clock and the jobs. It decides nothing.

`run_client` is what a launcher runs, in an operating system process of its own or inside a Spark task.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeAlias

import attrs

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.machines.client.machine import JOBS_OF_A_THREAD, ClientMachine
from task_assignor.runtime.machines.client.snapshots import LAST_MS
from task_assignor.runtime.machines.client.task import Job, Share, ShareDone
from task_assignor.runtime.machines.client.values import (
    Answered,
    ClientEvent,
    ClientInstruction,
    Connect,
    Connected,
    CoordinatorFound,
    Disconnected,
    End,
    HeartbeatDue,
    JobDone,
    JobWaits,
    LeaveRequested,
    LookForCoordinator,
    Received,
    RunJob,
    SendToCoordinator,
    StartHeartbeats,
    TakePermit,
)
from task_assignor.runtime.machines.client.works import SHARE
from task_assignor.runtime.machines.protocol import (
    Hello,
    TaskDone,
    TaskResult,
    ToClient,
    ToCoordinator,
)
from task_assignor.runtime.shells.heartbeat import HeartbeatProcess, Heartbeats
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.tasks import Tasks, TasksHere, prepare_process
from task_assignor.runtime.shells.transport import Channel, connect
from task_assignor.runtime.steps import Steps
from task_assignor.sdk import TaskId
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import named

_log = logger_of(__name__)
_P = ParamSpec("_P")
_RETRY_S = 0.1
_LONGEST_RETRY_S = 60.0
"""A heartbeat process that ends at once, or cannot be started, is started again after longer and longer pauses, but not longer."""
_LONGEST_SILENCE_MS = 60_000
"""A coordinator that can be reached in no other way, as one that is stopped, is waited for so long at least."""
_IDLE_PLACE_MS = 2_000
"""So long a task may hold a place without work while others wait for one."""


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
            has taken its name. Whoever launched it may start another one. Or what is given is no bootstrap.
        TopicException: a topic cannot be opened.
    """
    check_kind("bootstrap", bootstrap, ClientBootstrap, ClientException, " of a client")
    prepare_process(bootstrap)
    shell = ClientShell(bootstrap, attempt, TasksHere(bootstrap))
    with _leaving_at_sigterm(shell):
        return shell.run()


@contextmanager
def _leaving_at_sigterm(shell: ClientShell) -> Iterator[None]:
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


@attrs.frozen
class _ReadyToSend:
    """A message that had to wait for the disk, about a task."""

    task: TaskId
    message: ToCoordinator


@attrs.frozen
class _GiveUp:
    """Whoever runs the client cannot go on with it."""

    reason: str


_Heard: TypeAlias = tuple[Channel[ToClient] | None, ClientEvent | _ReadyToSend | _GiveUp]
"""Something that has happened, and over which connection it came; None: here."""


class ClientShell:
    """A client around its tasks.

    Args:
        bootstrap: who it is, where the coordinator is, what is computed.
        attempt: what executes it, for the commit records.
        tasks: its tasks.
        has_places: each of them is done in a place of its own.
        heartbeats: says that the client of a member id lives; it is asked for whenever the client joins.
    """

    def __init__(
        self,
        bootstrap: ClientBootstrap,
        attempt: str,
        tasks: Tasks,
        *,
        has_places: bool = False,
        heartbeats: Callable[[str], Heartbeats] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._attempt = attempt
        self._tasks = tasks
        self._new_heartbeats = heartbeats or (lambda member_id: HeartbeatProcess(bootstrap, member_id, os.getpid()))
        options = bootstrap.options
        beats = -(-options.snapshot_interval_ms // options.heartbeat_interval_ms)
        place_beats = -(-_IDLE_PLACE_MS // options.heartbeat_interval_ms) if has_places else 0
        threads = bootstrap.spec.capacity
        last_beats = max(1, LAST_MS // options.heartbeat_interval_ms)
        # What is in a place goes with it.
        kept_beats = None if has_places else -(-options.state_cleanup_delay_ms // options.heartbeat_interval_ms)
        limits_ms = (options.session_timeout_ms, max(options.max_poll_interval_ms, _LONGEST_SILENCE_MS))
        looks_every, ends_after = (-(-limit_ms // options.heartbeat_interval_ms) for limit_ms in limits_ms)
        self._machine = ClientMachine(
            threads,
            options.snapshot_changelog_bytes,
            beats,
            last_beats,
            place_beats,
            kept_beats,
            (looks_every, ends_after),
        )
        self._events: queue.SimpleQueue[_Heard] = queue.SimpleQueue()
        self._channel: Channel[ToClient] | None = None
        self._heartbeats: Heartbeats | None = None
        self._beats_for = ""
        """The member whose heartbeats there shall be; "": none."""
        self._revived_at, self._revival_pause_s = 0.0, 0.0
        """When they were last begun again, in seconds of the monotonic clock, and how long it is waited after that."""
        self._told_of_heartbeats = ""
        """Why there are none, as it was said."""
        self._steps = Steps()
        self._workers = ThreadPoolExecutor(threads * JOBS_OF_A_THREAD, thread_name_prefix=f"{bootstrap.spec.name}-task")
        self._shares = ThreadPoolExecutor(1, thread_name_prefix=f"{bootstrap.spec.name}-share")
        self._looks = ThreadPoolExecutor(1, thread_name_prefix=f"{bootstrap.spec.name}-look")
        self._arriving = 0
        """How much of a message had come at the last heartbeat."""
        self._ended: str | None = None
        self._was_told = False

    def run(self) -> str:
        """Run until it is told to stop; gives why.

        Raises:
            ClientException: it ended although nobody told it to.
        """
        try:
            reason = self._run()
        finally:
            # What says that it lives would go on to say so.
            self._drop_channel()
            # A job that hangs must not keep the process alive.
            for pool in (self._workers, self._shares, self._looks):
                pool.shutdown(wait=False, cancel_futures=True)
            self._tasks.close()
        if not self._was_told:
            raise ClientException(f"The process of {named('client', self._bootstrap.spec.name)} ended: {reason}.")
        return reason

    def _run(self) -> str:
        interval = self._bootstrap.options.heartbeat_interval_ms / 1000
        self._carry_out(self._machine.start())
        due = time.monotonic() + interval
        while self._ended is None:
            source, event = self._next_event(due)
            if isinstance(event, HeartbeatDue):
                due = time.monotonic() + interval
                self._revive_heartbeats()
            # What an older connection still brings is not about the present membership.
            if source is None or source is self._channel:
                if isinstance(event, _GiveUp):
                    return event.reason
                if isinstance(event, _ReadyToSend):
                    self._send(event.message)
                    event = Answered(event.task)
                self._carry_out(self._machine.handle(event))
                if self._bootstrap.options.validate_state:
                    self._machine.validate_state()
        return self._ended

    def _next_event(self, due: float) -> _Heard:
        """What happens next; when it is time, also if something else waits, that a heartbeat is due."""
        wait = due - time.monotonic()
        if wait > 0:
            with suppress(queue.Empty):
                return self._events.get(timeout=wait)
        active = (task for task, role in self._machine.roles().items() if role == "active")
        before, self._arriving = self._arriving, 0 if self._channel is None else self._channel.arriving
        is_hearing = self._arriving not in (0, before)
        return None, HeartbeatDue(self._steps.now(), frozenset(filter(self._tasks.is_due, active)), is_hearing)

    def leave(self, reason: str) -> None:
        """End after the batches, when others have the tasks. May be called from any thread and from a signal handler."""
        self._events.put((None, LeaveRequested(reason)))

    def give_up(self, reason: str) -> None:
        """End at once, without a word to the coordinator. May be called from any thread."""
        self._events.put((None, _GiveUp(reason)))

    def _carry_out(self, instructions: list[ClientInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunJob(job):
                    self._steps.begin(job.kind.value, job.task)
                    self._begin(self._workers, self._do, job)
                case TakePermit(permit, first):
                    self._tasks.take_permit(permit, first)
                case Share():
                    self._begin(self._shares, self._share, instruction)
                case SendToCoordinator(TaskDone(result)):
                    # Meanwhile the next task is processed.
                    self._make_durable(result, self._channel)
                case SendToCoordinator(message):
                    self._send(message)
                case StartHeartbeats(member_id):
                    self._start_heartbeats(member_id)
                case LookForCoordinator():
                    self._begin(self._looks, self._look, self._channel)
                case Connect(unanswered):
                    if unanswered:
                        self._tell_of_silence(unanswered)
                    self._connect()
                case End(reason, was_told):
                    self._ended, self._was_told = reason, was_told

    # Connection.

    def _connect(self) -> None:
        self._drop_channel()
        deadline = time.monotonic() + self._bootstrap.options.rejoin_timeout_ms / 1000
        while True:
            try:
                channel = connect(self._bootstrap.address, self._bootstrap.authkey, 5, ToClient)
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

    def _look(self, channel: Channel[ToClient] | None) -> None:
        with suppress(OSError):
            connect(self._bootstrap.address, self._bootstrap.authkey, 5, ToClient).release()
            self._events.put((channel, CoordinatorFound()))

    def _tell_of_silence(self, unanswered: int) -> None:
        _log.warning(
            "The connection of %s to its coordinator is given up: it is open, but %d heartbeats in a row, one every %d ms, were not answered. "
            "Maybe a proxy between them brings nothing any more. The client joins again.",
            named("client", self._bootstrap.spec.name),
            unanswered,
            self._bootstrap.options.heartbeat_interval_ms,
        )

    def _start_heartbeats(self, member_id: str) -> None:
        self._beats_for = member_id
        try:
            former, self._heartbeats = self._heartbeats, self._new_heartbeats(member_id)
            if former is not None:
                # It may only have lost its connection, for which it would end this process.
                former.end()
        except ConnectionError:
            # The coordinator has gone, as after a run that has ended: the client's own connection ends, too.
            _log.info("The coordinator of %s has gone.", named("client", self._bootstrap.spec.name))
        except OSError as error:
            # What this process says itself counts too, as long as it can say it.
            if (told := text_of(error)) != self._told_of_heartbeats:
                self._told_of_heartbeats = told
                _log.warning("No heartbeat process for %s: %s", named("client", self._bootstrap.spec.name), error)

    def _revive_heartbeats(self) -> None:
        if self._heartbeats is not None and self._heartbeats.runs:
            self._revival_pause_s, self._told_of_heartbeats = 0.0, ""
        elif self._beats_for and (now := time.monotonic()) >= self._revived_at + self._revival_pause_s:
            least = self._bootstrap.options.heartbeat_interval_ms / 1000
            self._revived_at, self._revival_pause_s = now, min(max(2 * self._revival_pause_s, least), _LONGEST_RETRY_S)
            self._start_heartbeats(self._beats_for)

    def _drop_channel(self) -> None:
        self._beats_for = ""
        if self._heartbeats is not None:
            self._heartbeats.end()
            self._heartbeats = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _read(self, channel: Channel[ToClient]) -> None:
        try:
            while True:
                self._events.put((channel, Received(channel.receive())))
        except ValueError as error:
            # It would be told the same whenever it came back.
            told = f"what the coordinator says is no message here ({text_of(error)}). Maybe it has another version of task-assignor"
            self._events.put((channel, _GiveUp(told)))
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody reads any more
            self._events.put((channel, Disconnected(text_of(error))))
        finally:
            channel.release()

    def _send(self, message: ToCoordinator) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(message)
        except OSError as error:
            self._events.put((self._channel, Disconnected(f"{type(error).__name__}: {error}")))

    def _make_durable(self, result: TaskResult, channel: Channel[ToClient] | None) -> None:
        def tell(message: ToCoordinator) -> None:
            self._events.put((channel, _ReadyToSend(result.task, message)))

        self._tasks.make_durable(result, tell)

    def _hello(self) -> Hello:
        spec, where = self._bootstrap.spec, self._tasks.surroundings()
        return Hello(
            spec.name,
            str(spec.process_id(self._bootstrap.application_id)),
            self._bootstrap.run_id,
            spec.capacity,
            where.rack,
            where.tags,
            spec.host_info,
            self._attempt,
            where.host,
            where.pid,
            where.positions,
        )

    # Jobs; these run in the workers' threads, at most one per task.

    def _begin(self, pool: ThreadPoolExecutor, job: Callable[_P, None], *given: _P.args, **more: _P.kwargs) -> None:
        """Do it in a thread of a pool. What is raised there nobody would hear of, and what waits for the job would wait for ever."""

        def do() -> None:
            try:
                job(*given, **more)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the client ends with it
                self.give_up(text_of(error))

        pool.submit(do)

    def _do(self, job: Job) -> None:
        with self._steps.of(job.kind.value, job.task, lambda: self._events.put((None, JobWaits(job.task)))):
            outcome = self._tasks.do(job)
        self._events.put((None, JobDone(job, outcome)))

    def _share(self, job: Share) -> None:
        with self._steps.of(SHARE, job.task):
            outcome = self._tasks.share(job)
        self._events.put((None, ShareDone(job.task, outcome)))
