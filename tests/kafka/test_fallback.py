"""What a group gets when its assignor fails: what it had, and orphans on the least loaded."""

from __future__ import annotations

import importlib
import queue
import re
import threading
import time
import types
from collections.abc import Callable, Iterable
from time import sleep
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor import StreamsConfig, TopicPartition
from task_assignor.group import SubTopologyShape
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerAssignor,
    ConsumerMember,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    GroupTopics,
    RoundRobinAssignor,
    StickyStreamJoinAssignor,
    split_numbers,
)
from task_assignor.group.consumers.table import Claim
from task_assignor.group.wire import (
    StreamJoinUserData,
    decode_copartitioned_user_data,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
)

pytest.importorskip("kafka")
fallback = pytest.importorskip("task_assignor.kafka.fallback")
consumer_plugin = pytest.importorskip("task_assignor.kafka.consumer_plugin")
group_plugin = pytest.importorskip("task_assignor.kafka.plugin")


def keep_and_place_orphans(topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = fallback.keep_and_place_orphans(
        topics, [(member, Claim(member.owned, member.generation)) for member in members]
    )
    return found


TOPICS = ["a", "b", "c"]
OWNED = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(-1, 5), max_size=4), max_size=3)


@st.composite
def groups(draw: st.DrawFn) -> tuple[GroupTopics, list[ConsumerMember]]:
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 5)))
    members = [
        ConsumerMember(
            f"m{number}",
            tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True))),
            owned=draw(OWNED),
            generation=draw(st.integers(-1, 3)),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    return GroupTopics(counts), members


def test_of_a_topic_that_a_member_names_twice_all_partitions_are_its_own() -> None:
    """The wire allows that; who heeds only the last one takes the others away from it."""
    plugin = pytest.importorskip("task_assignor.kafka.plugin")
    protocol = pytest.importorskip("kafka.protocol.consumer.metadata")
    listed = protocol.ConsumerProtocolSubscription.TopicPartition
    told = protocol.ConsumerProtocolSubscription(
        topics=["a", "b"],
        user_data=None,
        owned_partitions=[
            listed(topic=topic, partitions=found) for topic, found in (("a", [0, 2]), ("b", [1]), ("a", [1]))
        ],
        generation_id=3,
        rack_id=None,
        version=3,
    )
    member = plugin._member(types.SimpleNamespace(member_id="m", metadata=told, group_instance_id=None))
    assert member.owned == {"a": (0, 2, 1), "b": (1,)}


@given(groups(), st.randoms(use_true_random=False))
def test_every_partition_with_subscribers_has_one_owner_who_had_it_if_anybody_had(
    group: tuple[GroupTopics, list[ConsumerMember]], random: object
) -> None:
    topics, members = group
    found = keep_and_place_orphans(topics, members)
    assert found.keys() == {member.member_id for member in members}
    given = [each for partitions in found.values() for each in partitions]
    wanted = {
        (topic, partition)
        for topic, count in topics.counts.items()
        for partition in range(count)
        if any(topic in member.topics for member in members)
    }
    assert sorted((each.topic, each.partition) for each in given) == sorted(wanted)
    for member in members:
        for each in found[member.member_id]:
            assert each.topic in member.topics
            claims = [
                one.generation
                for one in members
                if each.topic in one.topics and each.partition in one.owned.get(each.topic, ())
            ]
            mine = each.partition in member.owned.get(each.topic, ())
            assert mine == bool(claims)
            assert not claims or member.generation == max(claims)
    random.shuffle(members)  # type: ignore[attr-defined]
    assert keep_and_place_orphans(topics, members) == found


