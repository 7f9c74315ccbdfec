"""The program beside a client that says that the client's process runs."""

from __future__ import annotations

import inspect
import os
import signal
import socket
import subprocess
import sys

from task_assignor.runtime.shells.heartbeat import beat


def test_a_signal_to_the_whole_group_does_not_end_it() -> None:
    """A client that hung in C lived on for ever: nobody was left who ended it, and before that it was taken for lost."""
    ours, theirs = socket.socketpair()
    call = f"beat({os.getpid()}, {theirs.fileno()}, 0.002, 1e9, b'a', b'g')"
    program = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"from __future__ import annotations\n{inspect.getsource(beat)}\n{call}",
    ]
    with ours, theirs, subprocess.Popen(program, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                # What was said before the signal is read with what is said after it.
                assert ours.recv(1 << 16)
                process.send_signal(number)
                said = b""
                while len(said) < 50:
                    more = ours.recv(50)
                    assert more, f"it has ended at {number.name}"
                    said += more
            assert process.poll() is None
        finally:
            process.kill()
