"""Sticky answers beside recorded runs of the JVM: by the whole answer if it is known, else by the metrics of all runs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from math import inf
from typing import Any

import attrs
import numpy as np

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.builtin_assignors.sticky import MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT
from task_assignor.engine.even import even_counts
from task_assignor.sdk import ApplicationState, TaskAssignment
from task_assignor.utils import rack_problem
from tests.goals import Judged
from tests.vectors import Vector

Goals = tuple[Fraction | int | float, ...]
_OPEN_STICKY = """
    0000 0002 0004 0012 0013 0014 0017 0035 0048 0057 0071 0080 0086 0103 0104 0125
    0124 0132 0133 0134 0136 0139 0142 0151 0159 0160 0176 0180 0182 0187 0192 0196 0197
"""
_OPEN_FALLBACK_PRIOR = """
    0000 0002 0003 0004 0005 0010 0013 0016 0021 0022 0030 0033 0053 0054 0057 0060
    0065 0066 0067 0070 0071 0072 0095 0096 0100 0110 0112 0114 0115 0125 0128
"""
UNDECIDED = frozenset(
    f"{operation}-1-{number}"
    for operation, numbers in (("sticky", _OPEN_STICKY), ("fallback_prior", _OPEN_FALLBACK_PRIOR))
    for number in numbers.split()
)
"""Vectors whose metrics leave open whether some run is better: a living JVM is asked for whole answers instead."""


def without_racks(state: ApplicationState) -> ApplicationState:
    """The same state with racks switched off."""
    configs = attrs.evolve(state.assignment_configs, rack_aware_assignment_strategy="none")
    return ApplicationState(state.columns, configs, state.now_ms)


def costs_of(state: ApplicationState) -> tuple[int, int] | None:
    """The costs of traffic and moves, if the settings and the racks allow the rack-aware goal."""
    configs = state.assignment_configs
    traffic, move = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
    if (
        configs.rack_aware_assignment_strategy == "none"
        or traffic is None
        or move is None
        or rack_problem(state.columns)
    ):
        return None
    return traffic, move


@attrs.frozen
class StickyQuestion:
    """What a vector of `sticky`, `legacy_sticky` or `fallback_prior` asks of our sticky assignor.

    Args:
        state: the state; without racks for the legacy assignors, which have their own rule for them.
        must_preserve: goal 2 before goal 1.
        costs: of traffic and moves, where racks count.
    """

    state: ApplicationState
    must_preserve: bool
    costs: tuple[int, int] | None

    @classmethod
    def of(cls, vector: Vector) -> StickyQuestion:
        """From a vector."""
        operation, state = vector.json["operation"], vector.state
        params = vector.json.get("params") or {}
        must_preserve = operation == "fallback_prior" or bool(params.get("mustPreserveActiveTaskAssignment"))
        if operation != "sticky":
            state = without_racks(state)
        return cls(state, must_preserve, None if must_preserve or operation != "sticky" else costs_of(state))

    def answer(self) -> TaskAssignment:
        """Ours."""
        assignor = StickyTaskAssignor()
        assignor.configure({MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT: self.must_preserve})
        return assignor.assign(self.state)

    def goals(self, placement: Judged) -> Goals:
        """The goals of a placement, in order; less is better."""
        return placement.sticky_goals(self.must_preserve, self.costs)


class Verdict(Enum):
    """What the metrics say about a run that is better than our answer."""

    NONE_IS_BETTER = "no run is better"
    ONE_IS_BETTER = "a run is better"
    UNDECIDED = "the metrics do not say"


@attrs.frozen
class _Range:
    """What is known of one goal: no run is below `low` or above `high`, and some run is at `low` if `is_reached`."""

    low: float
    high: float
    is_reached: bool


def verdict(question: StickyQuestion, ours: Judged, metrics: Mapping[str, Any]) -> Verdict:
    """Compare goal by goal, in the order of `Judged.sticky_goals`.

    The run that is least in a goal is better if no run is worse than ours in an earlier one. Some run may be better if
    it may be as good as ours in all earlier goals.
    """
    is_open, none_was_worse = False, True
    stateful, actives, total = ours.spreads()
    goals = question.goals(ours)
    # Of loads the metrics know spreads alone, and nothing of lags: no run may be better without these, either.
    goals = (*goals[:2], stateful, actives, goals[4], goals[6], total)
    for own, theirs in zip(goals, _ranges(question, metrics), strict=True):
        if theirs.low < own:
            if none_was_worse and theirs.is_reached:
                return Verdict.ONE_IS_BETTER
            is_open = True
        if not theirs.low <= own <= theirs.high:
            break
        none_was_worse &= theirs.high <= own
    return Verdict.UNDECIDED if is_open else Verdict.NONE_IS_BETTER


def _ranges(question: StickyQuestion, metrics: Mapping[str, Any]) -> tuple[_Range, ...]:
    """One per goal. Of shares, stateful tasks and previous state the metrics say nothing."""

    def recorded(name: str) -> _Range:
        return _Range(round(metrics[name]["min"], 9), round(metrics[name]["max"], 9), True)

    moves, spread, standbys = (recorded(name) for name in ("activesMoved", "activeSpread", "standbysPlaced"))
    if question.costs is not None:
        traffic, (of_traffic, of_move) = recorded("crossRackActiveAll"), question.costs
        moves = _Range(
            of_traffic * traffic.low + of_move * moves.low,
            of_traffic * traffic.high + of_move * moves.high,
            traffic.low == traffic.high or moves.low == moves.high,
        )
    columns = question.state.columns
    tasks, threads = columns.tasks, columns.clients.num_processing_threads
    stateful = int(tasks.is_stateful.sum())
    least = even_counts(threads, np.zeros_like(threads), np.full_like(threads, stateful), stateful) / threads
    of_stateful = _Range(round(float(np.ptp(least)), 9), inf if stateful else 0.0, False)
    unknown = _Range(0, inf, False)
    return (
        *((moves, unknown) if question.must_preserve else (unknown, moves)),
        spread if stateful == len(tasks) else of_stateful,
        spread,
        unknown,
        _Range(-standbys.high, -standbys.low, True),
        recorded("totalSpread"),
    )
