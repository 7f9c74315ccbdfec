"""From sub-topologies to tasks: which partitions a task has, the co-partition rule. No assignment here.

Source: `PartitionGrouper` (task p of a sub-topology has partition p of each of its topics); stricter than Kafka where
Kafka silently allows source topics of unequal partition counts, because then a join loses rows without a word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from task_assignor.group.errors import GroupException, check_mapping, check_racks, check_text, count_of, list_of, texts
from task_assignor.sdk import TaskId, TaskInfo, TaskTopicPartition, TopicPartition
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import counted, shown


# Without type variables: mypy's attrs plug-in cannot solve those.
def _topics(topics: Iterable[str]) -> tuple[str, ...]:
    return texts("a sub-topology", topics)


def _changelogs(changelogs: Mapping[str, str | None]) -> Mapping[str, str | None]:
    is_right = isinstance(changelogs, Mapping) and all(
        isinstance(store, str) and isinstance(topic, str | None) and topic != "" for store, topic in changelogs.items()
    )
    if not is_right:
        raise GroupException(
            f"The changelogs of a sub-topology ({shown(changelogs)}) must be a mapping from stores to topics, or to None."
        )
    return dict(changelogs)


@attrs.frozen
class SubTopologyShape:
    """What the group knows of a sub-topology.

    Args:
        name: name for messages.
        sources: its source topics.
        changelogs: store -> its changelog topic; None: the store is not logged. A changelog that is also a source (a
            source changelog) is allowed.
        topology: the named topology that it belongs to; None: the application has but one, without a name.
        repartition_sources: repartition topics that it reads.
        repartition_sinks: repartition topics that it writes.
        number: the first part of its task ids; None: the next one. Java counts sub-topologies of global stores, too, which
            make no tasks.

    Raises:
        GroupException: one of these is not what it must be.
    """

    name: str
    sources: tuple[str, ...] = attrs.field(converter=_topics)
    changelogs: Mapping[str, str | None] = attrs.field(factory=dict, converter=_changelogs)
    topology: str | None = None
    repartition_sources: tuple[str, ...] = attrs.field(default=(), converter=_topics)
    repartition_sinks: tuple[str, ...] = attrs.field(default=(), converter=_topics)
    number: int | None = None

    def __attrs_post_init__(self) -> None:
        check_text("The name of a sub-topology", self.name)
        if self.topology is not None:
            check_text("The topology of a sub-topology", self.topology)
        if self.number is not None and (type(self.number) is not int or not 0 <= self.number <= INT32_MAX):
            raise GroupException(
                f"The number of a sub-topology ({shown(self.number)}) must be an int from 0 to {INT32_MAX}, or None."
            )

    @property
    def all_sources(self) -> tuple[str, ...]:
        """Every topic that it reads."""
        return (*self.sources, *self.repartition_sources)

    @property
    def changelog_topics(self) -> tuple[str, ...]:
        """The changelogs of its logged stores."""
        return tuple(topic for topic in self.changelogs.values() if topic is not None)


def number_sub_topologies(found: Iterable[tuple[str | None, int | None]]) -> list[tuple[str | None, int]]:
    """For each sub-topology its topology and its number there: each named topology counts from 0.

    Args:
        found: the topology of each, and its number where it is given.
    """
    following: Counter[str | None] = Counter()
    numbers = []
    for topology, given in found:
        number = following[topology] if given is None else given
        numbers.append((topology, number))
        following[topology] = number + 1
    return numbers


def make_tasks(
    shapes: Sequence[SubTopologyShape],
    partitions: Mapping[str, int],
    racks: Mapping[str, Sequence[frozenset[str] | None]] | None = None,
) -> dict[TaskId, TaskInfo]:
    """The tasks of all sub-topologies: `i_p` for sub-topology i and each partition p of its sources.

    With named topologies `name__i_p`, where i counts the sub-topologies of that name.

    Args:
        shapes: the sub-topologies, in the order of their numbers.
        partitions: topic -> number of partitions, for all source topics.
        racks: topic -> racks per partition, where known.

    Returns:
        Task id -> `TaskInfo`, in task-id order.

    Raises:
        GroupException: a source topic is unknown or empty, the sources of a sub-topology have unequal counts, two
            sub-topologies have the same number, or there are racks of fewer partitions than a topic has.
    """
    shapes = list_of("sub-topologies", SubTopologyShape, shapes)
    if racks is not None:
        check_mapping("racks", racks, "topics to the racks of each partition")
        for topic in racks:
            check_racks(topic, racks[topic])
    tasks: dict[TaskId, TaskInfo] = {}
    numbers = number_sub_topologies((shape.topology, shape.number) for shape in shapes)
    for shape, (topology, number) in zip(shapes, numbers, strict=True):
        count = partition_count(shape, partitions)
        changelogs = shape.changelog_topics
        topics = list(dict.fromkeys([*shape.all_sources, *changelogs]))
        for topic in topics:
            if racks and topic in racks and len(racks[topic]) < count:
                raise GroupException(
                    f"The racks of the topic {topic!r} are those of {counted(len(racks[topic]), 'partition')}, but it has {count}."
                )
        for partition in range(count):
            task = TaskId(number, partition, topology)
            if task in tasks:
                raise GroupException(f"Two sub-topologies have the number {number}; the second is {shape.name!r}.")
            tasks[task] = TaskInfo(
                task,
                bool(shape.changelogs),
                frozenset(shape.changelogs),
                [
                    TaskTopicPartition(
                        TopicPartition(topic, partition),
                        topic in shape.all_sources,
                        topic in changelogs,
                        racks[topic][partition] if racks and topic in racks else None,
                    )
                    for topic in topics
                ],
            )
    return {task: tasks[task] for task in sorted(tasks)}


def check_reads_topics(shape: SubTopologyShape) -> None:
    """Raise GroupException if the sub-topology has no sources, of which its tasks would be made."""
    if not shape.all_sources:
        raise GroupException(f"The sub-topology {shape.name!r} reads no topic.")


def partition_count(shape: SubTopologyShape, partitions: Mapping[str, int]) -> int:
    """How many tasks a sub-topology has: the number of partitions of each of its sources.

    Raises:
        GroupException: there are no sources, one does not exist or is empty, or their numbers differ.
    """
    check_reads_topics(shape)
    check_mapping("partitions", partitions, "topics to their numbers of partitions")
    counts = {}
    for topic in shape.all_sources:
        if topic not in partitions:
            raise GroupException(f"The sub-topology {shape.name!r} reads the topic {topic!r}, which does not exist.")
        counts[topic] = count_of(topic, partitions[topic])
        if counts[topic] < 1:
            raise GroupException(f"The topic {topic!r} of the sub-topology {shape.name!r} has no partitions.")
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{topic!r} has {count}" for topic, count in counts.items())
        raise GroupException(
            f"The sources of the sub-topology {shape.name!r} are not co-partitioned: {told} partitions. "
            "Maybe write the topics again with equal numbers of partitions."
        )
    return next(iter(counts.values()))
