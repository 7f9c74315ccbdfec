"""Consumer-level assignors decide in real consumer groups; whatever they do, the group goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerAssignor,
    ConsumerMember,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    GroupTopics,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
)
from task_assignor.sdk import Assignment, ConfigException, TopicPartition
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import WAIT_SECONDS, Unique, make_topics, wait_until

kafka = pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")
consumers = pytest.importorskip("tests.kafka.consumers")

pytestmark = pytest.mark.kafka
Join = Callable[..., Any]
PARTITIONS = 4
ASSIGNORS = [
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
    StickyStreamJoinAssignor,
    CopartitionedAssignor,
]


@pytest.fixture
def topics(kafka_cluster: KafkaCluster, unique: Unique) -> list[str]:
    names = [unique("clicks"), unique("impressions")]
    make_topics(kafka_cluster.bootstrap_servers, *names, partitions=PARTITIONS)
    return names


@pytest.fixture
def join(kafka_cluster: KafkaCluster, unique: Unique, topics: list[str]) -> Iterator[Join]:
    group, members = unique("group"), []

    def join_one(*assignors: ConsumerAssignor | type, **more: Any) -> Any:
        members.append(consumers.Member(kafka_cluster.bootstrap_servers, group, topics, assignors, **more))
        members[-1].group = group
        return members[-1]

    yield join_one
    for member in members:
        member.leave()


def write(cluster: KafkaCluster, topics: Iterable[str], start: int, count: int) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    for topic in topics:
        for number in range(start, start + count):
            producer.send(topic, value=str(number).encode(), partition=number % PARTITIONS)
    producer.flush()
    producer.close()


def settle(members: list[Any], topics: list[str], what: str, everybody: bool = True) -> None:
    """Wait until all partitions have one owner, and everybody has some."""
    everything = consumers.partitions_of(topics, PARTITIONS)
    wait_until(
        lambda: (
            consumers.is_settled(members, everything) and (all(member.owned for member in members) or not everybody)
        ),
        what,
    )


def reported(cluster: KafkaCluster, group: str) -> list[list[tuple[str, int]]]:
    """What the broker says of each member, in any order of the members."""
    with room.Cluster({"bootstrap.servers": cluster.bootstrap_servers}) as found:
        description = found.describe_group(group)
    return sorted(sorted((each.topic, each.partition) for each in member.partitions) for member in description.members)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_record_is_read_once_while_members_join_leave_and_die(
    kafka_cluster: KafkaCluster, topics: list[str], join: Join, assignor: Callable[[], ConsumerAssignor]
) -> None:
    members = [join(assignor())]
    settle(members, topics, "the first has all")
    write(kafka_cluster, topics, 0, 20)
    members += [join(assignor()), join(assignor())]
    settle(members, topics, "three share")
    sizes = sorted(len(member.owned) for member in members)
    assert sizes in ([2, 2, 4], [2, 3, 3])
    assert reported(kafka_cluster, members[0].group) == sorted(sorted(member.owned) for member in members)
    write(kafka_cluster, topics, 20, 20)
    left = members.pop()
    left.leave()
    settle(members, topics, "two share")
    write(kafka_cluster, topics, 40, 20)
    wait_until(lambda: len(all_read([*members, left])) >= 120, "everything is read")
    killed = members.pop()
    killed.kill()
    write(kafka_cluster, topics, 60, 20)
    settle(members, topics, "the last has all")
    wait_until(lambda: len(all_read([*members, left, killed])) >= 160, "everything is read")
    # What it remembers, it claims: partitions of a generation that is over.
    remembering = room.ConsumerAssignorPlugin(assignor())
    remembering.take(killed.plugin._given, killed.plugin.generation)
    back = join(remembering)
    members.append(back)
    settle(members, topics, "the one that was killed is back")
    assert sorted(len(member.owned) for member in members) == [PARTITIONS, PARTITIONS]
    assert reported(kafka_cluster, members[0].group) == sorted(sorted(member.owned) for member in members)
    write(kafka_cluster, topics, 80, 20)
    wait_until(lambda: len(all_read([*members, left, killed])) >= 200, "everything is read")
    counts = Counter(all_read([*members, left, killed]))
    assert len(counts) == 200
    assert set(counts.values()) == {1}
    assert [member.errors for member in members] == [[], []]
    assert [failure for member in members for failure in member.plugin.failures] == []


def all_read(members: Iterable[Any]) -> list[tuple[str, int, int]]:
    return [record for member in members for record in list(member.read)]


@pytest.mark.parametrize("assignor", [StickyAssignor, CooperativeStickyAssignor])
def test_what_can_stay_stays_when_a_member_joins_and_comes_back(
    topics: list[str], join: Join, assignor: Callable[[], ConsumerAssignor]
) -> None:
    first = join(assignor())
    settle([first], topics, "the first has all")
    second = join(assignor())
    settle([first, second], topics, "two share")
    before = first.owned
    assert len(before) == PARTITIONS
    third = join(assignor())
    settle([first, second, third], topics, "three share")
    assert first.owned < before or first.owned == before
    third.leave()
    settle([first, second], topics, "two share again")
    assert sorted(len(member.owned) for member in (first, second)) == [PARTITIONS, PARTITIONS]


def test_a_static_member_comes_back_without_a_rebalance(topics: list[str], join: Join) -> None:
    members = [join(CooperativeStickyAssignor(), instance=name) for name in ("a", "b")]
    settle(members, topics, "two share")
    generation, owned = members[0].plugin.generation, members[1].owned
    members[1].leave()
    again = join(CooperativeStickyAssignor(), instance="b")
    settle([members[0], again], topics, "it has its partitions back")
    assert (members[0].plugin.generation, again.owned) == (generation, owned)


class Faulty(CooperativeStickyAssignor):
    """Does what it is told to."""

    fault = ""

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        if self.fault == "raises":
            raise RuntimeError("a bug")
        if self.fault == "exits":
            raise SystemExit(3)
        while self.fault == "never returns":
            time.sleep(0.01)
        found = list(members)
        if self.fault == "leaves out":
            return super().assign(topics, found[:1])
        if self.fault == "gives twice, in a dict":
            return {member.member_id: {topic: [0] for topic in topics.counts} for member in found}  # type: ignore[return-value]
        if self.fault == "nothing":
            return None  # type: ignore[return-value]
        return super().assign(topics, found)


@pytest.mark.parametrize(
    "fault", ["raises", "exits", "never returns", "leaves out", "gives twice, in a dict", "nothing"]
)
def test_a_leader_never_hurts_its_group(topics: list[str], join: Join, fault: str) -> None:
    first = join(Faulty())
    settle([first], topics, "the first has all")
    assert first.plugin._limit_s < consumers.SESSION_MS / 1000, "else it would be expelled, and the next one, too"
    first.plugin.assignor.fault = fault
    second = join(Faulty())
    wait_until(lambda: first.plugin.failures and second.plugin.generation >= 0, "the leader has noticed")
    settle([first, second], topics, "the first keeps all", everybody=False)
    assert (len(first.owned), second.owned) == (2 * PARTITIONS, frozenset())
    assert "the group keeps what it has" in first.plugin.failures[0]
    first.plugin.assignor.fault = ""
    # What the timer does a minute later.
    first.plugin._rejoin()
    wait_until(lambda: second.owned, "the second gets its share")
    settle([first, second], topics, "two share")
    assert len(first.owned) == len(second.owned) == PARTITIONS


# In a process of its own, of which much is closed. It tells what became of the member.
CLOSES = """
import gc, os, socket, sys, threading
from kafka import KafkaConsumer
from task_assignor.group.consumers import RangeAssignor
from task_assignor.kafka import ConsumerAssignorPlugin

