"""What a simulated client does in place of work: lineages stand for states, and nothing is computed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import attrs
import msgspec

from task_assignor.runtime.machines.client.machine import ClientMachine
from task_assignor.runtime.machines.client.task import Job, JobKind, Restore, Share, SnapshotFailed, SnapshotWritten
from task_assignor.runtime.machines.client.values import NothingYet, Outcome, StateLost
from task_assignor.runtime.machines.encoding import encode, reader_of
from task_assignor.runtime.machines.protocol import (
    START,
    Hello,
    Position,
    Recovery,
    Restored,
    TaskClosed,
    TaskFailure,
    TaskOrder,
    TaskResult,
    ToClient,
    ToCoordinator,
    position_of,
)
from task_assignor.runtime.machines.records import (
    CommitRecord,
    FileRef,
    Part,
    RoutedFile,
    SavedStore,
    TaskCommit,
    TaskSnapshot,
    changelog_path,
    part_path,
)
from task_assignor.runtime.machines.topic_time import NO_TIME
from task_assignor.runtime.shells.launcher import ClientSpec
from task_assignor.runtime.storage import Seal
from task_assignor.sdk import TaskId
from tests.runtime.simulated_outputs import rows_of
from tests.runtime.simulated_storage import MemoryStorage

APPLICATION: Final = "simulated"
_READ: Final = reader_of(ToClient | ToCoordinator | None)
T = TypeVar("T")
RUN: Final = "run"
Lineage = tuple[tuple[int, int], ...]
"""(batch, generation) of every try that led to a state."""


class Nowhere(deque[T]):
    """Where a proxy leaves what it is given, though it keeps the connection."""

    def append(self, _: T) -> None:
        """It never comes."""


@attrs.define
class Connection:
    """One connection; both directions keep their order."""

    number: int
    client: SimulatedClient
    to_coordinator: deque[ToCoordinator] = attrs.field(factory=deque)
    to_client: deque[ToClient | None] = attrs.field(factory=deque)
    is_open: bool = True
    """The client's side."""
    accepted: bool = True
    """The coordinator's side."""
    reported: bool = False
    """The coordinator knows that it is lost."""
    member_id: str = ""
    """It belongs to the heartbeat process of this member."""
    is_slow: bool = False
    """What is sent over it takes its time."""
    is_stopped: bool = False
    """The client was told to stop."""

    @property
    def is_lost(self) -> bool:
        """The coordinator is to hear that the client has closed it."""
        is_told = not isinstance(self.to_coordinator, Nowhere)
        return self.accepted and not self.is_open and not self.reported and is_told

    @property
    def reaches_client(self) -> bool:
        """What the coordinator says comes to the client's side."""
        return self.is_open and not isinstance(self.to_client, Nowhere)

    @property
    def is_done(self) -> bool:
        """Nothing more comes, to either side."""
        return not (self.is_open or self.is_lost or (self.accepted and self.to_coordinator))


