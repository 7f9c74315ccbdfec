"""Secrets of the settings are in nothing that a leader tells of the assignor that has them."""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Mapping

import pytest

from task_assignor.group import (
    AssignmentRejectedException,
    GroupClient,
    GroupConsumer,
    GroupLeader,
    SubTopologyShape,
    make_tasks,
)
from task_assignor.sdk import (
    ApplicationState,
    ProcessId,
    StreamsConfig,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
)

SHAPES = [SubTopologyShape("count", ("clicks",))]
TASKS = make_tasks(SHAPES, {"clicks": 2})
CLIENT = GroupClient(ProcessId(uuid.UUID(int=1)), (GroupConsumer("1"),))


class _Tells(TaskAssignor):
    def configure(self, configs: Mapping[str, object]) -> None:
        self._key = configs["my.api.key"]

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        if len(application_state.all_tasks) == len(TASKS):
            raise ValueError(f"no answer from ?key={self._key}")
        raise TaskAssignmentException(f"no answer from ?key={self._key}")


def test_what_a_configured_assignor_says_of_its_failure_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """The text and its traceback are logged by every host, and in the folder of a run."""
    config = StreamsConfig({"task.assignor.class": _Tells, "my.api.key": "hunter2"})
    with pytest.raises(AssignmentRejectedException, match=r"ValueError: no answer from \?key=\[hidden\]") as caught:
        GroupLeader(config.task_assignor, config.assignment_configs, TASKS).rebalance([CLIENT], {}, 0)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    one = make_tasks(SHAPES, {"clicks": 1})
    kept = GroupLeader(config.task_assignor, config.assignment_configs, one).rebalance([CLIENT], {}, 0)
    assert kept.kept_because == "no answer from ?key=[hidden]"
    assert "hunter2" not in caplog.text
