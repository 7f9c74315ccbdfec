"""The records that a coordinator makes, and what follows from each; when one is made, it decides."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Any

from task_assignor.runtime.machines.coordinator.markers import Markers
from task_assignor.runtime.machines.coordinator.members import Members
from task_assignor.runtime.machines.coordinator.orders import Orders, events_of
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.values import (
    Announce,
    CoordinatorInstruction,
    DeleteFiles,
    SendToClient,
    StoreCheckpoint,
    StoreCommit,
)
from task_assignor.runtime.machines.records import CommitRecord


class Commits:
    """Makes records of an epoch. Every call is a decision of the coordinator.

    Args:
        opening: the record that began the epoch.
        progress: what is committed.
        orders: what is accepted and not committed.
        members: those who are told.
        checkpoint_every: after so many records a checkpoint is due.

    Attributes:
        markers: those that are waited for.
        rows_in: rows read by what was committed.
        rows_out: rows given to outputs by it.
    """

    def __init__(
        self,
        opening: CommitRecord,
        progress: Progress,
        orders: Orders,
        members: Members,
        checkpoint_every: int,
    ) -> None:
        self._application_id = opening.application_id
        self._epoch = opening.epoch
        self._progress = progress
        self._orders = orders
        self._members = members
        self.markers = Markers()
        self._checkpoint_every = checkpoint_every
        self._checkpoint = progress.checkpoint
        """The record at which a checkpoint was last due."""
        self.rows_in = self.rows_out = 0

    def record(self, generation: int, now_ms: int, **content: Any) -> CommitRecord:
        """The next record."""
        number = self._progress.last_commit + 1
        self._progress.begin_commit(number)
        return CommitRecord(number, self._application_id, self._epoch, generation, now_ms, **content)

    def commit(self, generation: int, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Commit everything that was accepted, then tell those that have copies of it."""
        if self._orders.has_accepted:
            tasks, snapshots, seconds = self._orders.take_accepted(now_ms)
            found = self._orders.take_found()
            record = self.record(generation, now_ms, tasks=tasks, snapshots=snapshots)
            yield StoreCommit(record)
            if unwanted := self._progress.publish(record):
                yield DeleteFiles(unwanted)
            self.rows_in += record.rows_in
            self.rows_out += record.rows_out
            yield from map(Announce, events_of(record, seconds, self._progress, found))
            yield from starmap(SendToClient, self._members.news_of(record, self._progress))
            if record.number - self._checkpoint >= self._checkpoint_every:
                self._checkpoint = record.number
                yield StoreCheckpoint(record.number, self._progress.saved())
            self.markers.see(record)
            yield from self.mark(generation, now_ms)

    def mark(self, generation: int, now_ms: int) -> Iterator[CoordinatorInstruction]:
        """Commit the markers that are reached, if nothing else waits for a commit: what they stand for must be committed."""
        if self.markers and not self._orders.has_accepted:
            reached = self.markers.take_reached(self._progress, now_ms)
            if reached:
                record = self.record(generation, now_ms, markers=tuple(reached))
                yield StoreCommit(record)
                self._progress.publish(record)
                yield from map(Announce, reached.values())
