"""The rack-aware optimiser on columns, at sizes that the JVM cannot do."""

from __future__ import annotations

from functools import partial

from benchmarks.case import Case, Facts, Goal, Work
from benchmarks.states import replicated_state, shuffled_owners
from task_assignor.sdk.columns import Int32Array
from task_assignor.utils import AssignmentResult, Placement, optimize_actives

LARGE = (1_000_000, 10_000)
SHAPES: tuple[tuple[str, int, Goal | None], ...] = (
    ("min_traffic", 5, Goal(seconds=15, gigabytes=6)),
    ("min_traffic", 31, Goal(seconds=60, gigabytes=6)),
    ("balance_subtopology", 5, None),
)


def cases(is_quick: bool = False) -> list[Case]:
    """3 replicas, 2 partitions per task, owners shuffled."""
    size = (1_000, 40) if is_quick else LARGE
    return [
        Case(
            name=f"columns/{strategy} {LARGE[0]}x{LARGE[1]} {racks} racks",
            prepare=partial(_optimize, *size, racks, strategy),
            describe=_facts,
            goal=goal,
        )
        for strategy, racks, goal in SHAPES
    ]


def _optimize(tasks: int, clients: int, racks: int, strategy: str) -> Work:
    state, owner = replicated_state(tasks, clients, racks, strategy=strategy), shuffled_owners(tasks, clients)
    given = Placement.of(state.columns, owner)
    return lambda: (owner, optimize_actives(state, given, traffic_cost=10, non_overlap_cost=1))


def _facts(found: tuple[Int32Array, AssignmentResult]) -> Facts:
    owner, result = found
    assert result.placement is not None
    moves = int((result.placement.active_owner != owner).sum())
    return {"cost": result.cost_after or 0, "cost before": result.cost_before or 0, "moves": moves}
