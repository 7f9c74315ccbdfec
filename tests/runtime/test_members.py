"""What the coordinator knows of a member, and what of it the assignor is told."""

from __future__ import annotations

from task_assignor.group import ClientAssignment
from task_assignor.runtime.machines.coordinator.lifetime import Lifetime
from task_assignor.runtime.machines.coordinator.members import Member, Members
from task_assignor.runtime.machines.coordinator.orders import Orders
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.rebalances import Rebalances
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase, Tick
from task_assignor.runtime.machines.events import TaskStalled
from task_assignor.runtime.machines.protocol import START, Heartbeat, Hello, Position, Restored, TaskResult, Work
from task_assignor.runtime.machines.records import ClientTasks, FileRef, Seal, TaskCommit, changelog_path
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.sdk import ProcessId, TaskId
from tests.runtime.simulation import World

A, B = TaskId(0, 0), TaskId(0, 1)


def _progress(batches: int) -> Progress:
    progress = Progress({A: ("t",), B: ("t",)}, {"t": [1_000, 1_000]})
    for task in (A, B):
        for batch in range(batches):
            changes = FileRef(changelog_path("s", task, batch, 1), Seal(1, 100, "0"))
            progress.advance(
                TaskCommit(task, batch, "c", "p", "m", "a", 1, {"t": (batch, batch + 1)}, {}, {"s": changes}, batch + 1)
            )
    return progress


def _member() -> Member:
    process_id = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    hello = Hello("c", str(process_id), "run", 1, None, {}, None, "pid 1", "here", 1, {})
    member = Member("c-1", 1, hello, 0, process_id)
    member.take_tasks(ClientTasks(active=(A,), standby=(B,)))
    return member


def test_the_assignor_is_told_how_far_a_standby_is_from_its_first_assignment_on() -> None:
    """It was ready when it was new and empty; that it said so must not hide what it has since."""
    progress, member = _progress(10), _member()
    assert member.for_leader(progress).offset_sums == {A: 0}, "it runs A, but has not restored it"
    assert member.take_ready(Restored(A, START), "active").origin == "new"
    member.take_ready(Restored(B, START), "standby")
    list(member.take_heartbeat(Heartbeat({B: Position(6, 1, 7)}, 0, 0), progress))
    known = member.for_leader(progress)
    assert known.previous_active == {A}
    assert known.offset_sums == {B: 7}


def test_a_standby_that_becomes_active_is_behind_until_it_says_that_it_is_ready() -> None:
    progress, member = _progress(10), _member()
    assert member.take_ready(Restored(B, Position(6, 1, 7)), "standby").origin == "memory"
    member.take_tasks(ClientTasks(active=(A, B)))
    assert member.for_leader(progress).offset_sums == {A: 0, B: 7}
    member.take_ready(Restored(B, Position(9, 1, 10)), "active")
    assert member.for_leader(progress).offset_sums == {A: 0}


def test_an_order_says_since_when_its_task_has_been_nowhere_else() -> None:
    """Who has it goes on from what it did last itself, but not if somebody else may have done more meanwhile."""
    progress, members, orders = _progress(1), Members("run", 0), Orders()
    for number in (1, 2):
        process = f"00000000-0000-0000-0000-00000000000{number}"
        members.add(number, Hello(f"c{number}", process, "run", 1, None, {}, None, "pid 1", "here", 1, {}), progress, 0)
    first, second = members

    def since(generation: int, owner: Member, standby: Member) -> int:
        tasks = {
            owner.process_id: ClientAssignment((A,), (), {}),
            standby.process_id: ClientAssignment((B,), (A,), {}),
        }
        members.assign(tasks, generation, progress)
        order = orders.give(owner, progress, A, generation, ({"t": (1, 2)}, frozenset()), 0)
        orders.give_back(owner, [order])
        return order.since

    assert [since(1, first, second), since(2, first, second)] == [1, 1]
    assert [since(3, second, first), since(4, second, first)] == [3, 3]
    assert since(5, first, second) == 5


