"""Processes of this machine: whether one is there, others that start quickly, and servers that do not outlast the tests."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO, Final

from task_assignor.runtime.shells.local import FORKED

PYTHON: Final = shlex.quote(sys.executable)
"""This Python in a line for a shell: a checkout may be in a folder whose name has a space."""
_GUARD: Final = 'read -r _; kill -KILL "-$1"; [ -z "$2" ] || rm -rf "$2"'
"""Nobody writes to it: its standard input ends with the process that has the other end."""


def quick_context() -> ForkServerContext:
    """Makes processes that need not import everything: forked from the fork server of the clients."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(FORKED))
    return context


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended (a zombie has)."""
    try:
        os.kill(pid, 0)
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


class Server(subprocess.Popen[bytes]):
    """A process that ends with this one, however this one ends: a run of the tests that takes too long is killed.

    It has a session of its own: Ctrl-C goes to the tests, which then stop their clients before it. Who has started it waits for it.

    Args:
        command: the program and its arguments.
        log: where it writes; None: where this process does.
        folder: goes with it if this process ends first; None: nothing does.
        cwd: where it runs; None: where this process does.
        environ: its environment; None: that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: IO[bytes] | None = None,
        folder: Path | None = None,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=cwd, env=environ
        )
        guard = ["sh", "-c", _GUARD, "sh", str(self.pid), str(folder or "")]
        self.guard = subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; nobody need look after it any more then."""
        code = super().wait(timeout)
        # Killed first, it does not see its standard input end.
        self.guard.kill()
        self.guard.communicate()
        return code
