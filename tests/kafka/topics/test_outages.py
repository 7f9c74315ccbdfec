"""Brokers that are gone for a while, or for good, under tasks that read and write topics; and strangers with their transactional id."""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import KafkaTopics, committing
from task_assignor.kafka.topics.committed import committed_of
from task_assignor.kafka.topics.committing import Committer
from task_assignor.kafka.topics.connection import Connection, _Lines, answers, within
from task_assignor.kafka.topics.failures import refusal_of
from task_assignor.kafka.topics.offsets import committed_offsets
from task_assignor.kafka.topics.transactions import KafkaResults, TaskTransactions
from task_assignor.runtime import BatchesCommitted, RunEvent, TaskContext
from task_assignor.runtime.errors import TaskMigratedException
from task_assignor.runtime.machines.protocol import Position
from task_assignor.sdk import StreamsException, TaskId
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics, missing, wait_until
from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.topics.records import PARTITIONS, ends_of, stream_topic
from tests.kafka.topics.test_sinks import Counting, Join
from tests.runtime.machine import an_order
from tests.runtime.support import CountByKey

Unique = Callable[[str], str]
pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def frail_cluster() -> Iterator[KafkaCluster]:
    """A broker of our own: others must not wait for it."""
    try:
        with KafkaCluster() as found:
            yield found
    except KafkaUnavailableError as error:
        missing(str(error))


def at_commit(number: int, what: Callable[[], object]) -> Callable[[RunEvent], None]:
    """Does something at a commit of a run."""
    commits = 0

    def watch(event: RunEvent) -> None:
        nonlocal commits
        if isinstance(event, BatchesCommitted):
            commits += 1
            if commits == number:
                what()

    return watch


def test_a_stranger_with_the_transactional_id_costs_time_and_no_rows(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    join = Join(frail_cluster, unique, rows=2_000)

    def fence() -> None:
        for client in ("client-0", "client-1"):
            stranger = Producer(
                {"bootstrap.servers": join.servers, "transactional.id": f"{join.application_id}-{client}"}
            )
            stranger.init_transactions(60)

    join.application(tmp_path / "run", clients=2).run(at_commit(2, fence))
    join.check()


def test_a_fatal_error_is_a_refusal_however_it_comes() -> None:
    """Met as confluent-kafka calls back, it is the cause of a SystemError; that one ended a run once in many."""
    fenced = KafkaException(KafkaError(KafkaError._FENCED, "by a newer producer", fatal=True))
    met = SystemError("<built-in function isinstance> returned a result with an exception set")
    met.__cause__ = fenced
    assert refusal_of(fenced) is refusal_of(met) is fenced
    with pytest.raises(SystemError, match="another"):
        refusal_of(SystemError("another"))


@pytest.mark.parametrize(
    "problem",
    [
        KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found"),
        KafkaError(KafkaError.OFFSET_NOT_AVAILABLE),
        KafkaError(KafkaError._TRANSPORT),
    ],
    ids=str,
)
def test_what_is_said_while_leaders_change_is_asked_again(frail_cluster: KafkaCluster, problem: KafkaError) -> None:
    """librdkafka finds no leaders where those that it knows have just gone; that ended a run once in many."""
    settings = ClientSettings.of({"bootstrap.servers": frail_cluster.bootstrap_servers})
    answers: Iterator[KafkaException | int] = iter([KafkaException(problem), 7])

    def ask(timeout: float) -> int:
        assert timeout > 0
        answer = next(answers)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    assert Connection(settings, 60_000).ask("ask", ask) == 7


def _committer(more: Mapping[str, object] | None = None) -> Committer:
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1", **(more or {})}), 60_000)
    return Committer(connection, "app", "app-client-0")


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (
            '{"taskAssignor":2,"begin":[]}',
            r"taskAssignor 2 is not 1; a newer task-assignor wrote it.*Upgrade .*leave the offsets",
        ),
        ("", "Maybe somebody has set it .*, or another application has the same application.id"),
    ],
)
def test_offsets_that_a_newer_version_has_committed_are_not_to_be_deleted(metadata: str, told: str) -> None:
    """They were said to be another application's."""
    with pytest.raises(StreamsException, match=rf"offset 7 of the topic t, partition 3.*{told}"):
        committed_of("app", 3, {"t": (7, metadata)})


