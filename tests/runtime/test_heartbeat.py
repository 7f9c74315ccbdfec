"""The program beside a client that says that the client's process runs."""

from __future__ import annotations

import inspect
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from task_assignor.runtime import RuntimeOptions
from task_assignor.runtime.machines.coordinator.values import FromClient
from task_assignor.runtime.shells import client_shell
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.heartbeat import HeartbeatProcess, Heartbeats, beat
from task_assignor.runtime.shells.server import CoordinatorServer
from tests.runtime.test_launcher import _bootstrap


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


def test_heartbeats_that_cannot_be_begun_are_tried_again_less_and_less_often_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was tried twice a second for ever, with a warning each time; where the first could not be begun, never."""
    now, tried = [1_000.0], list[float]()
    works = SimpleNamespace(runs=True, end=bool)

    def begin(_: str) -> Heartbeats:
        tried.append(now[0])
        if len(tried) < 13:
            raise OSError(11, "Resource temporarily unavailable")
        return works

    tasks: Any = None
    bootstrap = attrs.evolve(_bootstrap(tmp_path), options=RuntimeOptions(heartbeat_interval_ms=500))
    shell = ClientShell(bootstrap, "x", tasks, heartbeats=begin)
    monkeypatch.setattr(client_shell, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shell._start_heartbeats("c-1")
    for _ in range(1_000):
        now[0] += 0.5
        shell._revive_heartbeats()
    pauses = [round(later - before, 1) for before, later in itertools.pairwise(tried)]
    assert pauses[:4] == [0.5, 0.5, 1.0, 2.0]
    assert pauses[-2:] == [60.0, 60.0]
    assert caplog.text.count("No heartbeat process for client c: ") == 1
    works.runs = False
    shell._revive_heartbeats()
    assert len(tried) == 14, "those that have run are begun again at once"
    shell._drop_channel()
    now[0] += 60.0
    shell._revive_heartbeats()
    assert len(tried) == 14, "it is no member any more"


def test_one_whose_connection_alone_has_broken_gives_way_to_another_one(tmp_path: Path) -> None:
    """It ended its client, which was well and was heard over its own connection."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()

    def connection_after(known: int) -> int:
        while True:
            event = server._events.get(timeout=60)
            if isinstance(event, FromClient) and event.connection > known:
                return event.connection

    tasks: Any = None
    bootstrap = attrs.evolve(_bootstrap(tmp_path), address=("127.0.0.1", server.port), authkey=b"secret")
    shell = ClientShell(bootstrap, "x", tasks)
    try:
        shell._start_heartbeats("c-1")
        first = shell._heartbeats
        assert isinstance(first, HeartbeatProcess)
        connection = connection_after(0)
        assert first.runs
        server._close(connection)
        until = time.monotonic() + 10
        while first.runs and time.monotonic() < until:
            time.sleep(0.01)
        shell._revive_heartbeats()
        assert connection_after(connection)
        assert shell._heartbeats is not first
        assert first._process.poll() is not None, "it would end its client"
    finally:
        shell._drop_channel()
        server.close()
