"""A Python process leads real Kafka Streams instances in Java, and gets out of their way where it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

from task_assignor import (
    ApplicationState,
    AssignedTask,
    ConfigException,
    KafkaStreamsAssignment,
    StreamsConfig,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.group import GroupException, MissingSourceTopicException, SubTopologyShape
from tests.bridge.streams import StreamsGroup
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until

pytest.importorskip("kafka")
room = pytest.importorskip("task_assignor.kafka")

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("leaders")]
Lead = Callable[..., Any]


class Lopsided(TaskAssignor):
    """Something that no assignor of Kafka's would do: the instance that comes first by its tag has nearly all."""

    fault: ClassVar[str] = ""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        if self.fault:
            raise RuntimeError(self.fault)
        clients = sorted(
            application_state.kafka_streams_states(compute_task_lags=False).values(),
            key=lambda client: client.client_tags["name"],
        )
        placed: list[list[AssignedTask]] = [[] for _ in clients]
        for number, task in enumerate(application_state.all_tasks):
            owner = number if number < len(clients) else 0
            placed[owner].append(AssignedTask(task, AssignedTask.Type.ACTIVE))
            if len(clients) > 1:
                placed[owner - 1].append(AssignedTask(task, AssignedTask.Type.STANDBY))
        return TaskAssignment(
            [KafkaStreamsAssignment.of(client.process_id, tasks) for client, tasks in zip(clients, placed, strict=True)]
        )


@pytest.fixture
def group(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str) -> Iterator[StreamsGroup]:
    with StreamsGroup(kafka_cluster, unique("led"), tmp_path, java) as started:
        yield started


@pytest.fixture
def lead(group: StreamsGroup) -> Iterator[Lead]:
    """Makes leaders of the group."""
    Lopsided.fault = ""
    leaders = []

    def make(topology: str | None = None, **more: Any) -> Any:
        config = StreamsConfig(
            {
                "application.id": group.name,
                "bootstrap.servers": group.cluster.bootstrap_servers,
                "task.assignor.class": Lopsided,
                "num.standby.replicas": group.standbys,
                # The assignor may think for a third of it.
                "session.timeout.ms": 30_000,
                **group.settings,
            }
        )
        shapes = room.shapes_of_topology(topology or group.describe(), group.name)
        leaders.append(room.StreamsGroupLeader(config, shapes, **more))
        return leaders[-1]

    yield make
    for leader in leaders:
        leader.close()


def start(group: StreamsGroup, *names: str) -> None:
    for name in names:
        group.start(name, {"client.tag.name": name})
        group.wait_until_settled()


def tasks_of(group: StreamsGroup) -> dict[str, tuple[list[str], list[str]]]:
    """What each instance says that it runs."""
    return {one.name: (one.active, one.standby) for one in group.running()}


def decided(leader: Any) -> dict[str, tuple[list[str], list[str]]]:
    """What the Python assignor wanted each instance to run."""
    outcome = leader.last.outcome
    clients = outcome.state.kafka_streams_states(compute_task_lags=False)
    return {
        clients[process].client_tags["name"]: (list(map(str, given.active)), list(map(str, given.standby)))
        for process, given in outcome.assignments.items()
    }


def test_three_instances_run_what_python_decides_and_java_takes_over_when_python_leaves(
    group: StreamsGroup, lead: Lead
) -> None:
    with lead() as leader:
        assert leader.is_leading
        start(group, "i1", "i2", "i3")
        wanted = {
            "i1": (["0_0", "0_3", "0_4", "0_5"], ["0_1"]),
            "i2": (["0_1"], ["0_2"]),
            "i3": (["0_2"], ["0_0", "0_3", "0_4", "0_5"]),
        }
        wait_until(lambda: tasks_of(group) == wanted == decided(leader), "the instances run what Python decided")
        group.feed(600)
        group.expect_all_rows_once()
        with room.Cluster({"bootstrap.servers": group.cluster.bootstrap_servers}) as cluster:
            wait_until(lambda: cluster.describe_group(group.name).state == "Stable", "the group is stable")
            inspection = room.inspect_group(cluster, group.name)
            state = room.state_of_group(cluster, group.name).state
        assert inspection.violations == ()
        shown = {
            member.subscription_info.client_tags["name"]: (
                list(map(str, member.active_tasks)),
                list(map(str, member.standby_tasks)),
            )
            for member in inspection.group.members
            if not member.only_leads
        }
        assert shown == wanted
        assert len(inspection.group.members) == 4
        # The leader is no client of the application.
        assert len(state.kafka_streams_states(compute_task_lags=False)) == 3
        assert leader.failures == []
    wait_until(
        lambda: max(len(one.active) for one in group.running()) == 2, "an instance in Java leads, with Kafka's own"
    )
    group.wait_until_settled()
    group.feed(600)
    group.expect_all_rows_once()
    group.expect_no_thread_lost()


