"""Connections that are open and bring nothing any more, as behind a proxy: who notices, when, and what becomes of the run."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from task_assignor.runtime import ClientException, RuntimeOptions
from task_assignor.runtime.machines.client.values import (
    Connect,
    Connected,
    CoordinatorFound,
    End,
    HeartbeatDue,
    LeaveRequested,
    LookForCoordinator,
    Received,
    SendToCoordinator,
)
from task_assignor.runtime.machines.coordinator.members import Member
from task_assignor.runtime.machines.coordinator.values import FromClient
from task_assignor.runtime.machines.events import ClientLost
from task_assignor.runtime.machines.protocol import Heard, Heartbeat, Hello, Permit, Refused, ToClient, Welcome
from task_assignor.runtime.shells import transport
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.server import CoordinatorServer
from task_assignor.runtime.shells.transport import connect
from task_assignor.sdk import ProcessId
from tests.runtime.machine import HELLO, Machine, a_member
from tests.runtime.simulated_work import Nowhere
from tests.runtime.simulation import World
from tests.runtime.test_channels import SHORT, _Nowhere, pair
from tests.runtime.test_launcher import _bootstrap

BEAT = SendToCoordinator(Heartbeat({}, 0, 0))


def _beats(machine: Machine, number: int, **more: Any) -> list[list[Any]]:
    return [machine.handle(HeartbeatDue(**more)) for _ in range(number)]


def test_a_client_that_is_not_answered_looks_whether_the_coordinator_answers_elsewhere() -> None:
    machine = a_member()
    assert _beats(machine, 20) == [[BEAT]] * 19 + [[BEAT, LookForCoordinator()]]
    # What else comes may be of the other direction; nothing that it has said itself was heard.
    machine.handle(Received(Permit(b"")))
    assert _beats(machine, 20)[-1] == [BEAT, LookForCoordinator()]
    assert machine.handle(CoordinatorFound()) == [Connect(unanswered=40)]
    (hello,) = machine.handle(Connected(HELLO))
    assert isinstance(hello, SendToCoordinator)
    # Welcome may take its time, where a disk does: it goes on to ask.
    assert _beats(machine, 20)[-1] == [BEAT, LookForCoordinator()]


def test_an_answer_is_an_answer_however_late() -> None:
    machine = a_member()
    _beats(machine, 39)
    assert machine.handle(Received(Heard())) == []
    assert machine.handle(CoordinatorFound()) == [], "it has stood still, and goes on"
    assert _beats(machine, 19) == [[BEAT]] * 19


def test_what_comes_slowly_comes() -> None:
    """An assignment of thousands of tasks over a slow line: as often as it was given up, it began again."""
    machine = a_member()
    assert _beats(machine, 1_000, is_hearing=True) == [[BEAT]] * 1_000


def test_a_coordinator_that_answers_nowhere_is_waited_for_but_not_for_ever() -> None:
    machine = a_member()
    assert [Connect(unanswered=600)] == _beats(machine, 600)[-1][1:]
    leaving = a_member()
    leaving.handle(LeaveRequested("SIGTERM"))
    _beats(leaving, 20)
    assert leaving.handle(CoordinatorFound())[-1] == End("SIGTERM", was_told=True), "nobody gives its tasks to others"


def test_a_client_of_which_only_the_heartbeat_process_is_heard_is_given_up() -> None:
    """It was at no task, as far as anybody knew, and had orders: they were waited for without an end."""
    options = RuntimeOptions(max_poll_interval_ms=60_000)
    hello = Hello("c", "00000000-0000-0000-0000-000000000001", "run", 1, None, {}, None, "pid 1", "here", 1, {})
    member = Member("c-1", 1, hello, 0, ProcessId.parse(hello.process_id))
    member.last_heard_ms = 59_999
    assert not member.why_hanging(options, {}, 59_999)
    assert 60_000 in member.deadlines_ms(options)
    assert member.why_hanging(options, {}, 60_000) == (
        "its process runs, but nothing has come from it for 60000 ms (max.poll.interval.ms)"
    )
    member.excuse(1_000, 60_000)
    assert not member.why_hanging(options, {}, 60_000)


@pytest.mark.parametrize(("to_client", "to_coordinator"), [(True, False), (False, True), (True, True)])
def test_a_run_goes_on_although_a_connection_brings_nothing_any_more(to_client: bool, to_coordinator: bool) -> None:
    world = World(7, faults=0, clients=2)
    while not any(client.jobs for client in world.clients):
        world.step()
    connection = next(client.connection for client in world.clients if client.jobs)
    assert connection is not None
    if to_client:
        connection.to_client = Nowhere()
    if to_coordinator:
        connection.to_coordinator = Nowhere()
    world.run()
    assert [finished.error for finished in world.finished] == [None]
    told = [event.reason for event in world.events if isinstance(event, ClientLost)]
    noticed = {"it has come back over another connection", "connection closed"}
    assert set(told) <= noticed | {"its process runs, but nothing has come from it for 3000 ms (max.poll.interval.ms)"}
    assert told


def test_what_a_client_said_over_a_connection_that_it_has_given_up_does_not_end_it() -> None:
    """A proxy may bring it when the client has joined again long since: it was taken for another client of its name then."""
    world = World(7, faults=0, clients=2)
    client, members = world.clients[0], world.coordinator.members

    def join() -> Member:
        while client.connection is None or (found := members.find(client.connection.number)) is None:
            world.step()
        return found

    former = join()
    world.lose_connection(client)
    member = join()
    world.tell(FromClient(former.connection, former.hello, world.now_ms))
    assert members.with_id(member.member_id) is member
    refused = Refused("the client has come back over another connection since", may_rejoin=False)
    assert refused in world.connections[former.connection - 1].to_client


def test_heartbeats_are_answered_although_the_coordinator_itself_stands_still() -> None:
    """Its disk may take its time; clients that took it for gone would make that worse."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    channel = connect(("127.0.0.1", server.port), b"secret", 60, ToClient)
    channel.send(Heartbeat({}, 0, 0))
    assert channel.receive() == Heard()
    channel.release()
    server.close()


