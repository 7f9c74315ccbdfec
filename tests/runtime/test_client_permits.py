"""The permits of a client: what it makes counts with the newest alone."""

from __future__ import annotations

import pytest

from task_assignor.runtime.machines.client.values import (
    ClientEvent,
    Connect,
    Connected,
    Disconnected,
    LeaveRequested,
    Received,
    StartHeartbeats,
    TakePermit,
)
from task_assignor.runtime.machines.protocol import START, Permit, Process, Refused, Stop, Welcome
from tests.runtime.machine import HELLO, A, a_member, an_order, assign


def test_what_was_ordered_before_it_was_given_up_counts_with_no_permit() -> None:
    """Its jobs go on, and come to an end when it has joined again, and others have its tasks."""
    machine = a_member()
    machine.handle(Received(assign(4, {A: START}, {})))
    assert machine.handle(Received(Permit(b"1"))) == [TakePermit(b"1", 0)]
    assert machine.handle(Disconnected("cut")) == [TakePermit(b"", 5), Connect()]
    machine.handle(Connected(HELLO))
    assert machine.handle(Received(Welcome("c-2", b"1"))) == [StartHeartbeats("c-2"), TakePermit(b"1", 5)]
    assert machine.handle(Received(Permit(b"2"))) == [TakePermit(b"2", 5)]


@pytest.mark.parametrize(
    "end",
    [
        [Received(Stop("the end"))],
        [Received(Refused("another one has the name", may_rejoin=False))],
        [LeaveRequested("SIGTERM"), Disconnected("cut")],
    ],
)
def test_a_client_that_stops_waits_for_no_permit(end: list[ClientEvent]) -> None:
    """A batch that waited for the next one held the process for as long as brokers may be away."""
    machine = a_member()
    machine.handle(Received(assign(4, {A: START}, {})))
    machine.handle(Received(Permit(b"1")))
    machine.handle(Received(Process((an_order(A, 0, 4),))))
    assert TakePermit(b"") in [told for event in end for told in machine.handle(event)]
