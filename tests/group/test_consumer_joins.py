"""Range, round robin, KIP-315's and Faust's assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerMember,
    CopartitionedAssignor,
    GroupTopics,
    RangeAssignor,
    RoundRobinAssignor,
    StickyStreamJoinAssignor,
    classic,
    split_numbers,
)
from task_assignor.group.consumers.classic import seat_order
from task_assignor.group.wire import (
    CopartitionedUserData,
    decode_copartitioned_user_data,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
    encode_copartitioned_user_data,
)
from task_assignor.sdk import Assignment
from task_assignor.sdk.columns import Int64Array
from tests.budget import examples
from tests.group.consumer_groups import members_of, owners, topics_of
from tests.vectors import lines_of

JOIN = StickyStreamJoinAssignor()
CASES = {case["id"]: case for case in lines_of("kip315/cases.jsonl")}


@pytest.mark.parametrize("vector", lines_of("consumer_level/range"), ids=lambda vector: vector["id"])
def test_range_is_the_jvms(vector: dict[str, Any]) -> None:
    assert RangeAssignor().assign(topics_of(vector), members_of(vector)[::-1]) == vector["assignment"]


@pytest.mark.parametrize("vector", lines_of("consumer_level/roundrobin"), ids=lambda vector: vector["id"])
def test_round_robin_is_the_jvms(vector: dict[str, Any]) -> None:
    assert RoundRobinAssignor().assign(topics_of(vector), members_of(vector)[::-1]) == vector["assignment"]


class _Rack(str):
    """A rack that knows how often it was looked for."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        _Rack.looks += 1
        return super().__hash__()


@pytest.mark.parametrize("topics", [["t"], ["t", "u"]])
def test_range_by_racks_takes_no_time_for_each_pair_of_a_member_and_a_partition(topics: list[str]) -> None:
    """Of 20 000 partitions and 1 000 members it took half a minute, in which the group waited for its leader."""
    counts = dict.fromkeys(topics, 1_000)
    racks: dict[str, list[list[str]]] = {topic: [[f"r{number % 3}"] for number in range(1_000)] for topic in topics}
    members = [ConsumerMember(f"m{number:03}", tuple(topics), rack_id=_Rack(f"r{number % 3}")) for number in range(100)]
    _Rack.looks = 0
    answer = RangeAssignor().assign(GroupTopics(counts, racks), members)
    assert _Rack.looks < 20 * len(members)
    homes = {n % 3 for member in answer["m001"].values() for n in member}
    assert (homes, {len(owned) for held in answer.values() for owned in held.values()}) == ({1}, {10})