def test_replicas_are_looked_up_once_for_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker was asked about: seconds for 100 000 partitions on 60 brokers, in the thread that sends the heartbeats."""
    cluster = importlib.import_module("kafka.cluster").ClusterMetadata()
    cluster._brokers = {node: types.SimpleNamespace(node_id=node, rack=f"r{node}") for node in range(9)}
    cluster._partitions = {
        "t": {0: types.SimpleNamespace(replica_nodes=[1, 8]), 2: types.SimpleNamespace(replica_nodes=[3, 99])}
    }
    monkeypatch.setattr(cluster, "is_replica_node", lambda *_: pytest.fail("asked about a broker"))
    topics_of = pytest.importorskip("task_assignor.kafka.plugin").topics_of
    found = topics_of(cluster, [ConsumerMember("a", ("t", "gone"))])
    assert found == GroupTopics({"t": 3}, {"t": [frozenset(("r1", "r8")), frozenset(), frozenset(("r3",))]})


def test_orphans_go_to_the_least_loaded() -> None:
    members = [ConsumerMember("m1", ("a", "b"), owned={"a": [0, 1, 2]}), ConsumerMember("m2", ("a", "b"))]
    found = keep_and_place_orphans(GroupTopics({"a": 3, "b": 4}), members)
    assert [len(found["m1"]), len(found["m2"])] == [3, 4] or [len(found["m1"]), len(found["m2"])] == [4, 3]


@pytest.mark.parametrize(
    ("partitions", "topic_of", "owner", "message"),
    [
        ([0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1], "a-1 (row 2) comes too late"),
        ([0, 0, 1], [0, 0, 1], [0, 0, 1], "a-0 (row 1) comes too late"),
        ([0, 1], [0, 0], [0, 2], "owner of a ConsumerAssignment must hold numbers from -1 to 1, but holds 0 to 2"),
        ([0, 1], [0, -1], [0, 1], "topic_of of a ConsumerAssignment must hold numbers from 0 to 1, but holds -1 to 0"),
        ([0], [0, 0], [0, 1], "must be of one length, but are {'partitions': 1, 'topic_of': 2, 'owner': 2}"),
    ],
    ids=["hidden twice", "twice", "owner", "topic", "short"],
)
def test_columns_that_say_something_else_than_is_sent_are_refused(
    partitions: list[int], topic_of: list[int], owner: list[int], message: str
) -> None:
    """Partitions out of order were looked at in part only: two members were sent the same one, and nobody was told."""

    class Strange(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            names = [one.member_id for one in members]
            one, other, third = map(np.array, (partitions, topic_of, owner))
            return ConsumerAssignment(names, [*topics.counts], one, other, third)

    plugin = consumer_plugin.ConsumerAssignorPlugin(Strange())
    members = [ConsumerMember(name, ("a", "b")) for name in "mn"]
    sent = [
        found for given in plugin.answer(GroupTopics({"a": 2, "b": 2}), members).values() for found in given.partitions
    ]
    assert len(sent) == len(set(sent)) == 4
    (said,) = plugin.failures
    assert message in said


@pytest.mark.parametrize(
    ("counts", "topics_of_b", "given_to_b"),
    [
        ({"a": 4, "b": 5}, ("a", "b"), ["a-1", "a-3", "b-1", "b-3"]),
        ({"a": 4, "b": 4}, ("a",), ["a-1", "a-3"]),
        ({"a": 4, "b": 4, "empty": 0}, ("a", "empty"), ["a-1", "a-3"]),
    ],
    ids=["a topic grows", "one does not read all", "none to give"],
)
def test_what_a_stream_join_leaves_out_is_no_failure_of_it(
    counts: dict[str, int], topics_of_b: tuple[str, ...], given_to_b: list[str]
) -> None:
    """It was asked again and again, once a minute, and what it had left out somebody read who had nothing to join it with."""
    plugin = consumer_plugin.ConsumerAssignorPlugin(StickyStreamJoinAssignor())
    members = [ConsumerMember("m", tuple(counts)), ConsumerMember("n", topics_of_b)]
    answer = plugin.answer(GroupTopics(counts), members)
    assert [f"{each.topic}-{each.partition}" for each in answer["n"].partitions] == given_to_b
    assert plugin.failures == []


@pytest.mark.parametrize("assignor", [StickyStreamJoinAssignor, CopartitionedAssignor])
def test_what_is_joined_stays_together_when_its_assignor_fails(assignor: type[ConsumerAssignor]) -> None:
    """Of a member that left, one member got the number of one topic and another one that of the other."""
    topics = GroupTopics({"a": 4, "b": 4})
    members = [ConsumerMember(name, ("a", "b")) for name in "mnop"]
    before = assignor().assign(topics, members)
    told = [
        attrs.evolve(one, user_data=assignor().user_data(before.to_assignment(one.member_id), 1)) for one in members[1:]
    ]
    newcomers = [ConsumerMember(name, ("a", "b")) for name in "mnop"]
    for group in (told, newcomers, [*told, ConsumerMember("q", ("b",))]):
        failing = type("Failing", (assignor,), {"assign": lambda *_: None})()
        answer = consumer_plugin.ConsumerAssignorPlugin(failing).answer(topics, group)
        owned: dict[str, dict[str, list[int]]] = {name: {"a": [], "b": []} for name in answer}
        for name, found in answer.items():
            for each in found.partitions:
                owned[name][each.topic].append(each.partition)
        assert split_numbers(owned) == {}
        assert sorted(each for one in owned.values() for each in one["a"]) == [0, 1, 2, 3]


def test_what_a_stream_join_should_not_leave_out_is_one() -> None:
    class Forgetful(StickyStreamJoinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            found = super().assign(topics, members)
            return attrs.evolve(found, owner=np.where(found.partitions == 3, -1, found.owner))

    plugin = consumer_plugin.ConsumerAssignorPlugin(Forgetful())
    plugin.answer(GroupTopics({"a": 4, "b": 5}), [ConsumerMember(name, ("a", "b")) for name in "mn"])
    (said,) = plugin.failures
    assert "gives a-3 to nobody" in said


def _answers(assignor: type[ConsumerAssignor], times: int) -> tuple[Any, list[ConsumerMember]]:
    """The last of some answers to two members, and what they say then."""
    members = [ConsumerMember(name, ("a", "b")) for name in "mn"]
    said = members
    for generation in range(times):
        answer = assignor().assign(GroupTopics({"a": 4, "b": 4}), said)
        given = [answer.to_assignment(one.member_id) for one in members]
        said = [
            attrs.evolve(one, user_data=assignor().user_data(each, generation))
            for one, each in zip(members, given, strict=True)
        ]
    return answer, said


def test_a_stream_join_has_its_next_epoch_when_its_assignor_fails() -> None:
    """It began anew, and the claims of a member that had not been there were the newest for as many rebalances as there had been."""
    _, said = _answers(StickyStreamJoinAssignor, 3)
    failing = type("Failing", (StickyStreamJoinAssignor,), {"assign": lambda *_: None})()
    plugin = consumer_plugin.ConsumerAssignorPlugin(failing)
    told = plugin.answer(GroupTopics({"a": 4, "b": 4}), said)
    assert {decode_stream_join_epoch(given.user_data) for given in told.values()} == {4}
    plugin.take(told["m"], 7)
    assert decode_stream_join_user_data(plugin.tell()) == StreamJoinUserData((0, 2), 4)


def test_members_keep_their_standbys_when_the_assignor_fails() -> None:
    """They were told of none, and threw their copies away."""
    before, said = _answers(CopartitionedAssignor, 1)
    failing = type("Failing", (CopartitionedAssignor,), {"assign": lambda *_: None})()
    plugin = consumer_plugin.ConsumerAssignorPlugin(failing)
    told = plugin.answer(GroupTopics({"a": 4, "b": 4}), said)
    assert {name: given.user_data for name, given in told.items()} == before.user_data
    # What becomes active is no copy any more, nor is what does not exist.
    told = plugin.answer(GroupTopics({"a": 3}), said[:1])
    kept = decode_copartitioned_user_data(told["m"].user_data)
    assert ({**kept.active}, {**kept.standby}) == ({"a": (0, 1, 2)}, {"a": ()})


def test_what_a_stream_join_leaves_out_is_nobodys_when_its_assignor_fails_too() -> None:
    """Somebody read it who had nothing to join it with."""
    failing = type("Failing", (StickyStreamJoinAssignor,), {"assign": lambda *_: None})()
    members = [ConsumerMember("m", ("a", "b")), ConsumerMember("n", ("a",))]
    told = consumer_plugin.ConsumerAssignorPlugin(failing).answer(GroupTopics({"a": 2, "b": 3}), members)
    assert {name: [f"{each.topic}-{each.partition}" for each in given.partitions] for name, given in told.items()} == {
        "m": ["a-0", "b-0"],
        "n": ["a-1"],
    }


class _Halves(RoundRobinAssignor):
    """Odd partitions are nobody's, equal numbers are together."""

    is_join = True
    fails = False

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        if self.fails:
            raise RuntimeError("a bug")
        found = super().assign(topics, members)
        return attrs.evolve(found, owner=np.where(found.partitions % 2, -1, found.owner))

    def left_out(self, topics: GroupTopics, members: Any, given: Any) -> dict[str, range]:
        return {topic: range(1, count, 2) for topic, count in topics.counts.items()}

    def kept_user_data(self, topics: GroupTopics, members: Any, given: Any) -> dict[str, bytes]:
        return {name: repr(owned).encode() for name, owned in given.items()}


