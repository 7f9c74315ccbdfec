"""How high availability uses the rack-aware optimisers: with which costs, when, and on which partitions."""

from __future__ import annotations

from typing import Final

import attrs

from task_assignor.sdk.arrays import distinct
from task_assignor.sdk.columns import Int32Array, Int64Array, StateColumns
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_NONE, AssignmentConfigs
from task_assignor.utils.rack_actives import optimize_active_columns
from task_assignor.utils.rack_rows import Partitions, counted_rows, rack_problem
from task_assignor.utils.rack_standbys import optimize_standby_columns

STATEFUL_TRAFFIC_COST: Final = 10
STATEFUL_NON_OVERLAP_COST: Final = 1
STATELESS_TRAFFIC_COST: Final = 1
STATELESS_NON_OVERLAP_COST: Final = 0


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

    kind: str
    traffic_cost: int
    non_overlap_cost: int
    cost_before: int | None
    cost_after: int | None


class Racks:
    """The rack-aware steps of one decision. All of them are left out if racks cannot be used for any of them.

    As in Kafka, every client needs a rack, every source partition a replica in a known rack, and with standbys
    every changelog partition too.

    Args:
        columns: the state.
        configs: strategy, costs, tags.
    """

    def __init__(self, columns: StateColumns, configs: AssignmentConfigs) -> None:
        self._columns = columns
        self._configs = configs
        traffic, non_overlap = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        self._traffic = STATEFUL_TRAFFIC_COST if traffic is None else traffic
        self._non_overlap = STATEFUL_NON_OVERLAP_COST if non_overlap is None else non_overlap
        self.rounds: list[RackRound] = []
        self.are_usable = (
            configs.rack_aware_assignment_strategy != RACK_AWARE_ASSIGNMENT_STRATEGY_NONE
            and self._are_known("source")
            and (not configs.num_standby_replicas or self._are_known("changelog"))
        )

    def _are_known(self, partitions: Partitions) -> bool:
        """Whether every client has a rack, and every partition that counts a replica in a known rack."""
        if rack_problem(self._columns, partitions=partitions) is not None:
            return False
        tasks = self._columns.tasks
        used = distinct(tasks.partition_rack_set[counted_rows(self._columns, partitions)])
        return all(tasks.rack_sets[rack_set] for rack_set in used.tolist())

    def _optimize_active(
        self, owner: Int32Array, tasks: Int64Array, traffic: int, non_overlap: int, ties_stay: bool
    ) -> Int32Array:
        if not self.are_usable or not len(tasks):
            return owner
        outcome = optimize_active_columns(
            self._columns,
            owner,
            tasks,
            traffic_cost=traffic,
            non_overlap_cost=non_overlap,
            strategy=self._configs.rack_aware_assignment_strategy,
            partitions="source",
            ties_stay=ties_stay,
        )
        self.rounds.append(RackRound("active", traffic, non_overlap, outcome.cost_before, outcome.cost_after))
        return outcome.owner

    def optimize_stateful(self, owner: Int32Array, tasks: Int64Array, ties_stay: bool) -> Int32Array:
        """(T,) owners after the given stateful tasks were optimised.

        Args:
            owner: (T,) owners before.
            tasks: the tasks that may move.
            ties_stay: tasks run where they are, so of equal costs the one with fewer moves is better; else that with less
                traffic.
        """
        return self._optimize_active(owner, tasks, self._traffic, self._non_overlap, ties_stay)

    def optimize_stateless(self, owner: Int32Array, tasks: Int64Array) -> Int32Array:
        """(T,) owners after the given other tasks were optimised."""
        return self._optimize_active(owner, tasks, STATELESS_TRAFFIC_COST, STATELESS_NON_OVERLAP_COST, ties_stay=True)

    def optimize_standbys(
        self, active_owner: Int32Array, task: Int32Array, client: Int32Array
    ) -> tuple[Int32Array, Int32Array]:
        """(task, client) pairs after the standbys were optimised; on changelog partitions, the tags' diversity is kept."""
        if not self.are_usable or not len(task):
            return task, client
        outcome = optimize_standby_columns(
            self._columns,
            active_owner,
            task,
            client,
            traffic_cost=self._traffic,
            non_overlap_cost=self._non_overlap,
            tags=self._configs.rack_aware_assignment_tags,
            partitions="changelog",
        )
        self.rounds.append(
            RackRound("standby", self._traffic, self._non_overlap, outcome.cost_before, outcome.cost_after)
        )
        return outcome.standby_task, outcome.standby_client
