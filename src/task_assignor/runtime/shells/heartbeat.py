"""Heartbeats from a process of their own: a small program beside each client that says that the client's process runs.

A thread of the client could not say so while other code holds Python's lock. The program sends the same bytes again and
again over a connection that the client has opened, for as long as the client, its parent, is there and not stopped.
Whatever the coordinator sends over that connection means: end the client, it hangs.
"""

from __future__ import annotations

import inspect
import os
import subprocess
from multiprocessing import spawn
from typing import Protocol

from task_assignor.runtime.machines.protocol import Alive, Gone, ToClient
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.transport import connect, frame
from task_assignor.sdk.logs import logger_of

_PATIENCE_S = 5.0
"""A client that nobody has heard for the time in which it should have joined again, and so much more, is ended."""

_KILLED_S = 5.0
"""So long a process that was killed is waited for."""
_log = logger_of(__name__)


def beat(parent: int, descriptor: int, interval_s: float, patience_s: float, alive: bytes, gone: bytes) -> None:
    """The program; it is run from its source by an interpreter without site-packages, so it imports what it needs.

    Args:
        parent: the client's process.
        descriptor: the connection.
        interval_s: how often to send `alive`.
        patience_s: so long after the connection has gone the client may live on without another one.
        alive: what says that the client runs.
        gone: what says that it does not.
    """
    import os
    import select
    import signal
    import time

    def is_stopped() -> bool:
        try:
            with open(f"/proc/{parent}/stat", "rb") as file:  # noqa: PTH123
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            if os.path.exists("/proc/self/stat"):  # noqa: PTH110
                return False
            import subprocess

            told = subprocess.run(["ps", "-o", "state=", "-p", str(parent)], capture_output=True, check=False)
            state = told.stdout.strip()[:1]
        return state in (b"T", b"t")

    # Ctrl-C reaches the whole process group, and so may SIGTERM; they are for the application, and for the client, which may hang.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    step = 0.05
    if hasattr(os, "pidfd_open"):
        try:
            poll.register(os.pidfd_open(parent), select.POLLIN)
            step = interval_s
        except OSError:
            pass
    due, lost = time.monotonic(), None
    while os.getppid() == parent:
        now = time.monotonic()
        if now >= due:
            due = now + interval_s
            stopped = is_stopped()
            if lost is None and not stopped:
                try:
                    os.write(descriptor, alive)
                except OSError:
                    lost = now
            elif lost is not None and stopped:
                lost = now
            elif lost is not None and now - lost > patience_s:
                os.kill(parent, signal.SIGKILL)
                return
        for ready, _ in poll.poll(max(min(due - time.monotonic(), step), 0) * 1000):
            if ready != descriptor:
                continue
            try:
                told = os.read(descriptor, 1)
            except OSError:
                told = b""
            if told:
                os.kill(parent, signal.SIGKILL)
            poll.unregister(descriptor)
            lost = lost or time.monotonic()
    try:  # noqa: SIM105 - as it imports nothing that it can do without
        os.write(descriptor, gone)
    except OSError:
        pass


class Heartbeats(Protocol):
    """Says that a client lives, for one membership."""

    @property
    def runs(self) -> bool:
        """It is there, and so is its connection."""

    def end(self) -> None:
        """End it; what it would say is not wanted any more."""


class HeartbeatProcess:
    """The program beside this client, for one membership.

    Args:
        bootstrap: where the coordinator is, and how often it wants to hear of us.
        member_id: the member that we are.
        parent: this process.

    Raises:
        OSError: no connection, or no process.
    """

    def __init__(self, bootstrap: ClientBootstrap, member_id: str, parent: int) -> None:
        options = bootstrap.options
        patience = options.rejoin_timeout_ms / 1000 + _PATIENCE_S
        self._channel = connect(bootstrap.address, bootstrap.authkey, 5, ToClient)
        try:
            descriptor = self._channel.fileno()
            told = (parent, descriptor, options.heartbeat_interval_ms / 1000, patience)
            call = f"beat{(*told, frame(Alive(member_id)), frame(Gone(member_id)))!r}"
            source = f"from __future__ import annotations\n{inspect.getsource(beat)}\n{call}\n"
            executable = os.fsdecode(spawn.get_executable())
            self._process = subprocess.Popen(
                [executable, "-I", "-S", "-c", source],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[descriptor],
            )
        except BaseException:
            self._channel.release()
            raise

    @property
    def runs(self) -> bool:
        """It is there, and so is its connection: without one it ends the client, which may have another one, and be heard over that."""
        return self._process.poll() is None and not self._channel.is_over

    def end(self) -> None:
        """End it; what it would say is not wanted any more."""
        self._process.kill()
        try:
            self._process.wait(_KILLED_S)
        except subprocess.TimeoutExpired:
            # The kernel has not let go of it. It says nothing any more, whenever it ends.
            _log.warning(
                "The heartbeat process %d was killed and has not ended within %g s; it is not waited for.",
                self._process.pid,
                _KILLED_S,
            )
        self._channel.release()
