"""Something else than what is wanted is named as that, not as an attribute that `NoneType` does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from task_assignor.sdk import (
    KafkaStreamsAssignment,
    StreamsConfig,
    StreamsException,
    TaskAssignment,
    iter_states,
    read_assignment,
    read_state,
    write_state,
)
from task_assignor.testing import a_process_id, a_state, an_assignment, shuffled, specs_of
from task_assignor.validation import measure


@pytest.mark.parametrize("given", [None, 1, []], ids=["None", "int", "list"])
@pytest.mark.parametrize(
    ("call", "named"),
    [
        (read_state, "path"),
        (read_assignment, "path"),
        (lambda path: next(iter_states(path)), "path"),
        (lambda path: write_state(a_state(["0_0"], 1), path), "path"),
        (StreamsConfig.from_properties, "settings file"),
        (StreamsConfig.of_state, "state"),
        (lambda state: measure(state, TaskAssignment([])), "application_state"),
        (an_assignment, "application_state"),
        (specs_of, "application_state"),
        (lambda state: shuffled(state, 1), "application_state"),
    ],
)
def test_what_is_wanted_is_said(call: Callable[[Any], object], named: str, given: object) -> None:
    with pytest.raises(StreamsException, match=rf"^The {named} \("):
        call(given)


@pytest.mark.parametrize("given", [None, 1])
def test_tasks_that_are_no_list_are_named(given: Any) -> None:
    with pytest.raises(StreamsException, match=r"^The assigned_tasks \(.*\) must be a list of AssignedTask"):
        KafkaStreamsAssignment.of(a_process_id(1), given)
