"""Which run of an application is the latest: each says in the application's group that it has begun.

Tasks are fenced, but only when they commit: two runs that wait for rows know nothing of each other, and where rows come each takes
the tasks back from the other. So a run leaves a mark as it begins, and looks now and then whether it is still there. The mark is
the metadata of an offset that nobody goes by, that of a changelog topic: the user may read it, and no task has it as a source.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from task_assignor.kafka.topics.connection import Connection
from task_assignor.runtime.errors import CommitLogException

_LOOK_S: Final = 5.0
_ANSWER_S: Final = 3.0


class LatestRun:
    """That this run of an application is the latest.

    Args:
        connection: the process's connection.
        application_id: `application.id`.
        topic: a changelog topic of the application.
    """

    def __init__(self, connection: Connection, application_id: str, topic: str) -> None:
        self._connection = connection
        self._application_id = application_id
        self._topic = topic
        self._mark = json.dumps({"run": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()})
        self._looked_s = 0.0
        self._has_begun = False

    def begin(self) -> None:
        """It is the latest from now on.

        Raises:
            KafkaClusterException: brokers do not answer for too long, or refuse.
        """
        mark: list[Any] = [TopicPartition(self._topic, 0, 0, self._mark)]
        self._connection.ask(
            f"begin a run in the group {self._application_id}",
            lambda _: self._connection.group(self._application_id).commit(offsets=mark, asynchronous=False),
        )
        self._looked_s, self._has_begun = time.monotonic(), True

    def check(self) -> None:
        """See to it, now and then, that no other run has begun since. Where that cannot be seen, nothing is said.

        Raises:
            CommitLogException: one has.
        """
        if not self._has_begun or time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        try:
            group = self._connection.group(self._application_id)
            (found,) = group.committed([TopicPartition(self._topic, 0)], _ANSWER_S)
            other = json.loads(found.metadata or "{}")
        except (KafkaException, ValueError):
            return
        if not isinstance(other, dict) or "run" not in other or found.metadata == self._mark:
            return
        raise CommitLogException(
            f"Another run of the application {self._application_id!r} has begun, on host {other.get('host')} as process "
            f"{other.get('pid')}, with another run_dir: each would take the other's tasks away. This one ends; what it has committed "
            "counts, and the other one goes on there. Maybe choose another application.id for one of them."
        )
