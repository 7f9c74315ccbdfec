"""Checks of what the room's functions are given. Errors are those of the sdk: a state's, or a setting's for all that is none."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any

from task_assignor.sdk import ConfigException, StateException
from task_assignor.sdk.text import shown


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


def number_from_0(what: str, value: Any) -> float:
    """The value as a float, if it is a number that is at least 0, and finite.

    Args:
        what: what it is, for the error.
        value: the value.

    Raises:
        ConfigException: it is not.
    """
    is_number = isinstance(value, numbers.Real) and value is not True and value is not False
    try:
        number = float(value) if is_number else math.nan
    except OverflowError:
        number = math.inf
    if 0 <= number < math.inf:
        return number
    raise ConfigException(f"The {what} ({shown(value)}) must be a number that is at least 0, and finite.")
