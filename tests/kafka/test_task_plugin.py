"""Task assignors decide in real groups of Python consumers: tasks, standbys, follow-ups; and no fault stops a group."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from task_assignor import (
    ApplicationState,
    Assignment,
    AssignmentError,
    ConfigException,
    GroupAssignment,
    GroupSubscription,
    ProcessId,
    StreamsConfig,
    TaskAssignment,
    TaskAssignmentException,
    TaskId,
    TopicPartition,
)
from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.group import GroupException, SubTopologyShape
from task_assignor.group.consumers import ConsumerMember, GroupTopics
from task_assignor.group.wire import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_assignment_info,
    encode_assignment,
    encode_assignment_info,
    encode_subscription_info,
)
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until

kafka = pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")
task_plugin = pytest.importorskip("task_assignor.kafka.task_plugin")
consumers = pytest.importorskip("tests.kafka.consumers")

pytestmark = pytest.mark.kafka
Join = Callable[..., Any]
PARTITIONS = 4
TASKS = [TaskId(0, partition) for partition in range(PARTITIONS)]


class Faulty(StickyTaskAssignor):
    """Sticky, which does what it is told to."""

    fault: ClassVar[str] = ""
    computed: ClassVar[list[AssignmentError]] = []

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        if self.fault == "raises":
            raise RuntimeError("a bug")
        if self.fault == "tries again":
            type(self).fault = ""
            raise TaskAssignmentException("not now")
        while self.fault == "never returns":
            time.sleep(0.01)
        if self.fault == "nothing":
            return TaskAssignment([])
        return super().assign(application_state)

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        self.computed.append(error)


@pytest.fixture
def join(kafka_cluster: KafkaCluster, unique: Unique) -> Iterator[Join]:
    """Starts members of one application with two topics and a logged store."""
    name, members = unique("app"), []
    topics = [f"{name}-clicks", f"{name}-impressions"]
    make_topics(kafka_cluster.bootstrap_servers, *topics, partitions=PARTITIONS)
    shapes = [SubTopologyShape("join", tuple(topics), {"store": f"{name}-store-changelog"})]
    Faulty.fault, Faulty.computed = "", []

    def join_one(number: int, **settings: Any) -> Any:
        config = StreamsConfig(
            {
                "application.id": name,
                "bootstrap.servers": kafka_cluster.bootstrap_servers,
                "task.assignor.class": Faulty,
                "num.standby.replicas": 1,
                "client.tag.zone": f"z{number}",
                **settings,
            }
        )
        process = ProcessId.parse(f"00000000-0000-0000-0000-{number:012}")
        plugin = room.TaskAssignorPlugin(config, shapes, process, limit_ms=6_000)
        members.append(consumers.Member(kafka_cluster.bootstrap_servers, name, topics, [plugin]))
        members[-1].name, members[-1].topics = name, topics
        return members[-1]

    yield join_one
    Faulty.fault = ""
    for member in members:
        member.leave()


def settle(members: list[Any], what: str) -> None:
    """Every task is active once where its partitions are, and has a standby elsewhere if there are others."""

    def holds() -> bool:
        assert [member.errors for member in members if member.errors] == []
        active = Counter(task for member in members for task in member.plugin.active_tasks)
        standby = Counter(task for member in members for task in member.plugin.standby_tasks)
        wanted = dict.fromkeys(TASKS, 1)
        return (
            len({member.plugin.generation for member in members}) == 1
            and active == wanted
            and (standby == wanted if len(members) > 1 else not standby)
            and all(
                member.owned
                == {(topic, task.partition) for topic in member.topics for task in member.plugin.active_tasks}
                for member in members
            )
        )

    wait_until(holds, what)


def test_tasks_and_standbys_are_where_the_assignor_put_them_and_standbys_take_over(
    kafka_cluster: KafkaCluster, join: Join
) -> None:
    members = [join(1)]
    settle(members, "the first has all")
    members += [join(2)]
    settle(members, "two share")
    assert [failure for member in members for failure in member.plugin.failures] == []
    assert [len(member.plugin.active_tasks) for member in members] == [2, 2]
    members += [join(3)]
    settle(members, "three share")
    assert sorted(len(member.plugin.active_tasks) for member in members) == [1, 1, 2]
    with room.Cluster({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as cluster:
        assert (
            cluster.partition_counts([f"{members[0].name}-store-changelog"])[f"{members[0].name}-store-changelog"] == 4
        )
        description = cluster.describe_group(members[0].name)
    assert Counter(task for member in description.members for task in member.active_tasks) == dict.fromkeys(TASKS, 1)
    assert Counter(task for member in description.members for task in member.standby_tasks) == dict.fromkeys(TASKS, 1)
    gone = members.pop(0)
    lost = gone.plugin.active_tasks
    ready = [set(lost) & set(member.plugin.standby_tasks) for member in members]
    room_for = [2 - len(member.plugin.active_tasks) for member in members]
    gone.kill()
    settle(members, "two share what the killed one had")
    assert [len(member.plugin.active_tasks) for member in members] == [2, 2]
    promoted = [len(tasks & set(member.plugin.active_tasks)) for tasks, member in zip(ready, members, strict=True)]
    # Each has two in the end; as far as that allows it, a task goes where its standby was.
    assert promoted == [min(len(tasks), free) for tasks, free in zip(ready, room_for, strict=True)]
    assert set(Faulty.computed) == {AssignmentError.NONE}
    assert [failure for member in members for failure in member.plugin.failures] == []


@pytest.mark.parametrize("fault", ["raises", "nothing", "never returns"])
def test_no_fault_of_the_assignor_stops_the_group(join: Join, fault: str) -> None:
    first = join(1)
    settle([first], "the first has all")
    first.plugin._limit_s = 5
    Faulty.fault = fault
    second = join(2)
    wait_until(lambda: first.plugin.failures and second.plugin.generation >= 0, "the leader has noticed")
    wait_until(
        lambda: first.plugin.generation == second.plugin.generation and len(first.owned) == 2 * PARTITIONS,
        "the first keeps all",
    )
    assert first.plugin.active_tasks == tuple(TASKS)
    Faulty.fault = ""
    # What the timer does a minute later.
    first.plugin._rejoin()
    wait_until(lambda: second.plugin.active_tasks, "the second gets its share")
    settle([first, second], "two share")
    assert [len(member.plugin.active_tasks) for member in (first, second)] == [2, 2]


def test_followups_that_are_always_due_are_no_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was alone in its group joined it again and again, without a pause."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("plain", ("clicks",))], process)
    pauses: list[float] = []
    monkeypatch.setattr(plugin, "rebalance_at", lambda when_s: pauses.append(max(when_s - 1_000, 0)))
    monkeypatch.setattr(task_plugin, "time", SimpleNamespace(time=lambda: 1_000.0))
    info = AssignmentInfo(next_rebalance_ms=0)
    given = Assignment((), encode_assignment_info(info))
    plugin.tell()
    for generation in range(5):
        plugin.on_assignment(ConsumerProtocolAssignment.decode(encode_assignment(given)), generation)
    assert [round(pause, 3) for pause in pauses] == [0, 0.2, 0.4, 0.8, 1.6]


def test_who_is_given_nothing_has_no_tasks_any_more_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """As when a source topic is gone; else it would go on to say that it runs them. Only the leader's log had a word of it."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "application.server": "h:1"})
    told: list[tuple[Sequence[TaskId], Sequence[TaskId]]] = []
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    shapes = [SubTopologyShape("plain", ("clicks",))]
    plugin = room.TaskAssignorPlugin(config, shapes, process, on_tasks=lambda *tasks: told.append(tasks))
    for generation, topics in enumerate([GroupTopics({"clicks": 2}), GroupTopics({})]):
        given = plugin.answer(topics, [ConsumerMember("a", ("clicks",), plugin.tell())])["a"]
        plugin.on_assignment(ConsumerProtocolAssignment.decode(encode_assignment(given)), generation)
    plugin.tell()
    assert told == [((TaskId(0, 0), TaskId(0, 1)), ()), ((), ())]
    assert (plugin.active_tasks, plugin.standby_tasks) == ((), ())
    assert "The leader of the group 'app' gives nothing to this member" in caplog.text


