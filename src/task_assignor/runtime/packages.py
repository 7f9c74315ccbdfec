"""What this room needs of other packages, and whether the Python that runs it has them.

Where pip installs this package it sees to that; executors of Spark are given it as a zip file.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Final

from task_assignor.sdk import MissingExtraException

NEEDED: Final = {
    "attrs": "23.2",
    "cloudpickle": "3.0",
    "msgspec": "0.21",
    "numpy": "1.26",
    "polars": "1.25.2",
    "pyarrow": "18.0",
}
"""Package -> its oldest version."""
_WHO: Final = ("runtime", "task_assignor.runtime")


def check_packages() -> None:
    """Make sure that all are there and new enough.

    Raises:
        MissingExtraException: one is not.
    """
    for name, oldest in NEEDED.items():
        # Not imported yet: with polars that takes longer than all else, and not every processor needs it.
        if not _is_there(name):
            raise MissingExtraException(*_WHO, name)
        try:
            found = version(name)
        except PackageNotFoundError:
            continue  # Somebody has brought it without what pip writes beside it.
        if _numbers(found) < _numbers(oldest):
            raise MissingExtraException(*_WHO, f"{name}>={oldest}", found)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def _numbers(text: str) -> list[int]:
    """What a version begins with: of 18.0.0rc1 18, 0 and 0."""
    return [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", text)[0])]
