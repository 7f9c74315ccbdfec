"""A group as columns: partitions, members, who subscribes to what, who claims what, which claim counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat

import attrs
import numpy as np

from task_assignor.group.consumers.values import ConsumerAssignment, ConsumerMember, GroupTopics, Owned, sorted_members
from task_assignor.group.errors import GroupException
from task_assignor.sdk.checks import check_fields
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.sdk.ids import java_string_key
from task_assignor.sdk.text import shown

NOBODY = -1


@attrs.frozen
class Claim:
    """What a member says that it had.

    Args:
        owned: topic -> partitions.
        generation: when it got them; -1: not known, older than all.
    """

    owned: Owned = attrs.field(factory=dict)
    generation: int = -1

    def __attrs_post_init__(self) -> None:
        check_fields(self, GroupException, owned=Mapping, generation=int)


@attrs.frozen(eq=False)
class GroupTable:
    """The partitions of all topics that somebody subscribes to, in the order (topic, partition), and the members by id.

    Args:
        members: (M,) the members.
        topics: (T,) the topics that exist, have partitions, and are subscribed to; sorted.
        starts: (T + 1,) where the partitions of each topic start.
        crowd_of_topic: (T,) topics with the same subscribers are of one crowd.
        crowds: for each crowd its subscribers, ascending.
    """

    members: Sequence[ConsumerMember]
    topics: Sequence[str]
    starts: Int64Array
    crowd_of_topic: Int64Array
    crowds: Sequence[Int64Array]

    @classmethod
    def of(cls, topics: GroupTopics, members: Iterable[ConsumerMember]) -> GroupTable:
        """The table of a group.

        Raises:
            GroupException: not topics, not a list of members, or a member id is there twice.
        """
        if not isinstance(topics, GroupTopics):
            raise GroupException(
                f"The topics ({shown(topics)}) must be GroupTopics. Maybe use GroupTopics({{topic: number of partitions}})."
            )
        found = sorted_members(members)
        wanted = set(chain.from_iterable({member.topics for member in found}))
        names = sorted((topic for topic in wanted if topics.counts.get(topic)), key=java_string_key)
        number = {topic: position for position, topic in enumerate(names)}
        # Members of a group mostly subscribe to the same topics.
        kinds: dict[tuple[str, ...], int] = {}
        kind = np.array([kinds.setdefault(member.topics, len(kinds)) for member in found], dtype=np.int64)
        wants = np.zeros((len(names), len(kinds)), dtype=np.bool_)
        for subscribed, position in kinds.items():
            wants[[number[topic] for topic in subscribed if topic in number], position] = True
        crowd_of_topic, crowds = _crowds(wants, kind)
        starts = np.concatenate([[0], np.cumsum([topics.counts[topic] for topic in names], dtype=np.int64)])
        return cls(found, names, starts.astype(np.int64), crowd_of_topic, crowds)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def topic_of(self) -> Int64Array:
        """(P,) topic of each partition."""
        return np.repeat(np.arange(len(self.topics)), np.diff(self.starts))

    @property
    def partitions(self) -> Int64Array:
        """(P,) number of each partition in its topic."""
        found: Int64Array = np.arange(len(self)) - np.repeat(self.starts[:-1], np.diff(self.starts))
        return found

    def answer(self, owner: Int64Array) -> ConsumerAssignment:
        """The assignment in which each partition has this owner."""
        return ConsumerAssignment(
            [member.member_id for member in self.members], self.topics, self.partitions, self.topic_of, owner
        )

    def claims(self, claim: Callable[[ConsumerMember], Claim]) -> Claims:
        """Who claims what. The newest generation of a partition counts, if only one member has it."""
        said = [claim(member) for member in self.members]
        number = {topic: position for position, topic in enumerate(self.topics)}
        topic, lengths, numbers, by = [], [], [], []
        for position, each in enumerate(said):
            known = np.fromiter(map(number.get, each.owned, repeat(NOBODY)), np.int64, len(each.owned))
            sizes = np.fromiter(map(len, each.owned.values()), np.int64, len(each.owned))
            topic.append(known)
            lengths.append(sizes)
            numbers.append(np.fromiter(chain.from_iterable(each.owned.values()), np.int64, int(sizes.sum())))
            by.append(np.full(int(sizes.sum()), position, dtype=np.int64))
        nothing = np.zeros(0, dtype=np.int64)
        topics = np.repeat(np.concatenate([nothing, *topic]), np.concatenate([nothing, *lengths]))
        partitions, members = np.concatenate([nothing, *numbers]), np.concatenate([nothing, *by])
        # A topic may be gone, a partition may never have been.
        ends = np.append(np.diff(self.starts), 0)
        real = (topics >= 0) & (partitions >= 0) & (partitions < ends[topics])
        places = self.starts[topics[real]] + partitions[real]
        generations = np.array([each.generation for each in said], dtype=np.int64)
        return Claims.of(len(self), places, members[real], generations)

    def subscribed(self, owner: Int64Array) -> BoolArray:
        """(P,) whether the owner subscribes to the partition; False where nobody owns it."""
        reads = np.zeros((len(self.crowds), len(self.members) + 1), dtype=np.bool_)
        for crowd, members in enumerate(self.crowds):
            reads[crowd, members] = True
        found: BoolArray = reads[np.repeat(self.crowd_of_topic, np.diff(self.starts)), owner]
        return found


@attrs.frozen(eq=False)
class Claims:
    """Whose partitions were whose.

    Args:
        holder: (P,) the one member whose claim is of the newest generation; -1: nobody's, or that of several.
        touched: (P,) some member says that it has the partition.
    """

    holder: Int64Array
    touched: BoolArray

    @classmethod
    def of(cls, count: int, places: Int64Array, members: Int64Array, generations: Int64Array) -> Claims:
        """What comes of (place, member) pairs, where each member has one generation."""
        holder = np.full(count, NOBODY, dtype=np.int64)
        touched = np.zeros(count, dtype=np.bool_)
        touched[places] = True
        simple = np.bincount(places, minlength=count) == 1
        single = simple[places]
        holder[places[single]] = members[single]
        places, members = places[~single], members[~single]
        if len(places):
            # Newest first; within a generation every member once.
            order = np.lexsort((members, -generations[members], places))
            places, members = places[order], members[order]
            again = np.concatenate([[False], (places[1:] == places[:-1]) & (members[1:] == members[:-1])])
            places, members = places[~again], members[~again]
            firsts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
            seconds = np.minimum(firsts + 1, len(places) - 1)
            disputed = (
                (seconds > firsts)
                & (places[seconds] == places[firsts])
                & (generations[members[seconds]] == generations[members[firsts]])
            )
            holder[places[firsts]] = np.where(disputed, NOBODY, members[firsts])
        return cls(holder, touched)


def _crowds(wants: BoolArray, kind: Int64Array) -> tuple[Int64Array, list[Int64Array]]:
    """Crowd of each topic, and the members of each crowd, from (topic, kind of subscription) and the members' kinds."""
    if not len(wants):
        return np.zeros(0, dtype=np.int64), []
    packed = np.packbits(wants, axis=1)
    _, first, crowd = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return crowd.reshape(-1).astype(np.int64), [np.flatnonzero(wants[topic][kind]) for topic in first]
