"""What goes wrong in a simulated application, and how that is done; when, chance decides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from task_assignor.runtime.errors import ClientException, CommitLogException, TopicException
from task_assignor.runtime.machines.client.task import Share, ShareDone, SnapshotFailed
from task_assignor.runtime.machines.client.values import CoordinatorFound, LeaveRequested
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.values import (
    Abandoned,
    AskAssignor,
    AssignorAnswered,
    ClientsExpected,
    CoordinatorPhase,
    Finished,
    LauncherFailed,
    LeaveWanted,
    NothingWaits,
    SourcesFailed,
    StopRequested,
    StoreCheckpoint,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.protocol import TaskResult
from task_assignor.runtime.machines.records import TaskSnapshot
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.sdk import StreamsException
from tests.runtime.simulated_leader import WhimsicalLeader, answer_of
from tests.runtime.simulated_log import take
from tests.runtime.simulated_work import Nowhere, SimulatedClient

if TYPE_CHECKING:
    from tests.runtime.simulation import World

MISHAPS: Final = (
    "raise",
    "lose stores",
    "lose stores for ever",
    "assignor fails",
    "assignor hangs",
    "stop",
    "abandon",
    "launcher",
    "sources",
    "damage",
    "coordinator's disk",
    "nonsense",
    "strange snapshot",
    "elsewhere",
    "twin",
    "foreign",
    "nobody",
)


class Faults:
    """The faults of a world.

    Attributes:
        happened: what was done, in this order.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.happened: list[str] = []
        self._sleeping: list[tuple[Coordinator, CommitLog, list[AskAssignor]]] = []
        """Coordinators that were replaced and may wake up."""
        self._was_faster = False
        """Somebody has made the commit that was to open an epoch."""

    def may_happen(self) -> list[Callable[[], None]]:
        """What chance allows now."""
        world = self._world
        actions: list[Callable[[], None]] = []
        if world.faults > 0 and world.clients and world.random.random() < 0.06:
            actions.append(self._fault)
        if world.changes > 0 and world.random.random() < 0.04:
            actions.append(self._change)
        if world.storage_faults > 0 and world.clients and world.random.random() < 0.04:
            actions.append(self._storage_fault)
        if world.mishaps > 0 and world.clients and world.random.random() < 0.03:
            actions.append(self._mishap)
        if world.standstills > 0 and world.random.random() < 0.04:
            actions.append(self._stand_still)
        actions += world.markers.may_happen()
        if self._sleeping and world.random.random() < 0.05:
            actions.append(self._wake)
        return actions

    def explains(self, error: Exception) -> bool:
        """Why a coordinator cannot begin is known."""
        was_faster, self._was_faster = self._was_faster, False
        storage = self._world.storage
        return (
            bool(storage.damaged) or storage.is_full or (was_faster and "has been made by somebody else" in str(error))
        )

    def share(self, client: SimulatedClient, share: Share) -> None:
        """The client may be killed when the files are there, before it tells of it."""
        world = self._world
        client.shares.remove(share)
        try:
            snapshot = world.work.shared.put(share)
        except OSError as error:
            world.tell_client(client, ShareDone(share.task, SnapshotFailed(str(error))))
            return
        if world.faults > 0 and world.random.random() < 0.05:
            world.faults -= 1
            world.kill(client)
        else:
            failed = world.random.random() < 0.1
            shared = SnapshotFailed("no answer") if failed else self.garbled_snapshot(client, snapshot)
            world.tell_client(client, ShareDone(share.task, shared))

    # Clients and their connections.

    def _fault(self) -> None:
        world = self._world
        world.faults -= 1
        client = world.random.choice(world.clients)
        if world.restart_coordinator_at_times and world.random.random() < 0.15:
            self.happened.append("restart")
            world.restart_coordinator()
            return
        kind = world.random.choice(("kill", "pause", "cut", "hang", "hole"))
        self.happened.append(kind)
        match kind:
            case "kill":
                world.kill(client)
            case "pause":
                client.is_paused = True
            case "cut":
                self._cut(client)
            case "hole":
                self._make_hole(client)
            case "hang":
                # What it processes, restores or saves next never ends, and perhaps holds Python's lock: it hears nothing then.
                client.will_hang = True

    def resume(self, client: SimulatedClient) -> None:
        """A client that is paused goes on; mostly it stays so for longer than its lease."""
        if self._world.random.random() < 0.1:
            client.is_paused = False
        else:
            self._world.pass_time(self._world.random.randint(100, 450))

    def _cut(self, client: SimulatedClient) -> None:
        """The network fails: both sides notice, each in its time."""
        if client.connection is not None and client.connection.is_open:
            if client.is_deaf:
                client.connection.is_open = False
            else:
                self._world.lose_connection(client)

    def _make_hole(self, client: SimulatedClient) -> None:
        """A proxy keeps a connection of a client, or both, and brings nothing any more, in one direction or both. Nobody is told."""
        chance = self._world.random
        reaches_client, reaches_coordinator = chance.choice(((True, False), (False, True), (False, False)))
        for connection in (client.connection, chance.choice((client.heartbeats, None))):
            if connection is not None and not reaches_client:
                connection.to_client = Nowhere()
            if connection is not None and not reaches_coordinator:
                connection.to_coordinator = Nowhere()

    def look(self, client: SimulatedClient) -> None:
        """Whether the coordinator answers over another connection."""
        client.looks = False
        if self._world.random.random() < 0.8:
            self._world.tell_client(client, CoordinatorFound())

    def _change(self) -> None:
        """A client more, or one that leaves: because it was told from outside, or by the coordinator."""
        world = self._world
        world.changes -= 1
        self.happened.append("scale")
        if world.is_ending:
            return
        if world.waiting and (world.random.random() < 0.5 or len(world.clients) < 2):
            world.start_client(world.waiting.pop())
            world.excuses.update(("clients came in", "client came in"))
            world.tell(ClientsExpected(world.random.randint(1, max(len(world.clients), 1)), world.now_ms))
            return
        if not world.clients:
            return
        client = world.random.choice(world.clients)
        world.leaving.add(client.spec.name)
        if world.random.random() < 0.5:
            world.tell(LeaveWanted(client.spec.name, "scale-in", world.now_ms))
        elif not client.is_paused and not client.is_deaf:
            world.tell_client(client, LeaveRequested("SIGTERM"))

    def _stand_still(self) -> None:
        """The coordinator's process is stopped, and the assignor with it; when it goes on, it looks at the clock before all else."""
        world = self._world
        world.standstills -= 1
        self.happened.append("standstill")
        still_ms = world.random.randint(1_000, 70_000)
        while waiting := [one for one in world.questions if id(one) not in world.hangs]:
            # Its time counts.
            world.answer(waiting[0])
        world.now_ms += still_ms
        world.heard_ms = {member: heard_ms + still_ms for member, heard_ms in world.heard_ms.items()}
        if world.stops_by_ms is not None:
            world.stops_by_ms += still_ms
        world.tell(Tick(world.now_ms, still_ms))

    # Storage.

    def _storage_fault(self) -> None:
        world = self._world
        world.storage_faults -= 1
        client = world.random.choice(world.clients)
        kind = world.random.choice(("power", "full", "commit"))
        self.happened.append(kind)
        match kind:
            case "power":
                world.work.power_failure(client)
                world.kill(client)
            case "full":
                client.disk_is_full = True
                world.excuses.add("disk full")
            case "commit":
                world.dies_at_commit = True

    # Coordinators that were replaced.

    def put_to_sleep(self, *, is_dead: bool) -> None:
        """The coordinator is replaced. If it is not dead but sleeps, it may even be faster than who replaces it."""
        world = self._world
        if world.random.random() < 0.5:
            world.background.clear()
        if is_dead or world.random.random() < 0.6:
            return
        self.happened.append("sleep")
        sleeper = (world.coordinator, world.log, world.questions)
        self._sleeping.append(sleeper)
        if world.coordinator.has_accepted and not world.is_ending and world.random.random() < 0.5:
            world.storage.before_exclusive = partial(self._be_faster, *sleeper)

    def _be_faster(self, coordinator: Coordinator, log: CommitLog, _: list[AskAssignor]) -> None:
        """It commits what it has accepted before another one has opened its epoch; then that counts."""
        world = self._world
        for instruction in coordinator.handle(NothingWaits(world.now_ms)):
            if isinstance(instruction, StoreCommit):
                try:
                    log.append(instruction.record)
                except CommitLogException:
                    # It was replaced before already.
                    return
                self._was_faster = True
                take(world, instruction.record)

    def _wake(self) -> None:
        """It goes on as if nothing had happened; whatever it wants to commit, it finds out."""
        world = self._world
        sleeper = self._sleeping.pop()
        coordinator, log, questions = sleeper
        if coordinator.phase is CoordinatorPhase.ENDED:
            return
        if coordinator.has_accepted:
            instructions = coordinator.handle(NothingWaits(world.now_ms))
        elif questions:
            outcome = answer_of(world.leader, questions[-1])
            instructions = coordinator.handle(AssignorAnswered(outcome, world.now_ms))
        else:
            instructions = coordinator.handle(Tick(world.now_ms))
        for instruction in instructions:
            match instruction:
                case StoreCommit(record):
                    try:
                        log.append(record)
                    except (OSError, CommitLogException):
                        self.happened.append("fenced")
                        return
                    raise AssertionError("a coordinator that was replaced has committed")
                case StoreCheckpoint():
                    raise AssertionError("a coordinator that was replaced goes on")

    # Everything else.

    def _mishap(self) -> None:
        world = self._world
        world.mishaps -= 1
        if world.is_ending:
            return
        client = world.random.choice(world.clients)
        kind = world.random.choice(MISHAPS)
        self.happened.append(kind)
        self._begin_mishap(kind, client)

    def _begin_mishap(self, kind: str, client: SimulatedClient) -> None:
        world = self._world
        match kind:
            case "raise":
                client.will_raise = True
                world.excuses.add("the processor raised")
            case "lose stores":
                client.losses = 1
            case "lose stores for ever":
                client.losses = 20
                world.excuses.add("the stores are damaged")
            case "assignor fails" if isinstance(world.leader, WhimsicalLeader):
                world.leader.will_fail = True
                world.excuses.add("the assignor failed")
            case "assignor hangs":
                world.hangs.update(map(id, world.questions))
                world.excuses.add("has not decided")
            case "stop":
                world.excuses.add("stop")
                world.tell(StopRequested("stop", world.now_ms))
            case "abandon":
                self._end(StreamsException("Ctrl-C, twice"))
            case "launcher":
                self._fail(LauncherFailed(ClientException("the launcher gave up"), world.now_ms))
            case "sources":
                self._fail(SourcesFailed(TopicException("the sources are gone"), world.now_ms))
            case "damage":
                self._damage()
            case "coordinator's disk":
                world.storage.is_full = True
                world.excuses.add("No space left on device")
            case "nonsense":
                client.talks_nonsense = True
                world.excuses.add(": it read")
            case "strange snapshot":
                client.garbles_snapshots = True
            case "elsewhere":
                client.is_elsewhere = True
                world.excuses.add("the coordinator sees nothing there")
                world.excuses.add("a file is missing or damaged")
            case "twin":
                # On another machine: it has nothing of what the first one has.
                world.disks[client.spec.name] = {}
                world.start_client(client.spec)
            case "foreign":
                world.kill(client, starts_again=False)
                world.start_client(client.spec)
                world.clients[-1].is_foreign = True
            case "nobody":
                world.excuses.add("All clients have gone")
                world.excuses.add("clients came in")
                world.excuses.add("client came in")
                for found in list(world.clients):
                    world.kill(found, starts_again=False)

    def garbled(self, client: SimulatedClient, result: TaskResult) -> TaskResult:
        """What a client says that it has done, which may be nonsense."""
        if not client.talks_nonsense:
            return result
        client.talks_nonsense = False
        by = self._world.random.choice((1, -1))
        spans = {topic: (start, end + 1_000 if by > 0 else start) for topic, (start, end) in result.offsets.items()}
        return msgspec.structs.replace(result, offsets=spans)

    def garbled_snapshot(self, client: SimulatedClient, snapshot: TaskSnapshot) -> TaskSnapshot:
        """What it says of a snapshot that it has written."""
        if not client.garbles_snapshots:
            return snapshot
        client.garbles_snapshots = False
        match self._world.random.randrange(3):
            case 0:
                return msgspec.structs.replace(snapshot, generation=snapshot.generation + 1)
            case 1:
                return msgspec.structs.replace(snapshot, batch=snapshot.batch + 1)
        return msgspec.structs.replace(snapshot, paths={name: f"{path}-" for name, path in snapshot.paths.items()})

    def _fail(self, event: LauncherFailed | SourcesFailed) -> None:
        self._world.excuses.add(str(event.error))
        self._world.tell(event)

    def _end(self, error: StreamsException) -> None:
        world = self._world
        world.excuses.add(str(error))
        world.tell(Abandoned(world.now_ms))
        world.finished.append(Finished(error))

    def _damage(self) -> None:
        """A file of the run is torn, or a bit of it is flipped; mostly when no coordinator runs."""
        world = self._world
        last = f"commits/{len(world.commits) - 1:012d}.json"
        # What was confirmed as the last one and is torn then is taken for what was never confirmed.
        tears = world.random.random() < 0.5
        folder = world.random.choice(("commits/", "checkpoints/", "history/", "changelog/", "snapshots/"))
        names = [
            name for name in sorted(world.storage.objects) if name.startswith(folder) and not (tears and name == last)
        ]
        if not names:
            return
        world.storage.damage(world.random.choice(names), world.random, tears=tears)
        world.excuses.add("cannot be read")
        world.excuses.add("a file is missing or damaged")
        world.excuses.add("the coordinator sees")
        if world.random.random() < 0.7:
            world.restart_coordinator()
