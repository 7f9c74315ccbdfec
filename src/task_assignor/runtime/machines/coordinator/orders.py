"""What the coordinator has ordered and not heard of, and what it has accepted and not committed; it decides when.

Each task is on its own: it has no order, one open order with one member, or an accepted result that waits for the next
commit, beside which it may have its next order already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from task_assignor.runtime.machines.coordinator.members import Member, Members
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.events import (
    BatchesCommitted,
    ResultRefused,
    RunEvent,
    SnapshotCommitted,
    SourcesGrown,
)
from task_assignor.runtime.machines.protocol import Assign, Stop, TaskOrder, TaskResult, Work
from task_assignor.runtime.machines.records import CommitRecord, TaskCommit, TaskSnapshot
from task_assignor.sdk import TaskId
from task_assignor.sdk.text import counted


@attrs.frozen
class OpenOrder:
    """An order that was not answered yet.

    Args:
        order: the order.
        member_id: whom it was given to.
        since_ms: when.
    """

    order: TaskOrder
    member_id: str
    since_ms: int


class Orders:
    """Open orders, accepted results and snapshots. Every change is a decision of the coordinator.

    Args:
        at_most: tasks may read what comes after they were ordered to, so many rows of each source; 0: they may not.
    """

    def __init__(self, at_most: int = 0) -> None:
        self._at_most = at_most
        self._open: dict[TaskId, OpenOrder] = {}
        self._accepted: dict[TaskId, TaskCommit] = {}
        self._snapshots: dict[TaskId, TaskSnapshot] = {}
        self._found: set[TaskId] = set()
        self._oldest_ms: int | None = None
        """When the oldest order was given whose result waits for the commit."""
        self._losses: Counter[TaskId] = Counter()
        """Task -> how often a member was lost that was at work for it, since its last answer."""
        self._last_lost: dict[TaskId, TaskOrder] = {}
        self._held: dict[TaskId, int] = {}
        """Task that may still be at work where it was lost -> number of the permit with which that does not count any more."""

    def __len__(self) -> int:
        """How many orders are open."""
        return len(self._open)

    def __iter__(self) -> Iterator[OpenOrder]:
        return iter(self._open.values())

    @property
    def has_accepted(self) -> bool:
        """There is something to commit."""
        return bool(self._accepted or self._snapshots)

    def may_be_given(self, task: TaskId) -> bool:
        """The task has no open order, and waits for no permit."""
        return task not in self._open and task not in self._held

    def hold(self, tasks: Iterable[TaskId], number: int) -> None:
        """These get no order before the permit of that number is there."""
        self._held.update(dict.fromkeys(tasks, number))

    def release(self, number: int) -> list[TaskId]:
        """The permit of that number is there; gives the tasks that have waited for it."""
        released = [task for task, awaited in self._held.items() if awaited <= number]
        for task in released:
            del self._held[task]
        return released

    def awaits_commit(self, task: TaskId) -> bool:
        """The task has a result that was accepted and not committed."""
        return task in self._accepted

    def give(
        self,
        owner: Member,
        progress: Progress,
        task: TaskId,
        generation: int,
        rows: tuple[Mapping[str, tuple[int, int]], frozenset[str]],
        now_ms: int,
    ) -> TaskOrder:
        """Order the next batch of a task from its owner; `rows` is what `Progress.next_ranges` gives."""
        base = progress.position(task)
        pieces = progress.pieces(task, rows[0])
        is_last = progress.is_last(task, rows[0])
        times = progress.times(task, rows[0])
        since = owner.since.get(task, generation)
        has_rows = any(end > start for start, end in rows[0].values())
        at_most = self._at_most if has_rows and progress.may_read_on(task) else 0
        order = TaskOrder(
            task, base.batch + 1, generation, rows[0], base, rows[1], pieces, is_last, times, since, at_most
        )
        self._open[task] = OpenOrder(order, owner.member_id, now_ms)
        return order

    def are_with(self, member: Member) -> bool:
        """The member has an open order."""
        return any(found.member_id == member.member_id for found in self._open.values())

    def give_back(self, member: Member, orders: Iterable[TaskOrder]) -> None:
        """A member has not begun these orders and does not want to: they are void."""
        for order in orders:
            found = self._open.get(order.task)
            if found is not None and (found.member_id, found.order) == (member.member_id, order):
                del self._open[order.task]

    def void(self, member: Member) -> list[TaskId]:
        """A member's open orders are void; gives their tasks."""
        tasks = [task for task, found in self._open.items() if found.member_id == member.member_id]
        for task in tasks:
            del self._open[task]
        return tasks

    def stop_those_that_leave(
        self, members: Members, generation: int, now_ms: int
    ) -> tuple[list[tuple[int, Assign | Stop]], dict[str, list[TaskId]]]:
        """A member that leaves may end when its tasks are with others and its batches are done, or take too long.

        Returns:
            Whom to tell what; and client -> the tasks whose orders to it are void.
        """
        told: list[tuple[int, Assign | Stop]] = []
        void: dict[str, list[TaskId]] = {}
        for member in members.leaving:
            if member.has_tasks and not members.staying:
                # Nobody is there to take them.
                members.take_tasks(member)
                told.append((member.connection, Assign(generation, {}, {})))
            if member.has_tasks or (self.are_with(member) and now_ms < member.leaves_by_ms):
                continue
            void[member.name] = self.void(member)
            member.stops_since_ms = now_ms
            told.append((member.connection, Stop(member.leaves_because)))
        return told, void

    def lose(self, member: Member, hung: Work | None) -> list[TaskId]:
        """A member is lost: its open orders are void, what it had answered counts; gives the tasks of those orders.

        Args:
            member: the member.
            hung: what it did not get on with, if that is why it was given up.
        """
        lost = [task for task, found in self._open.items() if found.member_id == member.member_id]
        # Those that only waited for their turn had no part in it.
        processed = {found.work.task for found in member.running.values() if found.work.kind == "process"}
        self._losses.update([hung.task] if hung is not None else [task for task in lost if task in processed] or lost)
        for task in lost:
            self._last_lost[task] = self._open.pop(task).order
        return lost

    def poison(self, max_attempts: int) -> str:
        """What seems to take the clients with it that process it; "": nothing does."""
        for task, times in sorted(self._losses.items()):
            if times >= max_attempts:
                order = self._last_lost.get(task)
                if order is None:
                    return f"Task {task} was lost {counted(times, 'time')} together with its client"
                rows = "; ".join(
                    f"topic {topic}, partition {task.partition}, offsets {start} to {end - 1}"
                    for topic, (start, end) in order.ranges.items()
                    if end > start
                )
                return f"Task {task}, batch {order.batch} ({rows or 'no rows'}) was lost {counted(times, 'time')} together with its client"
        return ""

    def why_refuse(self, member_id: str, result: TaskResult) -> str:
        """Why an answer does not count; "": it does."""
        found = self._open.get(result.task)
        if found is None or found.member_id != member_id:
            return "the task is not ordered from this client any more"
        if (found.order.batch, found.order.generation) != (result.batch, result.generation):
            return f"it was ordered again in generation {found.order.generation}"
        return ""

    def what_is_wrong_with(self, result: TaskResult) -> str:
        """Why a result cannot be an answer to the task's open order; "": it can."""
        order = self._open[result.task].order
        ranges = order.ranges
        if result.offsets.keys() != ranges.keys():
            return f"it read {sorted(result.offsets)}, not {sorted(ranges)}"
        # What has gone is passed over at once, however much it is.
        at_most = max(order.at_most, result.counters.get("lost_records", 0))
        for topic, (start, end) in result.offsets.items():
            first, limit = ranges[topic]
            if start != first or end < start or (end > max(limit, first + at_most) and not result.is_found):
                return f"it read the offsets {start} to {end} of {topic}, of {first} to {limit}"
        may_be_empty = result.is_short or not any(end > start for start, end in ranges.values())
        # What was found may have been made of rows that are gone, all before those that are there.
        if not may_be_empty and not result.is_found and not any(end > start for start, end in result.offsets.values()):
            return "it read no rows"
        return ""

    def accept(self, member: Member, result: TaskResult) -> TaskCommit:
        """The answer to an open order counts from now on; gives what is to be committed."""
        found = self._open.pop(result.task)
        for counts in (self._losses, self._last_lost):
            counts.pop(result.task, None)
        self._oldest_ms = found.since_ms if self._oldest_ms is None else min(self._oldest_ms, found.since_ms)
        if result.is_found:
            self._found.add(result.task)
        commit = self._accepted[result.task] = TaskCommit(
            result.task,
            result.batch,
            member.name,
            str(member.process_id),
            member.member_id,
            result.attempt or member.hello.attempt,
            result.generation,
            result.offsets,
            result.outputs,
            result.changelogs,
            result.position.changelog_offset,
            result.counters,
            round(result.seconds, 6),
            result.position.stream_time,
            result.repartitions,
            result.position.epoch_ms,
            result.seals,
            result.times,
            result.to_come,
        )
        return commit

    def has_snapshot(self, task: TaskId) -> bool:
        """A snapshot of the task was accepted and not committed."""
        return task in self._snapshots

    def accept_snapshot(self, snapshot: TaskSnapshot) -> None:
        """A snapshot counts from now on; there is no other one of its task that was not committed."""
        self._snapshots[snapshot.task] = snapshot

    def take_found(self) -> frozenset[TaskId]:
        """The tasks whose batch that was accepted was not made for its order, but found: it had been made before."""
        found, self._found = frozenset(self._found), set()
        return found

    def take_accepted(self, now_ms: int) -> tuple[dict[TaskId, TaskCommit], dict[TaskId, TaskSnapshot], float]:
        """Everything that was accepted, to be committed; and the seconds since the oldest order of it was given."""
        tasks = {task: self._accepted[task] for task in sorted(self._accepted)}
        seconds = 0.0 if self._oldest_ms is None else (now_ms - self._oldest_ms) / 1000
        snapshots = {task: self._snapshots[task] for task in sorted(self._snapshots)}
        self._accepted, self._snapshots, self._oldest_ms = {}, {}, None
        return tasks, snapshots, seconds

    def clear(self) -> None:
        """Nothing that is open is waited for any more."""
        self._open.clear()

    def validate(self, members: Members, progress: Progress, generation: int) -> None:
        """Raise AssertionError if something holds that never may."""
        for task, found in self._open.items():
            assert members.with_id(found.member_id), f"the open order of {task} is with {found.member_id}, who left"
            assert found.order.generation <= generation
            assert found.order.base == progress.position(task)
            assert found.order.batch == progress.position(task).batch + 1
        for task, commit in self._accepted.items():
            assert progress.position(task).batch == commit.batch, "a task ran ahead of its commit by two batches"