class Closes(RangeAssignor):
    def assign(self, topics, members):
        {what}
        return super().assign(topics, members)

plugin = ConsumerAssignorPlugin(Closes())
consumer = KafkaConsumer(bootstrap_servers=sys.argv[1], group_id=sys.argv[2], partition_assignment_strategy=[plugin])
plugin.attach(consumer)
consumer.subscribe([sys.argv[3]])
errors = []

def poll():
    while len(errors) < 2:
        try:
            consumer.poll(100)
        except Exception as error:
            errors.append(f"{{type(error).__name__}}: {{error}}")

thread = threading.Thread(target=poll, daemon=True)
thread.start()
thread.join(40)
print(*errors, plugin.failures[:1], sep="\\n", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    "what",
    [
        "os.closerange(3, 1000)",
        "[os.close(one.fileno()) for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() > 0]",
    ],
    ids=["all files", "all sockets"],
)
def test_an_assignor_that_closes_the_connections_of_its_consumer_ends_it_with_a_clear_error(
    kafka_cluster: KafkaCluster, unique: Unique, topics: list[str], what: str
) -> None:
    """Polls failed with `Bad file descriptor`, or came back with nothing, for ever."""
    told = subprocess.run(
        [sys.executable, "-c", CLOSES.format(what=what), kafka_cluster.bootstrap_servers, unique("group"), topics[0]],
        check=True,
        timeout=WAIT_SECONDS,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert len(told) == 3, told
    assert all("The assignor 'range' closed files of the process that are not its own" in line for line in told), told
    assert told[0] == told[1]
    assert told[0].startswith("GroupException")


def test_a_consumer_that_is_other_inside_gets_its_answer() -> None:
    """As one of a version of kafka-python that is not known: its group depends on an answer."""
    plugin = room.ConsumerAssignorPlugin(RoundRobinAssignor())
    plugin._consumer = SimpleNamespace(_net=SimpleNamespace())
    answer = plugin.answer(GroupTopics({"clicks": 4}), [ConsumerMember("a", ("clicks",))])
    assert len(answer["a"].partitions) == 4
    assert not plugin.failures


@pytest.mark.parametrize(("partition", "user_data"), [(-1, None), (4, None), (0.0, None), (0, "text")])
def test_an_answer_that_cannot_be_sent_is_a_failure_of_the_assignor(partition: float, user_data: Any) -> None:
    """Else kafka-python would fail with it, in the middle of the join."""

    class Strange(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            partitions, none = np.array([partition]), np.zeros(1, np.int64)
            return ConsumerAssignment(
                [one.member_id for one in members], [*topics.counts], partitions, none, none, {"a": user_data}
            )

    plugin = room.ConsumerAssignorPlugin(Strange())
    answer = plugin.answer(GroupTopics({"clicks": 4}), [ConsumerMember("a", ("clicks",))])
    assert len(plugin.failures) == 1
    assert answer["a"].partitions == tuple(TopicPartition("clicks", number) for number in range(4))


@pytest.mark.parametrize("answer", [None, {"a": {"clicks": [0, 1, 2, 3]}}], ids=["nothing", "a dict"])
def test_an_answer_of_another_type_is_said_to_be_that(answer: Any) -> None:
    class Strange(RoundRobinAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            return answer  # type: ignore[no-any-return]

    plugin = room.ConsumerAssignorPlugin(Strange())
    plugin.answer(GroupTopics({"clicks": 4}), [ConsumerMember("a", ("clicks",))])
    assert f"must be a ConsumerAssignment, but is of the type {type(answer).__name__}" in plugin.failures[0]


def test_a_traceback_leads_to_an_assignor_that_misused_something_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    class Misusing(StickyAssignor):
        def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
            return super().assign(GroupTopics({"clicks": -1}), members)

    plugin = room.ConsumerAssignorPlugin(Misusing())
    plugin.answer(GroupTopics({"clicks": 2}), [ConsumerMember("a", ["clicks"])])
    plugin.tell()
    assert "in assign" in caplog.text


@pytest.mark.parametrize("is_attached", [True, False])
def test_when_a_failed_assignor_is_asked_again_is_said_as_it_will_be(is_attached: bool) -> None:
    plugin = room.ConsumerAssignorPlugin(FaultySticky())
    if is_attached:
        plugin.rejoin_by(lambda: None)
    plugin.answer(GroupTopics({"clicks": 4}), [ConsumerMember("a", ("clicks",))])
    plugin.tell()
    (said,) = plugin.failures
    assert ("the assignor is asked again in 60 s" in said) is is_attached
    assert ("the assignor is asked again at the next rebalance" in said) is not is_attached


class FaultySticky(StickyAssignor):
    """Eager, and raises."""

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        raise RuntimeError("a bug")


def test_eager_members_keep_what_their_user_data_says_when_the_assignor_fails(topics: list[str], join: Join) -> None:
    first = join(StickyAssignor())
    settle([first], topics, "the first has all")
    first.plugin.assignor = FaultySticky()
    second = join(FaultySticky())
    wait_until(lambda: first.plugin.failures and second.plugin.generation >= 0, "the leader has noticed")
    settle([first, second], topics, "the first keeps all", everybody=False)
    assert len(first.owned) == 2 * PARTITIONS


def test_orphans_go_to_the_least_loaded_when_the_assignor_fails_from_the_start(topics: list[str], join: Join) -> None:
    broken = Faulty()
    broken.fault = "raises"
    first = join(broken)
    settle([first], topics, "the first has all")
    assert first.plugin.failures


def test_a_rolling_change_from_roundrobin_to_cooperative_sticky_as_kafka_documents_it(
    kafka_cluster: KafkaCluster, topics: list[str], join: Join
) -> None:
    """First all members offer both, in eager mode; then the old one goes, member by member."""
    both = [EagerCooperative(), RoundRobinAssignor()]
    members = [join(RoundRobinAssignor()), join(RoundRobinAssignor())]
    settle(members, topics, "the old way")
    write(kafka_cluster, topics, 0, 20)
    gone = list(members)
    for number in (0, 1):
        members[number].leave()
        members[number] = join(*both)
        settle(members, topics, f"{number + 1} offer both")
        gone.append(members[number])
    write(kafka_cluster, topics, 20, 20)
    for number in (0, 1):
        members[number].leave()
        members[number] = join(CooperativeStickyAssignor())
        settle(members, topics, f"{number + 1} have only the new one")
        gone.append(members[number])
    write(kafka_cluster, topics, 40, 20)
    wait_until(lambda: len(all_read(gone)) >= 120, "everything is read")
    assert Counter(all_read(gone)).most_common(1)[0][1] == 1
    assert reported(kafka_cluster, members[0].group) == sorted(sorted(member.owned) for member in members)


class EagerCooperative(CooperativeStickyAssignor):
    """The new assignor among old ones: in eager mode."""

    protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"name": 3},
            r"The name of the assignor \(3\) must be a string: .* Maybe write name = \"...\" in the class Mine\.",
        ),
        ({"name": ""}, r"The name of the assignor \(''\) must be a string"),
        (
            {"protocols": ("cooperative",)},
            r"The protocols of the assignor 'sticky' \(\('cooperative',\)\) must be a tuple of Reb",
        ),
        ({"protocols": ()}, r"The protocols of the assignor 'sticky' \(\(\)\) must be a tuple of RebalanceProtocol"),
        (
            {"user_data": lambda *_: "t-0"},
            r"The user_data\(\) of the assignor 'sticky' must be bytes or None, but is 't-0'\.",
        ),
    ],
)
def test_an_assignor_of_ones_own_that_is_none_for_a_group_is_said(attributes: dict[str, Any], said: str) -> None:
    """With a text for a protocol it was taken for an eager one; with a text for user data nothing ever stayed."""
    mine = type("Mine", (StickyAssignor,), attributes)
    with pytest.raises((ConfigException, GroupException), match=said):
        room.ConsumerAssignorPlugin(mine()).tell()


