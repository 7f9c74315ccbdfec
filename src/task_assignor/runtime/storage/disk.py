"""What the operating system says of folders and files, as errors of ours."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.encoding import NewerFormatError
from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import failure, is_url

DISK_ADVICE: Final = "What was committed before stays; run the application again when the disk can be written."
_STORE_ADVICE: Final = (
    "Maybe the store is away, the environment names another one (AWS_ENDPOINT_URL, AWS_REGION, ...) or does not allow it "
    "(AWS_ALLOW_HTTP), its certificate is of an authority that is not known here (SSL_CERT_FILE), or its keys have expired. What was committed before stays; run it again when the store answers."
)
_KEYS_ADVICE: Final = (
    "Maybe this process has no keys for the store, or they have expired, were withdrawn, or do not allow it. What was committed before "
    "stays; run it again with keys that do."
)
_FOR_A_WHILE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
"""Said of a disk that is full or fails, or whose server is away: that passes, or somebody sees to it."""
_NOT_WRITABLE: Final = (*_FOR_A_WHILE, errno.EROFS, errno.EACCES, errno.EPERM)
_SHORT: Final = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_MAYBE: Final = "Maybe "
_MORE: Final = "allow for more memory and mappings (ulimit -v, vm.max_map_count) or more open files (ulimit -n)."


def advice_on(error: BaseException) -> str:
    """What to do about an error, to be put behind its text; "": nothing can be said."""
    if _is_short(error):
        return f". Maybe {_MORE}"
    if _is_refused_by_store(error):
        return f". {_KEYS_ADVICE}"
    return f". {DISK_ADVICE}" if isinstance(error, OSError) and error.errno in _NOT_WRITABLE else ""


def advice_to_read(error: BaseException, otherwise: str) -> str:
    """What to do about a file that cannot be read, which may be as it was written: it is newer, or this process is short of something.

    Args:
        error: why it cannot.
        otherwise: what to do about one that is damaged, in whole sentences.
    """
    if isinstance(error, NewerFormatError):
        return "Upgrade task-assignor, and leave the file as it is."
    if isinstance(error, ConnectionError):
        return "Nothing says that it is damaged: run it again when the store answers."
    if _is_refused_by_store(error):
        return _KEYS_ADVICE
    if _is_short(error):
        return f"Nothing says that it is damaged: maybe {_MORE}"
    if isinstance(error, OSError) and error.errno in _FOR_A_WHILE:
        return "Maybe the disk fails, or its server is away: run it again when the file can be read."
    return "Maybe let this user read it." if isinstance(error, PermissionError) else otherwise


def _is_refused_by_store(error: BaseException) -> bool:
    return isinstance(error, PermissionError) and is_url(str(error.filename))


def _is_short(error: BaseException) -> bool:
    """Of memory, or open files; Arrow and polars say so without a number."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError)
        and (error.errno in _SHORT or (error.errno is None and any(os.strerror(one) in str(error) for one in _SHORT)))
    )


def warn(log: logging.Logger, error: BaseException, what: str, *values: object) -> None:
    """Log that something could not be done, which matters so little that all goes on: what the disk or we say of it in one line, else with the traceback.

    Args:
        log: where.
        error: why not; it is being handled.
        what: what could not be done, as the beginning of a sentence, with places for `values`.
        values: what belongs there.
    """
    log.warning(f"{what}: %s", *values, failure(error), exc_info=not isinstance(error, (OSError, StreamsException)))  # noqa: G004 (the values stay apart)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Have an OSError say which file it is about: of open ones the operating system does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def run_dir_errors(what: str) -> AbstractContextManager[None]:
    """`disk_errors` of a run folder, where what was committed is not to be computed anew because the disk is full for a while.

    Args:
        what: what cannot be done, as the beginning of a sentence.
    """
    return disk_errors(CommitLogException, what, "Maybe use another run_dir.", DISK_ADVICE)


@contextmanager
def disk_errors(kind: type[StreamsException], what: str, advice: str, for_a_while: str | None = None) -> Iterator[None]:
    """Turn an OSError inside into one of ours.

    Args:
        kind: the error that is documented.
        what: what cannot be done, as the beginning of a sentence.
        advice: what to do, in whole sentences; where a store does not answer, or refuses, it is another thing.
        for_a_while: what to do where the disk is full or fails; None: the same.

    Raises:
        StreamsException: of that kind.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, ConnectionError):
            advice = _STORE_ADVICE
        elif _is_refused_by_store(error):
            advice = _KEYS_ADVICE
        elif _is_short(error):
            advice = f"Maybe {_MORE}"
        elif for_a_while is not None and error.errno in _FOR_A_WHILE:
            advice = for_a_while
        elif isinstance(error, PermissionError) and advice.startswith(_MAYBE):
            advice = f"Maybe let this user read and write it, or {advice.removeprefix(_MAYBE)}"
        raise kind(f"{what}: {error}. {advice}") from error
