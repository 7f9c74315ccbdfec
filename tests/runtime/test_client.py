"""The client's state machine, event by event."""

from __future__ import annotations

import subprocess
import sys
from collections import deque

import msgspec
import pytest

from task_assignor.runtime import InvalidTransitionException, Seal
from task_assignor.runtime.machines.client.machine import (
    MAX_LOSSES,
    ClientMachine,
)
from task_assignor.runtime.machines.client.task import (
    ClientTask,
    Job,
    JobKind,
    Restore,
    Share,
    ShareDone,
    SnapshotFailed,
    SnapshotWritten,
    TaskState,
)
from task_assignor.runtime.machines.client.values import (
    Answered,
    ClientEvent,
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
    StateLost,
)
from task_assignor.runtime.machines.protocol import (
    START,
    Assign,
    Change,
    Committed,
    GivenBack,
    Goodbye,
    Heartbeat,
    Hello,
    Leave,
    Position,
    Process,
    Refused,
    Restored,
    Running,
    SnapshotMissed,
    SnapshotTaken,
    Stop,
    TaskClosed,
    TaskDone,
    TaskFailed,
    TaskFailure,
    TaskReady,
    Welcome,
    Work,
)
from task_assignor.runtime.machines.records import Part, SavedStore, TaskSnapshot
from task_assignor.sdk import TaskId
from tests.runtime.machine import (
    CHANGELOGS,
    HELLO,
    A,
    B,
    Machine,
    a_member,
    an_order,
    assign,
    committed,
    process,
    recovery_to,
    restore_to,
    result_of,
)


def test_hello_tells_the_states_on_disk_and_in_memory() -> None:
    machine = Machine()
    assert machine.start() == [Connect()]
    assert machine.handle(Connected(HELLO)) == [SendToCoordinator(HELLO)]
    assert machine.handle(Received(Welcome("c-1"))) == [StartHeartbeats("c-1")]
    machine.handle(Received(assign(1, {A: START}, {})))
    process(machine, an_order(A, 0))
    assert machine.handle(Disconnected("cut")) == [Connect()]
    (sent,) = machine.handle(Connected(HELLO))
    assert isinstance(sent, SendToCoordinator)
    assert isinstance(sent.message, Hello)
    assert sent.message.positions == {A: (Position(1, 1, 5), Position(0, 1, 9))}


@pytest.mark.parametrize("is_welcome", [False, True])
def test_a_state_that_is_lost_after_joining_again_is_not_had_any_more(is_welcome: bool) -> None:
    """The batch of an order of before fails when it has said that it has the state: others would build on that."""
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    process(machine, an_order(A, 0))
    job = Job(JobKind.PROCESS, A, order=an_order(A, 1, base=Position(0, 1, 9)))
    machine.handle(Received(Process((job.order,) if job.order else ())))
    machine.handle(Disconnected("cut"))
    machine.handle(Connected(HELLO))
    closed = SendToCoordinator(TaskClosed(A))
    lost = JobDone(job, TaskFailure(A, "client", "no such file"))
    if is_welcome:
        machine.handle(Received(Welcome("c-2")))
        assert closed in machine.handle(lost)
    else:
        assert closed not in machine.handle(lost)
        assert machine.handle(Received(Welcome("c-2")))[:2] == [StartHeartbeats("c-2"), closed]
    assert closed not in machine.handle(HeartbeatDue())


def test_a_task_is_restored_before_it_is_processed_and_reported_once() -> None:
    machine = a_member()
    target = Position(3, 2, 40)
    (job,) = machine.handle(Received(assign(4, {A: target}, {})))
    restore = Job(JobKind.RESTORE, A, restore=restore_to(target))
    assert job == RunJob(restore)
    order = an_order(A, 4, 4, target)
    assert machine.handle(Received(Process((order,)))) == [], "one job per task"
    restored = Restored(A, target, 40, 0, "changelog")
    process = RunJob(Job(JobKind.PROCESS, A, order=order))
    assert machine.handle(JobDone(restore, restored)) == [SendToCoordinator(TaskReady(restored, "active")), process]
    result = result_of(order)
    assert machine.handle(JobDone(process.job, result)) == [SendToCoordinator(TaskDone(result))]
    # It waits for the commit of what it has just done, instead of restoring what was before.
    assert machine.handle(HeartbeatDue()) == [SendToCoordinator(Heartbeat({}, 7, 40))]
    assert machine.handle(Received(committed({A: result.position}))) == []
    machine.validate_state()


