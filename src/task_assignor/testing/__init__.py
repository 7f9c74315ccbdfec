"""For authors of assignors: builders, strategies, assertions, convergence; nothing here runs in production."""

from typing import TYPE_CHECKING, Any

from task_assignor.testing.answers import Assignor
from task_assignor.testing.assertions import (
    assert_balanced,
    assert_deterministic,
    assert_fair_shares,
    assert_valid,
)
from task_assignor.testing.builders import (
    a_client,
    a_process_id,
    a_state,
    a_stateful_task,
    a_stateless_task,
    a_task_id,
    an_assignment,
    stateful_tasks,
    stateless_tasks,
)
from task_assignor.testing.convergence import Cluster, NotConvergedError, Rebalance, run_random_story
from task_assignor.testing.drawing import StateShape
from task_assignor.testing.processes import assert_same_in_every_process
from task_assignor.testing.random_states import random_assignment, random_state, random_states
from task_assignor.testing.specs import ClientSpec, TaskSpec, shuffled, specs_of, state_of

if TYPE_CHECKING:
    from task_assignor.testing.strategies import application_states, assignment_configs, task_assignments

__all__ = [
    "Assignor",
    "ClientSpec",
    "Cluster",
    "NotConvergedError",
    "Rebalance",
    "StateShape",
    "TaskSpec",
    "a_client",
    "a_process_id",
    "a_state",
    "a_stateful_task",
    "a_stateless_task",
    "a_task_id",
    "an_assignment",
    "application_states",
    "assert_balanced",
    "assert_deterministic",
    "assert_fair_shares",
    "assert_same_in_every_process",
    "assert_valid",
    "assignment_configs",
    "random_assignment",
    "random_state",
    "random_states",
    "run_random_story",
    "shuffled",
    "specs_of",
    "state_of",
    "stateful_tasks",
    "stateless_tasks",
    "task_assignments",
]

_NEED_HYPOTHESIS = ("application_states", "assignment_configs", "task_assignments")


def __getattr__(name: str) -> Any:
    """The strategies are imported when asked for: everything else works without Hypothesis."""
    if name in _NEED_HYPOTHESIS:
        from task_assignor.testing import strategies

        return getattr(strategies, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
