"""A whole application without a machine: real coordinator and clients, simulated network, disks, clock and faults.

Processing a task is replaced by a lineage: the list of tries that led to a state. A commit is right if the lineage of
every file is the committed lineage plus this try: then no row was lost, none was processed twice, and no try that was
not committed has left a trace.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from task_assignor.group import GroupLeader, GroupRebalance, SubTopologyShape, make_tasks
from task_assignor.runtime.machines.client import ClientMachine
from task_assignor.runtime.machines.client_task import Job, JobKind, Share, ShareDone, SnapshotFailed
from task_assignor.runtime.machines.client_values import (
    Answered,
    ClientEvent,
    ClientInstruction,
    ClientPhase,
    Connect,
    Connected,
    Disconnected,
    End,
    HeartbeatDue,
    JobDone,
    LeaveRequested,
    Received,
    RunJob,
    SendToCoordinator,
    StartHeartbeats,
)
from task_assignor.runtime.machines.coordinator import Coordinator
from task_assignor.runtime.machines.coordinator_values import (
    Announce,
    AskAssignor,
    AssignorAnswered,
    CloseConnection,
    ConnectionLost,
    CoordinatorEvent,
    DeleteFiles,
    EndsMoved,
    Finished,
    FromClient,
    LeaveWanted,
    NothingWaits,
    SendToClient,
    StopRequested,
    StoreCheckpoint,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.events import RunEvent
from task_assignor.runtime.machines.progress import Progress
from task_assignor.runtime.machines.protocol import (
    Alive,
    EndProcess,
    Gone,
    Hello,
    Position,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskResult,
)
from task_assignor.runtime.machines.records import Checkpoint, CommitRecord, RebalanceRecord
from task_assignor.runtime.machines.repartitions import Repartitions
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.runtime.shells.launcher import ClientSpec
from task_assignor.sdk import AssignmentConfigs, StreamsConfig, StreamsException, TaskAssignor, TaskId
from tests.runtime.simulated_checks import ROWS_PER_BATCH, check_commit
from tests.runtime.simulated_work import Connection, Lineage, SimulatedClient, Work

APPLICATION = "simulated"
RUN = "run"


def _with_tuples(found: dict[str, Any]) -> dict[str, Any]:
    """JSON has only lists."""
    if "lineage" in found:
        found["lineage"] = tuple(map(tuple, found["lineage"]))
    return found


class World:
    """Everything, and one random step at a time.

    Args:
        seed: of all chance.
        clients: how many.
        standbys: `num.standby.replicas`.
        faults: how many kills, pauses and cuts there may be; then the run must come to its end.
        changes: how many clients may be started besides, or asked to leave.
        storage_faults: how often the power of a machine may fail, a disk be full, or a commit be the last thing of its
            coordinator, seen or not.
        threads: of each client.
        assignor: makes the assignor; None: the sticky one.
        idle_ms: None: sources are as long as they are; else they grow while the run goes on, which is stopped when all of
            them are read, and this is `max.task.idle.ms`.
        places: so likely a client does each task in a place of its own.
    """

    def __init__(
        self,
        seed: int,
        *,
        clients: int = 3,
        standbys: int = 1,
        faults: int = 6,
        threads: int = 1,
        assignor: Callable[[], TaskAssignor] | None = None,
        restart_coordinator: bool = True,
        changes: int = 0,
        storage_faults: int = 0,
        idle_ms: int | None = None,
        places: float = 0.0,
    ) -> None:
        self.random = random.Random(seed)
        self.places = places
        self.faults = faults
        self.changes = changes
        self.storage_faults = storage_faults
        self.lives = 1
        """How often the run was begun: once more after each full disk."""
        self.enough_clients = 1 if changes else clients
        self.is_slow = faults > 0
        """Messages may take so long that a lease runs out."""
        self.restart_coordinator = restart_coordinator
        self.now_ms = 1_000
        self.ticked_ms = 0
        self.commits: list[CommitRecord] = []
        self.checkpoint = Checkpoint()
        self.rebalances: list[RebalanceRecord] = []
        self.work = Work(self.random, self.commits)
        self.committed: dict[TaskId, Lineage] = {}
        self.events: list[RunEvent] = []
        self.finished: list[Finished] = []
        self.questions: list[AskAssignor] = []
        self.ended = 0
        """Clients that were ended because they hung."""
        self.left = 0
        """Clients that left as they were asked to."""
        self.leaving: set[str] = set()
        """Clients that were asked to leave."""
        self.dies_at_commit = False
        """The coordinator dies at its next commit, before or after it is made."""
        self.connections: list[Connection] = []
        self.opened = 0
        shapes = [
            SubTopologyShape("join", ("left", "right"), {"left-store": "left-log", "right-store": "right-log"}),
            SubTopologyShape("plain", ("alone",), {}),
            SubTopologyShape("fed", ("fed",), {"fed-store": "fed-log"}),
        ]
        self.tasks = make_tasks(shapes, {"left": 3, "right": 3, "alone": 2, "fed": 2})
        self.ends = {
            topic: [self.random.choice((0, 5, 10, 37, 60)) for _ in range(count)]
            for topic, count in (("left", 3), ("right", 3), ("alone", 2))
        }
        self.is_growing = idle_ms is not None
        self.last_ends = {topic: list(ends) for topic, ends in self.ends.items()}
        if self.is_growing:
            self.ends = {topic: [0] * len(ends) for topic, ends in self.ends.items()}
        sticky = StreamsConfig({"task.assignor.class": "task_assignor.builtin_assignors.StickyTaskAssignor"})
        self.leader = GroupLeader(
            assignor or sticky.task_assignor, AssignmentConfigs(num_standby_replicas=standbys), self.tasks
        )
        self.options = RuntimeOptions(
            max_batch_rows=ROWS_PER_BATCH,
            session_timeout_ms=1_000,
            heartbeat_interval_ms=100,
            max_poll_interval_ms=3_000,
            max_attempts=99,
            checkpoint_every_commits=5,
            max_task_idle_ms=idle_ms or 0,
        )
        self.specs = [ClientSpec(f"c{number}", threads) for number in range(clients + changes)]
        self.disks: dict[str, dict[TaskId, list[tuple[Position, Lineage]]]] = {spec.name: {} for spec in self.specs}
        self.coordinator = self._new_coordinator()
        self.clients: list[SimulatedClient] = []
        for spec in self.specs[:clients]:
            self._start_client(spec)
        self.waiting = self.specs[clients:]
        """Clients that may be started later."""

    def _new_coordinator(self) -> Coordinator:
        """As an application does it: open an epoch, go on from the newest checkpoint and what follows it."""
        reads = (("left", "right"), ("alone",), ("fed",))
        sources = {task: reads[task.subtopology] for task in self.tasks}
        newest = self.commits[-1] if self.commits else self.checkpoint
        opening = CommitRecord(newest.number + 1, APPLICATION, newest.epoch + 1, newest.generation, self.now_ms)
        self.commits.append(opening)
        following = self.commits[self.checkpoint.number + 1 :]
        return Coordinator(
            APPLICATION,
            RUN,
            self.leader,
            Progress.after(
                self.checkpoint,
                following,
                sources,
                self.ends,
                repartitions=Repartitions({"fed": 2}, {"fed": (None, 0)}),
            ),
            self.options,
            self.enough_clients,
            opening,
            self.now_ms,
            is_continuous=self.is_growing,
        )

    def _start_client(self, spec: ClientSpec) -> None:
        has_places = self.places > 0 and self.random.random() < self.places
        machine = ClientMachine(spec.threads, snapshot_bytes=2, place_heartbeats=3 * has_places)
        client = SimulatedClient(spec, machine, self.disks[spec.name])
        self.clients.append(client)
        self._carry_out_client(client, machine.start())

    # Running.

    def run(self, max_steps: int = 20_000) -> None:
        """Until the run is over."""
        for _ in range(max_steps):
            if self.finished and "disk full" in str(self.finished[-1].error):
                self._begin_again()
            if self.finished:
                return
            self.step()
        raise AssertionError(f"the run did not end; {self.coordinator.phase}, {len(self.commits)} commits")

    def _begin_again(self) -> None:
        """Somebody has made room on the disk and runs the application again."""
        self.lives += 1
        self.finished = []
        self._restart_coordinator()
        for client in list(self.clients):
            self._kill(client)
        if not self.clients:
            self._start_client(self.specs[0])

    def step(self) -> None:
        """One thing that can happen, happens."""
        actions = self._actions()
        if not actions:
            self._pass_time(self.random.randint(20, 400))
            return
        self.random.choice(actions)()
        deadline = self.coordinator.next_deadline_ms()
        assert deadline is None or deadline > self.ticked_ms or self.finished, "a shell would spin"

    def _actions(self) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        for connection in self.connections:
            if connection.accepted and connection.to_coordinator:
                actions.append(partial(self._deliver_to_coordinator, connection))
            elif connection.accepted and not connection.is_open and not connection.reported:
                actions.append(partial(self._report_loss, connection))
            is_awake = not (connection.client.is_paused or connection.client.is_deaf) or bool(connection.member_id)
            if connection.to_client and connection.is_open and is_awake:
                actions.append(partial(self._deliver_to_client, connection))
        actions += [partial(self._answer, question) for question in self.questions]
        if self.coordinator.has_accepted:
            actions.append(lambda: self._to_coordinator(NothingWaits(self.now_ms)))
        for client in self.clients:
            if client.is_paused:
                actions.append(partial(self._resume, client))
                continue
            if client.is_deaf:
                # Where nobody listens to its heartbeats, it should have joined again; that is waited for in vain.
                if client.heartbeats is None or not client.heartbeats.is_open:
                    actions.append(partial(self._kill, client))
                continue
            actions += [partial(self._finish_job, client, job) for job in client.jobs if job not in client.hanging]
            actions += [partial(self._sync, client, result) for result in client.syncs]
            actions += [partial(self._share, client, share) for share in client.shares]
            if client.wants_connection:
                actions.append(partial(self._connect, client))
        if self.is_growing and self.random.random() < 0.2:
            actions.append(self._grow)
        if self.is_slow and self.random.random() < 0.1:
            actions.append(lambda: self._pass_time(self.random.choice((50, 150, 600))))
        if self.faults > 0 and self.random.random() < 0.06:
            actions.append(self._fault)
        if self.changes > 0 and self.random.random() < 0.04:
            actions.append(self._change)
        if self.storage_faults > 0 and self.random.random() < 0.04:
            actions.append(self._storage_fault)
        return actions

    def _storage_fault(self) -> None:
        self.storage_faults -= 1
        client = self.random.choice(self.clients)
        match self.random.choice(("power", "full", "commit")):
            case "power":
                self.work.power_failure(client)
                self._kill(client)
            case "full":
                client.disk_is_full = True
            case "commit":
                self.dies_at_commit = True

    def _sync(self, client: SimulatedClient, sync: tuple[Connection | None, TaskResult]) -> None:
        """The disk has taken a result's files, or cannot; it is told over the connection that there was."""
        client.syncs.remove(sync)
        connection, result = sync
        message: TaskDone | TaskFailed = TaskDone(result)
        if client.disk_is_full:
            message = TaskFailed(TaskFailure(result.task, "client", "disk full"))
        else:
            self.work.durable.add((result.task, result.batch, result.generation))
        if connection is not None and connection is client.connection and connection.is_open:
            connection.to_coordinator.append(message)
        self._to_client(client, Answered(result.task))

    def _change(self) -> None:
        """A client more, or one that leaves: because it was told from outside, or by the coordinator."""
        self.changes -= 1
        if self.waiting and (self.random.random() < 0.5 or len(self.clients) < 2):
            self._start_client(self.waiting.pop())
            return
        client = self.random.choice(self.clients)
        self.leaving.add(client.spec.name)
        if self.random.random() < 0.5:
            self._to_coordinator(LeaveWanted(client.spec.name, "scale-in", self.now_ms))
        elif not client.is_paused and not client.is_deaf:
            self._to_client(client, LeaveRequested("SIGTERM"))

    def _grow(self) -> None:
        """Some rows come; when all are there and read, the run is stopped."""
        if self.ends == self.last_ends:
            if not self.coordinator.progress.remaining_rows() and not self.coordinator.has_accepted:
                self.stop()
            return
        grown = [topic for topic in self.ends if self.random.random() < 0.5]
        for topic in grown:
            for partition, last in enumerate(self.last_ends[topic]):
                more = self.random.choice((0, 1, 7, 30))
                self.ends[topic][partition] = min(self.ends[topic][partition] + more, last)
        self._to_coordinator(EndsMoved({topic: list(self.ends[topic]) for topic in grown}, self.now_ms))

    def stop(self) -> None:
        """Somebody wants the run to end."""
        self._to_coordinator(StopRequested("enough", self.now_ms))

    def _fault(self) -> None:
        self.faults -= 1
        kinds: list[Callable[[SimulatedClient], None]] = [self._kill, self._pause, self._cut, self._hang]
        client = self.random.choice(self.clients)
        if self.restart_coordinator and self.random.random() < 0.15:
            self._restart_coordinator()
        else:
            self.random.choice(kinds)(client)

    def _kill(self, client: SimulatedClient) -> None:
        """kill -9, and another process with the same name and disk."""
        client.is_alive = False
        self.clients.remove(client)
        if client.connection is not None:
            client.connection.is_open = False
        if client.heartbeats is not None and client.heartbeats.is_open:
            # Its heartbeat process sees it die, mostly.
            if self.random.random() < 0.8:
                client.heartbeats.to_coordinator.append(Gone(client.heartbeats.member_id))
            client.heartbeats.is_open = False
        self._start_client(client.spec)

    def _hang(self, client: SimulatedClient) -> None:
        """What it processes, restores or saves next never ends, and perhaps holds Python's lock: it hears nothing then."""
        client.will_hang = True

    def _pause(self, client: SimulatedClient) -> None:
        client.is_paused = True

    def _resume(self, client: SimulatedClient) -> None:
        # Mostly it stays so for longer than its lease.
        if self.random.random() < 0.1:
            client.is_paused = False
        else:
            self._pass_time(self.random.randint(100, 450))

    def _cut(self, client: SimulatedClient) -> None:
        """The network fails: both sides notice, each in its time."""
        if client.connection is not None and client.connection.is_open:
            if client.is_deaf:
                client.connection.is_open = False
            else:
                self._lose_connection(client)

    def _restart_coordinator(self) -> None:
        """The coordinator is killed; another one reads the commit log."""
        for connection in self.connections:
            connection.accepted = False
            connection.is_open = connection.is_open and not connection.member_id
            connection.to_coordinator.clear()
            connection.to_client.append(None)
        self.questions = []
        self.coordinator = self._new_coordinator()

    def _pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self._to_coordinator(Tick(self.now_ms))
        for client in list(self.clients):
            if client.is_paused:
                continue
            if client.heartbeats is not None and client.heartbeats.is_open:
                client.heartbeats.to_coordinator.append(Alive(client.heartbeats.member_id))
            if not client.is_deaf:
                self._to_client(client, HeartbeatDue())

    def _answer(self, question: AskAssignor) -> None:
        """The assignor has decided; meanwhile anything may have happened."""
        self.questions.remove(question)
        outcome: GroupRebalance | StreamsException
        try:
            outcome = self.leader.rebalance(question.clients, question.end_offset_sums, question.now_ms)
        except StreamsException as error:
            outcome = error
        self._to_coordinator(AssignorAnswered(question.question, outcome, self.now_ms))

    # Network.

    def _connect(self, client: SimulatedClient) -> None:
        client.wants_connection = False
        self.opened += 1
        connection = Connection(self.opened, client)
        self.connections.append(connection)
        client.connection = connection
        on_disk = {
            task: tuple(position for position, _ in sorted(found, key=lambda pair: pair[0].batch, reverse=True))
            for task, found in client.disk.items()
        }
        hello = Hello(
            client.spec.name,
            str(client.spec.process_id(APPLICATION)),
            RUN,
            client.spec.threads,
            None,
            {},
            None,
            f"attempt {self.opened}",
            "host",
            self.opened,
            on_disk,
        )
        self._to_client(client, Connected(hello))

    def _lose_connection(self, client: SimulatedClient) -> None:
        assert client.connection is not None
        client.connection.is_open = False
        client.connection = None
        self._to_client(client, Disconnected("cut"))

    def _deliver_to_coordinator(self, connection: Connection) -> None:
        message = connection.to_coordinator.popleft()
        self._to_coordinator(FromClient(connection.number, message, self.now_ms))

    def _report_loss(self, connection: Connection) -> None:
        connection.reported = True
        self._to_coordinator(ConnectionLost(connection.number, "connection closed", self.now_ms))

    def _deliver_to_client(self, connection: Connection) -> None:
        message = connection.to_client.popleft()
        client = connection.client
        if connection.member_id:
            connection.is_open = False
            if isinstance(message, EndProcess) and client in self.clients:
                self.ended += 1
                self._kill(client)
            return
        if connection is not client.connection:
            return
        if message is None:
            self._lose_connection(client)
        else:
            self._to_client(client, Received(message))

    def _to_coordinator(self, event: CoordinatorEvent) -> None:
        if isinstance(event, Tick):
            self.ticked_ms = event.now_ms
        instructions = self.coordinator.handle(event)
        self.coordinator.validate_state()
        for instruction in instructions:
            match instruction:
                case SendToClient(number, message):
                    connection = self.connections[number - 1]
                    if connection.accepted:
                        connection.to_client.append(message)
                case CloseConnection(number):
                    connection = self.connections[number - 1]
                    # What was on its way to the coordinator is still read.
                    connection.to_client.append(None)
                    if self.random.random() < 0.5:
                        connection.accepted = False
                        connection.to_coordinator.clear()
                case AskAssignor():
                    self.questions.append(instruction)
                case StoreCommit(record):
                    if record.rebalance is not None:
                        assert record.rebalance.generation not in {found.generation for found in self.rebalances}
                        self.rebalances.append(record.rebalance)
                    dies = self.dies_at_commit
                    self.dies_at_commit = False
                    if dies and self.random.random() < 0.5:
                        # It never reached the disk: what the assignment of that record said, nobody has heard.
                        self._forget(record)
                        self._restart_coordinator()
                        return
                    check_commit(self, record)
                    self.commits.append(record)
                    if dies:
                        self._restart_coordinator()
                        return
                case StoreCheckpoint(number, state):
                    last = self.commits[-1]
                    assert number == last.number
                    # It comes as it comes from a file, and not always in time.
                    plain = json.loads(json.dumps(state), object_hook=_with_tuples)
                    if self.random.random() < 0.8 and not self._write_checkpoint(last, plain):
                        self._restart_coordinator()
                        return
                case DeleteFiles(names):
                    self.work.fed.delete(names)
                    self.work.outputs.delete(names)
                case Announce(happened):
                    self.events.append(happened)
                case Finished():
                    self.finished.append(instruction)

    def _write_checkpoint(self, last: CommitRecord, state: dict[str, Any]) -> bool:
        """Whether the coordinator has lived until it was written."""
        before = self.checkpoint
        records = self.commits[before.number + 1 :]
        now = self.work.outputs.checkpoint(before, Checkpoint(last.number, last.epoch, last.generation), records, state)
        if now is not None:
            self.checkpoint = now
            # If the coordinator is killed before, the next one does it.
            if self.random.random() < 0.9:
                self.work.shared.clean(before, now)
                self.work.outputs.clean(before, now, records)
        self.work.outputs.check(self.checkpoint, self.commits[self.checkpoint.number + 1 :], self.committed)
        return now is not None

    def _forget(self, record: CommitRecord) -> None:
        if record.rebalance is not None:
            self.rebalances.remove(record.rebalance)

    def _to_client(self, client: SimulatedClient, event: ClientEvent) -> None:
        if client.machine.phase is not ClientPhase.ENDED:
            instructions = client.machine.handle(event)
            client.machine.validate_state()
            self._carry_out_client(client, instructions)

    def _carry_out_client(self, client: SimulatedClient, instructions: Sequence[ClientInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunJob(job):
                    client.jobs.append(job)
                    if job.kind is not JobKind.CLOSE and client.will_hang:
                        client.will_hang = False
                        client.hanging.append(job)
                        client.is_deaf = self.random.random() < 0.5
                case Share():
                    client.shares.append(instruction)
                case SendToCoordinator(TaskDone(result)):
                    client.syncs.append((client.connection, result))
                case SendToCoordinator(message):
                    if client.connection is not None and client.connection.is_open:
                        client.connection.to_coordinator.append(message)
                case Connect():
                    if client.connection is not None:
                        client.connection.is_open = False
                        client.connection = None
                    client.wants_connection = True
                case StartHeartbeats(member_id):
                    self.opened += 1
                    client.heartbeats = Connection(self.opened, client, member_id=member_id)
                    client.heartbeats.to_coordinator.append(Alive(member_id))
                    self.connections.append(client.heartbeats)
                case End(_, was_told):
                    if client.connection is not None:
                        client.connection.is_open = False
                    if not self.finished:
                        self.clients.remove(client)
                        if not was_told or client.spec.name not in self.leaving or not self.clients:
                            self._start_client(client.spec)
                        else:
                            self.left += 1

    # Work.

    def _share(self, client: SimulatedClient, share: Share) -> None:
        """The client may be killed when the files are there, before it tells of it."""
        client.shares.remove(share)
        snapshot = self.work.shared.put(share)
        if self.faults > 0 and self.random.random() < 0.05:
            self.faults -= 1
            self._kill(client)
        else:
            failed = self.random.random() < 0.1
            self._to_client(client, ShareDone(share.task, SnapshotFailed("no answer") if failed else snapshot))

    def _finish_job(self, client: SimulatedClient, job: Job) -> None:
        client.jobs.remove(job)
        self._to_client(client, JobDone(job, self.work.do(client, job)))
