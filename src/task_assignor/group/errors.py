"""The errors of the group: an assignment that cannot be used, or members that do not fit together."""

from __future__ import annotations

from task_assignor.sdk import AssignmentError, StreamsException
from task_assignor.sdk.text import shown


class GroupException(StreamsException, ValueError):
    """Members, topics or sub-topologies do not fit together."""


def check_text(what: str, value: object) -> None:
    """Raise GroupException if a value is no string."""
    if not isinstance(value, str):
        raise GroupException(f"{what} ({shown(value)}) must be a string.")


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
