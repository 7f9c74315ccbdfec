"""The errors of the package: one family, so that a program can catch `StreamsException` and print its message.

What is not an error lives elsewhere: `AssignmentError` (an answer of the validation) is in `assignor.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import attrs

from task_assignor.sdk.hidden import HIDDEN, visible, without_secrets
from task_assignor.sdk.text import shown


class StreamsException(Exception):
    """Base of every error that this package raises on purpose.

    Source: KIP-924, Assignment Validation, where it is thrown after a wrong assignment.
    """


class TaskAssignmentException(StreamsException):
    """An assignor may raise it to keep the assignment unchanged and to have the rebalance retried at once.

    Source: KIP-924, User APIs, `TaskAssignor.assign`. The hosts of this package do what the KIP says; Kafka 4.3 itself
    sends an error to all members instead.
    """


@attrs.frozen
class ConfigProblem:
    """One thing that is wrong with a setting; its text is a sentence that says what to do.

    Args:
        key: the setting.
        value: what it was given; `HIDDEN` if the setting is a secret, which no error shows.
        expected: what it must be, as the end of the sentence "The setting ... must be".
        advice: what to do, in whole sentences; may be empty.
        where: file and line it comes from, for example `app.properties:7`; empty if it was not read from a file.
    """

    key: str
    value: object
    expected: str
    advice: str = ""
    where: str = ""

    def __attrs_post_init__(self) -> None:
        if isinstance(self.key, str) and visible(self.key, self.value) is HIDDEN:
            for name in ("expected", "advice"):
                object.__setattr__(self, name, without_secrets(getattr(self, name), {self.key: self.value}))
            object.__setattr__(self, "value", HIDDEN)

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}The setting {self.key} ({shown(self.value)}) must be {self.expected}.{advice}"


class ConfigException(StreamsException, ValueError):
    """A setting, or an argument that stands for one, has a value that is not allowed.

    Attributes:
        problems: what is wrong, setting by setting; empty if it is not about settings.
    """

    def __init__(self, message: str, problems: Iterable[ConfigProblem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)

    @classmethod
    def of(cls, problems: Iterable[ConfigProblem]) -> ConfigException:
        """One error that lists all problems."""
        listed = tuple(problems)
        if len(listed) == 1:
            return cls(str(listed[0]), listed)
        lines = "\n".join(f"  {problem}" for problem in listed)
        return cls(f"{len(listed)} settings are wrong.\n{lines}", listed)


class TaskIdFormatException(StreamsException, ValueError):
    """A text is not a task id of the form `[topology__]subtopology_partition`."""


class StateException(StreamsException, ValueError):
    """An `ApplicationState` cannot be built from what was given (duplicates, wrong types, missing lags, ...)."""


class SnapshotException(StreamsException, ValueError):
    """A JSON document is not a snapshot; the message starts with the path of the offending value, after the file if it is one's.

    Attributes:
        path: where in the document, for example `$.clients[3].rackId`.
    """

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path

    def moved(self, inside: str) -> SnapshotException:
        """The same error, in a document that holds the wrong one at `inside`, for example `.state`."""
        message, start = str(self), f"${inside}"
        moved = start + message[1:] if message.startswith("$") else message
        return SnapshotException(moved, start + self.path[1:])


class LagsNotComputedError(StreamsException, NotImplementedError):
    """Lags were asked for, but not when the states were taken (`kafka_streams_states(compute_task_lags=True)`).

    The counterpart of the `UnsupportedOperationException` in KIP-924, Read-only APIs, `KafkaStreamsState`.
    """


class UnknownTaskError(StreamsException, KeyError):
    """A task id does not belong to the application (or, for lags, is not a task that has lags)."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownClientError(StreamsException, KeyError):
    """A process id does not belong to a client of the application."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingExtraException(StreamsException, ImportError):
    """A room needs packages that the base install leaves out, or newer ones.

    Args:
        extra: name of the extra, for example `spark`.
        room: what needs it, for example `task_assignor.spark`.
        missing: the package that could not be imported, or with its bound the one that is too old: `msgspec>=0.21`.
        found: the version of the one that is too old; "": it is not installed.
        python: the interpreter that lacks it, maybe that of a Spark executor; "": this one.
    """

    def __init__(self, extra: str, room: str, missing: str, found: str = "", python: str = "") -> None:
        python = python or sys.executable
        has = f"but {found} is installed" if found else "which is not installed"
        super().__init__(
            f"{room} needs the package '{missing}', {has} for {python}. "
            f"Install the extra that brings it: pip install 'task-assignor[{extra}]' (from a checkout '.[{extra}]')"
        )
        self.extra = extra
        self.room = room
        self.missing = missing
        self.found = found
        self.python = python

    def __reduce__(self) -> tuple[type[MissingExtraException], tuple[str, ...]]:
        # The default would call the class with the finished message.
        return type(self), (self.extra, self.room, self.missing, self.found, self.python)
