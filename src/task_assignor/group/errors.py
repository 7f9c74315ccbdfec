"""The errors of the group: an assignment that cannot be used, or members that do not fit together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from task_assignor.sdk import Assignment, AssignmentError, StreamsException
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.text import shown

Kind = TypeVar("Kind")


class GroupException(StreamsException, ValueError):
    """Members, topics or sub-topologies do not fit together."""


def check_text(what: str, value: object) -> None:
    """Raise GroupException if a value is no string."""
    if not isinstance(value, str):
        raise GroupException(f"{what} ({shown(value)}) must be a string.")


def check_assignment(assignment: object) -> None:
    """Raise GroupException if this is not what a member was given."""
    if not isinstance(assignment, Assignment):
        raise GroupException(
            f"The assignment of a member ({shown(assignment)}) must be an Assignment. Maybe answer.to_assignment(member_id)."
        )


def check_kind(what: str, kind: type, value: object) -> None:
    """Raise GroupException if a value is of another kind."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise GroupException(f"The {what} ({shown(value)}) must be {article} {kind.__name__}.")


def list_of(what: str, kind: type[Kind], values: Iterable[Kind]) -> tuple[Kind, ...]:
    """The values as a tuple.

    Raises:
        GroupException: not a list, or one is of another kind.
    """
    found: tuple[Any, ...] = tuple(values) if isinstance(values, Iterable) else (None,)
    # Of a million values the types are looked at in milliseconds.
    if not set(map(type, found)) <= {kind} and not all(isinstance(one, kind) for one in found):
        raise GroupException(f"The {what} ({shown(values)}) must be a list of {kind.__name__}.")
    return found


def check_mapping(what: str, values: object, advice: str) -> None:
    """Raise GroupException if this is no mapping; `advice` says from what to what it must be."""
    if not isinstance(values, Mapping):
        raise GroupException(f"The {what} ({shown(values)}) must be a mapping from {advice}.")


def check_racks(topic: str, racks: object) -> None:
    """Raise GroupException if this does not say of each partition of the topic which racks hold a replica."""
    # A text would be taken for its letters.
    if not isinstance(racks, Collection) or isinstance(racks, str) or str in set(map(type, racks)):
        raise GroupException(
            f"The racks of the topic {shown(topic)} ({shown(racks)}) must be a list that has, for each partition, several strings, "
            "or None."
        )


def check_makes_assignors(factory: object) -> None:
    """Raise GroupException if this makes no assignors when it is called: an assignor itself, for instance."""
    if not callable(factory):
        raise GroupException(
            f"The assignor_factory ({shown(factory)}) must make an assignor when it is called. Maybe the class of one, or "
            "StreamsConfig(...).task_assignor."
        )


def texts(whose: str, topics: Iterable[str]) -> tuple[str, ...]:
    """The topics of `whose` as a tuple.

    Raises:
        GroupException: they are no strings, or one text, which would be taken for its letters.
    """
    if isinstance(topics, str):
        raise GroupException(
            f"The topics of {whose} ({shown(topics)}) must be several strings. Maybe ({shown(topics)},)."
        )
    if not isinstance(topics, Iterable):
        raise GroupException(f"The topics of {whose} ({shown(topics)}) must be several strings.")
    names = tuple(topics)
    # Of a million names the types are looked at in milliseconds.
    if not set(map(type, names)) <= {str}:
        for name in names:
            check_text(f"Each topic of {whose}", name)
    return names


def count_of(topic: str, count: object) -> int:
    """The number of partitions of a topic as an int; those of numpy are ints, too.

    Raises:
        GroupException: it is none, or negative.
    """
    number = plain_int(count)
    if type(number) is not int or number < 0:
        raise GroupException(
            f"The number of partitions of the topic {topic!r} ({shown(count)}) must be an int, at least 0."
        )
    return number


class AssignmentRejectedException(StreamsException):
    """The assignor's answer is wrong or the assignor failed; the group stops.

    KIP-924, Assignment Validation: after a wrong answer a StreamsException follows.

    Args:
        message: what is wrong, every violation named.
        error: Kafka's word for it; NONE where Kafka would have let it pass.
    """

    def __init__(self, message: str, error: AssignmentError = AssignmentError.NONE) -> None:
        super().__init__(message, error)
        self.error = error

    def __str__(self) -> str:
        return str(self.args[0])
