"""When a client writes snapshots of its tasks' states. Plain values; time is counted in heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from task_assignor.runtime.machines.client.task import ClientTask
from task_assignor.runtime.machines.protocol import START, Change

MAX_CHANGES: Final = 2048
"""So many batches of a task that has state may be committed since a snapshot was written, whatever they changed."""
LAST_MS: Final = 10_000
"""So long a client that is to end begins last snapshots: it must have closed its tasks before `SNAPSHOTS_MS`."""
_STEPS: Final = 8
_FAILED_BYTES: Final = 1
"""As if the changelogs had grown by so much; no batch makes them grow by so little."""


class SnapshotPlan:
    """When the next snapshot of a task is due, and how long last ones are written.

    Args:
        every_bytes: a task's state is written when its changelogs have grown by so much, or after `MAX_CHANGES` batches; 0: never
            for that.
        every_heartbeats: and after so many heartbeats, if they have grown at all; 0: never for that.
        last_heartbeats: when the client is to end, no snapshot is begun after so many.
    """

    def __init__(self, every_bytes: int, every_heartbeats: int, last_heartbeats: int) -> None:
        self._every_bytes = every_bytes
        self._every_heartbeats = every_heartbeats
        self._last_heartbeats = last_heartbeats
        self._heartbeats = 0
        self._ends_at: int | None = None

    def beat(self) -> None:
        """Some time has gone by."""
        self._heartbeats += 1

    @staticmethod
    def see(task: ClientTask, changes: Sequence[Change]) -> None:
        """These are committed, and no snapshot has them."""
        task.unsaved_bytes += sum(change.size for change in changes)
        task.unsaved_batches += len(changes)

    def was_tried(self, task: ClientTask, *, failed: bool = False) -> None:
        """A snapshot of a task was written, or could not be."""
        # One that failed is tried again after some time, also if nothing changes any more.
        task.unsaved_bytes, task.unsaved_batches, task.unsaved_since = _FAILED_BYTES * failed, 0, self._heartbeats

    def is_due(self, task: ClientTask) -> bool:
        """A snapshot of a task is to be written before its next batch."""
        if not task.role or not task.is_current:
            return False
        grown = task.unsaved_bytes - self._delay_of(task, self._every_bytes)
        is_large = 0 < self._every_bytes <= grown and grown > _FAILED_BYTES
        # Each of them is remembered, and small changes are files all the same.
        left = MAX_CHANGES + self._delay_of(task, MAX_CHANGES) - task.unsaved_batches
        are_many = left <= 0 and bool(task.recovery.changes)
        waited = self._heartbeats - task.unsaved_since
        is_old = 0 < self._every_heartbeats <= waited - self._delay_of(task, self._every_heartbeats)
        return is_large or (are_many and self._every_bytes > 0) or (is_old and (are_many or task.unsaved_bytes > 0))

    def begin_end(self) -> None:
        """The client is to end: the time for last snapshots begins."""
        self._ends_at = self._heartbeats + self._last_heartbeats

    @property
    def has_time(self) -> bool:
        """Last snapshots may still be begun."""
        return self._ends_at is not None and self._heartbeats < self._ends_at

    @staticmethod
    def _delay_of(task: ClientTask, limit: int) -> int:
        """By how much a task's first snapshot is late, so that not all tasks write theirs at the same time."""
        return task.task.partition % _STEPS * limit // _STEPS if task.snapshot == START else 0
