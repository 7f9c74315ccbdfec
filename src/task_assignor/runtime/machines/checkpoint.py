"""What the commits of a run have led to, as a checkpoint keeps it. Plain values; no files here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from task_assignor.runtime.machines.encoding import VERSION, Count, Number, Value
from task_assignor.runtime.machines.protocol import Recovery
from task_assignor.runtime.machines.records import FORMAT_VERSION, FileRef, Marker, Seal
from task_assignor.sdk import TaskId


class SavedTask(Value, frozen=True):
    """How far a task is.

    Args:
        offsets: source topic -> next offset to read.
        generations: (first batch, generation) wherever it was committed under another generation than before.
        recovery: from what its state is restored.
        seals: source topic -> what is known of the row before that offset: see `records.TaskCommit`.
        times: source topic that many tasks write -> up to which time all of these had come, as far as it was told, ms.
    """

    offsets: Mapping[str, Count]
    generations: tuple[tuple[Count, Count], ...]
    recovery: Recovery
    seals: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: Mapping[str, int] = msgspec.field(default_factory=dict)


class SavedFile(Value, frozen=True, array_like=True):
    """A file of a repartition topic.

    Args:
        file: the file; None: all of its rows were read.
        rows: how many each partition has.
    """

    file: FileRef | None
    rows: tuple[Count, ...]


class SavedRepartition(Value, frozen=True):
    """What can be read of a repartition topic.

    Args:
        starts: per partition the offset before the first file.
        read: per partition the offset up to which it was read.
        files: the files from the first one on that was not read, in the order of their rows.
        written: if it has a time: what `TopicTime.saved` gives.
    """

    starts: tuple[Count, ...]
    read: tuple[Count, ...]
    files: tuple[SavedFile, ...]
    written: tuple[int | None, ...] = ()


class SavedProgress(Value, frozen=True):
    """How far all tasks are.

    Args:
        batches: batches of all tasks that count.
        repartitions: what can be read of each repartition topic.
        tasks: the tasks.
        markers: the newest markers.
    """

    batches: Count = 0
    repartitions: Mapping[str, SavedRepartition] = msgspec.field(default_factory=dict)
    tasks: Mapping[TaskId, SavedTask] = msgspec.field(default_factory=dict)
    markers: tuple[Marker, ...] = ()


class SavedOutputFile(Value, frozen=True, array_like=True):
    """A file with rows of an output.

    Args:
        first: number of the first batch in it.
        last: number of the last.
        commit: number of the commit of the last.
        path: where it is.
        seal: what it is.
        kind: number of its columns in `SavedOutputs.columns`.
    """

    first: Count
    last: Count
    commit: Count
    path: str
    seal: Seal
    kind: Count


class SavedOutputs(Value, frozen=True):
    """The files that hold the rows of outputs; columns, which are nearly always the same, are there once.

    Args:
        topics: output -> the topic elsewhere that it is.
        files: output -> task -> its files.
        columns: names and types of columns, as the files name them.
    """

    topics: Mapping[str, str] = msgspec.field(default_factory=dict)
    files: Mapping[str, Mapping[TaskId, tuple[SavedOutputFile, ...]]] = msgspec.field(default_factory=dict)
    columns: tuple[tuple[tuple[str, str], ...], ...] = ()


class Checkpoint(Value, frozen=True, tag_field=VERSION, tag=FORMAT_VERSION):
    """What the records up to a number have led to.

    Args:
        number: the last record that it replaces; -1: none.
        epoch: that of the record.
        generation: that of the record.
        history: names of the files that hold what the records said, in order.
        columns: output -> column -> type, so far.
        state: how far every task is.
        outputs: the files that hold the rows of outputs.
        replaced: files of outputs that count no more, since their rows are in others; the checkpoint before has them, or one of a
            coordinator that was replaced.
        written: folder of outputs or repartition topics -> the last batch of which a file was committed there.
    """

    number: Number = -1
    epoch: Count = 0
    generation: Count = 0
    history: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    state: SavedProgress = SavedProgress()
    outputs: SavedOutputs = SavedOutputs()
    replaced: tuple[str, ...] = ()
    written: Mapping[str, Count] = msgspec.field(default_factory=dict)
