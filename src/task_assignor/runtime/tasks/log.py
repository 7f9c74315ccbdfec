"""What tasks read, wherever it is kept: rows in partitions, numbered by offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, Self

from task_assignor.runtime.tasks.results import Permits, Results
from task_assignor.runtime.topics.fetched import Fetched
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.topology import Topology
from task_assignor.sdk import TaskId


class Log(Protocol):
    """Rows in partitions, numbered by offsets. It may grow; nothing in it changes.

    `Topic` is one, kept in a storage; topics of Kafka are another. Methods may be called from any thread.
    """

    @property
    def spec(self) -> TopicSpec:
        """Its name, partitions, schema, key and timestamp column."""

    @property
    def topic_id(self) -> str:
        """Its identity, a UUID: a log that was written anew under its name has another one."""

    def refresh(self) -> None:
        """Look whether it has grown.

        Raises:
            TopicException: it is gone, cannot be read, or was written anew.
        """

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Self]) -> None:
        """`refresh` of several of this kind, which one `Topics` has opened: at one moment where that can be, else one after the other.

        Raises:
            TopicException: one is gone, cannot be read, or was written anew.
        """

    def start_offsets(self) -> Sequence[int]:
        """The first offset of every partition that can be read."""

    def end_offsets(self) -> Sequence[int]:
        """The offset after the last row of every partition, as of the last `refresh`."""

    def check(self, starts: Sequence[int], seals: Sequence[str] = ()) -> None:
        """Make sure, before anybody waits for rows, that what is to be read is there, as far as that is seen from outside.

        Args:
            starts: per partition from which offset on rows will be read; what is before may have gone.
            seals: per partition what `seal_before` said of that offset when the rows before it were read; (): not known.

        Raises:
            CorruptLogException: what is there cannot be what was written.
            TopicException: it is another topic by now, or has other rows than those that were read.
        """

    def seal_before(self, partition: int, offset: int) -> str:
        """What tells the row before an offset from one that has taken its place; "": nothing does."""

    def tell_of_hidden(self) -> None:
        """Say in the log which rows have been there since it was looked at, behind its end, and cannot be read yet; if there are any."""

    def fetch(self, partition: int, start: int, end: int, limit: int = 0) -> Fetched:
        """The rows `start` (inclusive) to `end` (exclusive) of a partition.

        Args:
            partition: number of the partition.
            start: first offset.
            end: offset after the last.
            limit: rows up to there may be given, too, if they are at hand by now.

        Raises:
            RowsGoneException: they have been deleted, as by retention.
            CorruptLogException: they are not there, or are not what was written.
        """


class Source(Log, Protocol):
    """A log that others write."""

    def offsets_for_time(self, time_ms: int) -> Sequence[int]:
        """Per partition the offset of the first row that is not older, or the end.

        Args:
            time_ms: the time, ms since 1970.

        Raises:
            TopicException: its rows have no times.
        """


def refresh_all(logs: Iterable[Log]) -> None:
    """Look whether logs have grown, at one moment where their kind can.

    One after the other, rows of the last would be seen that came long after rows of the first that are not: a task that reads both would
    run ahead, and those would be late.

    Raises:
        TopicException: one is gone, cannot be read, or was written anew.
    """
    kinds: dict[type[Log], list[Log]] = {}
    for log in logs:
        kinds.setdefault(type(log), []).append(log)
    for kind, found in kinds.items():
        kind.refresh_at_once(found)


class Topics(Protocol):
    """Where the topics of an application are. Crosses to clients by pickle: what it connects to is opened there."""

    @property
    def address(self) -> str:
        """What people call the place."""

    @property
    def poll_interval_ms(self) -> int:
        """How often it is looked there whether a topic has grown (`source_poll_interval_ms`), unless somebody says it."""

    def open(self, name: str, expected_id: str | None = None, columns: Collection[str] | None = None) -> Source:
        """The topic of that name, as it is now.

        Args:
            name: name of the topic.
            expected_id: the identity it must have; None: any.
            columns: those that are wanted, if it may have gained others; None: all.

        Raises:
            TopicException: there is none, its description cannot be read, or it is another one than expected.
        """

    def open_repartition(
        self, application_id: str, topology: Topology, name: str, expected_id: str | None = None
    ) -> Log | None:
        """A repartition topic, after `prepare`; None: it is in the folder of the run.

        Args:
            application_id: `application.id`.
            topology: what is computed.
            name: name of the repartition topic.
            expected_id: the identity it must have; None: any.

        Raises:
            TopicException: it is not there, or another one than expected.
        """

    def prepare(
        self,
        application_id: str,
        topology: Topology,
        tasks: Collection[TaskId],
        clients: Callable[[], Collection[str]] = tuple,
        *,
        is_new: bool = False,
    ) -> None:
        """See to it that all topics are there that the application writes, before its clients start.

        Args:
            application_id: `application.id`.
            topology: what is computed.
            tasks: its tasks.
            clients: gives the names of its clients, now and in former runs.
            is_new: nothing was committed in the folder of the run.

        Raises:
            StreamsException: one is not what it should be.
        """

    def committed_offsets(
        self, application_id: str, topology: Topology, partitions: Mapping[str, int]
    ) -> Mapping[tuple[str, int], int]:
        """Where an application goes on of which its folder knows nothing.

        Args:
            application_id: `application.id`.
            topology: what is computed.
            partitions: source topic -> how many it has.

        Returns:
            (topic, partition) -> offset; absent: where it begins.
        """

    def permits(self, application_id: str, topology: Topology) -> Permits | None:
        """Whose results count: none of another run of the application. None: all that the coordinator records, and no others."""

    def check_results(self, application_id: str, topology: Topology, tasks: Collection[TaskId]) -> None:
        """Make sure, when a run is over, that what its tasks have committed outside of the run's folder is still there.

        Raises:
            StreamsException: it is not.
        """

    def reset(self, application_id: str, topology: Topology, *, is_dry: bool = False) -> tuple[str, ...]:
        """Delete what an application has outside of the run's folder besides its outputs, so that it begins anew.

        Args:
            application_id: `application.id`.
            topology: what is computed.
            is_dry: nothing is deleted.

        Returns:
            What is, or would be.

        Raises:
            StreamsException: it runs, or that cannot be done.
        """

    def has_results(self, topology: Topology) -> bool:
        """Whether results of the tasks go there, and not into the folder of the run."""

    def results(self, application_id: str, topology: Topology, who: str) -> Results | None:
        """Where the results of the tasks go; None: into the folder of the run.

        Args:
            application_id: `application.id`.
            topology: what is computed.
            who: name of what makes them, this process: a client, or a task that is in a place of its own.
        """