@pytest.mark.parametrize(
    "error", [KafkaError(KafkaError._FENCED, fatal=True), KafkaError(KafkaError._FATAL, "Unable to produce message")]
)
def test_after_a_fatal_error_the_task_begins_anew(error: KafkaError) -> None:
    """Who produces after it has come is only told that it has; that, too, ended a run once in many."""
    failure = _committer()._failure(KafkaException(error), "task 0_0")
    assert isinstance(failure, TaskMigratedException)
    assert "The transaction app-client-0 was ended by Kafka" in str(failure)


def test_of_a_transaction_that_took_too_long_that_is_said() -> None:
    """Kafka calls it fenced; it was told to be another run's doing."""
    one = _committer({"transaction.timeout.ms": 90_000})
    fenced = KafkaException(KafkaError(KafkaError._FENCED, fatal=True))
    for age, said in (
        (0.0, "Either another client"),
        (61.0, "Either another client"),
        (91.0, "It has taken 91 s, and brokers end those of more than 1.5 min"),
    ):
        one._begun = time.monotonic() - age
        assert said in str(one._failure(fenced, "task 0_0"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError._UNKNOWN_PARTITION, "or created it anew with fewer partitions"),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, "brokers have forgotten it (transactional.id.expiration.ms, 7 days)"),
    ],
)
def test_of_what_is_not_there_any_more_that_is_said(code: int, said: str) -> None:
    """It was told to be another client's doing."""
    assert said in str(_committer()._failure(KafkaException(KafkaError(code)), "task 0_0"))


def test_a_producer_that_only_times_out_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had lost its coordinator while a broker stood still for 12 s: the run ended, though the broker answered all others."""
    monkeypatch.setattr(committing, "_SPARE_S", 0.0)
    one = _committer({"request.timeout.ms": "100"})
    one._begun = time.monotonic()
    producer: Any = SimpleNamespace(poll=lambda seconds: seconds)

    def times_out(seconds: float) -> None:
        assert seconds <= 0.1
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed to add offsets"))

    said = r"Cannot commit: it has failed for 0 s: Failed to add offsets \(_TIMED_OUT\). It begins anew with another producer"
    with pytest.raises(TaskMigratedException, match=said):
        one._repeat(producer, "commit", times_out)
    assert one._stuck_at >= one._begun


def test_a_call_that_does_not_come_back_is_given_up_soon_and_later_if_brokers_may_be_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one after an outage cost 45 s: as much as if it waited for the answer of a slow broker."""
    one, waited = _committer(), list[float]()

    def never(seconds: float, step: object, look: object = None) -> None:
        waited.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(committing, "within", never)

    def repeat() -> None:
        producer: Any = None
        with pytest.raises(TaskMigratedException, match="confluent-kafka has not come back for"):
            one._repeat(producer, "commit", lambda seconds: None)

    repeat()
    repeat()
    one._committed_at = time.monotonic()
    repeat()
    assert waited == [15, 45, 15]
    one._connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 9_000)
    repeat()
    assert 8 < waited[-1] <= 9, "before the run ends"


def test_of_a_call_that_takes_long_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task_assignor.kafka.topics.connection._LOOK_S", 0.0)
    over = threading.Event()
    within(60, lambda: over.wait(60), over.set)
    assert over.is_set()
    with pytest.raises(KeyError):
        within(60, lambda: dict[str, int]()["absent"])
    with pytest.raises(TimeoutError):
        within(0, threading.Event().wait)


def test_what_librdkafka_says_again_and_again_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """And none of it is a warning: where nobody has set up a log these are on the terminal as they are. What matters is an error, too.

    A producer that waits for others to end its transaction says so ten times a second.
    """
    caplog.set_level(logging.INFO)
    lines = _Lines(logging.getLogger("task_assignor"))
    said = (
        ("GETPID", "retrying"),
        ("GETPID", "retrying"),
        ("FAIL", "refused"),
        ("GETPID", "retrying"),
        ("FATAL", "gone"),
    )
    for kind, text in said:
        lines.log(logging.WARNING, "%s [%s] %s", kind, "producer-1", text)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "librdkafka: GETPID [producer-1] retrying"),
        ("INFO", "librdkafka: GETPID [producer-1] retrying"),
        ("INFO", "librdkafka: FATAL [producer-1] gone"),
    ]


def _begun(monkeypatch: pytest.MonkeyPatch) -> tuple[TaskTransactions, list[int]]:
    """A task's transactions, and the generations in which it has looked what is committed."""
    committer, looked = _committer(), list[int]()
    producer = SimpleNamespace(init_transactions=lambda seconds: None)
    monkeypatch.setattr(committer._connection, "producer", lambda config: producer)
    one = object.__new__(TaskTransactions)
    one._results = cast("KafkaResults", SimpleNamespace(committer=committer))
    one._task = TaskId(0, 0)
    one.close()
    monkeypatch.setattr(one, "_look", lambda order: looked.append(order.generation))
    return one, looked


