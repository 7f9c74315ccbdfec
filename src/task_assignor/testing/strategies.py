"""Hypothesis strategies. What they draw is described in `drawing.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, Unpack

from task_assignor.sdk import (
    ApplicationState,
    AssignmentConfigs,
    MissingExtraException,
    StateException,
    TaskAssignment,
    assignment_to_json,
    state_to_json,
)
from task_assignor.sdk.text import shown
from task_assignor.testing.drawing import ShapeArguments, StateShape, draw_assignment, draw_configs, draw_state

try:
    from hypothesis import note
    from hypothesis import strategies as st
except ImportError:
    raise MissingExtraException("testing", "task_assignor.testing.strategies", "hypothesis") from None

Value = TypeVar("Value")

_LONGEST_NOTE: Final = 20_000


class _DrawnChoices:
    """Choices of Hypothesis, which shrinks them towards the first value."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def element(self, values: Sequence[Value]) -> Value:
        return self._draw(st.sampled_from(values))

    def rarely(self, one_in: int) -> bool:
        return self._draw(st.integers(0, one_in - 1)) == one_in - 1


class _Note:
    """What Hypothesis prints beside a case that fails; put into words only then."""

    def __init__(self, what: str, reader: str, to_json: Callable[[], Any]) -> None:
        self._what = what
        self._reader = reader
        self._to_json = to_json

    def __repr__(self) -> str:
        text = json.dumps(self._to_json(), separators=(",", ":"))
        if len(text) > _LONGEST_NOTE:
            return f"{self._what} is too large to be shown ({len(text):,} characters of JSON). Ask for fewer tasks and clients."
        return f"{self._what}, as {self._reader}:\n{text}"


def application_states(**shape: Unpack[ShapeArguments]) -> st.SearchStrategy[ApplicationState]:
    """States of all kinds, also odd ones: see `StateShape`, which takes the same arguments.

    Where a test fails, Hypothesis prints the state as one line of JSON, as `task-assignor plan -` and
    `state_from_json` read it.

    Raises:
        ConfigException: the shape is wrong.

    Examples:
        >>> from hypothesis import given
        >>> @given(application_states(max_tasks=5))
        ... def test_it(state): assert len(state.all_tasks) <= 5
        >>> test_it()
    """
    return _states(StateShape(**shape))


@st.composite
def _states(draw: st.DrawFn, shape: StateShape) -> ApplicationState:
    state = draw_state(_DrawnChoices(draw), shape)
    note(_Note("The state", "`task-assignor plan -` reads it", lambda: state_to_json(state)))
    return state


@st.composite
def assignment_configs(draw: st.DrawFn) -> AssignmentConfigs:
    """Settings of all kinds."""
    return draw_configs(_DrawnChoices(draw), StateShape())


@st.composite
def task_assignments(draw: st.DrawFn, state: ApplicationState) -> TaskAssignment:
    """Answers to the state, usually wrong ones; noted where a test fails, as the states are.

    Raises:
        StateException: the state is not an `ApplicationState`; when an answer is drawn.
    """
    if not isinstance(state, ApplicationState):
        raise StateException(f"The state ({shown(state)}) must be an ApplicationState.")
    assignment = draw_assignment(_DrawnChoices(draw), state)
    note(_Note("The assignment", "`task-assignor validate` reads it", lambda: assignment_to_json(assignment)))
    return assignment