@attrs.define(eq=False)
class SimulatedClient:
    """A client process: its machine, its memory, its disk."""

    spec: ClientSpec
    machine: ClientMachine
    disk: dict[TaskId, list[tuple[Position, Lineage]]]
    memory: dict[TaskId, Lineage] = attrs.field(factory=dict)
    positions: dict[TaskId, Position | None] = attrs.field(factory=dict)
    jobs: list[Job] = attrs.field(factory=list)
    shares: list[Share] = attrs.field(factory=list)
    parts: dict[TaskId, list[Part]] = attrs.field(factory=dict)
    """Those of its snapshots."""
    connection: Connection | None = None
    heartbeats: Connection | None = None
    will_hang: bool = False
    syncs: list[tuple[Connection | None, TaskResult]] = attrs.field(factory=list)
    """Results whose files are not durable yet, and where they are to be told then."""
    disk_is_full: bool = False
    hanging: list[Job] = attrs.field(factory=list)
    """Jobs that never end."""
    wants_connection: bool = False
    is_paused: bool = False
    is_deaf: bool = False
    """Its code holds Python's lock: only its heartbeat process works."""
    is_alive: bool = True
    is_elsewhere: bool = False
    """What it writes goes to a folder that nobody shares."""
    is_foreign: bool = False
    """It believes that it belongs to another run."""
    talks_nonsense: bool = False
    """The next thing that it tells of its batches is not so."""
    garbles_snapshots: bool = False
    """Nor is the next one that it tells of its snapshots."""
    will_raise: bool = False
    """The processor raises at the next batch."""
    losses: int = 0
    """So often the stores on its disk turn out to be damaged."""
    slow: list[Job] = attrs.field(factory=list)
    """Jobs that take their time."""
    looks: bool = False
    """It tries whether the coordinator answers over another connection."""
    number: int = 0
    """That of its first connection."""

    def hello(self, number: int) -> Hello:
        """What it says of itself over a connection of that number."""
        newest_first = {
            task: tuple(sorted((position for position, _ in found), key=lambda position: -position.batch))
            for task, found in self.disk.items()
        }
        process_id = str(self.spec.process_id(APPLICATION))
        run = "another run" if self.is_foreign else RUN
        self.number = self.number or number
        name, threads, attempt = self.spec.name, self.spec.capacity, f"attempt {self.number}"
        return Hello(name, process_id, run, threads, None, {}, None, attempt, "host", self.number, newest_first)


def new_client(
    spec: ClientSpec, disk: dict[TaskId, list[tuple[Position, Lineage]]], chance: random.Random, places: float
) -> SimulatedClient:
    """A client process on a machine with this disk; it does each task in a place of its own with this probability."""
    has_places = places > 0 and chance.random() < places
    kept_heartbeats = chance.choice((None, 0, 3, 20))
    machine = ClientMachine(
        spec.capacity,
        snapshot_bytes=2,
        place_heartbeats=3 * has_places,
        kept_heartbeats=kept_heartbeats,
        silence=(10, 30),
    )
    return SimulatedClient(spec, machine, disk)


class Fed:
    """A repartition topic: what was committed to it, and its files.

    Args:
        partitions: of the topic.
        commits: the commit log, as it grows.
        storage: where its files are.
        is_growing: who writes it may have read everything, and read on later.

    Attributes:
        rows: per partition what is at each offset: file and row.
    """

    def __init__(
        self, partitions: int, commits: Sequence[CommitRecord], storage: MemoryStorage, *, is_growing: bool
    ) -> None:
        self._commits = commits
        self._storage = storage
        self._is_growing = is_growing
        self.rows: list[list[str]] = [[] for _ in range(partitions)]
        self._times: list[list[int]] = [[] for _ in range(partitions)]

    def commit(self, commit: TaskCommit) -> None:
        """A task has written to it. The time of a row is how many rows the task has read up to it."""
        for routed in commit.repartitions.values():
            assert commit.stream_time is not None
            first, before = 0, commit.stream_time - routed.file.rows
            for rows, times, count in zip(self.rows, self._times, routed.rows, strict=True):
                rows += [f"{routed.file.path} {row}" for row in range(first, first + count)]
                times += range(before + first + 1, before + first + count + 1)
                first += count

    def time_after(self, order: TaskOrder, end: int) -> int:
        """Up to which time all have come who write it, where a reader has come; none of the rows up to there is older than it was before."""
        known = {offset: time for offset, time in order.times["fed"] if offset <= end}
        assert list(known.values()) == sorted(known.values()), "the time of a topic goes back"
        if not self._is_growing:
            times = self._times[order.task.partition]
            for offset in range(order.ranges["fed"][0], end):
                time = max((time for first, time in known.items() if first <= offset), default=0)
                assert times[offset] >= time, f"the row at offset {offset} is late"
        return max(known.values(), default=NO_TIME)

    def check(self, order: TaskOrder) -> None:
        """An order names just the rows that were committed at these offsets, in files that are there."""
        if "fed" not in order.ranges:
            return
        start, end = order.ranges["fed"]
        named = [
            (f"{piece.file.path} {piece.first + row}", piece.base + row, piece.file.path)
            for piece in order.pieces.get("fed", ())
            for row in range(piece.rows)
            if start <= piece.base + row < end
        ]
        assert [offset for _, offset, _ in named] == list(range(start, end))
        assert [row for row, _, _ in named] == self.rows[order.task.partition][start:end]
        # Of an order that somebody else carried out meanwhile the files may have gone.
        done = sum(order.task in record.tasks for record in self._commits)
        if order.batch == done:
            assert all(map(self._storage.is_there, {file for _, _, file in named})), "a file was deleted too early"