@pytest.mark.parametrize(("views", "orphans"), [(2, "went to the least loaded members"), (3, "stays so")])
def test_what_becomes_of_what_nobody_has_is_said_as_it_is(views: int, orphans: str) -> None:
    """With sources that are not co-partitioned there are no tasks: nothing can be placed until they are."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "task.assignor.class": Faulty})
    shapes = [SubTopologyShape("join", ("clicks", "views"))]
    plugin = room.TaskAssignorPlugin(config, shapes, ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    member = ConsumerMember("a", ("clicks", "views"), plugin.tell(), {"clicks": [0], "views": [0]}, 1)
    Faulty.fault = "raises"
    given = plugin.answer(GroupTopics({"clicks": 2, "views": views}), [member])["a"]
    Faulty.fault = ""
    assert len(given.partitions) == (4 if views == 2 else 2)
    (failure,) = plugin.failures
    assert f"; the group keeps what it has, what nobody has {orphans}, and the assignor is asked again " in failure
    plugin.tell()


def test_a_cluster_that_does_not_answer_is_named_and_not_the_assignor() -> None:
    """To connect took as long as the assignor may think, and it was said that the assignor did not answer."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "127.0.0.1:1"})
    shapes = [SubTopologyShape("join", ("clicks",), {"store": "app-store-changelog"})]
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, shapes, process, limit_ms=6_000)
    given = plugin.answer(GroupTopics({"clicks": 2}), [ConsumerMember("a", ("clicks",), plugin.tell())])["a"]
    assert len(given.partitions) == 2
    (failure,) = plugin.failures
    assert failure.startswith("Cannot connect at 127.0.0.1:1: ")
    plugin.tell()


