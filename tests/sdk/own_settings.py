"""An assignor that declares settings of its own, and the problems that settings have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    ConfigKey,
    StreamsConfig,
    TaskAssignment,
    TaskAssignor,
)


class Own(TaskAssignor):
    """Declares one setting of each kind."""

    config_keys: ClassVar[Sequence[ConfigKey]] = (
        ConfigKey(name="own.limit", type="int", default=3, minimum=1, maximum=9),
        ConfigKey(name="own.flag", type="boolean", default=False),
        ConfigKey(name="own.modes", type="list", default=(), choices=("a", "b")),
        ConfigKey(name="own.helper", type="class", default=None),
    )

    def __init__(self) -> None:
        self.configs: Mapping[str, object] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment([])


def problems(settings: Any) -> list[tuple[str, object, str, str]]:
    with pytest.raises(ConfigException) as caught:
        StreamsConfig(settings)
    return [(problem.key, problem.value, problem.expected, problem.advice) for problem in caught.value.problems]


class Asks(TaskAssignor):
    """For a setting that it does not declare."""

    def configure(self, configs: Mapping[str, object]) -> None:
        self.found = configs["what.is.not"]

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        raise AssertionError
