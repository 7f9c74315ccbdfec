"""Asks an assignor as the real hosts do: whatever is no `TaskAssignment` is no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from task_assignor.sdk import ApplicationState, ConfigException, StateException, TaskAssignment, TaskAssignor
from task_assignor.sdk.text import shown
from task_assignor.validation import report_violations

Assignor: TypeAlias = TaskAssignor | Callable[[], TaskAssignor]
"""An assignor, or what makes a fresh one on every call, such as its class."""


def instance_of(assignor: Assignor) -> TaskAssignor:
    """The assignor itself, or a fresh one.

    Raises:
        ConfigException: it is no assignor, and makes none.
    """
    found: object = assignor() if callable(assignor) and not isinstance(assignor, TaskAssignor) else assignor
    if isinstance(found, TaskAssignor):
        return found
    expected = f"The assignor ({shown(assignor)}) must be a TaskAssignor, its class, or what makes one"
    if found is not assignor:
        raise ConfigException(f"{expected}, but it made {shown(found)}.")
    named = f" Maybe StreamsConfig({{'task.assignor.class': {shown(found)}}}).task_assignor."
    raise ConfigException(f"{expected}.{named if isinstance(found, str) else ''}")


def answer_of(assignor: Assignor, state: ApplicationState) -> TaskAssignment:
    """What the assignor answers. As in production, only a `TaskAssignment` will do.

    Args:
        assignor: an assignor, or what makes a fresh one, such as its class.
        state: what it is given.

    Raises:
        AssertionError: the answer is not a `TaskAssignment`.
        ConfigException: the assignor is none, and makes none.
        StateException: the state is not an `ApplicationState`.
    """
    instance = instance_of(assignor)
    if not isinstance(state, ApplicationState):
        raise StateException(f"The state ({shown(state)}) must be an ApplicationState. Maybe state_of(tasks, clients).")
    return checked_answer(state, instance.assign(state), f"{shown(type(instance))} answered wrongly. ")


def checked_answer(state: ApplicationState, answer: object, start: str = "") -> TaskAssignment:
    """The answer, if it is a `TaskAssignment`; right or wrong.

    Args:
        state: what the assignor was given.
        answer: what it answered.
        start: what the error begins with.

    Raises:
        AssertionError: it is not.
        StateException: the state is not an `ApplicationState`.
    """
    if isinstance(answer, TaskAssignment):
        return answer
    # mypy: the report is there for answers of any kind.
    raise AssertionError(f"{start}{report_violations(state, answer)}")  # type: ignore[arg-type]
