"""What Kafka has committed of tasks, as the metadata of their source offsets says, and whether it still has all of that."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import numpy as np

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.offsets import (
    begun_in,
    committed_offsets,
    first_offset,
    held_back,
    high_watermarks,
    stable_offsets,
)
from task_assignor.runtime.machines.encoding import NewerFormatError, Value, decode, encode
from task_assignor.runtime.topology.topology import ProcessorTopology, Topology, changelog_topic, repartition_topic
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import listed

_log = logger_of(__name__)
Ends = Mapping[str, Mapping[int, tuple[int, TaskId]]]
"""Topic -> partition -> the offset after the last record that a task has committed there, and that task."""
_MOST_METADATA: Final = 4096
"""So many characters brokers take, if nobody has said anything else (`offset.metadata.max.bytes`)."""
_AT_ONCE: Final = 8
"""So many transactions are ended side by side."""


class RecordsLostException(KafkaClusterException):
    """A topic ends before what a task has committed in it."""


class Committed(
    Value,
    frozen=True,
    tag_field="taskAssignor",
    tag=1,
    rename={"changelog_offset": "changelog", "stream_time": "time"},
):
    """The metadata of committed source offsets: what the last transaction of the task did.

    Args:
        begin: source topic -> offset at which its batch began.
        changelog_offset: rows of the task's changelogs after it.
        stream_time: newest time of all records up to there, ms.
        stores: store -> (end of its changelog before the batch, after it).
        outputs: output -> rows of the batch.
        windows: window store -> (first offset of its changelog that is needed, newest time of all its rows, ms).
        ends: output -> for each partition the offset after the last record that the task has ever written there; 0: none.
        packed: the same in less room, if brokers would refuse so much: rounded down to a multiple of 16, or of a power of it,
            if need be.
        batch: number of the batch, in the folder of its run; -1: it is not known.
        counters: what the processors counted in the batch, if there is room for it.
    """

    begin: Mapping[str, int]
    changelog_offset: int
    stream_time: int | None
    stores: Mapping[str, tuple[int, int]]
    outputs: Mapping[str, int]
    windows: Mapping[str, tuple[int, int | None]] = msgspec.field(default_factory=dict)
    ends: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    packed: Mapping[str, str] = msgspec.field(default_factory=dict)
    batch: int = -1
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def metadata(self) -> str:
        """As text, of no more than brokers take if that can be."""
        found = encode(self).decode()
        for bits in range(0, 68, 4):
            if len(found) <= _MOST_METADATA:
                break
            packed = {name: _packed(ends, bits) for name, ends in self.ends.items()} if bits < 64 else {}
            found = encode(msgspec.structs.replace(self, ends={}, packed=packed, counters={})).decode()
        return found

    @property
    def written(self) -> dict[tuple[str, int], int]:
        """(output, partition) -> the offset after the last record that the task has written there, or one before it."""
        return {
            (name, partition): end
            for name, found in self._all_ends.items()
            for partition, end in enumerate(found)
            if end
        }

    @property
    def partitions(self) -> dict[str, int]:
        """Output -> how many partitions it had when the task wrote."""
        return {name: len(ends) for name, ends in self._all_ends.items()}

    @property
    def _all_ends(self) -> dict[str, Sequence[int]]:
        return {**self.ends, **{name: _unpacked(text) for name, text in self.packed.items()}}


def _packed(ends: Sequence[int], bits: int) -> str:
    """Offsets without their last bits: first the lowest byte of each, then the next ones, which are nearly the same."""
    numbers = np.array(ends, "<i8") >> bits << bits
    return base64.b85encode(zlib.compress(numbers.view(np.uint8).reshape(-1, 8).T.tobytes())).decode()


def _unpacked(text: str) -> list[int]:
    columns = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8).reshape(8, -1)
    found: list[int] = np.ascontiguousarray(columns.T).view("<i8").ravel().tolist()
    return found


def topic_of(application_id: str, topology: Topology | ProcessorTopology, name: str) -> str:
    """The topic of Kafka that a source or an output is."""
    return repartition_topic(application_id, name) if name in topology.repartitions else name


def committed_of(group: str, partition: int, committed: Mapping[str, tuple[int, str]]) -> Committed:
    """What the last transaction of a task did.

    Args:
        group: the group that has committed it.
        partition: that of the task.
        committed: source topic -> the offset that is committed, and its metadata.

    Raises:
        KafkaClusterException: something else has committed it.
    """
    found: dict[str, Committed] = {}
    for topic, (offset, text) in sorted(committed.items()):
        try:
            found[text] = decode(text.encode(), Committed)
        except NewerFormatError as error:
            raise KafkaClusterException(
                f"The offset {offset} of the topic {topic}, partition {partition}, that the group {group} has committed says what "
                f"cannot be read ({error}). Upgrade task-assignor, and leave the offsets as they are."
            ) from None
        except ValueError:
            raise KafkaClusterException(
                f"The group {group} has committed offset {offset} of the topic {topic}, partition {partition}, but this application "
                f"has not done it (metadata {text[:100]!r}). Maybe somebody has set it (kafka-consumer-groups --reset-offsets), or another "
                "application has the same application.id. Without the offsets of that group (--delete-offsets) a run goes on from its "
                "folder; to process records again, run the application under another application.id with a new run_dir."
            ) from None
    if len(found) > 1:
        offsets = ", ".join(f"{offset} of {topic}" for topic, (offset, _) in sorted(committed.items()))
        raise KafkaClusterException(
            f"The offsets that the group {group} has committed of partition {partition} - {offsets} - are not those after one "
            "batch. Maybe somebody has set some of them back or on; to process records again, run the application under another "
            "application.id with a new run_dir."
        )
    return next(iter(found.values()))


def check_complete(group: str, partition: int, committed: Collection[str], sources: Collection[str]) -> None:
    """See to it that the group has offsets of all sources of a task of which nothing else is known, if it has any.

    Raises:
        KafkaClusterException: it has not: some would be read anew, and others not.
    """
    if absent := set(sources) - set(committed):
        raise KafkaClusterException(
            f"The group {group} has committed offsets of {listed(committed)}, partition {partition}, but none of {listed(absent)} any "
            "more, and the run has no record of that partition. Maybe somebody has deleted them; to process records again, run "
            "the application under another application.id with a new run_dir."
        )


def check_stores(group: str, partition: int, last: Committed, stores: Collection[str]) -> None:
    """See to it that a task of which nothing else is known had all of its stores when it committed last.

    Raises:
        KafkaClusterException: it had not: they would lack what was read before.
    """
    if absent := set(stores) - set(last.stores):
        raise KafkaClusterException(
            f"The group {group} has committed offsets of {listed(last.begin)}, partition {partition}, when there was no store "
            f"{listed(absent)}, which would lack all that was read before. Maybe the topology has gained it since: run the "
            "application under another application.id with a new run_dir, which computes everything anew."
        )


def check_end(topic: str, partition: int, end: int, task: TaskId, before: int) -> None:
    """See to it that a partition does not end before what a task has committed in it.

    A broker that was killed may have come back without records.

    Args:
        topic: the topic of an output or a changelog.
        partition: the partition.
        end: where it ends now.
        task: the task.
        before: the offset after the last record that the task has committed there.

    Raises:
        RecordsLostException: it does.
    """
    if end < before:
        raise RecordsLostException(
            f"The topic {topic}, partition {partition}, has lost records: it ends at offset {end} now, and task {task} had "
            f"committed some up to offset {before}. Maybe its broker was killed and came back without them, which only "
            "replicas help against, or somebody has created it anew. What the application has written is not whole any more; "
            "to make it again, run it under another application.id with a new run_dir."
        )


def check_unread(connection: Connection, topic: str, partition: int) -> None:
    """See to it that nothing was removed from a repartition topic of whose reader nothing is known.

    Raises:
        KafkaClusterException: something was, so it had been read; or the cluster does not answer, or refuses.
    """
    first = first_offset(connection, topic, partition)
    if first:
        raise KafkaClusterException(
            f"The repartition topic {topic}, partition {partition}, begins at offset {first}: what was before has been read and removed, "
            "but neither the group's offsets nor the run folder say what came of it. Maybe run the application under another "
            "application.id with a new run_dir, which computes everything anew."
        )


def last_commits(
    connection: Connection, application_id: str, topology: Topology, tasks: Collection[TaskId]
) -> dict[TaskId, Committed]:
    """What the last transactions of the tasks did that have committed anything.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    places = _places(application_id, topology, tasks)
    found = committed_offsets(
        connection, application_id, [place for of_task in places.values() for place in of_task.values()]
    )
    last: dict[TaskId, Committed] = {}
    for task, of_task in places.items():
        committed = {name: found[place] for name, place in of_task.items() if place in found}
        if committed:
            last[task] = committed_of(application_id, task.partition, committed)
    return last