def events_of(
    record: CommitRecord, seconds: float, progress: Progress, found: Collection[TaskId] = ()
) -> Iterator[RunEvent]:
    """The events that tell of a commit; of the tasks that are `found` the batch had been made before."""
    if record.tasks:
        yield _batches_committed(record, seconds, progress, found)
    for task, snapshot in record.snapshots.items():
        yield SnapshotCommitted(record.number, task, snapshot.batch, len(snapshot.paths), snapshot.size)


def _batches_committed(
    record: CommitRecord, seconds: float, progress: Progress, found: Collection[TaskId]
) -> BatchesCommitted:
    batches = {task: commit.batch for task, commit in record.tasks.items()}
    rows = rows_by_client(record.tasks)
    counts = (record.rows_in, record.rows_out)
    by_task = {task: commit.rows_in for task, commit in record.tasks.items()}
    counters: Counter[str] = Counter()
    for commit in record.tasks.values():
        counters.update(commit.counters)
    lags = {task: progress.unread(task) for task in sorted({*record.tasks, *progress.fed})}
    remaining = progress.remaining_rows()
    return BatchesCommitted(
        record.number,
        record.generation,
        batches,
        *counts,
        rows,
        seconds,
        remaining,
        by_task,
        dict(counters),
        lags,
        {task: by_task[task] for task in sorted(found)},
    )


def refused(client: str, result: TaskResult, reason: str) -> ResultRefused:
    """The event that tells of an answer that does not count."""
    return ResultRefused(client, result.task, result.batch, result.generation, reason)


def grown(progress: Progress, tasks: Iterable[TaskId]) -> SourcesGrown:
    """The event that tells how much tasks have to read now."""
    return SourcesGrown({task: progress.unread(task) for task in tasks})


def rows_by_client(tasks: Mapping[TaskId, TaskCommit]) -> dict[str, int]:
    """Client -> rows that it read, sorted."""
    rows: dict[str, int] = {}
    for commit in tasks.values():
        rows[commit.client] = rows.get(commit.client, 0) + commit.rows_in
    return dict(sorted(rows.items()))