def test_what_is_committed_is_looked_at_again_with_another_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    one, looked = _begun(monkeypatch)
    order = an_order(one._task, 4, 1, Position(3, 1))
    one.begin(order)
    one.begin(order)
    assert looked == [1]
    one._results.committer._end()
    one.begin(order)
    one.begin(order)
    assert looked == [1, 1]


def test_a_task_that_goes_on_in_a_new_generation_need_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance made a producer of each task anew, also of those that stayed: with fifty on a client they stood still for seconds."""
    one, looked = _begun(monkeypatch)

    def begin(generation: int, after: int) -> None:
        one.begin(an_order(one._task, after + 1, generation, Position(after, generation)))

    begin(1, after=3)
    one._batch = 4
    begin(2, after=4)
    assert looked == [1]
    # It was elsewhere, or what it had committed was not heard of.
    begin(3, after=5)
    assert looked == [1, 3]
    one._batch = 6
    begin(4, after=5)
    assert looked == [1, 3, 4]
    # It may have been elsewhere, and lost there.
    one._batch = 6
    one._results.committer.take_permit(b"another")
    begin(5, after=6)
    assert looked == [1, 3, 4, 5]


def test_an_application_that_begins_before_its_broker_waits_for_it_and_says_so(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(frail_cluster, unique, rows=200)
    frail_cluster.kill(0)
    said = "yet: the cluster at .* does not answer: .*Connection refused. It is waited for up to 1 min"

    def come_back() -> None:
        wait_until(lambda: re.search(said, caplog.text), "it says so")
        frail_cluster.restart(0)

    back = threading.Thread(target=come_back)
    back.start()
    counting.run(tmp_path / "run")
    back.join()
    counting.check()


def test_a_restore_that_an_open_transaction_stops_says_so(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """As one of which Kafka has lost the state. It said that the cluster had not answered, and to look after the listener."""
    counting = Counting(frail_cluster, unique, rows=200)
    counting.run(tmp_path / "run")
    stranger = Producer({"bootstrap.servers": counting.servers, "transactional.id": counting.changelog})
    stranger.init_transactions(60)
    stranger.begin_transaction()
    stranger.produce(counting.changelog, b"", b"key", partition=1)
    assert stranger.flush(60) == 0
    end = ends_of(counting.servers, counting.changelog, IsolationLevel.READ_COMMITTED)[1]
    counting.add(200)
    counting.run(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "clients")
    counting.add(200)
    said = (
        rf"Cannot read the topic {counting.changelog}, partition 1, from offset \d+, after trying for 16 s: it has come to offset "
        rf"{end} of \d+. The cluster at {counting.servers} answers, but a transaction that began at offset {end} is open there and "
    )
    brief = {"bootstrap.servers": counting.servers, "transaction.timeout.ms": 1_000}
    with pytest.raises(StreamsException, match=said):
        counting.run(tmp_path / "run", topics_settings=brief, timeout_ms=12_000)
    stranger.abort_transaction(60)
    counting.run(tmp_path / "run")
    counting.check()


def test_a_broker_that_comes_back_is_waited_for(frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path) -> None:
    join = Join(frail_cluster, unique, rows=2_000)
    (broker,) = frail_cluster._brokers
    awake = threading.Timer(8, broker.send_signal, [signal.SIGCONT])

    def stop() -> None:
        broker.send_signal(signal.SIGSTOP)
        awake.start()

    join.application(tmp_path / "run", clients=2, topics_root=join.topics(timeout_ms=240_000)).run(at_commit(2, stop))
    awake.join()
    join.check()


def test_one_of_three_brokers_is_killed_and_every_row_is_there_once(unique: Unique, tmp_path: Path) -> None:
    settings = {
        **{f"{topic}.replication.factor": "3" for topic in ("default", "offsets.topic", "transaction.state.log")},
        "min.insync.replicas": "2",
        "transaction.state.log.min.isr": "2",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    try:
        with KafkaCluster(["a", "b", "c"], settings) as cluster:
            join = Join(cluster, unique, rows=2_000, replicas=3)
            # The first one is the controller, which is there once.
            make_topics(join.servers, "lonely", partitions=1, brokers=[[3]])
            make_topics(join.servers, "both", partitions=1, brokers=[[1, 3]])
            result = join.application(tmp_path / "run", clients=2).run(at_commit(2, lambda: cluster.kill(2)))
            assert not result.lost_clients
            join.check()
            # That has no leader now: it was said that the cluster does not answer.
            topics = KafkaTopics({"bootstrap.servers": join.servers}, [stream_topic("lonely")], timeout_ms=10_000)
            said = "Cannot read the end offsets of the topic lonely, .* answers, but no broker leads lonely-0 now: those that"
            with pytest.raises(KafkaClusterException, match=said):
                topics.open("lonely").end_offsets()
            # With min.insync.replicas=2 nothing can be written there: it was only said that the brokers answer, "but not to this".
            connection = Connection(ClientSettings.of({"bootstrap.servers": join.servers}), 60_000)
            connection.topics.add("both")
            said = "not all replicas are in sync of __consumer_offsets (2 of 3), __transaction_state (2 of 3), both (1 of 2):"
            wait_until(lambda: connection._state_of_brokers(60).startswith(said), "it is said")
    except KafkaUnavailableError as error:
        missing(str(error))


class Once(CountByKey):
    """Makes confluent-kafka behave once as it does when an answer has got lost."""

    def __init__(self, marker: str) -> None:
        self._marker = marker


class GetsStuck(Once):
    """A call does not come back."""

    def init(self, context: TaskContext) -> None:
        marker = Path(self._marker)

        def once(seconds: float, step: Callable[[], object], look: Callable[[], object] = bool) -> None:
            if context.batch >= 2 and not marker.exists():
                marker.touch()
                step = threading.Event().wait
            within(seconds, step, look)

        setattr(committing, "within", once)  # noqa: B010 (the name is imported there)


class IsSaidToBeCommitted(Once):
    """A transaction that was aborted is said to be committed, when asked once more."""

    def init(self, context: TaskContext) -> None:
        marker, repeat = Path(self._marker), Committer._repeat

        def once(committer: Committer, producer: Any, what: str, step: Callable[[float], object]) -> bool:
            if step == producer.commit_transaction and context.batch >= 2 and not marker.exists():
                marker.touch()
                producer.abort_transaction(60)
                return False
            return repeat(committer, producer, what, step)

        setattr(Committer, "_repeat", once)  # noqa: B010


class DoesNotSayWhere(Once):
    """A record is said to be there, but not at which offset."""

    topics, offset, times = "-changelog", OFFSET_INVALID, 1

    def init(self, context: TaskContext) -> None:
        marker, noting = Path(self._marker), committing._noting

        def once(ends: Any, place: tuple[str, int]) -> Callable[[Any, Any], None]:
            note = noting(ends, place)
            said = len(marker.read_text()) if marker.exists() else 0
            if not place[0].endswith(self.topics) or context.batch < 2 or said >= self.times:
                return note
            marker.write_text((said + 1) * ".")
            nowhere = SimpleNamespace(offset=lambda: self.offset)
            return lambda error, _: note(error, nowhere)

        setattr(committing, "_noting", once)  # noqa: B010


class ChangelogIsEmptyAgain(DoesNotSayWhere):
    """As of a broker that was killed and came back without what it had of the topic: it says so of each try."""

    offset, times = 0, 1_000


class OutputIsEmptyAgain(ChangelogIsEmptyAgain):
    """The same of the output."""

    topics = ""


@pytest.mark.parametrize("processor", [ChangelogIsEmptyAgain, OutputIsEmptyAgain])
def test_records_that_a_broker_has_lost_end_the_run(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, processor: type[Once]
) -> None:
    """It went on to the end, and rows were missing."""
    counting = Counting(frail_cluster, unique)
    said = "has lost records: it ends at offset 1 now, and task 0_. had committed some up to offset"
    with pytest.raises(StreamsException, match=said):
        counting.run(tmp_path / "run", functools.partial(processor, str(tmp_path / "lost")))


LOST = r"The topic {topic}, partition {partition}, has lost records: it ends at offset 0 now, and task 0_. had committed some up"


@pytest.mark.parametrize("which", ["output", "changelog"])
def test_what_a_killed_broker_has_lost_between_two_runs_is_noticed_by_the_next(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, which: str
) -> None:
    """Nobody writes there again: it began, had nothing to do, and was fine."""
    counting = Counting(frail_cluster, unique)
    counting.run(tmp_path / "run")
    counting.check()
    topic = {"output": counting.output, "changelog": counting.changelog}[which]
    frail_cluster.restart_without(0, f"{topic}-2")
    with pytest.raises(StreamsException, match=LOST.format(topic=topic, partition=2)):
        counting.run(tmp_path / "run")


@pytest.mark.parametrize("until", ["available_now", "stopped"])
def test_what_a_broker_loses_that_is_killed_as_a_run_ends_is_noticed(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, until: Literal["available_now", "stopped"]
) -> None:
    """The last batches are written, and nobody writes there again: the run was fine."""
    counting = Counting(frail_cluster, unique)
    rows = 0

    def on_event(event: RunEvent) -> None:
        nonlocal rows
        rows += event.rows_in if isinstance(event, BatchesCommitted) else 0
        if rows == counting.rows.num_rows:
            rows = 0
            # A broker that is killed before it has ended all transactions may not end them when it is back.
            connection = Connection(ClientSettings.of({"bootstrap.servers": counting.servers}), 60_000)
            committed_offsets(
                connection, counting.application_id, [(counting.source, task) for task in range(PARTITIONS)]
            )
            frail_cluster.restart_without(0, f"{counting.output}-1")
            if until == "stopped":
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StreamsException, match=LOST.format(topic=counting.output, partition=1)):
        counting.run(tmp_path / "run", on_event=on_event, until=until)


def test_a_transaction_that_hides_what_was_written_is_told_of(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of which Kafka has lost the state: all was committed, and no reader saw it."""
    counting = Counting(frail_cluster, unique)
    stranger = Producer({"bootstrap.servers": counting.servers, "transactional.id": counting.output})
    stranger.init_transactions(60)
    stranger.begin_transaction()
    stranger.produce(counting.output, b"{}", b"key", partition=1)
    assert stranger.flush(60) == 0
    counting.run(tmp_path / "run")
    said = f"What was committed cannot be read yet in {counting.output}-1: a transaction is open there"
    assert said in caplog.text
    stranger.abort_transaction(60)
    caplog.clear()
    counting.run(tmp_path / "run")
    assert "cannot be read yet" not in caplog.text
    counting.check()


