"""The settings of the built-in assignors, also where another assignor hands them on as the user wrote them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from task_assignor.builtin_assignors import (
    CostModel,
    HighAvailabilityTaskAssignor,
    MinCostTaskAssignor,
    StickyTaskAssignor,
)
from task_assignor.sdk import ApplicationState, ConfigException, StreamsConfig, TaskAssignment, TaskAssignor
from task_assignor.testing import a_client, a_state, stateful_tasks
from task_assignor.utils import PlacementCosts

STATE = a_state(stateful_tasks(0, 4), [a_client(1, active=["0_0", "0_1", "0_2", "0_3"]), a_client(2)])


class LastClient(CostModel):
    """All tasks on the last client."""

    def costs(self, application_state: ApplicationState) -> PlacementCosts:
        clients = len(application_state.columns.clients)
        return PlacementCosts(
            task_class=[0] * len(application_state.columns.tasks),
            client=[1] * (clients - 1) + [0],
            lower=[0] * clients,
            upper=[9] * clients,
        )


class Outer(TaskAssignor):
    """Asks another assignor, whose settings it does not declare: they come as the user wrote them."""

    inner: TaskAssignor

    def configure(self, configs: Mapping[str, object]) -> None:
        self.inner.configure(configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return self.inner.assign(application_state)


class OuterSticky(Outer):
    def __init__(self) -> None:
        self.inner = StickyTaskAssignor()


class OuterAvailable(Outer):
    def __init__(self) -> None:
        self.inner = HighAvailabilityTaskAssignor()


class OuterCost(Outer):
    def __init__(self) -> None:
        self.inner = MinCostTaskAssignor()


@pytest.mark.parametrize(
    ("outer", "inner", "key", "value"),
    [
        (OuterSticky, "sticky", "must.preserve.active.task.assignment", "false"),
        (OuterSticky, "sticky", "must.preserve.active.task.assignment", "true"),
        (OuterAvailable, "high-availability", "high.availability.target", " sticky "),
        (OuterCost, "min-cost", "min.cost.model", f"{__name__}.LastClient"),
    ],
)
def test_a_setting_that_is_handed_on_means_the_same(
    outer: type[TaskAssignor], inner: str, key: str, value: str
) -> None:
    asked, itself = (
        StreamsConfig({"task.assignor.class": assignor, key: value}).task_assignor().assign(STATE)
        for assignor in (outer, inner)
    )
    assert asked == itself


@pytest.mark.parametrize(
    ("outer", "key", "value"),
    [
        (OuterSticky, "must.preserve.active.task.assignment", "no"),
        (OuterAvailable, "high.availability.target", "Sticky"),
        (OuterCost, "min.cost.model", "collections.Counter"),
    ],
)
def test_a_wrong_one_that_is_handed_on_is_refused(outer: type[TaskAssignor], key: str, value: str) -> None:
    with pytest.raises(ConfigException, match=key):
        StreamsConfig({"task.assignor.class": outer, key: value})
