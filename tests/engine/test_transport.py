"""Items to few places: as cheap as a flow with an arc for every choice, whatever the costs and numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.engine.flow import Arcs, CostRangeError, Network, solve
from task_assignor.engine.places import transport
from task_assignor.engine.places.transport import PlaceGains, cheapest_places

Table = npt.NDArray[np.int64]


def placed(table: Table, low: Table, high: Table | None = None) -> Table:
    """The places, from a table of costs."""
    gains = table.max(axis=1, initial=0)[:, None] - table
    item, place = np.nonzero(gains)
    found = cheapest_places(PlaceGains(len(table), item, place, gains[item, place]), low, low if high is None else high)
    assert found is not None
    return found


def least_cost(table: Table, low: Table, high: Table | None = None) -> int:
    """By a flow with one arc per item and place."""
    items, places = table.shape
    arcs = Arcs()
    arcs.add(np.repeat(np.arange(items), places), items + np.tile(np.arange(places), items), 1, table.reshape(-1))
    arcs.add(items + np.arange(places), items + places, (low if high is None else high) - low)
    supplies = np.concatenate([np.ones(items, dtype=np.int64), -low, [low.sum() - items]])
    flows = solve(Network(supplies, arcs))
    return int((flows[: table.size] * table.reshape(-1)).sum())


@given(
    st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 7), st.sampled_from([1, 2, 5, 1000]), st.floats(0.0, 1.0)
)
def test_is_as_cheap_as_a_flow(seed: int, items: int, places: int, most: int, part: float) -> None:
    """Whether items cost less at many places or at few."""
    draw = np.random.default_rng(seed)
    table = draw.integers(0, most + 1, (items, places))
    table[draw.random(table.shape) < part] = most
    numbers = np.bincount(draw.integers(0, places, items), minlength=places)
    low = np.maximum(numbers - draw.integers(0, 4, places), 0) if seed % 2 else numbers
    high = numbers + draw.integers(0, 4, places) if seed % 3 else numbers
    found = placed(table, low, high)
    loads = np.bincount(found, minlength=places)
    assert (low <= loads).all()
    assert (loads <= high).all()
    assert int(table[np.arange(items), found].sum()) == least_cost(table, low, high)


def test_where_a_step_brings_nobody_further_a_graph_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items are counted for several ways each, so that rarely none of them arrives: in 16 of 20 000 random tables."""
    table = np.random.default_rng(3).integers(0, 4, (60, 5))
    item, place = np.nonzero(4 - table)
    numbers = np.array([50, 0, 3, 7, 0])

    monkeypatch.setattr(transport, "_greatest", lambda number, _excess: np.zeros_like(number))
    assert cheapest_places(PlaceGains(60, item, place, 4 - table[item, place]), numbers, numbers) is None


def test_where_each_item_asks_something_else_a_graph_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """All would go to one place, and there is a step for each that must leave it; it is taken only if a graph is too large."""
    table = np.random.default_rng(0).integers(1, 10**6, (600, 3))
    table[:, 0] = 0
    numbers = np.array([200, 200, 200])
    item, place = np.nonzero(10**6 - table)
    gains = PlaceGains(600, item, place, 10**6 - table[item, place])

    assert cheapest_places(gains, numbers, numbers) is None
    monkeypatch.setattr(transport, "MOST_IN_GRAPH", 0)
    assert int(table[np.arange(600), placed(table, numbers)].sum()) == least_cost(table, numbers)


def test_without_items_there_is_nothing_to_place() -> None:
    assert placed(np.zeros((0, 3), dtype=np.int64), np.zeros(3, dtype=np.int64)).tolist() == []


def test_costs_that_could_leave_64_bits_are_refused() -> None:
    with pytest.raises(CostRangeError, match="2 places"):
        placed(np.array([[0, 2**60]]), np.array([1, 0]))