@pytest.mark.parametrize("processor", [DoesNotSayWhere, IsSaidToBeCommitted])
def test_a_batch_of_which_too_little_is_known_is_tried_again(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path, processor: type[Once]
) -> None:
    counting = Counting(frail_cluster, unique)
    result = counting.run(tmp_path / "run", functools.partial(processor, str(tmp_path / "lost")))
    assert (tmp_path / "lost").exists()
    assert not result.lost_clients
    counting.check()


def test_a_call_that_does_not_come_back_is_given_up_and_the_task_begins_anew(
    frail_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    counting = Counting(frail_cluster, unique)
    settings = {"bootstrap.servers": frail_cluster.bootstrap_servers, "request.timeout.ms": "3000"}
    processor = functools.partial(GetsStuck, str(tmp_path / "stuck"))
    result = counting.run(tmp_path / "run", processor, topics_settings=settings)
    assert (tmp_path / "stuck").exists()
    assert not result.lost_clients, "nobody waits for max.poll.interval.ms"
    counting.check()


def test_a_broker_that_stays_away_ends_the_run(unique: Unique, tmp_path: Path) -> None:
    try:
        with KafkaCluster() as cluster:
            join = Join(cluster, unique, rows=2_000)
            # A slow broker that is there answers within that.
            application = join.application(tmp_path / "run", clients=2, topics_root=join.topics(timeout_ms=10_000))
            with pytest.raises(StreamsException, match=rf"the cluster at {join.servers} has not answered for 10 s"):
                application.run(at_commit(2, lambda: cluster.kill(0)))
    except KafkaUnavailableError as error:
        missing(str(error))


def test_who_asks_gets_its_answer_though_another_thread_lets_go_of_the_clients(
    frail_cluster: KafkaCluster, unique: Unique
) -> None:
    """It waited three seconds in vain; where one partition had no leader for a while all threads did, again and again."""
    servers, topic = frail_cluster.bootstrap_servers, unique("topic")
    make_topics(servers, topic, partitions=1)
    connection = Connection(ClientSettings.of({"bootstrap.servers": servers}), 60_000)
    tries = 0

    def ask(timeout: float) -> list[int]:
        nonlocal tries
        tries += 1
        asked: Any = {TopicPartition(topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        futures = connection.admin.list_offsets(asked, request_timeout=timeout)
        connection._forget_clients()
        return [found.offset for found in answers(futures, timeout).values()]

    assert connection.ask("read the end", ask) == [0]
    assert tries == 1
