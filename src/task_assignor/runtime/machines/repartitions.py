"""What is in repartition topics: rows that a sub-topology gave for another one to read, by partition. No files here.

A commit of a task that writes to a repartition topic names one file, with the rows of partition 0 first, then those of
partition 1, and so on. Within a partition offsets follow the order of commits, within a commit that of tasks, within a
file that of its rows: so they are fixed by the commit log, whoever reads it. Rows that were read count as gone; a file of
which all rows are gone is needed by nobody any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import attrs

from task_assignor.runtime.machines.checkpoint import SavedPartition
from task_assignor.runtime.machines.protocol import Piece
from task_assignor.runtime.machines.records import RoutedFile, TaskCommit

SubTopologyId = tuple[str | None, int]
"""Named topology and number of a sub-topology, as in its task ids."""


@attrs.define
class _Partition:
    end: int = 0
    pieces: deque[Piece] = attrs.field(factory=deque)
    """The rows that were not read, in the order of their offsets."""


class Repartitions:
    """The repartition topics of an application.

    Args:
        partitions: topic -> number of its partitions.
        writers: topic -> the sub-topology that writes it.
        are_awaited: who reads them beside other sources waits until those who write them have read everything.
    """

    def __init__(
        self,
        partitions: Mapping[str, int] | None = None,
        writers: Mapping[str, SubTopologyId] | None = None,
        *,
        are_awaited: bool = True,
    ) -> None:
        self.are_awaited = are_awaited
        self.writers = dict(writers or {})
        self._topics = {topic: [_Partition() for _ in range(count)] for topic, count in (partitions or {}).items()}
        self._readers: dict[str, int] = {}
        """File -> partitions with rows in it that were not read."""
        self._unwanted: list[str] = []

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def ends(self, topics: Iterable[str] | None = None) -> dict[str, list[int]]:
        """Topic -> end offset of each partition; of all topics, if none are named."""
        return {
            topic: [partition.end for partition in self._topics[topic]]
            for topic in (self._topics if topics is None else topics)
        }

    def publish(self, commits: Iterable[TaskCommit]) -> dict[str, list[int]]:
        """The rows of a commit can be read.

        Args:
            commits: what its tasks did, in the order of the tasks.

        Returns:
            The ends of the topics that have grown.
        """
        grown: dict[str, None] = {}
        for commit in commits:
            for topic, routed in commit.repartitions.items():
                grown[topic] = None
                self._add(topic, routed)
        return self.ends(grown)

    def _add(self, topic: str, routed: RoutedFile) -> None:
        first = 0
        for partition, rows in zip(self._topics[topic], routed.rows, strict=True):
            if rows:
                partition.pieces.append(Piece(routed.file, first, partition.end, rows))
                partition.end += rows
                self._readers[routed.file.path] = self._readers.get(routed.file.path, 0) + 1
            first += rows

    def pieces(self, topic: str, number: int, start: int, end: int) -> tuple[Piece, ...]:
        """Where the rows of a partition with these offsets are."""
        found = self._topics[topic][number].pieces
        return tuple(piece for piece in found if piece.end > start and piece.base < end)

    def consume(self, topic: str, number: int, end: int) -> None:
        """The rows of a partition before this offset were read."""
        pieces = self._topics[topic][number].pieces
        while pieces and pieces[0].end <= end:
            path = pieces.popleft().file.path
            self._readers[path] -= 1
            if not self._readers[path]:
                del self._readers[path]
                self._unwanted.append(path)

    def take_unwanted(self) -> tuple[str, ...]:
        """The files that nobody needs any more, each once."""
        unwanted, self._unwanted = self._unwanted, []
        return tuple(unwanted)

    # For checkpoints.

    def saved(self) -> dict[str, tuple[SavedPartition, ...]]:
        """What can be read, and how much could be read before."""
        return {
            topic: tuple(SavedPartition(found.end, tuple(found.pieces)) for found in partitions)
            for topic, partitions in self._topics.items()
        }

    def load(self, saved: Mapping[str, Sequence[SavedPartition]]) -> None:
        """Take what was saved."""
        for topic, partitions in saved.items():
            for partition, found in zip(self._topics[topic], partitions, strict=True):
                partition.end = found.end
                partition.pieces.extend(found.pieces)
                for piece in partition.pieces:
                    self._readers[piece.file.path] = self._readers.get(piece.file.path, 0) + 1
