"""The server: a process for each connection, of this host alone, and nothing that outlives it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from task_assignor.bridge import BridgeServer, ServeException, wire
from tests.bridge.conftest import hello, question
from tests.bridge.test_worker import BAD, error_of, read, runs, write
from tests.kafka.fixtures import wait_until


@pytest.fixture(params=["127.0.0.1:0", "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BridgeServer]:
    address = request.param if request.param != "unix" else f"unix:{tmp_path / 'b.sock'}"
    with BridgeServer(address) as running:
        thread = threading.Thread(target=running.run)
        thread.start()
        yield running
        running.close()
        thread.join(60)
        assert not thread.is_alive()


def connect(server: BridgeServer) -> socket.socket:
    if server.address.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(server.address.removeprefix("unix:"))
        return connection
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)))


def test_a_server_answers_several_applications(server: BridgeServer) -> None:
    with connect(server) as one, connect(server) as other:
        streams = [one.makefile("rwb"), other.makefile("rwb")]
        for stream in streams:
            write(stream, hello())
        for stream in streams:
            assert read(stream)[0] == wire.WELCOME
            write(stream, question())
            assert read(stream)[0] == wire.ANSWER
        write(streams[0], hello("os.system"))
        assert "--allow" in error_of(read(streams[0]))
        for stream in streams:
            stream.close()


def test_what_an_assignor_has_started_that_died_ends_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more was left at each rebalance, also when the server had ended."""
    (tmp_path / "bad.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    with BridgeServer("127.0.0.1:0", ["bad.Dies"]) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        with connect(server) as connection, connection.makefile("rwb") as stream:
            write(stream, hello("bad.Dies"))
            assert read(stream)[0] == wire.WELCOME
            write(stream, question(settings={"dies.file": str(tmp_path / "started")}))
            assert stream.read() == b""
        wait_until(lambda: not runs(int((tmp_path / "started").read_text())), "what it started ends, too")
    thread.join(60)


def test_a_server_outlives_a_time_without_processes(server: BridgeServer) -> None:
    """Its end was the first connection for which no process could be started, or no file opened."""
    command, server._command = server._command, ["/no such program"]
    with connect(server) as refused, contextlib.suppress(ConnectionResetError):
        assert refused.recv(1) == b""
    server._command = command
    with connect(server) as connection, connection.makefile("rwb") as stream:
        write(stream, hello())
        assert read(stream)[0] == wire.WELCOME


def test_a_server_outlives_a_time_without_threads(server: BridgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end was the first connection for whose process no thread could be started to await its end."""
    start, is_full = threading.Thread.start, True

    def refuse(thread: threading.Thread) -> None:
        if is_full:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with connect(server) as refused, contextlib.suppress(ConnectionResetError):
        assert refused.recv(1) == b""
    is_full = False
    with connect(server) as connection, connection.makefile("rwb") as stream:
        connection.settimeout(30)
        write(stream, hello())
        assert read(stream)[0] == wire.WELCOME


def test_a_process_that_begins_while_a_server_closes_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on after `close()` had returned, for as long as the application did."""
    start = subprocess.Popen

    def close_meanwhile(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        worker = start(*arguments, **options)
        closing.close()
        return worker

    monkeypatch.setattr(subprocess, "Popen", close_meanwhile)
    with BridgeServer("127.0.0.1:0") as closing:
        thread = threading.Thread(target=closing.run)
        thread.start()
        with connect(closing) as connection:
            connection.settimeout(30)
            assert connection.recv(1) == b""
        thread.join(60)
        assert not thread.is_alive()


def test_a_server_is_for_this_host_alone(tmp_path: Path) -> None:
    # A port beyond the last one would be another one, modulo 2^16.
    for address in (
        "0.0.0.0:0",
        "192.0.2.1:80",
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:65536",
        "127.0.0.1:²",
        "unix:",
        "unix:b.sock",
    ):
        with pytest.raises(ServeException, match="of this host"):
            BridgeServer(address)
    with pytest.raises(ServeException, match="cannot be listened on"):
        BridgeServer("unix:/a\0b")
    with BridgeServer("127.0.0.1:0") as first, pytest.raises(ServeException, match="cannot be listened on"):
        BridgeServer(first.address)
    (tmp_path / "file").touch()
    for other in (tmp_path, tmp_path / "file"):
        with pytest.raises(
            ServeException, match=f"{other} cannot be listened on: something that is no socket is there"
        ):
            BridgeServer(f"unix:{other}")
        assert other.exists()
    path = tmp_path / "a.sock"
    with BridgeServer(f"unix:{path}"):
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(ServeException, match="in use"):
            BridgeServer(f"unix:{path}")
    assert not path.exists()


def test_a_socket_that_a_dead_server_left_is_replaced_but_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with BridgeServer(f"unix:{path}"):
        pass
    path.write_text("mine")
    with pytest.raises(ServeException):
        BridgeServer(f"unix:{path}")
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"address": None}, r"The address \(None\) must be a string: host:port of this host, or unix:/path"),
        ({"address": "127.0.0.1:0", "allow": None}, r"The assignors to allow \(None\) must be a list of dotted paths"),
        # Its letters were allowed.
        (
            {"address": "127.0.0.1:0", "allow": "my.Assignor"},
            r"The assignors to allow \('my.Assignor'\) must be a list",
        ),
        ({"address": "127.0.0.1:0", "allow": [1]}, r"The assignors to allow \(\[1\]\) must be a list of dotted paths"),
    ],
)
def test_a_server_names_arguments_of_another_kind(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ServeException, match=message):
        BridgeServer(**given)


def test_a_server_that_ends_leaves_the_socket_of_the_next_one(tmp_path: Path) -> None:
    """Nobody could connect to that any more, and nobody was told."""
    address = f"unix:{tmp_path / 'b.sock'}"
    first = BridgeServer(address)
    # As what cleans up in /tmp does.
    (tmp_path / "b.sock").unlink()
    with BridgeServer(address) as second:
        first.close()
        connect(second).close()
    assert not (tmp_path / "b.sock").exists()