class _Silent(_Halves):
    def left_out(self, topics: GroupTopics, members: Any, given: Any) -> Any:
        members.clear()
        return None

    def kept_user_data(self, topics: GroupTopics, members: Any, given: Any) -> Any:
        return dict.fromkeys(given, "text")


def test_an_assignor_of_ones_own_says_what_is_nobodys_what_is_together_and_what_members_are_told() -> None:
    topics, members = GroupTopics({"a": 4, "b": 4}), [ConsumerMember(name, ("a", "b")) for name in "mn"]
    assignor = _Halves()
    plugin = consumer_plugin.ConsumerAssignorPlugin(assignor)
    assert sorted(len(given.partitions) for given in plugin.answer(topics, members).values()) == [0, 4]
    assert plugin.failures == []
    assignor.fails = True
    told = plugin.answer(topics, members)
    assert {name: given.user_data for name, given in told.items()} == {
        "m": b"{'a': [0], 'b': [0]}",
        "n": b"{'a': [2], 'b': [2]}",
    }


def test_what_it_says_then_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    topics, members = GroupTopics({"a": 4, "b": 4}), [ConsumerMember(name, ("a", "b")) for name in "mn"]
    plugin = consumer_plugin.ConsumerAssignorPlugin(_Silent())
    told = plugin.answer(topics, members)
    assert sorted(len(given.partitions) for given in told.values()) == [4, 4]
    assert {given.user_data for given in told.values()} == {None}
    assert "left_out() failed with" in caplog.text
    assert "kept_user_data() failed with" in caplog.text
    assert "for m must be bytes, not str" in caplog.text


