"""How good an assignment is: moves, state to restore, balance, standbys, racks. Whether it is right is in `report.py`.

All of it is worked out from a state and an assignment alone, so it holds for any assignor's answer, and for recorded ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import ApplicationState, Role, StateColumns, TaskAssignment
from task_assignor.sdk.arrays import are_in, csr_rows, distinct
from task_assignor.sdk.columns import MISSING, UNKNOWN_OFFSET_SUM
from task_assignor.validation.report import report_violations
from task_assignor.validation.rows import rows_of

Ints = npt.NDArray[np.integer]


@attrs.frozen(kw_only=True)
class Measures:
    """The measures of one assignment; each is a number, and sums over several states have a meaning.

    Args:
        moved: tasks that are active on a client where they were not, of those that were active somewhere.
        standbys_moved: standbys on clients that had the task in no role before.
        lag_to_restore: offsets that active tasks are behind where they are placed: processing waits for them.
        standby_lag: offsets that standbys are behind where they are placed: traffic that nobody waits for.
        lag_unknown: placements whose lag is not known; they are in neither.
        active_spread: active tasks per thread, the fullest client less the emptiest; up to 1 is as even as it goes with
            one thread each.
        spread: the same of active tasks and standbys.
        standbys: standbys that are placed.
        standbys_missing: standbys that are wanted and could be placed (there are other clients), but are not.
        tag_values: different values of `rack.aware.assignment.tags` that the holders of a task have, summed over tags and
            tasks with a standby.
        cross_rack_cost: partitions that are read from another rack (sources by active tasks, changelogs by standbys),
            times `rack.aware.assignment.traffic_cost` where it is set. What is not known does not count.
        errors: errors that `validate` finds.
        warnings: its warnings.
        followups: 1 if a client is asked for another rebalance.
    """

    moved: int
    standbys_moved: int
    lag_to_restore: int
    standby_lag: int
    lag_unknown: int
    active_spread: float
    spread: float
    standbys: int
    standbys_missing: int
    tag_values: int
    cross_rack_cost: int
    errors: int
    warnings: int
    followups: int

    def values(self) -> dict[str, float]:
        """Name -> value, in the order above."""
        return attrs.asdict(self)


HIGHER_IS_BETTER: Final[Mapping[str, bool | None]] = MappingProxyType(
    {
        **{field.name: False for field in attrs.fields(Measures)},
        "standbys": True,
        "tag_values": True,
        "followups": None,
    }
)
"""Name of a measure -> whether more of it is better; None: neither."""


def measure(application_state: ApplicationState, task_assignment: TaskAssignment) -> Measures:
    """The measures of an assignment, right or wrong; tasks and clients that do not exist are left out.

    Raises:
        StateException: one of the arguments is something else.
    """
    rows = rows_of(application_state, task_assignment)
    columns, configs = application_state.columns, application_state.assignment_configs
    client = rows.entry_client[rows.entry]
    known = (client >= 0) & (rows.task >= 0)
    client, task, role = client[known], rows.task[known], rows.role[known]
    report = report_violations(application_state, task_assignment)
    active, standby = role == Role.ACTIVE, role == Role.STANDBY
    lag, unknown = _lag(columns, client[active], task[active])
    standby_lag, unknown_standby = _lag(columns, client[standby], task[standby])
    wanted = min(configs.num_standby_replicas, max(len(columns.clients) - 1, 0))
    placed = np.bincount(task[standby], minlength=len(columns.tasks))[columns.tasks.has_changelog]
    crossings = _crossings(columns, client[active], task[active], columns.tasks.partition_is_source)
    crossings += _crossings(columns, client[standby], task[standby], columns.tasks.partition_is_changelog)
    cost = configs.rack_aware_traffic_cost
    return Measures(
        moved=_moved(columns, client[active], task[active]),
        standbys_moved=_new_standbys(columns, client[standby], task[standby]),
        lag_to_restore=lag,
        standby_lag=standby_lag,
        lag_unknown=unknown + unknown_standby,
        active_spread=_spread(columns, client[active]),
        spread=_spread(columns, client),
        standbys=int(standby.sum()),
        standbys_missing=int(np.maximum(wanted - placed, 0).sum()),
        tag_values=_tag_values(columns, configs.rack_aware_assignment_tags, client, task, task[standby]),
        cross_rack_cost=crossings * (1 if cost is None else cost),
        errors=len(report.errors),
        warnings=len(report.warnings),
        followups=int(any(one.followup_rebalance_deadline_ms is not None for one in task_assignment)),
    )


def _pairs(columns: StateColumns, client: Ints, task: Ints) -> Ints:
    return client.astype(np.int64) * max(len(columns.tasks), 1) + task


def _moved(columns: StateColumns, client: Ints, task: Ints) -> int:
    before_client, before_task = columns.previous.pairs(Role.ACTIVE)
    stayed = are_in(_pairs(columns, client, task), _pairs(columns, before_client, before_task))
    had_owner = np.zeros(len(columns.tasks), dtype=np.bool_)
    had_owner[before_task] = True
    return int((had_owner[task] & ~stayed).sum())


def _new_standbys(columns: StateColumns, client: Ints, task: Ints) -> int:
    before = _pairs(columns, columns.previous.client, columns.previous.task)
    return int((~are_in(_pairs(columns, client, task), before)).sum())


def _lag(columns: StateColumns, client: Ints, task: Ints) -> tuple[int, int]:
    """Offsets to restore, and placements of which they are not known."""
    chosen = columns.tasks.has_changelog[task]
    lags = columns.lags_of(client[chosen], task[chosen])
    unknown = (lags == MISSING) | (lags == UNKNOWN_OFFSET_SUM)
    # Python's integers: sums of end offsets may be beyond 64 bits.
    return sum(map(int, lags[~unknown & (lags > 0)])), int(unknown.sum())


def _spread(columns: StateColumns, client: Ints) -> float:
    if not len(columns.clients):
        return 0.0
    loads = np.bincount(client, minlength=len(columns.clients)) / columns.clients.num_processing_threads
    return float(loads.max() - loads.min())


def _tag_values(columns: StateColumns, tags: tuple[str, ...], client: Ints, task: Ints, with_standby: Ints) -> int:
    chosen = are_in(task, with_standby)
    total = 0
    for tag in tags:
        of_clients = [tags_of.get(tag) for tags_of in columns.clients.client_tags]
        numbers = {value: number for number, value in enumerate(sorted({one for one in of_clients if one is not None}))}
        value = np.array([-1 if one is None else numbers[one] for one in of_clients], dtype=np.int64)[client[chosen]]
        pairs = task[chosen].astype(np.int64) * max(len(numbers), 1) + value
        total += len(distinct(pairs[value >= 0]))
    return total


def _crossings(columns: StateColumns, client: Ints, task: Ints, counts: npt.NDArray[np.bool_]) -> int:
    """Partitions of those that count which have no replica in the rack of the client that reads them."""
    tasks, clients = columns.tasks, columns.clients
    if not tasks.rack_sets or not clients.racks:
        return 0
    # Of many clients each may have a rack of its own, such as its host: no table of all sets and racks.
    number, width = {name: place for place, name in enumerate(clients.racks)}, len(clients.racks)
    held = [
        place * width + number[name] for place, names in enumerate(tasks.rack_sets) for name in names & number.keys()
    ]
    row = csr_rows(tasks.partition_offsets, task)
    rack = np.repeat(clients.rack[client], np.diff(tasks.partition_offsets)[task])
    chosen = counts[row] & (tasks.partition_rack_set[row] >= 0) & (rack >= 0)
    read_from = tasks.partition_rack_set[row[chosen]].astype(np.int64) * width + rack[chosen]
    return int((~are_in(read_from, np.array(held, dtype=np.int64))).sum())


def is_better(name: str, one: float, other: float) -> bool | None:
    """Whether the first value of a measure is the better one; None: they are equal, or no value of it is better."""
    higher = HIGHER_IS_BETTER[name]
    if higher is None or math.isclose(one, other, rel_tol=0, abs_tol=1e-9):
        return None
    return (one > other) == higher
