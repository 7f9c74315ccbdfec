"""What the utilities are given: choices that are neither True nor False are refused; the text "false" would count as true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from task_assignor.sdk import StateException
from task_assignor.testing import a_state, stateful_tasks
from task_assignor.utils import (
    default_standby_task_assignment,
    optimize_actives,
    place_actives,
    place_standbys,
)

STATE = a_state(stateful_tasks(0, 2), 2, num_standby_replicas=1)
PLACED = place_actives(STATE)


@pytest.mark.parametrize("given", ["false", 0, None, np.zeros(2)])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("must_preserve", lambda value: place_actives(STATE, must_preserve=value)),
        ("use_racks", lambda value: place_actives(STATE, use_racks=value)),
        ("use_racks", lambda value: place_standbys(STATE, PLACED, use_racks=value)),
        ("in_task_order", lambda value: default_standby_task_assignment(STATE, PLACED, in_task_order=value)),
        (
            "ties_stay",
            lambda value: optimize_actives(STATE, PLACED, traffic_cost=1, non_overlap_cost=1, ties_stay=value),
        ),
        ("compute_task_lags", lambda value: STATE.kafka_streams_states(compute_task_lags=value)),
    ],
)
def test_a_choice_is_true_or_false(name: str, call: Callable[[Any], object], given: object) -> None:
    with pytest.raises(StateException, match=rf"(?s)^The {name} \(.*\) must be True or False\.$"):
        call(given)
    call(True)
    call(False)
