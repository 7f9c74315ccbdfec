"""`StickyTaskAssignor`: tasks stay where they are as far as an even load allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from task_assignor.builtin_assignors._clients import check_clients
from task_assignor.engine.actives import (
    Allocation,
    Problem,
    allocate,
    newest_claims,
    polish_of,
    reasons,
    settle_claims,
)
from task_assignor.engine.copies import place_copies
from task_assignor.engine.exchange import Exchange
from task_assignor.engine.items import Pairs, quotas
from task_assignor.engine.polish import MOST_ARCS
from task_assignor.engine.polish_network import RackCosts
from task_assignor.engine.tag_spread import spread_by_tags
from task_assignor.sdk import (
    MISSING,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    AssignmentColumns,
    AssignmentConfigs,
    ConfigKey,
    Role,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.columns import LATEST_OFFSET, Int32Array, Int64Array
from task_assignor.utils._classes import rack_problem, rack_rows, strategy_problem
from task_assignor.utils._rack import min_cost_owners
from task_assignor.utils._rack_standby import optimize_standby_columns, tag_values

MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT = "must.preserve.active.task.assignment"
_UNKNOWN_LAG = 2**62
_NO_GENERATION = -1


class StickyTaskAssignor(TaskAssignor):
    """Keeps tasks where they are, within even shares.

    Its goals, in this order:

    1. every client has floor or ceil of its thread-weighted share of the active tasks;
    2. fewest tasks move away from their previous active owner (of several claims the newest generation counts);
    3. smallest spread of active tasks per thread: of the stateful tasks, then of all;
    4. tasks that move go where their state is; of several such clients to those with less lag (that as few as possible
       have still less, added up over the tasks);
    5. all standbys are placed;
    6. the total load (active and standby) per thread is even (active tasks are exchanged for it where no earlier goal
       suffers: a local search);
    7. with `rack.aware.assignment.tags`: a task and its standbys are on clients with as many different tag values as
       these loads allow (KIP-708): with one standby per task exactly (but where the standbys for a set of equally tagged
       clients cannot be dealt out to them), with more of them copy by copy until none helps; tag keys with hundreds of
       values, such as a host, may play no part;
    8. standbys stay where their state is.

    With `must.preserve.active.task.assignment` goal 2 comes before goal 1.

    With a rack-aware strategy and both costs set (KIP-925) and all racks known, goal 2 becomes: least trafficCost x
    cross-rack partitions + nonOverlapCost x moved tasks, with goal 1 kept. (Stickiness that beats the shares beats
    racks too.) In the end standbys are swapped between clients for less cross-rack traffic of their changelogs, with
    all loads and the number of tag values kept, as `optimize_rack_aware_standby_tasks` does.

    Goals 1 and 2 are always reached. Goal 3 is too where no task had two previous owners and racks play no part; for
    the other cases, and for goal 4, the exact answer is looked for up to some ten thousand tasks (fewer, if many clients
    have different claims), beyond that a good one.

    The counterpart of Kafka's public `StickyTaskAssignor`, which follows the same idea with greedy rules. Generations are
    those of KIP-341, Generation Marker; Kafka's does not see them.
    """

    config_keys = (
        ConfigKey(
            name=MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT,
            type="boolean",
            default=False,
            doc="Sticky assignor: never move an active task from a client that still runs, even if loads get uneven.",
        ),
    )

    def __init__(self) -> None:
        self._must_preserve = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `must.preserve.active.task.assignment`."""
        self._must_preserve = bool(configs.get(MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT, False))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the goals.

        Raises:
            TaskAssignmentException: there are tasks but no clients.
        """
        columns, configs = application_state.columns, application_state.assignment_configs
        check_clients(columns)
        uses_racks = (
            strategy_problem(
                configs.rack_aware_assignment_strategy,
                configs.rack_aware_traffic_cost,
                configs.rack_aware_non_overlap_cost,
            )
            or rack_problem(columns)
        ) is None
        if uses_racks and not self._must_preserve:
            owner = _cheapest_owners(columns, configs)
        else:
            owner = sticky_actives(columns, self._must_preserve, configs.num_standby_replicas).owner
        standbys = sticky_standbys(columns, owner, configs)
        outcome = optimize_standby_columns(
            columns,
            owner,
            *standbys,
            traffic_cost=configs.rack_aware_traffic_cost,
            non_overlap_cost=configs.rack_aware_non_overlap_cost,
            tags=configs.rack_aware_assignment_tags,
            strategy=configs.rack_aware_assignment_strategy,
        )
        return TaskAssignment.of_columns(
            AssignmentColumns.of(columns, owner, outcome.standby_task, outcome.standby_client)
        )


def _cheapest_owners(columns: StateColumns, configs: AssignmentConfigs) -> Int32Array:
    """(T,) owners by goal 1 and the rack-aware goal 2; by the others too where there are not too many tasks."""
    threads = columns.clients.num_processing_threads
    floor, ceil = quotas(threads, len(columns.tasks))
    problem = _problem(columns, must_preserve=False)
    traffic_cost, move_cost = configs.rack_aware_traffic_cost or 0, configs.rack_aware_non_overlap_cost or 0
    claims = newest_claims(problem)
    outcome = min_cost_owners(
        columns,
        np.arange(len(columns.tasks)),
        settle_claims(problem),
        traffic_cost=traffic_cost,
        non_overlap_cost=move_cost,
        lower=floor,
        upper=ceil,
        # Who gets one more: the clients on which that raises the load per thread least.
        claims=(claims.item, claims.owner),
        surplus_cost=np.unique((floor + 1) / threads, return_inverse=True)[1].reshape(-1),
    )
    owner = outcome.owner
    racks, tasks = len(columns.clients.racks), np.arange(len(columns.tasks))
    if racks * len(tasks) <= MOST_ARCS:
        rows = rack_rows(columns, tasks, "all")
        crossings = rows.crossings(np.repeat(rows.row, racks), np.tile(np.arange(racks), len(tasks)))
        costs = RackCosts(traffic_cost * crossings.reshape(-1, racks), move_cost, columns.clients.rack.astype(np.int64))
        owner = polish_of(problem, costs).improve(owner)
    return owner.astype(np.int32)


def sticky_actives(columns: StateColumns, must_preserve: bool = False, num_standby_replicas: int = 0) -> Allocation:
    """Owners of the active tasks by goals 1 to 4 of `StickyTaskAssignor`; of equal answers one that suits the standbys.

    Args:
        columns: the state.
        must_preserve: goal 2 before goal 1.
        num_standby_replicas: standbys that will be placed.
    """
    problem = _problem(columns, must_preserve)
    allocation = allocate(problem)
    wanted = _wanted_standbys(columns, num_standby_replicas)
    if not wanted.any() or not len(columns.clients):
        return allocation
    claims = newest_claims(problem)
    exchange = Exchange(problem.is_first_kind, wanted, problem.weight, claims, problem.state)
    owner = exchange.improve(allocation.owner.astype(np.int64))
    return Allocation(owner.astype(np.int32), reasons(problem, owner))


def _wanted_standbys(columns: StateColumns, num_standby_replicas: int) -> Int64Array:
    return np.where(columns.tasks.has_changelog, num_standby_replicas, 0)


def _problem(columns: StateColumns, must_preserve: bool) -> Problem:
    client, task = columns.previous.pairs(Role.ACTIVE)
    generation = columns.clients.generation
    generation = np.where(generation == MISSING, _NO_GENERATION, generation)
    return Problem(
        is_first_kind=columns.tasks.is_stateful,
        weight=columns.clients.num_processing_threads,
        claims=Pairs.of(task, client, generation[client]),
        state=previous_state(columns),
        keep_all_claims=must_preserve,
    )


def sticky_standbys(
    columns: StateColumns, active_owner: Int32Array, configs: AssignmentConfigs
) -> tuple[Int64Array, Int64Array]:
    """(task, client) of the standbys by goals 5 to 8 of `StickyTaskAssignor`, for all tasks that have a changelog."""
    owner, state = active_owner.astype(np.int64), previous_state(columns)
    wanted = _wanted_standbys(columns, configs.num_standby_replicas)
    copies = place_copies(owner, wanted, columns.clients.num_processing_threads, state)
    return spread_by_tags(tag_values(columns, configs.rack_aware_assignment_tags), owner, copies, state)


def previous_state(columns: StateColumns) -> Pairs:
    """Who has state of which stateful task, and its lag as rank: active running tasks first, as in Kafka, unknown lags last."""
    previous = columns.previous
    chosen = columns.tasks.has_changelog[previous.task]
    client, task, role = (column[chosen].astype(np.int64) for column in (previous.client, previous.task, previous.role))
    pairs = np.unique(client * max(len(columns.tasks), 1) + task, return_index=True)[1]
    client, task, role = client[pairs], task[pairs], role[pairs]
    lag = columns.lags_of(client, task)
    # What is an active running task there (-2) is less behind than a standby that has caught up (0).
    is_running = np.where(lag == MISSING, role == Role.ACTIVE, lag == LATEST_OFFSET)
    rank = np.where(is_running, 0, 1 + np.clip(lag, 0, _UNKNOWN_LAG - 2))
    return Pairs.of(task, client, np.where(lag == UNKNOWN_OFFSET_SUM, _UNKNOWN_LAG, rank))