def check_sources(connection: Connection, application_id: str, topology: Topology, tasks: Collection[TaskId]) -> None:
    """See to it that sources reach as far as the group has committed, where no run folder says what they had.

    Raises:
        RecordsLostException: one does not: what comes there would be passed over until it does.
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    places = {place for of_task in _places(application_id, topology, tasks).values() for place in of_task.values()}
    committed = committed_offsets(connection, application_id, sorted(places)) if places else {}
    for topic in sorted({name for name, _ in committed}):
        offsets = {partition: offset for (name, partition), (offset, _) in committed.items() if name == topic}
        for partition, end in zip(offsets, high_watermarks(connection, topic, [*offsets]), strict=True):
            if end < offsets[partition]:
                raise RecordsLostException(
                    f"The topic {topic}, partition {partition}, ends at offset {end}, and the group {application_id} has committed offset "
                    f"{offsets[partition]} of it: it has lost records. Maybe run the application under another "
                    "application.id, which processes what is there."
                )


def end_transactions(
    connection: Connection,
    application_id: str,
    topology: Topology,
    tasks: Collection[TaskId],
    internal: Mapping[str, int],
    clients: Callable[[], Collection[str]],
) -> None:
    """End the transactions that processes of a former run have left open when they were killed.

    Until they are over, brokers tell nobody the offsets that the tasks have committed before, or show no reader what is written after
    their records. Those of clients that nobody knows any more, as where the folder of their run is lost, brokers end themselves: where
    they hold offsets back that is waited for.

    Args:
        connection: the process's connection.
        application_id: the group.
        topology: what is computed.
        tasks: its tasks.
        internal: changelog and repartition topics -> their partitions.
        clients: gives the names of clients, now and before.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    places = _places(application_id, topology, tasks)
    task_at = {place: task for task, of_task in places.items() for place in of_task.values()}

    def open_ones() -> set[TaskId]:
        held = {task_at[place] for place in held_back(connection, application_id, [*task_at])}
        # Who is killed before it has sent offsets has written records all the same.
        begun = begun_in(connection, internal)
        parts = [] if not begun else [(task, topology.of_task(task)) for task in tasks]
        return held | {task for task, part in parts if _writes(application_id, task, part, begun)}

    found = open_ones()
    if not found:
        return
    told = ", ".join(map(str, sorted(found)))
    _log.info("Transactions of tasks %s were left open by an earlier run; they are ended", told)
    end_those_of(connection, application_id, sorted(clients()))
    if left := open_ones():
        end_those_of(connection, application_id, sorted(map(str, left)))
        committed_offsets(connection, application_id, [*task_at], connection.open_ms)