def _store(task: TaskId) -> str:
    """The store of a task; those of one sub-topology have none."""
    return "" if task.subtopology == 1 else f"store-{task.subtopology}"


def lineage_of(saved: SavedStore) -> Lineage:
    return tuple((batch, generation) for batch, generation in saved.state["lineage"])


class Shared:
    """Changelogs and parts of snapshots in the folder of the run.

    Args:
        storage: the folder of the run.
    """

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def put(self, share: Share) -> TaskSnapshot:
        """What `sharing.share` does."""
        known = {} if share.newest is None else share.newest.paths
        at, store = share.written.position, _store(share.task)
        paths = {
            part.name: known.get(part.name, part_path(store, share.task, at.batch, part.name))
            for part in share.written.stores[store].parts
        }
        self._storage.put_all({path: b"x" for path in paths.values() if path not in known.values()})
        where = (at.batch, at.generation, at.changelog_offset, at.stream_time)
        return TaskSnapshot(share.task, *where, dict(share.written.stores), paths)

    def holds(self, snapshot: TaskSnapshot) -> bool:
        """All files of a snapshot are there as they were written."""
        return all(map(self._storage.is_whole, snapshot.paths.values()))

    def has_files_of(self, snapshot: TaskSnapshot) -> bool:
        """All files of a snapshot are there."""
        return all(map(self._storage.is_there, snapshot.paths.values()))

    def has_changes(self, recovery: Recovery, behind: Position) -> bool:
        """All changes after a position are there."""
        changes = recovery.after(behind)
        return all(self._storage.is_whole(file.path) for change in changes for file in change.changelogs.values())