def test_a_static_leader_that_is_restarted_leads_on_and_one_that_comes_too_late_leaves(
    group: StreamsGroup, lead: Lead
) -> None:
    # Nobody's session ends meanwhile, however busy the machine is.
    group.settings = {"session.timeout.ms": 60_000}
    next_one = lead(group_instance_id="python")
    with lead(group_instance_id="python"):
        start(group, "i1", "i2")
        before = tasks_of(group)
    with next_one as again:
        assert again.is_leading
        # A leader in Java would have moved some.
        assert tasks_of(group) == before
        start(group, "i3")
        wait_until(lambda: len(group.instances["i1"].active) == 4, "it leads as before")
        with pytest.raises(room.GroupStateException, match="Another member leads the group"), lead():
            pass
        wait_until(lambda: tasks_of(group) == decided(again), "nothing came of it")
    group.wait_until_settled()
    group.expect_no_thread_lost()


@pytest.mark.parametrize("rejoins", [False, True], ids=["at a heartbeat", "as it joins"])
def test_of_two_leaders_with_one_instance_id_the_second_leads_and_the_first_knows(
    kafka_cluster: KafkaCluster, unique: Unique, rejoins: bool
) -> None:
    name, topic = unique("twice"), unique("clicks")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=2)
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers, "heartbeat.interval.ms": 200}
    config = StreamsConfig({"application.id": name, "session.timeout.ms": 60_000, **settings})
    first, second = (
        room.StreamsGroupLeader(config, [SubTopologyShape("s", (topic,))], group_instance_id="python") for _ in range(2)
    )
    with first, second:
        if rejoins:
            first._plugin._rejoin()
        with pytest.raises(room.GroupStateException, match=r"same group_instance_id \('python'\), and leads"):
            first.wait(60)
        assert not first.is_leading
        assert second.is_leading
        # It did not take the member of that name out of the group, which is the other one.
        with room.Cluster(settings) as cluster:
            assert [one.group_instance_id for one in cluster.describe_group(name).members] == ["python"]


def test_no_fault_of_python_stops_the_instances(group: StreamsGroup, lead: Lead) -> None:
    with lead() as leader:
        start(group, "i1")
        Lopsided.fault = "a bug"
        group.start("i2", {"client.tag.name": "i2"})
        wait_until(lambda: leader.failures, "the assignor failed")
        wait_until(lambda: group.instances["i2"].state == "RUNNING", "the newcomer runs")
        assert len(group.instances["i1"].active) == 6
        assert leader.is_leading
        group.feed(60)
        group.expect_all_rows_once()
        Lopsided.fault = ""
        # What the timer does a minute later.
        leader._plugin._rejoin()
        group.wait_until_settled()
        wait_until(lambda: tasks_of(group) == decided(leader), "the assignor is asked again")
    group.expect_no_thread_lost()


@pytest.mark.parametrize("instance", [None, "python"])
def test_a_leader_with_the_wrong_topology_leaves_and_java_leads(
    group: StreamsGroup, lead: Lead, instance: str | None
) -> None:
    wrong = group.describe().replace(f"{group.name}-right", f"{group.name}-joined")
    with lead(wrong, group_instance_id=instance) as leader:
        start(group, "i1")
        with pytest.raises(room.GroupStateException, match=r"reads .*-right.*Maybe it is of another version"):
            leader.wait(60)
        assert not leader.is_leading
        start(group, "i2")
    with room.Cluster({"bootstrap.servers": group.cluster.bootstrap_servers}) as cluster:
        assert len(cluster.describe_group(group.name).members) == 2
    group.feed(60)
    group.expect_all_rows_once()
    group.expect_no_thread_lost()


ONE = [SubTopologyShape("one", ("clicks",))]