def test_how_far_standbys_are_is_told_when_they_have_got_on() -> None:
    """By that the assignor knows who is nearly up to date."""
    machine, first, second = a_member(), Position(3, 2, 40), Position(4, 2, 50)
    machine.handle(Received(assign(4, {}, {B: first})))
    machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, first, 40)))
    assert machine.handle(HeartbeatDue()) == [SendToCoordinator(Heartbeat({B: first}, 0, 40))]
    assert machine.handle(HeartbeatDue()) == [SendToCoordinator(Heartbeat({}, 0, 40))]
    machine.handle(Received(committed({B: second})))
    machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, second, 10)))
    assert machine.handle(HeartbeatDue()) == [SendToCoordinator(Heartbeat({B: second}, 0, 50))]


def test_an_active_task_is_restored_before_standbys() -> None:
    """Nobody processes it until then; standbys that came at the same time made it wait for theirs."""
    machine = a_member()
    target = Position(3, 2, 40)
    assert machine.handle(Received(assign(4, {B: target}, {A: target}))) == [
        RunJob(Job(JobKind.RESTORE, B, restore=restore_to(target)))
    ]
    assert machine.handle(Received(Process((an_order(B, 4, 4, target),)))) == []
    machine.validate_state()


def test_a_new_task_is_ready_without_a_job() -> None:
    machine = a_member()
    told = machine.handle(Received(assign(1, {A: START}, {B: START})))
    assert [
        SendToCoordinator(TaskReady(Restored(task, START), role)) for task, role in ((A, "active"), (B, "standby"))
    ] == told


def test_orders_come_before_standbys_and_standbys_before_snapshots() -> None:
    machine = a_member(snapshot_bytes=200)
    machine.handle(Received(assign(1, {A: START}, {B: START})))
    result = process(machine, an_order(A, 0))
    reached = Position(0, 1, 9)
    (first,) = machine.handle(Received(committed({A: result.position, B: reached})))
    assert first == RunJob(Job(JobKind.RESTORE, B, restore=restore_to(reached)))
    order = an_order(A, 1, 1, result.position)
    assert machine.handle(Received(Process((order,)))) == []
    second = machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, reached, 9)))
    assert second == [RunJob(Job(JobKind.PROCESS, A, order=order))]
    later = Position(1, 1, 18)
    machine.handle(Received(committed({A: result_of(order).position, B: later})))
    third = machine.handle(JobDone(Job(JobKind.PROCESS, A, order=order), result_of(order)))
    assert third[1:] == [RunJob(Job(JobKind.RESTORE, B, restore=restore_to(later, reached)))]
    fourth = machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, later, 9)))
    assert fourth == [RunJob(Job(JobKind.SNAPSHOT, A))]


def test_standbys_have_their_turn_although_there_always_is_an_order() -> None:
    machine, other, reached = a_member(), TaskId(0, 2), Position(0, 1, 9)
    machine.handle(Received(assign(1, {A: START, other: START}, {B: START})))
    first, second = an_order(A, 0), an_order(other, 0)
    machine.handle(Received(Process((first,))))
    machine.handle(Received(committed({B: reached})))
    machine.handle(Received(Process((second,))))
    told = machine.handle(JobDone(Job(JobKind.PROCESS, A, order=first), result_of(first)))
    assert told[1:] == [RunJob(Job(JobKind.RESTORE, B, restore=restore_to(reached)))]
    machine.handle(Received(Process((an_order(A, 1, 1, result_of(first).position),))))
    told = machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, reached, 9)))
    assert told == [RunJob(Job(JobKind.PROCESS, other, order=second))]


