"""`AssignmentConfigs`: the settings that an assignor sees, and the one table of their defaults and limits.

Reading settings from mappings and files is in `settings.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, Final

import attrs

from task_assignor.sdk.config_def import ConfigKey, limits
from task_assignor.sdk.errors import ConfigException
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.text import shown

RACK_AWARE_ASSIGNMENT_STRATEGY_NONE: Final = "none"
RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC: Final = "min_traffic"
RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY: Final = "balance_subtopology"
RACK_AWARE_ASSIGNMENT_STRATEGIES: Final = (
    RACK_AWARE_ASSIGNMENT_STRATEGY_NONE,
    RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC,
    RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY,
)
MAX_RACK_AWARE_ASSIGNMENT_TAGS: Final = 5


def _tags(value: object) -> str | None:
    tags = value if isinstance(value, tuple) else ()
    if len(set(tags)) != len(tags):
        return "a list that names no tag twice"
    if len(tags) > MAX_RACK_AWARE_ASSIGNMENT_TAGS:
        return f"a list of at most {MAX_RACK_AWARE_ASSIGNMENT_TAGS} tags"
    return None


ASSIGNMENT_KEYS: Final = MappingProxyType(
    {
        "acceptable_recovery_lag": ConfigKey(
            name="acceptable.recovery.lag",
            type="long",
            default=10_000,
            minimum=0,
            doc="Offsets that a client may be behind and still count as caught up (KIP-441).",
        ),
        "max_warmup_replicas": ConfigKey(
            name="max.warmup.replicas",
            type="int",
            default=2,
            minimum=1,
            doc="Copies that may warm up at a time, beyond the standbys (KIP-441).",
        ),
        "num_standby_replicas": ConfigKey(
            name="num.standby.replicas",
            type="int",
            default=0,
            minimum=0,
            doc="Standbys wanted for every stateful task.",
        ),
        "probing_rebalance_interval_ms": ConfigKey(
            name="probing.rebalance.interval.ms",
            type="long",
            default=600_000,
            minimum=60_000,
            doc="Milliseconds until it is looked again whether warm-ups have caught up (KIP-441).",
        ),
        "rack_aware_assignment_tags": ConfigKey(
            name="rack.aware.assignment.tags",
            type="list",
            default=(),
            validator=_tags,
            doc="Client tags over whose values the standbys are spread (KIP-708), at most 5; "
            "each must be a `client.tag.*` of this client.",
        ),
        "rack_aware_traffic_cost": ConfigKey(
            name="rack.aware.assignment.traffic_cost",
            type="int",
            default=None,
            minimum=0,
            doc="Cost of reading one partition from another rack (KIP-925); not set: the assignor's own.",
        ),
        "rack_aware_non_overlap_cost": ConfigKey(
            name="rack.aware.assignment.non_overlap_cost",
            type="int",
            default=None,
            minimum=0,
            doc="Cost of moving one task (KIP-925); not set: the assignor's own.",
        ),
        "rack_aware_assignment_strategy": ConfigKey(
            name="rack.aware.assignment.strategy",
            type="string",
            default=RACK_AWARE_ASSIGNMENT_STRATEGY_NONE,
            choices=RACK_AWARE_ASSIGNMENT_STRATEGIES,
            doc="What the rack-aware optimisation may give up for less traffic between racks (KIP-925).",
        ),
    }
)
"""Attribute of `AssignmentConfigs` -> its setting: key, default, limits."""


def _check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """The value is what its setting allows; texts are not parsed."""
    key = ASSIGNMENT_KEYS[attribute.name]
    if value is None and key.default is None:
        return
    if key.type in ("int", "long"):
        low, high = limits(key)
        expected = None if type(value) is int and low <= value <= high else f"an int from {low} to {high}"
    elif key.type == "list":
        is_list = isinstance(value, tuple) and all(isinstance(item, str) and item for item in value)
        expected = _tags(value) if is_list else "a list of non-empty strings"
    else:
        expected = None if isinstance(value, str) and value in key.choices else f"one of {', '.join(key.choices)}"
    if expected is not None:
        given = list(value) if isinstance(value, tuple) else value
        raise ConfigException(f"The {attribute.name} ({shown(given)}) must be {expected}.")


def _to_tuple(value: object) -> object:
    if isinstance(value, str):
        raise ConfigException(
            f"The rack_aware_assignment_tags ({shown(value)}) must be a list of strings, not one string. "
            f"Maybe write [{shown(value)}]."
        )
    if isinstance(value, AbstractSet):
        # In every process it would be in another order, which has a say in where standbys go.
        raise ConfigException(
            f"The rack_aware_assignment_tags ({shown(value)}) must be a list of strings: a set has no order."
        )
    if not isinstance(value, Iterable):
        raise ConfigException(f"The rack_aware_assignment_tags ({shown(value)}) must be a list of strings.")
    return tuple(value)


_DEFAULT: Final[Mapping[str, Any]] = {name: key.default for name, key in ASSIGNMENT_KEYS.items()}


@attrs.frozen(kw_only=True)
class AssignmentConfigs:
    """The settings relevant to assignment (KIP-924, Read-only APIs, `AssignmentConfigs`; defaults are Kafka's).

    Args:
        acceptable_recovery_lag: offsets; a client whose lag is not above it is caught up. 2^63 - 1: always.
        max_warmup_replicas: number of warm-up copies at a time, at least 1.
        num_standby_replicas: standbys wanted per stateful task, at least 0.
        probing_rebalance_interval_ms: milliseconds between probing rebalances, at least 60 000.
        rack_aware_assignment_tags: keys of client tags that spread the standbys (KIP-708), at most 5.
        rack_aware_traffic_cost: cost of one cross-rack partition (KIP-925); None: not configured.
        rack_aware_non_overlap_cost: cost of moving one task (KIP-925); None: not configured.
        rack_aware_assignment_strategy: `none`, `min_traffic` or `balance_subtopology` (KIP-925).

    Raises:
        ConfigException: a value is of the wrong type or out of range.
    """

    acceptable_recovery_lag: int = attrs.field(
        default=_DEFAULT["acceptable_recovery_lag"], converter=plain_int, validator=_check
    )
    max_warmup_replicas: int = attrs.field(
        default=_DEFAULT["max_warmup_replicas"], converter=plain_int, validator=_check
    )
    num_standby_replicas: int = attrs.field(
        default=_DEFAULT["num_standby_replicas"], converter=plain_int, validator=_check
    )
    probing_rebalance_interval_ms: int = attrs.field(
        default=_DEFAULT["probing_rebalance_interval_ms"], converter=plain_int, validator=_check
    )
    rack_aware_assignment_tags: tuple[str, ...] = attrs.field(
        default=_DEFAULT["rack_aware_assignment_tags"], converter=_to_tuple, validator=_check
    )
    rack_aware_traffic_cost: int | None = attrs.field(
        default=_DEFAULT["rack_aware_traffic_cost"], converter=plain_int, validator=_check
    )
    rack_aware_non_overlap_cost: int | None = attrs.field(
        default=_DEFAULT["rack_aware_non_overlap_cost"], converter=plain_int, validator=_check
    )
    rack_aware_assignment_strategy: str = attrs.field(
        default=_DEFAULT["rack_aware_assignment_strategy"], validator=_check
    )
