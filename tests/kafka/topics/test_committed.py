"""What is committed with source offsets: as much of it as brokers take, also by older versions."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from task_assignor.kafka.client_settings import ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics import committed
from task_assignor.kafka.topics.committed import Committed, check_kept, committed_of, end_transactions
from task_assignor.kafka.topics.connection import Connection
from task_assignor.sdk import TaskId
from tests.runtime.support import count_topology


@pytest.mark.parametrize(("partitions", "rounded_to"), [(1, 1), (300, 1), (900, 1), (1_500, 256), (4_000, 65_536)])
def test_where_outputs_end_is_kept_in_as_much_as_brokers_take(partitions: int, rounded_to: int) -> None:
    """Of some 340 partitions nothing was kept, and what was lost of them was not noticed."""
    draw = random.Random(partitions)
    ends = tuple(10**9 + draw.randrange(10**6) for _ in range(partitions))
    last = Committed({"in": 5}, 7, 9, {"store": (1, 2)}, {"out": 3}, {}, {"out": ends})
    assert len(last.metadata) <= 4096
    found = committed_of("group", 0, {"in": (6, last.metadata)})
    assert found.stores == {"store": (1, 2)}
    assert found.written == {("out", number): end // rounded_to * rounded_to for number, end in enumerate(ends)}


def test_what_was_counted_is_kept_where_there_is_room() -> None:
    """A client was killed before it told of its batch: bad records of that were counted nowhere."""
    counters = {"bad_records": 3}
    last = Committed({"in": 5}, 7, 9, {}, {}, {}, {"out": (8,)}, counters=counters)
    assert committed_of("group", 0, {"in": (6, last.metadata)}).counters == counters
    long = Committed({"in": 5}, 7, 9, {}, {}, {}, {"out": (8,)}, counters={"c" * 4_100: 1})
    found = committed_of("group", 0, {"in": (6, long.metadata)})
    assert (found.counters, found.written) == ({}, {("out", 0): 8})


def test_partitions_in_which_a_task_has_not_written_take_no_room() -> None:
    last = Committed({}, 0, None, {}, {}, {}, {"out": (*[0] * 20_000, 2**40 + 1)})
    assert committed_of("group", 0, {"in": (6, last.metadata)}).written == {("out", 20_000): 2**40 + 1}


def test_ends_that_do_not_fit_beside_long_names_are_left_out() -> None:
    last = Committed({"t" * 3_950: 5}, 7, 9, {}, {}, {}, {"out": tuple(range(10**9, 10**9 + 400))})
    assert len(last.metadata) <= 4096
    assert committed_of("group", 0, {"in": (6, last.metadata)}).written == {}


def test_offsets_of_a_task_that_are_not_of_one_batch_are_told() -> None:
    texts = [Committed({"a": 5, "b": start}, 7, 9, {}, {}).metadata for start in (5, 6)]
    assert committed_of("group", 3, {"a": (7, texts[0]), "b": (8, texts[0])}).begin == {"a": 5, "b": 5}
    with pytest.raises(KafkaClusterException, match="partition 3 - 7 of a, 8 of b - are not those after one batch"):
        committed_of("group", 3, {"a": (7, texts[0]), "b": (8, texts[1])})
    with pytest.raises(
        KafkaClusterException, match="offset 8 of the topic b, partition 3, but this application has not"
    ):
        committed_of("group", 3, {"a": (7, texts[0]), "b": (8, "")})


def test_what_older_versions_have_committed_is_read() -> None:
    older = '{"taskAssignor":1,"begin":{"in":0},"changelog":4,"time":null,"stores":{},"outputs":{"out":2}}'
    assert committed_of("group", 0, {"in": (2, older)}).written == {}


def test_an_offset_that_somebody_has_set_is_told_with_the_command_that_sets_it() -> None:
    """Another application was said to have the id, and what to do then would not have been right."""
    said = r"the topic in, partition 3, but this application has not done it .* has set it \(kafka-consumer-groups --reset-offsets\), or"
    with pytest.raises(KafkaClusterException, match=said):
        committed_of("group", 3, {"in": (2, "")})


def test_brokers_are_asked_once_how_many_partitions_a_topic_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were for each partition: with a thousand of them each run began, and ended, 18 s later."""
    connection = Connection(ClientSettings.of({"bootstrap.servers": "127.0.0.1:1"}), 60_000)
    monkeypatch.setattr(committed, "high_watermarks", lambda *given: [7] * len(given[-1]))
    asked: list[str] = []

    def partitions_of(topic: str) -> int:
        asked.append(topic)
        return 1_000

    needed = {topic: {number: (7, TaskId(0, number)) for number in range(1_000)} for topic in ("a", "b")}
    check_kept(connection, needed, partitions_of)
    assert asked == ["a", "b"]


def test_transactions_of_clients_that_nobody_knows_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the folder of the run is lost: brokers end them after a minute and up to 10 s, and the run gave up after a minute."""
    given: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "transaction.timeout.ms": 60_000}
    connection = Connection(ClientSettings.of(given), 1)
    asked: list[object] = []

    def offsets_of(places: list[TopicPartition], _: float) -> list[TopicPartition]:
        asked.append(places)
        if len(asked) < 3:
            raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))
        return []

    monkeypatch.setattr(connection, "group", lambda _: SimpleNamespace(committed=offsets_of))
    monkeypatch.setattr(committed, "held_back", lambda *_: [("in", 0)])
    monkeypatch.setattr(committed, "end_those_of", lambda *_: None)
    end_transactions(connection, "count", count_topology("in"), [TaskId(0, 0)], {}, list)
    assert len(asked) == 3


@pytest.mark.parametrize("is_ending", [False, True])
def test_transactions_are_ended_also_when_the_main_thread_has(
    monkeypatch: pytest.MonkeyPatch, *, is_ending: bool
) -> None:
    """A run that had begun in another thread failed: `cannot schedule new futures after interpreter shutdown`."""
    monkeypatch.setattr("concurrent.futures.thread._shutdown", is_ending)
    asked: list[str] = []
    brokers = SimpleNamespace(
        producer=lambda settings: SimpleNamespace(init_transactions=settings["transactional.id"]),
        ask=lambda _, what: asked.append(what),
    )
    committed.end_those_of(cast(Connection, brokers), "shop", ["a", "b"])
    assert sorted(asked) == [committed.transactional_id("shop", who) for who in ("a", "b")]
