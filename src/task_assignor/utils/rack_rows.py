"""Classes of tasks that cost the same on every rack, and the cross-rack partitions of a task on a client. No decisions."""

from __future__ import annotations

import itertools
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.arrays import csr_pairs, csr_rows, offsets_of
from task_assignor.sdk.columns import Int64Array, StateColumns, check_columns
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.text import shown
from task_assignor.utils.given import numbers_of_tasks
from task_assignor.utils.result import Skipped, SkipReason

Partitions = Literal["source", "changelog", "all"]
"""Which topic partitions of a task cause traffic."""
AnyIntArray = npt.NDArray[np.integer]


def counted_rows(columns: StateColumns, partitions: Partitions) -> npt.NDArray[np.bool_]:
    """(P,) which topic partitions cause traffic.

    Raises:
        StateException: `partitions` is none of these words.
    """
    tasks = columns.tasks
    if partitions == "source":
        return tasks.partition_is_source
    if partitions == "changelog":
        return tasks.partition_is_changelog
    if partitions != "all":
        raise StateException(f"The partitions ({shown(partitions)}) must be one of {', '.join(get_args(Partitions))}.")
    return np.ones(len(tasks.partition_is_source), dtype=np.bool_)


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
    if tasks is not None:
        tasks = numbers_of_tasks(columns, tasks)
    without = np.flatnonzero(columns.clients.rack < 0)
    if len(without):
        client = columns.clients.process_ids[int(without[0])]
        return Skipped(
            SkipReason.CLIENT_WITHOUT_RACK,
            f"Client {client} has no rack ({len(without)} of {len(columns.clients)} clients have none). "
            "Maybe set its client.rack.",
        )
    table = columns.tasks
    unknown = counted_rows(columns, partitions) & (table.partition_rack_set < 0)
    if not unknown.any():
        return None
    if tasks is None:
        rows = np.flatnonzero(unknown)
    else:
        candidates = csr_rows(table.partition_offsets, tasks)
        rows = candidates[unknown[candidates]]
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
