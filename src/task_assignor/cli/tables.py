"""A plan as people read it: a table of clients with their tasks as ranges, and what moves. Nothing is decided here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs
from rich.markup import escape
from rich.table import Table

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    ProcessId,
    Role,
    TaskAssignment,
    TaskId,
)
from task_assignor.sdk.ids import ranges
from task_assignor.sdk.text import counted, duration, printable

_LONGEST_CELL = 400
_SHORTEST_NAME = 8


@attrs.frozen
class _Client:
    """What one row shows."""

    process_id: ProcessId
    active: list[TaskId]
    standby: list[TaskId]
    before: set[TaskId]
    """Its previous active tasks that still exist."""


class PlanView:
    """A plan, ready to be shown.

    Args:
        state: the state.
        assignment: the answer to it, right or wrong.
    """

    def __init__(self, state: ApplicationState, assignment: TaskAssignment) -> None:
        self._state = state
        self._deadlines = [
            placement.followup_rebalance_deadline_ms
            for placement in assignment
            if placement.followup_rebalance_deadline_ms is not None
        ]
        self._clients = [
            self._client(placement) for placement in sorted(assignment, key=lambda one: one.process_id.signed_halves)
        ]

    def _client(self, placement: KafkaStreamsAssignment) -> _Client:
        tasks = placement.tasks.values()
        columns = self._state.columns
        number = columns.clients.find(placement.process_id)
        before = [] if number < 0 else columns.previous_tasks(number, Role.ACTIVE).tolist()
        return _Client(
            placement.process_id,
            [task.id for task in tasks if task.type is AssignedTask.Type.ACTIVE],
            [task.id for task in tasks if task.type is AssignedTask.Type.STANDBY],
            set(columns.tasks.task_ids(before)),
        )

    def table(self) -> Table:
        """The clients: rack, threads, tasks, and how many active tasks come and go."""
        names = short_names(client.process_id for client in self._clients)
        table = Table(header_style="bold")
        # Long cells are folded; the columns of numbers keep their width.
        table.add_column("client", overflow="fold", min_width=min([10, *map(len, names.values())]))
        table.add_column("rack", overflow="fold", min_width=4)
        table.add_column("threads", justify="right", no_wrap=True)
        table.add_column("active", overflow="fold", min_width=7)
        table.add_column("standby", overflow="fold", min_width=7)
        table.add_column("moves", justify="right", no_wrap=True)
        states = self._state.kafka_streams_states(compute_task_lags=False)
        for client in self._clients:
            known = states.get(client.process_id)
            active = set(client.active)
            table.add_row(
                names[client.process_id],
                escape("unknown" if known is None else printable(known.rack_id or "-")),
                "-" if known is None else str(known.num_processing_threads),
                _cell(client.active),
                _cell(client.standby),
                f"+{len(active - client.before)} -{len(client.before - active)}",
            )
        return table

    def summary(self) -> str:
        """How much there is, how much of it moves, and when there shall be another rebalance."""
        owners = {task: client.process_id for client in self._clients for task in client.active}
        before: dict[TaskId, set[ProcessId]] = {}
        for client in self._clients:
            for task in client.before:
                before.setdefault(task, set()).add(client.process_id)
        moved = sum(task in before and owner not in before[task] for task, owner in owners.items())
        started = sum(task not in before for task in owners)
        actives = sum(len(client.active) for client in self._clients)
        copies = Counter(task for client in self._clients for task in client.standby)
        configured = self._state.assignment_configs.num_standby_replicas
        warmups = sum(max(number - configured, 0) for number in copies.values())
        further = f", {counted(warmups, 'warm-up')}" if warmups else ""
        again = ""
        if self._deadlines:
            wait = min(self._deadlines) - self._state.now_ms
            again = f" Another rebalance {f'in {duration(wait)}' if wait > 0 else 'at once'}."
        return (
            f"{counted(len(self._state.all_tasks), 'task')} on {counted(len(self._state.columns.clients), 'client')}: "
            f"{actives:,} active ({started:,} started, {moved:,} moved), "
            f"{counted(copies.total() - warmups, 'standby')}{further}.{again}"
        )


def short_names(process_ids: Iterable[ProcessId]) -> dict[ProcessId, str]:
    """The first or the last digits of the ids, as few as tell them apart, but at least 8.

    Examples:
        >>> ids = [ProcessId.parse(f"0a000000-0000-0000-0000-00000000000{last}") for last in (1, 2)]
        >>> list(short_names(ids).values()), list(short_names(ids[:1]).values())
        (['..00000001', '..00000002'], ['0a000000'])
    """
    texts = {process_id: str(process_id) for process_id in process_ids}
    for length in range(_SHORTEST_NAME, 36):
        for mark, part in (("", slice(length)), ("..", slice(-length, None))):
            names = {process_id: f"{mark}{text[part]}" for process_id, text in texts.items()}
            if len(set(names.values())) == len(texts):
                return names
    return texts


def _cell(tasks: list[TaskId]) -> str:
    if not tasks:
        return "-"
    text = ranges(tasks)
    text = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL].rsplit(' ', 1)[0]} ..."
    return f"{len(tasks)}: {escape(printable(text))}"
