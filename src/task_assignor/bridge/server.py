"""Serves many applications on a loopback address or a Unix socket: a process per connection, which speaks for itself."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from task_assignor.bridge.keys import UNIX, host_and_port, is_loopback
from task_assignor.sdk import StreamsException, registered_assignors
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import shown

logger = logger_of(__name__)

_PAUSE_S: Final = 1.0
_KILLED_S: Final = 10.0


class ServeException(StreamsException):
    """The address cannot be listened on; the message says why."""


class BridgeServer:
    """Listens; a connection gets a process of its own, so a slow or dying assignor hurts nobody else's.

    Args:
        address: `host:port` of this host (port 0: a free one), or `unix:/path`.
        allow: assignors that may be asked beside the registered ones, as dotted paths.

    Raises:
        ServeException: the address is not of this host, or taken; or an argument is of another kind.
    """

    def __init__(self, address: str, allow: Iterable[str] = ()) -> None:
        if not isinstance(address, str):
            raise ServeException(
                f"The address ({shown(address)}) must be a string: host:port of this host, or unix:/path."
            )
        # A text would be taken for its letters.
        names: tuple[object, ...] = (
            (None,) if isinstance(allow, str) or not isinstance(allow, Iterable) else tuple(allow)
        )
        if not all(isinstance(name, str) for name in names):
            raise ServeException(
                f"The assignors to allow ({shown(allow)}) must be a list of dotted paths, such as ['my_package.MyAssignor']."
            )
        allowed = [option for name in (*registered_assignors(), *map(str, names)) for option in ("--only", name)]
        self._command = [sys.executable, "-m", "task_assignor", "bridge", "serve", *allowed]
        self._workers: set[subprocess.Popen[bytes]] = set()
        self._closing = threading.Event()
        self._path: Path | None = None
        self._file: os.stat_result | None = None
        try:
            self._socket = self._listen(address)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ServeException(f"The address {address} cannot be listened on: {reason}.") from error
        self._socket.listen()

    def _listen(self, address: str) -> socket.socket:
        if address.startswith(f"{UNIX}/"):
            path = Path(address.removeprefix(UNIX))
            _remove_stale(path)
            listening = socket.socket(socket.AF_UNIX)
            # Whoever may connect may have code of this user run.
            before = os.umask(0o177)
            try:
                listening.bind(str(path))
            finally:
                os.umask(before)
            self._path, self._file = path, path.stat()
            return listening
        found = host_and_port(address)
        if found is None or not is_loopback(found[0]):
            raise ServeException(
                f"The address {address} must be host:port of this host, such as 127.0.0.1:7777, or unix:/path: "
                "the bridge has no passwords."
            )
        family, kind, protocol, _, name = socket.getaddrinfo(*found, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(name)
        return listening

    @property
    def address(self) -> str:
        """Where it listens, as `python.task.assignor.address` takes it."""
        if self._path is not None:
            return f"{UNIX}{self._path}"
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def run(self) -> None:
        """Serve until `close` is called in another thread, or this one is interrupted."""
        while not self._closing.is_set():
            try:
                self._serve(self._socket.accept()[0])
            except (OSError, RuntimeError) as error:
                # Too many open files, processes or threads: others may end, and who has asked asks again.
                if not self._closing.wait(_PAUSE_S):
                    logger.warning("A connection is not served: %s", error)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            worker = subprocess.Popen(
                self._command, stdin=connection.fileno(), stdout=connection.fileno(), process_group=0
            )
        self._workers.add(worker)
        if self._closing.is_set():
            # close() may have ended all others before this one was there.
            _end_group(worker)
        logger.info("Process %d serves a new connection.", worker.pid)
        try:
            threading.Thread(target=self._await_end, args=(worker,), daemon=True).start()
        except RuntimeError:
            worker.kill()
            self._await_end(worker)
            raise

    def _await_end(self, worker: subprocess.Popen[bytes]) -> None:
        code = worker.wait()
        # What its assignor has started: it may have died, or been given up, before it could end that.
        _end_group(worker)
        self._workers.discard(worker)
        logger.info("Process %d ended with exit code %d.", worker.pid, code)

    def close(self) -> None:
        """Stop listening and end all processes."""
        self._closing.set()
        if self._path is not None and self._file is not None:
            with contextlib.suppress(FileNotFoundError):
                # Another server may have taken its place.
                if os.path.samestat(self._path.stat(), self._file):
                    self._path.unlink()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits in accept().
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for worker in list(self._workers):
            _end_group(worker)
            try:
                worker.wait(_KILLED_S)
            except subprocess.TimeoutExpired:
                logger.warning("Process %d was killed and has not ended within %g s.", worker.pid, _KILLED_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end_group(worker: subprocess.Popen[bytes]) -> None:
    """End a process with all that its assignor has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.pid, signal.SIGKILL)


def _remove_stale(path: Path) -> None:
    """Delete a socket that a server left behind, but none that is in use.

    Raises:
        FileExistsError: it is something else.
    """
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise FileExistsError(
                errno.EEXIST, "something that is no socket is there. Maybe name a file that is not there yet"
            )
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError):
        probe.connect(str(path))
        return
    path.unlink(missing_ok=True)
