"""Sticky and cooperative sticky: the JVM's answers, the optimum, the JVM's defects, nothing handed over too early."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignor,
    ConsumerMember,
    CooperativeStickyAssignor,
    GroupTopics,
    RebalanceProtocol,
    StickyAssignor,
)
from task_assignor.group.wire import StickyUserData, WireFormatException, decode_sticky_user_data
from task_assignor.sdk import Assignment, Subscription, TopicPartition
from tests.budget import examples
from tests.group.consumer_groups import (
    best,
    holders,
    member_of,
    members_of,
    owners,
    places,
    settled,
    sticky,
    topics_of,
    worth,
)
from tests.vectors import lines_of

STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
ASSIGNORS: dict[str, ConsumerAssignor] = {"sticky": STICKY, "cooperative_sticky": COOPERATIVE}
VECTORS = [vector for name in ASSIGNORS for vector in lines_of(f"consumer_level/{name}")]
Claims = dict[str, tuple[Mapping[str, Sequence[int]], int]]


def claims_of(vector: Mapping[str, Any]) -> Claims:
    """What the members say, read from the vector and not by the assignor."""
    found: Claims = {}
    for member in vector["members"]:
        if vector["kind"] == "cooperative_sticky":
            generation = -1 if member["generation"] is None else member["generation"]
            data = member.get("user_data")
            if generation < 0 and data and len(data) >= 8:
                generation = int.from_bytes(bytes.fromhex(data[:8]), "big", signed=True)
            found[member["id"]] = member["owned"], generation
            continue
        said = StickyUserData({})
        try:
            if member_of(member).user_data:
                said = decode_sticky_user_data(member_of(member).user_data or b"")
        except WireFormatException:
            pass
        found[member["id"]] = said.owned, -1 if said.generation is None else said.generation
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_recorded_groups(vector: dict[str, Any]) -> None:
    assignor, topics, members = ASSIGNORS[vector["kind"]], topics_of(vector), members_of(vector)
    first = assignor.assign(topics, members)
    if vector["exact"] and vector.get("path") == "equal" and "racks" not in vector:
        assert first == vector["assignment"]
    answer, count = (first, 1) if assignor is STICKY else settled(assignor, topics, members)
    assert count <= 2
    assert set(owners(answer)) == set(places(topics, members))
    assert all(topic in member.topics for member in members for topic in answer[member.member_id])
    held = holders(topics, members, claims_of(vector))
    squares, moved, _ = worth(topics, members, answer, held)
    if "optimum" in vector:
        assert {"sum_of_squares": squares, "moved": moved} == vector["optimum"]


@st.composite
def groups(draw: st.DrawFn, with_racks: bool) -> tuple[GroupTopics, list[ConsumerMember], Claims]:
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    counts = {name: draw(st.integers(0, 4)) for name in names}
    ids = ["m", "n", "o", "p"][: draw(st.integers(1, 4))]
    rack = st.sampled_from([None, "x", "y"]) if with_racks else st.none()
    copies = st.none() | st.sets(st.sampled_from(["x", "y", "z"]))
    racks = {name: [draw(copies) for _ in range(count)] for name, count in counts.items()} if with_racks else {}
    members = []
    claims: Claims = {}
    for member in ids:
        owned = draw(
            st.dictionaries(st.sampled_from([*names, "gone"]), st.sets(st.integers(0, 4)).map(sorted), max_size=3)
        )
        generation = draw(st.integers(-1, 2))
        wanted = draw(st.lists(st.sampled_from([*names, "gone"]), unique=True))
        members.append(attrs.evolve(sticky(member, wanted, owned, generation), rack_id=draw(rack)))
        claims[member] = owned, generation
    topics = GroupTopics(counts, racks)
    choices = 1
    for topic, _ in places(topics, members):
        choices *= sum(topic in member.topics for member in members)
    assume(choices <= 3000)
    return topics, members, claims


@settings(max_examples=examples(35), deadline=None)
@given(st.booleans().flatmap(groups))
def test_no_assignment_is_better_and_the_order_of_members_is_nothing(
    group: tuple[GroupTopics, list[ConsumerMember], Claims],
) -> None:
    topics, members, claims = group
    answer = STICKY.assign(topics, members)
    assert list(answer) == sorted(claims)
    held = holders(topics, members, claims)
    assert worth(topics, members, answer, held) == best(topics, members, held)
    assert STICKY.assign(topics, members[::-1]) == answer


@settings(max_examples=examples(35), deadline=None)
@given(st.booleans().flatmap(groups))
def test_cooperative_hands_nothing_over_in_the_round_of_revocation_and_ends_as_good(
    group: tuple[GroupTopics, list[ConsumerMember], Claims],
) -> None:
    topics, members, claims = group
    owning = [
        attrs.evolve(m, user_data=None, owned=claims[m.member_id][0], generation=claims[m.member_id][1])
        for m in members
    ]
    first = COOPERATIVE.assign(topics, owning)
    held = holders(topics, members, claims)
    for place, member in owners(first).items():
        claimants = [other for other in claims if place[1] in claims[other][0].get(place[0], ())]
        assert not claimants or held.get(place) == member
    answer, count = settled(COOPERATIVE, topics, owning)
    assert count <= 2
    found, optimum = worth(topics, members, answer, held), best(topics, members, held)
    assert found[:2] == optimum[:2]


# The JVM's defects: none of them here. (The sixth, of the Streams leader, is in test_streams_leader.py.)


def orders(members: Sequence[ConsumerMember]) -> list[list[ConsumerMember]]:
    return [list(members), list(members)[::-1]]


def test_defect_1_a_stale_claim_loses_to_a_newer_one_in_any_order() -> None:
    """The JVM compares the generation of the user data with that of the rival's subscription field, which old clients lack."""
    topics = GroupTopics({"t": 4})
    new, old = sticky("a", ["t"], {"t": [0, 1]}, 9), sticky("b", ["t"], {"t": [0, 1]}, 3)
    for members in orders([new, old]):
        assert STICKY.assign(topics, members) == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_defect_2_two_stale_claims_do_not_poison_the_newer_one() -> None:
    topics = GroupTopics({"t": 3})
    members = [sticky("a", ["t"], {"t": [2]}, 3), sticky("b", ["t"], {"t": [2]}, 3), sticky("c", ["t"], {"t": [2]}, 9)]
    for order in [members, members[::-1], [members[1], members[2], members[0]]]:
        assert STICKY.assign(topics, order)["c"] == {"t": [2]}