class Work:
    """The work of all clients.

    Args:
        chance: decides what is left for later and what fails.
        commits: the commit log, as it grows.
        storage: the folder of the run.
        fed: partitions of the repartition topic.
        is_growing: who writes it may have read everything, and read on later.

    Attributes:
        files: (task, batch, generation) -> the lineage that the files of that try stand for.
        durable: those that no power failure can take away any more.
        restored: what restores did.
        deleted: states that clients deleted, since their tasks had not come back.
        overtaken: restores whose files were deleted, since a newer snapshot had replaced them.
        told_late: those of them of which the coordinator heard before the client heard of that snapshot.
        last_ends: source topic -> how far each partition will reach.
        reached: source topic -> how far each partition was read, whoever knew that there was so much.
        read_on: so often a batch had more rows than were ordered.
    """

    def __init__(
        self,
        chance: random.Random,
        commits: Sequence[CommitRecord],
        storage: MemoryStorage,
        fed: int,
        *,
        is_growing: bool = False,
    ) -> None:
        self._random = chance
        self._commits = commits
        self._storage = storage
        self.files: dict[tuple[TaskId, int, int], Lineage] = {}
        self.durable: set[tuple[TaskId, int, int]] = set()
        self._written_by: dict[tuple[TaskId, int, int], tuple[SimulatedClient, list[str]]] = {}
        """Who wrote the files of a try, and which."""
        self.restored: list[Restored] = []
        self.fed = Fed(fed, commits, storage, is_growing=is_growing)
        self.shared = Shared(storage)
        self._partitions_of_fed = fed
        self.overtaken = self.told_late = self.read_on = 0
        self.deletions: list[tuple[SimulatedClient, TaskId]] = []
        """Who has deleted the state of which task from its disk."""
        self.last_ends: Mapping[str, Sequence[int]] = {}
        self.reached: dict[str, list[int]] = {}
        self._parts = 0

    def writer_of(self, name: tuple[TaskId, int, int]) -> SimulatedClient | None:
        """Who has done a try."""
        return self._written_by[name][0] if name in self._written_by else None

    def power_failure(self, client: SimulatedClient) -> None:
        """What the client's machine had not made durable is lost, or torn, which is the same; of snapshots any number."""
        for name, (writer, paths) in list(self._written_by.items()):
            if writer is client and name not in self.durable and self._random.random() < 0.7:
                del self.files[name], self._written_by[name]
                self._storage.delete(paths)
        for found in client.disk.values():
            del found[self._random.randint(0, len(found)) :]

    def do(self, client: SimulatedClient, job: Job) -> Outcome:
        """Carry out a job."""
        task = job.task
        if job.kind.ends:
            client.memory.pop(task, None)
            client.positions.pop(task, None)
            if job.kind is JobKind.DELETE and self._random.random() < 0.9 and client.disk.pop(task, []):
                self.deletions.append((client, task))
            left = sorted((position for position, _ in client.disk.get(task, [])), key=lambda found: -found.batch)
            return TaskClosed(task, tuple(left))
        position = client.positions.get(task, START)
        if client.losses and job.kind in (JobKind.PROCESS, JobKind.RESTORE):
            client.losses -= 1
            client.memory[task], client.positions[task] = (), START
            return StateLost(TaskFailure(task, "client", "the stores are damaged"))
        if client.will_raise and job.kind is JobKind.PROCESS:
            client.will_raise = False
            return TaskFailure(task, "processor", "the processor raised")
        if job.kind is JobKind.PROCESS and self._random.random() < 0.03:
            return NothingYet()
        if job.kind is JobKind.SNAPSHOT:
            assert position is not None
            if self._random.random() < 0.1:
                return SnapshotFailed("the disk is full")
            return self._snapshot(client, task, position)
        if job.kind is JobKind.RESTORE:
            assert job.restore is not None
            return self._restore(client, task, job.restore)
        order = job.order
        assert order is not None
        assert position is not None
        assert position.is_same_try(order.base), "a client processes from another state than it was told"
        lineage = (*client.memory.get(task, ()), (order.batch, order.generation))
        client.memory[task] = lineage
        offsets = self._consumed(order)
        rows = sum(end - start for start, end in offsets.values())
        offset = order.base.changelog_offset + rows
        times = {"fed": self.fed.time_after(order, offsets["fed"][1])} if "fed" in offsets else {}
        reached = Position(order.batch, order.generation, offset, offset)
        client.positions[task] = reached
        name = (task, order.batch, order.generation)
        assert name not in self.files, f"two tries wrote the same file {name}"
        self.files[name] = lineage
        where = f"{task.partition}/{order.batch:012d}-{order.generation:08d}.arrow"
        output, data = f"out-{task.subtopology}", rows_of(order.batch, order.generation)
        written = {f"output/{output}/{where}": data}
        outputs = {output: FileRef(f"output/{output}/{where}", Seal(rows, len(data), ""))}
        changelogs = {}
        if _store(task):
            changes = changelog_path(_store(task), *name)
            written[changes] = b"x"
            changelogs = {_store(task): FileRef(changes, Seal(rows, 1, ""))}
        routed = {}
        if task.subtopology == 0:
            splits = sorted((order.batch * number) % (rows + 1) for number in range(1, self._partitions_of_fed))
            counts = tuple(end - start for start, end in zip([0, *splits], [*splits, rows], strict=True))
            fed = f"repartition/fed/{where}"
            written[fed] = b"x"
            routed = {
                "fed": RoutedFile(
                    FileRef(fed, Seal(rows, 1, "")), counts, times=(offset - rows + 1, offset) if rows else None
                )
            }
        self._written_by[name] = (client, list(written))
        try:
            if not client.is_elsewhere:
                self._storage.put_all(written)
        except OSError as error:
            return TaskFailure(task, "client", str(error))
        self.fed.check(order)
        result = TaskResult(task, order.batch, order.generation, offsets, outputs, changelogs, reached)
        return msgspec.structs.replace(result, repartitions=routed, times=times)

    def _consumed(self, order: TaskOrder) -> dict[str, tuple[int, int]]:
        """A task may leave rows of some sources for later, where others have more to come; never of all."""
        spans = dict(order.ranges)
        if order.more and len(spans) > 1:
            spared = self._random.choice(sorted(spans))
            start, end = spans[spared]
            if any(last > first for topic, (first, last) in spans.items() if topic != spared):
                spans[spared] = (start, self._random.randint(start, end))
        elif order.at_most and self._random.random() < 0.5:
            spans = {topic: (start, self._read_on(order, topic, start, end)) for topic, (start, end) in spans.items()}
            self.read_on += spans != order.ranges
        return spans

    def _read_on(self, order: TaskOrder, topic: str, start: int, end: int) -> int:
        """More has come since it was ordered."""
        partition = order.task.partition
        limit = min(start + order.at_most, self.last_ends[topic][partition])
        found = self._random.randint(end, max(end, limit))
        reached = self.reached.setdefault(topic, [0] * len(self.last_ends[topic]))
        reached[partition] = max(reached[partition], found)
        return found

    def _snapshot(self, client: SimulatedClient, task: TaskId, position: Position) -> SnapshotWritten:
        lineage = client.memory.get(task, ())
        client.disk.setdefault(task, []).append((position, lineage))
        if not _store(task):
            return SnapshotWritten(position)
        # Of what is there already the last one is taken again.
        self._parts += 1
        parts = client.parts.setdefault(task, [])
        parts.append(Part(f"part-{self._parts}", Seal(0, 1, "")))
        saved = SavedStore("memory", tuple(parts[-2:]), {"lineage": [*map(list, lineage)]})
        return SnapshotWritten(position, {_store(task): saved})

    def _restore(self, client: SimulatedClient, task: TaskId, wanted: Restore) -> Restored | TaskFailure:
        """What `StreamTask.restore` does, on lineages."""
        target, recovery = wanted.target, wanted.recovery
        lineage = tuple(try_ for try_ in self._lineage_in_log(task) if try_[0] <= target.batch)
        assert (lineage[-1:] or ((-1, 0),))[0] == (target.batch, target.generation), "the target is not committed"
        told = tuple((change.position.batch, change.position.generation) for change in recovery.changes)
        assert told == lineage[recovery.floor.batch + 1 :], "a client is told other changes than were committed"
        whole = [found for found in recovery.snapshots if self.shared.holds(found)]
        states = [(position_of(found), lineage_of(found.stores[_store(task)])) for found in whole]
        states += client.disk.get(task, [])
        position = client.positions.get(task, START)
        if position is not None:
            states.append((position, client.memory.get(task, ())))
        if recovery.floor.batch < 0 or not _store(task):
            states.append((recovery.start, lineage[: recovery.start.batch + 1]))
        usable = [found for found in states if recovery.reaches(found[0]) and found[1] == lineage[: len(found[1])]]
        best = max(usable, key=lambda found: len(found[1]), default=None)
        if best is None or not self.shared.has_changes(recovery, best[0]):
            self.overtaken += 1
            return TaskFailure(task, "log", "a file is missing or damaged")
        client.memory[task] = lineage
        client.positions[task] = target
        restored = Restored(task, target, len(lineage) - len(best[1]))
        self.restored.append(restored)
        return restored

    def _lineage_in_log(self, task: TaskId) -> Lineage:
        found = (record.tasks[task] for record in self._commits if task in record.tasks)
        return tuple((commit.batch, commit.generation) for commit in found)


def sent(message: T) -> T:
    """A message as it comes to the other side."""
    found: T = _READ(encode(message))
    assert found == message
    return found
