"""Consumer-level assignors inside kafka-python's consumers: `KafkaConsumer(partition_assignment_strategy=[...])`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    ConsumerAssignment,
    ConsumerAssignor,
    ConsumerMember,
    GroupTopics,
    RebalanceProtocol,
)
from task_assignor.group.consumers.table import Claim
from task_assignor.group.consumers.values import Owned
from task_assignor.group.limits import GivenUpError, Limited
from task_assignor.group.wire.consumer_protocol import by_topic
from task_assignor.kafka.fallback import keep_and_place_orphans
from task_assignor.kafka.plugin import GroupPlugin
from task_assignor.sdk import Assignment, ConfigException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, shown

_log = logger_of(__name__)
T = TypeVar("T")
_FALLBACK_SHARE: Final = 1 / 4
"""Of the limit: what an assignor that has failed may take for all that it is asked then. With it the session still lasts."""


class ConsumerAssignorPlugin(GroupPlugin):
    """A consumer-level assignor as kafka-python takes it; every consumer needs an instance of its own.

    When the assignor of the leader raises, answers nonsense or is too slow, the group keeps what it has, partitions that
    nobody has go to the least loaded subscribers, and the leader asks for another rebalance a minute later.

    Args:
        assignor: a `ConsumerAssignor`, built-in or of your own.
        rack_id: the rack of this consumer, if partitions near to it are to be preferred (KIP-881).
        limit_ms: how long the assignor may think; a third of `session.timeout.ms` is right. It runs in a thread, which
            is given up then: code that holds Python's lock that long cannot be.

    Raises:
        ConfigException: the assignor is none, its name or its protocols are no such, or something else is not allowed.

    Examples:
        >>> from task_assignor.group.consumers import CooperativeStickyAssignor
        >>> plugin = ConsumerAssignorPlugin(CooperativeStickyAssignor())
        >>> consumer = KafkaConsumer(partition_assignment_strategy=[plugin], group_id="g")  # doctest: +SKIP
        >>> plugin.attach(consumer)  # doctest: +SKIP
        >>> consumer.subscribe(["clicks"])  # doctest: +SKIP
    """

    def __init__(self, assignor: ConsumerAssignor, *, rack_id: str | None = None, limit_ms: int = 15_000) -> None:
        super().__init__(rack_id, limit_ms)
        if not isinstance(assignor, ConsumerAssignor):
            raise ConfigException(
                f"The assignor ({shown(assignor)}) must be a ConsumerAssignor, made as in StickyAssignor()."
            )
        name, protocols = getattr(assignor, "name", None), assignor.protocols
        if not (isinstance(name, str) and name):
            raise ConfigException(
                f"The name of the assignor ({shown(name)}) must be a string: the members of a group agree on it. Maybe write "
                f'name = "..." in the class {type(assignor).__name__}.'
            )
        if not (
            isinstance(protocols, tuple) and protocols and all(isinstance(one, RebalanceProtocol) for one in protocols)
        ):
            raise ConfigException(
                f"The protocols of the assignor {name!r} ({shown(protocols)}) must be a tuple of RebalanceProtocol. Maybe "
                "(RebalanceProtocol.COOPERATIVE,)."
            )
        self.assignor = assignor

    @property
    def name(self) -> str:
        """The assignor's."""
        return self.assignor.name

    @property
    def is_cooperative(self) -> bool:
        """Whether that is the protocol that the assignor prefers."""
        return self.assignor.protocols[0] is RebalanceProtocol.COOPERATIVE

    def _user_data(self) -> bytes | None:
        told: object = self.assignor.user_data(self._given, self.generation)
        if not (told is None or isinstance(told, bytes)):
            raise GroupException(
                f"The user_data() of the assignor {self.name!r} must be bytes or None, but is {shown(told)}."
            )
        return told

    def _decide(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        answer = self.assignor.assign(*_copies(topics, members))
        check_answer(topics, members, answer, lambda given: self.assignor.left_out(*_copies(topics, members), given))
        return {member.member_id: answer.to_assignment(member.member_id) for member in members}

    def _fall_back(self, topics: GroupTopics, members: list[ConsumerMember]) -> dict[str, Assignment]:
        by_s = time.monotonic() + self._limit_s * _FALLBACK_SHARE
        known = [(member, self._claim(member, by_s)) for member in members]
        assignor, copies = self.assignor, _copies(topics, members)

        def left_out(given: Mapping[str, Owned]) -> dict[str, set[int]]:
            said = self._asked(
                lambda: {topic: set(numbers) for topic, numbers in assignor.left_out(*copies, given).items()},
                "What nobody shall have is not known: left_out()",
                by_s,
            )
            return said or {}

        kept = keep_and_place_orphans(topics, known, is_join=bool(assignor.is_join), left_out=left_out)
        given = {name: dict(by_topic(partitions)) for name, partitions in kept.items()}
        told = self._asked(
            lambda: check_user_data(members, assignor.kept_user_data(*copies, given)),
            "The members are told nothing: kept_user_data()",
            by_s,
        )
        if time.monotonic() >= by_s:
            _log.warning(
                "The assignor %r had %.3g s for all that it is asked after it has failed; what it had not said by then counts as nothing.",
                self.name,
                self._limit_s * _FALLBACK_SHARE,
            )
        return {name: Assignment(tuple(partitions), (told or {}).get(name)) for name, partitions in kept.items()}

    def _claim(self, member: ConsumerMember, by_s: float) -> Claim:
        if self.is_cooperative:
            return Claim(member.owned, member.generation)
        claim: object = self._asked(
            lambda: self.assignor.claim(member), f"What {member.member_id} had is not known: claim()", by_s
        )
        return claim if isinstance(claim, Claim) else Claim()

    def _asked(self, ask: Callable[[], T], otherwise: str, by_s: float) -> T | None:
        """What the assignor says after it failed; None if it fails again, or has not said it by a time of the monotonic clock."""
        left_s = by_s - time.monotonic()
        if left_s <= 0:
            return None
        try:
            return Limited(ask, f"assignor-{self.name}").answer(left_s)
        except KeyboardInterrupt:
            raise
        except GivenUpError as error:
            _log.warning("%s %s", otherwise, error)
        except BaseException as error:  # noqa: BLE001  (it is the assignor's, and may be why that failed)
            _log.warning("%s failed with %s", otherwise, failure(error))
        return None


def _copies(topics: GroupTopics, members: Sequence[ConsumerMember]) -> tuple[GroupTopics, list[ConsumerMember]]:
    """Whatever an assignor does with what it is given, the group is what it was: it is asked of, and falls back on it."""
    return GroupTopics(topics.counts, {topic: list(racks) for topic, racks in topics.racks.items()}), [
        attrs.evolve(member, owned={topic: [*found] for topic, found in member.owned.items()}) for member in members
    ]


def check_answer(
    topics: GroupTopics,
    members: Sequence[ConsumerMember],
    answer: Any,
    left_out: Callable[[ConsumerAssignment], Mapping[str, Collection[int]]],
) -> None:
    """Refuse an answer that would hurt the group.

    Args:
        topics: the topics that were given out.
        members: the group.
        answer: what the assignor returned.
        left_out: asks it what shall be nobody's.

    Raises:
        GroupException: it is no ConsumerAssignment, which gives no partition twice; a member is missing or unknown, a partition
            goes to nobody though no member has to give it up first, does not exist, or goes to a member that does not subscribe
            to its topic; or user data are no bytes, or for no member.
    """
    if not isinstance(answer, ConsumerAssignment):
        raise GroupException(f"The answer must be a ConsumerAssignment, but is of the type {type(answer).__name__}.")
    subscribed = {member.member_id: set(member.topics) for member in members}
    if answer.keys() != subscribed.keys():
        strange = sorted(answer.keys() ^ subscribed.keys())
        raise GroupException(f"The answer must have exactly the members of the group; different: {strange}.")
    for name, parts in answer.items():
        for topic, partitions in parts.items():
            if topic not in subscribed[name]:
                raise GroupException(f"The answer gives {name} the topic {topic!r}, to which it does not subscribe.")
            for partition in partitions:
                if partition >= topics.counts.get(topic, 0):
                    raise GroupException(f"The answer gives {name} {topic}-{partition}, which does not exist.")
    placed: dict[str, set[int]] = defaultdict(set)
    for given in (*answer.values(), *(member.owned for member in members)):
        for topic, numbers in given.items():
            placed[topic].update(numbers)
    nobodys = left_out(answer)
    for topic in sorted({topic for names in subscribed.values() for topic in names}):
        missing = set(range(topics.counts.get(topic, 0))).difference(placed[topic], nobodys.get(topic, ()))
        if missing:
            raise GroupException(
                f"The answer gives {topic}-{min(missing)} to nobody, though members subscribe to its topic."
            )
    check_user_data(members, answer.user_data)


def check_user_data(members: Sequence[ConsumerMember], told: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """What members are told.

    Raises:
        GroupException: it is no bytes, or for no member.
    """
    names = {member.member_id for member in members}
    for name, data in told.items():
        if name not in names:
            raise GroupException(f"The answer has user data for {name}, which is no member of the group.")
        if not isinstance(data, bytes | None):
            raise GroupException(
                f"The user data that the answer has for {name} must be bytes, not {type(data).__name__}."
            )
    return told
