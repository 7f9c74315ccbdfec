"""Why and when the assignor is asked, what it was asked, and what has moved; what is done about it, the coordinator decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import attrs
import msgspec

from task_assignor.group import AssignmentRejectedException
from task_assignor.group.followups import FollowUps
from task_assignor.runtime.machines.coordinator.members import Member, Members
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.values import AskAssignor
from task_assignor.runtime.machines.events import Rebalanced
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.sdk import StreamsException, TaskId
from task_assignor.sdk.text import counted, named

_EXCUSES: Final = 3
"""So often: an assignor that holds Python's lock again and again makes the coordinator stand still itself."""


@attrs.frozen
class Question:
    """What the assignor is asked and has not answered yet.

    Args:
        asked_ms: when.
        reasons: why there is a rebalance.
        members: member ids of those whom it is about.
        excuses: how often time has not counted.
    """

    asked_ms: int
    reasons: tuple[str, ...]
    members: frozenset[str]
    excuses: int = 0

    @property
    def reason(self) -> str:
        """All reasons in one text."""
        return "; ".join(self.reasons)


class Rebalances:
    """Reasons for a rebalance, its deadlines, and the open question. Every change is a decision of the coordinator.

    Args:
        assignor: name of the assignor, for messages.
        options: settings of the runtime.
    """

    def __init__(self, assignor: str, options: RuntimeOptions) -> None:
        self._assignor = assignor
        self._options = options
        self._reasons: list[str] = []
        self._followups = FollowUps(options.assignment_retry_ms)
        self._followup_ms: int | None = None
        self._retry_ms: int | None = None
        self._retries = 0
        self._question: Question | None = None
        self._last_owners: dict[TaskId, str] = {}
        """Task -> name of its owner in the last assignment, for telling what moved."""

    @property
    def question(self) -> Question | None:
        """What the assignor is asked now."""
        return self._question

    # Reasons.

    def begin(self, clients: int) -> None:
        """So many clients are there, and the run begins."""
        self._reasons = [f"{counted(clients, 'client')} {'is' if clients == 1 else 'are'} there"]

    def joined(self, client: str) -> None:
        """A client has joined."""
        self._reasons.append(_joined(client))

    def lost(self, member: Member, reason: str) -> None:
        """A member was lost; one that came and went between two rebalances is no reason for one."""
        if member.generation:
            self._reasons.append(f"{named('client', member.name)} lost ({reason})")
        else:
            self._reasons = [told for told in self._reasons if told != _joined(member.name)]

    def leaves(self, member: Member) -> None:
        """A member is about to leave; one that has never been part of a rebalance is no reason for one."""
        if member.generation:
            self._reasons.append(f"{named('client', member.name)} leaves ({member.leaves_because})")
        else:
            self._reasons = [told for told in self._reasons if told != _joined(member.name)]

    # Deadlines.

    def are_due(self, now_ms: int) -> bool:
        """There is a reason to ask the assignor now; a follow-up deadline that has passed becomes one."""
        if self._question is not None:
            return False
        if self._is_followup_due(now_ms):
            self._followup_ms = None
            self._reasons.append("a client's follow-up deadline has passed")
        return bool(self._reasons) and (self._retry_ms is None or now_ms >= self._retry_ms)

    @property
    def is_overlooked(self) -> bool:
        """There is a reason to ask the assignor, and it is neither asked nor is there a deadline at which it will be."""
        return self._question is None and bool(self._reasons) and self._retry_ms is None

    @property
    def is_under_way(self) -> bool:
        """The assignor is asked, or is to be."""
        return self._question is not None or bool(self._reasons)

    def _is_followup_due(self, now_ms: int) -> bool:
        return self._followup_ms is not None and now_ms >= self._followup_ms

    def is_overdue(self, now_ms: int) -> bool:
        """The assignor has had its time."""
        return self._question is not None and now_ms >= self._question.asked_ms + self._options.assignor_timeout_ms

    def excuse(self, still_ms: int, now_ms: int) -> None:
        """The coordinator has stood still for so long, and the assignor with it; or what it said is not heard yet."""
        if still_ms and (question := self._question) is not None and question.excuses < _EXCUSES:
            asked_ms = min(question.asked_ms + still_ms, now_ms)
            self._question = attrs.evolve(question, asked_ms=asked_ms, excuses=question.excuses + 1)

    def deadlines_ms(self) -> list[int]:
        """When the assignor has had its time; or, if it is not at work, when it is to be asked."""
        if self._question is not None:
            return [self._question.asked_ms + self._options.assignor_timeout_ms]
        # Who wanted the retry may have left since.
        retry_ms = self._retry_ms if self._reasons else None
        return [found for found in (self._followup_ms, retry_ms) if found is not None]

    # Question and answer.

    def ask(self, members: Members, progress: Progress, now_ms: int) -> AskAssignor:
        """Open a question about the members that stay."""
        ids = frozenset(member.member_id for member in members.staying)
        self._question = Question(now_ms, tuple(self._reasons), ids)
        clients = tuple(member.for_leader(progress) for member in members.staying)
        return AskAssignor(clients, progress.changelog_ends(), now_ms)

    def close(self) -> None:
        """The open question is answered, or nobody wants the answer any more."""
        self._question = None

    def undecided(self) -> AssignmentRejectedException:
        """The assignor has taken too long."""
        return AssignmentRejectedException(
            f"The assignor {self._assignor} has not decided in {self._options.assignor_timeout_ms} ms, which is the limit "
            "assignor_timeout_ms of the RuntimeOptions. Maybe it hangs; else allow for more time."
        )

    def put_off(self, why: str, now_ms: int) -> AssignmentRejectedException | None:
        """The assignor wants to be asked again for the same reasons; the error: it has wanted that too often."""
        self._retries += 1
        if self._retries > self._options.max_assignment_retries:
            return AssignmentRejectedException(
                f"The assignor asked {self._retries} times in a row to keep the assignment and to try again; "
                f"the last time: {why}"
            )
        self._retry_ms = now_ms + self._options.assignment_retry_ms
        return None

    def take(self, question: Question, followup_ms: int | None, now_ms: int) -> None:
        """There is an assignment: its reasons are settled; those that came up meanwhile stay."""
        self._reasons, self._retry_ms, self._retries = self._reasons[len(question.reasons) :], None, 0
        self._followup_ms = self._followups.due_ms(followup_ms, now_ms)

    # What is told.

    def moved(self, question: Question, members: Members, generation: int, inexact: Collection[str] = ()) -> Rebalanced:
        """The event that tells of a new assignment; `inexact`: goals that the assignor perhaps did not reach exactly."""
        before, now = self._last_owners, _owners(members)
        moved = ((task, before.get(task, ""), now[task]) for task in sorted(now) if before.get(task, "") != now[task])
        self._last_owners = now
        return msgspec.structs.replace(
            self._rebalanced(question, members, generation, moved), inexact=tuple(sorted(map(str, inexact)))
        )

    def kept(self, question: Question, why: str, members: Members, generation: int) -> Rebalanced:
        """The event that tells that the assignment stays, and why."""
        return self._rebalanced(question, members, generation, (), why)

    def _rebalanced(
        self,
        question: Question,
        members: Members,
        generation: int,
        moved: Iterable[tuple[TaskId, str, str]],
        kept: str = "",
    ) -> Rebalanced:
        tasks = {member.name: member.tasks for member in members}
        leaving = tuple(member.name for member in members if member.leaves_because)
        return Rebalanced(generation, question.reason, tasks, tuple(moved), kept, self._followup_ms, leaving=leaving)


def _joined(client: str) -> str:
    return f"{named('client', client)} joined"


def _owners(members: Members) -> dict[TaskId, str]:
    return {task: member.name for member in members for task in member.tasks.active}


def with_names(error: StreamsException, members: Iterable[Member]) -> StreamsException:
    """The error with which the assignor's answer was refused, with the names of clients where it has their process ids."""
    if not isinstance(error, AssignmentRejectedException):
        return error
    text = str(error)
    for member in members:
        for before in ("Client ", "client ", ""):
            text = text.replace(f"{before}{member.process_id}", named("client", member.name))
    if text == str(error):
        return error
    told = AssignmentRejectedException(text, error.error)
    told.__dict__.update(error.__dict__)
    told.__cause__ = error.__cause__
    return told
