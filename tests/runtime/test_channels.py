"""Connections between coordinator and clients: what becomes of what one thread sends while another one gives the connection back."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from task_assignor.runtime.machines.coordinator_values import ConnectionLost
from task_assignor.runtime.machines.encoding import reader_of
from task_assignor.runtime.machines.protocol import Refused, ToClient
from task_assignor.runtime.shells.server import CoordinatorServer
from task_assignor.runtime.shells.transport import Channel, connect

LONG = Refused("x" * (8 << 20), may_rejoin=False)
"""More than two sockets hold: who sends it waits for a reader."""
SHORT = Refused("a message", may_rejoin=False)


def pair() -> tuple[Channel[ToClient], socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        sock, _ = server.accept()
    return Channel(sock, reader_of(ToClient)), other


class Sender(threading.Thread):
    """Sends until that fails."""

    def __init__(self, channel: Channel[ToClient], message: Refused) -> None:
        super().__init__(daemon=True)
        self._channel, self._message = channel, message
        self.failure: OSError | None = None
        self.start()

    def run(self) -> None:
        while self.failure is None:
            try:
                self._channel.send(self._message)
            except OSError as error:
                self.failure = error


def test_who_sends_to_a_reader_that_has_gone_is_woken() -> None:
    channel, other = pair()
    with other:
        sender = Sender(channel, LONG)
        assert other.recv(1)
        channel.release()
        sender.join(60)
        assert sender.failure is not None


def test_no_message_ends_in_a_file_that_has_the_number_of_the_connection_by_now(tmp_path: Path) -> None:
    for number in range(200):
        channel, other = pair()
        with other:
            sender = Sender(channel, SHORT)
            assert other.recv(1)
            channel.release()
            # These take the lowest numbers that are free.
            files = [(tmp_path / f"{number}-{place}").open("wb") for place in range(4)]
            sender.join(60)
            assert sender.failure is not None
            for file in files:
                file.close()
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}


def test_what_is_no_message_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Who sends it is no member yet, so that no event tells of its end."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    channel = connect(("127.0.0.1", server.port), b"secret", 60, ToClient)
    channel.send(["Hello", "client", 1])
    lost = server._events.get(timeout=60)
    assert isinstance(lost, ConnectionLost)
    assert lost.reason.startswith("unreadable message: ")
    assert "What came from a client is no message: Expected" in caplog.text
    channel.release()
    server.close()
