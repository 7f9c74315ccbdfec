"""What an author of an assignor builds with: placing, standbys, rack awareness, refining; whole assignors live elsewhere."""

from task_assignor.engine.row_costs import RowCosts
from task_assignor.kafka_order.staging import MoveKind
from task_assignor.utils.actives import place_actives
from task_assignor.utils.by_load import (
    balance_active_tasks,
    balance_standby_tasks,
    default_standby_task_assignment,
    place_least_loaded,
)
from task_assignor.utils.given import check_has_clients, placement_of
from task_assignor.utils.goals import Goal
from task_assignor.utils.identity import identity_assignment
from task_assignor.utils.joined import place_joined_actives
from task_assignor.utils.least_cost import LeastCostAssignment, place_at_least_cost
from task_assignor.utils.placement import Placement
from task_assignor.utils.placement_costs import ClientCost, CostModelException, PlacementCosts
from task_assignor.utils.rack_actives import optimize_actives
from task_assignor.utils.rack_aware import (
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from task_assignor.utils.rack_costs import rack_problem, rack_rows
from task_assignor.utils.rack_standbys import optimize_standbys
from task_assignor.utils.refiner import Movement, RefinedAssignment, refine_with_warmups, with_probing_rebalance
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason
from task_assignor.utils.standbys import place_standbys

__all__ = [
    "AssignmentResult",
    "ClientCost",
    "CostModelException",
    "Goal",
    "LeastCostAssignment",
    "MoveKind",
    "Movement",
    "Placement",
    "PlacementCosts",
    "RackAwareOptimizationParams",
    "RefinedAssignment",
    "RowCosts",
    "SkipReason",
    "Skipped",
    "balance_active_tasks",
    "balance_standby_tasks",
    "check_has_clients",
    "default_standby_task_assignment",
    "identity_assignment",
    "optimize_actives",
    "optimize_rack_aware_active_tasks",
    "optimize_rack_aware_standby_tasks",
    "optimize_standbys",
    "place_actives",
    "place_at_least_cost",
    "place_joined_actives",
    "place_least_loaded",
    "place_standbys",
    "placement_of",
    "rack_problem",
    "rack_rows",
    "refine_with_warmups",
    "with_probing_rebalance",
]
