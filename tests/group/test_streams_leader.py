"""The leader of Kafka Streams groups: the JVM's answers, and what its text or ours has differently."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.lead_json import answer_lead
from task_assignor.group import (
    ASSIGNMENT_FAILED,
    MISSING_SOURCE_TOPIC,
    SHUTDOWN_REQUESTED,
    AssignmentRejectedException,
    GroupClient,
    GroupConsumer,
    GroupException,
    GroupLeader,
    MissingSourceTopicException,
    StreamsLeader,
    StreamsMember,
    StreamsRebalance,
    SubTopologyShape,
    followup_ms,
    make_tasks,
    plan_topics,
    spread_over_consumers,
)
from task_assignor.group.wire import (
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_assignment_info,
    encode_subscription_info,
)
from task_assignor.group.wire import streams as wire_streams
from task_assignor.sdk import (
    ApplicationState,
    AssignmentConfigs,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    HostInfo,
    ProcessId,
    Subscription,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
    TaskId,
    TopicPartition,
)
from task_assignor.testing import a_process_id
from tests.budget import examples
from tests.group.recorded_placement import Recorded, deciding, placements, told_in_orders
from tests.vectors import lines_of

VECTORS = lines_of("consumer_level/streams_assignor")
EXACT = [vector for vector in VECTORS if vector["exact"]]
# Two consumers of one client tell different offsets of a task, and the JVM believes the last one: defect 6.
ORDER_OF_CONSUMERS_MATTERS = {"streams-0032b", "streams-0054b"}
ERRORS = ("missing_source_topic", "shutdown_requested")
SHAPES = [
    SubTopologyShape("join", ("clicks", "views"), {"store": "app-store-changelog"}),
    SubTopologyShape("plain", ("views2",)),
]
TOPICS = {"clicks": 4, "views": 4, "views2": 3}


def setting(vector: Mapping[str, Any], name: str) -> str:
    return str(vector["request"]["config"].get(name, ""))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_all_that_the_leader_adds_is_the_jvms(vector: dict[str, Any]) -> None:
    """With the JVM's placement of the tasks: threads, revocations, standbys, hosts, versions, follow-ups, topics.

    Also where that placement was one of several: the JVM's then varies, ours is given.
    """
    request = vector["request"]
    asked = told_in_orders(request) if vector["id"] in ORDER_OF_CONSUMERS_MATTERS else [request]
    answers = chain.from_iterable(_answers(each, vector) for each in asked)
    assert vector["response"] in answers


def _answers(request: Mapping[str, Any], vector: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if request["scenario"] in ERRORS:
        yield answer_lead(JsonValue(request))
    else:
        for placement, deadline_ms in islice(placements(vector), 100):
            yield answer_lead(JsonValue(request), deciding(placement, deadline_ms))


@pytest.mark.parametrize("name", sorted(ORDER_OF_CONSUMERS_MATTERS))
def test_defect_6_is_all_that_differs_where_the_order_of_consumers_matters(name: str) -> None:
    """In some orders the JVM says this, in others something else; ours is the same in all of them."""
    (vector,) = [vector for vector in VECTORS if vector["id"] == name]
    assert "member_order" in vector["varies_with"]
    assert vector["response"] not in _answers(vector["request"], vector)
    found = [vector["response"] in _answers(told, vector) for told in told_in_orders(vector["request"])]
    assert {True, False} == set(found)


@pytest.mark.parametrize(
    "vector",
    [
        vector
        for vector in EXACT
        if not setting(vector, "task.assignor.class")
        and not setting(vector, "internal.task.assignor.class")
        and "racks" not in vector["request"]
        and not vector["request"].get("end_offsets_fail")
    ],
    ids=lambda vector: vector["id"],
)
def test_with_high_availability_all_is_the_jvms(vector: dict[str, Any]) -> None:
    """Of racks the JVM takes one optimum among several; without end offsets it asks another assignor."""
    assert answer_lead(JsonValue(vector["request"])) == vector["response"]


def test_defect_6_nothing_depends_on_the_order_of_the_members() -> None:
    """In the JVM the last consumer's offset sums win, and the first subscription's end point and rack."""
    chance = random.Random(6)
    for vector in VECTORS[::4]:
        request = vector["request"]
        shuffled = {**request, "members": chance.sample(request["members"], len(request["members"]))}
        assert answer_lead(JsonValue(shuffled)) == answer_lead(JsonValue(request))
    process = a_process_id(1)
    first = a_member("a", process, sums={TaskId(0, 0): 5}, host="h:1", rack="r")
    second = a_member("b", process, sums={TaskId(0, 0): -2, TaskId(0, 1): 3}, host="i:2")
    states = []
    for members in ([first, second], [second, first]):
        outcome = lead(members).outcome
        assert outcome is not None
        states.append(outcome.state)
    assert states[0] == states[1]
    (client,) = states[0].kafka_streams_states(compute_task_lags=False).values()
    assert (client.host_info, client.rack_id) == (HostInfo("h", 1), "r")
    assert TaskId(0, 0) in client.previous_active_tasks


# Members by hand


def a_member(
    name: str,
    process: ProcessId,
    owned: Sequence[TopicPartition] = (),
    sums: Mapping[TaskId, int] | None = None,
    host: str | None = None,
    rack: str | None = None,
    generation: int = 1,
    error_code: int = 0,
    version: int = 11,
) -> StreamsMember:
    info = SubscriptionInfo(process, sums or {}, host, 0, error_code, {}, version)
    data = encode_subscription_info(info)
    return StreamsMember.of(name, Subscription((), data, tuple(owned), generation, rack))


def lead(
    members: Sequence[StreamsMember],
    assignor: Callable[[], TaskAssignor] = StickyTaskAssignor,
    topics: Mapping[str, int] | None = None,
    standbys: int = 0,
) -> StreamsRebalance:
    leader = StreamsLeader(assignor, AssignmentConfigs(num_standby_replicas=standbys), SHAPES)
    return leader.rebalance(members, TOPICS if topics is None else topics, {}, 1000)


def next_members(members: Sequence[StreamsMember], found: StreamsRebalance, generation: int) -> list[StreamsMember]:
    """The members as they report what they were given."""
    later = []
    for member in members:
        given = found.members.get(member.member_id)
        partitions = () if given is None else given.partitions
        sums = {}
        if given is not None:
            sums = {task: -2 for task in given.info.active_tasks if task.subtopology == 0}
            sums |= dict.fromkeys(given.info.standby_tasks, 0)
        later.append(a_member(member.member_id, member.info.process_id, partitions, sums, generation=generation))
    return later


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, unique=True), min_size=2, max_size=4)
)
def test_nothing_is_handed_over_in_the_round_in_which_it_is_revoked(story: list[list[tuple[int, int]]]) -> None:
    """Members come and go; what two own at a time is never given out, and the group comes to rest."""
    owned: dict[str, tuple[TopicPartition, ...]] = {}
    found: StreamsRebalance | None = None
    generation = 0
    for names in story:
        for _round in range(5):
            generation += 1
            fresh = [a_member(f"{p}-{t}", a_process_id(p + 1)) for p, t in sorted(names)]
            members = fresh if found is None else next_members(fresh, found, generation)
            owned = {member.member_id: member.subscription.owned_partitions for member in members}
            found = lead(members, standbys=1)
            handed = [partition for each in found.members.values() for partition in each.partitions]
            assert len(handed) == len(set(handed))
            for member, each in found.members.items():
                for partition in each.partitions:
                    assert all(partition not in owned[other] for other in owned if other != member)
            waits = [each.info.next_rebalance_ms for each in found.members.values()]
            assert bool(found.withheld) == (0 in waits)
            if not found.withheld:
                break
        assert found is not None
        assert not found.withheld
        assert len(handed) == 11


def test_state_that_waits_for_its_task_stays_open_as_a_standby() -> None:
    old, new = a_process_id(1), a_process_id(2)
    partitions = [TopicPartition(topic, number) for topic in ("clicks", "views") for number in range(4)]
    members = [
        a_member("a", old, partitions, dict.fromkeys((TaskId(0, n) for n in range(4)), -2)),
        a_member("b", new, (), dict.fromkeys((TaskId(0, n) for n in range(4)), 0)),
    ]
    tasks = [*(TaskId(0, n) for n in range(4)), *(TaskId(1, n) for n in range(3))]
    found = lead(members, lambda: Recorded({str(new): dict.fromkeys(tasks, True)}, None))
    assert found.withheld == set(tasks[:4])
    assert set(found.members["b"].info.standby_tasks) == set(tasks[:4])
    assert {found.topic for found in found.members["b"].partitions} == {"views2"}
    assert found.members["b"].info.next_rebalance_ms == 0
    assert found.members["a"].info.next_rebalance_ms == NO_REBALANCE


class TryAgain(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        raise TaskAssignmentException("not yet")


def test_asked_to_try_again_everybody_keeps_what_it_has() -> None:
    """The KIP's text; the JVM sends error code 3."""
    members = [a_member("a", a_process_id(1)), a_member("b", a_process_id(1)), a_member("c", a_process_id(2))]
    before = lead(members)
    later = next_members(members, before, 2)
    kept = lead(later, TryAgain)
    assert kept.kept_because == "not yet"
    for member, had in before.members.items():
        assert kept.members[member].partitions == had.partitions
        assert kept.members[member].info.active_tasks == had.info.active_tasks
        assert kept.members[member].info.err_code == 0
    assert [each.info.next_rebalance_ms for each in kept.members.values()].count(0) == 1


