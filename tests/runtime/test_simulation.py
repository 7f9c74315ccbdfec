"""Coordinator and clients together under random faults, without sockets, files or time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.group import AssignmentRejectedException
from task_assignor.runtime.machines.client.task import Share, SnapshotWritten
from task_assignor.runtime.machines.coordinator.members import GRACE_MS, Member
from task_assignor.runtime.machines.coordinator.values import (
    CoordinatorPhase,
    FromClient,
    LeaveWanted,
    NothingWaits,
    Tick,
)
from task_assignor.runtime.machines.events import (
    ClientJoined,
    ClientLeft,
    ClientLost,
    Rebalanced,
    ResultRefused,
    RunFinished,
    SnapshotRefused,
)
from task_assignor.runtime.machines.protocol import SnapshotTaken, TaskFailed, TaskFailure
from task_assignor.runtime.machines.records import Part, SavedStore
from task_assignor.runtime.storage import Seal
from task_assignor.sdk import TaskId, TaskInfo
from tests.budget import examples
from tests.runtime.assignors import (
    FollowingUpAssignor,
    HastyAssignor,
    HesitatingAssignor,
    InexactAssignor,
    ScatteringAssignor,
    StubbornAssignor,
)
from tests.runtime.simulate import simulate
from tests.runtime.simulated_checks import check_everything_is_done
from tests.runtime.simulated_faults import MISHAPS
from tests.runtime.simulated_leader import WhimsicalLeader
from tests.runtime.simulation import World


def _finish(world: World) -> None:
    world.run()
    assert [finished.error for finished in world.finished] == [None]
    check_everything_is_done(world)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 2), st.integers(1, 2))
@settings(max_examples=examples(12))
def test_nothing_is_lost_or_done_twice_whatever_fails(seed: int, clients: int, standbys: int, threads: int) -> None:
    """Kills, pauses beyond the lease, cut connections, a restarted coordinator: every commit is right, all rows are in."""
    world = World(seed, clients=clients, standbys=standbys, faults=8, threads=threads, leader=_leader)
    _finish(world)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 2), st.integers(1, 2), st.booleans())
@settings(max_examples=examples(8))
def test_clients_come_and_go_while_others_and_disks_fail(
    seed: int, clients: int, standbys: int, threads: int, scatters: bool
) -> None:
    """Scale-out, scale-in, SIGTERM, power failures, full disks, commits that nobody hears of: no result changes."""
    world = World(
        seed,
        clients=clients,
        standbys=standbys,
        faults=5,
        threads=threads,
        changes=5,
        storage_faults=3,
        assignor=ScatteringAssignor if scatters else None,
    )
    _finish(world)


@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from((0.5, 1.0)))
@settings(max_examples=examples(8))
@pytest.mark.thorough
def test_clients_whose_tasks_have_places_of_their_own_are_members_like_others(
    seed: int, clients: int, places: float
) -> None:
    """Fewer places than tasks, and tasks that read what others write: somebody has to make room."""
    _finish(World(seed, clients=clients, faults=5, changes=3, storage_faults=2, places=places))


@pytest.mark.thorough
def test_clients_that_leave_as_they_should_cost_nothing() -> None:
    """Their batches are finished and committed: none is done twice, no order comes to nothing, nobody is lost."""
    left, leaving = 0, set[str]()
    for seed in range(12):
        world = World(seed, clients=3, faults=0, changes=4)
        _finish(world)
        assert not [event for event in world.events if isinstance(event, (ClientLost, ResultRefused))]
        tries = len(world.work.files)
        assert tries == sum(len(record.tasks) for record in world.commits)
        told = [event for event in world.events if isinstance(event, ClientLeft)]
        assert {event.reason for event in told} <= {"scale-in", "SIGTERM"}
        left += len(told)
        for event in world.events:
            if isinstance(event, Rebalanced) and not event.kept:
                assert not any(event.assignment[client].active for client in event.leaving)
                leaving.update(event.leaving)
    assert left > 5
    assert leaving


def test_a_run_that_all_clients_have_left_tells_how_long_it_waits_for_others() -> None:
    """Nothing was said for a minute, until it failed."""
    alone = 0
    for seed in range(220, 500):
        world, present = World(seed, clients=1, faults=0, changes=4), set()
        _finish(world)
        for event in world.events:
            if isinstance(event, ClientJoined):
                present.add(event.member_id)
            elif isinstance(event, ClientLeft):
                present.discard(event.member_id)
                assert event.waits_ms == (0 if present else world.options.startup_timeout_ms)
                alone += not present
        if alone:
            # It happens in one of sixty.
            break
    assert alone


@pytest.mark.thorough
def test_a_run_that_is_stopped_before_all_have_heard_what_time_it_is_is_not_over() -> None:
    """All was read, so it was told as over: the next run alone would have given the windows that the time closes."""
    stopped = 0
    for seed in range(200):
        world = World(seed, clients=1, faults=0, restart_coordinator=False, partitions=(1, 1, 2), rows=(5, 10, 30))
        progress = world.coordinator.progress
        while progress.remaining_rows() > 5:
            world.step()
        world.stop()
        while world.coordinator.phase is not CoordinatorPhase.ENDED:
            world.step()
        is_over = any(isinstance(event, RunFinished) for event in world.events)
        assert is_over == progress.is_complete
        was_left = progress.remaining_rows()
        _finish(world)
        if not (is_over or was_left):
            # It happens in one of forty.
            stopped += 1
            break
    assert stopped


@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_without_faults_nobody_is_lost_and_nothing_is_restored(seed: int) -> None:
    world = World(seed, faults=0)
    _finish(world)
    assert not [event for event in world.events if isinstance(event, ClientLost)]
    assert len(world.rebalances) == 1


@pytest.mark.parametrize(("clients", "expected"), [(1, "1 client is there"), (2, "2 clients are there")])
def test_the_first_assignment_says_how_many_clients_are_there(clients: int, expected: str) -> None:
    world = World(0, clients=clients, faults=0)
    _finish(world)
    assert [event.reason for event in world.events if isinstance(event, Rebalanced)] == [expected]


@given(st.integers(0, 2**32), st.integers(2, 4))
@settings(max_examples=examples(8))
@pytest.mark.thorough
def test_an_assignor_that_moves_everything_every_time_changes_no_result(seed: int, clients: int) -> None:
    """Tasks leave living clients in the middle of a batch, which these finish."""
    _finish(World(seed, clients=clients, faults=8, assignor=ScatteringAssignor))


@given(st.integers(0, 2**32))
@settings(max_examples=examples(10))
@pytest.mark.thorough
def test_an_assignor_that_asks_to_be_asked_again_is_asked_again(seed: int) -> None:
    calm, troubled = (World(seed, faults=faults, assignor=HesitatingAssignor) for faults in (0, 5))
    for world in (calm, troubled):
        _finish(world)
        kept = {event.kept for event in world.events if isinstance(event, Rebalanced) and event.kept}
        # With faults the first clients may be lost before it is asked, and the time suits it then.
        assert kept == {"not now"} if world is calm else kept <= {"not now"}


@given(st.integers(0, 2**32))
@settings(max_examples=examples(20))
@pytest.mark.thorough
def test_whatever_ends_a_run_is_told_and_the_next_one_goes_on(seed: int) -> None:
    """Processors that raise, damaged stores and files, full disks, assignors that fail or hang, interrupts: named, resumed."""
    simulate(seed)


def test_everything_that_can_go_wrong_does() -> None:
    happened: Counter[str] = Counter()
    for seed in range(35):
        world = World(seed, clients=3, faults=4, mishaps=8, storage_faults=2, partitions=(1, 1, 1), leader=_leader)
        _finish(world)
        happened.update(world.faults_that.happened)
    assert {*MISHAPS, "restart", "power", "full", "commit"} - happened.keys() == set()


def _leader(chance: random.Random, tasks: Mapping[TaskId, TaskInfo]) -> WhimsicalLeader:
    return WhimsicalLeader(chance, tasks, 1, moves=0.1, warms_up=True)


@pytest.mark.thorough
def test_restores_are_overtaken_by_snapshots_and_begin_again() -> None:
    """What they need is deleted while they run. That ends no run: newer snapshots are there, or on their way."""
    overtaken = 0
    for seed in range(40):
        world = World(seed, clients=3, faults=8, partitions=(1, 1, 1), rows=(200,), slow_restores=0.9, leader=_leader)
        _finish(world)
        overtaken += world.work.overtaken
        if overtaken > 1:
            break
    assert overtaken > 1


def _with_snapshots() -> tuple[World, TaskId, Member]:
    """In the middle of a run without faults: a task with two snapshots that count and two batches after them, and its owner."""
    world = World(0, faults=0, partitions=(1, 1, 1), rows=(200,))
    while True:
        world.step()
        for task in world.tasks:
            progress, owner = world.coordinator.progress, world.coordinator.members.owner_of(task)
            recovery = progress.recovery(task)
            if len(recovery.snapshots) == 2 <= len(recovery.unsaved) and owner and not world.coordinator.has_accepted:
                return world, task, owner


@pytest.mark.parametrize("is_replaced", [True, False])
def test_what_a_restore_misses_ends_the_run_unless_a_newer_snapshot_has_taken_its_place(is_replaced: bool) -> None:
    """Who restores may not have heard of that yet."""
    world, task, owner = _with_snapshots()
    floor = world.coordinator.progress.recovery(task).floor.batch - is_replaced
    failure = TaskFailure(task, "log", "a file is missing", floor=floor)
    world.tell(FromClient(owner.connection, TaskFailed(failure), world.now_ms))
    assert [str(finished.error) for finished in world.finished] == (
        [] if is_replaced else [f"a file is missing (on client {owner.name})"]
    )


def test_snapshots_of_a_task_that_follow_each_other_are_all_committed() -> None:
    world, task, owner = _with_snapshots()
    recovery = world.coordinator.progress.recovery(task)
    assert recovery.newest is not None
    (store,) = recovery.newest.stores
    positions = [change.position for change in recovery.unsaved[:2]]
    for position in positions:
        part = Part(f"new-{position.batch}", Seal(0, 1, ""))
        lineage = [*map(list, world.committed[task][: position.batch + 1])]
        written = SnapshotWritten(position, {store: SavedStore("memory", (part,), {"lineage": lineage})})
        snapshot = world.work.shared.put(Share(task, written, recovery.newest))
        world.tell(FromClient(owner.connection, SnapshotTaken(snapshot), world.now_ms))
    world.tell(NothingWaits(world.now_ms))
    assert world.snapshots[task][-2:] == [position.batch for position in positions]
    _finish(world)


def test_snapshots_that_are_not_what_they_are_said_to_be_are_refused() -> None:
    """Of another try, of a later batch, of files that others may have deleted; what is committed is checked."""
    reasons = ""
    for seed in range(4):
        world = World(seed, clients=2, faults=0, partitions=(1, 1, 1), rows=(60,))
        while world.coordinator.phase is not CoordinatorPhase.ENDED:
            for client in world.clients:
                client.garbles_snapshots = world.random.random() < 0.5
            world.step()
        _finish(world)
        reasons += "; ".join(event.reason for event in world.events if isinstance(event, SnapshotRefused))
    assert "was not committed" in reasons
    assert "is neither new nor of a snapshot that counts" in reasons


@pytest.fixture(scope="module")
def troubled() -> list[World]:
    """Runs to their right ends in which much fails and tasks move all the time."""
    worlds = [World(seed, clients=4, faults=8, assignor=ScatteringAssignor) for seed in range(16, 32)]
    for world in worlds:
        _finish(world)
    return worlds


@pytest.mark.xdist_group("troubled")  # they run once for all of these tests
class TestTheSimulationReachesWhatItIsThereFor:
    @pytest.mark.thorough
    def test_late_answers_of_former_members_are_refused(self, troubled: list[World]) -> None:
        refused = {event.reason for world in troubled for event in world.events if isinstance(event, ResultRefused)}
        assert refused == {"the sender is no member any more"}

    def test_files_of_outputs_are_merged_and_those_that_nothing_names_are_deleted(self, troubled: list[World]) -> None:
        """What readers see is checked at every checkpoint."""
        deleted = 0
        for world in troubled:
            for task, batch, generation in world.work.files:
                path = f"output/out-{task.subtopology}/{task.partition}/{batch:012d}-{generation:08d}.arrow"
                is_orphan = (batch, generation) not in world.committed[task]
                deleted += is_orphan and path not in world.storage.objects
        assert sum(world.storage.counts["merged"] for world in troubled) > 30
        assert deleted > 10

    def test_snapshots_are_shared_and_what_led_to_them_is_deleted(self, troubled: list[World]) -> None:
        """Also such as are refused, since the task has gone to somebody else meanwhile."""
        deleted = sum(world.storage.counts["changelog"] + world.storage.counts["snapshots"] for world in troubled)
        committed = sum(len(record.snapshots) for world in troubled for record in world.commits)
        refused = {event.reason for world in troubled for event in world.events if isinstance(event, SnapshotRefused)}
        assert deleted > 20
        assert committed > 50
        assert {"no answer", "the disk is full"} <= refused
        assert any(reason.startswith("there is one of batch") for reason in refused)

    def test_clients_that_hang_are_ended(self, troubled: list[World]) -> None:
        """Also those that hear nothing: who does not return is told apart from who is only slow, and is not waited for."""
        reasons = {event.reason for world in troubled for event in world.events if isinstance(event, ClientLost)}
        told = {reason for reason in reasons if "has not returned from task" in reason}
        assert sum(world.ended for world in troubled) > 5
        assert any("for 3000 ms, which is the limit max.poll.interval.ms" in reason for reason in told)
        assert "its process has ended" in reasons


def test_batches_of_tasks_that_move_are_finished_where_they_were_begun() -> None:
    """A task that leaves a living client in the middle of a batch goes on after that batch."""
    handed_over = 0
    for seed in range(8):
        world = World(seed, clients=3, faults=0, changes=4, assignor=ScatteringAssignor)
        _finish(world)
        assert len(world.work.files) == sum(len(record.tasks) for record in world.commits)
        for record in world.commits:
            handed_over += sum(commit.generation < record.generation for commit in record.tasks.values())
    assert handed_over > 10


def test_goals_that_were_perhaps_not_reached_are_told() -> None:
    for assignor, told in ((InexactAssignor, ("A_GOAL", "B_GOAL")), (ScatteringAssignor, ())):
        world = World(0, faults=0, assignor=assignor)
        _finish(world)
        assert {event.inexact for event in world.events if isinstance(event, Rebalanced)} == {told}


def _until_jobs_hang(world: World) -> None:
    while not any(client.hanging for client in world.clients):
        for client in world.clients:
            client.will_hang = True
        world.step()


def test_what_hangs_is_waited_for_as_long_as_is_said_and_no_longer() -> None:
    """A processor when the run is to end, then its client; and an assignor. What else is late is checked with every step."""
    world = World(0, clients=1, faults=0, idle_ms=0, stop_timeout_ms=300)
    _until_jobs_hang(world)
    world.stop()
    until_ms = world.now_ms + 300
    while world.coordinator.phase is CoordinatorPhase.RUNNING:
        world.step()
    assert world.now_ms == until_ms
    while world.coordinator.phase is not CoordinatorPhase.ENDED:
        world.step()
    # Perhaps it has begun just now.
    assert world.now_ms <= until_ms + GRACE_MS
    world = World(0, faults=0)
    while not world.questions:
        world.step()
    world.hangs.update(map(id, world.questions))
    asked_ms = world.now_ms
    while world.coordinator.phase is CoordinatorPhase.RUNNING:
        world.step()
    assert world.now_ms == asked_ms + 5_000
    assert "has not decided in 5000 ms" in str(world.finished[0].error)


def test_what_comes_from_a_client_that_was_not_waited_for_any_longer_is_refused() -> None:
    """It was to leave, and took too long over its batch, which somebody else has done by then."""
    world = World(0, clients=2, faults=0, rows=(200,), stop_timeout_ms=300)
    world.is_quiet = False
    while not (hanging := [client for client in world.clients if client.hanging]):
        for client in world.clients:
            client.will_hang = world.coordinator.phase is CoordinatorPhase.RUNNING
        world.step()
    for client in world.clients:
        client.will_hang = False
    (client,), (job,) = hanging, hanging[0].hanging
    member = world.coordinator.members.named(client.spec.name)
    assert member is not None
    world.leaving.add(member.name)
    world.tell(LeaveWanted(member.name, "scale-in", world.now_ms))
    while member.stops_since_ms is None:
        world.step()
    # It has not heard of that yet.
    world._finish_job(client, job)
    world._sync(client, *client.syncs)
    _finish(world)
    refused = [event.reason for event in world.events if isinstance(event, ResultRefused)]
    assert refused == ["the task is not ordered from this client any more"]


def test_time_in_which_the_driver_has_stood_still_is_not_that_of_batches_of_who_leaves() -> None:
    """They had been done meanwhile, but were not heard of first: somebody else did them once more."""
    world = World(0, clients=2, faults=0, rows=(200,))
    while not (hanging := [client for client in world.clients if client.hanging]):
        world.clients[0].will_hang = world.coordinator.phase is CoordinatorPhase.RUNNING
        world.step()
    (client,), (job,) = hanging, hanging[0].hanging
    member = world.coordinator.members.named(client.spec.name)
    assert member is not None
    world.leaving.add(member.name)
    world.tell(LeaveWanted(member.name, "scale-in", world.now_ms))
    while member.has_tasks:
        world.step()
    world.now_ms += 10_000
    for heard in world.heard_ms:
        world.heard_ms[heard] = world.now_ms
    world.tell(Tick(world.now_ms, still_ms=10_000))
    assert member.stops_since_ms is None
    client.hanging, client.is_deaf = [], False
    world._finish_job(client, job)
    _finish(world)
    assert not [event for event in world.events if isinstance(event, (ClientLost, ResultRefused))]


def test_time_in_which_the_driver_has_stood_still_is_not_that_of_the_assignor() -> None:
    """It had no time to decide, and the run ended because it had not."""
    world = World(0, clients=2, faults=0)
    while not world.questions:
        world.step()
    world.now_ms += 1_000_000
    for heard in world.heard_ms:
        world.heard_ms[heard] = world.now_ms
    world.tell(Tick(world.now_ms, still_ms=1_000_000))
    _finish(world)
    assert [finished.error for finished in world.finished] == [None]


def test_an_assignor_that_holds_pythons_lock_for_ever_is_not_excused_for_ever() -> None:
    """The driver stands still whenever it does."""
    world = World(0, clients=2, faults=0, assignor=StubbornAssignor)
    while not world.questions:
        world.step()
    for _ in range(10):
        world.now_ms += 1_000_000
        for heard in world.heard_ms:
            world.heard_ms[heard] = world.now_ms
        world.tell(Tick(world.now_ms, still_ms=1_000_000))
    (finished,) = world.finished
    assert "has not decided" in str(finished.error)


def test_an_assignor_that_never_decides_fails_the_run() -> None:
    world = World(1, faults=0, assignor=StubbornAssignor)
    world.run()
    assert [type(finished.error) for finished in world.finished] == [AssignmentRejectedException]
    assert "21 times in a row" in str(world.finished[0].error)
    assert not any(record.tasks or record.rebalance for record in world.commits)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_followup_deadlines_are_honoured(seed: int) -> None:
    world = World(seed, faults=0, assignor=FollowingUpAssignor)
    world.is_slow = True  # time passes while batches are processed
    _finish(world)
    lost = [event for event in world.events if isinstance(event, ClientLost)]
    followups = [event for event in world.events if isinstance(event, Rebalanced) and "follow-up" in event.reason]
    expected = [event.followup_deadline_ms for event in world.events if isinstance(event, Rebalanced)]
    assert len(followups) >= sum(deadline is not None for deadline in expected) - 1 - 2 * len(lost)


def test_a_followup_deadline_does_lead_to_a_rebalance() -> None:
    reasons = set()
    for seed in range(8):
        world = World(seed, faults=0, assignor=FollowingUpAssignor)
        world.is_slow = True
        _finish(world)
        reasons |= {event.reason for event in world.events if isinstance(event, Rebalanced)}
    assert "a client's follow-up deadline has passed" in reasons


def test_followups_that_are_always_due_are_no_storm() -> None:
    """Each rebalance asked for the next one at once: there were hundreds before all rows were read."""
    world = World(3, faults=0, assignor=HastyAssignor)
    began_ms = world.now_ms
    _finish(world)
    told = [event for event in world.events if isinstance(event, Rebalanced)]
    assert len(told) <= 3 + (world.now_ms - began_ms) // 200


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 1), st.sampled_from((0, 100, 2_000)))
@settings(max_examples=examples(12))
@pytest.mark.thorough
def test_nothing_is_lost_or_done_twice_while_sources_grow(seed: int, clients: int, standbys: int, idle_ms: int) -> None:
    """Whatever fails, and however long tasks wait for a source that has nothing: at the end all rows are in, once."""
    _finish(World(seed, clients=clients, standbys=standbys, faults=8, idle_ms=idle_ms, leader=_leader))


@given(st.integers(0, 2**32), st.integers(1, 400))
@settings(max_examples=examples(10))
def test_a_stop_commits_what_is_being_processed(seed: int, steps: int) -> None:
    """Whenever it comes: nothing that was ordered is left undone, since no client needs longer than is allowed."""
    world = World(seed, faults=0, idle_ms=0)
    for _ in range(steps):
        world.step()
    stopped_at = world.now_ms
    ordered = {job.task: job.order.batch for client in world.clients for job in client.jobs if job.order is not None}
    world.stop()
    world.run()
    assert [finished.error for finished in world.finished] == [None]
    if world.now_ms < stopped_at + world.options.stop_timeout_ms:
        for task, batch in ordered.items():
            assert any(task in record.tasks and record.tasks[task].batch == batch for record in world.commits)
