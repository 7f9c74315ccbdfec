"""`Goal`: what placing tasks seeks, as codes for users. The engine's goals become those of tasks here: their names are the same."""

from __future__ import annotations

import enum
from collections.abc import Collection

from task_assignor.engine.actives.problem import ItemGoal
from task_assignor.engine.copies.goals import CopyGoal


class Goal(enum.StrEnum):
    """What is sought, in this order. Members are strings, their own codes.

    Attributes:
        ACTIVE_SHARES: every client has floor or ceil of its thread-weighted share of the active tasks.
        ACTIVE_COST: fewest tasks leave their previous active owner; where racks or a cost model count, least cost.
        ACTIVE_EVEN_STATEFUL: stateful active tasks are even: the sum over the clients of tasks² / threads is least.
        ACTIVE_EVEN: all active tasks are even, by the same measure.
        ACTIVE_STATE: tasks that move go where their state is.
        ACTIVE_LEAST_BEHIND: there they have the least lag.
        STANDBY_LOADS: active and standby tasks together are even.
        STANDBY_TAGS: the holders of each task have most different tag values.
        STANDBY_COST: least cost of traffic and of standbys where no state was.
        STANDBY_STATE: standbys stay where their state is.
    """

    ACTIVE_SHARES = "ACTIVE_SHARES"
    ACTIVE_COST = "ACTIVE_COST"
    ACTIVE_EVEN_STATEFUL = "ACTIVE_EVEN_STATEFUL"
    ACTIVE_EVEN = "ACTIVE_EVEN"
    ACTIVE_STATE = "ACTIVE_STATE"
    ACTIVE_LEAST_BEHIND = "ACTIVE_LEAST_BEHIND"
    STANDBY_LOADS = "STANDBY_LOADS"
    STANDBY_TAGS = "STANDBY_TAGS"
    STANDBY_COST = "STANDBY_COST"
    STANDBY_STATE = "STANDBY_STATE"


def inexact_actives(exact: Collection[ItemGoal]) -> frozenset[Goal]:
    """The goals of active tasks but for those that were reached exactly."""
    return frozenset(Goal[f"ACTIVE_{goal.name}"] for goal in ItemGoal if goal not in exact)


def inexact_standbys(exact: Collection[CopyGoal]) -> frozenset[Goal]:
    """The goals of standbys but for those that were reached exactly."""
    return frozenset(Goal[f"STANDBY_{goal.name}"] for goal in CopyGoal if goal not in exact)
