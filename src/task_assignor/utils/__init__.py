"""What an author of an assignor builds with: standbys, rack awareness, refining; whole assignors live elsewhere."""

from task_assignor.utils.identity import identity_assignment
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason

__all__ = [
    "AssignmentResult",
    "SkipReason",
    "Skipped",
    "identity_assignment",
]