def _writes(application_id: str, task: TaskId, part: ProcessorTopology, places: Collection[tuple[str, int]]) -> bool:
    """A task may have written to some partitions of internal topics."""
    changelogs = {changelog_topic(application_id, store.name, part.topology) for store in part.stores if store.logged}
    between = {topic_of(application_id, part, output.name) for output in part.outputs}
    return any(topic in between or (topic in changelogs and partition == task.partition) for topic, partition in places)


def end_those_of(connection: Connection, application_id: str, names: Collection[str]) -> None:
    """End what transactions of these clients, or tasks in places of their own, are open.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """

    def end(who: str) -> None:
        name = transactional_id(application_id, who)
        producer = connection.producer({"transactional.id": name})
        connection.ask(f"end the transactions {name}", producer.init_transactions)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            ended: Iterable[None] = pool.map(end, names)
        except RuntimeError:
            # The main thread has ended, and Python gives no more work to others.
            ended = map(end, names)
        for _ in ended:
            pass


def transactional_id(application_id: str, who: TaskId | str) -> str:
    """Under which a client makes its transactions, or a task that is in a place of its own."""
    return f"{application_id}-{who}"


def _places(
    application_id: str, topology: Topology, tasks: Collection[TaskId]
) -> dict[TaskId, dict[str, tuple[str, int]]]:
    """Task -> source -> (its topic in Kafka, partition): whose offsets the task commits."""
    return {
        task: {
            name: (topic_of(application_id, topology, name), task.partition) for name in topology.of_task(task).sources
        }
        for task in tasks
    }


