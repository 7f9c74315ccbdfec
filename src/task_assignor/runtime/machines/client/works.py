"""What a client does with its tasks at the moment, and what the coordinator was told of it. Plain values, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from task_assignor.runtime.machines.client.task import JobKind
from task_assignor.runtime.machines.protocol import Running, Work
from task_assignor.sdk import TaskId

SHARE: Final = "share"
_PROCESS: Final = JobKind.PROCESS.value
_SYNC: Final = "sync"
_ANSWERED: Final = tuple(kind.value for kind in JobKind)
"""Kinds of works that have ended, for the coordinator, with any answer about their task."""

Steps = Mapping[tuple[str, TaskId], tuple[int, str]]
"""Kind of a work and its task -> how often it has got on since it began, and what it does now."""


class Works:
    """Everything that a client has begun and not ended. At most one of a kind per task."""

    def __init__(self) -> None:
        self._begun = 0
        self._now: dict[tuple[str, TaskId], tuple[int, Work]] = {}
        self._told: dict[int, int] = {}
        """Those that the coordinator believes to run, by number: how often they had got on when it was told."""
        self._news: dict[int, Work] = {}
        """Those that it is to be told of."""
        self._ended: dict[int, TaskId] = {}
        """Those that it believes to run, and that have ended."""

    def __contains__(self, work: tuple[str, TaskId]) -> bool:
        return work in self._now

    def begin(self, kind: str, task: TaskId) -> None:
        """A work begins."""
        self._begun += 1
        work = self._news[self._begun] = Work(kind, task)
        self._now[kind, task] = (self._begun, work)

    def end(self, kind: str, task: TaskId) -> None:
        """It has ended, if it has begun."""
        number, _ = self._now.pop((kind, task), (0, None))
        self._news.pop(number, None)
        if self._told.pop(number, None) is not None:
            self._ended[number] = task

    def await_disk(self, task: TaskId) -> None:
        """A task is processed, but its files have to reach the disk before that is told: it counts as being processed."""
        number, work = self._now.pop((_PROCESS, task))
        self._now[_SYNC, task] = (
            number,
            msgspec.structs.replace(work, steps=work.steps + 1, doing="its files are synced"),
        )

    def answer(self, task: TaskId) -> None:
        """The coordinator is sent what came of a task's job, which says that it has ended."""
        self.end(_SYNC, task)
        self._ended = {number: other for number, other in self._ended.items() if other != task}
        # A job that has begun meanwhile has not.
        for kind in _ANSWERED:
            number, work = self._now.get((kind, task), (0, None))
            if work is not None and self._told.pop(number, None) is not None:
                self._news[number] = work

    def get_on(self, steps: Steps) -> None:
        """How far they are; also files that are synced are worth a word by now, which they mostly are not."""
        for key, (count, doing) in steps.items():
            if key in self._now and self._now[key][1].steps != count:
                number, work = self._now[key]
                self._now[key] = (number, msgspec.structs.replace(work, steps=count, doing=doing))
        self._news |= {number: work for number, work in self._now.values() if self._told.get(number) != work.steps}

    def leave(self) -> None:
        """The coordinator that was told does not listen any more, and answers do not count."""
        self._told, self._ended = {}, {}
        self._now = {key: found for key, found in self._now.items() if key[0] != _SYNC}
        self._news = dict(self._now.values())

    def news(self) -> Running | None:
        """What to tell the coordinator; None: what it knows is right."""
        if not self._news and not self._ended:
            return None
        told = Running(self._news, tuple(self._ended))
        self._told |= {number: work.steps for number, work in self._news.items()}
        self._news, self._ended = {}, {}
        return told