def test_a_cooperative_plugin_that_does_not_know_its_consumer_says_so() -> None:
    with pytest.raises(GroupException, match=r"call plugin\.attach"):
        room.ConsumerAssignorPlugin(CooperativeStickyAssignor()).metadata(["clicks"])


def test_a_plugin_is_of_one_consumer(kafka_cluster: KafkaCluster) -> None:
    """Shared, each consumer said that it had what the other one was given."""
    plugin = room.ConsumerAssignorPlugin(CooperativeStickyAssignor())
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                closing(
                    kafka.KafkaConsumer(
                        bootstrap_servers=kafka_cluster.bootstrap_servers,
                        group_id="g",
                        partition_assignment_strategy=[plugin],
                    )
                )
            )
            for _ in range(2)
        )
        plugin.attach(first)
        plugin.attach(first)
        with pytest.raises(GroupException, match=r"of 'cooperative-sticky' is another consumer's"):
            plugin.attach(second)
        first.close()
        plugin.attach(second)


def test_a_plugin_is_of_the_consumer_that_was_made_with_it(kafka_cluster: KafkaCluster) -> None:
    """Attached to another one, it said that its members had what that one was given."""
    mine, other = (room.ConsumerAssignorPlugin(CooperativeStickyAssignor()) for _ in range(2))
    with closing(
        kafka.KafkaConsumer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, group_id="g", partition_assignment_strategy=[mine]
        )
    ) as consumer:
        with pytest.raises(GroupException, match=r"made without this plug-in of 'cooperative-sticky'"):
            other.attach(consumer)
        mine.attach(consumer)
    with pytest.raises(GroupException, match=r"The consumer \(None\) must be a KafkaConsumer of kafka-python\.$"):
        other.attach(None)


