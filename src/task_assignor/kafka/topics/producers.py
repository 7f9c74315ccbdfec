"""The producers of tasks' transactions: one for each task, begun side by side where first orders of many tasks come at once.

To begin one takes a few answers of brokers. From then on no other owner of the task can commit anything.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Final

import attrs
from confluent_kafka import KafkaException, Producer

from task_assignor.kafka.topics.committed import transactional_id
from task_assignor.kafka.topics.connection import Connection
from task_assignor.sdk import TaskId

MOST_S: Final = 10.0
"""So long may one call wait for brokers."""
_AT_ONCE: Final = 16
_MOST_BYTES: Final = 1_000_000_000
"""librdkafka's greatest: how large a record may be, brokers say."""


@attrs.frozen(eq=False)
class Begun:
    """A producer with which transactions can be made.

    Args:
        producer: the producer.
        made_at: when it was made, in seconds of the monotonic clock.
    """

    producer: Producer
    made_at: float


class Producers:
    """Makes the producers of a process.

    Args:
        application_id: how transactional ids begin.
        connection: the process's connection.
    """

    def __init__(self, application_id: str, connection: Connection) -> None:
        self._application_id = application_id
        self._connection = connection
        self._expected: dict[TaskId, Future[Begun | None]] = {}
        self._queue: queue.SimpleQueue[tuple[TaskId, Future[Begun | None]]] = queue.SimpleQueue()

    def make(self, task: TaskId) -> Producer:
        """A producer that is not begun."""
        return self._connection.producer(
            {
                "transactional.id": transactional_id(self._application_id, task),
                "compression.type": "lz4",
                "linger.ms": 5,
                "message.max.bytes": _MOST_BYTES,
            }
        )

    def expect(self, tasks: Collection[TaskId]) -> None:
        """Begin to begin those of these tasks."""
        for task in tasks:
            self._expected[task] = Future()
            self._queue.put((task, self._expected[task]))
        for _ in range(min(_AT_ONCE, len(tasks))):
            threading.Thread(target=self._work, name="begin transactions", daemon=True).start()

    def expects(self, task: TaskId) -> bool:
        """The one of the task is begun, or is about to be: an older one can commit nothing any more."""
        return task in self._expected

    def forget(self, task: TaskId) -> None:
        """The task has gone."""
        self._expected.pop(task, None)

    def take(self, task: TaskId, made_after: float) -> Begun | None:
        """The one of a task that was expected, when it is begun; None: it was not, or is too old, or brokers did not answer at once."""
        expected = self._expected.get(task)
        try:
            found = None if expected is None else expected.result(2 * MOST_S)
        except TimeoutError:
            return None
        finally:
            self.forget(task)
        return None if found is None or found.made_at < made_after else found

    def _work(self) -> None:
        while True:
            try:
                task, found = self._queue.get_nowait()
            except queue.Empty:
                return
            is_wanted = self._expected.get(task) is found
            found.set_result(self._begun(task) if is_wanted else None)

    def _begun(self, task: TaskId) -> Begun | None:
        made_at = time.monotonic()
        try:
            producer = self.make(task)
            producer.init_transactions(min(MOST_S, self._connection.request_s))
        except KafkaException:
            # Whoever takes the task in hand tries again, and says what is wrong.
            return None
        return Begun(producer, made_at)
