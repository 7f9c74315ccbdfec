"""Whether what a consumer of kafka-python is connected by outlives somebody else's code in its process."""

from __future__ import annotations

import os
from typing import Any, Final, NoReturn, Self

from task_assignor.sdk import StreamsException

_GONE: Final = (-1, -1)


class Connections:
    """The files that the consumer's thread waits for, as they are now.

    kafka-python 3.0.12 does not expect them to be closed: where its selector is, every poll fails with `OSError`; where
    only its sockets are, nothing wakes its thread, and a poll may wait for ever. A number that is free is soon the
    number of another file, which would be written to: so nothing of it can be used any more.

    Args:
        consumer: a `KafkaConsumer`, whose thread is the one that calls; there is no public way to any of it.
    """

    def __init__(self, consumer: Any) -> None:
        self._net = consumer._net  # noqa: SLF001
        self._files = {number: _identity(number) for number in self._numbers()}

    @classmethod
    def of(cls, consumer: Any) -> Self | None:
        """Those of a consumer; None: it is none, or of a version that is other inside, where closed files are not noticed."""
        try:
            return cls(consumer)
        except AttributeError:
            return None

    def _numbers(self) -> list[int]:
        selector = self._net._selector  # noqa: SLF001
        numbers = [key.fd for key in selector.get_map().values()] + [self._net._wakeup_w.fileno()]  # noqa: SLF001
        # A selector that is no file of its own has no number.
        return [*numbers, selector.fileno()] if hasattr(selector, "fileno") else numbers

    @property
    def are_whole(self) -> bool:
        """Whether all are still open, and the same."""
        return all(_identity(number) == file for number, file in self._files.items())

    def give_up(self, error: StreamsException) -> None:
        """Let the consumer's thread end with an error, which whatever is asked of the consumer then raises, too."""

        def poll_once(*_: object) -> NoReturn:
            raise error

        self._net._poll_once = poll_once  # noqa: SLF001


def _identity(number: int) -> tuple[int, int]:
    try:
        found = os.fstat(number)
    except OSError:
        return _GONE
    return found.st_dev, found.st_ino
