"""`HighAvailabilityTaskAssignor` (KIP-441): a balanced target, reached step by step while tasks run where their state is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import ApplicationState, ConfigKey, TaskAssignment, TaskAssignor
from task_assignor.sdk.config_def import given_value
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_NONE
from task_assignor.utils import (
    AssignmentResult,
    Placement,
    RefinedAssignment,
    balance_active_tasks,
    balance_standby_tasks,
    check_has_clients,
    default_standby_task_assignment,
    optimize_actives,
    optimize_standbys,
    place_actives,
    place_least_loaded,
    place_standbys,
    placement_of,
    rack_problem,
    refine_with_warmups,
)

HIGH_AVAILABILITY_TARGET: Final = "high.availability.target"
ROUND_ROBIN: Final = "round_robin"
STICKY: Final = "sticky"
STATEFUL_TRAFFIC_COST: Final = 10
STATEFUL_NON_OVERLAP_COST: Final = 1
STATELESS_TRAFFIC_COST: Final = 1
STATELESS_NON_OVERLAP_COST: Final = 0

_TARGET: Final = ConfigKey(
    name=HIGH_AVAILABILITY_TARGET,
    type="string",
    default=ROUND_ROBIN,
    choices=(ROUND_ROBIN, STICKY),
    doc="High availability: where tasks should end, `round_robin` (as Kafka) or `sticky` (fewest moves).",
)


class HighAvailabilityTaskAssignor(TaskAssignor):
    """Kafka's default: tasks are always served by a client that has their state, and end evenly spread (KIP-441).

    1. The *target* of the stateful tasks (those that have a changelog) does not look at lags: round robin over the
       clients, evened out over threads; with racks, at least cross-rack traffic (KIP-925, costs 10 and 1 unless
       configured); then standbys by load or by client tags (KIP-708), evened out and optimised in the same way.
    2. The *refiner* (`refine_with_warmups`) places what is not caught up in the target where its state is, gives out
       warm-ups, and asks for a probing rebalance as long as the target is not reached.
    3. The other tasks go one by one to the client with fewest active tasks per thread; with racks, traffic decides.

    Every decision is the one Kafka 4.3 takes, with few exceptions, above all these: the client with the smallest
    process id asks for the probing rebalance (Kafka: the group leader's); of several rack-aware placements of equal cost
    it takes the one with least traffic, and standbys may cost less; where lags are not known it raises, and does not leave the
    decision to `FallbackPriorTaskAssignor`.

    With `high.availability.target=sticky` the target of step 1 is that of `StickyTaskAssignor`, all tasks included: it
    follows from where the tasks are, so one client more or less moves only its share. Kafka has no such setting.
    """

    config_keys = (_TARGET,)

    def __init__(self) -> None:
        self._target: object = ROUND_ROBIN

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `high.availability.target`."""
        self._target = given_value(_TARGET, configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for how.

        Raises:
            TaskAssignmentException: there are tasks but no clients, or the lags of a client are not known.
        """
        return TaskAssignment(high_availability_plan(application_state, is_sticky=self._target == STICKY).result)


@attrs.frozen(eq=False)
class HighAvailabilityPlan:
    """The steps of a decision.

    Args:
        target: where the stateful tasks should end (with a sticky target: all tasks).
        refined: what of it can be done now.
        result: the assignment, with the other tasks.
        are_racks_usable: whether racks count at all.
        rack_rounds: each optimisation by racks, in order.
    """

    target: Placement
    refined: RefinedAssignment
    result: AssignmentResult
    are_racks_usable: bool
    rack_rounds: tuple[RackRound, ...]


def high_availability_plan(application_state: ApplicationState, is_sticky: bool = False) -> HighAvailabilityPlan:
    """Decide as `HighAvailabilityTaskAssignor` does, and keep the steps.

    Args:
        application_state: the state.
        is_sticky: whether the target is the sticky one.

    Raises:
        TaskAssignmentException: there are tasks but no clients, or the lags of a client are not known.
    """
    check_has_clients(application_state)
    racks = _Racks(application_state)
    target = (_sticky_target if is_sticky else _round_robin_target)(application_state, racks)
    refined = refine_with_warmups(application_state, target)
    result = racks.optimize_stateless(place_least_loaded(application_state, refined))
    steps = placement_of(application_state, target), refined, result
    return HighAvailabilityPlan(*steps, racks.are_usable, tuple(racks.rounds))


def _round_robin_target(state: ApplicationState, racks: _Racks) -> AssignmentResult:
    """Kafka's target: the stateful tasks in turn, evened out over threads and racks; then their standbys."""
    stateful = np.flatnonzero(state.columns.tasks.has_changelog)
    owner = np.full(len(state.columns.tasks), -1)
    if len(stateful):
        owner[stateful] = np.arange(len(stateful)) % len(state.columns.clients)
    dealt = balance_active_tasks(state, Placement.of(state.columns, owner))
    # Nothing runs there yet, so leaving it is no loss in itself.
    return _with_default_standbys(state, racks, racks.optimize_stateful(dealt, ties_stay=False))


def _sticky_target(state: ApplicationState, racks: _Racks) -> AssignmentResult:
    """The target of `StickyTaskAssignor`; with client tags the standbys are Kafka's: tags first, even loads next."""
    actives = racks.optimize_stateful(place_actives(state, use_racks=False), ties_stay=True)
    if state.assignment_configs.rack_aware_assignment_tags:
        return _with_default_standbys(state, racks, actives)
    return racks.optimize_standbys(place_standbys(state, actives, use_racks=False))


def _with_default_standbys(state: ApplicationState, racks: _Racks, actives: AssignmentResult) -> AssignmentResult:
    """The default standbys, evened out over threads (with tags only between clients of equal tags) and racks."""
    if not state.assignment_configs.num_standby_replicas:
        return actives
    standbys = default_standby_task_assignment(state, actives, in_task_order=True)
    return racks.optimize_standbys(balance_standby_tasks(state, standbys))


@attrs.frozen
class RackRound:
    """One optimisation.

    Args:
        kind: `active` or `standby`.
        traffic_cost: cost of one cross-rack partition.
        non_overlap_cost: cost of moving one task.
        cost_before: cost before.
        cost_after: cost after.
    """

    kind: Literal["active", "standby"]
    traffic_cost: int
    non_overlap_cost: int
    cost_before: int | None
    cost_after: int | None


class _Racks:
    """The rack-aware steps of one decision: with which costs, when, and on which partitions.

    As in Kafka, every client needs a rack, every source partition a replica in a known rack, and with standbys
    every changelog partition too; else all of the steps are left out.
    """

    def __init__(self, state: ApplicationState) -> None:
        self._state = state
        configs = state.assignment_configs
        traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        self._traffic = STATEFUL_TRAFFIC_COST if traffic is None else traffic
        self._non_overlap = STATEFUL_NON_OVERLAP_COST if non_overlap is None else non_overlap
        self.rounds: list[RackRound] = []
        self.are_usable = (
            configs.rack_aware_assignment_strategy != RACK_AWARE_ASSIGNMENT_STRATEGY_NONE
            and self._are_known("source")
            and (not configs.num_standby_replicas or self._are_known("changelog"))
        )

    def _are_known(self, partitions: Literal["source", "changelog"]) -> bool:
        """Whether every client has a rack, and every partition that counts a replica in a known rack."""
        if rack_problem(self._state.columns, partitions=partitions) is not None:
            return False
        tasks = self._state.columns.tasks
        counts = tasks.partition_is_source if partitions == "source" else tasks.partition_is_changelog
        return all(tasks.rack_sets[rack_set] for rack_set in np.unique(tasks.partition_rack_set[counts]).tolist())

    def optimize_stateful(self, actives: AssignmentResult, *, ties_stay: bool) -> AssignmentResult:
        """The stateful tasks optimised.

        Args:
            actives: the tasks before.
            ties_stay: tasks run where they are, so of equal costs the one with fewer moves is better; else that with less
                traffic.
        """
        stateful = np.flatnonzero(self._state.columns.tasks.has_changelog)
        return self._optimize_active(actives, stateful, self._traffic, self._non_overlap, ties_stay)

    def optimize_stateless(self, actives: AssignmentResult) -> AssignmentResult:
        """The other tasks optimised."""
        stateless = np.flatnonzero(~self._state.columns.tasks.has_changelog)
        costs = STATELESS_TRAFFIC_COST, STATELESS_NON_OVERLAP_COST
        return self._optimize_active(actives, stateless, *costs, ties_stay=True)

    def _optimize_active(
        self, actives: AssignmentResult, tasks: npt.NDArray[np.int64], traffic: int, non_overlap: int, ties_stay: bool
    ) -> AssignmentResult:
        if not self.are_usable or not len(tasks):
            return actives
        found = optimize_actives(
            self._state,
            actives,
            tasks,
            traffic_cost=traffic,
            non_overlap_cost=non_overlap,
            partitions="source",
            ties_stay=ties_stay,
        )
        self.rounds.append(RackRound("active", traffic, non_overlap, found.cost_before, found.cost_after))
        return found

    def optimize_standbys(self, standbys: AssignmentResult) -> AssignmentResult:
        """The standbys optimised, on changelog partitions; the tags' diversity is kept."""
        if not self.are_usable or not len(placement_of(self._state, standbys).standby_task):
            return standbys
        found = optimize_standbys(self._state, standbys, traffic_cost=self._traffic, non_overlap_cost=self._non_overlap)
        self.rounds.append(RackRound("standby", self._traffic, self._non_overlap, found.cost_before, found.cost_after))
        return found
