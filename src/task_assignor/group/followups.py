"""When a follow-up rebalance begins that an assignor has asked for: when it says, but not at once again and again."""

from __future__ import annotations

from typing import Final

_LONGEST_MS: Final = 60_000
"""The shortest `probing.rebalance.interval.ms` that Kafka allows."""


class FollowUps:
    """Follow-up rebalances of one group, of which each may ask for the next.

    A deadline that has passed means at once. That is right once, and where every answer asks for it, it is a storm of rebalances: the
    second in a row is put off by the shortest pause, the next one by twice that, and so on, up to a minute. Kafka has no such limit.

    Args:
        pause_ms: the shortest pause; what is asked for sooner than that is asked for at once.
    """

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._hurried = 0
        """So many in a row were asked for at once."""

    def due_ms(self, deadline_ms: int | None, now_ms: int) -> int | None:
        """When the next one begins, ms since the epoch, if the answer of now asks for it at that deadline; None: it asks for none."""
        if deadline_ms is None or deadline_ms >= now_ms + self._pause_ms:
            self._hurried = 0
            return deadline_ms
        self._hurried += 1
        if self._hurried == 1:
            return deadline_ms
        # Twice as long again and again soon is longer than any limit.
        return now_ms + min(self._pause_ms << min(self._hurried - 2, 20), _LONGEST_MS)
