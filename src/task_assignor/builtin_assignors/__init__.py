"""The assignors that come with the package: plug-ins through the same public interface that users have."""

from task_assignor.builtin_assignors.cost_model import CostModel, RackTrafficCostModel
from task_assignor.builtin_assignors.fallback_prior import FallbackPriorTaskAssignor
from task_assignor.builtin_assignors.high_availability import HighAvailabilityTaskAssignor
from task_assignor.builtin_assignors.min_cost import MinCostResult, MinCostTaskAssignor, Quality
from task_assignor.builtin_assignors.sticky import StickyTaskAssignor
from task_assignor.builtin_assignors.stream_join import StreamJoinTaskAssignor

__all__ = [
    "CostModel",
    "FallbackPriorTaskAssignor",
    "HighAvailabilityTaskAssignor",
    "MinCostResult",
    "MinCostTaskAssignor",
    "Quality",
    "RackTrafficCostModel",
    "StickyTaskAssignor",
    "StreamJoinTaskAssignor",
]
