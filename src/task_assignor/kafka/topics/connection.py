"""One process's connection to a cluster by confluent-kafka: look-ups that wait for a broker to come back, up to a limit.

Clients of confluent-kafka cannot be pickled, so each process makes its own, here, when it needs them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar

import attrs
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, libversion
from confluent_kafka.admin import AdminClient

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.rights import NO_RIGHT
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import duration, listed

_log = logger_of(__name__)
_Answer = TypeVar("_Answer")
_Client = TypeVar("_Client")
_WAIT_S: Final = 0.2
_LOOK_S: Final = 1.0
_FIRST_ANSWER_S: Final = 3.0
"""So long is waited for a first answer, and twice as long each time after that: refusals are noticed in between."""
UNLIMITED_S: Final = 3_600.0
"""The time that librdkafka is given for what is asked of a group's coordinator, however long it is waited for: when its own time is over, and the
answer comes later, it aborts the process (rd_kafka_enq_once_del_source_return). Who is let go of before aborts nothing."""
_LOOKED_FOR_MS: Final = 15_000
"""Brokers look every 10 s for transactions that have taken too long (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""
_OF_THAT: Final = 3
"""Brokers that answer have so many times as long to say what is wrong."""
_SILENCE_S: Final = 5.0
"""So long may a broker be away before a word is said."""
_OF_CONNECTIONS: Final = frozenset({"FAIL"})
"""What librdkafka calls its lines of connections that fail: hundreds a minute while a broker is away, all to `error_cb`, too."""
_FROM_WARNINGS_ON: Final = 4
"""What it says below that (as BGQUEUE: that a client is given up which has asked for something) is of no use. Where a client ends it does
not go to the logger, but to the terminal."""
_KNOWN_BROKERS: Final = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020B0000 else {}
"""Else, where all connections are gone at one moment - it is enough that brokers close them since they were idle -, librdkafka begins anew with
`bootstrap.servers`, and a producer goes on with a group coordinator that it has let go of: offsets wait for ten seconds, or for ever."""
_RECONNECT_MS: Final = 1_000
"""So long is waited at most before a broker is tried again, as by Kafka's own clients. librdkafka waits up to 10 s, and transactions with it."""
_NOT_TO_THIS: Final = "not to this"
"""All that can be said where brokers answer others, and nothing is seen to be wrong."""
_HELD_BACK: Final = (
    "its quotas for this user or client (producer_byte_rate, consumer_byte_rate, request_percentage) are used up: the last time it "
    "made it wait for {:.1f} s"
)
_NO_CONNECTION: Final = (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._SSL)  # noqa: SLF001
_BROKEN_OFF: Final = "mechanism handshake failed: Local: "
"""The broker has not said no: the connection to it broke just then, or it was too slow. librdkafka has the same code for that."""
_OF_TRANSACTIONS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Where brokers write of each transaction, too."""
_PASSING: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 (Kafka's names for local errors begin so)
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        # Somebody else has given the client up that this was asked by.
        KafkaError._DESTROY,  # noqa: SLF001
        # "No leaders found": all brokers that led what is asked for have just gone.
        KafkaError._NOENT,  # noqa: SLF001
        # Of a broker that has just come, or come back: it does not know all yet, or the client not who leads.
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)


class _Lines(logging.LoggerAdapter[logging.Logger]):
    """The log for a client of librdkafka: of connections that fail `Patience` says what is to be said, and nothing is said twice in a row.

    None of it is a warning: a client process has no handlers of its own, so warnings stand on the terminal as they are.
    """

    _last: tuple[object, ...] = ()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As a logger; librdkafka gives the kind of a line first."""
        # What it does not get over by itself comes as an error, too, to whoever asked for it, and is told there.
        is_known = args == self._last or (bool(args) and args[0] in _OF_CONNECTIONS)
        level = logging.DEBUG if is_known else min(level, logging.INFO)
        self._last = args
        super().log(level, f"librdkafka: {msg}", *args, **kwargs)


@attrs.define
class Trouble:
    """The last time that the clients of a process had no connection, and that a broker refused them.

    Args:
        failure: why there was no connection.
        failed_at: when, in seconds of the monotonic clock.
        refusal: what the broker said; it does so as long as nobody corrects the settings.
        refused_at: when.
        throttle_s: for so many seconds brokers have last made one of them wait, since its quota was used up.
        throttled_until: until when.
    """

    failure: str = ""
    failed_at: float = -1.0
    refusal: str = ""
    refused_at: float = -1.0
    throttle_s: float = 0.0
    throttled_until: float = -1.0

    def note(self, error: Any) -> None:
        """Told of every error of a client."""
        _log.debug("confluent-kafka: %s", text_of(error))
        code = KafkaError._TRANSPORT if _BROKEN_OFF in error.str() else error.code()  # noqa: SLF001
        if code == KafkaError._AUTHENTICATION and "mechanism handshake failed" in error.str():  # noqa: SLF001
            self._refused(
                f"{text_of(error)}. Maybe the listener has another sasl.mechanism, or none: then security.protocol is another one"
            )
        elif code == KafkaError._AUTHENTICATION:  # noqa: SLF001
            self._refused(f"{text_of(error)}. Maybe the user or password in sasl.jaas.config is wrong")
        elif code == KafkaError._SSL and "verify failed" in error.str():  # noqa: SLF001
            self._refused(f"{text_of(error)}. Maybe ssl.truststore.location does not have its certificate")
        elif code in _NO_CONNECTION:
            self.failure, self.failed_at = error.str().partition(" (after ")[0].rstrip("."), time.monotonic()

    def note_throttle(self, event: Any) -> None:
        """Told when brokers make a client wait, and when they do no longer."""
        if event.throttle_time > 0:
            self.throttle_s = event.throttle_time
            self.throttled_until = time.monotonic() + event.throttle_time

    def _refused(self, reason: str) -> None:
        self.refusal, self.refused_at = reason, time.monotonic()


class Patience:
    """How long something is waited for that brokers must bring; says so in the log when it takes long.

    Args:
        what: what is waited for, as the end of "Cannot ...".
        servers: addresses of the brokers.
        timeout_ms: the longest wait without any progress.
        trouble: what the clients met; where brokers refuse them nothing is waited for.
        state: says what may be wrong where brokers answer others; "": they answer nobody. It waits at most so many seconds.
    """

    def __init__(
        self, what: str, servers: str, timeout_ms: int, trouble: Trouble, state: Callable[[float], str]
    ) -> None:
        self._what = what
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._trouble = trouble
        self._state = state
        self._said = False
        self._begin = time.monotonic()

    @property
    def left_s(self) -> float:
        """So long may it still be waited for without any progress."""
        return max(self._begin + self._timeout_ms / 1000 - time.monotonic(), 0.0)

    @property
    def silent_s(self) -> float:
        """So long until there is something to be said."""
        return self.left_s if self._said else min(max(self._begin + _SILENCE_S - time.monotonic(), 0.0), self.left_s)

    def at_least(self, timeout_ms: int) -> None:
        """What is waited for is known to take so long."""
        self._timeout_ms = max(self._timeout_ms, timeout_ms)

    def progress(self) -> None:
        """Something came."""
        if self._said:
            _log.warning("The cluster at %s answers again: can %s.", self._servers, self._what)
        self._said = False
        self._begin = time.monotonic()

    def check(self, problem: object = None, state: Callable[[float], str] | None = None) -> None:
        """Nothing came.

        Args:
            problem: what was met.
            state: says what is wrong, if more is known of it than that brokers answer others. It waits at most so many seconds for
                an answer.

        Raises:
            KafkaClusterException: for too long, or brokers refuse the clients.
        """
        if self._trouble.refused_at >= self._begin:
            raise KafkaClusterException(
                f"Cannot {self._what}: the cluster at {self._servers} refuses: {self._trouble.refusal}."
            )
        is_over = not self.left_s
        if self.silent_s:
            return
        failure = self._trouble.failure if self._trouble.failed_at >= self._begin else ""
        longest = _FIRST_ANSWER_S if is_over else _LOOK_S
        found = self._state(longest)
        if found and state is not None:
            found = state(_OF_THAT * longest) or found
        # Where brokers say what is wrong, one that does not answer is not the reason.
        failure = failure if found in ("", _NOT_TO_THIS) else ""
        # Quotas hold back whoever asks how brokers are, too.
        if (
            found in ("", _NOT_TO_THIS)
            and not failure
            and time.monotonic() < self._trouble.throttled_until + _SILENCE_S
        ):
            found = _HELD_BACK.format(self._trouble.throttle_s)
        reasons = [str(reason) for reason in (problem, failure) if reason]
        told = f": {'; '.join(reasons)}" if reasons else ""
        if is_over and found:
            address = (
                "brokers name addresses that cannot be reached from here (advertised.listeners), or " if failure else ""
            )
            raise KafkaClusterException(
                f"Cannot {self._what}, after trying for {duration(self._timeout_ms)}{told}. The cluster at {self._servers} "
                f"answers, but {found}. Maybe {address}it takes longer: then give KafkaTopics a longer timeout_ms."
            )
        if is_over:
            raise KafkaClusterException(
                f"Cannot {self._what}: the cluster at {self._servers} has not answered for "
                f"{duration(self._timeout_ms)}{told}. Maybe no broker listens there, or the settings for TLS and SASL are not "
                "those of the listener; if brokers may be away for longer, give KafkaTopics a longer timeout_ms."
            )
        self._said = True
        _log.warning(
            "Cannot %s yet%s It is waited for up to %s.",
            self._what,
            f"{told}. The cluster at {self._servers} answers, but {found}."
            if found
            else f": the cluster at {self._servers} does not answer{told}.",
            duration(self._timeout_ms),
        )


class Connection:
    """The clients of one process.

    Args:
        settings: how to reach the cluster.
        timeout_ms: the longest wait for brokers that do not answer, also for those of which nothing has come yet: they may be
            on their way.
    """

    def __init__(self, settings: ClientSettings, timeout_ms: int) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._groups: dict[str, Consumer] = {}
        self._trouble = Trouble()
        self.topics: set[str] = set()
        """Those that must be there."""

    @property
    def admin(self) -> AdminClient:
        """For questions about topics."""
        with self._lock:
            if self._admin is None:
                self._admin = self._made(AdminClient, {})
            return self._admin

    def group(self, name: str) -> Consumer:
        """For the offsets of a group, and to commit them in transactions; it never becomes a member."""
        with self._lock:
            if name not in self._groups:
                self._groups[name] = self.consumer({"group.id": name})
            return self._groups[name]

    def _forget_clients(self) -> None:
        """They may go on for ever to ask the broker that they know, which is gone or leads no more, or none at all."""
        with self._lock:
            self._admin = None
            self._groups.clear()

    @property
    def request_s(self) -> float:
        """The longest wait for one answer of a broker, in seconds."""
        return self._settings.request_timeout_ms / 1000

    @property
    def transaction_ms(self) -> int:
        """So long may a transaction take; then brokers end it."""
        return self._settings.transaction_timeout_ms

    @property
    def open_ms(self) -> int:
        """So long may one be open that nobody ends: brokers look only now and then which have taken too long."""
        return self.transaction_ms + _LOOKED_FOR_MS

    @property
    def session_ms(self) -> int:
        """So long do brokers call the driver of a run a member that they do not hear of any more."""
        return self._settings.session_timeout_ms

    @property
    def is_well(self) -> bool:
        """Brokers answer, and nothing is seen to be wrong with the topics that must be there."""
        return self._state_of_brokers(_LOOK_S) == _NOT_TO_THIS and not self.is_throttled

    @property
    def problem(self) -> str:
        """What is seen to be wrong with the topics that must be there; "": nothing, or brokers do not answer."""
        found = self._state_of_brokers(_LOOK_S)
        return "" if found == _NOT_TO_THIS else found

    @property
    def is_throttled(self) -> bool:
        """Brokers make a client of the process wait now, since its quota is used up."""
        return time.monotonic() < self._trouble.throttled_until

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        """A consumer that reads what is committed, and commits nothing by itself."""
        fixed = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "error"}
        return self._made(Consumer, {**fixed, **config})

    def producer(self, config: Mapping[str, Any]) -> Producer:
        """A producer; of transactions, if it has a `transactional.id`."""
        # librdkafka wants an answer to come while the transaction lives.
        longest = min(self._settings.request_timeout_ms, self.transaction_ms)
        fixed = {
            "transaction.timeout.ms": self.transaction_ms,
            "socket.timeout.ms": longest,
            # Of a topic that somebody has deleted brokers would make another one, with their own settings, when it is asked for.
            "allow.auto.create.topics": False,
        }
        return self._made(Producer, {**fixed, **_KNOWN_BROKERS, **config})

    def _made(self, kind: Callable[..., _Client], config: Mapping[str, Any]) -> _Client:
        """A client of that kind.

        Raises:
            KafkaClusterException: confluent-kafka makes none.
        """
        fixed = {
            "error_cb": self._trouble.note,
            "throttle_cb": self._trouble.note_throttle,
            "log_level": _FROM_WARNINGS_ON,
            "reconnect.backoff.max.ms": _RECONNECT_MS,
        }
        try:
            return kind({**self._settings.for_confluent_kafka(), **fixed, **config}, logger=_Lines(_log))
        except KafkaException as error:
            raise KafkaClusterException(
                f"confluent-kafka makes no client for {','.join(self._settings.bootstrap_servers)}: {text_of(error.args[0])}. Maybe a "
                "file that the settings name is not on this machine, or cannot be read by this user."
            ) from error

    def patience(self, what: str) -> Patience:
        """The wait for something."""
        return Patience(
            what, ",".join(self._settings.bootstrap_servers), self._timeout_ms, self._trouble, self._state_of_brokers
        )

    def _state_of_brokers(self, longest: float) -> str:
        """What brokers say of themselves to who asks anew; "": they do not answer in so many seconds."""
        # By a client of its own: those that there are may have lost them.
        asked = self._made(AdminClient, {})
        try:
            found = asked.list_topics(timeout=longest)
        except KafkaException:
            return ""
        finally:
            asked.poll(0)  # tells of quotas
        if absent := self.topics - found.topics.keys():
            return f"{listed(absent)} is not there any more: somebody has deleted it"
        known = {name: topic.partitions for name, topic in found.topics.items()}
        needed = {name: known[name] for name in self.topics | _OF_TRANSACTIONS & known.keys()}
        led_by_none = [
            f"{name}-{number}"
            for name, partitions in (needed if self.topics else known).items()
            for number, partition in partitions.items()
            if partition.leader < 0
        ]
        if led_by_none:
            return f"no broker leads {listed(led_by_none)} now: those that have it are away, or still recover it"
        in_sync = {
            name: min((len(each.isrs), len(each.replicas)) for each in partitions.values())
            for name, partitions in needed.items()
            # Of a topic that is being made or deleted brokers may say no partitions.
            if partitions
        }
        if too_few := [f"{name} ({there} of {all_})" for name, (there, all_) in in_sync.items() if there < all_]:
            return f"not all replicas are in sync of {listed(too_few)}: if they are fewer than min.insync.replicas, nothing is written"
        return _NOT_TO_THIS

    def ask(
        self,
        what: str,
        ask: Callable[[float], _Answer],
        state: Callable[[float], str] | None = None,
        least_ms: int = 0,
    ) -> _Answer:
        """Ask, and again while no broker answers.

        Args:
            what: what is asked for, as the end of "Cannot ...".
            ask: asks, waiting at most so many seconds; raises what confluent-kafka raises.
            state: as for `Patience.check`.
            least_ms: what is asked for is known to take so long.

        Raises:
            KafkaClusterException: nobody answers for too long, or the answer is a refusal.
        """
        patience = self.patience(what)
        patience.at_least(least_ms)
        timeout = _FIRST_ANSWER_S
        while True:
            # Somebody else may let go of it meanwhile, and then it never answers.
            held = self.admin
            try:
                answer = ask(min(timeout, max(patience.silent_s, _WAIT_S), self.request_s))
            except KafkaException as error:
                problem = error.args[0]
                if not is_passing(problem):
                    advice = NO_RIGHT.get(problem.code(), "") if isinstance(problem, KafkaError) else ""
                    raise KafkaClusterException(f"Cannot {what}: {text_of(problem)}. {advice}".rstrip()) from error
            except TimeoutError:
                problem = None
            else:
                return answer
            held.poll(0)  # tells of refusals
            patience.check(problem and text_of(problem), state)
            self._forget_clients()
            timeout *= 2
            time.sleep(_WAIT_S)