def test_where_all_clients_are_stopped_it_is_said_why_they_have_gone() -> None:
    """They were lost, and none came back: nobody knew why, nor which setting said for how long to wait."""
    members = Members("run", 0)
    hello = Hello("c", "00000000-0000-0000-0000-000000000001", "run", 1, None, {}, None, "pid 1", "here", 1, {})
    members.remove(members.add(1, hello, _progress(0), 0), "no heartbeat for 10 ms")
    assert str(members.nobody_came(60_001, None)).startswith(
        "All clients have gone (the last one: c, no heartbeat for 10 ms), and none came in 60 s (startup_timeout_ms). Maybe see"
    )
    assert str(members.nobody_came(60_001, 2)).startswith(
        "Only 0 of 2 clients came in 60 s (startup_timeout_ms; there: none any more; the last one: c, no heartbeat for 10 ms)."
    )


def test_clients_that_come_and_go_before_a_run_begins_do_not_put_off_its_end() -> None:
    """One that joined and died again and again was waited for without an end, and so was the other one."""
    members = Members("run", 0)
    waits, runs = (Lifetime(RuntimeOptions(startup_timeout_ms=60_000), 2, 0) for _ in range(2))
    runs.begin(0)
    assert [lifetime.lose_last(50_000) for lifetime in (waits, runs)] == [10_000, 60_000]
    assert waits.why_nobody(members, 60_000) is None
    assert str(waits.why_nobody(members, 60_001)).startswith("Only 0 of 2 clients came in 60 s")
    assert runs.why_nobody(members, 110_000) is None


OPTIONS = RuntimeOptions(max_poll_interval_ms=1_000, session_timeout_ms=100_000)


def _why(member: Member, now_ms: int) -> str:
    return member.why_hanging(OPTIONS, {A: "Join", B: "Join"}, now_ms)


def test_a_restore_may_take_long_as_long_as_it_gets_on() -> None:
    member = _member()
    for steps in range(10):
        member.last_told_ms = now_ms = steps * 900
        member.take_running({1: Work("restore", B, steps, f"file {steps}")}, (), now_ms)
        assert not _why(member, now_ms + 999)
    member.last_told_ms = 9_000
    member.take_running({1: Work("restore", B, 9, "file 9")}, (), 9_000)
    assert member.deadlines_ms(OPTIONS)[1] == 9_100
    assert not _why(member, 9_099)
    assert member.hung(OPTIONS, 9_100) == Work("restore", B, 9, "file 9")
    assert _why(member, 9_100) == (
        "the restore of task 0_1 has not got on for 1000 ms: file 9, which is the limit max.poll.interval.ms"
    )


def test_what_hangs_is_named_by_what_it_does() -> None:
    """A client that says nothing more may run a processor's code by now, which holds Python's lock."""
    told = {
        Work("process", A): "the processor Join has not returned from task 0_0 for 1000 ms",
        Work("close", A): "the processor Join has not returned from task 0_0 for 1000 ms",
        Work("process", A, 1, "its sources are read"): (
            "the batch of task 0_0 has not got on for 1000 ms: its sources are read"
        ),
        Work("snapshot", A): "the snapshot of task 0_0 has not got on for 1000 ms",
        Work("share", A, 2, "part x is read"): (
            "the snapshot of task 0_0 into the folder of the run has not got on for 1000 ms: part x is read"
        ),
    }
    for work, what in told.items():
        member = _member()
        member.take_running({1: work}, (), 0)
        member.last_told_ms = 900
        assert _why(member, 1_000) == f"{what}, which is the limit max.poll.interval.ms"
    mute = _member()
    mute.take_running({1: Work("process", A, 1, "its sources are read")}, (), 0)
    assert _why(mute, 1_000).startswith("the processor Join has not returned from task 0_0 for 1000 ms")


def test_what_does_not_get_on_is_told_long_before_the_limit_and_then_less_and_less_often() -> None:
    """A disk that stood still for 40 s was silence: nobody knew why no batch came."""
    member, processors, options = _member(), {A: "Join"}, RuntimeOptions()
    told = []
    for now_ms in range(0, 100_001, 500):
        member.last_told_ms = now_ms
        # It says so again and again; that alone is no step.
        is_synced = now_ms >= 2_000
        member.take_running(
            {1: Work("process", A, int(is_synced), "its files are synced" if is_synced else "")}, (), now_ms
        )
        told += list(member.stalled(processors, now_ms))
        assert min(member.deadlines_ms(options)[1:]) > now_ms
    what = "the batch of task 0_0 has not got on for {} ms: its files are synced"
    assert told == [TaskStalled("c", A, what.format(ms), ms) for ms in (10_000, 20_000, 40_000, 80_000)]
    member.take_running({1: Work("process", A, 2, "its sources are read")}, (), 100_000)
    assert not list(member.stalled(processors, 109_999)), "it has got on"
    assert [event.stalled_ms for event in member.stalled(processors, 110_000)] == [10_000]


