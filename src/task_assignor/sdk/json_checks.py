"""Checks of parsed JSON, value by value; an error knows its path below the value that was checked."""

from __future__ import annotations

from typing import Any, Final

from task_assignor.sdk.errors import SnapshotException, StateException, TaskIdFormatException
from task_assignor.sdk.ids import ProcessId, TaskId
from task_assignor.sdk.json_text import bad_value, member_path
from task_assignor.sdk.text import listed, nearest, shown

FORMAT_VERSION: Final = 1
"""The version of the documents that this package reads and writes."""


class Bad(Exception):
    """A value is wrong. Whoever knows where it is puts its own part before the path.

    Args:
        message: a sentence about the value.
        path: from the checked value to the wrong one, for example `.rackIds[2]`.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    def within(self, path: str) -> Bad:
        """The same, seen from the value in which the checked one is at `path`."""
        return Bad(self.message, path + self.path)

    def at(self, path: str) -> SnapshotException:
        """The error for users, when the checked value is at `path`."""
        return bad_value(path + self.path, self.message)


def kind(value: object) -> str:
    """What a JSON value is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return shown(value)


def wrong(value: object, expected: str, path: str = "") -> Bad:
    """The error for a value that is not what was expected."""
    return Bad(f"The value must be {expected}, but is {kind(value)}.", path)


def check_members(value: Any, known: frozenset[str], required: tuple[str, ...] = (), path: str = "") -> dict[str, Any]:
    """`value` if it is an object with all `required` members and no other than the `known`."""
    if not isinstance(value, dict):
        raise wrong(value, "an object", path)
    if not value.keys() <= known:
        name = next(name for name in value if name not in known)
        if not isinstance(name, str):
            raise Bad(f"The name of a member ({shown(name)}) must be a string.", path)
        near = nearest(name, known)
        maybe = f"Maybe {near} is meant." if near else f"Known are: {listed(known)}."
        raise Bad(f"The member is not known. {maybe}", member_path(path, name))
    for name in required:
        if name not in value:
            raise Bad(f"The member {name} is missing.", path)
    return value


def check_list(value: Any, path: str = "") -> list[Any]:
    """`value` if it is a list."""
    if not isinstance(value, list):
        raise wrong(value, "a list", path)
    return value


def check_integer(value: Any, low: int, high: int, path: str = "") -> int:
    """`value` if it is an integer (not true, not 1.0) in the range."""
    if type(value) is not int or not low <= value <= high:
        raise wrong(value, f"an integer from {low} to {high}", path)
    return value


def check_bool(value: Any, path: str = "") -> bool:
    """`value` if it is true or false."""
    if value is not True and value is not False:
        raise wrong(value, "true or false", path)
    return value is True


def check_string(value: Any, path: str = "") -> str:
    """`value` if it is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise wrong(value, "a string that is not empty", path)
    return value


def check_strings(value: Any, path: str = "") -> list[str]:
    """`value` if it is a list of distinct strings that are not empty."""
    strings = check_list(value, path)
    for number, item in enumerate(strings):
        if not isinstance(item, str) or not item:
            raise wrong(item, "a string that is not empty", f"{path}[{number}]")
    check_distinct(strings, strings, path)
    return strings


def check_distinct(keys: list[Any], shown_as: list[Any], path: str = "") -> None:
    """No key is in the list twice; the error shows the value that stands for it."""
    if len(set(keys)) == len(keys):
        return
    seen = set()
    for number, key in enumerate(keys):
        if key in seen:
            raise Bad(
                f"The value ({kind(shown_as[number])}) must be there once, but is there twice.", f"{path}[{number}]"
            )
        seen.add(key)


def parse_task_id(value: Any, path: str = "") -> TaskId:
    """The task id that a JSON value writes."""
    if not isinstance(value, str):
        raise wrong(value, "a task id such as 0_3", path)
    try:
        return TaskId.parse(value)
    except TaskIdFormatException as error:
        raise Bad(str(error), path) from error


def parse_process_id(value: Any, path: str = "") -> ProcessId:
    """The process id that a JSON value writes."""
    if not isinstance(value, str):
        raise wrong(value, "a process id (a UUID)", path)
    try:
        return ProcessId.parse(value)
    except StateException as error:
        raise Bad(str(error), path) from error


def check_version(value: Any) -> None:
    """The `formatVersion` of a document, if it has one, is ours. To be asked first: in a newer one all else may be new."""
    version = value.get("formatVersion", FORMAT_VERSION) if isinstance(value, dict) else FORMAT_VERSION
    if type(version) is not int or version != FORMAT_VERSION:
        newer = " Maybe a newer task-assignor wrote it: upgrade." if type(version) is int and version > 1 else ""
        raise Bad(f"The value must be {FORMAT_VERSION}, but is {kind(version)}.{newer}", ".formatVersion")


def check_id(value: Any, path: str = "") -> str | int:
    """The `id` of a document: its owner's name for it."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise wrong(value, "a string or an integer", path)
    return value