def answers(futures: Mapping[Any, Future[Any]], timeout_s: float) -> dict[Any, Any]:
    """What each future brings."""
    return {key: future.result(timeout_s) for key, future in futures.items()}


def within(seconds: float, step: Callable[[], object], look: Callable[[], object] = bool) -> None:
    """Do something that may never come back: calls of librdkafka wait for ever when an answer gets lost (its issue 5456).

    Args:
        seconds: the longest wait.
        step: what is done, in a thread of its own, which is left behind if need be.
        look: called every second until it is done; what it raises ends the wait.

    Raises:
        TimeoutError: it has not come back.
    """
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(step())
        except BaseException as error:  # noqa: BLE001 (it is raised where it is waited for)
            done.set_exception(error)

    threading.Thread(target=run, name="within", daemon=True).start()
    end = time.monotonic() + seconds
    while not wait([done], min(_LOOK_S, max(end - time.monotonic(), 0))).done:
        if time.monotonic() >= end:
            raise TimeoutError
        look()
    done.result()


def is_passing(error: Any) -> bool:
    """It may be over when asked again."""
    return isinstance(error, KafkaError) and (error.retriable() or error.code() in _PASSING)


def text_of(error: Any) -> str:
    """An error of confluent-kafka for people."""
    return f"{error.str().rstrip('.')} ({error.name()})" if isinstance(error, KafkaError) else str(error)