def needed_ends(application_id: str, topology: Topology, last: Mapping[TaskId, Committed]) -> Ends:
    """Where the topics of outputs and changelogs must reach at least, by what the tasks have committed."""
    needed: dict[str, dict[int, tuple[int, TaskId]]] = {}
    for task, committed in last.items():
        for topic, partition, end in _ends(application_id, task, topology.of_task(task), committed):
            of_topic = needed.setdefault(topic, {})
            of_topic[partition] = max(of_topic.get(partition, (0, task)), (end, task))
    return needed


def warn_of_more_partitions(last: Collection[Committed], partitions_of: Callable[[str], int]) -> None:
    """Say that outputs were given more partitions than they had when the tasks last wrote there.

    Raises:
        RecordsLostException: one is another topic by now.
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    for name in sorted({name for committed in last for name in committed.partitions}):
        before = max(committed.partitions.get(name, 0) for committed in last)
        now = partitions_of(name)
        if now > before:
            _log.warning(
                "The topic %s has %d partitions, and had %d when it was last written: somebody has added some. Records of a key "
                "go into another partition from the next run on, or earlier from a client that is started anew.",
                name,
                now,
                before,
            )


def check_kept(connection: Connection, needed: Ends, partitions_of: Callable[[str], int]) -> None:
    """See to it that topics still have what was committed, also where nobody reads or writes again.

    Args:
        connection: the process's connection.
        needed: where they must reach.
        partitions_of: gives the number of partitions of a topic.

    Raises:
        RecordsLostException: they have not.
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    for topic, of_topic in sorted(needed.items()):
        count = partitions_of(topic)
        there = [partition for partition in sorted(of_topic) if partition < count]
        ends = dict(zip(there, high_watermarks(connection, topic, there), strict=True)) if there else {}
        for partition, (before, task) in sorted(of_topic.items()):
            check_end(topic, partition, ends.get(partition, 0), task, before)


def hidden(connection: Connection, needed: Ends) -> list[str]:
    """Partitions in which a transaction is open that hides what was committed after it, as `<topic>-<number>`.

    Raises:
        KafkaClusterException: the cluster does not answer, or refuses.
    """
    return [
        f"{topic}-{partition}"
        for topic, of_topic in sorted(needed.items())
        for partition, end in zip(of_topic, stable_offsets(connection, topic, [*of_topic]), strict=True)
        if end < of_topic[partition][0]
    ]


def _ends(
    application_id: str, task: TaskId, part: ProcessorTopology, last: Committed
) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and the offset after the last record that a task has committed there."""
    for store in part.stores:
        end = last.stores.get(store.name, (0, 0))[1]
        if store.logged and end:
            yield changelog_topic(application_id, store.name, part.topology), task.partition, end
    for (name, partition), end in last.written.items():
        if name in {output.name for output in part.outputs}:
            yield topic_of(application_id, part, name), partition, end
