"""Settings in Kafka's keys that the runtime honours, and those that it names because they do nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from task_assignor.runtime import RuntimeOptions, write_topic
from task_assignor.runtime.kafka_settings import options_with
from task_assignor.sdk import ConfigException, StreamsConfig, once
from tests.runtime.support import application, count_topology, settings, stream


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"session.timeout.ms": "3000"}, (3_000, 500, 300_000)),
        ({"max.poll.interval.ms": 7, "heartbeat.interval.ms": 8}, (10_000, 8, 7)),
        ({"consumer.max.poll.interval.ms": "9", "max.poll.interval.ms": 7}, (10_000, 500, 9)),
        ({"main.consumer.session.timeout.ms": 2_000, "consumer.session.timeout.ms": 1}, (2_000, 500, 300_000)),
        # As without the prefix, None is not set; it ended an assertion.
        ({"main.consumer.session.timeout.ms": None, "consumer.session.timeout.ms": 3_000}, (3_000, 500, 300_000)),
        ({"consumer.heartbeat.interval.ms": None, "heartbeat.interval.ms": 8}, (10_000, 8, 300_000)),
        ({}, (10_000, 500, 300_000)),
    ],
)
def test_the_times_of_kafka_are_those_of_the_runtime(given: dict[str, Any], expected: tuple[int, int, int]) -> None:
    options = options_with(StreamsConfig(given), RuntimeOptions())
    assert (options.session_timeout_ms, options.heartbeat_interval_ms, options.max_poll_interval_ms) == expected


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ({"session.timeout.ms": 3_000}, {"session_timeout_ms": 4_000}, r"session.timeout.ms \(3000\) and .* \(4000\)"),
        ({"session.timeout.ms": 400}, {}, r"heartbeat_interval_ms \(500\) must be less than the session_timeout_ms"),
        (
            {"consumer.session.timeout.ms": "soon"},
            {},
            r"The setting consumer.session.timeout.ms \('soon'\) must be an int",
        ),
    ],
)
def test_times_that_do_not_fit_are_refused(given: dict[str, Any], options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigException, match=told):
        options_with(StreamsConfig(given), RuntimeOptions(**options))


def test_an_option_that_says_the_same_is_no_contradiction() -> None:
    options = options_with(StreamsConfig({"session.timeout.ms": 3_000}), RuntimeOptions(session_timeout_ms=3_000))
    assert options.session_timeout_ms == 3_000


def test_what_does_nothing_is_named_once_and_state_dir_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "_named", set())
    write_topic(tmp_path / "topics", "left", stream(400, 5, 1), partitions=1, key=["key"], timestamp="at")
    idle = {"commit.interval.ms": 5, "producer.linger.ms": 5, "bootstrap.servers": "b:9092", "my.own": 1}
    idle["default.deserialization.exception.handler"] = "LogAndContinueExceptionHandler"
    config = StreamsConfig(
        {
            **settings().originals,
            **idle,
            "processing.guarantee": "exactly_once_v2",
            "state.dir": str(tmp_path / "state"),
        }
    )
    with caplog.at_level(logging.WARNING):
        first, _ = (application(tmp_path, count_topology(), config=config, clients=1) for _ in range(2))
    handler = "default.deserialization.exception.handler"
    assert [record.message for record in caplog.records] == [
        f"These settings of Kafka do nothing in this runtime, but bad_records of a SubTopology does what they do: {handler}.",
        "These settings of Kafka do nothing in this runtime: bootstrap.servers, commit.interval.ms, producer.linger.ms.",
    ]
    first.run()
    assert list((tmp_path / "state" / "client-1" / "test" / "0_0").iterdir())
    assert not (tmp_path / "run" / "clients").exists()
