"""The shell around the coordinator's state machine: sockets, threads, clock, files. It decides nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from task_assignor.group import GroupLeader, GroupRebalance
from task_assignor.group.limits import Limited
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.checkpoint import Checkpoint
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.values import (
    Abandoned,
    Announce,
    AskAssignor,
    AssignorAnswered,
    ClientsExpected,
    CloseConnection,
    ConnectionLost,
    CoordinatorEvent,
    CoordinatorInstruction,
    CoordinatorPhase,
    DeleteFiles,
    EndsMoved,
    Finished,
    FromClient,
    LauncherFailed,
    LeaveWanted,
    LookAtSources,
    MarkerWanted,
    NothingWaits,
    PermitFailed,
    PermitRenewed,
    RenewPermit,
    SendToClient,
    SourcesFailed,
    StopRequested,
    StoreCheckpoint,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.events import MarkerReached, MarkerRefused, RunEvent
from task_assignor.runtime.machines.protocol import Heard, Heartbeat, Refused, ToClient, ToCoordinator
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.shells.deciding import decide
from task_assignor.runtime.shells.standstill import Standstill
from task_assignor.runtime.shells.transport import Channel, DamagedMessageError, Listener
from task_assignor.runtime.shells.watcher import Moved, Watcher
from task_assignor.runtime.storage.disk import DISK_ADVICE, disk_errors, warn
from task_assignor.runtime.tasks.results import Permits, Renewed
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_POLL_S = 0.05
"""How often the launcher is asked for processes that ended."""


class Clock:
    """Wall-clock milliseconds that never go back: leases must not expire because somebody set the clock."""

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(time.monotonic() * 1000 + self._offset_ms)


class _Writer:
    """Sends to one client from a thread of its own: a client that does not read must not stop the coordinator."""

    def __init__(self, channel: Channel[ToCoordinator]) -> None:
        self._channel = channel
        self._messages: queue.SimpleQueue[ToClient | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="writer", daemon=True).start()

    def send(self, message: ToClient) -> None:
        self._messages.put(message)

    def close(self) -> None:
        """Close the connection after what was sent before."""
        self._messages.put(None)

    def _run(self) -> None:
        try:
            while (message := self._messages.get()) is not None:
                self._channel.send(message)
        except OSError as error:
            # The reader notices too, and tells the coordinator.
            _log.debug("A message could not be sent: %s", error)
        except BaseException:  # noqa: BLE001 - whatever it is, the client would wait for ever
            _log.warning("A message could not be sent", exc_info=True)
        finally:
            self._channel.close()


class _Aside(threading.Thread):
    """Does one thing after the other. Executors take nothing more once the main thread has ended, while a run goes on in another one."""

    def __init__(self) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def do(self, call: Callable[[], None]) -> None:
        """Call this after what was given before."""
        self._calls.put(call)

    def close(self) -> None:
        """Wait until all is done."""
        self._calls.put(None)
        self.join()

    def run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException:  # noqa: BLE001 - whatever it is, the next one is to be done
                _log.warning("The upkeep of the folder of the run has failed", exc_info=True)


def _write_checkpoint(commits: CommitLog, due: deque[StoreCheckpoint], written: Callable[[Checkpoint], None]) -> None:
    try:
        newest = due.pop()
    except IndexError:
        # It was written in the place of an older one that had not begun.
        return
    try:
        checkpoint = commits.write_checkpoint(newest.number, newest.state)
    except Exception as error:  # noqa: BLE001 -- nobody else would hear of it
        # It saves time and space later, nothing more.
        warn(_log, error, "The checkpoint of commit %d could not be written", newest.number)
    else:
        if checkpoint is not None:
            written(checkpoint)


def _delete(commits: CommitLog, names: Sequence[str]) -> None:
    try:
        commits.layout.storage.delete(names)
    except OSError as error:
        warn(_log, error, "Files that nobody needs any more could not be deleted (%s)", ", ".join(names))


class CoordinatorServer:
    """Listens, and runs a coordinator until it is finished.

    Args:
        bind_host: address to listen on.
        authkey: secret of the connections.
        waits: says so if the coordinator waits for long: nothing goes on meanwhile. None: nobody does.
        bind_port: port to listen on; 0: any that is free.
    """

    def __init__(self, bind_host: str, authkey: bytes, waits: Standstill | None = None, bind_port: int = 0) -> None:
        self._listener = Listener(bind_host, bind_port, authkey, ToCoordinator, self._serve)
        self._events: queue.SimpleQueue[CoordinatorEvent] = queue.SimpleQueue()
        self._has_tick = False
        """A `Tick` was put among the events."""
        self._writers: dict[int, _Writer] = {}
        self._lock = threading.Lock()
        self._connections = 0
        self._is_over = False
        self._asked: list[str] = []
        self._clock = Clock()
        self._error: StreamsException | None = None
        self._deciding: Limited[GroupRebalance] | None = None
        self._aside = _Aside()
        self._checkpoint_due: deque[StoreCheckpoint] = deque(maxlen=1)
        """The newest one that has not begun: where they are due faster than they are written, they do not queue up."""
        self._waits = Standstill("The coordinator") if waits is None else waits

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    @property
    def clock(self) -> Clock:
        """The clock of the run."""
        return self._clock

    def request_stop(self, reason: str) -> None:
        """End the run after the batches that are being processed. May be called from any thread."""
        self._events.put(StopRequested(reason, self._clock.now_ms()))

    def request_marker(self, name: str) -> bool:
        """Have a commit by which everything is done that is there now. May be called from any thread.

        Returns:
            Whether it will be answered; False: the run is over.
        """
        with self._lock:
            if not self._is_over:
                self._asked.append(name)
                self._events.put(MarkerWanted(name, self._clock.now_ms()))
            return not self._is_over

    def request_leave(self, client: str, reason: str) -> None:
        """Have a client leave after its batches, if it is a member. May be called from any thread."""
        self._events.put(LeaveWanted(client, reason, self._clock.now_ms()))

    def expect_clients(self, count: int) -> None:
        """The run shall begin when so many clients are there. May be called from any thread."""
        self._events.put(ClientsExpected(count, self._clock.now_ms()))

    def run(
        self,
        coordinator: Coordinator,
        leader: GroupLeader,
        commits: CommitLog,
        announce: Callable[[RunEvent], None],
        poll: Callable[[], None],
        committed: Callable[[CommitRecord, float], None],
        checkpointed: Callable[[Checkpoint], None],
        growing: Watcher | None = None,
        permits: Permits | None = None,
    ) -> StreamsException | None:
        """Run until the coordinator has finished and its clients have gone.

        Args:
            coordinator: the decisions.
            leader: asks the assignor.
            commits: where batches and assignments are committed.
            announce: told of every event.
            poll: called now and then; looks after the launcher, and raises StreamsException if that has given up.
            committed: told of every record that was written, and how long that took, seconds.
            checkpointed: told of every checkpoint that was written, in another thread.
            growing: looks how far the sources reach; None: they stay as they are.
            permits: whose results count; None: all that are recorded.

        Returns:
            None, or why the run failed.
        """
        self._listener.start()
        self._aside.start()
        if growing is not None:
            growing.start(self._tell_of_sources)
        if permits is not None:
            permits.begin(self._tell_of_permits)
            permits.renew(1)
        next_poll = time.monotonic() + _POLL_S

        def handle(event: CoordinatorEvent) -> None:
            told = coordinator.handle(event)
            self._carry_out(told, leader, commits, announce, committed, checkpointed, growing, permits)

        try:
            while coordinator.phase is not CoordinatorPhase.ENDED:
                handle(self._next_event(coordinator, next_poll))
                if time.monotonic() >= next_poll:
                    self._remind(coordinator)
                    try:
                        with self._waits.during("the launcher of its clients"):
                            poll()
                    except StreamsException as error:
                        handle(LauncherFailed(error, self._clock.now_ms()))
                    next_poll = time.monotonic() + _POLL_S
            with self._lock:
                self._is_over = True
            # Who has asked for a marker gets an answer.
            while not self._events.empty():
                handle(self._events.get())
        except BaseException:
            handle(Abandoned(self._clock.now_ms()))
            self._refuse_markers(announce)
            raise
        finally:
            self._give_up_question()
            with self._waits.during(f"the last checkpoint, in {commits.address}"):
                self._aside.close()
            if growing is not None:
                growing.stop()
            if permits is not None:
                permits.close()
        return self._error

    def _refuse_markers(self, announce: Callable[[RunEvent], None]) -> None:
        """The run breaks off: who has asked for a marker gets an answer even so."""
        with self._lock:
            self._is_over = True
        for name in self._asked:
            # Why the run breaks off is raised, also where that is the listener itself.
            with suppress(Exception):
                announce(MarkerRefused(name, "the run broke off; list_markers tells whether it was reached before"))

    def _tell_of_sources(self, found: Moved | StreamsException) -> None:
        now_ms = self._clock.now_ms()
        if isinstance(found, StreamsException):
            self._events.put(SourcesFailed(found, now_ms))
        else:
            self._events.put(EndsMoved(found.ends, now_ms, found.markers))

    def _tell_of_permits(self, found: Renewed | StreamsException) -> None:
        now_ms = self._clock.now_ms()
        if isinstance(found, StreamsException):
            self._events.put(PermitFailed(found, now_ms))
        else:
            self._events.put(PermitRenewed(found.permit, found.number, now_ms))

    def _next_event(self, coordinator: Coordinator, next_poll: float) -> CoordinatorEvent:
        wait = 0.0
        if self._events.empty():
            if coordinator.has_accepted:
                return NothingWaits(self._clock.now_ms())
            wait = next_poll - time.monotonic()
            deadline = coordinator.next_deadline_ms()
            if deadline is not None:
                wait = min(wait, (deadline - self._clock.now_ms()) / 1000)
        try:
            event = self._events.get(timeout=max(wait, 0))
        except queue.Empty:
            return self._tick()
        if isinstance(event, Tick):
            self._has_tick = False
        return event

    def _remind(self, coordinator: Coordinator) -> None:
        """There may always be something else to do when a deadline is over; what has come before tells who lives: that is heard first."""
        deadline, now_ms = coordinator.next_deadline_ms(), self._clock.now_ms()
        if deadline is not None and deadline <= now_ms and not self._has_tick:
            self._has_tick = True
            self._events.put(self._tick())

    def _tick(self) -> Tick:
        return Tick(self._clock.now_ms(), self._waits.take_still_ms())

    def _carry_out(
        self,
        instructions: Sequence[CoordinatorInstruction],
        leader: GroupLeader,
        commits: CommitLog,
        announce: Callable[[RunEvent], None],
        committed: Callable[[CommitRecord, float], None],
        checkpointed: Callable[[Checkpoint], None],
        growing: Watcher | None,
        permits: Permits | None,
    ) -> None:
        for instruction in instructions:
            match instruction:
                case SendToClient(connection, message):
                    self._send(connection, message)
                case CloseConnection(connection):
                    self._close(connection)
                case AskAssignor():
                    self._ask(leader, instruction)
                case RenewPermit(client, number):
                    assert permits is not None, "without permits none is renewed"
                    permits.renew(number, client)
                case LookAtSources(marker):
                    assert growing is not None, "only sources that grow have to be looked at"
                    growing.look(marker)
                case StoreCommit(record):
                    with disk_errors(CommitLogException, f"Commit {record.number} cannot be made", DISK_ADVICE):
                        began = time.monotonic()
                        with self._waits.during(f"commit {record.number}, in {commits.address}"):
                            commits.append(record)
                        committed(record, time.monotonic() - began)
                case StoreCheckpoint():
                    self._checkpoint_due.append(instruction)
                    self._aside.do(partial(_write_checkpoint, commits, self._checkpoint_due, checkpointed))
                case DeleteFiles(names):
                    self._aside.do(partial(_delete, commits, names))
                case Announce(event):
                    if isinstance(event, (MarkerReached, MarkerRefused)):
                        self._asked.remove(event.name)
                    with self._waits.during("those who are told of events: on_event, the log of the run, metrics"):
                        announce(event)
                case Finished(error):
                    self._error = error

    def _ask(self, leader: GroupLeader, question: AskAssignor) -> None:
        if self._deciding is not None:
            self._deciding.give_up()

        def answer(outcome: GroupRebalance | StreamsException) -> None:
            self._events.put(AssignorAnswered(outcome, self._clock.now_ms()))

        self._deciding = decide(leader, question, answer)

    def _give_up_question(self) -> None:
        where = "" if self._deciding is None else self._deciding.where()
        if self._deciding is not None and self._deciding.give_up() and where:
            # Nobody can look into its thread later.
            _log.warning("What the assignor was asked is given up; it was at %s.", where)

    # Connections.

    def _serve(self, channel: Channel[ToCoordinator]) -> None:
        with self._lock:
            self._connections += 1
            number = self._connections
            self._writers[number] = _Writer(channel)
        reason = "nobody listens to it any more"
        try:
            while True:
                message = channel.receive()
                if isinstance(message, Heartbeat):
                    # Here: the coordinator itself may wait for a disk.
                    self._send(number, Heard())
                self._events.put(FromClient(number, message, self._clock.now_ms()))
        except DamagedMessageError as error:
            reason = str(error)
        except (EOFError, OSError):
            reason = "connection closed"
        except Exception as error:  # noqa: BLE001 - whatever it is, the coordinator is told
            reason = f"unreadable message: {error}"
            # Of who is no member yet nobody else would hear.
            advice = "Maybe it has another version of task-assignor" if isinstance(error, ValueError) else ""
            _log.warning("What came from a client is no message: %s. %s", error, advice)
            if advice:
                # It would say the same whenever it came back.
                told = f"what it says is no message here ({error}). {advice}"
                with suppress(OSError):
                    channel.send(Refused(told, may_rejoin=False))
        finally:
            self._events.put(ConnectionLost(number, reason, self._clock.now_ms()))
            self._close(number)
            channel.release()

    def _send(self, connection: int, message: ToClient) -> None:
        with self._lock:
            writer = self._writers.get(connection)
        if writer is not None:
            writer.send(message)

    def _close(self, connection: int) -> None:
        with self._lock:
            writer = self._writers.pop(connection, None)
        if writer is not None:
            writer.close()

    def close(self) -> None:
        """Close the listening socket and all connections."""
        self._listener.close()
        with self._lock:
            numbers = list(self._writers)
        for number in numbers:
            self._close(number)