class _Hangs(_Halves):
    def claim(self, member: ConsumerMember) -> Any:
        while True:  # as code does that waits for what never comes
            sleep(0.001)


def test_who_hangs_when_it_is_asked_after_a_failure_is_given_up_too(caplog: pytest.LogCaptureFixture) -> None:
    topics, members = GroupTopics({"a": 4, "b": 4}), [ConsumerMember(name, ("a", "b")) for name in "mn"]
    assignor = _Hangs()
    assignor.fails = True
    told = consumer_plugin.ConsumerAssignorPlugin(assignor, limit_ms=2_000).answer(topics, members)
    assert sorted(len(given.partitions) for given in told.values()) == [4, 4]
    assert {given.user_data for given in told.values()} == {None}
    assert re.search(r"claim\(\) did not answer within 0\.\d+ s \(.*claim, line \d+\)", caplog.text)
    assert "had 0.5 s for all that it is asked" in caplog.text
    assert caplog.text.count("not known") == 1


class _Slow(_Halves):
    def claim(self, member: ConsumerMember) -> Any:
        sleep(0.3)
        return super().claim(member)


def test_who_answers_each_time_and_takes_too_long_for_all_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    topics, members = GroupTopics({"a": 4, "b": 4}), [ConsumerMember(name, ("a", "b")) for name in "mnop"]
    assignor = _Slow()
    assignor.fails = True
    told = consumer_plugin.ConsumerAssignorPlugin(assignor, limit_ms=1_000).answer(topics, members)
    assert sum(len(given.partitions) for given in told.values()) == 8
    assert "had 0.25 s for all that it is asked" in caplog.text


