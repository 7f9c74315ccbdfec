"""A Python end of the bridge that misbehaves as a file tells it; without the file it is as good as any.

Usage: python -m tests.bridge.faulty FILE
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import BinaryIO, Final

from task_assignor.bridge import wire
from task_assignor.bridge.worker import Worker

FAULTS: Final = {
    "die": "Python ended without an answer",
    "hang": "no answer of sticky within",
    "garbage": "what came is not a message of the bridge",
    "other message": "what came is not a message of the bridge",
    "cut short": "cut short",
    "broken off": "Python ended without an answer|the answer broke off",
    "error": "The assignor failed with ValueError: no idea",
    "task left out": "is active on no client",
    "task twice": "is active twice",
    "standby beside active": "twice",
    "unknown task": "there is no task number",
    "too few clients": "another number of clients",
    "other version": "speaks version 99 of the bridge",
}
"""Fault -> what Java says of it."""


def _answer(worker: Worker, message: bytes, fault: str) -> bytes:
    reply = worker.answer(message)
    if fault == "other version" and message[:1] == bytes([wire.HELLO]):
        return reply[:1] + struct.pack(">i", 99) + reply[5:]
    if message[:1] != bytes([wire.ASSIGN]) or not fault:
        return reply
    if fault in ("die", "other version"):
        os._exit(3)
    if fault == "hang":
        # Until nobody asks any more: a test that fails must not leave this behind.
        sys.stdin.buffer.read()
        os._exit(3)
    if fault == "other message":
        return bytes([wire.WELCOME]) + reply[1:]
    if fault == "cut short":
        return reply[:-5]
    if fault == "error":
        return wire.error("The assignor failed with ValueError: no idea")
    if fault == "too few clients":
        return reply[:1] + struct.pack(">i", 0) + reply[5:]
    return _wrong(message, reply, fault)


def _wrong(message: bytes, reply: bytes, fault: str) -> bytes:
    """An answer that is well formed and wrong: what `wire.answer` would not write, in its layout."""
    request = wire.read_message(message)
    assert isinstance(request, wire.Request)
    clients = len(request.state.columns.clients)
    active: list[list[int]] = [[] for _ in range(clients)]
    standby: list[list[int]] = [[] for _ in range(clients)]
    for task in range(len(request.state.columns.tasks)):
        active[task % clients].append(task)
    if fault == "task left out":
        active[0].pop()
    elif fault == "task twice":
        active[clients - 1].append(active[0][0])
        if clients == 1:
            active[0] = [*active[0][:-1], active[0][0]]
    elif fault == "standby beside active":
        standby[0].append(active[0][0])
    elif fault == "unknown task":
        active[0].append(1_000_000)
    numbers = [number for role in (active, standby) for tasks in role for number in tasks]
    return b"".join(
        [
            bytes([wire.ANSWER]),
            struct.pack(">i", clients),
            struct.pack(f">{2 * clients}i", *(len(tasks) for role in (active, standby) for tasks in role)),
            struct.pack(f">{clients}q", *([-(2**63)] * clients)),
            struct.pack(f">{len(numbers)}i", *numbers),
            struct.pack(">i", 0),
        ]
    )


def main(flag: Path, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until there is nothing more to answer."""
    worker = Worker()
    while len(head := source.read(4)) == 4:
        message = source.read(struct.unpack(">i", head)[0])
        fault = flag.read_text() if flag.exists() else ""
        reply = _answer(worker, message, fault)
        if fault == "garbage":
            sink.write(b"Traceback (most recent call last): ...")
        elif fault == "broken off" and message[:1] == bytes([wire.ASSIGN]):
            sink.write(struct.pack(">i", len(reply)) + reply[: len(reply) // 2])
            sink.flush()
            os._exit(0)
        else:
            sink.write(struct.pack(">i", len(reply)) + reply)
        sink.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
