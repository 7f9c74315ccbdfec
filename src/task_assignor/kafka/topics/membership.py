"""The membership of a run in its application's group, without which brokers take nothing of its clients.

The driver of a run is the one member of the group `application.id`, and a static one (KIP-345): who comes with the same
`group.instance.id` takes its place. Each transaction names that membership, and brokers refuse those that name an older one
(KIP-447). So when a client was given up that may still be at work, the driver takes its own place, and the others get the new
membership; and when another run of the application begins, elsewhere and with another folder, the clients of the one before can
commit nothing any more.

What a client has committed in part when it was given up is ended by beginning its transactions once more.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.committed import end_those_of
from task_assignor.kafka.topics.connection import UNLIMITED_S, Connection, text_of
from task_assignor.kafka.topics.rights import NO_RIGHT
from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.tasks.results import Renewed
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import duration, failure

_log = logger_of(__name__)
INSTANCE: Final = "task-assignor"
"""`group.instance.id` of the driver."""
_POLL_S: Final = 0.1
_ENDS_S: Final = 2.0
_LOOK_S: Final = 0.5
_SESSIONS: Final = 2
"""For so long has another one the place who is a run: who is none is not heard of again, and forgotten after a session."""
_NEVER_MS: Final = 86_400_000
_REFUSED: Final = {
    **NO_RIGHT,
    KafkaError.INVALID_SESSION_TIMEOUT: "Maybe session.timeout.ms ({session_ms}) is less than group.min.session.timeout.ms of the brokers, "
    "or more than group.max.session.timeout.ms: give KafkaTopics one between them.",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "Maybe another application has this application.id: choose another one.",
}
"""What brokers say however often they are asked -> advice."""


class _LostPlaceError(Exception):
    """Brokers call the member fenced, and nobody has its place."""


@attrs.frozen
class _Wanted:
    number: int
    client: str


class Membership:
    """The membership of a run.

    Args:
        connection: the driver's connection.
        application_id: `application.id`: the group.
        sources: the topics whose offsets the clients commit. Brokers forget those of others after `offsets.retention.minutes`, also
            while the run goes on (KIP-211).
    """

    def __init__(self, connection: Connection, application_id: str, sources: Sequence[str]) -> None:
        self._connection = connection
        self._application_id = application_id
        self._sources = list(sources)
        self._wanted: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._member: Consumer | None = None
        self._member_id = ""
        """What brokers called it when they gave it the permit."""
        self._permit = b""
        self._seen_at = 0.0
        """When brokers have answered last who was asked whether they still do, in seconds of the monotonic clock."""
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    def begin(self, told: Callable[[Renewed | StreamsException], None]) -> None:
        """Become the member, and stay it; who is told hears of each permit, and at last why there are no more."""
        self._thread = threading.Thread(target=self._run, args=(told,), name="membership", daemon=True)
        self._thread.start()

    def renew(self, number: int, client: str = "") -> None:
        """Have brokers refuse what clients do with the permits so far.

        Args:
            number: what the answer is known by.
            client: a client that was given up; its transactions are ended. Empty: none was.
        """
        self._wanted.put(_Wanted(number, client))

    def close(self) -> None:
        """Stay it no longer."""
        self._is_over.set()
        self._wanted.put(None)
        if self._thread is not None:
            # Where brokers do not answer it may take long, and nobody waits for what comes of it.
            self._thread.join(_ENDS_S)

    def _run(self, told: Callable[[Renewed | StreamsException], None]) -> None:
        try:
            while (wanted := self._next()) is not None:
                if wanted and not self._renew(sorted({each.client for each in wanted} - {""})):
                    return
                told(Renewed(self._permit, max((each.number for each in wanted), default=0)))
        except StreamsException as error:
            told(error)
        except BaseException as error:  # noqa: BLE001 (nobody else would hear of it)
            told(
                KafkaClusterException(f"The membership in the group {self._application_id} has ended: {failure(error)}")
            )
        finally:
            if self._member is not None:
                self._member.close()

    def _next(self) -> list[_Wanted] | None:
        """All that is wanted by now; none: brokers have given another permit by themselves; None: it is over."""
        while True:
            with suppress(queue.Empty):
                found = [self._wanted.get(timeout=0 if self._member is not None else None)]
                # When a machine is lost all of its clients are, and one permit is enough.
                found += [self._wanted.get() for _ in range(self._wanted.qsize())]
                known = [each for each in found if each is not None]
                return known if len(known) == len(found) else None
            if self._poll(_POLL_S):
                return []

    def _poll(self, seconds: float) -> bool:
        """Be a member for so long; True: there is another permit.

        Raises:
            CommitLogException: another run is the member now.
            KafkaClusterException: brokers do not answer for too long, or refuse.
        """
        member = self._member
        assert member is not None
        try:
            self._heard(member, seconds)
        except _LostPlaceError:
            return self._renew([])
        if time.monotonic() - self._seen_at > self._connection.session_ms / 1000:
            # Those who have not heard of it for that long let clients commit nothing, who wait for another permit, and would for ever.
            self._connection.ask(f"stay the member of the group {self._application_id}", self._describe)
            self._seen_at = time.monotonic()
        # It loses the place when brokers have not heard of it for too long, and takes it again by itself.
        return self._take(member)

    def _heard(self, member: Any, seconds: float) -> str:
        """Poll a member; what is wrong, if something is.

        Raises:
            _LostPlaceError: it is no member any more, nor is anybody else.
            CommitLogException: another run is the member now.
            KafkaClusterException: brokers refuse it.
        """
        message = member.poll(seconds)
        error = None if message is None else message.error()
        if error is None:
            return ""
        if error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL):  # noqa: SLF001
            if not self._is_held_by_another():
                raise _LostPlaceError
            # Who that is, brokers do not say: the place keeps the client.id of who had it first.
            raise CommitLogException(
                f"Another run of the application {self._application_id!r} has begun, with another run_dir: each would take "
                "the other's tasks away. This one ends; what it has committed counts, and the other one goes on there. Maybe "
                "choose another application.id for one of them."
            )
        if error.code() in _REFUSED:
            raise KafkaClusterException(
                f"Cannot become the member of the group {self._application_id}: {text_of(error)}. "
                + _REFUSED[error.code()].format(session_ms=self._connection.session_ms)
            )
        _log.debug("The membership in the group %s: %s", self._application_id, text_of(error))
        return text_of(error)

    def _take(self, member: Any) -> bool:
        permit = bytes(member.consumer_group_metadata())
        # It may lose the place meanwhile. Brokers take what names nobody of a group that is empty, whoever was there since.
        who = (member.memberid() or "").encode()
        is_new = bool(who) and who in permit and permit != self._permit
        if is_new:
            self._permit, self._member_id = permit, member.memberid()
        return is_new

    def _describe(self, timeout: float) -> Sequence[Any]:
        """The members of the group."""
        admin = self._connection.admin
        asked = admin.describe_consumer_groups([self._application_id], request_timeout=UNLIMITED_S)
        try:
            members: Sequence[Any] = asked[self._application_id].result(timeout).members
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return members

    def _is_held_by_another(self) -> bool:
        """Whether another run has the place, and keeps it.

        Brokers may also mean this one. Where one of them is killed, the answer is lost that tells it what it is called now; and after a
        session librdkafka may send a heartbeat that names nobody.

        Raises:
            KafkaClusterException: brokers do not answer for too long, or refuse.
        """
        until = 0.0
        while not self._is_over.is_set():
            members = self._connection.ask(f"see who is the member of the group {self._application_id}", self._describe)
            if all(each.group_instance_id != INSTANCE or each.member_id == self._member_id for each in members):
                return False
            if not until:
                longest_ms = _SESSIONS * self._connection.session_ms
                until = time.monotonic() + longest_ms / 1000
                _log.warning(
                    "Another member has the place of this run in the group %s. If it is there for %s, this run ends.",
                    self._application_id,
                    duration(longest_ms),
                )
            if time.monotonic() > until:
                return True
            self._is_over.wait(_LOOK_S)
        return False

    def _holder(self) -> str:
        """Member id of who has the place, as far as brokers say it now; "": nobody, or they do not."""
        try:
            members = self._describe(_ENDS_S)
        except (KafkaException, TimeoutError):
            return ""
        return next((str(each.member_id) for each in members if each.group_instance_id == INSTANCE), "")

    def _renew(self, clients: Sequence[str]) -> bool:
        """Take the place; False: it is not wanted any more.

        Raises:
            CommitLogException: another run has it.
            KafkaClusterException: brokers do not answer for too long, or refuse.
        """
        while not self._is_over.is_set():
            try:
                return self._join(clients)
            except _LostPlaceError:
                self._leave()
        # The next run may have it already.
        return False

    def _leave(self) -> None:
        """Be no member. As a static one it keeps its place meanwhile."""
        if self._member is not None:
            self._member.close()
            self._member = None

    def _join(self, clients: Sequence[str]) -> bool:
        """Take the place once.

        Raises:
            _LostPlaceError: it was lost again, and nobody has it.
        """
        what = f"become the member of the group {self._application_id}"
        patience = self._connection.patience(what)
        while self._member is not None and self._holder() not in ("", self._member_id, self._member.memberid()):
            # Either it hears of that with the next heartbeat, or it is the one, and does not know yet that it is back.
            self._heard(self._member, _POLL_S)
            patience.check()
        # It would take its place back where brokers have not heard of it for too long.
        self._leave()
        problem, joined = "", threading.Event()

        def assigned(consumer: Any, partitions: Any) -> None:  # noqa: ARG001 (a callback's)
            # It reads nothing.
            consumer.assign([])
            joined.set()

        member = self._connection.consumer(
            {
                "group.id": self._application_id,
                "group.instance.id": INSTANCE,
                "client.id": f"{socket.gethostname()}-{os.getpid()}",
                "session.timeout.ms": self._connection.session_ms,
                "heartbeat.interval.ms": self._connection.session_ms // 5,
                "max.poll.interval.ms": _NEVER_MS,
                "partition.assignment.strategy": "range",
            }
        )
        member.subscribe(self._sources, on_assign=assigned)
        patience = self._connection.patience(what)
        while not joined.is_set():
            if self._is_over.is_set():
                return False
            problem = self._heard(member, _POLL_S) or problem
            patience.check(problem)
        self._member, self._seen_at = member, time.monotonic()
        self._take(member)
        # What they have left open: nobody is told the offsets before, nor reads what comes after it. They can begin nothing new by now.
        end_those_of(self._connection, self._application_id, clients)
        return True
