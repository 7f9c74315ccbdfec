"""A whole application without a machine: real coordinator and clients, simulated network, disks, clock and faults.

Processing a task is replaced by a lineage: the list of tries that led to a state. A commit is right if the lineage of
every file is the committed lineage plus this try: then no row was lost, none was processed twice, and no try that was
not committed has left a trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from task_assignor.group import GroupLeader, SubTopologyShape, make_tasks
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.client.task import Job, JobKind, Share
from task_assignor.runtime.machines.client.values import (
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
    JobWaits,
    LookForCoordinator,
    Received,
    RunJob,
    SendToCoordinator,
    StartHeartbeats,
)
from task_assignor.runtime.machines.coordinator.values import (
    Announce,
    AskAssignor,
    AssignorAnswered,
    CloseConnection,
    ConnectionLost,
    CoordinatorEvent,
    CoordinatorPhase,
    DeleteFiles,
    EndsMoved,
    Finished,
    FromClient,
    LookAtSources,
    NothingWaits,
    RenewPermit,
    SendToClient,
    StopRequested,
    StoreCheckpoint,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.events import ClientLost, MarkerRefused, RunEvent
from task_assignor.runtime.machines.protocol import (
    Alive,
    EndProcess,
    Gone,
    Heard,
    Heartbeat,
    Position,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskResult,
)
from task_assignor.runtime.machines.records import CommitRecord, RebalanceRecord
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.runtime.shells.launcher import ClientSpec
from task_assignor.runtime.storage import as_document
from task_assignor.sdk import AssignmentConfigs, StreamsConfig, TaskAssignor, TaskId, TaskInfo
from tests.runtime.simulated_checks import (
    ROWS_PER_BATCH,
    Before,
    check_event,
    check_loss,
    check_message,
    check_states,
    is_over,
)
from tests.runtime.simulated_faults import Faults
from tests.runtime.simulated_leader import WhimsicalLeader, answer_of
from tests.runtime.simulated_log import new_coordinator, open_log, store, write_checkpoint
from tests.runtime.simulated_markers import SimulatedMarkers
from tests.runtime.simulated_permits import SimulatedPermits
from tests.runtime.simulated_storage import MemoryStorage
from tests.runtime.simulated_work import Connection, Lineage, SimulatedClient, Work, new_client, sent

MANY = 99
_STICKY = StreamsConfig({"task.assignor.class": "task_assignor.builtin_assignors.StickyTaskAssignor"}).task_assignor


class World:
    """Everything, and one random step at a time.

    Args:
        seed: of all chance.
        clients: how many.
        standbys: `num.standby.replicas`.
        faults: how many kills, pauses and cuts there may be; then the run must come to its end.
        changes: how many clients may be started besides, or asked to leave.
        storage_faults: how often power may fail, a disk be full, or a coordinator die with a commit, seen or not.
        mishaps: how often something else may go wrong (`simulated_faults.MISHAPS`), most of which ends a life of the run.
        threads: of each client.
        assignor: makes the assignor; None: the sticky one.
        idle_ms: None: sources do not grow; else they do, the run is stopped when they are read, and it is `max.task.idle.ms`.
        places: so likely a client does each task in a place of its own.
        partitions: of the topics that are joined, of the one that is read alone, of the repartition topic.
        leader: makes the group's leader, which asks no assignor then; None: a real one.
        max_attempts: so often a task may be lost with its client.
        rows: how many a partition of a source may have.
        checks: after what part of the events the state of a machine is validated.
        slow_restores: how many of them take so long that snapshots may overtake them.
        slow_batches: how many take so long that a client may not be waited for any more that is to leave.
        slow_links: how many connections are slow, so that much may happen before a message comes.
        clocks: how likely it is that with a heartbeat something of a task is due by the clock.
        stop_timeout_ms: so long batches may take that are in progress when the run, or their client, is to end.
        markers: how many are asked for.
        permits: what clients make counts with permits.
        standstills: how often the coordinator's process is stopped for a while; clients go on.
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
        mishaps: int = 0,
        idle_ms: int | None = None,
        partitions: tuple[int, int, int] = (3, 2, 2),
        leader: Callable[[random.Random, Mapping[TaskId, TaskInfo]], GroupLeader] | None = None,
        max_attempts: int = MANY,
        rows: tuple[int, ...] = (0, 5, 10, 37, 60),
        checks: float = 1.0,
        slow_restores: float = 0.1,
        slow_batches: float = 0.0,
        places: float = 0.0,
        slow_links: float = 0.0,
        stop_timeout_ms: int = 5_000,
        clocks: float = 0.0,
        markers: int = 0,
        permits: bool = False,
        standstills: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.is_quiet = not (faults or mishaps or storage_faults)
        """Nothing fails."""
        self.slow_links, self.clocks = (slow_links if faults > 0 else 0.0), clocks
        self.snapshots: dict[TaskId, list[int]] = {}
        """Task -> batches of its snapshots that were committed."""
        self.heard_ms: dict[str, int] = {}
        """Member id -> when it was last heard of."""
        self.mishaps, self.standstills, self.places, self.checks = mishaps, standstills, places, checks
        self.slow = {JobKind.RESTORE: slow_restores, JobKind.PROCESS: slow_batches} if faults > 0 else {}
        self.faults, self.changes, self.storage_faults = faults, changes, storage_faults
        self.lives = 1
        """How often the run was begun: once more after each error that ended it."""
        self.enough_clients = 1 if changes else clients
        self.is_slow = faults > 0
        """Messages may take so long that a lease runs out."""
        self.restart_coordinator_at_times = restart_coordinator
        self.now_ms = 1_000
        self.commits: list[CommitRecord] = []
        self.rebalances: list[RebalanceRecord] = []
        self.storage = MemoryStorage()
        self.partitions = {"left": partitions[0], "right": partitions[0], "alone": partitions[1], "fed": partitions[2]}
        self.work = Work(
            self.random, self.commits, self.storage, self.partitions["fed"], is_growing=idle_ms is not None
        )
        self.faults_that = Faults(self)
        self.markers = SimulatedMarkers(self, markers)
        self.permits = SimulatedPermits(self, are_needed=permits)
        self.committed: dict[TaskId, Lineage] = {}
        self.events: list[RunEvent] = []
        self.finished: list[Finished] = []
        self.questions: list[AskAssignor] = []
        self.stops_by_ms: int | None = None
        """When the coordinator is to end, whatever is in progress."""
        self.hangs: set[int] = set()
        """Questions to which the assignor has no answer, ever."""
        self.ended = 0
        """Clients that were ended because they hung."""
        self.left = 0
        """Clients that left as they were asked to."""
        self.leaving: set[str] = set()
        """Clients that were asked to leave."""
        self.dies_at_commit = False
        """The coordinator dies at its next commit, before or after it is made."""
        self.connections: list[Connection] = []
        self.in_use: list[Connection] = []
        """Those over which something may still come."""
        self.opened = 0
        shapes = [
            SubTopologyShape("join", ("left", "right"), {"left-store": "left-log", "right-store": "right-log"}),
            SubTopologyShape("plain", ("alone",), {}),
            SubTopologyShape("fed", ("fed",), {"fed-store": "fed-log"}),
        ]
        self.tasks = make_tasks(shapes, self.partitions)
        self.ends = {
            topic: [self.random.choice(rows) for _ in range(self.partitions[topic])]
            for topic in ("left", "right", "alone")
        }
        self.is_growing = idle_ms is not None
        self.last_ends = {topic: list(ends) for topic, ends in self.ends.items()}
        if self.is_growing:
            self.ends = {topic: [0] * len(ends) for topic, ends in self.ends.items()}
        self.leader = (
            GroupLeader(assignor or _STICKY, AssignmentConfigs(num_standby_replicas=standbys), self.tasks)
            if leader is None
            else leader(self.random, self.tasks)
        )
        self.options = RuntimeOptions(
            max_batch_rows=ROWS_PER_BATCH,
            session_timeout_ms=1_000,
            heartbeat_interval_ms=100,
            max_poll_interval_ms=3_000,
            max_attempts=max_attempts,
            assignor_timeout_ms=5_000,
            stop_timeout_ms=stop_timeout_ms,
            startup_timeout_ms=60_000,
            checkpoint_every_commits=5,
            max_task_idle_ms=idle_ms or 0,
        )
        self.constant_excuses = {"together with its client"} if max_attempts < MANY else set()
        self.excuses = set(self.constant_excuses)
        """What an error may say that ends this life."""
        self.specs = [ClientSpec(f"c{number}", threads) for number in range(clients + changes)]
        self.disks: dict[str, dict[TaskId, list[tuple[Position, Lineage]]]] = {spec.name: {} for spec in self.specs}
        self.background: list[Callable[[], None]] = []
        """What the coordinator writes and deletes when there is time for it."""
        self.log = open_log(self)
        self.coordinator = new_coordinator(self)
        self.clients: list[SimulatedClient] = []
        for spec in self.specs[:clients]:
            self.start_client(spec)
        self.waiting = self.specs[clients:]
        """Clients that may be started later."""

    def start_client(self, spec: ClientSpec) -> None:
        """A process more."""
        client = new_client(spec, self.disks[spec.name], self.random, self.places)
        self.clients.append(client)
        self._carry_out_client(client, client.machine.start())

    # Running.

    def run(self, max_steps: int = 20_000) -> None:
        """Until the run is over."""
        for _ in range(max_steps):
            if self.coordinator.phase is CoordinatorPhase.ENDED:
                (finished,) = self.finished
                if is_over(self, finished.error):
                    return
                self._begin_again()
            self.step()
        raise AssertionError(f"the run did not end; {self.coordinator.phase}, {len(self.commits)} commits")

    def _begin_again(self) -> None:
        """Somebody has mended what was wrong and runs the application again."""
        self.lives += 1
        self.finished = []
        self.excuses = set(self.constant_excuses)
        if isinstance(self.leader, WhimsicalLeader):
            self.leader.will_fail = False
        for client in list(self.clients):
            self.kill(client, starts_again=False)
        self.storage.mend()
        self.restart_coordinator()
        for spec in self.specs[: max(self.enough_clients, self.random.randint(1, len(self.specs)))]:
            self.start_client(spec)

    def step(self) -> None:
        """One thing that can happen, happens."""
        actions = self._actions()
        if not actions:
            self.pass_time(self.random.randint(20, 400))
            return
        self.random.choice(actions)()

    def _actions(self) -> list[Callable[[], None]]:
        actions: list[Callable[[], None]] = []
        self.in_use = [found for found in self.in_use if not found.is_done]
        for connection in self.in_use:
            if connection.accepted and connection.to_coordinator:
                actions.append(partial(self._deliver_to_coordinator, connection))
            elif connection.is_lost:
                actions.append(partial(self._report_loss, connection))
            if connection.to_client and connection.is_open:
                is_awake = not (connection.client.is_paused or connection.client.is_deaf) or bool(connection.member_id)
                if is_awake and (not connection.is_slow or self.random.random() < 0.1):
                    actions.append(partial(self._deliver_to_client, connection))
        actions += [partial(self.answer, question) for question in self.questions if id(question) not in self.hangs]
        if self.coordinator.has_accepted:
            actions.append(lambda: self.tell(NothingWaits(self.now_ms)))
        for client in self.clients:
            if client.is_paused:
                actions.append(partial(self.faults_that.resume, client))
                continue
            if client.is_deaf:
                # Where nobody can end it over its heartbeats, it should have joined again; that is waited for in vain.
                if client.heartbeats is None or not client.heartbeats.reaches_client:
                    actions.append(partial(self.kill, client))
                continue
            is_late = not client.connection and (client.hanging or client.slow)
            if is_late and client.machine.phase is ClientPhase.STOPPING:
                # Its coordinator is gone, and its last job does not end: the next coordinator's launcher starts another one.
                actions.append(partial(self.kill, client))
            for job in client.jobs:
                if job not in client.hanging and (job not in client.slow or self.random.random() < 0.01):
                    actions.append(partial(self._finish_job, client, job))
                    if job.kind is JobKind.PROCESS and self.random.random() < 0.2:
                        actions.append(partial(self.tell_client, client, JobWaits(job.task)))
            actions += [partial(self._sync, client, result) for result in client.syncs]
            actions += [partial(self.faults_that.share, client, share) for share in client.shares]
            if client.wants_connection:
                actions.append(partial(self._connect, client))
            if client.looks:
                actions.append(partial(self.faults_that.look, client))
        if self.is_growing and self.random.random() < 0.2:
            actions.append(self._grow)
        if self.is_slow and self.random.random() < 0.1:
            actions.append(lambda: self.pass_time(self.random.choice((50, 150, 600))))
        actions += [*self.permits.may_happen(), *self.faults_that.may_happen()]
        if self.background and self.random.random() < 0.5:
            actions.append(self.background.pop(0))
        return actions

    def _sync(self, client: SimulatedClient, sync: tuple[Connection | None, TaskResult]) -> None:
        """The disk has taken a result's files, or cannot; it is told over the connection that there was."""
        client.syncs.remove(sync)
        connection, result = sync
        message: TaskDone | TaskFailed = TaskDone(result)
        if client.disk_is_full:
            message = TaskFailed(TaskFailure(result.task, "client", "disk full"))
        else:
            self.work.durable.add((result.task, result.batch, result.generation))
            message = TaskDone(self.faults_that.garbled(client, result))
        if connection is not None and connection is client.connection and connection.is_open:
            connection.to_coordinator.append(message)
        self.tell_client(client, Answered(result.task))

    def _grow(self) -> None:
        """Some rows come; when all are there and read, the run is stopped."""
        if self.ends == self.last_ends:
            if not self.coordinator.progress.remaining_rows() and not self.coordinator.has_accepted:
                self.stop()
            return
        if self.coordinator.phase in (CoordinatorPhase.STOPPING, CoordinatorPhase.ENDED):
            return
        grown = [topic for topic in self.ends if self.random.random() < 0.5]
        for topic in grown:
            for partition, last in enumerate(self.last_ends[topic]):
                more = self.random.choice((0, 1, 7, 30))
                self.ends[topic][partition] = min(self.ends[topic][partition] + more, last)
        self.tell(EndsMoved({topic: list(self.ends[topic]) for topic in grown}, self.now_ms))

    def stop(self) -> None:
        """Somebody wants the run to end."""
        self.excuses.add("stop")
        self.tell(StopRequested("enough", self.now_ms))

    def kill(self, client: SimulatedClient, *, starts_again: bool = True) -> None:
        """kill -9, and mostly another process with the same name and disk."""
        client.is_alive = False
        self.clients.remove(client)
        if client.connection is not None:
            client.connection.is_open = False
        if client.heartbeats is not None and client.heartbeats.is_open:
            # Its heartbeat process sees it die, mostly.
            if self.random.random() < 0.8:
                client.heartbeats.to_coordinator.append(Gone(client.heartbeats.member_id))
            client.heartbeats.is_open = False
        if starts_again and not self.is_ending:
            self.start_client(client.spec)

    @property
    def is_ending(self) -> bool:
        """Nobody starts clients any more."""
        return self.coordinator.phase in (CoordinatorPhase.STOPPING, CoordinatorPhase.ENDED)

    def restart_coordinator(self, *, is_dead: bool = False) -> None:
        """The coordinator is killed, or perhaps it only sleeps; another one reads the commit log."""
        for connection in self.connections:
            connection.accepted = False
            connection.is_open = connection.is_open and not connection.member_id
            connection.to_coordinator.clear()
            connection.to_client.append(None)
        self.faults_that.put_to_sleep(is_dead=is_dead)
        self.questions, self.hangs, self.stops_by_ms = [], set(), None
        self.markers.forget()
        known, has_lost = self.coordinator.progress, self.coordinator.has_accepted
        while True:
            try:
                self.coordinator = new_coordinator(self)
                break
            except (OSError, CommitLogException) as error:
                if not self.faults_that.explains(error):
                    raise
                self.storage.mend()
        if known.last_commit + 1 == self.coordinator.progress.last_commit and not has_lost:
            read = as_document(self.coordinator.progress.saved())
            assert as_document(known.saved()) == read, "what is read is not what was known"
        if self.finished:
            # It died when it only waited for its clients to end; those are needed once more.
            self.finished = []
            for client in [found for found in self.clients if found.machine.phase is ClientPhase.STOPPING]:
                self.kill(client, starts_again=False)
            running = [client.spec for client in self.clients]
            for spec in self.specs[: self.enough_clients]:
                if spec not in running:
                    self.start_client(spec)

    def pass_time(self, milliseconds: int) -> None:
        deadline = self.coordinator.next_deadline_ms()
        if deadline is not None and self.now_ms < deadline < self.now_ms + milliseconds:
            # A shell looks at the clock just then.
            milliseconds = deadline - self.now_ms
        limit = self.now_ms + milliseconds - self.options.assignor_timeout_ms
        for question in [one for one in self.questions if one.now_ms <= limit and id(one) not in self.hangs]:
            self.answer(question)  # who does not hang answers in time
        self.now_ms += milliseconds
        self.tell(Tick(self.now_ms))
        for client in list(self.clients):
            if client.is_paused:
                continue
            beats = client.heartbeats
            if beats is not None and beats.is_open and not (beats.is_slow and self.random.random() < 0.8):
                beats.to_coordinator.append(Alive(beats.member_id))
            if not client.is_deaf:
                due = frozenset(task for task in client.machine.roles() if self.random.random() < self.clocks)
                self.tell_client(client, HeartbeatDue({}, due))

    def answer(self, question: AskAssignor) -> None:
        """The assignor has decided; meanwhile anything may have happened."""
        self.questions.remove(question)
        self.tell(AssignorAnswered(answer_of(self.leader, question), self.now_ms))

    def _add(self, connection: Connection) -> None:
        self.connections.append(connection)
        self.in_use.append(connection)

    def _connect(self, client: SimulatedClient) -> None:
        client.wants_connection = False
        self.opened += 1
        connection = Connection(self.opened, client, is_slow=self.random.random() < self.slow_links)
        self._add(connection)
        client.connection = connection
        hello = client.hello(self.opened)
        while self.random.random() < 0.1 and (ending := [job for job in client.jobs if job not in client.hanging]):
            self._finish_job(client, ending[0])
        self.tell_client(client, Connected(hello))

    def lose_connection(self, client: SimulatedClient) -> None:
        """The network fails."""
        assert client.connection is not None
        client.connection.is_open = False
        client.connection = None
        self.tell_client(client, Disconnected("cut"))

    def _deliver_to_coordinator(self, connection: Connection) -> None:
        message = sent(connection.to_coordinator.popleft())
        if isinstance(message, Heartbeat):
            connection.to_client.append(Heard())
        self.tell(FromClient(connection.number, message, self.now_ms))

    def _report_loss(self, connection: Connection) -> None:
        connection.reported = True
        self.tell(ConnectionLost(connection.number, "connection closed", self.now_ms))

    def _deliver_to_client(self, connection: Connection) -> None:
        message = sent(connection.to_client.popleft())
        client = connection.client
        if connection.member_id:
            connection.is_open = False
            if isinstance(message, EndProcess) and client in self.clients:
                self.ended += 1
                self.kill(client)
            return
        if connection is not client.connection:
            return
        if message is None:
            self.lose_connection(client)
        else:
            self.tell_client(client, Received(message))

    def tell(self, event: CoordinatorEvent) -> None:
        """An event for the coordinator."""
        before, orders = Before.of(self, event), self.coordinator._orders._open.copy()
        instructions = self.coordinator.handle(event)
        self.permits.check(event, orders)
        check_event(self, before, event, instructions)
        if self._is_checked():
            self.coordinator.validate_state()
        for instruction in instructions:
            match instruction:
                case SendToClient(number, message):
                    connection = self.connections[number - 1]
                    check_message(self, connection, message)
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
                    check_states(self, instruction)
                    self.questions.append(instruction)
                case RenewPermit(_, number):
                    self.permits.wanted.append(number)
                case LookAtSources(name):
                    self.markers.looks.append(name)
                case StoreCommit(record):
                    if not store(self, record):
                        return
                case StoreCheckpoint(number, state):
                    self.background.append(partial(write_checkpoint, self, self.log, number, state))
                case DeleteFiles(names):
                    self.background.append(partial(self.storage.delete, names))
                case Announce(happened):
                    if isinstance(happened, ClientLost):
                        check_loss(self, happened)
                    elif isinstance(happened, MarkerRefused):
                        self.markers.refuse(happened)
                    self.events.append(happened)
                case Finished():
                    self.finished.append(instruction)

    def _is_checked(self) -> bool:
        return self.checks == 1 or self.random.random() < self.checks

    def tell_client(self, client: SimulatedClient, event: ClientEvent) -> None:
        """An event for a client."""
        if client.machine.phase is not ClientPhase.ENDED:
            instructions = client.machine.handle(event)
            if self._is_checked():
                client.machine.validate_state()
            self._carry_out_client(client, instructions)

    def _carry_out_client(self, client: SimulatedClient, instructions: Sequence[ClientInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunJob(job):
                    client.jobs.append(job)
                    if self.random.random() < self.slow.get(job.kind, 0.0):
                        client.slow.append(job)
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
                case LookForCoordinator():
                    client.looks = True
                case Connect():
                    if client.connection is not None:
                        client.connection.is_open = False
                        client.connection = None
                    client.wants_connection = True
                case StartHeartbeats(member_id):
                    self.opened += 1
                    is_slow = self.random.random() < self.slow_links
                    client.heartbeats = Connection(self.opened, client, member_id=member_id, is_slow=is_slow)
                    client.heartbeats.to_coordinator.append(Alive(member_id))
                    self._add(client.heartbeats)
                case End(_, was_told):
                    if client.connection is not None:
                        client.connection.is_open = False
                    self.clients.remove(client)
                    client.is_alive = False
                    if self.is_ending or any(other.spec == client.spec for other in self.clients):
                        continue
                    staying = [other for other in self.clients if other.machine.phase is not ClientPhase.STOPPING]
                    if not was_told or client.spec.name not in self.leaving or not staying:
                        self.start_client(client.spec)
                    else:
                        self.left += 1

    # Work.

    def _finish_job(self, client: SimulatedClient, job: Job) -> None:
        client.jobs.remove(job)
        client.slow = [found for found in client.slow if found is not job]
        self.tell_client(client, JobDone(job, self.work.do(client, job)))
