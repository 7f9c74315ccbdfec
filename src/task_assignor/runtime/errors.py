"""The errors of the runtime: what went wrong with topics, topologies, processors, clients and commits."""

from __future__ import annotations

from collections import deque

from task_assignor.runtime.blame import CodeLine
from task_assignor.sdk import StreamsException


class TopicException(StreamsException):
    """A topic is missing, exists already, or was described in a way that is not allowed."""


class CorruptLogException(TopicException):
    """A file of a topic, changelog or snapshot cannot be read, or rows are missing.

    Args:
        message: what is wrong, with everything named.
        topic: name of the topic, output or changelog.
        partition: number of the partition.
        offset: first offset of the file (for changelogs and outputs: the batch).
        path: path or URL of the file.
    """

    def __init__(self, message: str, topic: str = "", partition: int = -1, offset: int = -1, path: str = "") -> None:
        super().__init__(message, topic, partition, offset, path)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class RowsGoneException(CorruptLogException):
    """Rows at the beginning of a partition are wanted, and have been deleted: somebody did, or retention."""


class TaskMigratedException(StreamsException):
    """Another owner of the task has taken over: what this one was doing does not count, and it has to begin from what does."""


class TopologyException(StreamsException, ValueError):
    """A topology cannot be built, or does not fit the topics it reads."""


class StoreException(StreamsException, ValueError):
    """A state store was asked for something that it cannot do."""


class ProcessorException(StreamsException):
    """A processor raised. The message names task, topics, partition, offsets, processor, the original error and its line.

    Args:
        message: the story.
        task: the task, as text.
        remote_traceback: traceback of the client, as text; also a note of the exception.
        line: the line of the user's code that failed, if there is one.
    """

    def __init__(self, message: str, task: str = "", remote_traceback: str = "", line: CodeLine | None = None) -> None:
        super().__init__(message, task, remote_traceback, line)
        self.task = task
        self.remote_traceback = remote_traceback
        self.line = line

    def __str__(self) -> str:
        return str(self.args[0])


class BadRecordException(ProcessorException):
    """A record cannot be processed, and the setting is to stop at such.

    Args:
        message: which record it is, and what is wrong with it.
        topic: its topic.
        partition: its partition.
        offset: its offset.
        task: as of `ProcessorException`, like those after it; not known where a processor is called without a run.
        remote_traceback: traceback of the client.
        line: the line of the user's code.
    """

    def __init__(
        self,
        message: str,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        task: str = "",
        remote_traceback: str = "",
        line: CodeLine | None = None,
    ) -> None:
        super().__init__(message, task, remote_traceback, line)
        self.args = (message, topic, partition, offset, task, remote_traceback, line)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class LateRecordException(BadRecordException):
    """A record is older than its source promised, and the setting is to stop at such."""


class TaskCorruptedException(StreamsException):
    """What a store has on disk cannot be read any more; it is built anew from a snapshot or the changelog."""


class ProcessorStateException(StreamsException, OSError):
    """The disk under a store says no: what is wrong is neither the record that asked for something nor what is kept."""


class ClientException(StreamsException):
    """The clients could not be started, were all lost, or one failed for a reason of its own."""


class CommitLogException(StreamsException):
    """The commit log of a run cannot be read, has a gap, or belongs to another application or coordinator."""


class InvalidTransitionException(StreamsException):
    """A state machine was given an event that its state does not allow: a bug, reported with the story so far.

    Args:
        machine: which state machine.
        state: the state it was in.
        event: the event.
        story: the last events and what they led to.
    """

    def __init__(self, machine: str, state: str, event: str, story: tuple[str, ...] = ()) -> None:
        super().__init__(machine, state, event, story)
        self.machine = machine
        self.state = state
        self.event = event
        self.story = story

    def __str__(self) -> str:
        tale = "\n  ".join((" The story:", *self.story)) if self.story else ""
        return f"{self.machine} in state {self.state} cannot take {self.event}.{tale}"


class Story:
    """The last events of a state machine, for errors."""

    def __init__(self) -> None:
        self._events: deque[tuple[str, object]] = deque(maxlen=60)

    def add(self, state: str, event: object) -> None:
        """An event comes in this state."""
        self._events.append((state, event))

    def told(self) -> tuple[str, ...]:
        """An event a line, oldest first."""
        return tuple(f"{state}: {brief(event)}" for state, event in self._events)


def brief(event: object) -> str:
    """An event in one line of a story."""
    text = repr(event)
    return text if len(text) <= 300 else f"{text[:297]}..."
