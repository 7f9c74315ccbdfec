"""`MinCostTaskAssignor`: active tasks go where a cost model says they cost least, provably."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

import attrs

from task_assignor.builtin_assignors.cost_model import CostModel, RackTrafficCostModel
from task_assignor.sdk import ApplicationState, ConfigKey, TaskAssignment, TaskAssignor, TaskId
from task_assignor.sdk.config_def import given_value
from task_assignor.sdk.text import shown
from task_assignor.utils import (
    CostModelException,
    Goal,
    check_has_clients,
    default_standby_task_assignment,
    place_at_least_cost,
)

MIN_COST_MODEL: Final = "min.cost.model"


@attrs.frozen
class Quality:
    """How good a placement of the active tasks is, in the cost model's own terms.

    Args:
        cost: what it costs.
        lower_bound: no placement within the capacities costs less.
        is_proven_optimal: nothing cheaper exists, and nothing as cheap with fewer moves. Never true with task weights.
        moves: tasks that left their owner.
    """

    cost: int
    lower_bound: int
    is_proven_optimal: bool
    moves: int

    @property
    def gap(self) -> int:
        """How far the cost may be from the optimum at most."""
        return self.cost - self.lower_bound


@attrs.frozen(eq=False)
class MinCostResult:
    """An assignment and how good it is.

    Args:
        assignment: what `assign` returns.
        quality: cost, bound, whether it is proven optimal.
        shortages: task -> number of standbys that could not be placed.
    """

    assignment: TaskAssignment
    quality: Quality
    shortages: Mapping[TaskId, int]


def _what_is_wrong(model: object) -> str | None:
    """What the value of `min.cost.model` must be instead; None: fine."""
    if not isinstance(model, type) or not issubclass(model, CostModel):
        return "a subclass of task_assignor.builtin_assignors.CostModel"
    if inspect.isabstract(model):
        return f"a class that defines {', '.join(f'{name}()' for name in sorted(model.__abstractmethods__))}"
    required = [
        each.name
        for each in inspect.signature(model).parameters.values()
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    return f"a class that can be made without arguments, but it needs {', '.join(required)}" if required else None


_MODEL: Final = ConfigKey(
    name=MIN_COST_MODEL,
    type="class",
    default=None,
    doc="Minimum cost assignor: the CostModel class. Default: rack traffic and stickiness at the configured costs.",
    validator=_what_is_wrong,
)


class MinCostTaskAssignor(TaskAssignor):
    """Places active tasks at the least cost that a `CostModel` says; standbys by the default rule.

    Costs are those of a task class in a rack, of a client, of staying and of moving, with exceptions for single pairs of
    class and client; clients have capacities; tasks can be pinned. Among the cheapest placements one with the fewest moves is
    taken. The optimum is proven; only with task weights, and sometimes with hundreds of thousands of classes, the result is
    good and its distance from a lower bound known (see `place_at_least_cost`).

    The model comes from the setting `min.cost.model` (a class), from a subclass that overrides `cost_model`, or is
    `RackTrafficCostModel`: rack traffic and stickiness at the configured costs, everybody within floor..ceil of the share.

    `solve` gives the assignment with its `Quality`.

    Source of the idea: Firmament (OSDI 2016), whose cost models feed one flow network.
    """

    config_keys = (_MODEL,)

    def __init__(self) -> None:
        self._configs: Mapping[str, object] = {}
        self._model: object = None

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `min.cost.model`; the model is configured with all settings, and one here, to see whether it takes them."""
        self._configs = configs
        self._model = given_value(_MODEL, configs)
        if isinstance(self._model, type):
            self._model().configure(configs)

    def cost_model(self, application_state: ApplicationState) -> CostModel:  # noqa: ARG002 -- for subclasses
        """The cost model for this state. Override it to build a model with arguments of its own.

        Args:
            application_state: what will be assigned.
        """
        model: CostModel = self._model() if isinstance(self._model, type) else RackTrafficCostModel()
        model.configure(self._configs)
        return model

    def solve(self, application_state: ApplicationState) -> MinCostResult:
        """Place the tasks and say how good the placement is.

        Raises:
            CostModelException: the costs do not fit the state, there are too many exceptions, or the capacities leave no
                room for all tasks; the message says which.
            TaskAssignmentException: there are tasks but no clients.
        """
        check_has_clients(application_state)
        model = self.cost_model(application_state)
        if not isinstance(model, CostModel):
            raise CostModelException(f"cost_model() must return an object of a CostModel, but returned {shown(model)}.")
        placed = place_at_least_cost(application_state, model.costs(application_state))
        # A placement has a cost and a bound.
        cost, bound = int(placed.cost_after or 0), int(placed.lower_bound or 0)
        is_proven = Goal.ACTIVE_COST not in placed.inexact
        result = default_standby_task_assignment(application_state, placed, in_task_order=True)
        quality = Quality(cost, bound, is_proven, placed.moves)
        return MinCostResult(TaskAssignment(result), quality, dict(result.shortages))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the rules, `solve` for the quality.

        Raises:
            CostModelException, TaskAssignmentException: see `solve`.
        """
        return self.solve(application_state).assignment
