"""Says hello to the Python end of the bridge as a Java application would, and finds out why nobody answers."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from typing import BinaryIO, Final, cast

import attrs

from task_assignor.bridge import wire
from task_assignor.bridge.keys import UNIX, host_and_port
from task_assignor.sdk.text import shown

_SERVE: Final = "`task-assignor bridge serve`"
_SHELL: Final = "/bin/sh"
_LONGEST_REPLY: Final = 1 << 20
"""Of bytes. Who says that more will come is no end of the bridge."""
_ENDING_S: Final = 1.0
"""So long after the end of its output a process may take to be gone."""
_SHOWN_BYTES: Final = 60
_LAST_BYTES: Final = 2000
_LAST_LINES: Final = 4


class HelloException(Exception):
    """Nobody answers, or not as the Python end of the bridge would; the message says why, as far as can be seen."""


@attrs.frozen
class Hello:
    """An answer to hello.

    Args:
        version: of the package that answers.
        took_s: seconds until the answer was there, the start of Python included.
    """

    version: str
    took_s: float


def say_hello(whom: str | Sequence[str], assignor: str, timeout_s: float) -> Hello:
    """Say hello, and end the connection.

    Args:
        whom: an address, or the words of a command, which is started, and ended again.
        assignor: the assignor that is to be asked later.
        timeout_s: seconds to wait for the answer.

    Raises:
        HelloException: there is no answer in time, or not the right one.
    """
    hello = struct.pack(">Bi", wire.HELLO, wire.PROTOCOL) + wire.text_bytes(assignor)
    start = time.monotonic()
    connected = _at_address(whom, timeout_s) if isinstance(whom, str) else _started(whom, timeout_s)
    try:
        with connected as end:
            # Who has ended may have said something all the same.
            with suppress(BrokenPipeError, ConnectionResetError):
                end.sink.write(struct.pack(">i", len(hello)) + hello)
                end.sink.flush()
            begin = reply = b""
            with suppress(ConnectionResetError):
                begin = end.source.read(4)
                length = int.from_bytes(begin, "big")
                # Of what is no message as much as is there already: it is shown.
                reply = end.source.read(length) if length <= _LONGEST_REPLY else end.source.read1(_SHOWN_BYTES)
            took_s = time.monotonic() - start
            with suppress(wire.WireException):
                if reply[:1] == bytes([wire.WELCOME]):
                    return Hello(wire.welcome_version(reply), took_s)
                if reply[:1] == bytes([wire.ERROR]):
                    raise HelloException(wire.error_text(reply))
            raise HelloException(end.why_not(begin + reply))
    except (OSError, ValueError) as error:
        raise HelloException(f"nobody answers ({error}).") from error


@attrs.frozen
class _End:
    """The other end.

    Args:
        source: what it writes.
        sink: what it reads.
        why_not: a sentence for what was read of it in place of an answer.
    """

    source: BufferedReader
    sink: BinaryIO
    why_not: Callable[[bytes], str]


def _strange(read: bytes) -> str:
    if not read:
        return f"what answers is not {_SERVE}: it ends the connection without an answer."
    return f"what answers is not {_SERVE}: its answer begins with {shown(read[:_SHOWN_BYTES])}."


@contextmanager
def _at_address(address: str, timeout_s: float) -> Iterator[_End]:
    with _connection(address, timeout_s) as connection:
        stream = connection.makefile("rwb")
        yield _End(cast(BufferedReader, stream), cast(BinaryIO, stream), _strange)


def _connection(address: str, timeout_s: float) -> socket.socket:
    found = host_and_port(address)
    if found is not None and not address.startswith(UNIX):
        return socket.create_connection(found, timeout_s)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        connection.connect(address.removeprefix(UNIX))
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _started(command: Sequence[str], timeout_s: float) -> Iterator[_End]:
    with tempfile.TemporaryFile() as errors:
        process = _process(command, errors)
        assert process.stdin is not None
        assert process.stdout is not None
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            _end(process)

        def why_not(read: bytes) -> str:
            if read:
                why = f"{_strange(read).removesuffix('.')}. Its standard output is for answers only."
            elif is_late.is_set():
                why = f"no answer within {timeout_s:g} s."
            else:
                why = (
                    f"it ended {_how_ended(process)} without an answer, so it is not {_SERVE}, or that could not start."
                )
            return why + _last_words(errors)

        # What never answers is ended, and then the read is, too.
        ending = threading.Timer(timeout_s, give_up)
        ending.start()
        try:
            yield _End(cast(BufferedReader, process.stdout), cast(BinaryIO, process.stdin), why_not)
        finally:
            ending.cancel()
            _end(process)
            process.stdout.close()
            process.wait()


def _process(command: Sequence[str], errors: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, process_group=0)
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != _SHELL:
            # A script without a first line that says what runs it: Java takes the shell, too.
            return _process([_SHELL, shutil.which(command[0]) or command[0], *command[1:]], errors)
        advice = "Maybe give the full path of an executable file, as in what `task-assignor bridge jar` prints."
        if error.errno == errno.ENOENT and shutil.which(command[0]):
            advice = "Maybe what its first line names is not there."
        raise HelloException(f"the program {command[0]} cannot be started: {error.strerror}. {advice}") from error


def _how_ended(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return "its standard output"
    return f"with exit code {code}" if code >= 0 else f"by signal {-code}"


def _last_words(errors: BinaryIO) -> str:
    """A sentence with the end of what a process wrote to standard error, its lines parted by slashes."""
    errors.seek(max(errors.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
    lines = (line.strip() for line in errors.read().decode(errors="replace").splitlines())
    said = [line for line in lines if line][-_LAST_LINES:]
    return f" On standard error it says: {' / '.join(said)}" if said else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """With what a wrapper script has started: it would keep standard output open. Our Python, a group of its own, ends with its input."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(OSError):
        cast(BinaryIO, process.stdin).close()