def test_it_is_seen_how_far_a_message_has_come() -> None:
    whole = transport.frame(SHORT)
    channel, other = pair()
    with other:
        other.sendall(whole + whole[:7])
        assert channel.receive() == SHORT
        assert channel.arriving == 0
        reader = threading.Thread(target=channel.receive, daemon=True)
        reader.start()
        while channel.arriving < 7:
            assert reader.is_alive()
        other.sendall(whole[7:])
        reader.join(60)
        assert channel.arriving == 0
    channel.release()


class _Proxy:
    """Passes on what comes, until it keeps what it is given over its first connection. Nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.is_dead = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self._server.getsockname()[1]))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        is_first = True
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                for way in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(*way, is_first), daemon=True).start()
                is_first = False

    def _pass(self, source: socket.socket, sink: socket.socket, is_first: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not (is_first and self.is_dead):
                    sink.sendall(data)
        if not (is_first and self.is_dead):
            with suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class _Beats:
    runs = True

    def end(self) -> None:
        """Nothing."""


def test_a_client_joins_again_over_another_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It waited for orders, and the coordinator for answers, without an end and without a word."""
    server = CoordinatorServer("127.0.0.1", b"secret")
    server._listener.start()
    proxy = _Proxy(server.port)
    options = RuntimeOptions(heartbeat_interval_ms=5, session_timeout_ms=50)
    bootstrap = attrs.evolve(_bootstrap(tmp_path), address=proxy.address, authkey=b"secret", options=options)
    tasks: Any = _Nowhere()
    shell = ClientShell(bootstrap, "", tasks, heartbeats=lambda _: _Beats())

    def run() -> None:
        with suppress(ClientException):
            shell.run()

    running = threading.Thread(target=run, daemon=True)
    running.start()
    hellos: list[int] = []
    while len(hellos) < 2:
        event = server._events.get(timeout=60)
        if isinstance(event, FromClient) and isinstance(event.message, Hello):
            hellos.append(event.connection)
            server._send(event.connection, Welcome("c-1"))
        elif isinstance(event, FromClient):
            proxy.is_dead = True
    assert "heartbeats in a row, one every 5 ms, were not answered. Maybe a proxy" in caplog.text
    shell.give_up("the end")
    running.join(60)
    proxy.close()
    server.close()
