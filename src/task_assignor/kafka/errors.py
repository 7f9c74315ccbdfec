"""The errors of the room `kafka`."""

from __future__ import annotations

from task_assignor.sdk import StreamsException


class KafkaClusterException(StreamsException):
    """A cluster cannot be reached, does not answer in time, refuses, or lacks what was asked for."""


class UnknownGroupException(KafkaClusterException, LookupError):
    """The cluster has no group of that name."""


class GroupStateException(StreamsException, ValueError):
    """No state can be made of what a group's members say, for example because its topology is not known, or it cannot be led."""
