"""The rack-aware optimisers of KIP-924 and KIP-925 as the KIP has them: parameters that say which tasks, at which costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Self, get_args

import attrs
import numpy as np

from task_assignor.sdk import ApplicationState, AssignedTask, StateException, TaskId, UnknownTaskError
from task_assignor.sdk.checks import all_of, check_choice
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.text import shown
from task_assignor.utils.given import Assignments, active_twice, inexact_of, placement_and_others
from task_assignor.utils.rack_actives import optimize_actives
from task_assignor.utils.rack_costs import check_cost
from task_assignor.utils.rack_standbys import optimize_standbys
from task_assignor.utils.result import AssignmentResult
from task_assignor.validation.rows import check_state

Kind = Literal["all", "stateful", "stateless", "given"]


@attrs.frozen
class RackAwareOptimizationParams:
    """Which tasks a rack-aware optimiser may move, and at which costs. A value.

    Start with `of(state)` and refine; every method gives a new object. Costs that are not overridden are the configured
    ones; an override counts as configured.

    Examples:
        >>> from task_assignor.sdk import ApplicationStateBuilder
        >>> state = ApplicationStateBuilder().build()
        >>> RackAwareOptimizationParams.of(state).for_stateful_tasks().with_traffic_cost_override(10)
        RackAwareOptimizationParams(stateful tasks, traffic cost 10)

    Source: KIP-924, Read-only APIs, `RackAwareOptimizationParams`.
    """

    application_state: ApplicationState = attrs.field(repr=False)
    kind: Kind = "all"
    tasks: tuple[TaskId, ...] = ()
    traffic_cost_override: int | None = None
    non_overlap_cost_override: int | None = None

    def __attrs_post_init__(self) -> None:
        check_state(self.application_state)
        check_choice("The kind", self.kind, get_args(Kind))

    @classmethod
    def of(cls, application_state: ApplicationState) -> RackAwareOptimizationParams:
        """Optimise all tasks that the assignment places in the role that is looked at.

        Raises:
            StateException: not an `ApplicationState`.
        """
        return cls(application_state)

    def for_stateful_tasks(self) -> Self:
        """Only tasks with a state store, logged or not."""
        return attrs.evolve(self, kind="stateful", tasks=())

    def for_stateless_tasks(self) -> Self:
        """Only tasks without a state store."""
        return attrs.evolve(self, kind="stateless", tasks=())

    def for_tasks(self, tasks: Iterable[TaskId]) -> Self:
        """Only these tasks; those that the assignment does not place in the role that is looked at stay unplaced.

        Raises:
            UnknownTaskError: the application has no such task.
            StateException: not a list of task ids.
        """
        chosen = tuple(sorted(set(all_of("tasks", TaskId, tasks))))
        for task in chosen:
            if self.application_state.columns.tasks.find(task) < 0:
                raise UnknownTaskError(f"The application has no task {task} that could be optimised.")
        return attrs.evolve(self, kind="given", tasks=chosen)

    def with_traffic_cost_override(self, traffic_cost: int) -> Self:
        """Take this cost of a cross-rack partition instead of `rack.aware.assignment.traffic_cost`.

        Raises:
            ConfigException: not an int from 0 to 2^31 - 1.
        """
        return attrs.evolve(self, traffic_cost_override=check_cost("traffic cost override", traffic_cost))

    def with_non_overlap_cost_override(self, non_overlap_cost: int) -> Self:
        """Take this cost of a moved task instead of `rack.aware.assignment.non_overlap_cost`.

        Raises:
            ConfigException: not an int from 0 to 2^31 - 1.
        """
        return attrs.evolve(self, non_overlap_cost_override=check_cost("non-overlap cost override", non_overlap_cost))

    @property
    def traffic_cost(self) -> int | None:
        """The override, else what is configured; None: neither."""
        if self.traffic_cost_override is not None:
            return self.traffic_cost_override
        return self.application_state.assignment_configs.rack_aware_traffic_cost

    @property
    def non_overlap_cost(self) -> int | None:
        """The override, else what is configured; None: neither."""
        if self.non_overlap_cost_override is not None:
            return self.non_overlap_cost_override
        return self.application_state.assignment_configs.rack_aware_non_overlap_cost

    def task_numbers(self) -> Int64Array:
        """Numbers of the tasks that may move, ascending."""
        tasks = self.application_state.columns.tasks
        if self.kind == "given":
            return np.array([tasks.find(task) for task in self.tasks], dtype=np.int64)
        if self.kind == "all":
            return np.arange(len(tasks))
        return np.flatnonzero(tasks.is_stateful == (self.kind == "stateful"))

    def __repr__(self) -> str:
        facts = [f"{len(self.tasks)} tasks" if self.kind == "given" else f"{self.kind} tasks"]
        if self.traffic_cost_override is not None:
            facts.append(f"traffic cost {self.traffic_cost_override}")
        if self.non_overlap_cost_override is not None:
            facts.append(f"non-overlap cost {self.non_overlap_cost_override}")
        return f"RackAwareOptimizationParams({', '.join(facts)})"


def optimize_rack_aware_active_tasks(
    optimization_params: RackAwareOptimizationParams,
    kafka_streams_assignments: Assignments,
) -> AssignmentResult:
    """Swap active tasks between clients for the least rack-aware cost.

    The cost is trafficCost x topic partitions without a replica in the client's rack (all partitions of a task count) +
    nonOverlapCost x tasks that get another client. Each client keeps its number of the selected tasks; with
    `balance_subtopology` it also gets at most its share of each sub-topology. Among the cheapest placements one with the
    fewest moves is taken, so a second call changes nothing. The optimum is proven (`gap` 0), but for `balance_subtopology` with
    more than 50 000 tasks, or pairs of client and sub-topology, where the result says how far it may be off.

    Where the new client of a task holds a standby of it, the two clients change roles: the copies stay where they are.

    Args:
        optimization_params: state, tasks that may move, costs.
        kafka_streams_assignments: the assignment; it is not changed. Clients may be left out. Follow-up deadlines stay.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        StateException: unknown clients or tasks, or a task that may move is active on two clients.

    Source: KIP-924, Read-only APIs, `TaskAssignmentUtils.optimizeRackAwareActiveTasks`, which changes its argument; KIP-925.
    """
    return _optimized(optimize_actives, optimization_params, kafka_streams_assignments)


def optimize_rack_aware_standby_tasks(
    optimization_params: RackAwareOptimizationParams,
    kafka_streams_assignments: Assignments,
) -> AssignmentResult:
    """Swap standbys between clients for less rack-aware cost.

    The cost is trafficCost x changelog partitions without a replica in the client's rack + nonOverlapCost x standbys that
    get another client. Each client keeps its number of the selected standbys; none goes to a client that has the task; of
    the configured `rack.aware.assignment.tags` the holders of a task keep at least as many distinct values. The result says
    how far it can be from the optimum (`gap`); nearly always that is 0. Among the cheapest placements it is one with the
    fewest moves, unless `inexact` names `STANDBY_STATE`. A second call changes nothing.

    Both strategies, `min_traffic` and `balance_subtopology`, do the same here.

    Args:
        optimization_params: state, tasks whose standbys may move, costs.
        kafka_streams_assignments: the assignment; it is not changed. Clients may be left out. Follow-up deadlines stay.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        StateException: unknown clients or tasks, or a task that may move is active on two clients.

    Source: KIP-924, Read-only APIs, `TaskAssignmentUtils.optimizeRackAwareStandbyTasks`, which changes its argument; KIP-925.
    """
    return _optimized(optimize_standbys, optimization_params, kafka_streams_assignments)


def _optimized(
    optimize: Callable[..., AssignmentResult], params: RackAwareOptimizationParams, assignments: Assignments
) -> AssignmentResult:
    """The tasks of the parameters optimised. As in Kafka, others may be active on several clients, and stay there."""
    if not isinstance(params, RackAwareOptimizationParams):
        raise StateException(
            f"The optimization_params ({shown(params)}) must be RackAwareOptimizationParams. "
            "Maybe use RackAwareOptimizationParams.of(state)."
        )
    state, tasks = params.application_state, params.task_numbers()
    placed, others = placement_and_others(state, assignments)
    given = AssignmentResult(placed, inexact=inexact_of(assignments))
    result = optimize(state, given, tasks, traffic_cost=params.traffic_cost, non_overlap_cost=params.non_overlap_cost)
    for task, client in others:
        if result.skipped is None and task in tasks:
            raise active_twice(placed, task, client)
        process_id, task_id = state.columns.clients.process_ids[client], state.columns.tasks.task_id(task)
        result[process_id].assign_task(AssignedTask(task_id, AssignedTask.Type.ACTIVE))
    return result
