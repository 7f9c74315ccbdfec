"""What the operating system says of folders and files, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from task_assignor.sdk import StreamsException


@contextmanager
def disk_errors(kind: type[StreamsException], what: str, advice: str) -> Iterator[None]:
    """Turn an OSError inside into one of ours.

    Args:
        kind: the error that is documented.
        what: what cannot be done, as the beginning of a sentence.
        advice: what to do, in whole sentences.

    Raises:
        StreamsException: of that kind.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error}. {advice}") from error