def test_snapshots_are_written_although_there_always_is_an_order() -> None:
    """Every so many bytes, and not for all tasks in the same batch."""
    machine = a_member(snapshot_bytes=300)
    machine.handle(Received(assign(1, {A: START, B: START}, {})))
    written: list[tuple[TaskId, int]] = []
    positions = {A: START, B: START}
    for batch in range(12):
        orders = {task: an_order(task, batch, 1, positions[task]) for task in (A, B)}
        # The commit of the last batch and the orders of the next one come together.
        jobs = machine.handle(Received(committed(positions))) if batch else []
        jobs += machine.handle(Received(Process(tuple(orders.values()))))
        while jobs:
            (run,) = (job for job in jobs if isinstance(job, RunJob))
            task = run.job.task
            if run.job.kind is JobKind.SNAPSHOT:
                written.append((task, positions[task].batch))
                jobs = machine.handle(JobDone(run.job, SnapshotWritten(positions[task])))
                continue
            assert run.job.order == orders[task]
            positions = {**positions, task: result_of(orders[task]).position}
            done = machine.handle(JobDone(run.job, result_of(orders[task])))
            assert SendToCoordinator(TaskDone(result_of(orders[task]))) in done
            jobs = [job for job in done if isinstance(job, RunJob)]
    assert written == [(A, 2), (B, 3), (A, 5), (B, 6), (A, 8), (B, 9)]


def test_small_changes_are_in_a_snapshot_after_some_time() -> None:
    """Time is counted in heartbeats; without changes there is nothing to write."""
    machine = a_member(snapshot_heartbeats=8)
    machine.handle(Received(assign(1, {A: START}, {B: START})))
    reached = Position(0, 1, 9)
    machine.handle(Received(committed({B: reached})))
    machine.handle(JobDone(Job(JobKind.RESTORE, B), Restored(B, reached, 9)))
    beats = [[job for job in machine.handle(HeartbeatDue()) if isinstance(job, RunJob)] for _ in range(20)]
    due = [number for number, jobs in enumerate(beats, 1) if jobs]
    assert due == [9], "the first of a task of partition 1 is an eighth late"
    assert beats[8] == [RunJob(Job(JobKind.SNAPSHOT, B))]


def test_a_state_that_was_damaged_on_disk_is_built_anew_and_the_order_carried_out() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    base = process(machine, an_order(A, 0)).position
    machine.handle(Received(committed({A: base})))
    order = an_order(A, 1, base=base)
    (job,) = machine.handle(Received(Process((order,))))
    failure = TaskFailure(A, "client", "checksum mismatch")
    restore = RunJob(Job(JobKind.RESTORE, A, restore=restore_to(base)))
    for _ in range(MAX_LOSSES):
        assert isinstance(job, RunJob)
        assert machine.handle(JobDone(job.job, StateLost(failure))) == [restore]
        (job,) = machine.handle(JobDone(restore.job, Restored(A, base, 9)))
        assert job == RunJob(Job(JobKind.PROCESS, A, order=order))
    assert isinstance(job, RunJob)
    assert SendToCoordinator(TaskFailed(failure)) in machine.handle(JobDone(job.job, StateLost(failure)))


def test_it_says_what_it_does_before_it_does_it() -> None:
    """So that it is known even if it never ends; what an answer ends is not said twice."""
    machine = ClientMachine()
    machine.start()
    machine.handle(Connected(HELLO))
    machine.handle(Received(Welcome("c-1")))
    target = Position(3, 2, 40)
    running, run = machine.handle(Received(assign(4, {A: target, B: target}, {})))
    assert running == SendToCoordinator(Running({1: Work("restore", A)}))
    assert isinstance(run, RunJob)
    _, running, run = machine.handle(JobDone(run.job, Restored(A, target)))
    assert running == SendToCoordinator(Running({2: Work("restore", B)}, (1,)))
    assert isinstance(run, RunJob)
    machine.handle(JobDone(run.job, Restored(B, target)))
    order = an_order(A, 4, 4, target)
    running, run = machine.handle(Received(Process((order,))))
    assert running == SendToCoordinator(Running({3: Work("process", A)}))
    assert isinstance(run, RunJob)
    assert machine.handle(JobDone(run.job, result_of(order))) == [SendToCoordinator(TaskDone(result_of(order)))]
    assert machine.handle(Answered(A)) == []
    # Its next membership begins anew.
    running, run = machine.handle(Received(Process((an_order(B, 4, 4, target),))))
    machine.handle(Disconnected("cut"))
    machine.handle(Connected(HELLO))
    told = machine.handle(Received(Welcome("c-2")))
    assert told == [StartHeartbeats("c-2"), SendToCoordinator(Running({4: Work("process", B)}))]


