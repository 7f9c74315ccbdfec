"""What must hold in a simulated application: for every commit, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.values import (
    AskAssignor,
    AssignorAnswered,
    ConnectionLost,
    CoordinatorEvent,
    CoordinatorInstruction,
    CoordinatorPhase,
    Finished,
    FromClient,
    NothingWaits,
    StopRequested,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.events import ClientLost, ResultRefused
from task_assignor.runtime.machines.protocol import Gone, Goodbye, Hello, Process, Stop, TaskFailed, TaskOrder, ToClient
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.sdk import StreamsException, TaskId
from tests.runtime.simulated_outputs import check_outputs
from tests.runtime.simulated_work import RUN, Connection, Nowhere, lineage_of

if TYPE_CHECKING:
    from tests.runtime.simulation import World

ROWS_PER_BATCH = 10


def check_commit(world: World, record: CommitRecord) -> None:
    """No row of a commit is lost or there twice, and its tasks ran where they were assigned."""
    assert record.number == len(world.commits), "commits are made one after the other, each once"
    for task, commit in record.tasks.items():
        before = world.committed.get(task, ())
        assert commit.batch == len(before), "a task's batches are committed one after the other, each once"
        this = (commit.batch, commit.generation)
        assert (task, *this) in world.work.durable, f"{task}: a power failure may take the files of a commit away"
        assert world.work.files[task, commit.batch, commit.generation] == (*before, this), f"{task}: a state is wrong"
        world.committed[task] = (*before, this)
        owners = next(found for found in world.rebalances if found.generation == commit.generation).clients
        name, tasks = owners[commit.member_id]
        assert (name, task in tasks.active) == (commit.client, True), f"{task} was not assigned to {commit.client}"
        world.work.fed.commit(commit)
        for topic, (start, end) in commit.offsets.items():
            done = sum(
                span[1] - span[0]
                for found in world.commits
                if task in found.tasks
                for name, span in found.tasks[task].offsets.items()
                if name == topic
            )
            assert start == done, f"{task}: rows of {topic} are lost or there twice"
            assert end - start <= ROWS_PER_BATCH
    for task, snapshot in record.snapshots.items():
        assert world.work.shared.has_files_of(snapshot), "a snapshot lacks a file"
        known = world.snapshots.setdefault(task, [])
        assert not known or snapshot.batch > known[-1], "a snapshot is older than the newest"
        known.append(snapshot.batch)
        for saved in snapshot.stores.values():
            holds = lineage_of(saved)
            assert holds == world.committed[task][: snapshot.batch + 1], f"{task}: a snapshot holds what does not count"
            assert holds[-1] == (snapshot.batch, snapshot.generation)


@attrs.frozen
class Before:
    """What a coordinator was about when an event came.

    Args:
        phase: its phase.
        orders: how many orders were open.
        is_asking: it had asked the assignor.
        stops_by_ms: when it was to end, if it was asked to.
        heard: the member of which the event tells that it lives; "": none.
        deadline_ms: when it wanted to look at the clock.
        has_accepted: it had something to commit.
    """

    phase: CoordinatorPhase
    orders: int
    is_asking: bool
    stops_by_ms: int | None
    heard: str
    deadline_ms: int | None
    has_accepted: bool

    @classmethod
    def of(cls, world: World, event: CoordinatorEvent) -> Before:
        """As it is now."""
        coordinator, heard = world.coordinator, ""
        if isinstance(event, FromClient):
            member = coordinator.members.find(event.connection)
            heard = getattr(event.message, "member_id", "") if member is None else member.member_id
        is_asking = coordinator._rebalances.question is not None
        stops_by_ms, deadline_ms = coordinator._lifetime.stop_by_ms, coordinator.next_deadline_ms()
        has_accepted = coordinator.has_accepted
        orders = len(coordinator._orders)
        return cls(coordinator.phase, orders, is_asking, stops_by_ms, heard, deadline_ms, has_accepted)


def check_event(
    world: World, before: Before, event: CoordinatorEvent, instructions: Sequence[CoordinatorInstruction]
) -> None:
    """What the coordinator makes of an event keeps what is promised."""
    coordinator = world.coordinator
    if before.phase is CoordinatorPhase.GATHERING and coordinator.phase is CoordinatorPhase.RUNNING:
        assert len(coordinator.members.staying) >= coordinator._lifetime.expected_clients, "it has begun too early"
    match event:
        case FromClient(_, Gone(member_id)):
            assert coordinator.members.with_id(member_id) is None, "whoever is gone is a member"
        case FromClient(connection, Goodbye()) | ConnectionLost(connection):
            assert coordinator.members.find(connection) is None, "whoever has left is a member"
        case FromClient(connection, Hello()):
            member = coordinator.members.find(connection)
            if member is not None:
                world.heard_ms[member.member_id] = event.now_ms
        case _ if before.heard:
            world.heard_ms[before.heard] = event.now_ms
    match event:
        case StopRequested() if before.phase is CoordinatorPhase.RUNNING and world.stops_by_ms is None:
            world.stops_by_ms = event.now_ms + world.options.stop_timeout_ms
        case Tick() if coordinator.phase is not CoordinatorPhase.ENDED:
            is_due = before.deadline_ms is not None and before.deadline_ms <= event.now_ms
            # What a commit is wanted for follows with that.
            assert is_due or before.has_accepted or not instructions, "it has looked at the clock in time by chance"
            _check_time(world, event.now_ms)
        case FromClient(_, TaskFailed(failure)) if coordinator.progress.has_replaced(failure.task, failure.floor):
            world.work.told_late += 1
    for instruction in instructions:
        match instruction:
            case AskAssignor():
                assert not coordinator._lifetime.stop_reason, "there is a rebalance although the run is to end"
            case StoreCommit(record):
                waiting = coordinator._orders._snapshots
                for task, snapshot in record.snapshots.items():
                    committed = {snapshot.batch, *world.snapshots.get(task, ())}
                    committed |= {found.batch for found in (waiting.get(task),) if found is not None}
                    counting = {found.batch for found in coordinator.progress.recovery(task).snapshots}
                    assert counting <= committed, f"{task}: a snapshot counts that nobody commits"
            case Finished(error):
                assert not coordinator.has_accepted, "it ends without committing what it has accepted"
                if error is None:
                    _check_end(coordinator, before, event)


def _check_time(world: World, now_ms: int) -> None:
    """Nobody and nothing is waited for longer than is said, and the clock is not looked at for nothing."""
    coordinator, deadline = world.coordinator, world.coordinator.next_deadline_ms()
    # Who was told to stop only now, and has been at a batch for long, is ended at the next look.
    is_told = any(member.stops_since_ms == now_ms for member in coordinator.members)
    assert deadline is None or deadline > now_ms or is_told, "a shell would spin"
    late = world.stops_by_ms is not None and now_ms >= world.stops_by_ms
    assert not late or coordinator.phase is not CoordinatorPhase.RUNNING, "it goes on although it was to end"
    for member in coordinator.members:
        silent_ms = now_ms - world.heard_ms[member.member_id]
        assert silent_ms <= world.options.session_timeout_ms, f"{member.name} was heard of {silent_ms} ms ago"


def _check_end(coordinator: Coordinator, before: Before, event: CoordinatorEvent) -> None:
    """A run that has come to its end, or to the one that was asked for, has left nothing undone."""
    is_asking = before.is_asking and not isinstance(event, AssignorAnswered)
    assert coordinator._lifetime.stop_reason or not is_asking, "it ends although the assignor is asked"
    if before.stops_by_ms is None or event.now_ms < before.stops_by_ms:
        is_early = isinstance(event, (StopRequested, NothingWaits)) and before.orders
        assert not is_early, "it ends although there are orders"


def check_message(world: World, connection: Connection, message: ToClient) -> None:
    """A client is told to stop once, and nothing is ordered from it then."""
    assert not (connection.is_stopped and isinstance(message, (Process, Stop))), f"{message} after the end"
    connection.is_stopped |= isinstance(message, Stop)
    for order in message.orders if isinstance(message, Process) else ():
        _check_order(world, connection, order)


def _check_order(world: World, connection: Connection, order: TaskOrder) -> None:
    """An order is for who has the task and stays, and builds on what is committed, or was done by the same client."""
    assert world.stops_by_ms is None, f"{order.task} is ordered although the run is to end"
    member = world.coordinator.members.find(connection.number)
    if member is None:
        return  # It was lost over the same event.
    assert order.task in member.tasks.active, f"{order.task} is ordered from somebody else"
    assert not member.leaves_because, f"{order.task} is ordered from somebody who is to leave"
    base = (order.base.batch, order.base.generation)
    if order.base.batch >= len(world.committed.get(order.task, ())):
        assert world.work.writer_of((order.task, *base)) is connection.client, "others build on what is not committed"


def check_loss(world: World, lost: ClientLost) -> None:
    """Nobody is given up who was heard of in time."""
    if lost.reason.startswith("no heartbeat"):
        silent_ms = world.now_ms - world.heard_ms[lost.member_id]
        assert silent_ms > world.options.session_timeout_ms, f"{lost.client} was heard of {silent_ms} ms ago"


def check_states(world: World, question: AskAssignor) -> None:
    """Whoever is said to have state left of a task has it, as far at least, unless there is news of it on the way."""
    told = {client.process_id: client.offset_sums for client in question.clients}
    for member in world.coordinator.members.staying:
        connection = world.connections[member.connection - 1]
        client = connection.client
        # Of one that was killed, perhaps with its disk, the coordinator has not heard yet.
        # Nor of what nobody brings to it.
        is_heard = not isinstance(connection.to_coordinator, Nowhere)
        is_current = client.is_alive and connection is client.connection and is_heard
        if not is_current or client.jobs or connection.to_coordinator or connection.to_client:
            continue
        # Of the tasks that it has it goes on to tell.
        for task in [found for found in world.tasks if not member.has(found)]:
            if any(by is not client and by.disk is client.disk and of == task for by, of in world.work.deletions):
                # A process that was given up, and lives, has the same disk. What it deletes nobody hears: that costs time, no rows.
                continue
            in_memory, on_disk = client.positions.get(task), [position for position, _ in client.disk.get(task, ())]
            offset, states = told[member.process_id].get(task, 0), [found for found in (*on_disk, in_memory) if found]
            assert offset <= max((found.changelog_offset for found in states), default=0), f"{task} is not there"
            # What has come to its disk since it joined, by a restore that began before, is not told: that costs time, no rows.
            assert task not in member.ready, f"{task} is taken for ready, so what is left of it is not told"


def is_over(world: World, error: StreamsException | None) -> bool:
    """A run has come to its end, or to one that nobody has caused: what has been caused is known, and is what is said."""
    if error is None:
        progress = world.coordinator.progress
        is_complete = not progress.remaining_rows() if world.is_growing else progress.is_complete
        is_all_read = is_complete and world.ends == world.last_ends
        assert is_all_read or "stop" in world.excuses, "it ended before its time"
        return is_all_read
    return not any(excuse in str(error) for excuse in world.excuses)


def check_everything_is_done(world: World) -> None:
    """All rows of all sources are in committed batches, and readers of outputs see these; nothing was done for nothing."""
    if world.is_quiet and not world.is_slow:
        late = [event for event in world.events if isinstance(event, (ClientLost, ResultRefused))]
        # Who leaves is not waited for longer than `stop_timeout_ms`.
        assert all(isinstance(event, ResultRefused) and event.client in world.leaving for event in late), f"{late}"
        in_vain = len(world.work.files) - sum(map(len, world.committed.values()))
        assert in_vain == len(late), f"{in_vain} batches were done in vain"
    world.storage.mend()
    check_outputs(world.storage, world.committed, world.markers.held)
    assert not world.markers.asked, "nobody heard what became of a marker"
    told = [record.number for record in CommitLog(RUN, storage=world.storage).records()]
    assert told == list(range(len(world.commits))), "the history does not say what was committed"
    read: dict[tuple[str, int], int] = {}
    times: dict[TaskId, int] = {}
    for record in world.commits:
        for task, commit in record.tasks.items():
            times[task] = commit.times.get("fed", commit.stream_time or 0)
            for topic, (_, end) in commit.offsets.items():
                read[topic, task.partition] = end
    if not world.is_growing:
        newest = max((time for task, time in times.items() if task.subtopology == 0), default=0)
        assert all(time == newest for task, time in times.items() if task.subtopology == 2), "a reader is behind"
    for topic, ends in {**world.last_ends, "fed": [len(rows) for rows in world.work.fed.rows]}.items():
        for partition, end in enumerate(ends):
            assert read.get((topic, partition), 0) == end