class Inexact(StickyTaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(super().assign(application_state).assignment, inexact={"A_GOAL"})


def test_goals_that_were_perhaps_not_reached_are_told() -> None:
    members = [a_member("a", a_process_id(1))]
    assert lead(members).inexact == frozenset()
    assert lead(members, Inexact).inexact == {"A_GOAL"}


class Nonsense(TaskAssignor):
    told: AssignmentError | None = None

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment([])

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        Nonsense.told = error


def test_a_wrong_answer_is_told_to_the_assignor_first() -> None:
    Nonsense.told = None
    with pytest.raises(AssignmentRejectedException):
        lead([a_member("a", a_process_id(1))], Nonsense)
    assert Nonsense.told is AssignmentError.MISSING_PROCESS_ID


def codes(found: StreamsRebalance) -> set[tuple[int, int, int]]:
    return {(m.info.err_code, len(m.partitions), m.info.version) for m in found.members.values()}


def test_errors_go_to_all_members() -> None:
    process = a_process_id(1)
    good = a_member("a", process)
    assert codes(lead([good, a_member("b", process, error_code=SHUTDOWN_REQUESTED)])) == {(SHUTDOWN_REQUESTED, 0, 11)}
    missing = lead([good], topics={"clicks": 4})
    assert codes(missing) == {(MISSING_SOURCE_TOPIC, 0, 11)}
    assert "views" in missing.error
    newer = StreamsMember.of("n", Subscription((), bytes.fromhex("0000000c0000000c")))
    old = a_member("o", process, version=2)
    assert codes(lead([old, newer])) == {(ASSIGNMENT_FAILED, 0, 11)}


def test_version_probing_gives_newer_members_an_older_version() -> None:
    newer = StreamsMember.of("n", Subscription((), bytes.fromhex("0000000c0000000d")))
    found = lead([a_member("a", a_process_id(1), version=7), newer])
    assert {(m.info.version, m.info.commonly_supported_version) for m in found.members.values()} == {(7, 11)}
    assert found.members["n"].partitions
    data = found.members["n"].to_assignment().user_data
    assert data is not None
    assert decode_assignment_info(data).version == 7
    assert followup_ms(found.members["n"].info, newer.info) == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_what_all_members_are_told_is_encoded_once(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [a_member(f"m{number}", a_process_id(number), host=f"h:{number}", version=version) for number in range(8)]
    found = lead(members)
    expected = {member: given.to_assignment() for member, given in found.members.items()}
    asked: list[AssignmentInfo] = []
    write = wire_streams._written_hosts

    def counted(info: AssignmentInfo) -> Any:
        asked.append(info)
        return write(info)

    monkeypatch.setattr(wire_streams, "_written_hosts", counted)
    assert found.to_assignments() == expected
    assert len(asked) == 1


def test_followups_of_members() -> None:
    member = a_member("a", a_process_id(1), host="h:1")
    given = lead([member]).members["a"].info
    assert followup_ms(given, member.info) == NO_REBALANCE
    assert followup_ms(attrs.evolve(given, next_rebalance_ms=77), member.info) == 77
    assert followup_ms(attrs.evolve(given, partitions_by_host={}), member.info) == 0
    assert followup_ms(attrs.evolve(given, version=10), member.info) == 0


def test_an_end_point_that_is_none_is_not_told_to_others() -> None:
    hosts = ["nonsense", "h:9999999999", f"{'h' * 65536}:1"]
    found = lead([a_member(host[:9], a_process_id(number), host=host) for number, host in enumerate(hosts)])
    assert all(not each.info.partitions_by_host for each in found.members.values())
    assert len(found.to_assignments()) == 3


@pytest.mark.parametrize(
    ("end_point", "host"),
    [("[::1]:8080", "::1"), ("::1:8080", "::1"), ("http://h:8080", "h"), ("[fe80::1%eth0]:8080", "fe80::1%eth0")],
)
def test_end_points_are_hosts_as_in_java(end_point: str, host: str) -> None:
    """What `HostInfo.buildFromEndpoint` of Kafka 4.3 makes of them: a client in Java looks for that among the hosts."""
    found = lead([a_member("a", a_process_id(1), host=end_point)]).members["a"].info
    assert list(found.partitions_by_host) == [HostInfo(host, 8080)]


def test_a_port_that_cannot_be_is_told_to_others_as_in_java() -> None:
    """Its client in Java did not find itself among the hosts, and asked for a rebalance at once, for ever."""
    members = [a_member(name, a_process_id(number), host=f"h:{number}") for name, number in (("a", 1), ("b", 99_999))]
    assert list(lead(members).members["b"].info.partitions_by_host) == [HostInfo("h", 1), HostInfo("h", 99_999)]


# Internal topics


def test_repartition_topics_get_the_partitions_of_what_is_written_to_them() -> None:
    shapes = [
        SubTopologyShape("0", ("a",), repartition_sinks=("r1",)),
        SubTopologyShape("1", (), {"s": "s-changelog"}, None, ("r1",), ("r2",)),
        SubTopologyShape("2", ("b",), {"t": None}, None, ("r2",)),
    ]
    plan = plan_topics(shapes, {"a": 4, "b": 2, "other": 9})
    assert plan.internal == {"r1": 4, "r2": 2, "s-changelog": 4}
    assert plan.create == plan.internal
    there = plan_topics(shapes, {"a": 4, "b": 2, "r1": 4, "s-changelog": 4})
    assert there.create == {"r2": 2}


def test_a_wrong_number_of_partitions_names_both() -> None:
    with pytest.raises(GroupException, match=r"'app-store-changelog' has 3 partitions, but needs 4"):
        plan_topics(SHAPES, {**TOPICS, "app-store-changelog": 3})
    with pytest.raises(GroupException, match=r"'clicks' has 4, 'views' has 5"):
        plan_topics(SHAPES, {**TOPICS, "views": 5})
    repartitioned = [
        SubTopologyShape("0", ("a",), repartition_sinks=("r",)),
        SubTopologyShape("1", (), repartition_sources=("r",)),
    ]
    # The only advice was to reset an application that was as it should be.
    with pytest.raises(GroupException, match=r"'r' has 10 partitions, but needs 4.*Or it has a number of its own"):
        plan_topics(repartitioned, {"a": 4, "r": 10})


def test_topics_that_cannot_be_known() -> None:
    circle = [SubTopologyShape("0", (), {}, None, ("r",), ("r",))]
    with pytest.raises(GroupException, match="repartition topics r cannot be known"):
        plan_topics(circle, {})
    with pytest.raises(MissingSourceTopicException) as caught:
        plan_topics(SHAPES, {"clicks": 4})
    assert caught.value.topics == ("views", "views2")


def test_a_task_whose_partition_two_consumers_claim_waits() -> None:
    claimed = [TopicPartition("clicks", 0), TopicPartition("views", 0)]
    members = [a_member("a", a_process_id(1), claimed), a_member("b", a_process_id(2), claimed)]
    found = lead(members)
    assert found.withheld == {TaskId(0, 0)}
    stale = [members[0], a_member("b", a_process_id(2), claimed, generation=0)]
    assert TaskId(0, 0) in lead(stale).members["a"].info.active_tasks


def test_what_is_made_for_each_client_is_in_proportion_to_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lags of all tasks were, and what a callback is told where there is none: minutes for thousands of clients."""
    tasks = make_tasks([SubTopologyShape("one", ("t",), {"s": "s-log"})], {"t": 60})
    lags: list[Mapping[TaskId, int]] = []

    def spread(*arguments: Any) -> Any:
        lags.append(arguments[-1])
        return spread_over_consumers(*arguments)

    monkeypatch.setattr("task_assignor.group.leader.spread_over_consumers", spread)
    monkeypatch.setattr(GroupLeader, "_subscription", lambda *_: pytest.fail("nobody listens"))
    clients = []
    for number in range(3):
        process, mine = ProcessId(uuid.UUID(int=number)), frozenset(list(tasks)[number::3])
        consumers = (GroupConsumer(str(number), mine),)
        clients.append(GroupClient(process, consumers, previous_active=mine, offset_sums={TaskId(0, number): 7}))
    for ends, behind in ((dict.fromkeys(tasks, 9), 2), (None, -3)):
        lags.clear()
        GroupLeader(StickyTaskAssignor, AssignmentConfigs(), tasks).rebalance(clients, ends, 0)
        assert lags == [
            {task: behind if task in client.offset_sums else -2 for task in client.previous_active}
            for client in clients
        ]
