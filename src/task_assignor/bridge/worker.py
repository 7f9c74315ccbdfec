"""The Python end of one connection: reads questions, asks the assignor, writes answers, and never outlives who asked."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import attrs

from task_assignor import __version__
from task_assignor.bridge import wire
from task_assignor.bridge.keys import PREFIX
from task_assignor.sdk import (
    ConfigException,
    StreamsConfig,
    StreamsException,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
)
from task_assignor.sdk.assignor_classes import find_assignor_class
from task_assignor.sdk.hidden import cause_without_secrets, without_secrets
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure_at, own_place, perhaps_inexact, place_of_thread, said
from task_assignor.validation.measures import measure

logger = logger_of(__name__)

_CLASS: Final = "task.assignor.class"
_ENDED: Final = None
_GRACE_S: Final = 1.0
_STRANGE: Final = 2
"""Exit code: who speaks on standard input is not the bridge's Java side."""


class Worker:
    """Answers messages, one after the other; knows nothing of where they come from.

    Args:
        allowed: names of assignors that may be asked; None: all that can be imported.
    """

    def __init__(self, allowed: frozenset[str] | None = None) -> None:
        self._allowed = allowed
        self._assignor: type[TaskAssignor] | None = None
        self._settings: Mapping[str, str] = {}
        """Of the last question: what an assignor says of its failure may hold any of them."""
        self.has_failed = False
        """The assignor had no answer to the last question, and asked for no other try."""

    def answer(self, message: bytes) -> bytes:
        """The answer to a message; whatever is wrong with it or with the assignor, there is one."""
        try:
            asked = wire.read_message(message)
            return self._welcome(asked) if isinstance(asked, wire.Hello) else self._answer(asked)
        except TaskAssignmentException as problem:
            self.has_failed = False
            return self._error(f"{self._who} asks to keep the assignment and to try again: {said(problem)}")
        except ConfigException as problem:
            return self._error(_as_in_java(problem))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # `sys.exit`, a panic of a library: it is the assignor's
            if isinstance(problem, StreamsException) and not own_place(problem):
                return self._error(said(problem))
            logger.warning("The assignor failed.", exc_info=cause_without_secrets(problem, self._settings))
            return self._error(f"{self._who} failed with {failure_at(problem)}")

    @property
    def _who(self) -> str:
        return "The assignor" if self._assignor is None else f"The assignor {self._assignor.__qualname__}"

    def _error(self, text: str) -> bytes:
        return wire.error(without_secrets(text, self._settings))

    def _welcome(self, hello: wire.Hello) -> bytes:
        if hello.protocol != wire.PROTOCOL:
            return wire.error(
                f"The jar speaks version {hello.protocol} of the bridge, task-assignor {__version__} speaks {wire.PROTOCOL}. "
                "Use the jar that `task-assignor bridge jar` prints."
            )
        if self._allowed is not None and hello.assignor not in self._allowed:
            return wire.error(
                f"The assignor {hello.assignor} is not one that this server may ask ({', '.join(sorted(self._allowed))}). "
                "Maybe start it with --allow."
            )
        self._assignor = find_assignor_class(hello.assignor)
        return wire.welcome(__version__, [key.name for key in self._assignor.config_keys])

    def _answer(self, request: wire.Request) -> bytes:
        if self._assignor is None:
            return wire.error("The first message must be hello.")
        self._settings, self.has_failed = request.settings, True
        config = StreamsConfig.of_state(request.state, {**request.settings, _CLASS: self._assignor})
        assignment = config.task_assignor().assign(request.state)
        if isinstance(assignment, TaskAssignment) and assignment.inexact:
            logger.info("The assignor %s: %s", self._assignor.__qualname__, perhaps_inexact(assignment.inexact))
        measures = None
        if request.java is not None:
            java, python = (measure(request.state, one).values() for one in (request.java, assignment))
            measures = {name: (java[name], python[name]) for name in java}
        reply = wire.answer(request.state, assignment, measures)
        self.has_failed = False
        return reply


def _as_in_java(error: ConfigException) -> str:
    """What is wrong with settings: there `task.assignor.class` is a class of the bridge."""
    found = [attrs.evolve(one, key=f"{PREFIX}class") if one.key == _CLASS else one for one in error.problems]
    return str(ConfigException.of(found)) if found else said(error)


