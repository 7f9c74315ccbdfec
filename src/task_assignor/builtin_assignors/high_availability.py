"""`HighAvailabilityTaskAssignor` (KIP-441): a balanced target, reached step by step while tasks run where their state is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np

from task_assignor.builtin_assignors._clients import check_clients
from task_assignor.builtin_assignors._ha_racks import RackRound, Racks
from task_assignor.builtin_assignors._ha_target import Target, round_robin_target, sticky_target
from task_assignor.kafka_order.least_loaded import deal_by_load
from task_assignor.kafka_order.staging import Refined, refine_columns
from task_assignor.sdk import (
    ApplicationState,
    AssignmentColumns,
    ConfigKey,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.columns import Int32Array
from task_assignor.utils.refiner import staged_columns

HIGH_AVAILABILITY_TARGET: Final = "high.availability.target"
ROUND_ROBIN: Final = "round_robin"
STICKY: Final = "sticky"


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

    config_keys = (
        ConfigKey(
            name=HIGH_AVAILABILITY_TARGET,
            type="string",
            default=ROUND_ROBIN,
            choices=(ROUND_ROBIN, STICKY),
            doc="High availability: where tasks should end, `round_robin` (as Kafka) or `sticky` (fewest moves).",
        ),
    )

    def __init__(self) -> None:
        self._target = ROUND_ROBIN

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `high.availability.target`."""
        self._target = str(configs.get(HIGH_AVAILABILITY_TARGET, ROUND_ROBIN))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for how.

        Raises:
            TaskAssignmentException: there are tasks but no clients, or the lags of a client are not known.
        """
        plan = high_availability_plan(application_state, is_sticky=self._target == STICKY)
        return TaskAssignment.of_columns(plan.columns)


@attrs.frozen(eq=False)
class HighAvailabilityPlan:
    """The steps of a decision.

    Args:
        target: where the stateful tasks should end (with a sticky target: all tasks).
        refined: what of it can be done now.
        active_owner: (T,) active owners of all tasks.
        are_racks_usable: whether racks count at all.
        rack_rounds: each optimisation by racks, in order.
        columns: the assignment.
    """

    target: Target
    refined: Refined
    active_owner: Int32Array
    are_racks_usable: bool
    rack_rounds: tuple[RackRound, ...]
    columns: AssignmentColumns


def high_availability_plan(application_state: ApplicationState, is_sticky: bool = False) -> HighAvailabilityPlan:
    """Decide as `HighAvailabilityTaskAssignor` does, and keep the steps.

    Args:
        application_state: the state.
        is_sticky: whether the target is the sticky one.

    Raises:
        TaskAssignmentException: there are tasks but no clients, or the lags of a client are not known.
    """
    columns, configs = application_state.columns, application_state.assignment_configs
    check_clients(columns)
    racks = Racks(columns, configs)
    target = (sticky_target if is_sticky else round_robin_target)(columns, configs, racks)
    refined = refine_columns(columns, configs, target.active_owner, target.standby_task, target.standby_client)
    owner = refined.active_owner.copy()
    stateless = np.flatnonzero(~columns.tasks.has_changelog)
    open_tasks = stateless[owner[stateless] < 0]
    counts = np.bincount(owner[owner >= 0], minlength=len(columns.clients))
    owner[open_tasks] = deal_by_load(counts, columns.clients.num_processing_threads, len(open_tasks))
    owner = racks.optimize_stateless(owner, stateless)
    assignment = staged_columns(application_state, refined, owner)
    return HighAvailabilityPlan(target, refined, owner, racks.are_usable, tuple(racks.rounds), assignment)
