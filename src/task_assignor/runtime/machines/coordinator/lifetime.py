"""Where a run is between its clients' coming and its end, and how long it waits there. Every change is a decision of the coordinator."""

from __future__ import annotations

from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.machines.coordinator.members import Members
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase
from task_assignor.runtime.options import RuntimeOptions


class Lifetime:
    """The phase of a run, and what ends it: nobody comes, or somebody wants it to end.

    Args:
        options: settings of the runtime.
        expected_clients: the run begins when so many clients are there.
        now_ms: time.

    Attributes:
        expected_clients: as above; the launcher may think of another number later.
        stop_reason: why the run is to end; "": nobody wants it to.
        stop_by_ms: when open orders are left undone, because somebody wants the run to end.
    """

    def __init__(self, options: RuntimeOptions, expected_clients: int, now_ms: int) -> None:
        self._options = options
        self.expected_clients = expected_clients
        self._phase = CoordinatorPhase.GATHERING
        self._begun_ms = self._alone_since_ms = now_ms
        self.stop_reason = ""
        self.stop_by_ms: int | None = None

    # What can be seen.

    @property
    def phase(self) -> CoordinatorPhase:
        """Where the run is."""
        return self._phase

    @property
    def is_gathering(self) -> bool:
        """It waits for its first clients."""
        return self._phase is CoordinatorPhase.GATHERING

    @property
    def is_running(self) -> bool:
        """Batches are processed."""
        return self._phase is CoordinatorPhase.RUNNING

    @property
    def is_stopping(self) -> bool:
        """Clients were told to stop, and some have not gone yet."""
        return self._phase is CoordinatorPhase.STOPPING

    @property
    def is_over(self) -> bool:
        """Nothing is processed any more."""
        return self._phase in (CoordinatorPhase.STOPPING, CoordinatorPhase.ENDED)

    @property
    def takes_orders(self) -> bool:
        """New batches may begin."""
        return self.is_running and not self.stop_reason

    def seconds(self, now_ms: int) -> float:
        """How long it has run."""
        return (now_ms - self._begun_ms) / 1000

    # What becomes of it.

    def begin(self, now_ms: int) -> None:
        """The clients are there."""
        self._phase = CoordinatorPhase.RUNNING
        self._begun_ms = now_ms

    def stop(self) -> None:
        """Clients are told to stop."""
        self._phase = CoordinatorPhase.STOPPING

    def end(self) -> None:
        """All clients have gone, or nobody waits for them any more."""
        self._phase = CoordinatorPhase.ENDED

    # How long it waits.

    def lose_last(self, now_ms: int) -> int:
        """Nobody is there any more: so many ms are waited for others, at least one; before the run has begun as long as for all."""
        if not self.is_gathering:
            self._alone_since_ms = now_ms
        return max(self._alone_since_ms + self._options.startup_timeout_ms - now_ms, 1)

    def want_stop(self, reason: str, now_ms: int) -> bool:
        """Somebody wants the run to end; whether it is the first time."""
        if self.is_running and self.stop_by_ms is None:
            self.stop_by_ms = now_ms + self._options.stop_timeout_ms
        is_first = not self.stop_reason
        self.stop_reason = self.stop_reason or reason
        return is_first

    def must_stop(self, now_ms: int) -> bool:
        """Somebody wants the run to end, and what is in progress has had its time."""
        return self.is_running and self.stop_by_ms is not None and now_ms >= self.stop_by_ms

    def excuse(self, still_ms: int) -> None:
        """The coordinator has stood still for so long: nobody could come, nor be heard."""
        self._alone_since_ms += still_ms
        self.stop_by_ms = None if self.stop_by_ms is None else self.stop_by_ms + still_ms

    def why_nobody(self, members: Members, now_ms: int) -> ClientException | None:
        """Clients were waited for, and did not come in time."""
        waited_ms = now_ms - self._alone_since_ms
        if not self._waits_for_clients(members) or waited_ms <= self._options.startup_timeout_ms:
            return None
        return members.nobody_came(waited_ms, self.expected_clients if self.is_gathering else None)

    def deadlines_ms(self, members: Members) -> list[int]:
        """When it has waited long enough for what it waits for."""
        deadlines = []
        if self._waits_for_clients(members):
            deadlines.append(self._alone_since_ms + self._options.startup_timeout_ms + 1)
        if self.is_running and self.stop_by_ms is not None:
            deadlines.append(self.stop_by_ms)
        return deadlines

    def _waits_for_clients(self, members: Members) -> bool:
        return self.is_gathering or (self.is_running and not members)
