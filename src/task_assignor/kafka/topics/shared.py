"""What the tasks of a process share that write to topics of Kafka: the topics, the connection, and how transactions got on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from task_assignor.kafka.topics.committed import transactional_id
from task_assignor.kafka.topics.committing import Committer
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.creation import largest_batch
from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.offsets import high_watermarks
from task_assignor.kafka.topics.reader import RecordReader
from task_assignor.runtime.machines.records import FileRef, RoutedFile


class Shared:
    """What the tasks of a process share.

    Args:
        application_id: `application.id`: the group whose offsets are committed, and the beginning of transactional ids.
        outputs: output -> how its topic is written.
        repartitions: the same of repartition topics.
        partitions_of: gives the number of partitions of a topic.
        connection: the process's connection.
        reader: the process's reader.
        who: name of what the tasks are with, this process.
    """

    def __init__(
        self,
        application_id: str,
        outputs: Mapping[str, KafkaTopic],
        repartitions: Mapping[str, KafkaTopic],
        partitions_of: Callable[[str], int],
        connection: Connection,
        reader: RecordReader,
        who: str,
    ) -> None:
        self.application_id = application_id
        self.topics = {**outputs, **repartitions}
        self.repartitions = repartitions
        self.partitions = {name: partitions_of(topic.name) for name, topic in sorted(self.topics.items())}
        self.connection = connection
        self.reader = reader
        self.committer = Committer(connection, application_id, transactional_id(application_id, who))
        self._taken: dict[str, int] = {}
        """Changelog topic -> how many bytes it takes for a record."""

    def taken_by(self, changelog: str) -> int:
        """How many bytes a changelog topic takes for a record, as of when that was asked first.

        Raises:
            KafkaClusterException: the cluster does not answer, or refuses.
        """
        if changelog not in self._taken:
            self._taken[changelog] = largest_batch(self.connection, changelog)
        return self._taken[changelog]

    def topic_of(self, name: str) -> str:
        """The topic of a source or an output."""
        found = self.topics.get(name)
        return name if found is None else found.name

    def routed(
        self,
        name: str,
        rows: int,
        size: int,
        ends: Sequence[int] | None = None,
        times: tuple[int, int] | None = None,
    ) -> RoutedFile:
        """Records of a repartition topic, and how far it reaches with them.

        Args:
            name: the repartition topic.
            rows: the rows that they hold.
            size: their bytes.
            ends: per partition the offset after the last; None: how far it reaches now.
            times: the oldest and the newest time of the rows, ms, if they are known.
        """
        topic = self.topic_of(name)
        if ends is None:
            ends = high_watermarks(self.connection, topic, range(self.partitions[name]))
        return RoutedFile(FileRef.of_topic(topic, rows, size), (), tuple(ends), times)