@pytest.mark.parametrize(
    ("shapes", "settings", "instance", "said"),
    [
        ([], {}, None, r"^The sub-topologies \(\[\]\) read no topics: .* Maybe make them by shapes_of_topology"),
        ([SubTopologyShape("none", ())], {}, None, "read no topics"),
        ("abc", {}, None, r"^The sub-topologies \('abc'\) must be a list of SubTopologyShape\.$"),
        (ONE, {"session.timeout.ms": 10}, None, r"session.timeout.ms \(10\) must be at least 1000 milliseconds"),
        (
            ONE,
            {"group.protocol": "Streams"},
            None,
            r"group.protocol \('Streams'\) must be classic: in other groups brokers",
        ),
        (ONE, {"heartbeat.interval.ms": 45_000}, None, r"\(45000\) must be less than session.timeout.ms \(45000\)"),
        (
            ONE,
            {"main.consumer.heartbeat.interval.ms": 10_000, "consumer.session.timeout.ms": "9000"},
            None,
            r"main.consumer.heartbeat.interval.ms \(10000\) must be less than consumer.session.timeout.ms \(9000\)",
        ),
        *(
            (ONE, {"replication.factor": wrong}, None, rf"replication.factor \('?{wrong}'?\) must be an int")
            for wrong in ("many", 2**15)
        ),
        (ONE, {"consumer.session.timeout.ms": "soon"}, None, r"consumer.session.timeout.ms \('soon'\) must be an int"),
        *(
            (ONE, {}, wrong, r"^The group_instance_id \(.*\) must be 1 to 249 characters out of a-z.*; or None\.$")
            for wrong in ("", ".", "..", "a b", "a/b", "ä", "x" * 250, 7)
        ),
    ],
)
def test_what_nobody_can_lead_with_is_said_before_anybody_is_asked(
    shapes: Any, settings: dict[str, object], instance: Any, said: str
) -> None:
    """Some came from the broker, or from kafka-python, without the value; any text was an instance's id."""
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:1", **settings})
    with pytest.raises((GroupException, ConfigException), match=said):
        room.StreamsGroupLeader(config, shapes, group_instance_id=instance)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (45_000, 3_000)),
        ({"session.timeout.ms": "30000"}, (30_000, 2_000)),
        ({"session.timeout.ms": 30_000, "consumer.session.timeout.ms": 60_000}, (60_000, 4_000)),
        ({"consumer.session.timeout.ms": 60_000, "main.consumer.session.timeout.ms": 15_000}, (15_000, 1_000)),
        ({"main.consumer.heartbeat.interval.ms": 7, "heartbeat.interval.ms": 8}, (45_000, 7)),
    ],
)
def test_the_times_of_the_main_consumer_are_the_leader_s(
    settings: dict[str, object], expected: tuple[int, int]
) -> None:
    """As in the application itself: those with a prefix were passed over without a word."""
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:1", **settings})
    leader = room.StreamsGroupLeader(config, ONE)
    assert (leader._session_ms, leader._heartbeat_ms) == expected


def test_a_leader_that_was_closed_does_not_lead_again_without_a_word() -> None:
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:1"})
    leader = room.StreamsGroupLeader(config, ONE)
    leader.close()
    with pytest.raises(room.GroupStateException, match=r"has left it\. Maybe make another one"), leader:
        pass
    leader._thread = threading.Thread(target=lambda: None)
    leader._thread.start()
    leader.wait(float("inf"))
    for wrong in ("1", -1, float("nan")):
        with pytest.raises(ConfigException, match=r"The timeout_s \(.*\) must be a number of seconds, or None"):
            leader.wait(wrong)


def test_a_leader_that_is_given_up_while_it_joins_does_not_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a notebook: nobody could end it any more."""
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:1"})
    leader = room.StreamsGroupLeader(config, ONE)
    monkeypatch.setattr(leader._plugin, "look_up", lambda **_: None)
    monkeypatch.setattr(leader, "_lead", leader._stopping.wait)

    def interrupt(_: float) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(leader._joined, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt), leader:
        pass
    assert not leader._thread.is_alive()


def test_a_leader_that_cannot_say_that_it_has_left_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is no error of Kafka's its thread died, and whoever started it waited for five minutes and a half."""
    streams_group = pytest.importorskip("task_assignor.kafka.streams_group")

    def refuse(**_: object) -> NoReturn:
        raise OSError("too many open files")

    monkeypatch.setattr(streams_group, "KafkaAdminClient", refuse)
    monkeypatch.setattr(streams_group, "KafkaConsumer", refuse)
    monkeypatch.setattr(streams_group, "_JOIN_S", 30)
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "127.0.0.1:1"})
    leader = room.StreamsGroupLeader(config, ONE, group_instance_id="leader")
    monkeypatch.setattr(leader._plugin, "look_up", lambda **_: None)
    with pytest.raises(room.GroupStateException, match="too many open files"), leader:
        pass


def test_a_session_that_brokers_do_not_allow_is_told_with_the_value(
    kafka_cluster: KafkaCluster, unique: Unique
) -> None:
    topic = unique("clicks")
    make_topics(kafka_cluster.bootstrap_servers, topic, partitions=1)
    settings = {"bootstrap.servers": kafka_cluster.bootstrap_servers, "session.timeout.ms": 3_000_000}
    leader = room.StreamsGroupLeader(
        StreamsConfig({"application.id": unique("app"), **settings}), [SubTopologyShape("one", (topic,))]
    )
    with pytest.raises(room.GroupStateException, match=r"Maybe session.timeout.ms \(3000000\) is below"), leader:
        pass


def test_what_is_wrong_with_the_topics_is_said_before_any_instance_depends_on_it(
    group: StreamsGroup, lead: Lead
) -> None:
    wrong = group.describe().replace(f"{group.name}-right", f"{group.name}-wrong")
    with pytest.raises(MissingSourceTopicException, match=r"topics that do not exist: .*-wrong"), lead(wrong):
        pass
