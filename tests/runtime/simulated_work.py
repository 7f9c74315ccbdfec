"""What a simulated client does in place of work: lineages stand for states, and nothing is computed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from task_assignor.runtime.machines.client import ClientMachine
from task_assignor.runtime.machines.client_task import Job, JobKind, Restore, Share, SnapshotFailed, SnapshotWritten
from task_assignor.runtime.machines.client_values import Outcome
from task_assignor.runtime.machines.protocol import (
    START,
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
    Checkpoint,
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
from task_assignor.runtime.retention import obsolete
from task_assignor.runtime.shells.launcher import ClientSpec
from task_assignor.runtime.storage import Seal
from task_assignor.sdk import TaskId
from tests.runtime.simulated_outputs import SimulatedOutputs

Lineage = tuple[tuple[int, int], ...]
"""(batch, generation) of every try that led to a state."""


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


class Fed:
    """A repartition topic of two partitions: what was committed to it, and its files.

    Args:
        commits: the commit log, as it grows.

    Attributes:
        rows: per partition what is at each offset: file and row.
    """

    def __init__(self, commits: Sequence[CommitRecord]) -> None:
        self._commits = commits
        self.rows: list[list[str]] = [[], []]
        self._files: set[str] = set()

    def commit(self, commit: TaskCommit) -> None:
        """A task has written to it."""
        for routed in commit.repartitions.values():
            self._files.add(routed.file.path)
            rows = [f"{routed.file.path} {row}" for row in range(sum(routed.rows))]
            self.rows[0] += rows[: routed.rows[0]]
            self.rows[1] += rows[routed.rows[0] :]

    def delete(self, names: Iterable[str]) -> None:
        """Files are not needed any more; after a restart that may be said again."""
        self._files.difference_update(names)

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
            assert {file for _, _, file in named} <= self._files, "a file was deleted too early"


def _store(task: TaskId) -> str:
    """The store of a task; those of one sub-topology have none."""
    return "" if task.subtopology == 1 else f"store-{task.subtopology}"


class Shared:
    """Changelogs and parts of snapshots in the folder of the run.

    Attributes:
        deleted: files that were deleted since nobody needs them.
    """

    def __init__(self) -> None:
        self._files: set[str] = set()
        self.deleted = 0

    def add(self, path: str) -> None:
        """A file is written."""
        self._files.add(path)

    def lose(self, path: str) -> None:
        """A power failure takes a file away."""
        self._files.discard(path)

    def put(self, share: Share) -> TaskSnapshot:
        """What `sharing.share` does."""
        known = {} if share.newest is None else share.newest.paths
        at, store = share.written.position, _store(share.task)
        paths = {
            part.name: known.get(part.name, part_path(store, share.task, at.batch, part.name))
            for part in share.written.stores[store].parts
        }
        self._files.update(path for path in paths.values() if path not in known.values())
        where = (at.batch, at.generation, at.changelog_offset, at.stream_time)
        return TaskSnapshot(share.task, *where, dict(share.written.stores), paths)

    def holds(self, snapshot: TaskSnapshot) -> bool:
        """All files of a snapshot are there."""
        return self._files.issuperset(snapshot.paths.values())

    def has_changes(self, recovery: Recovery, behind: Position) -> bool:
        """All changes after a position are there."""
        changes = recovery.after(behind)
        return self._files.issuperset(file.path for change in changes for file in change.changelogs.values())

    def clean(self, before: Checkpoint, now: Checkpoint) -> None:
        """Delete what is needed by none of the two checkpoints."""
        names = obsolete(sorted(self._files), before, now)
        self._files.difference_update(names)
        self.deleted += len(names)


class Work:
    """The work of all clients.

    Args:
        chance: decides what is left for later and what fails.
        commits: the commit log, as it grows.

    Attributes:
        files: (task, batch, generation) -> the lineage that the files of that try stand for.
        durable: those that no power failure can take away any more.
        restored: what restores did.
        overtaken: restores whose files were deleted, since a newer snapshot had replaced them.
    """

    def __init__(self, chance: random.Random, commits: Sequence[CommitRecord]) -> None:
        self._random = chance
        self._commits = commits
        self.files: dict[tuple[TaskId, int, int], Lineage] = {}
        self.durable: set[tuple[TaskId, int, int]] = set()
        self._written_by: dict[tuple[TaskId, int, int], SimulatedClient] = {}
        self.restored: list[Restored] = []
        self.fed = Fed(commits)
        self.outputs = SimulatedOutputs(chance)
        self.shared = Shared()
        self.overtaken = 0
        self._parts = 0

    def power_failure(self, client: SimulatedClient) -> None:
        """What the client's machine had not made durable is lost, or torn, which is the same; of snapshots any number."""
        for name, writer in list(self._written_by.items()):
            if writer is client and name not in self.durable and self._random.random() < 0.7:
                del self.files[name], self._written_by[name]
                self.shared.lose(changelog_path(_store(name[0]), *name))
        for found in client.disk.values():
            del found[self._random.randint(0, len(found)) :]

    def do(self, client: SimulatedClient, job: Job) -> Outcome:
        """Carry out a job."""
        task = job.task
        if job.kind is JobKind.CLOSE:
            client.memory.pop(task, None)
            client.positions.pop(task, None)
            left = sorted((position for position, _ in client.disk.get(task, [])), key=lambda found: -found.batch)
            return TaskClosed(task, tuple(left))
        position = client.positions.get(task, START)
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
        reached = Position(order.batch, order.generation, order.base.changelog_offset + rows)
        client.positions[task] = reached
        name = (task, order.batch, order.generation)
        assert name not in self.files, f"two tries wrote the same file {name}"
        self.files[name] = lineage
        self._written_by[name] = client
        where = f"{task.partition}/{order.batch:012d}-{order.generation:08d}.arrow"
        path = f"output/out-{task.subtopology}/{where}"
        outputs = {f"out-{task.subtopology}": FileRef(path, Seal(rows, 10 + rows, ""))}
        self.outputs.write(path, order.batch, order.generation)
        changelogs = {}
        if _store(task):
            changes = changelog_path(_store(task), *name)
            self.shared.add(changes)
            changelogs = {_store(task): FileRef(changes, Seal(rows, 1, ""))}
        routed = {}
        if task.subtopology == 0:
            split = order.batch % (rows + 1)
            fed = f"repartition/fed/{where}"
            self.outputs.write(fed, order.batch, order.generation)
            routed = {"fed": RoutedFile(FileRef(fed, Seal(rows, 1, "")), (split, rows - split))}
        self.fed.check(order)
        result = TaskResult(task, order.batch, order.generation, offsets, outputs, changelogs, reached)
        return attrs.evolve(result, repartitions=routed)

    def _consumed(self, order: TaskOrder) -> dict[str, tuple[int, int]]:
        """A task may leave rows of some sources for later, where others have more to come; never of all."""
        spans = dict(order.ranges)
        if order.more and len(spans) > 1:
            spared = self._random.choice(sorted(spans))
            start, end = spans[spared]
            if any(last > first for topic, (first, last) in spans.items() if topic != spared):
                spans[spared] = (start, self._random.randint(start, end))
        return spans

    def _snapshot(self, client: SimulatedClient, task: TaskId, position: Position) -> SnapshotWritten:
        lineage = client.memory.get(task, ())
        client.disk.setdefault(task, []).append((position, lineage))
        if not _store(task):
            return SnapshotWritten(position)
        # Of what is there already the last one is taken again.
        self._parts += 1
        parts = client.parts.setdefault(task, [])
        parts.append(Part(f"part-{self._parts}", Seal(0, 1, "")))
        return SnapshotWritten(position, {_store(task): SavedStore("memory", tuple(parts[-2:]), {"lineage": lineage})})

    def _restore(self, client: SimulatedClient, task: TaskId, wanted: Restore) -> Restored | TaskFailure:
        """What `StreamTask.restore` does, on lineages."""
        target, recovery = wanted.target, wanted.recovery
        lineage = tuple(try_ for try_ in self._lineage_in_log(task) if try_[0] <= target.batch)
        assert (lineage[-1:] or ((-1, 0),))[0] == (target.batch, target.generation), "the target is not committed"
        told = tuple((change.position.batch, change.position.generation) for change in recovery.changes)
        assert told == lineage[recovery.floor.batch + 1 :], "a client is told other changes than were committed"
        whole = [found for found in recovery.snapshots if self.shared.holds(found)]
        states = [(position_of(found), found.stores[_store(task)].state["lineage"]) for found in whole]
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
            return TaskFailure(task, "log", "a file is missing")
        client.memory[task] = lineage
        client.positions[task] = target
        restored = Restored(task, target, len(lineage) - len(best[1]))
        self.restored.append(restored)
        return restored

    def _lineage_in_log(self, task: TaskId) -> Lineage:
        found = (record.tasks[task] for record in self._commits if task in record.tasks)
        return tuple((commit.batch, commit.generation) for commit in found)