def test_defect_3_a_member_without_topics_gets_none() -> None:
    topics = GroupTopics({"t": 4})
    idle, reader = ConsumerMember("a", []), ConsumerMember("b", ["t"])
    for assignor in ASSIGNORS.values():
        for members in orders([idle, reader]):
            assert assignor.assign(topics, members) == {"a": {}, "b": {"t": [0, 1, 2, 3]}}


@pytest.mark.parametrize("generation", [None, -1, 7])
def test_defect_4_a_claim_of_what_does_not_exist_is_nothing(generation: int | None) -> None:
    topics = GroupTopics({"t": 4})
    members = [
        sticky("a", ["t"], {"t": [0, 1, 7, -1], "gone": [0]}, generation),
        sticky("b", ["t"], {"t": [2]}, generation),
    ]
    for order in orders(members):
        assert STICKY.assign(topics, order) == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


def test_defect_5_cooperative_with_racks_settles_in_two_rounds() -> None:
    chance = random.Random(5)
    topics = GroupTopics(
        {f"t{i}": 6 for i in range(4)}, {f"t{i}": [[f"r{chance.randrange(3)}"] for _ in range(6)] for i in range(4)}
    )
    for _ in range(20):
        members = [
            ConsumerMember(
                f"m{i}",
                chance.sample(sorted(topics.counts), chance.randrange(1, 5)),
                owned={f"t{chance.randrange(4)}": chance.sample(range(6), 3)},
                generation=1,
                rack_id=f"r{chance.randrange(3)}",
            )
            for i in range(5)
        ]
        assert settled(COOPERATIVE, topics, members)[1] <= 2


# What members tell each other.


def test_a_sticky_member_says_what_it_had_and_when() -> None:
    given_out = Assignment((TopicPartition("t", 3), TopicPartition("t", 1)))
    data = STICKY.user_data(given_out, 7)
    assert data is not None
    assert decode_sticky_user_data(data) == StickyUserData({"t": (3, 1)}, 7)
    assert STICKY.user_data(Assignment(), -1) is None


def test_a_cooperative_member_of_an_old_client_says_its_generation_in_the_user_data() -> None:
    assert COOPERATIVE.user_data(Assignment(), 7) == b"\0\0\0\7"
    assert RebalanceProtocol.COOPERATIVE in COOPERATIVE.protocols
    topics = GroupTopics({"t": 2})
    old = ConsumerMember("a", ["t"], b"\0\0\0\7", {"t": [0, 1]})
    stale = ConsumerMember("b", ["t"], None, {"t": [0]}, 5)
    assert COOPERATIVE.claim(old).generation == 7
    assert COOPERATIVE.assign(topics, [old, stale])["a"] == {"t": [0]}


def test_a_member_is_what_its_subscription_says() -> None:
    subscription = Subscription(("t",), b"x", (TopicPartition("t", 1), TopicPartition("t", 0)), 5, "r", "i")
    assert ConsumerMember.of("m", subscription) == ConsumerMember("m", ("t",), b"x", {"t": [1, 0]}, 5, "r", "i")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(GroupException, match="twice"):
        STICKY.assign(GroupTopics({"t": 1}), [ConsumerMember("m", ["t"]), ConsumerMember("m", ["t"])])
    with pytest.raises(GroupException, match="-1"):
        GroupTopics({"t": -1})
    with pytest.raises(GroupException, match="racks of 1"):
        GroupTopics({"t": 2}, {"t": [["r"]]})


def test_ten_thousand_unequal_and_one_joins() -> None:
    chance = random.Random(1)
    topics = GroupTopics({f"t{i:02}": 200 for i in range(50)})
    members = [ConsumerMember(f"m{i:03}", sorted(chance.sample(sorted(topics.counts), 25))) for i in range(101)]
    before = STICKY.assign(topics, members[:100])
    assert set(before.sizes().values()) == {100}
    joined = [sticky(m.member_id, m.topics, before[m.member_id], 1) for m in members[:100]] + members[100:]
    after = STICKY.assign(topics, joined)
    assert sorted(set(after.sizes().values())) == [99, 100]
    was, now = owners(before), owners(after)
    # The newcomer's 99, and no other.
    assert sum(was[place] != now[place] for place in was) == 99


def test_a_group_of_nothing() -> None:
    assert STICKY.assign(GroupTopics({}), []) == {}
    assert STICKY.assign(GroupTopics({"t": 3}), [ConsumerMember("m", ["u"])]) == {"m": {}}
