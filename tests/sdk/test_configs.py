"""`AssignmentConfigs`: Kafka's defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from task_assignor.sdk import AssignmentConfigs, ConfigException


def test_the_defaults_are_kafkas() -> None:
    assert attrs.asdict(AssignmentConfigs()) == {
        "acceptable_recovery_lag": 10_000,
        "max_warmup_replicas": 2,
        "num_standby_replicas": 0,
        "probing_rebalance_interval_ms": 600_000,
        "rack_aware_assignment_tags": (),
        "rack_aware_traffic_cost": None,
        "rack_aware_non_overlap_cost": None,
        "rack_aware_assignment_strategy": "none",
    }


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("acceptable_recovery_lag", [-1, 2**63, 1.0, True, "1", None]),
        ("max_warmup_replicas", [0, -1, 2**31, 1.5, False, None]),
        ("num_standby_replicas", [-1, 2**31, True, "0", None]),
        ("probing_rebalance_interval_ms", [59_999, 2**63, 6e5, None]),
        ("rack_aware_assignment_tags", ["zone", [""], [1], ["a", "a"], list("abcdef"), 5, None, {"zone", "a"}]),
        ("rack_aware_traffic_cost", [-1, 2**31, 0.5, "1", True]),
        ("rack_aware_non_overlap_cost", [-1, 2**31, 0.5, "1", True]),
        ("rack_aware_assignment_strategy", ["", "NONE", "best", None, 1]),
    ],
)
def test_what_is_not_allowed_is_named_with_its_value(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigException, match=name):
            AssignmentConfigs(**{name: value})


def test_the_limits_themselves_are_allowed() -> None:
    configs = AssignmentConfigs(
        acceptable_recovery_lag=2**63 - 1,
        max_warmup_replicas=1,
        num_standby_replicas=2**31 - 1,
        probing_rebalance_interval_ms=60_000,
        rack_aware_assignment_tags=list("abcde"),
        rack_aware_traffic_cost=0,
        rack_aware_non_overlap_cost=0,
        rack_aware_assignment_strategy="balance_subtopology",
    )
    assert configs.rack_aware_assignment_tags == ("a", "b", "c", "d", "e")


def test_configs_are_values() -> None:
    assert AssignmentConfigs(num_standby_replicas=1) == AssignmentConfigs(num_standby_replicas=1)
    assert hash(AssignmentConfigs()) == hash(AssignmentConfigs())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        AssignmentConfigs().num_standby_replicas = 3  # type: ignore[misc]


def test_integers_of_numpy_are_integers() -> None:
    configs = AssignmentConfigs(num_standby_replicas=np.int64(2), rack_aware_traffic_cost=np.int32(3))
    assert (configs.num_standby_replicas, configs.rack_aware_traffic_cost) == (2, 3)
    assert type(configs.num_standby_replicas) is int
