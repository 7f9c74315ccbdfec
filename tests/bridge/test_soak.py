"""Hundreds of rebalances while Python is killed again and again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from tests.bridge.streams import Instance, StreamsGroup, python_decides, resident_bytes
from tests.budget import examples
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, wait_until
from tests.processes import alive

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
REBALANCES = examples(200)
CALM = REBALANCES // 4
"""The last of them, in which nobody is killed: they show what a Python that lives on keeps in memory."""
WARM = REBALANCES // 4
"""After so many nothing new is loaded any more in Java; in Python after a fifth of the calm ones."""
MORE_BYTES = 8 << 20
"""What the heap of Java, or Python as a whole, may have more in the end than when it was warm."""


def test_two_hundred_rebalances_with_kills_leave_nothing_behind(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    dice = random.Random(1)
    with StreamsGroup(kafka_cluster, unique("soak"), tmp_path, java, settings=python_decides()) as group:
        instances = [group.start("i1"), group.start("i2")]
        group.wait_until_settled()
        group.feed(12)
        group.expect_all_rows_once()
        warm: list[dict[str, float]] = []
        warm_python: dict[int, int] = {}
        killed = number = 0
        while (led := sum(lines(one) for one in instances)) < REBALANCES:
            if led >= WARM and not warm:
                warm = [used(one) for one in instances]
            if led < REBALANCES - CALM:
                killed += kill_some(instances, dice)
            elif led >= REBALANCES - CALM * 4 // 5 and not warm_python:
                warm_python = {pid: resident_bytes(pid) for one in instances for pid in one.children()}
            instances[1].tell("remove" if number % 2 else "add")
            number += 1
            wait_until(lambda before=led: sum(lines(one) for one in instances) > before, "one more rebalance")  # type: ignore[misc]
            if number % 10 == 0:
                group.feed(12)
        group.wait_until_settled()
        group.expect_all_rows_once()
        group.expect_no_thread_lost()
        assert killed > REBALANCES // 20
        assert warm_python
        for pid, before in warm_python.items():
            assert resident_bytes(pid) < before + MORE_BYTES
        for one, was in zip(instances, warm, strict=True):
            now = used(one)
            assert now["HeapBytes"] < was["HeapBytes"] + MORE_BYTES
            assert now["Threads"] <= was["Threads"] + 5
            assert now["Pipes"] <= was["Pipes"] + 3
            assert len(one.children()) <= 1
        everything = [pid for one in instances for pid in one.children()]
        for one in instances:
            one.stop()
        wait_until(lambda: not any(map(alive, everything)), "no process is left")


def lines(instance: Instance) -> int:
    """Rebalances that it led."""
    return len(instance.all("sticky placed|No assignment"))


def used(instance: Instance) -> dict[str, float]:
    """What the JVM holds, its ends of pipes too; other open files are those of its stores."""
    pipes = 0
    for file in Path(f"/proc/{instance.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
            pipes += str(file.readlink()).startswith("pipe:")
    return {**instance.metrics(), "Pipes": pipes}


def kill_some(instances: list[Instance], dice: random.Random) -> int:
    """Kill each Python with even odds; how many were."""
    killed = 0
    for one in instances:
        for pid in one.children():
            if dice.random() < 0.5:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    return killed
