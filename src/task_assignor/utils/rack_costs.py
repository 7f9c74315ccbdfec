"""What rack traffic and moves cost: whether racks count, what classes of tasks cost, and in numbers that can be solved exactly."""

from __future__ import annotations

import itertools
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import csr_pairs, offsets_of
from task_assignor.sdk.checks import check_choice, whole_number
from task_assignor.sdk.columns import Int64Array, StateColumns, check_columns
from task_assignor.sdk.configs import RACK_AWARE_ASSIGNMENT_STRATEGY_NONE, AssignmentConfigs
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.utils.given import are_selected, numbers_of_tasks
from task_assignor.utils.result import Skipped, SkipReason

Partitions = Literal["source", "changelog", "all"]
"""Which topic partitions of a task cause traffic."""
AnyIntArray = npt.NDArray[np.integer]
_LARGE_COST: Final = 2**15


def counted_rows(columns: StateColumns, partitions: Partitions) -> npt.NDArray[np.bool_]:
    """(P,) which topic partitions cause traffic.

    Raises:
        StateException: `partitions` is none of these words.
    """
    check_choice("The partitions", partitions, get_args(Partitions))
    tasks = columns.tasks
    if partitions == "all":
        return np.ones(len(tasks.partition_is_source), dtype=np.bool_)
    return tasks.partition_is_source if partitions == "source" else tasks.partition_is_changelog


def rack_problem(
    columns: StateColumns, tasks: AnyIntArray | None = None, partitions: Partitions = "all"
) -> Skipped | None:
    """Why racks cannot be used for these tasks, or None: a client without rack, or a partition without known racks.

    Args:
        columns: the state.
        tasks: task numbers; None: all tasks.
        partitions: which partitions must have known racks.

    Raises:
        StateException: not the columns of a state, a number is no task's, or `partitions` is none of its words.
    """
    check_columns(columns)
    counted, selected = counted_rows(columns, partitions), are_selected(columns, tasks)
    without = np.flatnonzero(columns.clients.rack < 0)
    if len(without):
        client = columns.clients.process_ids[int(without[0])]
        return Skipped(
            SkipReason.CLIENT_WITHOUT_RACK,
            f"Client {client} has no rack ({len(without)} of {len(columns.clients)} clients have none). "
            "Maybe set its client.rack.",
        )
    table = columns.tasks
    of_selected = np.repeat(selected, np.diff(table.partition_offsets))
    rows = np.flatnonzero(counted & of_selected & (table.partition_rack_set < 0))
    if not len(rows):
        return None
    row = int(rows[0])
    task = int(np.searchsorted(table.partition_offsets, row, side="right")) - 1
    name = f"{table.topics[int(table.partition_topic[row])]}-{int(table.partition_number[row])}"
    return Skipped(
        SkipReason.PARTITION_WITHOUT_RACKS,
        f"The racks of partition {name} of task {table.task_id(task)} are not known "
        f"({len(rows)} partitions that count are like that).",
    )


def check_cost(name: str, cost: object) -> int | None:
    """The cost, if it is None or a whole number from 0 to 2^31 - 1.

    Raises:
        ConfigException: it is not.
    """
    return None if cost is None else whole_number(name, cost, 0)


def usable_costs(
    columns: StateColumns,
    configs: AssignmentConfigs,
    tasks: AnyIntArray | None,
    partitions: Partitions,
    costs: tuple[int | None, int | None],
) -> tuple[int, int] | Skipped:
    """The costs of a cross-rack partition and of a move; or why racks do not count: by the settings, or as some are not known.

    Raises:
        ConfigException: a cost is not an int from 0 to 2^31 - 1.
        StateException: `partitions` is none of its words.
    """
    check_choice("The partitions", partitions, get_args(Partitions))
    traffic, move = check_cost("traffic cost", costs[0]), check_cost("non-overlap cost", costs[1])
    if configs.rack_aware_assignment_strategy == RACK_AWARE_ASSIGNMENT_STRATEGY_NONE:
        return Skipped(SkipReason.STRATEGY_NONE, "The rack.aware.assignment.strategy is none.")
    if traffic is None or move is None:
        key = "traffic_cost" if traffic is None else "non_overlap_cost"
        return Skipped(
            SkipReason.COST_MISSING, f"The rack.aware.assignment.{key} is not configured, and no override is given."
        )
    return rack_problem(columns, tasks, partitions) or (traffic, move)


def costs_in_use(
    columns: StateColumns, configs: AssignmentConfigs, tasks: AnyIntArray | None = None, partitions: Partitions = "all"
) -> tuple[int, int] | None:
    """`usable_costs` as configured; None: racks do not count."""
    costs = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
    found = usable_costs(columns, configs, tasks, partitions, costs)
    return None if isinstance(found, Skipped) else found