def test_it_says_that_it_gets_on_with_the_next_heartbeat() -> None:
    """With a restore; and what is processed counts as that until its files are on the disk."""
    machine = a_member()
    (run,) = machine.handle(Received(assign(1, {A: Position(0, 1, 1)}, {})))
    assert isinstance(run, RunJob)
    machine.told.clear()
    machine.handle(HeartbeatDue({("restore", A): (0, "")}))
    assert machine.told == []
    machine.handle(HeartbeatDue({("restore", A): (2, "a part is read"), ("restore", B): (9, "over long ago")}))
    machine.handle(HeartbeatDue({("restore", A): (2, "a part is read")}))
    assert machine.told == [Running({1: Work("restore", A, 2, "a part is read")})]
    machine.told.clear()
    machine.handle(JobDone(run.job, Restored(A, Position(0, 1, 1))))
    order = an_order(A, 1, base=Position(0, 1, 1))
    (run,) = machine.handle(Received(Process((order,))))
    assert isinstance(run, RunJob)
    number, work = max(machine.told[-1].works.items())
    assert work == Work("process", A)
    machine.handle(JobDone(run.job, result_of(order)))
    machine.told.clear()
    # What waits for the disk is still the same work, and worth a word if it does so for longer than a heartbeat.
    for _ in range(2):
        machine.handle(HeartbeatDue({("process", A): (7, "the next batch already")}))
    assert machine.told == [Running({number: Work("process", A, 1, "its files are synced")})]
    machine.handle(Received(assign(2, {A: order.base}, {B: Position(0, 1, 1)})))
    machine.handle(Answered(A))
    machine.handle(HeartbeatDue({("restore", B): (1, "")}))
    assert machine.told[1:] == [Running({number + 1: Work("restore", B, steps)}) for steps in (0, 1)]


def test_several_threads_take_several_tasks() -> None:
    machine = a_member(threads=2)
    machine.handle(Received(assign(1, {A: START, B: START}, {})))
    jobs = machine.handle(Received(Process((an_order(A, 0), an_order(B, 0)))))
    assert [job.job.task for job in jobs if isinstance(job, RunJob)] == [A, B]
    machine.validate_state()


def test_a_batch_that_has_begun_is_answered_though_its_task_is_somebody_elses_now() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    order = an_order(A, 0)
    (job,) = machine.handle(Received(Process((order,))))
    assert isinstance(job, RunJob)
    assert machine.handle(Received(assign(2, {B: START}, {})))[1:] == []
    machine.validate_state()
    result = result_of(order)
    assert machine.handle(JobDone(job.job, result)) == [
        SendToCoordinator(TaskDone(result)),
        RunJob(Job(JobKind.CLOSE, A)),
    ]
    left = TaskClosed(A, (Position(0, 1, 3),))
    assert machine.handle(JobDone(Job(JobKind.CLOSE, A), left)) == [SendToCoordinator(left)]
    assert machine.roles() == {B: "active"}


def test_an_order_that_has_not_begun_is_given_back() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START, B: START}, {})))
    order = an_order(B, 0)
    machine.handle(Received(Process((an_order(A, 0), order))))
    assert machine.handle(Received(assign(2, {A: START}, {}))) == [SendToCoordinator(GivenBack((order,)))]
    machine.validate_state()