def _changes_members(topics: GroupTopics, members: list[Any]) -> Any:
    members.pop()
    return RoundRobinAssignor().assign(topics, members)


def _changes_topics(topics: GroupTopics, members: list[Any]) -> Any:
    topics.counts["a"] = 1  # type: ignore[index]
    return RoundRobinAssignor().assign(topics, members)


def _takes_all_apart(topics: GroupTopics, members: list[Any]) -> Any:
    for member in members:
        member.owned.clear()
        object.__setattr__(member, "topics", ())
    members.clear()
    topics.counts.clear()  # type: ignore[attr-defined]
    raise ValueError("empty")


def _leaves_one_out(topics: GroupTopics, members: list[Any]) -> Any:
    names = [one.member_id for one in members]
    return ConsumerAssignment(names, ["a"], np.arange(4), np.zeros(4, np.int64), np.array([0, 1, -1, 0]))


@pytest.mark.parametrize(
    ("assign", "said"),
    [
        (_changes_members, "must have exactly the members of the group; different: ['m2']"),
        (_changes_topics, "gives a-1 to nobody, though members subscribe to its topic"),
        (_takes_all_apart, "ValueError: empty"),
        (_leaves_one_out, "gives a-2 to nobody"),
        (lambda *_: None, "The answer must be a ConsumerAssignment, but is of the type NoneType"),
        (lambda *_: {"m0": {"a": [0, 1, 2, 3]}}, "must be a ConsumerAssignment"),
    ],
    ids=["members", "topics", "all", "one left out", "nothing", "a dict"],
)
@pytest.mark.parametrize("has_claims", [True, False])
def test_whatever_an_assignor_does_with_what_it_is_given_every_partition_is_read(
    assign: Callable[..., Any], said: str, has_claims: bool
) -> None:
    """Members that it took out of the list got nothing, nor did anybody whom it let the fallback not see; nobody was told."""

    class Strange(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            return assign(topics, members)  # type: ignore[no-any-return]

        def claim(self, member: ConsumerMember) -> Claim:
            if not has_claims:
                raise KeyError(member.member_id)
            return Claim({"a": [int(member.member_id[1:])]})

    plugin = consumer_plugin.ConsumerAssignorPlugin(Strange())
    found = plugin.answer(GroupTopics({"a": 4}), [ConsumerMember(name, ("a",)) for name in ("m0", "m1", "m2")])
    read = {name: [each.partition for each in given.partitions] for name, given in found.items()}
    assert read == {"m0": [0, 3], "m1": [1], "m2": [2]}
    assert said in "".join(plugin.failures)


def test_what_was_asked_for_while_a_consumer_joins_is_asked_for_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its next poll came later than that, kafka-python forgot it, and the assignor was not asked again."""

    class Fails(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            raise ValueError("not now")

    monkeypatch.setattr(group_plugin, "RETRY_S", 0.0)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    plugin = consumer_plugin.ConsumerAssignorPlugin(Fails())
    plugin.rejoin_by(lambda: asked.put("joins"))
    plugin.tell()
    given = plugin.answer(GroupTopics({"a": 1}), [ConsumerMember("m", ("a",))])["m"]
    asked.get(timeout=60)
    plugin.take(given, 1)
    asked.get(timeout=60)
    plugin.tell()
    plugin.take(given, 2)
    assert asked.empty()


def test_an_assignor_that_hung_is_asked_again_also_where_the_clock_was_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It rested until the wall clock said so, for an hour more."""
    asked, ends = [0], threading.Event()

    class Hangs(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            asked[0] += 1
            ends.wait(60)
            return super().assign(topics, members)

    plugin = consumer_plugin.ConsumerAssignorPlugin(Hangs(), limit_ms=50)
    plugin.rejoin_by(lambda: None)
    group = GroupTopics({"a": 1}), [ConsumerMember("m", ("a",))]
    for _ in range(2):
        plugin.answer(*group)
    assert asked == [1], "it rests"
    ends.set()
    wall, steady = time.time, time.monotonic
    later = types.SimpleNamespace(time=lambda: wall() - 3_600, monotonic=lambda: steady() + group_plugin.RETRY_S)
    monkeypatch.setattr(group_plugin, "time", later)
    plugin.answer(*group)
    assert asked == [2]
    plugin._cancel_rebalance()


def test_a_group_has_an_answer_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the limit of a container: the leader's poll raised, and nobody had anything."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    plugin = consumer_plugin.ConsumerAssignorPlugin(RoundRobinAssignor())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    given = plugin.answer(GroupTopics({"a": 2}), [ConsumerMember("m", ("a",))])["m"]
    assert [each.partition for each in given.partitions] == [0, 1]
    assert "failed with RuntimeError: can't start new thread" in plugin.failures[0]
    assert "No rebalance is planned for later: RuntimeError: can't start new thread" in caplog.text


def test_the_last_hundred_failures_are_kept() -> None:
    class Fails(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            raise ValueError(f"time {topics.counts['a']}")

    plugin = consumer_plugin.ConsumerAssignorPlugin(Fails())
    for number in range(1, 103):
        plugin.answer(GroupTopics({"a": number}), [ConsumerMember("m", ("a",))])
    assert [f"time {number}" in said for number, said in enumerate(plugin.failures, 3)] == [True] * 100
    plugin._cancel_rebalance()


def test_an_assignor_that_may_think_longer_than_the_session_lasts_is_given_up_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Brokers expelled its leader, and the next one, and so on, without a word."""

    class Slow(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            threading.Event().wait(60)
            raise AssertionError

    plugin = consumer_plugin.ConsumerAssignorPlugin(Slow(), limit_ms=60_000)
    plugin.answer_within(300)
    plugin.answer(GroupTopics({"a": 1}), [ConsumerMember("m", ("a",))])
    assert "did not answer within 0.2 s" in plugin.failures[0]
    assert "two thirds of session_timeout_ms (300), not for limit_ms (60000)" in caplog.text


def test_a_partition_that_a_member_gives_up_may_be_nobodys_meanwhile() -> None:
    plugin = consumer_plugin.ConsumerAssignorPlugin(CooperativeStickyAssignor())
    members = [ConsumerMember("m0", ("a",), owned={"a": [0, 1]}, generation=1), ConsumerMember("m1", ("a",))]
    found = plugin.answer(GroupTopics({"a": 2}), members)
    assert sorted(len(given.partitions) for given in found.values()) == [0, 1]
    assert plugin.failures == []


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("InconsistentGroupProtocolError", "application.id is wrong"),
        ("InvalidSessionTimeoutError", "group.max.session"),
    ],
)
def test_a_leader_that_may_not_join_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: str, advice: str) -> None:
    """It said the name of the error and its number."""
    streams_group = pytest.importorskip("task_assignor.kafka.streams_group")

    def refuse(**settings: object) -> None:
        raise getattr(streams_group, error)

    monkeypatch.setattr(streams_group, "KafkaConsumer", refuse)
    monkeypatch.setattr(streams_group._LeaderPlugin, "look_up", lambda plugin, creates: None)
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "b:1", "task.assignor.class": "sticky"})
    leader = streams_group.StreamsGroupLeader(config, [SubTopologyShape("s", ("clicks",))])
    with pytest.raises(streams_group.GroupStateException, match=f"{error}.*{advice}"):
        leader.__enter__()
