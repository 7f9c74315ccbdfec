"""Finds every violation of an assignment, also those that Kafka lets pass. What they are is in `violations.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import (
    ApplicationState,
    AssignmentConfigs,
    ProcessId,
    Role,
    StateColumns,
    TaskAssignment,
    TaskColumns,
    TaskId,
)
from task_assignor.validation.kafka import first_error
from task_assignor.validation.rows import AssignmentRows, Rows, check_state, rows_of, what_is_wrong_with_answer
from task_assignor.validation.violations import Severity, ValidationReport, Violation, ViolationKind

Ints = npt.NDArray[np.integer]


def report_violations(application_state: ApplicationState, task_assignment: TaskAssignment) -> ValidationReport:
    """Every violation of an assignment.

    Args:
        application_state: what the assignor was given.
        task_assignment: what it answered; anything that is not a `TaskAssignment` is reported, not raised.

    Returns:
        The report; equal for equal arguments, and, but for Kafka's own answer, whatever the order of the list.

    Raises:
        StateException: `application_state` is not an `ApplicationState`.
    """
    check_state(application_state)
    problem = what_is_wrong_with_answer(task_assignment)
    if problem is not None:
        kind = ViolationKind.NOT_A_TASK_ASSIGNMENT
        return ValidationReport((Violation(kind, Severity.ERROR, None, None, problem),), None)
    rows = rows_of(application_state, task_assignment)
    kafka_error = first_error(application_state.columns, rows)
    answer = _Answer.of(application_state.columns, rows)
    found = [
        *_wrong_clients(answer),
        *_wrong_tasks(answer),
        *_wrong_owners(answer),
        *_wrong_standbys(answer, application_state.assignment_configs),
    ]
    severities, kinds = list(Severity), list(ViolationKind)
    # Stable: within a kind the finders below give task order, then client order.
    found.sort(key=lambda violation: (severities.index(violation.severity), kinds.index(violation.kind)))
    return ValidationReport(tuple(found), kafka_error)


@attrs.frozen(eq=False)
class _Answer:
    """The rows of the answer with its processes in order of their ids, so that the order of the list has no say."""

    columns: StateColumns
    process_ids: Sequence[ProcessId]
    """D distinct process ids of the answer, ascending."""
    times: Ints
    """(D,) how often each is listed."""
    is_known: npt.NDArray[np.bool_]
    """(D,) is a client of the state."""
    process: Rows
    """(N,) position in `process_ids` of every row."""
    task: Rows
    role: Rows
    unknown: Sequence[tuple[TaskId, int]]
    """(task id, process) of the rows whose task is not in the state, sorted, distinct."""

    @classmethod
    def of(cls, columns: StateColumns, rows: AssignmentRows) -> _Answer:
        process_ids = sorted(set(rows.process_ids), key=lambda process_id: process_id.signed_halves)
        position = {process_id: number for number, process_id in enumerate(process_ids)}
        of_entry = np.array([position[process_id] for process_id in rows.process_ids], dtype=np.int64)
        process = of_entry[rows.entry]
        is_known = np.zeros(len(process_ids), dtype=np.bool_)
        is_known[of_entry] = rows.entry_client >= 0
        unknown = zip(rows.unknown_tasks, process[rows.task < 0].tolist(), strict=True)
        known_rows = rows.task >= 0
        return cls(
            columns,
            process_ids,
            np.bincount(of_entry, minlength=len(process_ids)),
            is_known,
            process[known_rows],
            rows.task[known_rows],
            rows.role[known_rows],
            sorted(set(unknown), key=lambda pair: (pair[0].sort_key, pair[1])),
        )

    @property
    def tasks(self) -> TaskColumns:
        return self.columns.tasks

    def pairs(self, role: Role) -> tuple[Rows, Rows, Ints]:
        """Distinct (task, process) in that role, sorted, and how often each is there."""
        chosen = self.role == role
        width = max(len(self.process_ids), 1)
        keys, counts = np.unique(self.task[chosen] * width + self.process[chosen], return_counts=True)
        return keys // width, keys % width, counts


def _violations(
    answer: _Answer,
    kind: ViolationKind,
    severity: Severity,
    tasks: Ints,
    processes: Ints | None,
    message: str,
) -> Iterator[Violation]:
    """One violation per row; `message` may name {task} and {client}."""
    for row, task in enumerate(tasks.tolist()):
        task_id = answer.tasks.task_id(task)
        process_id = None if processes is None else answer.process_ids[int(processes[row])]
        yield Violation(kind, severity, task_id, process_id, message.format(task=task_id, client=process_id))


def _wrong_clients(answer: _Answer) -> Iterator[Violation]:
    present = {process_id for process_id, known in zip(answer.process_ids, answer.is_known, strict=True) if known}
    for process_id in answer.columns.clients.process_ids:
        if process_id not in present:
            yield Violation(
                ViolationKind.MISSING_PROCESS_ID,
                Severity.ERROR,
                None,
                process_id,
                f"Client {process_id} is not in the answer; a client without tasks needs an empty assignment.",
            )
    for number, process_id in enumerate(answer.process_ids):
        if not answer.is_known[number]:
            yield Violation(
                ViolationKind.UNKNOWN_PROCESS_ID,
                Severity.ERROR,
                None,
                process_id,
                f"Client {process_id} of the answer is not a client of the application.",
            )
        if answer.times[number] > 1:
            yield Violation(
                ViolationKind.DUPLICATE_PROCESS_ID,
                Severity.ERROR,
                None,
                process_id,
                f"Client {process_id} is in the answer {answer.times[number]} times; Kafka would silently keep the "
                "last one.",
            )


def _wrong_tasks(answer: _Answer) -> Iterator[Violation]:
    for task_id, process in answer.unknown:
        process_id = answer.process_ids[process]
        yield Violation(
            ViolationKind.UNKNOWN_TASK_ID,
            Severity.ERROR,
            task_id,
            process_id,
            f"Task {task_id} on client {process_id} is not a task of the application.",
        )


def _wrong_owners(answer: _Answer) -> Iterator[Violation]:
    tasks, processes, times = answer.pairs(Role.ACTIVE)
    is_first = np.ones(len(tasks), dtype=np.bool_)
    is_first[1:] = np.diff(tasks) != 0
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(tasks)), 0))
    for row in np.flatnonzero(~is_first | (times > 1)).tolist():
        task_id, process_id = answer.tasks.task_id(int(tasks[row])), answer.process_ids[int(processes[row])]
        texts = []
        if not is_first[row]:
            owner = answer.process_ids[int(processes[first[row]])]
            texts.append(f"Task {task_id} is active on client {process_id}, but also on client {owner}.")
        if times[row] > 1:
            texts.append(f"Task {task_id} is active on client {process_id} {times[row]} times.")
        kind = ViolationKind.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
        for text in texts:
            yield Violation(kind, Severity.ERROR, task_id, process_id, text)
    yield from _violations(
        answer,
        ViolationKind.TASK_WITHOUT_ACTIVE,
        Severity.ERROR,
        np.flatnonzero(_copies(answer, tasks, processes) == 0),
        None,
        "Task {task} is active on no client of the application; nobody would read its partitions.",
    )


def _wrong_standbys(answer: _Answer, configs: AssignmentConfigs) -> Iterator[Violation]:
    tasks, processes, times = answer.pairs(Role.STANDBY)
    active_tasks, active_processes, _ = answer.pairs(Role.ACTIVE)
    width = max(len(answer.process_ids), 1)
    # `pairs` gives distinct ones; to find that out again would take most of the time.
    is_active_too = np.isin(  # noqa: TID251 (of such it builds no hash table)
        tasks * width + processes, active_tasks * width + active_processes, assume_unique=True
    )
    is_stateful, has_changelog = answer.tasks.is_stateful, answer.tasks.has_changelog
    owners = _copies(answer, active_tasks, active_processes)
    standbys = _copies(answer, tasks[~is_active_too], processes[~is_active_too])
    for kind, severity, wrong, message in (
        (
            ViolationKind.INVALID_STANDBY_TASK,
            Severity.ERROR,
            ~is_stateful[tasks],
            "Task {task} has no state, but client {client} has it as a standby.",
        ),
        (
            ViolationKind.ACTIVE_AND_STANDBY_ON_ONE_CLIENT,
            Severity.ERROR,
            is_active_too,
            "Task {task} is active and standby on client {client}.",
        ),
        (
            ViolationKind.STANDBY_ASSIGNED_MULTIPLE_TIMES,
            Severity.ERROR,
            times > 1,
            "Task {task} is more than once a standby on client {client}.",
        ),
        (
            ViolationKind.STANDBY_WITHOUT_CHANGELOG,
            Severity.WARNING,
            is_stateful[tasks] & ~has_changelog[tasks],
            "Task {task} has no changelog; its standby on client {client} cannot be kept up to date.",
        ),
    ):
        yield from _violations(answer, kind, severity, tasks[wrong], processes[wrong], message)
    yield from _violations(
        answer,
        ViolationKind.STANDBY_WITHOUT_ACTIVE,
        Severity.WARNING,
        np.flatnonzero((standbys > 0) & (owners == 0)),
        None,
        "Task {task} has a standby, but is active nowhere.",
    )
    yield from _wrong_standby_counts(answer, configs, owners, standbys)


def _wrong_standby_counts(
    answer: _Answer, configs: AssignmentConfigs, owners: Ints, standbys: Ints
) -> Iterator[Violation]:
    wanted = configs.num_standby_replicas
    gets_standbys = answer.tasks.is_stateful & answer.tasks.has_changelog
    possible = np.minimum(np.maximum(len(answer.columns.clients) - owners, 0), wanted)
    # A task without an owner is an error already; what it lacks besides would only hide that.
    for task in np.flatnonzero(gets_standbys & (standbys < possible) & (owners > 0)).tolist():
        task_id = answer.tasks.task_id(task)
        yield Violation(
            ViolationKind.TOO_FEW_STANDBYS,
            Severity.WARNING,
            task_id,
            None,
            f"Task {task_id} has {_count(int(standbys[task]))}; {wanted} are configured, and the clients allow for "
            f"{possible[task]}.",
        )
    surplus = np.where(gets_standbys, np.maximum(standbys - wanted, 0), 0)
    in_all, budget = int(surplus.sum()), configs.max_warmup_replicas
    severity = Severity.INFO if in_all <= budget else Severity.WARNING
    reason = (
        "the rest can be warm-ups"
        if in_all <= budget
        else f"in all there are {in_all} too many, while max.warmup.replicas is {budget}"
    )
    for task in np.flatnonzero(surplus).tolist():
        task_id = answer.tasks.task_id(task)
        yield Violation(
            ViolationKind.TOO_MANY_STANDBYS,
            severity,
            task_id,
            None,
            f"Task {task_id} has {_count(int(standbys[task]))}; {wanted} are configured, {reason}.",
        )


def _copies(answer: _Answer, tasks: Rows, processes: Rows) -> Ints:
    """(T,) number of clients of the state among the pairs."""
    return np.bincount(tasks[answer.is_known[processes]], minlength=len(answer.tasks))


def _count(standbys: int) -> str:
    return "1 standby" if standbys == 1 else f"{standbys} standbys"
