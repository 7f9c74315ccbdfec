"""Messages as Java would write them, for tests without a Java."""

from __future__ import annotations

import struct

import pytest

from task_assignor.bridge import wire


def int32(*values: int) -> bytes:
    """Numbers as a message has them."""
    return struct.pack(f">{len(values)}i", *values)


def int64(*values: int) -> bytes:
    """Long numbers likewise."""
    return struct.pack(f">{len(values)}q", *values)


def texts(*values: str) -> bytes:
    """A list of texts."""
    return int32(len(values)) + b"".join(map(wire.text_bytes, values))


MISSING = -(2**63)


def hello(assignor: str = "sticky", protocol: int = wire.PROTOCOL) -> bytes:
    """The first message."""
    return bytes([wire.HELLO]) + int32(protocol) + wire.text_bytes(assignor)


def question(timeout_ms: int = 60_000, java: bool = False, settings: dict[str, str] | None = None) -> bytes:
    """Three tasks with a changelog each and one that is gone, two clients in racks a and b; the first had all tasks."""
    given = settings or {}
    parts = [bytes([wire.ASSIGN]), int64(timeout_ms, 1_000)]
    parts += [int64(10_000, 2, 1, 600_000), texts("zone"), int64(MISSING, 7), wire.text_bytes("none")]
    parts += [texts(*given), texts(*given.values())]
    parts += [texts(), texts("in", "log"), int32(1), texts("store"), int32(2), texts("a"), texts("a", "b")]
    parts += [int32(3), int32(-1, -1, -1), int32(0, 0, 0), int32(0, 1, 2), int32(1, 1, 1), int32(0, 0, 0)]
    parts += [int64(100, 200, 300), int32(2, 2, 2)]
    for partition in range(3):
        parts += [int32(0, partition, 1, 0), int32(1, partition, 2, -1 if partition == 2 else 1)]
    parts.append(int32(2))
    for number, rack in enumerate("ab"):
        parts += [wire.text_bytes(f"00000000-0000-0000-0000-00000000000{number + 1}"), int32(2), wire.text_bytes(rack)]
        parts += [texts("zone"), texts(f"z{number}")]
        parts += [wire.text_bytes("host") + int32(80) if number else int32(-1, 0), texts(f"consumer-{number}")]
    parts += [int32(3), int32(0, 0, 0, 0, 0, 1, 0, 0, 2), int32(1), int32(1, 1), wire.text_bytes("9_9")]
    parts += [int32(1), int32(0, 0, 1), int32(0)]
    parts += [b"\x01", int32(3, 1), int32(0, 1, 2, 1), int64(-2, -2, -2, 5), bytes([java])]
    if java:
        parts += [int32(3, 0), int32(0, 1), int64(MISSING, 5_000), int32(0, 1, 2), int32(1)]
    return b"".join(parts)


@pytest.fixture(params=[False, True], ids=["python decides", "shadow"])
def any_question(request: pytest.FixtureRequest) -> bytes:
    """A question of either kind."""
    return question(java=request.param)