def test_a_task_that_comes_back_while_it_is_handed_over_keeps_its_batch() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    order = an_order(A, 0)
    (job,) = machine.handle(Received(Process((order,))))
    assert isinstance(job, RunJob)
    machine.handle(Received(assign(2, {}, {})))
    machine.handle(Received(assign(3, {}, {A: START})))
    machine.validate_state()
    result = result_of(order)
    assert machine.handle(JobDone(job.job, result)) == [SendToCoordinator(TaskDone(result))]
    assert machine.handle(Received(committed({A: result.position}))) == []
    assert machine.roles() == {A: "standby"}


def test_a_client_that_is_asked_to_leave_goes_on_until_it_is_told_to_stop() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    assert machine.handle(LeaveRequested("SIGTERM")) == [SendToCoordinator(Leave("SIGTERM"))]
    assert machine.handle(LeaveRequested("SIGTERM")) == []
    process(machine, an_order(A, 0))
    machine.handle(Received(assign(2, {}, {})))
    machine.handle(JobDone(Job(JobKind.CLOSE, A), TaskClosed(A)))
    end = machine.handle(Received(Stop("SIGTERM")))
    assert end == [SendToCoordinator(Goodbye()), End("SIGTERM", was_told=True)]


def test_a_client_that_is_asked_to_leave_and_cannot_say_so_ends() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    machine.handle(Disconnected("cut"))
    machine.handle(LeaveRequested("SIGTERM"))
    assert machine.handle(Connected(HELLO)) == []
    end = machine.handle(JobDone(Job(JobKind.CLOSE, A), TaskClosed(A)))
    assert end[-1] == End("SIGTERM", was_told=True)
    joining = Machine()
    joining.start()
    joining.handle(Connected(HELLO))
    assert joining.handle(LeaveRequested("SIGTERM")) == []
    assert joining.handle(Received(Welcome("c-1")))[-1] == SendToCoordinator(Leave("SIGTERM"))
    gone = joining.handle(Disconnected("cut"))
    assert gone[-1] == End("SIGTERM", was_told=True)


def test_a_transition_that_cannot_be_is_an_error() -> None:
    task = ClientTask(A)
    task.become(TaskState.CLOSING)
    with pytest.raises(InvalidTransitionException, match="Task 0_0 on a client in state closing cannot take"):
        task.become(TaskState.HANDING_OVER)


def test_a_task_that_comes_back_while_it_is_closed_starts_without_state() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    result = process(machine, an_order(A, 0))
    machine.handle(Received(committed({A: result.position})))
    assert machine.handle(Received(assign(2, {}, {}))) == [RunJob(Job(JobKind.CLOSE, A))]
    machine.handle(Received(assign(3, {A: result.position}, {})))
    told = machine.handle(JobDone(Job(JobKind.CLOSE, A), TaskClosed(A)))
    assert told == [RunJob(Job(JobKind.RESTORE, A, restore=restore_to(result.position)))]


def test_a_failure_is_told_unless_nobody_waits_for_it() -> None:
    failure = TaskFailure(A, "processor", "it failed")
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    (job,) = machine.handle(Received(Process((an_order(A, 0),))))
    assert isinstance(job, RunJob)
    assert SendToCoordinator(TaskFailed(failure)) in machine.handle(JobDone(job.job, failure))
    other = a_member()
    other.handle(Received(assign(1, {A: START}, {})))
    other.handle(Received(Process((an_order(A, 0),))))
    other.handle(Disconnected("cut"))
    assert other.handle(JobDone(job.job, failure)) == []


def test_it_ends_with_snapshots_when_it_is_told_to_stop() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    result = process(machine, an_order(A, 0))
    machine.handle(Received(committed({A: result.position})))
    assert machine.handle(Received(Stop("done"))) == [RunJob(Job(JobKind.SNAPSHOT, A))]
    assert machine.handle(JobDone(Job(JobKind.SNAPSHOT, A), SnapshotWritten(START))) == [RunJob(Job(JobKind.CLOSE, A))]
    end = machine.handle(JobDone(Job(JobKind.CLOSE, A), TaskClosed(A)))
    assert end == [SendToCoordinator(Goodbye()), End("done", was_told=True)]
    assert machine.phase is ClientPhase.ENDED
    assert machine.handle(HeartbeatDue()) == []


