"""Kafka's settings that the runtime honours in its own options, and those that do nothing here, which are named once."""

from __future__ import annotations

from typing import Any, Final

import attrs

from task_assignor.runtime.options import RuntimeOptions
from task_assignor.sdk import ConfigException, StreamsConfig
from task_assignor.sdk.config_keys import MAIN_CONSUMER_PREFIXES, OTHER_KAFKA_KEYS, values_given
from task_assignor.sdk.once import name_once

_OPTIONS: Final = {
    "auto.offset.reset": "auto_offset_reset",
    "session.timeout.ms": "session_timeout_ms",
    "heartbeat.interval.ms": "heartbeat_interval_ms",
    "max.poll.interval.ms": "max_poll_interval_ms",
    "max.task.idle.ms": "max_task_idle_ms",
    "state.cleanup.delay.ms": "state_cleanup_delay_ms",
}
_OF_TASKS: Final = frozenset({"max.task.idle.ms", "state.cleanup.delay.ms"})
"""The settings among them that are not about a consumer."""
_PREFIXES: Final = (*MAIN_CONSUMER_PREFIXES, "restore.consumer.", "global.consumer.", "producer.", "admin.")
_OF_BAD_RECORDS: Final = (
    "deserialization.exception.handler",
    "processing.exception.handler",
    "errors.dead.letter.queue.topic.name",
)
_FULFILLED: Final = frozenset({"processing.guarantee"})
"""Whatever they say: every batch is committed as a whole."""


def options_with(config: StreamsConfig, options: RuntimeOptions) -> RuntimeOptions:
    """The options with what the settings give in Kafka's keys.

    Raises:
        ConfigException: an option and its setting differ, or a value is not allowed.
    """
    given: dict[str, Any] = {}
    for key, name in _OPTIONS.items():
        prefixes = () if key in _OF_TASKS else MAIN_CONSUMER_PREFIXES
        for spelling, value in values_given(key, config.originals, prefixes):
            default = getattr(RuntimeOptions(), name)
            if getattr(options, name) not in (default, value):
                raise ConfigException(
                    f"The setting {spelling} ({value}) and the {name} ({getattr(options, name)}) of the RuntimeOptions "
                    "differ. Maybe leave one of them out."
                )
            given[name] = value
            break
    return attrs.evolve(options, **given)


def warn_of_idle_settings(config: StreamsConfig) -> None:
    """Name the settings of Kafka's that do nothing here; each once in the life of the process."""
    honoured = {prefix + key for prefix in MAIN_CONSUMER_PREFIXES for key in _OPTIONS.keys() - _OF_TASKS}
    idle = {
        key
        for key in config.originals
        if (key in OTHER_KAFKA_KEYS or key.startswith(_PREFIXES)) and key not in honoured | _FULFILLED
    }
    handlers = {key for key in idle if key.endswith(_OF_BAD_RECORDS)}
    name_once(
        handlers,
        "These settings of Kafka do nothing in this runtime, but bad_records of a SubTopology does what they do",
    )
    name_once(idle - handlers, "These settings of Kafka do nothing in this runtime")
