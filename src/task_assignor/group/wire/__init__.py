"""The wire formats of groups: bytes to values and back. Layouts are tables of fields and versions; nothing else reads bytes."""

from task_assignor.group.wire.consumer_protocol import (
    LATEST_CONSUMER_VERSION,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from task_assignor.group.wire.layout import WireFormatException
from task_assignor.group.wire.sticky import (
    CopartitionedUserData,
    StickyUserData,
    StreamJoinUserData,
    decode_copartitioned_user_data,
    decode_sticky_user_data,
    decode_stream_join_epoch,
    decode_stream_join_user_data,
    encode_copartitioned_user_data,
    encode_sticky_user_data,
    encode_stream_join_epoch,
    encode_stream_join_user_data,
)
from task_assignor.group.wire.streams import (
    LATEST_STREAMS_VERSION,
    NO_REBALANCE,
    AssignmentInfo,
    SubscriptionInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)

__all__ = [
    "LATEST_CONSUMER_VERSION",
    "LATEST_STREAMS_VERSION",
    "NO_REBALANCE",
    "AssignmentInfo",
    "CopartitionedUserData",
    "StickyUserData",
    "StreamJoinUserData",
    "SubscriptionInfo",
    "WireFormatException",
    "decode_assignment",
    "decode_assignment_info",
    "decode_copartitioned_user_data",
    "decode_sticky_user_data",
    "decode_stream_join_epoch",
    "decode_stream_join_user_data",
    "decode_subscription",
    "decode_subscription_info",
    "encode_assignment",
    "encode_assignment_info",
    "encode_copartitioned_user_data",
    "encode_sticky_user_data",
    "encode_stream_join_epoch",
    "encode_stream_join_user_data",
    "encode_subscription",
    "encode_subscription_info",
]
