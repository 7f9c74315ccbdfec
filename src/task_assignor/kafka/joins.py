"""What kafka-python's consumers keep to themselves of their group: answers to joins that outlast a `poll()`, being fenced."""

from __future__ import annotations

from typing import Any

from kafka.errors import FencedInstanceIdError


class KeptJoins:
    """What kafka-python 3.0.12 forgets of joins, kept, as the Java client does.

    A join goes on beside the polls. If it ends between two of them, kafka-python drops the answer and joins anew, and the
    whole group with it: a consumer whose joins keep ending so never gets what it was given. And if the reason of the join,
    new metadata, is gone meanwhile, nobody asks for the answer: heartbeats stay off until the member is expelled.

    Args:
        coordinator: the private coordinator of a `KafkaConsumer`; there is no public way to either.
    """

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._ask, self._complete = coordinator._do_join_and_sync_async, coordinator._on_join_complete_async  # noqa: SLF001
        self._kept: tuple[object, Any] | None = None
        coordinator._do_join_and_sync_async, coordinator._on_join_complete_async = self.join, self.complete  # noqa: SLF001

    @classmethod
    def keep(cls, coordinator: Any) -> None:
        """Keep a consumer's joins; once is enough, however many plug-ins it has."""
        if "_do_join_and_sync_async" not in vars(coordinator):
            cls(coordinator)

    async def join(self) -> Any:
        """The answer that nobody looked at, if the member is still in that generation; else that of a new join."""
        if self._kept is None or self._kept[0] is not self._coordinator._generation:  # noqa: SLF001
            self._kept = None
            self._coordinator.request_rejoin()  # so that the answer is asked for, whatever became of the reason
            answer = await self._ask()
            self._kept = self._coordinator._generation, answer  # noqa: SLF001
        return self._kept[1]

    async def complete(self, *answer: Any) -> None:
        """The consumer looks at the answer."""
        self._kept = None
        await self._complete(*answer)


def raise_if_fenced(consumer: Any) -> None:
    """As the Java client does it in `poll()`; kafka-python 3.0.12 stops the heartbeats, and the member seems to be stable.

    Raises:
        FencedInstanceIdError: another consumer has joined the group with the same `group.instance.id`.
    """
    coordinator = consumer._coordinator  # noqa: SLF001
    with coordinator._lock:  # noqa: SLF001
        # A join says first that it has begun, and ends under this lock.
        is_silent = not coordinator._heartbeat_enabled and not coordinator.rejoining  # noqa: SLF001
        if is_silent and coordinator.stable():
            raise FencedInstanceIdError
