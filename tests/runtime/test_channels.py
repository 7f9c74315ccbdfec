"""Connections between coordinator and clients: what becomes of what one thread sends while another one gives the connection back."""

from __future__ import annotations

import errno
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from task_assignor.runtime import ClientException, RuntimeOptions
from task_assignor.runtime.machines.client.values import Disconnected
from task_assignor.runtime.machines.coordinator.values import ConnectionLost, FromClient
from task_assignor.runtime.machines.encoding import encode, reader_of
from task_assignor.runtime.machines.protocol import Refused, ToClient
from task_assignor.runtime.shells import transport
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.server import CoordinatorServer, _Writer
from task_assignor.runtime.shells.tasks import Surroundings
from task_assignor.runtime.shells.transport import Channel, DamagedMessageError, connect
from tests.runtime.support import application, join_topology, write_streams
from tests.runtime.test_launcher import _bootstrap

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
    refused = channel.receive()
    assert not refused.may_rejoin, "it would say the same again and again, a thousand times a second"
    assert refused.reason.startswith("what it says is no message here (Expected")
    channel.release()
    server.close()


@pytest.mark.parametrize("seal", [b"", b"seal"])
def test_another_version_that_has_other_checksums_is_told_as_that(seal: bytes) -> None:
    """It was told that the network changes what is sent, again and again."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    channel = connect(("127.0.0.1", server.port), b"secret", 60, ToClient)
    channel._connection.send_bytes(encode(SHORT) + seal)
    refused = channel.receive()
    assert not refused.may_rejoin
    assert refused.reason == (
        "what it says is no message here (it has no checksum of its length). Maybe it has another version of task-assignor"
    )
    channel.release()
    server.close()


def test_what_a_connection_changes_is_noticed() -> None:
    """A checksum of a file was another one by the time it was committed; the file could not be read any more.

    And after a larger length its reader took the heartbeats that were answered for the rest of an order, for hours, or for ever.
    """
    whole = transport.frame(SHORT)
    for bit in range(8 * len(whole)):
        channel, other = pair()
        with other:
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            other.sendall(changed)
            # In time: nothing more comes, and the connection stays.
            channel._set_timeout(10)
            with pytest.raises(DamagedMessageError):
                channel.receive()
        channel.release()


def test_a_client_whose_connection_changes_what_it_says_may_come_back(caplog: pytest.LogCaptureFixture) -> None:
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    channel = connect(("127.0.0.1", server.port), b"secret", 60, ToClient)
    channel._sock.sendall(transport.frame(SHORT)[:-1] + b"?")
    lost = server._events.get(timeout=60)
    assert isinstance(lost, ConnectionLost)
    assert lost.reason.startswith("what came is not what was sent: its checksum differs")
    assert lost.reason in caplog.text
    with pytest.raises((EOFError, OSError)):
        channel.receive()
    channel.release()
    server.close()


def test_a_client_that_does_not_understand_the_coordinator_ends(tmp_path: Path) -> None:
    """It joined again a thousand times a second, with a rebalance whenever it did."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    bootstrap = attrs.evolve(_bootstrap(tmp_path), address=("127.0.0.1", server.port), authkey=b"secret")
    tasks: Any = _Nowhere()
    shell = ClientShell(bootstrap, "", tasks)
    joining = threading.Thread(target=_answer, args=(server, {"of": "another version"}), daemon=True)
    joining.start()
    with pytest.raises(ClientException, match=r"what the coordinator says is no message here .*another version"):
        shell.run()
    joining.join(60)
    server.close()


def _answer(server: CoordinatorServer, message: Any) -> None:
    """Say something to the client that says hello first."""
    event = server._events.get(timeout=60)
    assert isinstance(event, FromClient)
    server._send(event.connection, message)


class _Nowhere:
    """Tasks of a client that never gets any."""

    def surroundings(self) -> Surroundings:
        return Surroundings(None, {}, "here", 1, {})

    def is_due(self, _: object) -> bool:
        return False

    def close(self) -> None:
        """Nothing."""


def test_a_client_notices_that_the_machine_of_its_coordinator_is_gone() -> None:
    """Without a word from there, as when it has lost its power, it stayed for a quarter of an hour."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    channel = connect(("127.0.0.1", server.port), b"secret", 60, ToClient)
    assert channel._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert channel._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
    channel.release()
    server.close()


def test_clients_are_waited_for_whatever_somebody_has_set_for_all_sockets() -> None:
    """With `socket.setdefaulttimeout(30)` in a program no client could join any more when none had come for 30 s."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0)
    try:
        server = CoordinatorServer("127.0.0.1", b"secret")
        server._listener.start()
        connect(("127.0.0.1", server.port), b"secret", 60, ToClient).release()
        assert isinstance(server._events.get(timeout=60), ConnectionLost)
        server.close()
    finally:
        socket.setdefaulttimeout(before)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6")
