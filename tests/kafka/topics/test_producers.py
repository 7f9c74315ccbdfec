"""Producers of transactions that are begun ahead: side by side, and only while they are wanted. Without a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from task_assignor.kafka.topics.producers import Producers
from task_assignor.sdk import TaskId

TASKS = [TaskId(0, partition) for partition in range(5)]
PATIENCE_S = 60


def _producers(begin: Callable[[str, float], None]) -> Producers:
    def make(config: Mapping[str, Any]) -> Any:
        name = config["transactional.id"]
        return SimpleNamespace(name=name, init_transactions=lambda seconds: begin(name, seconds))

    connection: Any = SimpleNamespace(request_s=7.0, producer=make)
    return Producers("app", connection)


def test_those_of_many_tasks_are_begun_side_by_side() -> None:
    """One after the other took a client with fifty tasks 15 s, in which it processed nothing."""
    together = threading.Barrier(len(TASKS))

    def begin(name: str, seconds: float) -> None:
        together.wait(PATIENCE_S)

    producers = _producers(begin)
    producers.expect(TASKS)
    for task in TASKS:
        found: Any = producers.take(task, 0.0)
        assert found.producer.name == f"app-{task}"
        assert producers.take(task, 0.0) is None, "it is taken once"


def test_what_is_not_wanted_any_more_is_not_begun() -> None:
    """It would fence whoever has the task by now."""
    begun, go_on = list[str](), threading.Event()

    def begin(name: str, seconds: float) -> None:
        assert seconds == 7
        begun.append(name)
        go_on.wait(PATIENCE_S)

    producers = _producers(begin)
    many = [TaskId(0, partition) for partition in range(40)]
    producers.expect(many)
    producers.forget(many[-1])
    go_on.set()
    assert all(producers.take(task, 0.0) is not None for task in many[:-1])
    assert producers.take(many[-1], 0.0) is None
    assert sorted(begun) == sorted(f"app-{task}" for task in many[:-1])


def test_one_that_could_not_be_begun_or_is_too_old_is_left_to_who_takes_the_task_in_hand() -> None:
    def begin(name: str, seconds: float) -> None:
        if name == "app-0_0":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    producers = _producers(begin)
    producers.expect(TASKS[:2])
    assert producers.take(TASKS[0], 0.0) is None
    assert producers.take(TASKS[1], time.monotonic() + 1) is None
