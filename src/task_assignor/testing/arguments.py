"""Checks of what the room's functions are given. Errors are those of the sdk: a state's, or a setting's for all that is none."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

from task_assignor.sdk import ConfigException, StateException
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import shown


def whole_number(
    what: str,
    value: object,
    least: int,
    most: int = INT32_MAX,
    error: type[StateException | ConfigException] = ConfigException,
) -> int:
    """The value as an int; those of numpy are ints, too.

    Args:
        what: what it is, for the error.
        value: the value.
        least: the least that is allowed.
        most: the greatest that is allowed.
        error: what to raise.

    Raises:
        ConfigException: it is none, or out of range; or `error`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise error(f"The {what} ({shown(value)}) must be an int from {least} to {most}.")
    return int(value)


def listed_values(
    what: str, values: Iterable[Any], kind: str, error: type[StateException | ConfigException] = StateException
) -> list[Any]:
    """The values as a list; a text is none, or it would be taken letter by letter.

    Args:
        what: what they are, for the error.
        values: the values.
        kind: what is to be in the list, for the error.
        error: what to raise.

    Raises:
        StateException: not iterable, or one text; or `error`.
    """
    if isinstance(values, str | bytes):
        raise error(f"The {what} ({shown(values)}) must be a list of {kind}, not one text.")
    if not isinstance(values, Iterable):
        raise error(f"The {what} ({shown(values)}) must be a list of {kind}.")
    return list(values)
