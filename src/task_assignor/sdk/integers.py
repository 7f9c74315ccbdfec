"""Whole numbers: the limits of Java's types, and what counts as one."""

from __future__ import annotations

import numbers
from typing import Any, Final

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def plain_int(value: Any) -> Any:
    """An integer of numpy, or of an enum, as an int; anything else, true and false too, as it is."""
    # An abstract class is slow to ask, and most are of this kind.
    if type(value) is int or value is True or value is False:
        return value
    return int(value) if isinstance(value, numbers.Integral) else value


def is_whole(value: object) -> bool:
    """Whether it is an integer; true and false are none."""
    return type(plain_int(value)) is int
