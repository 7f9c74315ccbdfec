"""Consumer-level sticky assignors on the sizes at which Kafka's and kafka-python's were measured: fresh, one leaves, one joins."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs

from benchmarks.case import Case, Facts, Goal, JvmPeer, Work
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerAssignor,
    ConsumerMember,
    CooperativeStickyAssignor,
    GroupTopics,
    StickyAssignor,
)
from task_assignor.group.wire import StickyUserData, encode_sticky_user_data

Size = tuple[int, int, int]
"""Topics, partitions of each, members."""

EQUAL: Size = (100, 500, 100)
SMALLER: Size = (100, 200, 40)
"""So many that kafka-python's sticky assignor comes to its end in seconds when one leaves."""
LARGE: Size = (1000, 1000, 2000)
UNEQUAL: Size = (50, 200, 100)
STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
GROWTH = (1, 10, 100, 1000)


def cases(is_quick: bool = False) -> list[Case]:
    """Equal subscriptions, a million partitions, unequal subscriptions; beside the JVM, and kafka-python on the first."""
    equal, large, unequal = ((4, 5, 4), (10, 10, 20), (5, 10, 6)) if is_quick else (EQUAL, LARGE, UNEQUAL)
    smaller = (4, 5, 4) if is_quick else SMALLER
    peer = "consumers/20000x40 equal one leaves, kafka-python"
    found = [
        _case(
            "consumers/20000x40 equal one leaves", STICKY, smaller, "one leaves", Goal(times_faster=300), against=peer
        ),
        Case(peer, partial(_kafka_python, smaller, "one leaves"), needs=("kafka",), limit_s=300),
    ]
    for what in ("fresh", "one leaves"):
        recorded = f"consumer-sticky-50000x100-{what.replace(' ', '-')}"
        peer = f"consumers/50000x100 equal {what}, kafka-python"
        goal = Goal(seconds=0.1, times_faster=300)
        name = f"consumers/50000x100 equal {what}"
        found.append(_case(name, STICKY, equal, what, goal, against=peer))
        found.append(_case(f"{name}, cooperative", COOPERATIVE, equal, what, Goal(seconds=0.1), recorded=recorded))
        found.append(Case(peer, partial(_kafka_python, equal, what), needs=("kafka",), limit_s=300))
    found += [
        _case("consumers/1000000x2000 equal fresh", STICKY, large, "fresh", Goal(seconds=1)),
        _case("consumers/1000000x2000 equal one leaves", STICKY, large, "one leaves", Goal(seconds=2)),
        _case(
            "consumers/1000000x2000 equal one leaves, cooperative", COOPERATIVE, large, "one leaves", Goal(seconds=2)
        ),
        _case("consumers/10000x100 unequal fresh", STICKY, unequal, "fresh", None, halves=True),
        _case("consumers/10000x100 unequal one joins", STICKY, unequal, "one joins", Goal(seconds=0.6), halves=True),
    ]
    for factor in GROWTH[:2] if is_quick else GROWTH:
        size = (factor * 10, 100, max(factor * 2, 2))
        case = _case(
            f"growth/consumers, one leaves {factor * 1000}", COOPERATIVE, size, "one leaves", Goal(exponent=1.1)
        )
        found.append(attrs.evolve(case, series="growth/consumers, one leaves", size=factor * 1000))
    return found


def _case(
    name: str,
    assignor: ConsumerAssignor,
    size: Size,
    what: str,
    goal: Goal | None,
    *,
    against: str | None = None,
    recorded: str | None = None,
    halves: bool = False,
) -> Case:
    def prepare() -> Work:
        topics, members = group(assignor, size, what, halves)
        return lambda: (topics, members, assignor.assign(topics, members))

    jvm = JvmPeer(lambda: question(assignor, *group(assignor, size, what, halves)), _beside)
    return Case(name, prepare, partial(_facts, assignor), goal, jvm=jvm, against=against, recorded=recorded)


def _facts(assignor: ConsumerAssignor, result: tuple[GroupTopics, list[ConsumerMember], ConsumerAssignment]) -> Facts:
    from task_assignor.group.consumers import measure

    metrics = measure(assignor, *result)
    return {
        "sizes": f"{metrics.min}-{metrics.max}",
        "moves": metrics.moved,
        "withheld": metrics.withheld,
        "decisions": decisions(result[2]),
    }


