"""What an author of an assignor builds with: standbys, rack awareness, refining; whole assignors live elsewhere."""

from task_assignor.utils._refiner import MoveKind
from task_assignor.utils.identity import identity_assignment
from task_assignor.utils.refiner import Movement, RefinedAssignment, refine_with_warmups
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason
from task_assignor.utils.standby import default_standby_task_assignment

__all__ = [
    "AssignmentResult",
    "MoveKind",
    "Movement",
    "RefinedAssignment",
    "SkipReason",
    "Skipped",
    "default_standby_task_assignment",
    "identity_assignment",
    "refine_with_warmups",
]
