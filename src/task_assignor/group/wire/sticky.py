"""User data of sticky members: what they owned, with the generation of it (KIP-54, KIP-341), and KIP-315's.

Source: KIP-341, Public Interfaces; `StickyAssignor`; KIP-315, Assignment Strategy 2a and 7 (the bytes are those of its example code).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from task_assignor.group.wire.consumer_protocol import TOPIC_PARTITIONS, merged
from task_assignor.group.wire.layout import INT32, Field, Layout, Many, Source, WireFormatException, items_of, value_of

STICKY: Final = Layout(
    "StickyAssignorUserData",
    [Field("previous_assignment", Many(TOPIC_PARTITIONS)), Field("generation", INT32, first=1)],
)
STREAM_JOIN: Final = Layout("StreamJoinUserData", [Field("partitions", Many(INT32)), Field("epoch", INT32)])
COPARTITIONED: Final = Layout(
    "CopartitionedUserData",
    [
        Field("generation", INT32),
        Field("active", Many(TOPIC_PARTITIONS)),
        Field("standby", Many(TOPIC_PARTITIONS)),
    ],
)


@attrs.frozen
class StickyUserData:
    """What a sticky member says that it owned.

    Args:
        owned: topic -> partition numbers.
        generation: generation in which it got them; None: version 0, which has none.
    """

    owned: Mapping[str, Sequence[int]]
    generation: int | None = None


def encode_sticky_user_data(data: StickyUserData) -> bytes:
    """Version 1, or 0 if there is no generation; topics and partitions in the given order.

    Raises:
        WireFormatException: a value does not fit.
    """
    version = 0 if value_of("sticky user data", StickyUserData, data).generation is None else 1
    return STICKY.write((items_of("owned of a StickyUserData", str, data.owned), data.generation), version)


def decode_sticky_user_data(data: bytes) -> StickyUserData:
    """Version 1 if the bytes allow it, else 0, as KIP-341 (Compatibility) has it.

    Raises:
        WireFormatException: the bytes are neither.
    """
    try:
        owned, generation = STICKY.read(Source(data), 1)
    except WireFormatException:
        owned, generation = STICKY.read(Source(data), 0)
    return StickyUserData(merged(owned), generation)


def encode_generation(generation: int) -> bytes:
    """User data of cooperative sticky members.

    Raises:
        WireFormatException: it does not fit.
    """
    return INT32.write(generation, 0)


def decode_generation(data: bytes) -> int:
    """The generation in the user data of a cooperative sticky member.

    Raises:
        WireFormatException: the bytes are of another kind.
    """
    return INT32.read(Source(data), 0)


@attrs.frozen
class StreamJoinUserData:
    """What a member of a stream join says that it owned (KIP-315).

    Args:
        partitions: partition numbers, the same for every topic.
        epoch: epoch of the rebalance in which it got them.
    """

    partitions: tuple[int, ...] = ()
    epoch: int = 0


def encode_stream_join_user_data(data: StreamJoinUserData) -> bytes:
    """The bytes for the subscription.

    Raises:
        WireFormatException: a value does not fit.
    """
    value_of("user data of a stream join", StreamJoinUserData, data)
    return STREAM_JOIN.write((data.partitions, data.epoch), 0)


def decode_stream_join_user_data(data: bytes | None) -> StreamJoinUserData:
    """What the subscription says; nothing: a first join.

    Raises:
        WireFormatException: the bytes are of another kind.
    """
    source = _beginning(data)
    if source is None:
        return StreamJoinUserData()
    partitions, epoch = STREAM_JOIN.read(source, 0)
    return StreamJoinUserData(tuple(partitions), epoch)


def encode_stream_join_epoch(epoch: int) -> bytes:
    """The user data of an assignment: the epoch.

    Raises:
        WireFormatException: it does not fit.
    """
    return INT32.write(epoch, 0)


def decode_stream_join_epoch(data: bytes | None) -> int:
    """The epoch of an assignment; 0 if it says none.

    Raises:
        WireFormatException: the bytes are of another kind.
    """
    source = _beginning(data)
    return 0 if source is None else INT32.read(source, 0)


@attrs.frozen
class CopartitionedUserData:
    """What a member of a co-partitioned group holds, or is to hold: a format of our own, in both directions.

    Args:
        active: topic -> partition numbers that it processes.
        standby: topic -> partition numbers of which it keeps copies.
        generation: generation in which it got them; -1: none.
    """

    active: Mapping[str, Sequence[int]] = attrs.field(factory=dict)
    standby: Mapping[str, Sequence[int]] = attrs.field(factory=dict)
    generation: int = -1


def encode_copartitioned_user_data(data: CopartitionedUserData) -> bytes:
    """The bytes, topics and partitions in the given order.

    Raises:
        WireFormatException: a value does not fit.
    """
    value_of("co-partitioned user data", CopartitionedUserData, data)
    active, standby = (
        items_of(f"{name} of a CopartitionedUserData", str, getattr(data, name)) for name in ("active", "standby")
    )
    return COPARTITIONED.write((data.generation, active, standby), 0)


def decode_copartitioned_user_data(data: bytes | None) -> CopartitionedUserData:
    """What a member holds; nothing: a first join.

    Raises:
        WireFormatException: the bytes are of another kind.
    """
    source = _beginning(data)
    if source is None:
        return CopartitionedUserData()
    generation, active, standby = COPARTITIONED.read(source, 0)
    return CopartitionedUserData(merged(active), merged(standby), generation)


def _beginning(data: bytes | None) -> Source | None:
    """The bytes, if there are any."""
    source = None if data is None else Source(data)
    return source if source is not None and source.left else None
