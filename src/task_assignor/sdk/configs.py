"""`AssignmentConfigs`: the settings that an assignor sees. Reading them from mappings and files is in `settings.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from task_assignor.sdk.checks import plain_int
from task_assignor.sdk.errors import ConfigException
from task_assignor.sdk.text import shown

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

RACK_AWARE_ASSIGNMENT_STRATEGY_NONE: Final = "none"
RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC: Final = "min_traffic"
RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY: Final = "balance_subtopology"
RACK_AWARE_ASSIGNMENT_STRATEGIES: Final = (
    RACK_AWARE_ASSIGNMENT_STRATEGY_NONE,
    RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC,
    RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY,
)
MAX_RACK_AWARE_ASSIGNMENT_TAGS: Final = 5


def _whole_number(low: int, high: int, optional: bool = False) -> Callable[[Any, Any, Any], None]:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is None and optional:
            return
        if type(value) is not int or not low <= value <= high:
            raise ConfigException(f"The {attribute.name} ({shown(value)}) must be an int from {low} to {high}.")

    return check


def _tags(_instance: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    if any(not isinstance(tag, str) or not tag for tag in value):
        raise ConfigException(f"The {attribute.name} ({shown(list(value))}) must be a list of non-empty strings.")
    if len(set(value)) != len(value):
        raise ConfigException(f"The {attribute.name} ({shown(list(value))}) must not name a tag twice.")
    if len(value) > MAX_RACK_AWARE_ASSIGNMENT_TAGS:
        raise ConfigException(
            f"The {attribute.name} ({shown(list(value))}) must have at most {MAX_RACK_AWARE_ASSIGNMENT_TAGS} tags."
        )


def _strategy(_instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if value not in RACK_AWARE_ASSIGNMENT_STRATEGIES:
        raise ConfigException(
            f"The {attribute.name} ({shown(value)}) must be one of {', '.join(RACK_AWARE_ASSIGNMENT_STRATEGIES)}."
        )


def _to_tuple(value: object) -> object:
    if isinstance(value, str):
        raise ConfigException(
            f"The rack_aware_assignment_tags ({shown(value)}) must be a list of strings, not one string. "
            f"Maybe write [{shown(value)}]."
        )
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigException(f"The rack_aware_assignment_tags ({shown(value)}) must be a list of strings.") from None


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
        default=10_000, converter=plain_int, validator=_whole_number(0, INT64_MAX)
    )
    max_warmup_replicas: int = attrs.field(default=2, converter=plain_int, validator=_whole_number(1, INT32_MAX))
    num_standby_replicas: int = attrs.field(default=0, converter=plain_int, validator=_whole_number(0, INT32_MAX))
    probing_rebalance_interval_ms: int = attrs.field(
        default=600_000, converter=plain_int, validator=_whole_number(60_000, INT64_MAX)
    )
    rack_aware_assignment_tags: tuple[str, ...] = attrs.field(default=(), converter=_to_tuple, validator=_tags)
    rack_aware_traffic_cost: int | None = attrs.field(
        default=None, converter=plain_int, validator=_whole_number(0, INT32_MAX, optional=True)
    )
    rack_aware_non_overlap_cost: int | None = attrs.field(
        default=None, converter=plain_int, validator=_whole_number(0, INT32_MAX, optional=True)
    )
    rack_aware_assignment_strategy: str = attrs.field(default=RACK_AWARE_ASSIGNMENT_STRATEGY_NONE, validator=_strategy)