class _Shared:
    """The standard streams that assignors have, whole again after each of them; logs and tracebacks go past these.

    An assignor, or a library, may close what it takes for its own. Python aborts the process that then has something to say.
    """

    def __init__(self) -> None:
        with Path(os.devnull).open("rb") as nothing:
            self._nothing = os.dup(nothing.fileno())
        self.errors = os.dup(2)
        os.dup2(self._nothing, 0)
        os.dup2(self.errors, 1)
        self._give()

    def renew(self) -> None:
        """Give new ones for those that were closed."""
        for wanted, kept in ((0, self._nothing), (1, self.errors), (2, self.errors)):
            try:
                os.fstat(wanted)
            except OSError:
                os.dup2(kept, wanted)
        if any(getattr(stream, "closed", True) for stream in (sys.stdout, sys.stderr)):
            self._give()

    @staticmethod
    def _give() -> None:
        # Not what logs are written to, and what was there before may be closed.
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def serve(source: BinaryIO, sink: BinaryIO, allowed: frozenset[str] | None, shared: _Shared) -> bool:
    """Answer messages until there are no more, or the assignor has failed.

    Who asks starts another process then: what this one has imported may be mended meanwhile, or be half of a version that was
    installed over it. One that asks to be asked again may be getting ready for it.

    While an assignor runs, the end of the messages ends this process, and so does a question that takes longer than
    who asked will wait: even code that never comes back to Python cannot make it stay.

    Args:
        source: messages.
        sink: answers.
        allowed: see `Worker`.
        shared: the standard streams that assignors have.

    Returns:
        Whether all were messages.
    """
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    reader = _Reader(source, messages)
    threading.Thread(target=reader.run, name="bridge-reader", daemon=True).start()
    worker = Worker(allowed)
    while not worker.has_failed and (message := messages.get()) is not _ENDED:
        timeout_ms = _timeout_ms(message)
        try:
            with _clocks(timeout_ms, shared) if timeout_ms else contextlib.nullcontext():
                reply = worker.answer(message)
        finally:
            shared.renew()
        reader.answered += 1
        # Nobody may be there any more.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sink.write(struct.pack(">i", len(reply)) + reply)
            sink.flush()
    return not reader.is_strange


@contextlib.contextmanager
def _clocks(timeout_ms: int, shared: _Shared) -> Iterator[None]:
    """Half-way it says where the assignor is: whoever asked kills a child that is late, and nobody would learn it then."""
    half = threading.Timer(timeout_ms / 2000, _tell_place, (threading.get_ident(), timeout_ms))
    half.daemon = True
    half.start()
    faulthandler.dump_traceback_later(timeout_ms / 1000 + _GRACE_S, exit=True, file=shared.errors)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        half.cancel()


def _tell_place(thread: int, timeout_ms: int) -> None:
    logger.warning(
        "The assignor has not decided for %d ms, half of what Java waits (%stimeout.ms or a third of session.timeout.ms). It is in %s.",
        *(timeout_ms // 2, PREFIX, place_of_thread(thread)),
    )


def _timeout_ms(message: bytes) -> int:
    """How long who asked will wait, from the head of a question; 0: it is no question."""
    if message[:1] != bytes([wire.ASSIGN]) or len(message) < 9:
        return 0
    # Java's setting is of 32 bits, and there are no clocks for 64.
    return max(1, min(int.from_bytes(message[1:9], "big", signed=True), INT32_MAX))


class _Reader:
    """Reads ahead of the main thread, and so sees the end of the messages while an assignor runs."""

    def __init__(self, source: BinaryIO, messages: queue.SimpleQueue[bytes | None]) -> None:
        self._source = source
        self._messages = messages
        self._asked = 0
        self.answered = 0
        """Messages to which there was an answer; counted by the main thread."""
        self.is_strange = False
        """What came last was no message."""

    def run(self) -> None:
        try:
            self._read_all()
        except OSError as error:
            logger.info("There is nobody any more: %s", error)
        except MemoryError:
            # Without this thread nobody would see the end of the messages.
            logger.error("A message is too long for this process's memory.")
        self._messages.put(_ENDED)
        if self._asked > self.answered:
            # The main thread may be anywhere; nobody waits for what it does.
            _end_group()
            os._exit(0)

    def _read_all(self) -> None:
        while len(head := self._source.read(4)) == 4:
            (length,) = struct.unpack(">i", head)
            if not 0 <= length <= wire.LONGEST_MESSAGE:
                logger.error("A message of %d bytes cannot be: this is not the bridge's Java side.", length)
                self.is_strange = True
                return
            message = self._source.read(length)
            if len(message) < length:
                return
            self._asked += 1
            self._messages.put(message)


def serve_standard_streams(allowed: frozenset[str] | None = None) -> bool:
    """`serve` on standard input and output, which an assignor and what it starts have no part in.

    What they print goes to standard error instead, and there is nothing for them to read.

    It is a process group of its own: Ctrl-C in a terminal is for the application, which may need it until it has ended,
    and processes and threads that an assignor started end with it.
    """
    if os.getpgrp() != os.getpid() and not os.isatty(0):
        os.setpgid(0, 0)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    is_right = serve(source, sink, allowed, _Shared())
    _end_group()
    # Python waits for threads that the assignor has left, for ever.
    last = threading.Timer(_GRACE_S, os._exit, (0 if is_right else _STRANGE,))
    last.daemon = True
    last.start()
    return is_right


def _end_group() -> None:
    """End the processes that an assignor has started and left."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(ValueError):
            # Not from another thread than the main one: then this process ends by the signal, too, as it is about to.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
