"""What an author of an assignor builds with: standbys, rack awareness, refining; whole assignors live elsewhere."""

from task_assignor.engine.copy_goals import CopyGoal
from task_assignor.engine.problem import Goal
from task_assignor.kafka_order.staging import MoveKind
from task_assignor.utils.actives import place_actives
from task_assignor.utils.identity import identity_assignment
from task_assignor.utils.rack_aware import (
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from task_assignor.utils.refiner import Movement, RefinedAssignment, refine_with_warmups
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason
from task_assignor.utils.standby import default_standby_task_assignment
from task_assignor.utils.standbys import place_standbys

__all__ = [
    "AssignmentResult",
    "CopyGoal",
    "Goal",
    "MoveKind",
    "Movement",
    "RackAwareOptimizationParams",
    "RefinedAssignment",
    "SkipReason",
    "Skipped",
    "default_standby_task_assignment",
    "identity_assignment",
    "optimize_rack_aware_active_tasks",
    "optimize_rack_aware_standby_tasks",
    "place_actives",
    "place_standbys",
    "refine_with_warmups",
]