def test_what_the_leader_tells_in_place_of_tasks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its members had nothing from then on, and only `failures` had a word of it."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("plain", ("clicks",))], process)
    asks = encode_subscription_info(SubscriptionInfo(process, error_code=4))
    given = plugin.answer(GroupTopics({"clicks": 2}), [ConsumerMember("a", ("clicks",), asks)])["a"]
    for generation, data in enumerate([given.user_data, b"??"]):
        assignment = encode_assignment(Assignment((), data))
        plugin.on_assignment(ConsumerProtocolAssignment.decode(assignment), generation)
    plugin.tell()
    assert [record.getMessage() for record in caplog.records] == plugin.failures
    assert [said.partition(":")[0] for said in plugin.failures] == [
        "A client asked to shut the application down. All members are told so, and get nothing.",
        "The leader of the group answered with the error code 4.",
        "What the leader sent cannot be read",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"process_id": "0a-1"}, r"The process_id \('0a-1'\) must be a ProcessId\. Maybe use ProcessId\.parse"),
        ({"on_tasks": 3}, r"The on_tasks \(3\) must be a function, or None\."),
        ({"offset_sums": {}}, r"The offset_sums \(\{\}\) must be a function, or None\."),
        (
            {"offset_sums": lambda: {"0_0": 7}},
            r"What offset_sums\(\) returns \(\{'0_0': 7\}\) must be a mapping, TaskId -> int",
        ),
        ({"offset_sums": lambda: None}, r"What offset_sums\(\) returns \(None\) must be a mapping"),
    ],
)
def test_what_is_no_id_and_no_function_is_said(given: dict[str, Any], said: str) -> None:
    """It was an AttributeError in the first poll, or nothing."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    process = given.pop("process_id", ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    with pytest.raises((ConfigException, GroupException), match=said):
        room.TaskAssignorPlugin(config, [SubTopologyShape("plain", ("clicks",))], process, **given).tell()


@pytest.mark.parametrize(
    ("fault", "said", "tracebacks"),
    [
        ("raises", "The assignor Faulty failed with RuntimeError: a bug (", ["RuntimeError: a bug"]),
        ("nothing", "The assignor Faulty gave an assignment that cannot be used. ", []),
    ],
)
def test_a_traceback_is_logged_where_it_leads_to_the_assignor(
    fault: str, said: str, tracebacks: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the message already said, thirty lines of our own calls came behind it, every minute."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "task.assignor.class": Faulty})
    plugin = room.TaskAssignorPlugin(
        config, [SubTopologyShape("plain", ("clicks",))], ProcessId.parse("00000000-0000-0000-0000-000000000001")
    )
    Faulty.fault = fault
    plugin.answer(GroupTopics({"clicks": 2}), [ConsumerMember("a", ("clicks",), plugin.tell())])
    Faulty.fault = ""
    plugin.tell()
    assert plugin.failures[0].startswith(said)
    logged = [record.exc_info for record in caplog.records if record.name.startswith("task_assignor.kafka")]
    assert len(logged) == 1
    causes = [found[1].__cause__ for found in logged if found and found[1]]
    assert [f"{type(cause).__name__}: {cause}" for cause in causes] == tracebacks


def test_nobody_keeps_what_somebody_else_was_given_since() -> None:
    """Without tasks, too: a member that was away still says that its old partitions are its own."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "task.assignor.class": Faulty})
    shapes = [SubTopologyShape("join", ("clicks", "views"))]
    plugin = room.TaskAssignorPlugin(config, shapes, ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    topics, told = ("clicks", "views"), plugin.tell()
    members = [
        ConsumerMember("a", topics, told, {"clicks": [0, 1]}, 4),
        ConsumerMember("b", topics, told, {"clicks": [1], "views": [0]}, 5),
        ConsumerMember("c", topics, told, {"views": [0]}, 5),
    ]
    given = plugin.answer(GroupTopics({"clicks": 2, "views": 3}), members)
    assert {name: [*map(str, one.partitions)] for name, one in given.items()} == {
        "a": ["clicks-0"],
        "b": ["clicks-1", "views-0"],
        "c": [],
    }
    plugin.tell()


def test_who_was_thrown_out_does_not_say_that_it_still_runs_its_tasks(
    kafka_cluster: KafkaCluster, unique: Unique
) -> None:
    states: list[ApplicationState] = []

    class Recorded(StickyTaskAssignor):
        def assign(self, application_state: ApplicationState) -> TaskAssignment:
            states.append(application_state)
            return super().assign(application_state)

    name, topic = unique("app"), unique("clicks")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    servers = {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    config = StreamsConfig({"application.id": name, "task.assignor.class": Recorded, **servers})
    processes = [ProcessId.parse(f"00000000-0000-0000-0000-00000000000{number}") for number in range(2)]
    shapes = [SubTopologyShape("join", (topic,), {"store": f"{name}-store-changelog"})]
    plugins = [room.TaskAssignorPlugin(config, shapes, each, limit_ms=6_000) for each in processes]
    with ExitStack() as stack:
        opened = []
        # Only the first one has to poll often.
        for plugin, most_ms in zip(plugins, (2_000, 300_000), strict=True):
            consumer = kafka.KafkaConsumer(
                bootstrap_servers=kafka_cluster.bootstrap_servers,
                group_id=name,
                partition_assignment_strategy=[plugin],
                max_poll_interval_ms=most_ms,
                enable_auto_commit=False,
            )
            stack.callback(consumer.close)
            plugin.attach(consumer)
            consumer.subscribe([topic])
            opened.append(consumer)

        def polled(*which: int) -> bool:
            for number in which:
                opened[number].poll(50)
            sizes = [len(opened[number].assignment()) for number in which]
            return sizes == [PARTITIONS // len(which)] * len(which)

        wait_until(lambda: polled(0, 1), "both have their share")
        wait_until(lambda: polled(1), "the second has all, since the first does not poll")
        states.clear()
        wait_until(lambda: polled(0, 1), "the first has come back")
    clients = (state.kafka_streams_states(compute_task_lags=False) for state in states)
    back = next(found[processes[0]] for found in clients if processes[0] in found)
    assert not back.previous_active_tasks
    assert len(back.previous_standby_tasks) == PARTITIONS // 2


def test_brokers_create_no_topics_for_who_subscribes_to_tasks(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    """By default they do within 3 s, before a leader can: with one partition, for which the group could not be led any more."""
    config = StreamsConfig({"application.id": unique("app"), "bootstrap.servers": kafka_cluster.bootstrap_servers})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("s", ("clicks",))], process)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        group_id=config.application_id,
        partition_assignment_strategy=[plugin],
    )
    with closing(consumer):
        plugin.attach(consumer)
        consumer.subscribe(["clicks"])
        assert not consumer._cluster.metadata_request().allow_auto_topic_creation


def test_a_source_may_begin_as_kafkas_own_topics_do(kafka_cluster: KafkaCluster, unique: Unique) -> None:
    topic = unique("__heartbeats")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    servers = {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    shapes = [SubTopologyShape("s", (topic,), {"store": f"{topic}-changelog"})]
    plugin = room.TaskAssignorPlugin(
        StreamsConfig({"application.id": "app", **servers}),
        shapes,
        ProcessId.parse("00000000-0000-0000-0000-000000000001"),
    )
    assert plugin.look_up(creates=False).counts == {topic: 2, f"{topic}-changelog": 2}


def test_a_source_that_serves_as_changelog_ends_where_the_group_has_committed(
    kafka_cluster: KafkaCluster, unique: Unique
) -> None:
    """As in Kafka: what is not processed yet is nobody's state, and copies would have seemed to be behind by it for ever."""
    topic, group = unique("table"), unique("group")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    for _ in range(5):
        producer.send(topic, b"", partition=1)
    producer.close()
    servers = {"bootstrap.servers": kafka_cluster.bootstrap_servers}
    consumer = kafka.KafkaConsumer(
        group_id=group, enable_auto_commit=False, bootstrap_servers=servers["bootstrap.servers"]
    )
    consumer.assign([kafka.TopicPartition(topic, 1)])
    consumer.commit({kafka.TopicPartition(topic, 1): kafka.OffsetAndMetadata(2, "", -1)})
    consumer.close()
    plugin = room.TaskAssignorPlugin(
        StreamsConfig({"application.id": group, **servers}),
        [SubTopologyShape("table", (topic,), {"store": topic})],
        ProcessId.parse("00000000-0000-0000-0000-000000000001"),
    )
    assert plugin.look_up().end_offsets == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 2}


def test_a_member_of_another_version_that_does_not_read_a_topic_gets_nothing_and_is_named() -> None:
    """In a rolling change of the topology; it would refuse what it does not read, and the group rebalance for ever."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    processes = [ProcessId.parse(f"00000000-0000-0000-0000-00000000000{number}") for number in range(3)]
    old = [SubTopologyShape("old", ("clicks",))]
    new = [*old, SubTopologyShape("new", ("views",))]
    plugins = [
        room.TaskAssignorPlugin(config, shapes, each) for shapes, each in zip([new, old, old], processes, strict=True)
    ]
    members = [
        ConsumerMember(name, topics, plugin.tell())
        for name, topics, plugin in zip("abc", [("clicks", "views"), ("clicks",), ("clicks",)], plugins, strict=True)
    ]
    topics = GroupTopics({"clicks": 4, "views": 4})
    by_new, by_old = plugins[0].answer(topics, members), plugins[1].answer(topics, members)
    assert [len(by_new[name].partitions) for name in "abc"] == [8, 0, 0]
    assert [failure.partition(", so")[0] for failure in plugins[0].failures] == [
        f"The member {name} does not subscribe to views, which the topology of the leader reads" for name in "bc"
    ]
    # Who reads more than the leader knows of can have what the leader gives.
    assert sorted(len(by_old[name].partitions) for name in "abc") == [1, 1, 2]
    assert plugins[1].failures == []


@pytest.mark.parametrize(("topics", "says"), [(("views",), None), (("clicks",), b"strange")])
def test_what_a_member_has_that_gets_nothing_is_handed_over_when_it_has_given_it_up(
    topics: tuple[str, ...], says: bytes | None
) -> None:
    """Others got its tasks at once, and ran them beside it until it had heard of that."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    shapes = [SubTopologyShape("one", ("clicks",))]
    plugin = room.TaskAssignorPlugin(config, shapes, ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    members = [
        ConsumerMember("a", ("clicks",), plugin.tell(), {"clicks": [0]}, 1),
        ConsumerMember("b", topics, says or plugin.tell(), {"clicks": [1]}, 1),
    ]
    given = plugin.answer(GroupTopics({"clicks": 2, "views": 2}), members)
    assert [[each.partition for each in given[name].partitions] for name in "ab"] == [[0], []]
    assert decode_assignment_info(given["a"].user_data or b"").next_rebalance_ms == 0
    members[1] = ConsumerMember("b", topics, says or plugin.tell())
    given = plugin.answer(GroupTopics({"clicks": 2, "views": 2}), members)
    assert [len(given[name].partitions) for name in "ab"] == [2, 0]


@pytest.mark.parametrize("views", [2, 3])
def test_a_partition_that_cannot_be_is_nobodys_own(views: int) -> None:
    """Whoever led had an error in its poll, and after it the next one, for as long as the member was there."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    shapes = [SubTopologyShape("join", ("clicks", "views"))]
    plugin = room.TaskAssignorPlugin(config, shapes, ProcessId.parse("00000000-0000-0000-0000-000000000001"))
    member = ConsumerMember("a", ("clicks", "views"), plugin.tell(), {"clicks": [-1, 0], "views": [0]}, 1)
    (given,) = plugin.answer(GroupTopics({"clicks": 2, "views": views}), [member]).values()
    assert len(given.partitions) == (4 if views == 2 else 2)
    plugin.tell()


def test_an_assignor_that_hangs_is_not_asked_again_at_once_by_members_that_did_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those whose sessions are shorter than the leader thinks join anew meanwhile, and the group never came to rest."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "task.assignor.class": Faulty})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("one", ("clicks",))], process, limit_ms=200)
    plugin.rejoin_by(lambda: None)
    topics = GroupTopics({"clicks": 4})
    monkeypatch.setattr(Faulty, "fault", "never returns")
    for _ in range(2):
        (given,) = plugin.answer(topics, [ConsumerMember("a", ("clicks",), plugin.tell())]).values()
        assert len(given.partitions) == 4
    (failure,) = plugin.failures
    assert failure.startswith(
        "The assignor Faulty did not answer within 0.2 s (tests.kafka.test_task_plugin.Faulty.assign, "
    )
    # What the timer does a minute later.
    plugin._rejoin()
    plugin.answer(topics, [ConsumerMember("a", ("clicks",), plugin.tell())])
    assert len(plugin.failures) == 2
    plugin.tell()


def test_a_follow_up_beyond_all_clocks_is_waited_for() -> None:
    """Its thread ended with a traceback: nanoseconds taken for milliseconds are enough."""
    config = StreamsConfig({"application.id": "app"})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("one", ("clicks",))], process)
    plugin.rebalance_at((2**63 - 2) / 1000)
    assert 1e9 < plugin._timer.interval < threading.TIMEOUT_MAX
    assert plugin._timer.is_alive()
    plugin.tell()


def test_an_assignor_that_wants_to_try_again_for_ever_is_not_asked_for_ever_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several rebalances a second for as long as the group lived."""
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1", "task.assignor.class": Faulty})
    process = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    plugin = room.TaskAssignorPlugin(config, [SubTopologyShape("one", ("clicks",))], process)
    member = ConsumerMember("a", ("clicks",), plugin.tell())
    due = []
    for fault in ("tries again", "tries again", "tries again", "", "tries again"):
        monkeypatch.setattr(Faulty, "fault", fault)
        (given,) = plugin.answer(GroupTopics({"clicks": 4}), [member]).values()
        due.append(decode_assignment_info(given.user_data or b"").next_rebalance_ms)
    assert due == [0, 1_010_000, 1_010_000, NO_REBALANCE, 0]


def test_an_assignor_that_wants_to_try_again_is_asked_again_at_once(join: Join) -> None:
    first = join(1)
    settle([first], "the first has all")
    Faulty.fault = "tries again"
    second = join(2)
    wait_until(lambda: second.plugin.active_tasks, "the second gets its share, without anybody's doing")
    settle([first, second], "two share")
    assert Faulty.fault == ""
    assert first.plugin.failures == second.plugin.failures == []
