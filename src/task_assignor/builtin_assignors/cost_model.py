"""`CostModel`: the small interface that says what placements cost, and the default model. Nothing is solved here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np

from task_assignor.sdk import ApplicationState
from task_assignor.utils import PlacementCosts, rack_problem, rack_rows

DEFAULT_TRAFFIC_COST: Final = 10
DEFAULT_NON_OVERLAP_COST: Final = 1


class CostModel(ABC):
    """Says what placements cost. The whole contract is `costs`; a fresh instance is made for every rebalance.

    Name the class in the setting `min.cost.model`, or override `MinCostTaskAssignor.cost_model`.
    """

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the application's settings; called once, before `costs`. Does nothing by default."""

    @abstractmethod
    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        """The costs for this state. They must depend on the state (and the settings) alone."""


class RackTrafficCostModel(CostModel):
    """The default: traffic between racks and stickiness, both at the configured costs.

    A task costs trafficCost for each of its partitions without a replica in the client's rack, and nonOverlapCost if it
    leaves its owner. Without configured costs these are 10 and 1, as in Kafka's high availability assignor. Partitions whose
    racks are not known cost nothing; if any client has no rack, racks play no part.
    """

    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        """Traffic and stickiness."""
        columns, configs = application_state.columns, application_state.assignment_configs
        traffic, move = configs.rack_aware_traffic_cost, configs.rack_aware_non_overlap_cost
        traffic = DEFAULT_TRAFFIC_COST if traffic is None else traffic
        move = DEFAULT_NON_OVERLAP_COST if move is None else move
        tasks = len(columns.tasks)
        without_rack = rack_problem(columns, np.zeros(0, dtype=np.int64)) is not None
        if without_rack or not traffic or not tasks:
            classes = min(tasks, 1)
            return PlacementCosts(task_class=np.zeros(tasks, dtype=np.int64), move=np.full(classes, move))
        rows = rack_rows(columns, np.arange(tasks))
        # One more column, for clients without rack; there are none.
        costs = attrs.evolve(rows.times(traffic), cells=rows.cells + 1)
        return PlacementCosts(task_class=rows.row, rack=costs.table(), move=np.full(len(rows), move))
