"""What happens in a run as lines of JSON: one object per event, commits gathered. Where the lines go, others decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from task_assignor.runtime.machines.encoding import encode, fields_of
from task_assignor.runtime.machines.events import (
    BatchesCommitted,
    ClientProgress,
    RunEvent,
    SnapshotCommitted,
    SourcesGrown,
)

_GATHERED_MS: Final = 1_000
"""Commits are told of when the first of them is so old, or when something else is to be told."""


class EventLines:
    """Makes lines of events: every event is one, but commits are summed up; heartbeats and snapshots are left out.

    A line is an object with `at` (UTC, ISO 8601), `event` (the name of the event's class, or `Commits`) and what the event
    says, in camel case.

    Args:
        write: takes a line, without its end.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._commits: list[BatchesCommitted] = []
        self._since_ms = 0

    def take(self, event: RunEvent, now_ms: int) -> None:
        """An event happened.

        Args:
            event: what happened.
            now_ms: when, milliseconds since the epoch.
        """
        match event:
            case ClientProgress() | SnapshotCommitted() | SourcesGrown():
                pass
            case BatchesCommitted():
                self._since_ms = self._since_ms if self._commits else now_ms
                self._commits.append(event)
            case _:
                self.tell(type(event).__name__, now_ms, fields_of(event))

    def poll(self, now_ms: int) -> None:
        """Time has passed: write what was gathered for long enough."""
        if self._commits and now_ms - self._since_ms >= _GATHERED_MS:
            self.flush(now_ms)

    def tell(self, name: str, now_ms: int, said: Mapping[str, Any]) -> None:
        """Write a line about something that is no event.

        Args:
            name: what it is called.
            now_ms: when, milliseconds since the epoch.
            said: what to say of it.
        """
        self.flush(now_ms)
        self._tell(name, now_ms, said)

    def flush(self, now_ms: int) -> None:
        """Write what was gathered."""
        if self._commits:
            gathered, self._commits = self._commits, []
            self._tell("Commits", now_ms, _sum_of(gathered))

    def _tell(self, name: str, now_ms: int, said: Mapping[str, Any]) -> None:
        at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
        self._write(encode({"at": at, "event": name, **said}).decode())


def _sum_of(commits: list[BatchesCommitted]) -> dict[str, Any]:
    rows: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    for commit in commits:
        rows.update(commit.rows_by_client)
        counters.update(commit.counters)
    last = commits[-1]
    return {
        "first": commits[0].commit,
        "last": last.commit,
        "generation": last.generation,
        "batches": sum(len(commit.batches) for commit in commits),
        "rowsIn": sum(commit.rows_in for commit in commits),
        "rowsOut": sum(commit.rows_out for commit in commits),
        "rowsByClient": {client: rows[client] for client in sorted(rows)},
        "counters": {name: counters[name] for name in sorted(counters)},
        "longestSeconds": round(max(commit.seconds for commit in commits), 6),
        "remaining": last.remaining,
    }