def decisions(assignment: ConsumerAssignment) -> str:
    """A short text that is equal for equal assignments; the harness makes the same."""
    digest = hashlib.sha256()
    for member in sorted(assignment):
        given = assignment[member]
        lines = sorted(f"{member} {topic} {number}\n" for topic, numbers in given.items() for number in numbers)
        digest.update("".join(lines).encode())
    return digest.hexdigest()[:16]


def question(assignor: ConsumerAssignor, topics: GroupTopics, members: Sequence[ConsumerMember]) -> str:
    """The same for the Java harness."""
    kinds: dict[tuple[str, ...], int] = {}
    asked = []
    for member in members:
        claim = assignor.claim(member)
        asked.append(
            {
                "id": member.member_id,
                "subscription": kinds.setdefault(member.topics, len(kinds)),
                "userData": None if member.user_data is None else base64.b64encode(member.user_data).decode(),
                "owned": {topic: list(numbers) for topic, numbers in claim.owned.items()},
                "generation": member.generation,
            }
        )
    whole = {
        "assignor": assignor.name,
        "topics": dict(topics.counts),
        "subscriptions": list(kinds),
        "members": asked,
    }
    return json.dumps(whole, separators=(",", ":"))


def _beside(facts: Facts, answer: Mapping[str, Any]) -> str:
    ours = f"sizes {facts['sizes']}, moves {facts['moves']}"
    if answer["decisions"] == facts["decisions"]:
        return f"same decisions: {ours}"
    return f"{ours}; JVM: sizes {answer['min']}-{answer['max']}, moves {answer['moves']}"


def group(assignor: ConsumerAssignor, size: Size, what: str, halves: bool) -> tuple[GroupTopics, list[ConsumerMember]]:
    """The topics and members of one rebalance; what members had comes of a fresh assignment."""
    topics = GroupTopics({f"t{number:04}": size[1] for number in range(size[0])})
    names = tuple(topics.counts)
    chance = random.Random(size[0])
    wanted = [tuple(sorted(chance.sample(names, len(names) // 2))) if halves else names for _ in range(size[2] + 1)]
    members = [ConsumerMember(f"m{number:05}", wanted[number]) for number in range(size[2])]
    if what == "fresh":
        return topics, members
    before = assignor.assign(topics, members)
    had = [_having(assignor, member, before[member.member_id]) for member in members]
    if what == "one leaves":
        return topics, had[1:]
    return topics, [*had, ConsumerMember(f"m{size[2]:05}", wanted[size[2]])]


def _having(assignor: ConsumerAssignor, member: ConsumerMember, owned: dict[str, list[int]]) -> ConsumerMember:
    if assignor is COOPERATIVE:
        return attrs.evolve(member, owned=owned, generation=1)
    return attrs.evolve(member, user_data=encode_sticky_user_data(StickyUserData(owned, 1)))


def _kafka_python(size: Size, what: str) -> Work:
    """The same for kafka-python's sticky assignor: its own members, its own user data."""
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    partitions = {f"t{number:04}": set(range(size[1])) for number in range(size[0])}
    cluster = SimpleNamespace(topics=lambda: set(partitions), partitions_for_topic=partitions.get)
    assignors = {f"m{number:05}": StickyPartitionAssignor() for number in range(size[2])}

    def members(names: Iterable[str]) -> list[Any]:
        return [
            SimpleNamespace(member_id=name, group_instance_id=None, metadata=assignors[name].metadata(set(partitions)))
            for name in names
        ]

    if what == "fresh":
        found = members(assignors)
    else:
        # A fair share each, as a fresh assignment gives; the real one takes half a minute.
        topics = GroupTopics({topic: len(numbers) for topic, numbers in partitions.items()})
        before = STICKY.assign(topics, [ConsumerMember(name, tuple(partitions)) for name in assignors])
        for name, assignor in assignors.items():
            given = [_tuple_of(topic, number) for topic, numbers in before[name].items() for number in numbers]
            assignor.on_assignment(SimpleNamespace(partitions=lambda given=given: given), 1)
        found = members(list(assignors)[1:])
    return lambda: StickyPartitionAssignor().assign(cluster, found)


def _tuple_of(topic: str, number: int) -> Any:
    from kafka.structs import TopicPartition

    make: Callable[[str, int], Any] = TopicPartition
    return make(topic, number)
