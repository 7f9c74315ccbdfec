"""The internal topics of an application: which there must be, with how many partitions. Nothing is created here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from task_assignor.group.errors import GroupException, check_mapping, count_of, list_of
from task_assignor.group.topology import SubTopologyShape, check_reads_topics, partition_count
from task_assignor.sdk.text import counted


class MissingSourceTopicException(GroupException):
    """A source topic does not exist.

    Args:
        topics: all that do not.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        super().__init__(
            f"The application reads topics that do not exist: {', '.join(topics)}. Maybe create them first."
        )
        self.topics = tuple(topics)


@attrs.frozen
class TopicPlan:
    """The topics of an application.

    Args:
        partitions: topic -> number of partitions, internal topics included.
        internal: repartition and changelog topics -> number of partitions that they need.
        create: those of them that do not exist yet.
    """

    partitions: Mapping[str, int]
    internal: Mapping[str, int]
    create: Mapping[str, int]


def plan_topics(shapes: Sequence[SubTopologyShape], partitions: Mapping[str, int]) -> TopicPlan:
    """Which internal topics there must be, and with how many partitions.

    A repartition topic has as many as the largest source of the sub-topologies that write it; one that is read beside
    other topics has theirs. A changelog has as many as its sub-topology has tasks.

    Args:
        shapes: the sub-topologies.
        partitions: topic -> number of partitions, of all topics that exist.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        GroupException: sources are not co-partitioned, an internal topic has a wrong number of partitions, or that of a
            repartition topic cannot be known.

    Source: `RepartitionTopics`, `ChangelogTopics`, `CopartitionedTopicsEnforcer`.
    """
    shapes = list_of("sub-topologies", SubTopologyShape, shapes)
    check_mapping("partitions", partitions, "topics to their numbers of partitions")
    missing = sorted({topic for shape in shapes for topic in shape.sources if topic not in partitions})
    if missing:
        raise MissingSourceTopicException(missing)
    found = {topic: count_of(topic, partitions[topic]) for shape in shapes for topic in shape.sources}
    internal = _repartition_topics(shapes, found)
    for shape in shapes:
        count = partition_count(shape, {**found, **internal})
        internal |= {topic: count for topic in shape.changelog_topics if topic not in found}
    for topic, count in internal.items():
        if partitions.get(topic, count) != count:
            is_read = any(topic in shape.repartition_sources for shape in shapes)
            own = " Or it has a number of its own (Repartitioned.withNumberOfPartitions), which cannot be told here."
            raise GroupException(
                f"The internal topic {topic!r} has {counted(partitions[topic], 'partition')}, but needs {count}. Maybe its sources "
                f"were given more partitions: reset the application, or create the topic anew.{own if is_read else ''}"
            )
    create = {topic: count for topic, count in internal.items() if topic not in partitions}
    return TopicPlan({**partitions, **internal}, internal, create)


def _repartition_topics(shapes: Sequence[SubTopologyShape], sources: Mapping[str, int]) -> dict[str, int]:
    """One after the other, as the topics that they are made of become known."""
    waiting = list(dict.fromkeys(topic for shape in shapes for topic in shape.repartition_sources))
    found: dict[str, int] = {}
    while waiting:
        counts = {topic: _repartition_count(topic, shapes, {**sources, **found}) for topic in waiting}
        known = {topic: count for topic, count in counts.items() if count is not None}
        if not known:
            raise GroupException(
                f"The numbers of partitions of the repartition topics {', '.join(waiting)} cannot be known: no "
                "sub-topology writes them from topics whose numbers are known."
            )
        found |= known
        waiting = [topic for topic in waiting if topic not in known]
    return found


def _repartition_count(topic: str, shapes: Sequence[SubTopologyShape], known: Mapping[str, int]) -> int | None:
    """As the other topics of its readers say, else as its writers' sources say; None: not known yet."""
    for shape in shapes:
        if topic in shape.repartition_sources and shape.sources:
            return max(known[source] for source in shape.sources)
    writers = [shape for shape in shapes if topic in shape.repartition_sinks]
    for shape in writers:
        check_reads_topics(shape)
    if not writers or any(source not in known for shape in writers for source in shape.all_sources):
        return None
    return max(known[source] for shape in writers for source in shape.all_sources)
