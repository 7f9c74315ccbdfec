"""The rack-aware optimisers of KIP-924 and KIP-925 on objects: what to optimise, and a new assignment. How is in `_rack...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Self

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    AssignedTask,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    Role,
    StateException,
    TaskAssignment,
    TaskId,
    UnknownTaskError,
)
from task_assignor.sdk.columns import Int32Array, Int64Array
from task_assignor.utils._rack import ActiveOutcome, check_cost, optimize_active_columns
from task_assignor.utils._rack_standby import StandbyOutcome, optimize_standby_columns
from task_assignor.utils.result import AssignmentResult
from task_assignor.validation._rows import AssignmentRows, check_state, rows_of

Kind = Literal["all", "stateful", "stateless", "given"]


@attrs.frozen
class RackAwareOptimizationParams:
    """Which tasks a rack-aware optimiser may move, and at which costs (KIP-924, `RackAwareOptimizationParams`). A value.

    Start with `of(state)` and refine; every method gives a new object. Costs that are not overridden are the configured
    ones; an override counts as configured.

    Examples:
        >>> from task_assignor.sdk import ApplicationStateBuilder
        >>> state = ApplicationStateBuilder().build()
        >>> RackAwareOptimizationParams.of(state).for_stateful_tasks().with_traffic_cost_override(10)
        RackAwareOptimizationParams(stateful tasks, traffic cost 10)
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
        """
        chosen = tuple(sorted(set(tasks)))
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
    kafka_streams_assignments: Mapping[ProcessId, KafkaStreamsAssignment],
) -> AssignmentResult:
    """Swap active tasks between clients for the least rack-aware cost; a proven optimum.

    The cost is trafficCost x topic partitions without a replica in the client's rack (all partitions of a task count) +
    nonOverlapCost x tasks that get another client. Each client keeps its number of the selected tasks; with
    `balance_subtopology` it also gets at most its share of each sub-topology. Among the cheapest placements one with the
    fewest moves is taken, so a second call changes nothing.

    Where the new client of a task holds a standby of it, the two clients change roles: the copies stay where they are.

    Args:
        optimization_params: state, tasks that may move, costs.
        kafka_streams_assignments: the assignment; it is not changed. Tasks and clients that the state does not know, and
            follow-up deadlines, are taken over as they are.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        StateException: a selected task is active on several clients, or the arguments are something else.

    Source: KIP-924, `TaskAssignmentUtils.optimizeRackAwareActiveTasks`, which changes its argument; KIP-925.
    """
    given = _Given.of(optimization_params, kafka_streams_assignments)
    params, columns = optimization_params, optimization_params.application_state.columns
    selected = params.task_numbers()
    owner = given.owners(selected)
    outcome = optimize_active_columns(
        columns,
        owner,
        selected,
        traffic_cost=params.traffic_cost,
        non_overlap_cost=params.non_overlap_cost,
        strategy=params.application_state.assignment_configs.rack_aware_assignment_strategy,
        partitions="all",
    )
    client = given.client.copy()
    moved = np.zeros(len(columns.tasks), dtype=np.bool_)
    moved[selected] = (outcome.owner != owner)[selected]
    rows = np.flatnonzero((given.role == Role.ACTIVE) & moved[given.task])
    client[rows] = outcome.owner[given.task[rows]]
    # A standby where the active task goes: the former owner takes it over.
    standby = np.flatnonzero((given.role == Role.STANDBY) & moved[given.task])
    standby = standby[client[standby] == outcome.owner[given.task[standby]]]
    client[standby] = owner[given.task[standby]]
    return given.result(
        given.task,
        client,
        given.role,
        outcome,
    )


def optimize_rack_aware_standby_tasks(
    optimization_params: RackAwareOptimizationParams,
    kafka_streams_assignments: Mapping[ProcessId, KafkaStreamsAssignment],
) -> AssignmentResult:
    """Swap standbys between clients for less rack-aware cost.

    The cost is trafficCost x changelog partitions without a replica in the client's rack + nonOverlapCost x standbys that
    get another client. Each client keeps its number of the selected standbys; none goes to a client that has the task; of
    the configured `rack.aware.assignment.tags` the holders of a task keep at least as many distinct values. The result says
    how far it can be from the optimum (`gap`); nearly always that is 0. A second call changes nothing.

    Both strategies, `min_traffic` and `balance_subtopology`, do the same here.

    Args:
        optimization_params: state, tasks whose standbys may move, costs.
        kafka_streams_assignments: the assignment; it is not changed. Tasks and clients that the state does not know, and
            follow-up deadlines, are taken over as they are.

    Returns:
        A new assignment with costs, or `skipped` with the reason why nothing could be done.

    Raises:
        StateException: a task that has a standby is active on several clients, or the arguments are something else.

    Source: KIP-924, `TaskAssignmentUtils.optimizeRackAwareStandbyTasks`, which changes its argument; KIP-925.
    """
    given = _Given.of(optimization_params, kafka_streams_assignments)
    params = optimization_params
    configs = params.application_state.assignment_configs
    is_standby = given.role == Role.STANDBY
    selected = np.intersect1d(params.task_numbers(), given.task[is_standby])
    outcome = optimize_standby_columns(
        params.application_state.columns,
        given.owners(selected),
        given.task[is_standby],
        given.client[is_standby],
        traffic_cost=params.traffic_cost,
        non_overlap_cost=params.non_overlap_cost,
        tags=configs.rack_aware_assignment_tags,
        selected=selected,
        strategy=configs.rack_aware_assignment_strategy,
    )
    others = ~is_standby
    return given.result(
        np.concatenate([given.task[others], outcome.standby_task]),
        np.concatenate([given.client[others], outcome.standby_client]),
        np.concatenate([given.role[others], np.full(len(outcome.standby_task), int(Role.STANDBY))]),
        outcome,
    )


@attrs.frozen(eq=False)
class _Given:
    """An assignment as rows of known tasks on known clients, and what is not known beside it."""

    state: ApplicationState
    assignment: TaskAssignment
    rows: AssignmentRows
    known: npt.NDArray[np.bool_]
    task: Int64Array
    client: Int64Array
    role: Int64Array

    @classmethod
    def of(cls, params: RackAwareOptimizationParams, assignments: Mapping[ProcessId, KafkaStreamsAssignment]) -> _Given:
        if not isinstance(params, RackAwareOptimizationParams):
            raise StateException(
                f"The optimization_params ({params!r}) must be RackAwareOptimizationParams. "
                "Maybe use RackAwareOptimizationParams.of(state)."
            )
        if not isinstance(assignments, Mapping):
            raise StateException(
                f"The assignments must be a mapping of process ids, not a {type(assignments).__name__}. "
                "Maybe use {each.process_id: each for each in assignments}."
            )
        assignment = TaskAssignment(assignments)
        for key, value in zip(assignments, assignment, strict=True):
            if key != value.process_id:
                raise StateException(f"The assignment under process id {key} is that of client {value.process_id}.")
        rows = rows_of(params.application_state, assignment)
        client = rows.entry_client[rows.entry]
        known = (client >= 0) & (rows.task >= 0)
        return cls(params.application_state, assignment, rows, known, rows.task[known], client[known], rows.role[known])

    def owners(self, selected: Int64Array) -> Int32Array:
        """(T,) active owner of each task; -1: nobody.

        Raises:
            StateException: a selected task has several.
        """
        columns = self.state.columns
        owner = np.full(len(columns.tasks), -1, dtype=np.int32)
        active = self.role == Role.ACTIVE
        owner[self.task[active]] = self.client[active]
        several = np.bincount(self.task[active], minlength=len(columns.tasks)) > 1
        wrong = selected[several[selected]]
        if len(wrong):
            task = int(wrong[0])
            names = ", ".join(
                str(columns.clients.process_ids[client])
                for client in np.sort(self.client[active & (self.task == task)])
            )
            raise StateException(
                f"Task {columns.tasks.task_id(task)} is active on several clients: {names}. Maybe validate first."
            )
        return owner

    def result(
        self, task: Int64Array, client: Int64Array, role: Int64Array, outcome: ActiveOutcome | StandbyOutcome
    ) -> AssignmentResult:
        """A new assignment of the rows; what the state does not know, and deadlines, as given."""
        columns = self.state.columns
        deadline = np.full(len(columns.clients), MISSING, dtype=np.int64)
        for entry, each in zip(self.rows.entry_client.tolist(), self.assignment, strict=True):
            if entry >= 0 and each.followup_rebalance_deadline_ms is not None:
                deadline[entry] = each.followup_rebalance_deadline_ms
        order = np.lexsort((task, role, client))
        made = AssignmentColumns(columns, client[order], task[order], role[order], deadline)
        if self.known.all() and (self.rows.entry_client >= 0).all():
            return AssignmentResult.of_columns(
                made,
                cost_before=outcome.cost_before,
                cost_after=outcome.cost_after,
                lower_bound=outcome.lower_bound,
                skipped=outcome.skipped,
            )
        by_client = {each.process_id: each for each in made.assignments()}
        for each, entry in zip(self.assignment, self.rows.entry_client.tolist(), strict=True):
            unknown = [
                assigned for task_id, assigned in each.tasks.items() if entry < 0 or columns.tasks.find(task_id) < 0
            ]
            if entry < 0 or unknown:
                by_client[each.process_id] = _with(by_client.get(each.process_id), each, unknown)
        return AssignmentResult(
            by_client,
            cost_before=outcome.cost_before,
            cost_after=outcome.cost_after,
            lower_bound=outcome.lower_bound,
            skipped=outcome.skipped,
        )


def _with(
    made: KafkaStreamsAssignment | None, given: KafkaStreamsAssignment, unknown: list[AssignedTask]
) -> KafkaStreamsAssignment:
    """What was made of the known tasks, with the unknown ones."""
    known = [] if made is None else list(made.tasks.values())
    both = KafkaStreamsAssignment.of(given.process_id, [*known, *unknown])
    deadline = given.followup_rebalance_deadline_ms
    return both if deadline is None else both.with_followup_rebalance(deadline)