@pytest.mark.parametrize(("listens", "comes"), [("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1")])
def test_the_coordinator_listens_on_addresses_of_ipv6(listens: str, comes: str) -> None:
    """In a cluster of such no run could begin."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(str(error))
    server = CoordinatorServer(listens, b"secret")
    server._listener.start()
    connect((comes, server.port), b"secret", 60, ToClient).release()
    assert isinstance(server._events.get(timeout=60), ConnectionLost)
    server.close()


def test_sockets_that_are_no_longer_those_of_python_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under gunicorn's workers of gevent: no client came, `Resource temporarily unavailable`."""

    class Green(socket.socket):
        __module__ = "gevent._socket3"

    monkeypatch.setattr(socket, "socket", Green)
    with pytest.raises(ClientException, match="The sockets of this process are those of gevent"):
        CoordinatorServer("127.0.0.1", b"secret")


@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0"])
def test_the_coordinator_listens_on_the_port_that_is_named(tmp_path: Path, listens: str) -> None:
    """It was always a random one, which no firewall lets through and no container publishes."""
    write_streams(tmp_path / "topics", rows=100, keys=10)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])
        options = RuntimeOptions(bind_host=listens, bind_port=port, advertised_host="127.0.0.1")
        app = application(tmp_path, join_topology(), clients=1, options=options)
        said = rf"listen on port {port} of '{re.escape(listens)}': Address already in use.* bind_port to another"
        with pytest.raises(ClientException, match=said):
            app.run()
    app.run()
    # The next one has it as soon as the one before has ended.
    app.evolve(run_dir=tmp_path / "again").run()


@pytest.mark.parametrize("where", ["accept", "memory", "exit", "thread"])
def test_a_connection_that_cannot_be_taken_is_told_and_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """The driver has too many files open for a moment, or too many threads, or no memory: no client could join any more."""
    errors = {"accept": OSError(errno.EMFILE, "Too many open files"), "memory": MemoryError(), "exit": SystemExit()}
    server = CoordinatorServer("127.0.0.1", b"secret")
    listener = server._listener
    accept, start, fails = listener._socket.accept, threading.Thread.start, [True, True]

    def flaky() -> Any:
        if where in errors and fails:
            fails.pop()
            raise errors[where]
        return accept()

    def start_flakily(thread: threading.Thread) -> None:
        if where == "thread" and thread.name == "reader" and fails:
            fails.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(listener, "_socket", _Flaky(listener._socket, flaky))
    monkeypatch.setattr(threading.Thread, "start", start_flakily)
    listener.start()
    for _ in range(2):
        with suppress(OSError):
            connect(("127.0.0.1", server.port), b"secret", 60, ToClient).release()
    connect(("127.0.0.1", server.port), b"secret", 60, ToClient).release()
    assert isinstance(server._events.get(timeout=60), ConnectionLost)
    server.close()
    told = [record.getMessage() for record in caplog.records if "Nobody can be connected" in record.getMessage()]
    assert len(told) == 1


def test_connections_that_are_refused_are_told_once_and_then_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever looked whether the port is open filled the log, a warning each time."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    listener = server._listener
    refused, tell = threading.Semaphore(0), listener._tell_of_refused

    def told(host: str, error: OSError) -> None:
        tell(host, error)
        refused.release()

    monkeypatch.setattr(listener, "_tell_of_refused", told)
    listener.start()

    def look() -> str:
        caplog.clear()
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(100):
                pass
        assert refused.acquire(timeout=60)
        return caplog.text

    assert "A connection from 127.0.0.1 was refused: the other side has closed it before" in look()
    assert [look(), look()] == ["", ""]
    monkeypatch.setattr(transport, "_TOLD_EVERY_S", 0.0)
    assert "(and 2 others since that was last said)" in look()
    server.close()


@pytest.mark.parametrize("error", [MemoryError, SystemExit])
def test_a_connection_over_which_nobody_sends_any_more_is_closed(error: type[BaseException]) -> None:
    """The client waited for its orders, and the coordinator for the client, whose heartbeats went on: a run without an end."""
    closed = threading.Event()

    def send(_: object) -> None:
        raise error

    channel: Any = SimpleNamespace(send=send, close=closed.set)
    _Writer(channel).send(SHORT)
    assert closed.wait(60)


class _Flaky:
    """A socket with another `accept`."""

    def __init__(self, sock: socket.socket, accept: Callable[[], Any]) -> None:
        self._sock, self.accept = sock, accept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Unreadable:
    """A connection of which nothing can be read, for whatever reason."""

    def receive(self) -> Any:
        raise MemoryError

    def close(self) -> None:
        """It is."""

    release = close


def test_who_listens_no_more_is_missed(tmp_path: Path) -> None:
    """Else each would wait for the other: the heartbeats of a client come from another process, and go on."""
    channel: Any = _Unreadable()
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._serve(channel)
    lost = server._events.get(timeout=60)
    assert isinstance(lost, ConnectionLost)
    assert lost.reason.startswith("unreadable message: ")
    server.close()
    tasks: Any = None
    shell = ClientShell(_bootstrap(tmp_path), "x", tasks)
    shell._read(channel)
    assert shell._events.get(timeout=60) == (channel, Disconnected("MemoryError"))


def test_a_socket_that_somebody_has_closed_does_not_hide_why_a_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener of events that closes all files, say: the clients were left, and all that was said was a bad file descriptor."""

    def fails(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    server = CoordinatorServer("127.0.0.1", b"secret")
    with server._listener._socket as real:
        monkeypatch.setattr(server._listener, "_socket", SimpleNamespace(shutdown=fails, close=fails))
        server.close()
        assert real.fileno() >= 0
