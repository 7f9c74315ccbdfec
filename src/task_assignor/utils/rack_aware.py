"""The rack-aware optimisers of KIP-924 and KIP-925 on objects: what to optimise, and a new assignment. How is in `_rack...`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

import attrs
import numpy as np

from task_assignor.sdk import ApplicationState, AssignmentColumns, Role, StateException, TaskId, UnknownTaskError
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.checks import all_of
from task_assignor.sdk.columns import Int32Array, Int64Array
from task_assignor.utils.given import Assignments, inexact_of, known_rows
from task_assignor.utils.goals import Goal
from task_assignor.utils.rack_actives import ActiveOutcome, check_cost, optimize_active_columns
from task_assignor.utils.rack_standbys import StandbyOutcome, optimize_standby_columns
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

    @classmethod
    def of(cls, application_state: ApplicationState) -> RackAwareOptimizationParams:
        """Optimise all tasks that the assignment places in the role that is looked at.

        Raises:
            StateException: not an `ApplicationState`.
        """
        check_state(application_state)
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
    params = _checked(optimization_params)
    state = params.application_state
    rows = _RoleRows.of(state, kafka_streams_assignments)
    selected = params.task_numbers()
    owner = rows.owners()
    outcome = optimize_active_columns(
        state.columns,
        owner,
        selected,
        traffic_cost=params.traffic_cost,
        non_overlap_cost=params.non_overlap_cost,
        strategy=state.assignment_configs.rack_aware_assignment_strategy,
        partitions="all",
    )
    rows.check_owners(selected, outcome)
    is_active, client = rows.role == Role.ACTIVE, rows.client.copy()
    moved = (outcome.owner != owner)[rows.task]
    client[moved & is_active] = outcome.owner[rows.task[moved & is_active]]
    # A standby where the active task goes: the former owner takes it over.
    meets = moved & ~is_active & (outcome.owner[rows.task] == rows.client)
    client[meets] = owner[rows.task[meets]]
    return rows.result(rows.task, client, rows.role, outcome, Goal.ACTIVE_COST)


def optimize_rack_aware_standby_tasks(
    optimization_params: RackAwareOptimizationParams,
    kafka_streams_assignments: Assignments,
) -> AssignmentResult:
    """Swap standbys between clients for less rack-aware cost.

    The cost is trafficCost x changelog partitions without a replica in the client's rack + nonOverlapCost x standbys that
    get another client. Each client keeps its number of the selected standbys; none goes to a client that has the task; of
    the configured `rack.aware.assignment.tags` the holders of a task keep at least as many distinct values. The result says
    how far it can be from the optimum (`gap`); nearly always that is 0. A second call changes nothing.

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
    params = _checked(optimization_params)
    state = params.application_state
    rows = _RoleRows.of(state, kafka_streams_assignments)
    is_standby = rows.role == Role.STANDBY
    selected = np.intersect1d(params.task_numbers(), rows.task[is_standby])
    outcome = optimize_standby_columns(
        state.columns,
        rows.owners(),
        rows.task[is_standby],
        rows.client[is_standby],
        traffic_cost=params.traffic_cost,
        non_overlap_cost=params.non_overlap_cost,
        tags=state.assignment_configs.rack_aware_assignment_tags,
        selected=selected,
        strategy=state.assignment_configs.rack_aware_assignment_strategy,
    )
    rows.check_owners(selected, outcome)
    return rows.result(
        np.concatenate([rows.task[~is_standby], outcome.standby_task]),
        np.concatenate([rows.client[~is_standby], outcome.standby_client]),
        np.concatenate([rows.role[~is_standby], np.full(len(outcome.standby_task), int(Role.STANDBY))]),
        outcome,
        Goal.STANDBY_COST,
    )


def _checked(params: RackAwareOptimizationParams) -> RackAwareOptimizationParams:
    if not isinstance(params, RackAwareOptimizationParams):
        raise StateException(
            f"The optimization_params ({params!r}) must be RackAwareOptimizationParams. "
            "Maybe use RackAwareOptimizationParams.of(state)."
        )
    return params


@attrs.frozen(eq=False)
class _RoleRows:
    """An assignment as rows. Other than a `Placement` it may have tasks with several active owners, as long as they stay."""

    state: ApplicationState
    task: Int64Array
    client: Int64Array
    role: Int64Array
    deadline_ms: Int64Array
    inexact: frozenset[str]

    @classmethod
    def of(cls, state: ApplicationState, assignments: Assignments) -> _RoleRows:
        rows, deadline_ms = known_rows(state, assignments)
        client = rows.entry_client[rows.entry]
        return cls(state, rows.task, client, rows.role, deadline_ms, inexact_of(assignments))

    def owners(self) -> Int32Array:
        """(T,) active owner of each task, one of them if there are several; -1: nobody."""
        owner = np.full(len(self.state.columns.tasks), -1, dtype=np.int32)
        active = self.role == Role.ACTIVE
        owner[self.task[active]] = self.client[active]
        return owner

    def check_owners(self, selected: Int64Array, outcome: ActiveOutcome | StandbyOutcome) -> None:
        """Raise if something was done, and a selected task has several active owners.

        Raises:
            StateException: so it is.
        """
        columns = self.state.columns
        active = self.role == Role.ACTIVE
        several = np.bincount(self.task[active], minlength=len(columns.tasks)) > 1
        wrong = selected[several[selected]]
        if len(wrong) and outcome.skipped is None:
            clients = np.sort(self.client[active & (self.task == wrong[0])]).tolist()
            first, second = (columns.clients.process_ids[client] for client in clients[:2])
            raise StateException(
                f"Task {columns.tasks.task_id(int(wrong[0]))} is active on two clients, {first} and {second}."
            )

    def result(
        self,
        task: Int64Array,
        client: Int64Array,
        role: Int64Array,
        outcome: ActiveOutcome | StandbyOutcome,
        goal: Goal,
    ) -> AssignmentResult:
        """A new assignment of the rows."""
        order = order_by(client, role, task)
        is_proven = outcome.cost_after == outcome.lower_bound
        return AssignmentResult(
            AssignmentColumns(self.state.columns, client[order], task[order], role[order], self.deadline_ms),
            cost_before=outcome.cost_before,
            cost_after=outcome.cost_after,
            lower_bound=outcome.lower_bound,
            skipped=outcome.skipped,
            inexact=self.inexact | (frozenset() if is_proven else {goal}),
        )
