"""Assertions on what an assignor answers: valid, balanced, deterministic. They raise `AssertionError` with a text for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    ConfigException,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    assignment_to_json,
)
from task_assignor.sdk.checks import check_choice, check_flag, whole_number
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.testing.answers import Assignor, answer_of, checked_answer
from task_assignor.testing.arguments import number_from_0
from task_assignor.testing.specs import shuffled
from task_assignor.validation import report_violations

Answer: TypeAlias = TaskAssignment | Mapping[ProcessId, KafkaStreamsAssignment] | Assignor
"""What an assignor answers, what the utilities return, or an assignor, which is then asked as the real hosts do."""

WhichTasks: TypeAlias = Literal["all", "stateful", "stateless"]


def assert_valid(state: ApplicationState, assignment: Answer, *, strict: bool = False) -> None:
    """The assignment has no error.

    Args:
        state: what the assignor was given.
        assignment: what it answered, or what a utility returned. Better: the assignor, or what makes a fresh one, which
            is then asked here. As in production, only a `TaskAssignment` is an answer, no mapping.
        strict: nothing else either: standbys as many as configured, no warm-up.

    Raises:
        AssertionError: it has; with the whole report.
        ConfigException: what should make an assignor makes none, or `strict` is neither True nor False.
        StateException: the state is not an `ApplicationState`, or the mapping holds other things.
    """
    check_flag("strict", strict, error=ConfigException)
    report = report_violations(state, _wrapped(state, assignment))
    if not report.is_valid or (strict and report.violations):
        raise AssertionError(report.to_text())


def assert_balanced(
    state: ApplicationState, assignment: Answer, *, spread: float = 1.0, tasks: WhichTasks = "all"
) -> None:
    """No client has more than `spread` active tasks per thread more than another one.

    With one thread each and a spread of 1 that is as even as can be. Kafka's own tests ask for the same.

    Args:
        state: what the assignor was given.
        assignment: what it answered, what a utility returned, or the assignor, which is then asked.
        spread: greatest allowed difference, in active tasks per thread.
        tasks: which tasks count; stateful means that the task has a store.

    Raises:
        AssertionError: they differ more; names the clients.
        ConfigException: `spread` is not a finite number from 0, or `tasks` none of its three values; or what should make
            an assignor makes none.
        StateException: the state is not an `ApplicationState`, or the mapping holds other things.
    """
    spread = number_from_0("spread", spread)
    counts = _active_counts(state, assignment, tasks)
    clients = state.columns.clients
    # To floats 7/3 is more than 1 above 4/3.
    loads = [Fraction(*share) for share in zip(counts.tolist(), clients.num_processing_threads.tolist(), strict=True)]
    if loads and float(max(loads) - min(loads)) > spread:
        most, least = loads.index(max(loads)), loads.index(min(loads))
        raise AssertionError(
            f"The {_named(tasks)} are not balanced: client {clients.process_ids[most]} has {counts[most]} "
            f"({float(loads[most]):g} per thread), client {clients.process_ids[least]} has {counts[least]} "
            f"({float(loads[least]):g} per thread); allowed is a difference of {spread:g} per thread."
        )


def assert_fair_shares(state: ApplicationState, assignment: Answer, *, tasks: WhichTasks = "all") -> None:
    """Every client has its share of the state's tasks by its threads, rounded down or up, as active ones.

    Tasks that nobody has, or several have, count once: who has them is then too little or too much.

    Args:
        state: what the assignor was given.
        assignment: what it answered, what a utility returned, or the assignor, which is then asked.
        tasks: which tasks count; stateful means that the task has a store.

    Raises:
        AssertionError: one has not; names it, its tasks and its share.
        ConfigException: `tasks` is none of its three values, or what should make an assignor makes none.
        StateException: the state is not an `ApplicationState`, or the mapping holds other things.
    """
    counts = _active_counts(state, assignment, tasks)
    threads = state.columns.clients.num_processing_threads
    in_all, all_threads = int(_that_count(state, tasks).sum()), int(threads.sum())
    for client, process_id in enumerate(state.columns.clients.process_ids):
        low, rest = divmod(in_all * int(threads[client]), all_threads)
        high = low + (rest > 0)
        if not low <= counts[client] <= high:
            raise AssertionError(
                f"Client {process_id} has {counts[client]} of {in_all} {_named(tasks)}; its share, with "
                f"{threads[client]} of {all_threads} threads, is {low}{f' or {high}' if rest else ''}."
            )


def assert_deterministic(assignor: Assignor, state: ApplicationState, *, shuffles: int = 3) -> TaskAssignment:
    """The assignor answers the same every time, and whatever the order in which the state was put together.

    That its answer does not depend on `PYTHONHASHSEED` either is what `assert_same_in_every_process` looks at.

    Args:
        assignor: an assignor, or what makes a fresh one, such as its class.
        state: what it is given.
        shuffles: how many other orders to try; 0: only the same state a second time.

    Returns:
        Its answer.

    Raises:
        AssertionError: two answers differ (names the first client whose tasks differ, or the goals of `inexact`), or one is
            not a `TaskAssignment`.
        ConfigException: the assignor is none and makes none, or `shuffles` is not an int from 0.
        StateException: the state is not an `ApplicationState`.
    """
    whole_number("shuffles", shuffles, 0)
    answer = answer_of(assignor, state)
    expected = answer_to_json(answer)
    assert_same(expected, answer_to_json(answer_of(assignor, state)), "The same state a second time")
    for seed in range(shuffles):
        other = answer_to_json(answer_of(assignor, shuffled(state, seed)))
        assert_same(expected, other, f"The same state, put together in another order (shuffled(state, {seed}))")
    return answer


def answer_to_json(answer: TaskAssignment) -> list[dict[str, Any]]:
    """All that two answers are compared by, in their JSON form."""
    return [*assignment_to_json(answer), {"inexact": sorted(answer.inexact)}]


def assert_same(expected: Iterable[Mapping[str, Any]], actual: Iterable[Mapping[str, Any]], what: str) -> None:
    """Two answers in their JSON form are equal.

    Raises:
        AssertionError: they are not; begins with `what`.
    """
    first, second = list(expected), list(actual)
    if first == second:
        return
    differ = [(one, two) for one, two in zip(first, second, strict=False) if one != two]
    text = f"{differ[0][0]}\nbecame\n{differ[0][1]}" if differ else f"{len(first)} clients became {len(second)}"
    raise AssertionError(f"{what} gave another answer. The first difference:\n{text}")


def _wrapped(state: ApplicationState, assignment: Answer) -> TaskAssignment:
    if isinstance(assignment, Mapping):
        return TaskAssignment(assignment)
    if isinstance(assignment, TaskAssignor) or callable(assignment):
        return answer_of(assignment, state)
    return checked_answer(state, assignment)


def _named(tasks: WhichTasks) -> str:
    return "active tasks" if tasks == "all" else f"{tasks} active tasks"


def _that_count(state: ApplicationState, tasks: WhichTasks) -> BoolArray:
    """(T,) which tasks of the state are of that kind."""
    is_stateful = state.columns.tasks.is_stateful
    return {"all": np.ones_like(is_stateful), "stateful": is_stateful, "stateless": ~is_stateful}[tasks]


def _active_counts(state: ApplicationState, assignment: Answer, tasks: WhichTasks) -> Int64Array:
    """(C,) number of active tasks of each client."""
    check_choice("The tasks", tasks, get_args(WhichTasks), ConfigException)
    assigned = _wrapped(state, assignment)
    columns, counting = state.columns, _that_count(state, tasks)
    counts = np.zeros(len(columns.clients), dtype=np.int64)
    for each in assigned:
        client = columns.clients.find(each.process_id)
        active = [task.id for task in each.tasks.values() if task.type is AssignedTask.Type.ACTIVE]
        numbers = [number for number in map(columns.tasks.find, active) if number >= 0]
        if client >= 0:
            counts[client] += int(counting[numbers].sum())
    return counts