class Noting(StickyAssignor):
    """Keeps what it was asked."""

    asked: tuple[GroupTopics, list[ConsumerMember]] | None = None

    def assign(self, topics: GroupTopics, members: Iterable[ConsumerMember]) -> ConsumerAssignment:
        self.asked = topics, list(members)
        return super().assign(*self.asked)


def test_racks_of_replicas_and_of_the_consumer_reach_the_assignor(rack_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("clicks")
    make_topics(rack_cluster.bootstrap_servers, topic, partitions=6)
    assignor = Noting()
    member = consumers.Member(rack_cluster.bootstrap_servers, unique("group"), [topic], [assignor], rack="b")
    try:
        wait_until(lambda: len(member.owned) == 6, "it has all")
    finally:
        member.leave()
    with room.Cluster({"bootstrap.servers": rack_cluster.bootstrap_servers}) as cluster:
        racks = cluster.partition_racks([topic])[topic]
    assert assignor.asked is not None
    topics, members = assignor.asked
    assert tuple(topics.racks[topic]) == racks
    assert [one.rack_id for one in members] == ["b"]


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor, StickyAssignor])
def test_a_join_that_ends_between_two_polls_is_not_done_again(
    kafka_cluster: KafkaCluster, topics: list[str], unique: Unique, assignor: type[ConsumerAssignor]
) -> None:
    taken = []

    class Noting(room.ConsumerAssignorPlugin):  # type: ignore[misc, name-defined]
        def take(self, assignment: Assignment, generation: int) -> None:
            taken.append(generation)
            super().take(assignment, generation)

    plugin = Noting(assignor())
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        group_id=unique("group"),
        partition_assignment_strategy=[plugin],
    )
    plugin.attach(consumer)
    consumer.subscribe(topics)

    def has_all() -> bool:
        consumer.poll(5)
        task = consumer._coordinator._join_task
        wait_until(lambda: task is None or task.is_done, "the join ends, and nobody polls")
        return len(consumer.assignment()) == 2 * PARTITIONS

    wait_until(has_all, "the consumer has all")
    # A topic that the leader hears of a little later makes a second one.
    assert taken == list(range(1, plugin.generation + 1))
    consumer.close()