def test_an_answer_ends_the_job_and_not_the_snapshot_that_is_shared() -> None:
    member = _member()
    member.take_running({1: Work("process", A), 2: Work("share", A), 3: Work("restore", B)}, (), 0)
    member.take_answer(A)
    assert sorted(member.running) == [2, 3]
    member.take_running({4: Work("snapshot", A)}, (3,), 0)
    assert sorted(member.running) == [2, 4]


def test_a_task_reads_on_where_the_run_goes_on_and_no_further_than_a_batch() -> None:
    progress, member = _progress(1), _member()
    for at_most, reads, is_right in ((0, 10, True), (0, 11, False), (50, 51, True), (50, 52, False)):
        orders = Orders(at_most)
        order = orders.give(member, progress, A, 1, ({"t": (1, 10)}, frozenset()), 0)
        assert order.at_most == at_most
        result = TaskResult(A, 1, 1, {"t": (1, reads)}, {}, {}, Position(1, 1, 2))
        assert (not orders.what_is_wrong_with(result)) == is_right
    assert Orders(50).give(member, progress, B, 1, (progress.no_rows(B), frozenset()), 0).at_most == 0
    table = Progress({A: ("t",)}, {"t": [1_000]}, ("t",))
    assert Orders(50).give(member, table, A, 1, ({"t": (0, 10)}, frozenset()), 0).at_most == 0


def test_a_task_that_only_waited_for_its_turn_is_not_blamed_for_the_loss_of_its_client() -> None:
    progress, orders = _progress(1), Orders()
    for _ in range(2):
        member = _member()
        for task in (A, B):
            orders.give(member, progress, task, 1, progress.next_ranges(task, 10), 0)
        member.take_running({1: Work("restore", A), 2: Work("process", B)}, (), 0)
        assert not orders.poison(2)
        assert orders.lose(member, None) == [A, B]
    assert orders.poison(2) == (
        "Task 0_1, batch 1 (topic t, partition 1, offsets 1 to 10) was lost 2 times together with its client"
    )


def test_while_the_coordinator_stands_still_nobody_is_silent() -> None:
    """At Ctrl-Z and `fg`, or where code of the driver's held Python's lock for long, all clients were lost: none could be heard."""
    world = World(0, clients=2, faults=0, rows=(400,), restart_coordinator=False)
    coordinator = world.coordinator
    while len(coordinator.members) < 2 or coordinator.phase is not CoordinatorPhase.RUNNING:
        world.step()
    limit_ms = world.options.session_timeout_ms
    coordinator.handle(Tick(world.now_ms + 50 * limit_ms, 50 * limit_ms))
    assert len(coordinator.members) == 2
    coordinator.handle(Tick(world.now_ms + 52 * limit_ms))
    assert not coordinator.members


def test_while_the_coordinator_stands_still_nobody_is_waited_for() -> None:
    world = World(0, clients=2, faults=0, rows=(400,), restart_coordinator=False)
    limit_ms = world.options.startup_timeout_ms
    assert not world.coordinator.handle(Tick(world.now_ms + 2 * limit_ms, 2 * limit_ms))
    assert world.coordinator.handle(Tick(world.now_ms + 4 * limit_ms))


def test_an_assignor_that_is_to_be_asked_again_is_not_overlooked_before_the_clock_says_so() -> None:
    """Whatever came between its time and the next tick ended runs with `validate_state`."""
    rebalances = Rebalances("Hesitating", RuntimeOptions(assignment_retry_ms=50))
    rebalances.begin(1)
    seen = [rebalances.is_overlooked]
    rebalances.ask(Members("run", 1), _progress(0), 0)
    assert rebalances.put_off("not now", 0) is None
    rebalances.close()
    seen.append(rebalances.is_overlooked)
    assert seen == [True, False]
    assert [rebalances.are_due(now_ms) for now_ms in (49, 50)] == [False, True]
    assert rebalances.deadlines_ms() == [50]
