"""Groups of the recorded runs as members and topics, and what an assignment is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from task_assignor.group.consumers import ConsumerAssignment, ConsumerAssignor, ConsumerMember, GroupTopics
from task_assignor.group.wire import StickyUserData, encode_sticky_user_data

Place = tuple[str, int]
Answer = Mapping[str, Mapping[str, Sequence[int]]]


def topics_of(vector: Mapping[str, Any]) -> GroupTopics:
    """The topics of a recorded run."""
    return GroupTopics(vector["topics"], vector.get("racks", {}))


def members_of(vector: Mapping[str, Any]) -> list[ConsumerMember]:
    """The members of a recorded run."""
    return [member_of(found) for found in vector["members"]]


def member_of(found: Mapping[str, Any]) -> ConsumerMember:
    """A member of a recorded run, with its claims as user data."""
    data = None
    if found.get("user_data") is not None:
        data = bytes.fromhex(found["user_data"])
    elif found.get("claims"):
        claims = found["claims"]
        generation = claims.get("generation")
        generation = -1 if generation is None else generation
        data = encode_sticky_user_data(StickyUserData(claims["owned"], generation if claims["version"] else None))
    generation = found.get("generation")
    return ConsumerMember(
        found["id"],
        found["topics"],
        data,
        found.get("owned") or {},
        -1 if generation is None else generation,
        found.get("rack"),
        found.get("instance"),
    )


def sticky(
    member: str, topics: Iterable[str], owned: Mapping[str, Sequence[int]], generation: int | None
) -> ConsumerMember:
    """A member of an eager group that says what it had."""
    return ConsumerMember(member, topics, encode_sticky_user_data(StickyUserData(owned, generation)))


def places(topics: GroupTopics, members: Sequence[ConsumerMember]) -> list[Place]:
    """The partitions that somebody subscribes to."""
    wanted = {topic for member in members for topic in member.topics}
    return [(topic, number) for topic in sorted(wanted) for number in range(topics.counts.get(topic, 0))]


def owners(answer: Answer) -> dict[Place, str]:
    """Whose each partition is; every one is somebody's once at most."""
    found: dict[Place, str] = {}
    for member, owned in answer.items():
        for topic, numbers in owned.items():
            assert list(numbers) == sorted(set(numbers))
            for number in numbers:
                assert (topic, number) not in found
                found[topic, number] = member
    return found


def holders(
    topics: GroupTopics,
    members: Sequence[ConsumerMember],
    claims: Mapping[str, tuple[Mapping[str, Sequence[int]], int]],
) -> dict[Place, str]:
    """Whose each partition was: the one claim of the newest generation, if its member still subscribes to the topic."""
    found = {}
    for place in places(topics, members):
        said = [(claims[m.member_id][1], m) for m in members if place[1] in claims[m.member_id][0].get(place[0], ())]
        newest = [member for generation, member in said if generation == max(said, key=lambda one: one[0])[0]]
        if len(newest) == 1 and place[0] in newest[0].topics:
            found[place] = newest[0].member_id
    return found


def worth(
    topics: GroupTopics, members: Sequence[ConsumerMember], answer: Answer, held: Mapping[Place, str]
) -> tuple[int, int, int]:
    """(sum of squares of the sizes, moves, partitions away from their racks): less is better, in this order."""
    racks = {member.member_id: member.rack_id for member in members}
    now = owners(answer)
    misses = 0
    for (topic, number), member in now.items():
        known = topics.racks[topic][number] if topic in topics.racks else None
        mine = racks[member]
        misses += mine is not None and known is not None and mine not in known
    squares = sum(sum(map(len, owned.values())) ** 2 for owned in answer.values())
    return squares, sum(now[place] != member for place, member in held.items()), misses


def best(topics: GroupTopics, members: Sequence[ConsumerMember], held: Mapping[Place, str]) -> tuple[int, int, int]:
    """The least worth of all assignments, by trying all of them."""
    wanted = places(topics, members)
    choices = [[member.member_id for member in members if topic in member.topics] for topic, _ in wanted]
    found = []
    for chosen in product(*choices):
        answer: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in members}
        for (topic, number), member in zip(wanted, chosen, strict=True):
            answer[member].setdefault(topic, []).append(number)
        found.append(worth(topics, members, answer, held))
    return min(found)


def settled(
    assignor: ConsumerAssignor, topics: GroupTopics, members: Sequence[ConsumerMember]
) -> tuple[ConsumerAssignment, int]:
    """The answer after which nothing changes, and how many rebalances it takes; members own what they are given."""
    answer = assignor.assign(topics, members)
    for count in range(1, 9):
        owning = [attrs.evolve(m, owned=answer[m.member_id], generation=1000 + count) for m in members]
        later = assignor.assign(topics, owning)
        if later == answer:
            return answer, count
        answer = later
    raise AssertionError("The group does not settle.")
