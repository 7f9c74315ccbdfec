"""Markers that are waited for: each becomes one cut over all tasks, by which all is done that was there when it was asked for.

Every commit is a consistent cut, since nobody builds on what is not committed: not the owner of a task that moves, not who
reads what another sub-topology writes. So no task has to wait for a marker. It aims at the ends that the sources have; when
all tasks have come so far, it aims at the ends that the topics have which those tasks write for others, and so on; and the commit
at which nothing is left is the cut. Tasks that are ahead have done more by then, and that is part of it. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.events import MarkerReached
from task_assignor.runtime.machines.records import CommitRecord, Marker


@attrs.define
class _Wanted:
    """A marker that was asked for.

    Args:
        asked_at_ms: when.
        goals: topic -> the offset that it is to reach, by partition; those of which that is known.
        behind: topic -> the partitions that have not come so far.
    """

    asked_at_ms: int
    goals: dict[str, list[int]] = attrs.field(factory=dict)
    behind: dict[str, set[int]] = attrs.field(factory=dict)

    def aim(self, topic: str, progress: Progress) -> None:
        """Wait until all is read of a topic that it has now."""
        self.goals[topic] = progress.ends(topic)
        pairs = enumerate(zip(progress.offsets(topic), self.goals[topic], strict=True))
        self.behind[topic] = {partition for partition, (offset, end) in pairs if offset < end}

    def has_reached(self, topic: str) -> bool:
        return topic in self.goals and not self.behind[topic]


class Markers:
    """The markers of a run that were asked for and are not reached. Every change is a decision of the coordinator."""

    def __init__(self) -> None:
        self._wanted: dict[str, _Wanted] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, name: str, progress: Progress, now_ms: int) -> str:
        """Somebody asks for one; gives why there cannot be one of that name, "": there can."""
        if name in self._wanted:
            return "it is asked for already"
        if any(name == marker.name for marker in progress.markers):
            return "there is one of that name"
        self._wanted[name] = _Wanted(now_ms)
        return ""

    def aim(self, names: Iterable[str], progress: Progress) -> None:
        """The ends of all sources are known as they were when these were asked for, or later."""
        for wanted in (self._wanted[name] for name in names if name in self._wanted):
            for topic in progress.sources:
                wanted.aim(topic, progress)

    def see(self, record: CommitRecord) -> None:
        """A commit is made."""
        for wanted in self._wanted.values():
            for task, commit in record.tasks.items():
                for topic, (_, end) in commit.offsets.items():
                    if topic in wanted.goals and end >= wanted.goals[topic][task.partition]:
                        wanted.behind[topic].discard(task.partition)

    def take_reached(self, progress: Progress, now_ms: int) -> dict[Marker, MarkerReached]:
        """Those that are reached with the next commit, and the events that tell it. Everything that counts is committed."""
        reached: dict[Marker, MarkerReached] = {}
        for name, wanted in list(self._wanted.items()):
            for topic, read in progress.feeds.items():
                if topic not in wanted.goals and all(map(wanted.has_reached, read)):
                    wanted.aim(topic, progress)
            if all(map(wanted.has_reached, progress.topics)):
                del self._wanted[name]
                marker = Marker(name, progress.last_commit + 1, wanted.asked_at_ms, now_ms)
                offsets = {topic: tuple(progress.offsets(topic)) for topic in progress.topics}
                seconds = (now_ms - wanted.asked_at_ms) / 1000
                reached[marker] = MarkerReached(name, marker.commit, offsets, seconds)
        return reached

    def take_all(self) -> tuple[str, ...]:
        """None is waited for any more."""
        names = tuple(self._wanted)
        self._wanted.clear()
        return names
