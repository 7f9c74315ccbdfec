"""How our answers to the vectors differ from those of the JVM: the comparison behind the list of deviations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor
from task_assignor.sdk import StateException, assignment_from_json
from task_assignor.utils import (
    default_standby_task_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from tests.deviations import Difference
from tests.goals import Judged
from tests.rack_comparison import ACTIVE, STANDBY, by_client, objective, params_of, rows
from tests.recorded_runs import StickyQuestion
from tests.vectors import Vector, placements_of


def differences_of(vector: Vector) -> set[Difference]:
    """Empty: our answer is Kafka's; of optimisers: costs as much; of several default standbys: as many, and as even."""
    return _COMPARISONS[vector.json["operation"]](vector)


def _default_standby(vector: Vector) -> set[Difference]:
    state = vector.state
    ours = default_standby_task_assignment(state, vector.assignment)
    if vector.json["expected"] is not None:
        return _unless(placements_of(ours) == vector.expected["assignment"])
    placed = Judged.of(state, ours.values())
    metrics = vector.json["metrics"]
    return _unless(
        _is_within(len(placed.standby_task), metrics["standbysPlaced"])
        and _is_within(placed.total_spread, metrics["totalSpread"])
    )


def _sticky(vector: Vector) -> set[Difference]:
    if vector.json["expected"] is None:
        return set()
    return _unless(placements_of(StickyQuestion.of(vector).answer()) == vector.expected["assignment"])


def _high_availability(vector: Vector) -> set[Difference]:
    ours = placements_of(HighAvailabilityTaskAssignor().assign(vector.state))
    for placement in ours:
        placement.pop("followupRebalanceDeadlineMs", None)
    return _unless(ours == vector.expected["assignment"])


def _optimize_active(vector: Vector) -> set[Difference]:
    try:
        given = by_client(vector.assignment)
        params = params_of(vector.state, vector.json["params"])
        ours = optimize_rack_aware_active_tasks(params, given)
    except StateException:
        return set() if vector.throws else {Difference.OTHER}
    if vector.throws:
        return {Difference.THROWN}
    found = set()
    if vector.json["expected"] is not None:
        theirs = by_client(assignment_from_json(vector.expected["assignment"]))
        found = {Difference.STANDBYS_LOST} if len(rows(theirs, STANDBY)) < len(rows(ours, STANDBY)) else set()
    if ours.skipped is not None:
        return found | _unless(_recorded_is_unchanged(vector))
    return found | _by_cost(objective(params, given, ours, ACTIVE), vector)


def _optimize_standby(vector: Vector) -> set[Difference]:
    given = by_client(vector.assignment)
    params = params_of(vector.state, vector.json["params"])
    ours = optimize_rack_aware_standby_tasks(params, given)
    if vector.throws:
        return {Difference.THROWN}
    if ours.skipped is not None:
        return _unless(_recorded_is_unchanged(vector))
    return _by_cost(objective(params, given, ours, STANDBY), vector)


def _by_cost(cost: int, vector: Vector) -> set[Difference]:
    recorded = vector.json["metrics"].get("objectiveAfter") or {}
    low, high = recorded.get("min"), recorded.get("max")
    if low is None or high is None:
        # A cost is missing, so Kafka changes nothing, and has no figure: overrides count in ours.
        return _unless(_recorded_is_unchanged(vector))
    if cost > low:
        return {Difference.DEARER}
    return {Difference.CHEAPER} if cost < high else set()


def _recorded_is_unchanged(vector: Vector) -> bool:
    given, theirs = by_client(vector.assignment), by_client(assignment_from_json(vector.expected["assignment"]))
    return all(rows(given, role) == rows(theirs, role) for role in (ACTIVE, STANDBY))


def _is_within(value: float, metric: Mapping[str, float]) -> bool:
    return round(metric["min"], 9) <= value <= round(metric["max"], 9)


def _unless(is_equal: bool) -> set[Difference]:
    return set() if is_equal else {Difference.OTHER}


_COMPARISONS: dict[str, Callable[[Vector], set[Difference]]] = {
    "default_standby": _default_standby,
    "fallback_prior": _sticky,
    "ha": _high_availability,
    "legacy_sticky": _sticky,
    "optimize_active": _optimize_active,
    "optimize_standby": _optimize_standby,
    "sticky": _sticky,
}