def rack_rows(columns: StateColumns, tasks: AnyIntArray, partitions: Partitions = "all") -> RowCosts:
    """Group tasks by where their replicas are: what a row costs in a rack is its number of cross-rack partitions there.

    Partitions whose racks are not known cause no traffic anywhere. Only racks that a client has matter. Tasks of equal cost may still be in several rows (replicas distributed
    differently over partitions), which costs time but no exactness.

    Args:
        columns: the state; every client has a rack.
        tasks: (N,) task numbers.
        partitions: which partitions count.

    Raises:
        StateException: not the columns of a state, a number is no task's, or `partitions` is none of its words.
    """
    check_columns(columns)
    tasks = numbers_of_tasks(columns, tasks)
    racks = max(len(columns.clients.racks), 1)
    set_ids, set_offsets, set_racks = _reduced_rack_sets(columns)
    of_task, rows = csr_pairs(columns.tasks.partition_offsets, tasks)
    counts = counted_rows(columns, partitions)[rows] & (columns.tasks.partition_rack_set[rows] >= 0)
    sets = set_ids[columns.tasks.partition_rack_set[rows[counts]]]
    alike, of_row, members = _alike(len(tasks), of_task[counts], sets)
    # Entries of a row: the racks of the rack sets of one of its tasks, counted.
    of_member, entries = csr_pairs(set_offsets, members)
    keys, local = np.unique(of_row[of_member] * racks + set_racks[entries], return_counts=True)
    partitions_of = np.bincount(of_row, minlength=len(alike))
    row, rack = np.divmod(keys, racks)
    return RowCosts(alike.of, partitions_of, row, rack, partitions_of[row] - local, racks)


def _alike(items: int, item: Int64Array, value: Int64Array) -> tuple[Classes, Int64Array, Int64Array]:
    """Classes of items that have the same values in any order, and (class, value) of all that one of each has."""
    width = int(value.max(initial=0)) + 1
    item, value = np.divmod(np.sort(item * width + value), width)
    alike = Classes.alike(labels_of_lists(items, item, value))
    of_class, rows = csr_pairs(offsets_of(item, items), alike.first)
    return alike, of_class, value[rows]


def _reduced_rack_sets(columns: StateColumns) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rack sets cut down to the racks of clients: number per rack set, and CSR (offsets, racks) of the distinct ones."""
    number_of = {name: number for number, name in enumerate(columns.clients.racks)}
    names = itertools.chain.from_iterable(columns.tasks.rack_sets)
    racks = np.fromiter((number_of.get(name, -1) for name in names), dtype=np.int64)
    of_set = np.repeat(np.arange(len(columns.tasks.rack_sets)), [len(each) for each in columns.tasks.rack_sets])
    alike, of_class, rack = _alike(len(columns.tasks.rack_sets), of_set[racks >= 0], racks[racks >= 0])
    return alike.of, offsets_of(of_class, len(alike)), rack


def small_costs(traffic_cost: int, non_overlap_cost: int, crossings: int, moves: int) -> tuple[int, int]:
    """Two smaller costs that order all changes as the given ones do.

    For all whole numbers |x| <= crossings and |m| <= moves, `traffic_cost * x + non_overlap_cost * m` has the same sign with
    the result's two numbers: their ratio lies between the same fractions with small numerator and denominator.
    So the optimum stays the optimum, and costs near 2^31 do not leave the range in which the solver is exact.
    """
    if not traffic_cost or not non_overlap_cost:
        return min(traffic_cost, 1), min(non_overlap_cost, 1)
    divisor = int(np.gcd(traffic_cost, non_overlap_cost))
    target_p, target_q = traffic_cost // divisor, non_overlap_cost // divisor
    if target_p <= moves and target_q <= crossings:
        return target_p, target_q
    # Neighbours low < target < high among the fractions p/q with p <= moves and q <= crossings (Stern and Brocot).
    low_p, low_q, high_p, high_q = 0, 1, 1, 0
    while True:
        below = target_p * low_q - low_p * target_q
        above = high_p * target_q - target_p * high_q
        steps = min((below - 1) // above, _room(moves - low_p, high_p), _room(crossings - low_q, high_q))
        low_p, low_q = low_p + steps * high_p, low_q + steps * high_q
        below -= steps * above
        more = min((above - 1) // below, _room(moves - high_p, low_p), _room(crossings - high_q, low_q))
        high_p, high_q = high_p + more * low_p, high_q + more * low_q
        if steps <= 0 and more <= 0:
            return low_p + high_p, low_q + high_q


def _room(left: int, step: int) -> int:
    return INT32_MAX if step == 0 else max(left, 0) // step


def solver_costs(traffic_cost: int, non_overlap_cost: int, rows: RowCosts, places: int, cells: int) -> tuple[int, int]:
    """Costs for the solver: as given, unless they are large."""
    if max(traffic_cost, non_overlap_cost) <= _LARGE_COST:
        return traffic_cost, non_overlap_cost
    # On a simple cycle of the residual graph: at most two arcs at each place, cell and hub.
    arcs = 2 * (places + 2 * cells + 1)
    return small_costs(traffic_cost, non_overlap_cost, int(rows.default.max(initial=1)) * arcs, arcs)
