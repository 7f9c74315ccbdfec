"""The coordinator as a state machine: members, generations, orders, commits. Sans-IO: no sockets, files, clocks.

Its shell (`server`) brings events, each with the time, and carries out instructions in order; if storing a record
fails, it stops and carries out nothing that follows. Each task goes on by itself: its next batch is ordered as soon as
the answer to the last one is accepted. What was accepted is committed together as soon as no other event waits
(`NothingWaits`), so that the disk is asked once for many tasks. Four rules make the result exact:

1. An order fixes where a task's batch begins, how far it may go, and the position that its state must start from.
2. Of each task at most one order is open: (member, batch, generation). An answer counts only if it is the answer to
   the open order. A member that left can answer no more, whatever it still computes. A task that moves stays with its
   old owner for the batch that it is at: its new owner gets the next order.
3. A generation is stored before anybody hears of it, and it is part of the name of every file, so no two tries can
   ever write the same file.
4. What others build upon - the positions that an assignment or a standby is told - is committed before they hear of it.
   An owner may go on from what it did itself; if that cannot be committed, the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, starmap

import msgspec

from task_assignor.group import GroupLeader, GroupRebalance
from task_assignor.runtime.errors import ClientException, CommitLogException, InvalidTransitionException, Story
from task_assignor.runtime.machines.coordinator.checks import check_nothing_is_overlooked
from task_assignor.runtime.machines.coordinator.commits import Commits
from task_assignor.runtime.machines.coordinator.lifetime import Lifetime
from task_assignor.runtime.machines.coordinator.members import Member, Members, advice_on_loss, error_of
from task_assignor.runtime.machines.coordinator.orders import Orders, grown, refused
from task_assignor.runtime.machines.coordinator.patience import Patience
from task_assignor.runtime.machines.coordinator.permits import Permits
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.rebalances import Question, Rebalances, with_names
from task_assignor.runtime.machines.coordinator.values import (
    Abandoned,
    Announce,
    AssignorAnswered,
    ClientsExpected,
    CloseConnection,
    ConnectionLost,
    CoordinatorEvent,
    CoordinatorInstruction,
    CoordinatorPhase,
    EndsMoved,
    Finished,
    FromClient,
    LauncherFailed,
    LeaveWanted,
    LookAtSources,
    MarkerWanted,
    NothingWaits,
    PermitFailed,
    PermitRenewed,
    SendToClient,
    SourcesFailed,
    StopRequested,
    StoreCommit,
    Tick,
)
from task_assignor.runtime.machines.events import (
    ClientLeft,
    ClientLost,
    MarkerRefused,
    RunFailed,
    RunFinished,
    RunStopping,
    SnapshotRefused,
    SnapshotsLeftOut,
)
from task_assignor.runtime.machines.protocol import (
    Alive,
    EndProcess,
    GivenBack,
    Gone,
    Goodbye,
    Heartbeat,
    Hello,
    Leave,
    Process,
    PunctuationDue,
    Refused,
    Running,
    SnapshotMissed,
    SnapshotTaken,
    Stop,
    TaskClosed,
    TaskDone,
    TaskFailed,
    TaskOrder,
    TaskReady,
    TaskResult,
    ToCoordinator,
    Welcome,
)
from task_assignor.runtime.machines.records import CommitRecord, RebalanceRecord, TaskSnapshot
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.sdk import StreamsException, TaskId
from task_assignor.sdk.text import with_notes


class Coordinator:
    """The decisions of a run. `handle` is the only thing that changes it.

    Args:
        run_id: identity of the run folder; clients of another one are refused.
        leader: computes assignments.
        progress: what is committed and what is still to be read.
        options: settings of the runtime.
        expected_clients: the run begins when so many clients are there.
        opening: the record that began this coordinator's epoch: the last of the log.
        now_ms: time.
        processors: task -> name of its processor, for messages.
        is_continuous: sources may grow, and the run goes on until it is stopped; else it ends when all is read.
        needs_permits: what clients make counts before it is recorded (`coordinator.permits`); the first is on its way.
    """

    def __init__(
        self,
        run_id: str,
        leader: GroupLeader,
        progress: Progress,
        options: RuntimeOptions,
        expected_clients: int,
        opening: CommitRecord,
        now_ms: int,
        processors: Mapping[TaskId, str] | None = None,
        *,
        is_continuous: bool = False,
        needs_permits: bool = False,
    ) -> None:
        self._processors = processors or {}
        self._leader = leader
        self._progress = progress
        self._options = options
        self._lifetime = Lifetime(options, expected_clients, now_ms)
        self._generation = opening.generation
        self._members = Members(run_id, opening.epoch)
        self._rebalances = Rebalances(leader.assignor_name, options)
        self._orders = Orders(options.max_batch_rows if is_continuous else 0)
        self._commits = Commits(opening, progress, self._orders, self._members, options.checkpoint_every_commits)
        self._is_continuous = is_continuous
        self._patience = Patience(options.max_task_idle_ms)
        self._permits = Permits(self._orders, self._members, progress.tasks if needs_permits else ())
        self._now_ms = now_ms
        self._story = Story()

    # What can be seen.

    @property
    def phase(self) -> CoordinatorPhase:
        """Where the run is."""
        return self._lifetime.phase

    @property
    def members(self) -> Members:
        """The members of the group."""
        return self._members

    @property
    def has_accepted(self) -> bool:
        """There is something to commit: `NothingWaits` is wanted."""
        return self._orders.has_accepted

    @property
    def progress(self) -> Progress:
        """What is committed."""
        return self._progress

    # The one entry that changes anything.

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorInstruction]:
        """Take one event.

        Returns:
            What the shell shall do, in this order.

        Raises:
            InvalidTransitionException: the event cannot happen in this state; there is a bug.
        """
        self._story.add(f"{self.phase.value}, generation {self._generation}", event)
        if self.phase is CoordinatorPhase.ENDED and not isinstance(event, MarkerWanted):
            return []
        self._now_ms = event.now_ms
        match event:
            case FromClient(connection, message, now_ms):
                instructions = self._hear(connection, message, now_ms)
            case ConnectionLost(connection, reason, now_ms):
                instructions = self._remove(self._members.find(connection), reason, now_ms)
            case Tick(now_ms, still_ms):
                instructions = self._tick(now_ms, still_ms)
            case NothingWaits(now_ms):
                instructions = chain(self._commit(now_ms), self._go_on(now_ms))
            case EndsMoved():
                instructions = self._move_ends(event)
            case StopRequested(reason, now_ms):
                instructions = self._request_stop(reason, now_ms)
            case MarkerWanted(name, now_ms):
                instructions = self._want_marker(name, now_ms)
            case PermitRenewed(permit, number, now_ms):
                told, waiting = self._permits.take(permit, number)
                instructions = chain(told, self._give_orders(waiting, now_ms), self._go_on(now_ms))
            case LauncherFailed(error, now_ms) | SourcesFailed(error, now_ms) | PermitFailed(error, now_ms):
                instructions = self._fail(error, now_ms)
            case LeaveWanted(client, reason, now_ms):
                instructions = self._let_go(self._members.named(client), reason, now_ms)
            case ClientsExpected(count, now_ms):
                self._lifetime.expected_clients = count
                instructions = self._go_on(now_ms)
            case AssignorAnswered(outcome, now_ms):
                instructions = self._take_answer(outcome, now_ms)
            case Abandoned():
                self._lifetime.end()
                instructions = starmap(SendToClient, self._members.last_words())
        decided = list(instructions)
        if self._options.validate_state:
            self.validate_state()
        return decided

    # Members.

    def _hear(self, connection: int, message: ToCoordinator, now_ms: int) -> Iterator[CoordinatorInstruction]:
        if isinstance(message, Hello):
            yield from self._join(connection, message, now_ms)
            return
        if isinstance(message, (Alive, Gone)):
            yield from self._hear_heartbeats(connection, message, now_ms)
            return
        member = self._members.find(connection)
        if member is None:
            # A zombie: it was given up, but does not know yet.
            if isinstance(message, TaskDone):
                yield Announce(refused("", message.result, "the sender is no member any more"))
            yield SendToClient(connection, Refused("you are no member any more", may_rejoin=True))
            yield CloseConnection(connection)
            return
        member.last_heard_ms = member.last_told_ms = now_ms
        match message:
            case Heartbeat():
                yield from map(Announce, member.take_heartbeat(message, self._progress))
            case TaskDone(result):
                member.take_answer(result.task, is_done=True)
                yield from self._take_result(member, result, now_ms)
            case TaskFailed(failure):
                member.take_answer(failure.task)
                # What a restore misses may be gone because a newer snapshot is there, which is on its way to the client.
                if not self._progress.has_replaced(failure.task, failure.floor):
                    yield from self._fail(error_of(failure, member.name), now_ms)
            case SnapshotTaken(snapshot):
                yield from self._take_snapshot(member, snapshot, now_ms)
            case SnapshotMissed(task, reason):
                yield Announce(SnapshotRefused(member.name, task, reason))
            case Running(works, ended):
                member.take_running(works, ended, now_ms)
            case TaskReady(restored, role):
                yield Announce(member.take_ready(restored, role))
            case PunctuationDue(task) if self._is_continuous and self._members.owner_of(task) is member:
                yield from self._give_orders((task,), now_ms, or_empty=True)
            case GivenBack(orders):
                self._orders.give_back(member, orders)
                yield from self._give_orders([order.task for order in orders], now_ms)
                yield from self._go_on(now_ms)
            case TaskClosed(task, positions):
                member.take_positions(task, positions, self._progress)
            case Leave(reason):
                yield from self._let_go(member, reason, now_ms)
            case Goodbye(left_out):
                if left_out:
                    yield Announce(SnapshotsLeftOut(member.name, left_out))
                yield from self._remove(member, "it has stopped", now_ms)

    def _hear_heartbeats(self, connection: int, message: Alive | Gone, now_ms: int) -> Iterator[CoordinatorInstruction]:
        member = self._members.with_id(message.member_id)
        if member is None:
            yield CloseConnection(connection)
        elif isinstance(message, Gone):
            yield from self._remove(member, "its process has ended", now_ms)
        else:
            member.heartbeats = connection
            member.last_heard_ms = now_ms

    def _join(self, connection: int, hello: Hello, now_ms: int) -> Iterator[CoordinatorInstruction]:
        if self._members.find(connection) is not None:
            what = f"a second hello over connection {connection}"
            raise InvalidTransitionException("The coordinator", self.phase.value, what, self._story.told())
        problem = "the run is over" if self._lifetime.is_over else self._members.what_is_wrong_with(hello, connection)
        if problem:
            yield SendToClient(connection, Refused(problem, may_rejoin=False))
            yield CloseConnection(connection)
            return
        twin = self._members.named(hello.client)
        if twin is not None:
            yield SendToClient(twin.connection, Refused("a newer client has taken this name", may_rejoin=False))
            yield from self._fence(twin, twin.why_replaced(hello), now_ms)
            # The assignor is asked about both at once; and the loss may have been one too many for the run.
            yield from self._join(connection, hello, now_ms)
            return
        member = self._members.add(connection, hello, self._progress, now_ms)
        yield SendToClient(connection, Welcome(member.member_id, self._permits.newest))
        yield Announce(member.has_joined())
        self._rebalances.joined(hello.client)
        yield from self._go_on(now_ms)

    def _remove(
        self, member: Member | None, reason: str, now_ms: int, *, hangs: bool = False
    ) -> Iterator[CoordinatorInstruction]:
        """A member is none any more; the others go on."""
        if member is not None:
            yield from self._fence(member, reason, now_ms, hangs=hangs)
            yield from self._go_on(now_ms)

    def _fence(
        self, member: Member, reason: str, now_ms: int, *, hangs: bool = False
    ) -> Iterator[CoordinatorInstruction]:
        """A member's open orders are void from here on; what it had answered before counts."""
        self._members.remove(member, reason)
        if member.heartbeats is not None and hangs:
            # Its own connection breaks when it is dead; before, that would only make it come back.
            yield SendToClient(member.heartbeats, EndProcess())
        else:
            yield CloseConnection(member.connection)
        if member.heartbeats is not None:
            yield CloseConnection(member.heartbeats)
        if self._lifetime.is_stopping:
            if not self._members:
                self._lifetime.end()
            return
        waits_ms = 0 if self._members else self._lifetime.lose_last(now_ms)
        if member.stops_since_ms is None:
            yield Announce(ClientLost(member.name, member.member_id, reason, waits_ms))
            self._rebalances.lost(member, reason)
        else:
            yield Announce(ClientLeft(member.name, member.member_id, member.leaves_because, waits_ms))
        handed_over = self._orders.lose(member, member.hung(self._options, now_ms) if hangs else None)
        yield from self._permits.renew({member.name: handed_over})
        poison = self._orders.poison(self._options.max_attempts)
        if poison:
            message = f"{poison} (the last: {member.name}, {reason}). {advice_on_loss(hangs=hangs)}"
            yield from self._fail(ClientException(message), now_ms)
        yield from self._give_orders(handed_over, now_ms)

    def _let_go(self, member: Member | None, reason: str, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """A member is to leave: it gets no more orders, and the others get its tasks."""
        if member is None or member.leaves_because or self._lifetime.is_stopping:
            return
        member.leaves_because = reason
        member.leaves_by_ms = now_ms + self._options.stop_timeout_ms
        self._rebalances.leaves(member)
        yield from self._go_on(now_ms)

    # Time.

    def _tick(self, now_ms: int, still_ms: int) -> Iterator[CoordinatorInstruction]:
        self._lifetime.excuse(still_ms)
        self._patience.excuse(still_ms, now_ms)
        self._rebalances.excuse(still_ms, now_ms)
        for member in self._members:
            member.excuse(still_ms, now_ms)
            if self._members.find(member.connection) is not member:
                continue
            silence = member.why_silent(self._options, now_ms)
            hanging = member.why_hanging(self._options, self._processors, now_ms)
            if silence:
                yield SendToClient(member.connection, Refused(silence, may_rejoin=True))
            if silence or hanging:
                yield from self._remove(member, silence or hanging, now_ms, hangs=not silence)
            else:
                yield from map(Announce, member.stalled(self._processors, now_ms))
        nobody = self._lifetime.why_nobody(self._members, now_ms)
        if nobody is not None:
            yield from self._fail(nobody, now_ms)
        elif self._rebalances.is_overdue(now_ms):
            yield from self._fail(self._rebalances.undecided(), now_ms)
        elif self._lifetime.must_stop(now_ms):
            yield from self._commit(now_ms)
            yield from self._stop(self._lifetime.stop_reason, None, now_ms)
        else:
            yield from self._give_orders(self._patience.take_due(now_ms), now_ms)
            if (news_ms := self._progress.next_news_ms) is not None and news_ms <= now_ms:
                yield from self._commit(now_ms)
                self._progress.tell_news(now_ms)
            yield from self._go_on(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When the next `Tick` is needed, ms since the epoch; None: only other events matter."""
        deadlines = [deadline for member in self._members for deadline in member.deadlines_ms(self._options)]
        deadlines += self._lifetime.deadlines_ms(self._members)
        may_ask = self._lifetime.takes_orders and self._members.staying
        if may_ask or (self._lifetime.is_running and self._rebalances.question is not None):
            deadlines += self._rebalances.deadlines_ms()
        if self._lifetime.takes_orders:
            deadlines += (ms for ms in (self._patience.next_deadline_ms, self._progress.next_news_ms) if ms is not None)
        return min(deadlines, default=None)

    # Rebalances, orders, commits.

    def _go_on(self, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Do whatever is due: the first assignment, orders of what others have written, a rebalance, the end."""
        staying = self._members.staying
        if self._lifetime.is_gathering and len(staying) >= self._lifetime.expected_clients:
            self._lifetime.begin(now_ms)
            self._rebalances.begin(len(staying))
            yield Announce(grown(self._progress, self._progress.tasks))
        if not self._lifetime.is_over:
            told, void = self._orders.stop_those_that_leave(self._members, self._generation, now_ms)
            yield from starmap(SendToClient, told)
            yield from self._permits.renew(void)
            yield from self._give_orders(chain.from_iterable(void.values()), now_ms)
        if not self._lifetime.is_running:
            return
        yield from self._give_orders(self._progress.take_fed(), now_ms)
        yield from self._commits.mark(self._generation, now_ms)
        if staying and not self._lifetime.stop_reason and self._rebalances.are_due(now_ms):
            yield self._rebalances.ask(self._members, self._progress, now_ms)
        if self._is_done:
            is_whole = not self._is_continuous and self._progress.is_complete
            if is_whole:
                rows = (self._commits.rows_in, self._commits.rows_out)
                yield Announce(RunFinished(self._progress.batches, *rows, self._lifetime.seconds(now_ms)))
            yield from self._stop("all rows are processed" if is_whole else self._lifetime.stop_reason, None, now_ms)

    @property
    def _is_done(self) -> bool:
        """Nothing is in progress, and nothing comes any more."""
        is_idle = not self._orders and not self._orders.has_accepted
        is_whole = not (self._is_continuous or self._rebalances.question) and self._progress.is_complete
        return is_idle and bool(self._lifetime.stop_reason or is_whole)

    def _take_answer(self, outcome: GroupRebalance | StreamsException, now_ms: int) -> Iterator[CoordinatorInstruction]:
        question = self._rebalances.question
        if question is None:
            return  # The run was ended meanwhile.
        self._rebalances.close()
        if isinstance(outcome, StreamsException):
            yield from self._fail(with_names(outcome, self._members), now_ms)
            return
        if not question.members <= {member.member_id for member in self._members.staying}:
            # It counts on somebody who has left meanwhile, or is about to. Who came meanwhile has no tasks until the next rebalance.
            yield from self._go_on(now_ms)
            return
        if outcome.kept_because:
            error = self._rebalances.put_off(outcome.kept_because, now_ms)
            if error is not None:
                yield from self._fail(error, now_ms)
                return
            yield Announce(self._rebalances.kept(question, outcome.kept_because, self._members, self._generation))
        else:
            yield from self._assign(question, outcome, now_ms)
        yield from self._give_orders(self._progress.tasks, now_ms)
        yield from self._go_on(now_ms)

    def _assign(self, question: Question, outcome: GroupRebalance, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Everybody's tasks from now on. Those that change hands get no order before their old owners are done."""
        # What is accepted is made known under the assignment under which it was ordered.
        yield from self._commit(now_ms)
        self._rebalances.take(question, outcome.followup_deadline_ms, now_ms)
        self._generation += 1
        news = self._members.assign(outcome.assignments, self._generation, self._progress)
        rebalance = RebalanceRecord(self._generation, question.reason, self._members.tasks_of(question.members))
        yield StoreCommit(self._commits.record(self._generation, now_ms, rebalance=rebalance))
        told = self._rebalances.moved(question, self._members, self._generation, outcome.inexact)
        yield Announce(msgspec.structs.replace(told, restoring=self._members.rows_to_restore(self._progress)))
        yield from starmap(SendToClient, news)

    def _give_orders(
        self, tasks: Iterable[TaskId], now_ms: int, *, or_empty: bool = False
    ) -> Iterator[CoordinatorInstruction]:
        """Order the next batch of each of these tasks that has an owner, rows (or needs none), and no open order."""
        if not self._lifetime.takes_orders:
            return
        new: dict[int, list[TaskOrder]] = {}
        for task in tasks:
            owner = self._members.owner_of(task)
            if owner is None or owner.leaves_because or not self._orders.may_be_given(task):
                continue
            may_grow = self._progress.unread(task) if self._is_continuous else {}
            awaited = self._patience.awaited(task, may_grow, now_ms)
            ranges, unread = self._progress.next_ranges(task, self._options.max_batch_rows, awaited)
            more = self._patience.of(unread)
            if ranges := ranges or (self._progress.no_rows(task) if or_empty else {}):
                order = self._orders.give(owner, self._progress, task, self._generation, (ranges, more), now_ms)
                new.setdefault(owner.connection, []).append(order)
        for connection, orders in new.items():
            yield SendToClient(connection, Process(tuple(orders)))

    def _move_ends(self, moved: EndsMoved) -> Iterator[CoordinatorInstruction]:
        """Sources have grown: their tasks may go on; and it is known what markers are to reach."""
        try:
            tasks = self._progress.move_ends(moved.ends)
            if tasks:
                yield Announce(grown(self._progress, tasks))
            yield from self._give_orders(tasks, moved.now_ms)
        except CommitLogException as error:
            yield from self._fail(error, moved.now_ms)
        if moved.markers:
            self._commits.markers.aim(moved.markers, self._progress)
            yield from self._go_on(moved.now_ms)

    def _take_result(self, member: Member, result: TaskResult, now_ms: int) -> Iterator[CoordinatorInstruction]:
        if self._lifetime.is_stopping:
            return  # It was left undone when the run was told to end.
        problem = self._orders.why_refuse(member.member_id, result)
        if problem:
            yield Announce(refused(member.name, result, problem))
            return
        nonsense = self._orders.what_is_wrong_with(result)
        if nonsense:
            message = f"The answer of {member.name} for task {result.task}: {nonsense}."
            yield from self._fail(ClientException(message), now_ms)
            return
        if self._orders.awaits_commit(result.task):
            # A task is at most one batch ahead of what is committed.
            yield from self._commit(now_ms)
        self._progress.advance(self._orders.accept(member, result), is_new=True)
        if member.has(result.task):
            member.positions[result.task] = result.position
        is_late = result.generation != self._generation
        if is_late:
            # The task may have moved meanwhile, also away and back: who goes on from there needs it committed.
            yield from self._commit(now_ms)
        yield from self._give_orders((result.task,), now_ms)
        if is_late:
            yield from self._go_on(now_ms)

    def _take_snapshot(self, member: Member, snapshot: TaskSnapshot, now_ms: int) -> Iterator[CoordinatorInstruction]:
        problem = self._progress.why_refuse(snapshot) if self._lifetime.is_running else "the run is over"
        if problem:
            yield Announce(SnapshotRefused(member.name, snapshot.task, problem))
            return
        if self._orders.has_snapshot(snapshot.task):
            yield from self._commit(now_ms)
        self._progress.take_snapshot(snapshot)
        self._orders.accept_snapshot(snapshot)

    def _commit(self, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Commit everything that was accepted, and the markers that are reached by it."""
        if self._lifetime.is_running:
            yield from self._commits.commit(self._generation, now_ms)

    def _want_marker(self, name: str, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Somebody asks for a cut over all tasks. No task waits for it."""
        problem = "the run is over" if self._lifetime.is_over else ""
        problem = problem or self._commits.markers.want(name, self._progress, now_ms)
        if problem:
            yield Announce(MarkerRefused(name, problem))
        elif self._is_continuous:
            yield LookAtSources(name)
        else:
            self._commits.markers.aim((name,), self._progress)
            yield from self._go_on(now_ms)

    # The end.

    def _request_stop(self, reason: str, now_ms: int) -> Iterator[CoordinatorInstruction]:
        if self._lifetime.is_stopping:
            return
        if self._lifetime.want_stop(reason, now_ms):
            yield Announce(RunStopping(reason))
        yield from self._stop(reason, None, now_ms) if self._lifetime.is_gathering else self._go_on(now_ms)

    def _fail(self, error: StreamsException, now_ms: int) -> Iterator[CoordinatorInstruction]:
        if not self._lifetime.is_over:
            yield from self._commit(now_ms)
            yield Announce(RunFailed(with_notes(error)))
            yield from self._stop(str(error), error, now_ms)

    def _stop(self, reason: str, error: StreamsException | None, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Nothing is committed from here on; what is in progress never was."""
        self._lifetime.stop()
        self._orders.clear()
        self._rebalances.close()
        yield from (
            Announce(MarkerRefused(name, f"the run ended before: {reason}"))
            for name in self._commits.markers.take_all()
        )
        for member in self._members:
            if member.stops_since_ms is None:
                member.stops_since_ms = now_ms
                yield SendToClient(member.connection, Stop(reason, snapshot=error is None))
        if not self._members:
            self._lifetime.end()
        yield Finished(error)

    # Checks.

    def validate_state(self) -> None:
        """Raise AssertionError if something holds that never may."""
        self._members.validate(self._leader.tasks, self._generation)
        self._progress.validate()
        is_busy = self._rebalances.question is not None or self._orders
        assert not is_busy or self.phase in (CoordinatorPhase.RUNNING, CoordinatorPhase.ENDED)
        self._orders.validate(self._members, self._progress, self._generation)
        if self._lifetime.is_running and not self._orders.has_accepted:
            # Else `NothingWaits` follows.
            known = (self._members, self._orders, self._rebalances, self._progress, self._patience)
            check_nothing_is_overlooked(*known, is_stopping=bool(self._lifetime.stop_reason))
            assert not self._orders.poison(self._options.max_attempts), "what takes its clients with it goes on"
            assert not self._is_done, "the end is overlooked"
            assert not self._commits.markers.take_reached(self._progress, self._now_ms), "a marker is overlooked"