def test_refused_for_a_lost_lease_it_joins_again_and_for_a_taken_name_it_ends() -> None:
    machine = a_member()
    machine.handle(Received(assign(1, {A: START}, {})))
    assert machine.handle(Received(Refused("not heard of", may_rejoin=True))) == [Connect()]
    assert (machine.phase, machine.roles(), machine.member_id) == (ClientPhase.CONNECTING, {}, "")
    taken = a_member()
    assert taken.handle(Received(Refused("taken", may_rejoin=False)))[-1] == End("taken", was_told=False)


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([Received(Welcome("again"))], "cannot take Received"),
        ([Connected(HELLO)], "cannot take Connected"),
        ([Received(Process((an_order(A, 0),)))], "an order for 0_0, which is not active here"),
        ([JobDone(Job(JobKind.CLOSE, A), TaskClosed(A))], "the end of a close job of 0_0, which was not running"),
    ],
)
def test_what_cannot_happen_is_an_error_that_tells_the_story(events: list[ClientEvent], what: str) -> None:
    machine = a_member()
    with pytest.raises(InvalidTransitionException) as caught:
        deque(map(machine.handle, events))
    assert what in str(caught.value)
    assert "joining: Received(message=Welcome(member_id='c-1'" in str(caught.value)
    assert caught.value.state == "member"


@pytest.mark.parametrize("is_written", [True, False])
def test_a_snapshot_that_could_not_be_written_is_not_taken_for_one(is_written: bool) -> None:
    """It is tried again when the next is due, not at once, and at the end if the last one failed."""
    machine = a_member(snapshot_bytes=200)
    machine.handle(Received(assign(1, {A: START}, {})))
    base, tried = START, []
    for batch in range(6):
        result = process(machine, an_order(A, batch, base=base))
        base = result.position
        for instruction in machine.handle(Received(committed({A: base}))):
            assert instruction == RunJob(Job(JobKind.SNAPSHOT, A))
            tried.append(batch)
            outcome = SnapshotWritten(START) if is_written else SnapshotFailed("full")
            told = [] if is_written else [SendToCoordinator(SnapshotMissed(A, "full"))]
            assert machine.handle(JobDone(Job(JobKind.SNAPSHOT, A), outcome)) == told
        machine.validate_state()
    assert tried == [1, 3, 5]
    last = Job(JobKind.CLOSE if is_written else JobKind.SNAPSHOT, A)
    assert machine.handle(Received(Stop("done"))) == [RunJob(last)]
    if not is_written:
        assert machine.handle(JobDone(last, SnapshotFailed("full"))) == [RunJob(Job(JobKind.CLOSE, A))]


def test_however_often_snapshots_are_wanted_one_that_failed_is_not_tried_at_once() -> None:
    """It was tried hundreds of times a second, with a warning each time, for as long as the disk was full."""
    machine = a_member(snapshot_bytes=1)
    machine.handle(Received(assign(1, {A: START}, {})))
    base = process(machine, an_order(A, 0)).position
    job = Job(JobKind.SNAPSHOT, A)
    assert machine.handle(Received(committed({A: base}))) == [RunJob(job)]
    assert machine.handle(JobDone(job, SnapshotFailed("full"))) == [SendToCoordinator(SnapshotMissed(A, "full"))]
    base = process(machine, an_order(A, 1, base=base)).position
    assert machine.handle(Received(committed({A: base}))) == [RunJob(job)]