def test_range_sorts_members_once_for_all_topics_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 000 topics and 1 000 members it took six seconds, where round robin takes a seventh of one."""
    sorted_ones: list[int] = []

    def counted(members: Sequence[ConsumerMember]) -> Int64Array:
        sorted_ones.append(len(members))
        return seat_order(members)

    monkeypatch.setattr(classic, "seat_order", counted)
    topics = GroupTopics({f"t{number:02}": 3 for number in range(40)})
    answer = RangeAssignor().assign(topics, [ConsumerMember(f"m{number}", tuple(topics.counts)) for number in range(9)])
    assert sorted_ones == [9]
    assert answer.sizes() == {f"m{number}": 40 if number < 3 else 0 for number in range(9)}


# KIP-315


@pytest.mark.parametrize("case", [case for case in CASES.values() if "members" in case], ids=lambda case: case["id"])
def test_kip_315(case: dict[str, Any]) -> None:
    topics, members = topics_of(case), members_of(case)
    answer = JOIN.assign(topics, members)
    assert answer == JOIN.assign(topics, members[::-1])
    numbers = {member: sorted({n for owned in answer[member].values() for n in owned}) for member in answer}
    for expected in case["expected"].values():
        if "partitions" in expected:
            assert numbers == expected["partitions"]
        if "by_topic" in expected:
            assert answer == expected["by_topic"]
        assert {decode_stream_join_epoch(answer.user_data[member]) for member in answer} == {expected["epoch"]}
        for topic, left in expected.get("unassigned", {}).items():
            given_out = {place for place in owners(answer) if place[0] == topic}
            assert given_out == {(topic, n) for n in range(topics.counts[topic]) if n not in left}
        for topic in expected.get("never_assigned_topics", ()):
            assert all(topic not in answer[member] for member in answer)
        if expected.get("all_assigned"):
            assert sorted(n for owned in numbers.values() for n in owned) == list(range(min(topics.counts.values())))
        if expected.get("co_partitioned"):
            assert split_numbers(answer) == {}
        if "counts_sorted" in expected:
            assert sorted(map(len, numbers.values()), reverse=True) == expected["counts_sorted"]
        for member, kept in expected.get("keeps", {}).items():
            assert set(kept) <= set(numbers[member])
        for member, allowed in expected.get("subset", {}).items():
            assert set(numbers[member]) <= set(allowed)
        if "moves" in expected:
            assert moves(case, numbers) == expected["moves"]
    assert list(answer) == sorted(member.member_id for member in members)


def moves(case: Mapping[str, Any], numbers: Mapping[str, Sequence[int]]) -> int:
    count = min(case["topics"].values())
    claims: dict[int, list[tuple[int, str]]] = {}
    for member in case["members"]:
        for number in member.get("previous", ()):
            if number < count:
                claims.setdefault(number, []).append((member["epoch"], member["id"]))
    return sum(number not in numbers[max(said)[1]] for number, said in claims.items())


@pytest.mark.parametrize("case", ["16a", "16b", "16c"])
def test_kip_315_tables(case: str) -> None:
    expected = CASES[case]["expected"]["exact"]["co_located"]
    assert (split_numbers(CASES[case]["validate"]) == {}) == expected


def test_stream_join_members_remember() -> None:
    assert JOIN.user_data(Assignment(), -1) is None
    answer = JOIN.assign(
        GroupTopics({"i": 4, "c": 4}), [ConsumerMember("a", ["i", "c"]), ConsumerMember("b", ["i", "c"])]
    )
    data = JOIN.user_data(answer.to_assignment("a"), 17)
    assert decode_stream_join_user_data(data) == attrs.evolve(
        decode_stream_join_user_data(None), partitions=(0, 2), epoch=1
    )


def test_an_epoch_that_cannot_grow_does_not_kill_the_leader() -> None:
    data = b"\0\0\0\1\0\0\0\0\x7f\xff\xff\xff"
    answer = JOIN.assign(GroupTopics({"i": 2}), [ConsumerMember("a", ["i"], data)])
    assert decode_stream_join_epoch(answer.user_data["a"]) == 2**31 - 1


def test_a_member_without_any_of_the_topics_keeps_no_number_from_being_read() -> None:
    members = [ConsumerMember("a", []), ConsumerMember("b", ["i"]), ConsumerMember("c", ["gone"])]
    assert JOIN.assign(GroupTopics({"i": 2}), members) == {"a": {}, "b": {"i": [0, 1]}, "c": {}}


# Faust's


@attrs.frozen
class Step:
    """An answer, read."""

    answer: ConsumerAssignment
    active: Mapping[str, Mapping[str, Sequence[int]]]
    standby: Mapping[str, Mapping[str, Sequence[int]]]


def rebalance(
    assignor: CopartitionedAssignor,
    topics: GroupTopics,
    subscriptions: Mapping[str, Sequence[str]],
    before: ConsumerAssignment | None = None,
    generation: int = 1,
) -> Step:
    """One rebalance, in which the members say what they were given before."""
    members = []
    for member, names in subscriptions.items():
        data = None
        if before is not None and member in before.members:
            data = assignor.user_data(before.to_assignment(member), generation)
        members.append(ConsumerMember(member, tuple(names), data))
    answer = assignor.assign(topics, members)
    assert answer == assignor.assign(topics, members[::-1])
    told = {member: decode_copartitioned_user_data(answer.user_data[member]) for member in answer}
    assert {member: {t: list(n) for t, n in told[member].active.items()} for member in told} == dict(answer.items())
    return Step(answer, dict(answer.items()), {member: told[member].standby for member in told})


def check(step: Step, topics: GroupTopics, members: Sequence[str], standbys: int) -> None:
    """All is placed, together, evenly, copies apart."""
    assert set(owners(step.active)) == {(t, n) for t, count in topics.counts.items() for n in range(count)}
    for topic, count in topics.counts.items():
        for twin in topics.counts:
            if topics.counts[twin] == count:
                for part in (step.active, step.standby):
                    assert all(sorted(part[m].get(topic, ())) == sorted(part[m].get(twin, ())) for m in members)
        active = [len(step.active[member].get(topic, ())) for member in members]
        assert max(active) - min(active) <= 1
        copies = min(standbys, len(members) - 1)
        for number in range(count):
            owner = owners(step.active)[topic, number]
            holders = [member for member in members if number in step.standby[member].get(topic, ())]
            assert len(holders) == copies
            assert owner not in holders
        standby = [len(step.standby[member].get(topic, ())) for member in members]
        assert max(standby) - min(standby) <= 1


def test_standbys_of_a_members_numbers_are_spread_whoever_has_state_of_them() -> None:
    """Those of a: 0, of which nobody has state, and 3, of which b has."""
    said = {"a": ([0, 3], []), "b": ([1], [3]), "c": ([2], [1])}
    members = [
        ConsumerMember(name, ("t",), encode_copartitioned_user_data(CopartitionedUserData({"t": own}, {"t": copies})))
        for name, (own, copies) in said.items()
    ]
    answer = CopartitionedAssignor().assign(GroupTopics({"t": 4}), members)
    standby = {name: decode_copartitioned_user_data(answer.user_data[name]).standby["t"] for name in answer}
    assert dict(answer.items()) == {"a": {"t": [0, 3]}, "b": {"t": [1]}, "c": {"t": [2]}}
    assert {name: [*numbers] for name, numbers in standby.items()} == {"a": [2], "b": [3], "c": [0, 1]}


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 6), st.integers(0, 3), st.data())
def test_copartitioned_through_leaves_and_joins(
    first: int, second: int, count: int, standbys: int, data: st.DataObject
) -> None:
    assignor = CopartitionedAssignor(standbys)
    topics = GroupTopics({"a": first, "b": first, "c": second})
    members = [f"m{i}" for i in range(count)]
    step = rebalance(assignor, topics, dict.fromkeys(members, "abc"))
    check(step, topics, members, standbys)
    # Nothing changes: nothing moves, nobody is told anything else.
    again = rebalance(assignor, topics, dict.fromkeys(members, "abc"), step.answer)
    assert again == step
    later = sorted(set(data.draw(st.lists(st.sampled_from([*members, "new", "newer"]), min_size=1))))
    after = rebalance(assignor, topics, dict.fromkeys(later, "abc"), step.answer)
    check(after, topics, later, standbys)
    was, now = owners(step.active), owners(after.active)
    for topic in ("a", "c"):
        size = topics.counts[topic]
        # No assignment that is even within the topics' group moves fewer.
        kept = sorted((len(step.active[m].get(topic, ())) if m in members else 0 for m in later), reverse=True)
        least, more = divmod(size, len(later))
        most = sum(min(have, least + (position < more)) for position, have in enumerate(kept))
        moved = sum(now[place] != was[place] for place in was if place[0] == topic and was[place] in later)
        if topics.counts["a"] != topics.counts["c"] and (not topics.counts["a"] or not topics.counts["c"]):
            assert moved == sum(kept) - most


def test_a_standby_is_promoted_and_those_of_one_member_are_spread() -> None:
    assignor = CopartitionedAssignor(1)
    topics = GroupTopics({"a": 24, "b": 24})
    members = [f"m{i}" for i in range(5)]
    step = rebalance(assignor, topics, dict.fromkeys(members, "ab"))
    orphans = step.active["m0"]["a"]
    waiting = {number: member for member in members for number in step.standby[member]["a"]}
    shares = [sum(waiting[number] == member for number in orphans) for member in members[1:]]
    assert max(shares) - min(shares) <= 1
    after = rebalance(assignor, topics, dict.fromkeys(members[1:], "ab"), step.answer)
    promoted = [number for number in orphans if number in after.active[waiting[number]]["a"]]
    # 24 numbers on four members: who had five has room for one, who had four for two.
    rooms = [6 - len(step.active[member]["a"]) for member in members[1:]]
    assert len(promoted) == sum(map(min, shares, rooms)) >= 4


def test_a_newcomer_gets_its_share_with_standbys_too() -> None:
    topics = GroupTopics({"a": 4})
    step = rebalance(CopartitionedAssignor(1), topics, {"x": "a", "y": "a"})
    after = rebalance(CopartitionedAssignor(1), topics, {"x": "a", "y": "a", "z": "a"}, step.answer)
    assert len(after.active["z"]["a"]) == 1
    assert len(after.standby["z"]["a"]) >= 1


def test_members_that_lack_a_topic_of_a_group_wait() -> None:
    """W1 reads a, W2 reads a and b: a number of both can be together on W2 alone."""
    step = rebalance(CopartitionedAssignor(0), GroupTopics({"a": 4, "b": 4}), {"w1": "a", "w2": "ab"})
    assert step.active == {"w1": {}, "w2": {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}}


def test_where_nobody_reads_a_whole_group_its_topics_are_apart() -> None:
    step = rebalance(CopartitionedAssignor(0), GroupTopics({"a": 2, "b": 2, "c": 2}), {"w1": "ab", "w2": "bc"})
    assert set(owners(step.active)) == {(topic, number) for topic in "abc" for number in range(2)}


def test_a_stale_claim_and_a_partition_that_is_gone() -> None:
    assignor = CopartitionedAssignor(0)
    topics = GroupTopics({"a": 4})
    old = rebalance(assignor, topics, {"x": "a"})
    new = rebalance(assignor, topics, {"x": "a", "y": "a"}, old.answer)
    members = [
        ConsumerMember("x", ["a"], assignor.user_data(old.answer.to_assignment("x"), 1)),
        ConsumerMember("y", ["a"], assignor.user_data(new.answer.to_assignment("y"), 2)),
    ]
    assert assignor.assign(topics, members)["y"] == new.active["y"]
    assert set(owners(assignor.assign(GroupTopics({"a": 2}), members))) == {("a", 0), ("a", 1)}
    broken = [attrs.evolve(member, user_data=b"{}") for member in members]
    assert sorted(assignor.assign(topics, broken).sizes().values()) == [2, 2]


@pytest.mark.parametrize("standbys", [-1, 1.0, True])
def test_the_number_of_standbys_is_a_whole_number(standbys: Any) -> None:
    with pytest.raises(GroupException, match="standbys"):
        CopartitionedAssignor(standbys)
