"""A plan as people read it: a table of clients with their tasks as ranges, and what moves. Nothing is decided here."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import attrs
from rich.markup import escape
from rich.table import Table

from task_assignor.cli.output import printable
from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskId,
)

_LONGEST_CELL = 400


def ranges(tasks: Iterable[TaskId]) -> str:
    """Task ids, sorted, with runs of partitions written as ranges.

    Examples:
        >>> ranges([TaskId(0, 1), TaskId(0, 0), TaskId(0, 2), TaskId(0, 5), TaskId(1, 0, "orders")])
        '0_0..2 0_5 orders__1_0'
    """
    parts = []
    ordered = sorted(tasks, key=lambda task: task.sort_key)
    # Along a run of partitions the difference between partition and position stays the same.
    runs = itertools.groupby(
        enumerate(ordered), lambda item: (item[1].topology_name, item[1].subtopology, item[1].partition - item[0])
    )
    for _, run in runs:
        members = [task for _, task in run]
        last = f"..{members[-1].partition}" if len(members) > 1 else ""
        parts.append(f"{members[0]}{last}")
    return " ".join(parts)


@attrs.frozen
class _Client:
    """What one row shows."""

    process_id: ProcessId
    active: list[TaskId]
    standby: list[TaskId]
    gained: int
    lost: int


def plan_table(state: ApplicationState, assignment: TaskAssignment) -> Table:
    """The clients of a plan: rack, threads, tasks, and how many active tasks come and go."""
    clients = [
        _client(state, placement) for placement in sorted(assignment, key=lambda one: one.process_id.signed_halves)
    ]
    names = _short_names([client.process_id for client in clients])
    table = Table(header_style="bold")
    table.add_column("client", no_wrap=True)
    table.add_column("rack", overflow="fold")
    table.add_column("threads", justify="right")
    table.add_column("active", overflow="fold")
    table.add_column("standby", overflow="fold")
    table.add_column("moves", justify="right")
    states = state.kafka_streams_states(compute_task_lags=False)
    for client in clients:
        process_id = client.process_id
        known = states.get(process_id)
        table.add_row(
            names[process_id],
            escape("unknown" if known is None else printable(known.rack_id or "-")),
            "-" if known is None else str(known.num_processing_threads),
            _cell(client.active),
            _cell(client.standby),
            f"+{client.gained} -{client.lost}",
        )
    return table


def _short_names(process_ids: list[ProcessId]) -> dict[ProcessId, str]:
    """The first parts of the ids, as many as tell them apart."""
    distinct = set(process_ids)
    for length in (8, 13, 18, 23, 36):
        names = {process_id: str(process_id)[:length] for process_id in distinct}
        if len(set(names.values())) == len(distinct):
            break
    return names


def _client(state: ApplicationState, placement: KafkaStreamsAssignment) -> _Client:
    tasks = placement.tasks.values()
    active = [task.id for task in tasks if task.type is AssignedTask.Type.ACTIVE]
    previous = _previous(state, placement.process_id)
    return _Client(
        placement.process_id,
        active,
        [task.id for task in tasks if task.type is AssignedTask.Type.STANDBY],
        gained=len(set(active) - previous),
        lost=len(previous - set(active)),
    )


def _previous(state: ApplicationState, process_id: ProcessId) -> set[TaskId]:
    known = state.kafka_streams_states(compute_task_lags=False).get(process_id)
    return set() if known is None else {task for task in known.previous_active_tasks if task in state.all_tasks}


def _cell(tasks: list[TaskId]) -> str:
    if not tasks:
        return "-"
    text = ranges(tasks)
    text = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL].rsplit(' ', 1)[0]} ..."
    return f"{len(tasks)}: {escape(printable(text))}"


def plan_summary(state: ApplicationState, assignment: TaskAssignment) -> str:
    """How much there is, how much of it moves, and when there shall be another rebalance."""
    owners: dict[TaskId, ProcessId] = {}
    actives = standbys = 0
    for placement in assignment:
        for task in placement.tasks.values():
            if task.type is AssignedTask.Type.ACTIVE:
                owners[task.id] = placement.process_id
                actives += 1
            else:
                standbys += 1
    before: dict[TaskId, set[ProcessId]] = {}
    for process_id in state.columns.clients.process_ids:
        for task_id in _previous(state, process_id):
            before.setdefault(task_id, set()).add(process_id)
    moved = sum(task in before and owner not in before[task] for task, owner in owners.items())
    started = sum(task not in before for task in owners)
    deadlines = [
        placement.followup_rebalance_deadline_ms
        for placement in assignment
        if placement.followup_rebalance_deadline_ms is not None
    ]
    again = f" Another rebalance in {max(min(deadlines) - state.now_ms, 0)} ms." if deadlines else ""
    return (
        f"{_count(len(state.all_tasks), 'task')} on {_count(len(state.columns.clients), 'client')}: "
        f"{actives} active ({started} started, {moved} moved), {_count(standbys, 'standby')}.{again}"
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word if number == 1 else word + 's'}"