def test_what_pyarrow_loads_at_first_use_is_there_before_a_client_joins() -> None:
    """It took a second of the first batch, which counted as the processor's."""
    pytest.importorskip("pandas")
    program = (
        "import sys\nfrom task_assignor.runtime.shells import client_shell\n"
        "assert 'pandas' not in sys.modules\n"
        "client_shell.check_kind = lambda *_: None\n"
        "client_shell.TasksHere = lambda *_: sys.exit('pandas' not in sys.modules)\n"
        "from types import SimpleNamespace as Some\n"
        "client_shell.run_client(Some(topology=Some(sub_topologies=())), '')\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


WRITTEN = SnapshotWritten(Position(0, 1, 9), {"s": SavedStore("memory", (Part("p", Seal(1, 1, "0")),))})


def _snapshot(position: Position) -> TaskSnapshot:
    at = (position.batch, position.generation, position.changelog_offset, position.stream_time)
    return TaskSnapshot(A, *at, WRITTEN.stores, {"p": f"snapshots/s/0/{position.batch}-p"})


def _share(machine: Machine, batch: int, base: Position) -> tuple[Position, Share]:
    """Process a batch and write a snapshot of it."""
    position = process(machine, an_order(A, batch, base=base)).position
    assert machine.handle(Received(committed({A: position}))) == [RunJob(Job(JobKind.SNAPSHOT, A))]
    written = msgspec.structs.replace(WRITTEN, position=position)
    (share,) = machine.handle(JobDone(Job(JobKind.SNAPSHOT, A), written))
    assert isinstance(share, Share)
    assert share.written == written
    return position, share


@pytest.mark.parametrize("fails", [False, True])
def test_a_snapshot_of_an_active_task_is_shared_beside_its_batches(fails: bool) -> None:
    """Until that is done no other one is written, since the older one's files could go; what came of it is told."""
    machine = a_member(snapshot_bytes=100)
    machine.handle(Received(assign(1, {A: START}, {})))
    position, share = _share(machine, 0, START)
    assert share.newest is None
    at = process(machine, an_order(A, 1, base=position)).position
    assert machine.handle(Received(committed({A: at}))) == [], "one is being shared"
    outcome = SnapshotFailed("full") if fails else _snapshot(position)
    message = SnapshotMissed(A, "full") if fails else SnapshotTaken(_snapshot(position))
    assert machine.handle(ShareDone(A, outcome))[0] == SendToCoordinator(message)
    if not fails:
        machine.handle(JobDone(Job(JobKind.SNAPSHOT, A), SnapshotFailed("full")))
        machine.handle(Received(Committed({}, {A: _snapshot(position)})))
        assert _share(machine, 2, at)[1].newest == _snapshot(position)


def test_a_snapshot_of_a_task_that_left_meanwhile_is_told_to_nobody() -> None:
    machine = a_member(snapshot_bytes=100)
    machine.handle(Received(assign(1, {A: START}, {})))
    position, _ = _share(machine, 0, START)
    machine.handle(Received(Assign(2, {}, {})))
    assert machine.handle(ShareDone(A, _snapshot(position))) == []


def test_a_restore_that_was_overtaken_by_a_newer_snapshot_is_tried_again_with_it() -> None:
    """The files that it read are deleted then. If it is not known to be overtaken, the coordinator decides."""
    first, second = Position(0, 1, 9), Position(1, 1, 18)
    recovery = recovery_to(first, second)
    machine = a_member()
    (run,) = machine.handle(Received(Assign(1, {A: second}, {}, {A: recovery})))
    assert run == RunJob(Job(JobKind.RESTORE, A, restore=Restore(START, recovery, second)))
    failure = TaskFailure(A, "log", "it is missing")
    told = machine.handle(JobDone(run.job, failure))
    assert told == [SendToCoordinator(TaskFailed(msgspec.structs.replace(failure, floor=-1)))], (
        "not tried again and again"
    )
    assert machine.handle(Received(Committed({}, {A: _snapshot(first)}))) == []
    (run,) = machine.handle(Received(Committed({}, {A: _snapshot(second)})))
    recovery.add_snapshot(_snapshot(first))
    third = Position(2, 1, 27)
    for snapshot in (_snapshot(second), _snapshot(third)):
        recovery.add_snapshot(snapshot)
        if snapshot.batch == 1:
            assert run == RunJob(Job(JobKind.RESTORE, A, restore=Restore(START, recovery, second)))
            recovery.add(Change(third, CHANGELOGS))
            machine.handle(Received(committed({A: third})))
            machine.handle(Received(Committed({}, {A: _snapshot(third)})))
    assert isinstance(run, RunJob)
    (again,) = machine.handle(JobDone(run.job, failure))
    assert again == RunJob(Job(JobKind.RESTORE, A, restore=Restore(START, recovery, third))), "and nobody is told"
