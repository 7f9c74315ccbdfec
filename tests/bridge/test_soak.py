"""Hundreds of rebalances while Python is killed again and again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from tests.bridge.streams import Instance, StreamsGroup, Unique, alive, compiled, python_decides
from tests.budget import examples
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import missing, wait_until
from tests.kafka.jars import KafkaUnavailableError

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
REBALANCES = examples(200)
WARM = REBALANCES // 4
"""After so many nothing new is loaded any more."""
MORE_BYTES = 8 << 20
"""What the heap may have more in the end than when it was warm."""


def test_two_hundred_rebalances_with_kills_leave_nothing_behind(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    try:
        java = compiled(tmp_path)
    except KafkaUnavailableError as error:
        missing(str(error))
        raise
    dice = random.Random(1)
    with StreamsGroup(kafka_cluster, unique("soak"), tmp_path, java, settings=python_decides()) as group:
        instances = [group.start("i1"), group.start("i2")]
        group.wait_until_settled()
        warm: list[dict[str, float]] = []
        killed = number = 0
        while (led := sum(lines(one) for one in instances)) < REBALANCES:
            if led >= WARM and not warm:
                warm = [one.metrics() for one in instances]
            for one in instances:
                for pid in one.children():
                    if dice.random() < 0.5:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            killed += 1
            instances[1].tell("remove" if number % 2 else "add")
            number += 1
            wait_until(lambda before=led: sum(lines(one) for one in instances) > before, "one more rebalance")  # type: ignore[misc]
            if number % 10 == 0:
                group.feed(12)
        group.wait_until_settled()
        group.expect_all_rows_once()
        group.expect_no_thread_lost()
        assert killed > REBALANCES // 20
        for one, before in zip(instances, warm, strict=True):
            now = one.metrics()
            assert now["HeapBytes"] < before["HeapBytes"] + MORE_BYTES
            assert now["Threads"] <= before["Threads"] + 5
            assert len(one.children()) <= 1
        everything = [pid for one in instances for pid in one.children()]
        for one in instances:
            one.stop()
        wait_until(lambda: not any(map(alive, everything)), "no process is left")


def lines(instance: Instance) -> int:
    """Rebalances that it led."""
    return len(instance.all("sticky placed|No assignment"))
