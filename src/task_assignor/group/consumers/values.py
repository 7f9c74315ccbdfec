"""What a consumer-level assignor sees and answers: the topics, the members of a group, who gets which partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.group.errors import GroupException, check_mapping, check_racks, check_text, count_of, list_of, texts
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.sdk import Assignment, Subscription, TopicPartition
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.columns import Int64Array, int64_column
from task_assignor.sdk.ids import java_string_key
from task_assignor.sdk.integers import INT32_MAX, INT32_MIN, is_whole
from task_assignor.sdk.text import listed, shown

Owned = Mapping[str, Sequence[int]]
# More than any cluster has, and what a machine of today can place.
MOST_PARTITIONS = 50_000_000


# Without type variables: mypy's attrs plug-in cannot solve those.
def _names(topics: Iterable[str]) -> tuple[str, ...]:
    return texts("a member", topics)


def _counts(counts: Mapping[str, int]) -> Mapping[str, int]:
    if not isinstance(counts, Mapping):
        raise GroupException(f"The topics ({shown(counts)}) must be a mapping from names to numbers of partitions.")
    for topic in counts:
        check_text("The name of a topic", topic)
    return {topic: count_of(topic, count) for topic, count in counts.items()}


@attrs.frozen
class GroupTopics:
    """What the leader knows of the topics.

    Args:
        counts: topic -> number of partitions.
        racks: topic -> racks that hold a replica, partition by partition; None, or a topic that is missing: not known.

    Raises:
        GroupException: a name is no string, a number of partitions is negative or none, all of them are more than 50 million, or the racks are
            not those of all partitions.
    """

    counts: Mapping[str, int] = attrs.field(converter=_counts)
    racks: Mapping[str, Sequence[Iterable[str] | None]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        total = sum(self.counts.values())
        if total > MOST_PARTITIONS:
            raise GroupException(f"The topics have {total} partitions; at most {MOST_PARTITIONS} can be placed.")
        check_mapping("racks", self.racks, "topics to the racks of each partition")
        for topic, racks in self.racks.items():
            check_racks(topic, racks)
            if len(racks) != self.counts.get(topic, -1):
                raise GroupException(
                    f"The topic {topic!r} has {self.counts.get(topic, 0)} partitions, but racks of {len(racks)} are given."
                )


@attrs.frozen
class ConsumerMember:
    """A member of the group: its subscription, as it is on the wire.

    Args:
        member_id: its id in the group.
        topics: topics it subscribes to.
        user_data: what its own assignor added, or None.
        owned: topic -> partitions that it owns, of cooperative members.
        generation: generation of `owned`; -1: not said.
        rack_id: its rack, if known.
        group_instance_id: its static member id, or None.

    Raises:
        GroupException: the id, a topic, the rack or the instance is no string, or `topics` is one; the user data are no bytes;
            `owned` is no mapping from topics to ints, or the generation no int; or one of them has more than 32 bits, as none has on
            the wire.
    """

    member_id: str
    topics: tuple[str, ...] = attrs.field(converter=_names)
    user_data: bytes | None = None
    owned: Owned = attrs.field(factory=dict)
    generation: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None

    def __attrs_post_init__(self) -> None:
        check_text("The id of a member", self.member_id)
        if not (self.user_data is None or isinstance(self.user_data, bytes)):
            raise GroupException(
                f"The user data of the member {self.member_id!r} ({shown(self.user_data)}) must be bytes, or None."
            )
        check_owned(self.member_id, self.owned)
        if not (is_whole(self.generation) and INT32_MIN <= self.generation <= INT32_MAX):
            raise GroupException(
                f"The generation of the member {self.member_id!r} ({shown(self.generation)}) must be an int of 32 bits; -1: not said."
            )
        for what, value in (("rack_id", self.rack_id), ("group_instance_id", self.group_instance_id)):
            if value is not None:
                check_text(f"The {what} of the member {self.member_id!r}", value)

    @classmethod
    def of(cls, member_id: str, subscription: Subscription) -> ConsumerMember:
        """The member that sent a subscription.

        Raises:
            GroupException: that is no subscription, or the member has no id.
        """
        check_kind("subscription", subscription, Subscription, GroupException)
        return cls(
            member_id,
            subscription.topics,
            subscription.user_data,
            dict(by_topic(subscription.owned_partitions)),
            subscription.generation_id,
            subscription.rack_id,
            subscription.group_instance_id,
        )


def check_owned(member: str, owned: object) -> None:
    """Raise GroupException if this is not what a member may own: "01" would be the partitions 0 and 1, and 1.5 would be 1."""
    what = f"partitions that the member {member!r} owns"
    check_mapping(what, owned, "topics to partition numbers")
    assert isinstance(owned, Mapping)
    for topic, numbers in owned.items():
        check_text(f"A topic of the {what}", topic)
        is_list = isinstance(numbers, Collection) and not isinstance(numbers, str | bytes)
        # Of a million numbers the types are looked at in milliseconds.
        is_right = is_list and (set(map(type, numbers)) <= {int} or all(map(is_whole, numbers)))
        if not is_right or not INT32_MIN <= min(numbers, default=0) <= max(numbers, default=0) <= INT32_MAX:
            raise GroupException(
                f"The {what} of the topic {topic!r} ({shown(numbers)}) must be a list of ints of 32 bits."
            )


@attrs.frozen(eq=False)
class ConsumerAssignment(Mapping[str, Mapping[str, list[int]]]):
    """Who gets what: member id -> topic -> partition numbers, ascending; every member of the group is there.

    Kept as columns; a member's part is made when it is asked for.

    Args:
        members: (M,) member ids, sorted.
        topics: (T,) topics, sorted.
        partitions: (P,) partitions that are given out: first of the first topic, then of the next, of each ascending.
        topic_of: (P,) their topics, as positions in `topics`.
        owner: (P,) their members, as positions in `members`; -1: nobody this time.
        user_data: member id -> what its assignor shall be told beside.

    Raises:
        GroupException: columns of different lengths, or a topic or member that is not there; or partitions are in another order,
            so that one could be there twice.
    """

    members: Sequence[str]
    topics: Sequence[str]
    partitions: Int64Array = attrs.field(converter=int64_column, repr=False)
    topic_of: Int64Array = attrs.field(converter=int64_column, repr=False)
    owner: Int64Array = attrs.field(converter=int64_column, repr=False)
    user_data: Mapping[str, bytes] = attrs.field(factory=dict, repr=False)
    _order: npt.NDArray[np.intp] = attrs.field(init=False, repr=False)
    _starts: Int64Array = attrs.field(init=False, repr=False)
    _positions: Mapping[str, int] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._check()
        order = np.argsort(self.owner, kind="stable")
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_starts", np.searchsorted(self.owner[order], np.arange(len(self.members) + 1)))
        positions = {member: number for number, member in enumerate(self.members)}
        object.__setattr__(self, "_positions", MappingProxyType(positions))

    def _check(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in ("partitions", "topic_of", "owner")}
        if len(set(lengths.values())) > 1:
            raise GroupException(f"The columns of a ConsumerAssignment must be of one length, but are {lengths}.")
        for name, least, what in (("topic_of", 0, self.topics), ("owner", -1, self.members)):
            column = getattr(self, name)
            if len(column) and not least <= column.min() <= column.max() < len(what):
                raise GroupException(
                    f"The column {name} of a ConsumerAssignment must hold numbers from {least} to {len(what) - 1}, but holds "
                    f"{column.min()} to {column.max()}."
                )
        topics, numbers = np.diff(self.topic_of), np.diff(self.partitions)
        wrong = np.flatnonzero((topics < 0) | ((topics == 0) & (numbers <= 0))) + 1
        if len(wrong):
            row = int(wrong[0])
            name = f"{self.topics[self.topic_of[row]]}-{self.partitions[row]}"
            raise GroupException(
                f"The partitions of a ConsumerAssignment must be in the order of topics, then numbers, each once; {name} (row {row}) "
                "comes too late."
            )
        if len(set(self.members)) < len(self.members) or len(set(self.topics)) < len(self.topics):
            raise GroupException("The members and the topics of a ConsumerAssignment must be there once each.")

    def __getitem__(self, member: str) -> dict[str, list[int]]:
        mine = self._of(member)
        topics = self.topic_of[mine]
        cuts = np.flatnonzero(np.diff(topics, prepend=-1)).tolist()
        numbers = self.partitions[mine].tolist()
        names = [self.topics[topic] for topic in topics[cuts].tolist()]
        ends = [*cuts, len(numbers)][1:]
        return {name: numbers[start:end] for name, start, end in zip(names, cuts, ends, strict=True)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.items()) == {member: dict(topics) for member, topics in other.items()}

    def __hash__(self) -> int:
        return hash(tuple(self.members))

    def sizes(self) -> dict[str, int]:
        """Member id -> number of its partitions."""
        return dict(zip(self.members, np.diff(self._starts).tolist(), strict=True))

    def to_assignment(self, member: str) -> Assignment:
        """What a member is sent.

        Raises:
            GroupException: it is not in the group.
        """
        if not isinstance(member, str) or member not in self._positions:
            raise GroupException(
                f"The member {shown(member)} is not in the group; there are {listed(map(str, self.members))}."
            )
        mine = self._of(member)
        pairs = zip(self.topic_of[mine].tolist(), self.partitions[mine].tolist(), strict=True)
        return Assignment(
            tuple([TopicPartition(self.topics[topic], number) for topic, number in pairs]), self.user_data.get(member)
        )

    def _of(self, member: str) -> npt.NDArray[np.intp]:
        position = self._positions[member]
        return self._order[self._starts[position] : self._starts[position + 1]]


def sorted_members(members: Iterable[ConsumerMember]) -> list[ConsumerMember]:
    """The members by id, as Java orders strings.

    Raises:
        GroupException: not a list of members, or an id is there twice.
    """
    found = sorted(list_of("members", ConsumerMember, members), key=lambda member: java_string_key(member.member_id))
    for first, second in pairwise(found):
        if first.member_id == second.member_id:
            raise GroupException(f"The member id {first.member_id!r} is in the group twice.")
    return found
