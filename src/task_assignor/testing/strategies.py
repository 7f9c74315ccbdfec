"""Hypothesis strategies. What they draw is described in `drawing.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, Unpack

from task_assignor.sdk import ApplicationState, AssignmentConfigs, MissingExtraException, TaskAssignment
from task_assignor.testing.drawing import ShapeArguments, StateShape, draw_assignment, draw_configs, draw_state

try:
    from hypothesis import strategies as st
except ImportError:
    raise MissingExtraException("testing", "task_assignor.testing.strategies", "hypothesis") from None

Value = TypeVar("Value")


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


def application_states(**shape: Unpack[ShapeArguments]) -> st.SearchStrategy[ApplicationState]:
    """States of all kinds, also odd ones: see `StateShape`, which takes the same arguments.

    Examples:
        >>> from hypothesis import given
        >>> @given(application_states(max_tasks=5))
        ... def test_it(state): assert len(state.all_tasks) <= 5
        >>> test_it()
    """
    return _states(StateShape(**shape))


@st.composite
def _states(draw: st.DrawFn, shape: StateShape) -> ApplicationState:
    return draw_state(_DrawnChoices(draw), shape)


@st.composite
def assignment_configs(draw: st.DrawFn) -> AssignmentConfigs:
    """Settings of all kinds."""
    return draw_configs(_DrawnChoices(draw), StateShape())


@st.composite
def task_assignments(draw: st.DrawFn, state: ApplicationState) -> TaskAssignment:
    """Answers to the state, usually wrong ones."""
    return draw_assignment(_DrawnChoices(draw), state)
