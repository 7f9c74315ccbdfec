"""What is said of settings once in the life of a process, however often they are read."""

from __future__ import annotations

from collections.abc import Iterable

from task_assignor.sdk.logs import logger_of

_log = logger_of(__name__)
_named: set[tuple[str, str]] = set()
"""What was said, and of which setting."""


def name_once(keys: Iterable[str], what: str) -> None:
    """Name settings in the log, each once in the life of the process.

    Args:
        keys: the settings.
        what: what there is to be said of them.
    """
    new = sorted(set(keys) - {key for said, key in _named if said == what})
    if new:
        _named.update((what, key) for key in new)
        _log.warning("%s: %s.", what, ", ".join(new))
