"""Consumers in threads, as members of a group of a real broker, that note what they read."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from task_assignor.group.consumers import ConsumerAssignor

# Long enough for a machine with much else to do; who is killed is noticed after it.
SESSION_MS = 10_000


class Member:
    """One consumer: it reads, writes down, commits; until it leaves or is killed.

    Args:
        servers: where the broker is.
        group: the group.
        topics: what it subscribes to.
        assignors: consumer-level assignors, plug-ins, or kafka-python's own.
        instance: static member id.
    """

    def __init__(
        self,
        servers: str,
        group: str,
        topics: Iterable[str],
        assignors: Iterable[Any],
        instance: str | None = None,
        rack: str | None = None,
    ) -> None:
        from kafka import KafkaConsumer

        from task_assignor.kafka import ConsumerAssignorPlugin
        from task_assignor.kafka.plugin import GroupPlugin

        self.plugins = [
            ConsumerAssignorPlugin(each, limit_ms=SESSION_MS, rack_id=rack)
            if isinstance(each, ConsumerAssignor)
            else each
            for each in assignors
        ]
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=instance,
            partition_assignment_strategy=self.plugins,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        for plugin in self.plugins:
            if isinstance(plugin, GroupPlugin):
                plugin.attach(self.consumer)
        self.read: list[tuple[str, int, int]] = []
        self.owned: frozenset[tuple[str, int]] = frozenset()
        self.errors: list[str] = []
        self._topics = list(topics)
        self._stop = threading.Event()
        self._is_killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def plugin(self) -> Any:
        """The first of its plug-ins."""
        return self.plugins[0]

    def _run(self) -> None:
        self.consumer.subscribe(self._topics)
        while not self._stop.is_set():
            try:
                found = self.consumer.poll(50)
                self.owned = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
                for records in found.values():
                    self.read += [(record.topic, record.partition, record.offset) for record in records]
                if found:
                    self.consumer.commit()
            except Exception as error:  # noqa: BLE001  (a test asks for it)
                self.errors.append(f"{type(error).__name__}: {error}")
        if not self._is_killed:
            self.consumer.close()

    def leave(self) -> None:
        """Say good-bye and end."""
        self._stop.set()
        self._thread.join(60)

    def kill(self) -> None:
        """End without a word: the group learns of it when the session is over."""
        self._is_killed = True
        self._stop.set()
        self._thread.join(60)
        # As if its machine had stopped: no heartbeats any more, and no good-bye.
        self.consumer._net.stop()


def partitions_of(topics: Iterable[str], count: int) -> frozenset[tuple[str, int]]:
    """All partitions of topics with so many each."""
    return frozenset((topic, partition) for topic in topics for partition in range(count))


def is_settled(members: Iterable[Member], everything: frozenset[tuple[str, int]]) -> bool:
    """Every partition has one owner."""
    owned = [each for member in members for each in member.owned]
    return len(owned) == len(everything) and set(owned) == everything
