"""Random states from a seed, many and fast, for tests in the mass. Those that shrink to a small case are in `strategies.py`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar, Unpack

from task_assignor.sdk import ApplicationState, TaskAssignment
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.testing.drawing import Choices, ShapeArguments, StateShape, draw_assignment, draw_state

Value = TypeVar("Value")


class _SeededChoices:
    """Choices of a seeded generator."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._rng.randint(low, high)

    def element(self, values: Sequence[Value]) -> Value:
        return values[int(self._rng.random() * len(values))]

    def rarely(self, one_in: int) -> bool:
        return self._rng.random() * one_in < 1


def seeded_choices(seed: str) -> Choices:
    """Choices of a seeded generator; equal seeds give equal choices."""
    return _SeededChoices(seed)


def random_state(seed: int, number: int = 0, **shape: Unpack[ShapeArguments]) -> ApplicationState:
    """The state with this number of those that `random_states(seed, ...)` gives.

    Args:
        seed: equal seeds give equal states, on every machine.
        number: which one.
        **shape: as `StateShape` takes it, for example `max_tasks=50`.

    Raises:
        ConfigException: the shape is wrong, the seed is no int, or `number` is not one from 0.
    """
    return _numbered(_checked_seed(seed), whole_number("number", number, 0), StateShape(**shape))


def random_states(
    seed: int, count: int, *, start: int = 0, **shape: Unpack[ShapeArguments]
) -> Iterator[ApplicationState]:
    """Random states: all kinds of tasks, topologies, racks, tags, settings, lags and histories.

    Args:
        seed: equal seeds give equal states, on every machine.
        count: how many.
        start: number of the first one. Any state can be had again with `random_state(seed, number)`.
        **shape: as `StateShape` takes it, for example `max_tasks=50`.

    Raises:
        ConfigException: the shape is wrong, the seed is no int, or `count` or `start` is not an int from 0.

    Examples:
        >>> [len(state.all_tasks) <= 12 for state in random_states(1, 3)]
        [True, True, True]
    """
    count, start = whole_number("count", count, 0), whole_number("start", start, 0)
    seed = _checked_seed(seed)
    wanted = StateShape(**shape)  # not in the iterator: a wrong shape is an error here
    return (_numbered(seed, number, wanted) for number in range(start, start + count))


def random_assignment(state: ApplicationState, seed: int) -> TaskAssignment:
    """A random answer to the state, usually a wrong one."""
    return draw_assignment(seeded_choices(f"assignment/{_checked_seed(seed)}"), state)


def _checked_seed(seed: int) -> int:
    return whole_number("seed", seed, -INT64_MAX, INT64_MAX)


def _numbered(seed: int, number: int, shape: StateShape) -> ApplicationState:
    return draw_state(seeded_choices(f"{seed}/{number}"), shape)
