"""Where what a task makes goes and its changelog is read again: the folder of the run, or what other `Topics` bring along."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

import attrs
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.machines.protocol import TaskOrder
from task_assignor.runtime.machines.records import FileRef, RoutedFile
from task_assignor.runtime.run_folder.layout import RunLayout, open_committed
from task_assignor.runtime.storage import PARQUET, Data, as_arrow, as_parquet
from task_assignor.runtime.tasks.repartition import routed, span_of
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.topology import ProcessorTopology
from task_assignor.sdk import StreamsException, TaskId

Offsets = Mapping[str, tuple[int, int]]


@attrs.frozen
class Made:
    """What came of a batch.

    Args:
        outputs: output -> its rows.
        changelogs: store -> its changes.
        repartitions: repartition topic -> the rows for it.
    """

    outputs: Mapping[str, FileRef]
    changelogs: Mapping[str, FileRef]
    repartitions: Mapping[str, RoutedFile] = attrs.field(factory=dict)


@attrs.frozen
class Found:
    """What had been made of an order, and more, before it was given: by a try that was not heard of any more.

    Args:
        made: what came of it.
        offsets: source topic -> (first offset, offset after the last), from where the order begins.
        changelog_offset: rows of the task's changelogs up to there.
        stream_time: newest time of all records up to there, ms; None: there were none.
        counters: what the processors counted, as far as it is known.
    """

    made: Made
    offsets: Offsets
    changelog_offset: int
    stream_time: int | None
    counters: Mapping[str, int]


class TaskResults(Protocol):
    """Where the results of one task go. Used by one thread at a time."""

    def begin(self, order: TaskOrder) -> Found | None:
        """Called before an order is carried out: from here on no other owner of the task can make anything visible.

        Returns:
            What was made of it before and counts; None: nothing.

        Raises:
            TaskMigratedException: another owner has taken over.
        """

    def write(
        self,
        order: TaskOrder,
        offsets: Offsets,
        outputs: Mapping[str, pa.Table],
        changes: Mapping[str, pa.Table],
        stream_time: int | None,
        counters: Mapping[str, int],
    ) -> Made:
        """Keep what came of an order. Whether it is visible before the coordinator's commit, is said by the class.

        Args:
            order: the order.
            offsets: source topic -> (first offset, offset after the last) of the rows that were processed.
            outputs: output -> its rows.
            changes: store with a changelog -> what changed.
            stream_time: newest time of all records up to here.
            counters: what the processors counted.

        Raises:
            TaskMigratedException: another owner has taken over.
        """

    def changes(self, file: FileRef, store: str, batch: int, *, is_fresh: bool = False) -> Iterable[pa.Table]:
        """What a batch changed in a store, in pieces; or all up to there, for an empty store (see `is_from_the_beginning`).

        Args:
            file: where its changes are.
            store: the store.
            batch: the batch.
            is_fresh: what the store has was given so just now, or written just now.

        Raises:
            CorruptLogException: it cannot be read.
        """

    def close(self) -> None:
        """The task leaves this client, or a batch failed."""


class Results(Protocol):
    """Where the results of an application's tasks go."""

    def of_task(self, task: TaskId, topology: ProcessorTopology, files: TaskResults) -> TaskResults:
        """Where those of a task go.

        Args:
            task: the task.
            topology: what it computes.
            files: the folder of the run, which may have older changelogs.
        """

    def take_permit(self, permit: bytes, first: int) -> None:
        """What the tasks of this client make counts with this alone from now on; empty: it is no client of the run any more.

        Args:
            permit: the permit.
            first: what comes of orders of earlier generations does not count.
        """


@attrs.frozen
class Renewed:
    """There is another permit, and nothing counts with those before.

    Args:
        permit: what clients need so that what they make counts.
        number: what it was asked for with; 0: it was not.
    """

    permit: bytes
    number: int


class Permits(Protocol):
    """Whose results count, where that is not decided in the folder of the run. Of the driver."""

    def begin(self, told: Callable[[Renewed | StreamsException], None]) -> None:
        """Who is told hears, in another thread, of each permit, and at last why there are no more."""

    def renew(self, number: int, client: str = "") -> None:
        """Want another permit, so that what clients do with those before does not count.

        Args:
            number: what the answer is known by, at least 1.
            client: name of the client that was given up, if that is why.
        """

    def close(self) -> None:
        """No more are wanted."""


class FolderResults:
    """Files in the folder of the run, which nobody reads before the coordinator's commit names them.

    Args:
        layout: where things are.
        task: the task.
        compression: of the files.
        put_all: writes files, or begins to.
        repartitions: the outputs that other sub-topologies read.
        parquet: outputs whose files are Parquet's.
    """

    def __init__(
        self,
        layout: RunLayout,
        task: TaskId,
        compression: str | None,
        put_all: Callable[[Mapping[str, Data]], None],
        repartitions: Mapping[str, TopicSpec] | None = None,
        parquet: Collection[str] = (),
    ) -> None:
        self._repartitions = repartitions or {}
        self._parquet = parquet
        self._layout = layout
        self._task = task
        self._compression = compression
        self._put_all = put_all

    def begin(self, order: TaskOrder) -> None:  # noqa: ARG002 (part of the protocol)
        """Nothing: files that no commit names do not count."""
        return

    def write(
        self,
        order: TaskOrder,
        offsets: Offsets,  # noqa: ARG002
        outputs: Mapping[str, pa.Table],
        changes: Mapping[str, pa.Table],
        stream_time: int | None,  # noqa: ARG002
        counters: Mapping[str, int],  # noqa: ARG002
    ) -> Made:
        """Write the files, or begin to."""
        unwritten: dict[str, Data] = {}

        def seal(path: str, table: pa.Table) -> FileRef:
            as_file = as_parquet if path.endswith(PARQUET) else as_arrow
            data, seal = as_file(in_one_piece(table), self._compression)
            unwritten[path] = data
            return FileRef(path, seal, tuple((field.name, str(field.type)) for field in table.schema))

        key = (self._task, order.batch, order.generation)
        ready = {
            name: routed(rows, self._repartitions[name]) for name, rows in outputs.items() if name in self._repartitions
        }
        made = Made(
            {
                name: seal(self._layout.output(name, *key, *([PARQUET] if name in self._parquet else [])), table)
                for name, table in outputs.items()
                if name not in ready
            },
            {name: seal(self._layout.changelog(name, *key), table) for name, table in changes.items()},
            {
                name: RoutedFile(
                    seal(self._layout.repartition(name, *key), table),
                    rows,
                    times=span_of(table, self._repartitions[name].timestamp),
                )
                for name, (table, rows) in ready.items()
            },
        )
        self._put_all(unwritten)
        return made

    def changes(self, file: FileRef, store: str, batch: int, *, is_fresh: bool = False) -> list[pa.Table]:  # noqa: ARG002
        """The file of a batch's changes."""
        return [open_committed(self._layout, file, "changelog", store, self._task.partition, batch)]

    def close(self) -> None:
        """Nothing."""
