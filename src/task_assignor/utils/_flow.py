"""The one module that touches OR-Tools: a min-cost flow is checked, solved and handed back. What the nodes mean is elsewhere.

OR-Tools' Python face takes floats and wraps large numbers silently, and a wrong question can end the interpreter, so
everything is checked here before it is asked.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.errors import StreamsException

INT64_MAX: Final = 2**63 - 1
MAX_NODES: Final = 2**31 - 2
MAX_ARCS: Final = 2**30
"""OR-Tools numbers arcs with 31 bits and keeps a reverse arc for each."""


class FlowError(StreamsException, ValueError):
    """A flow problem cannot be stated as it is: a number of the wrong kind, out of range, or too large to be solved exactly."""


class InfeasibleFlowError(FlowError):
    """No flow meets all supplies and capacities."""


def whole_numbers(name: str, values: npt.ArrayLike, low: int, high: int) -> Int64Array:
    """`values` as int64, shape (n,).

    Raises:
        FlowError: they are not whole numbers from `low` to `high`, or not one-dimensional.
    """
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        raise FlowError(f"The {name} must be a list of whole numbers.") from None
    if array.ndim != 1:
        raise FlowError(f"The {name} must be a list of whole numbers, but has the shape {array.shape}.")
    if not array.size:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        wrong = [value for value in array.tolist() if type(value) is not int]
        if wrong:
            raise FlowError(f"The {name} must be whole numbers, but one is {wrong[0]!r}.")
    for extreme in (array.min(), array.max()):
        if not low <= int(extreme) <= high:
            raise FlowError(f"The {name} must be whole numbers from {low} to {high}, but one is {int(extreme)}.")
    return np.ascontiguousarray(array, dtype=np.int64)


class Arcs:
    """Collects arcs, array by array. Costs are per unit."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64Array, Int64Array, Int64Array, Int64Array]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, tails: npt.ArrayLike, heads: npt.ArrayLike, capacities: npt.ArrayLike, costs: npt.ArrayLike) -> slice:
        """Add arcs; scalars are repeated. Returns their positions."""
        columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(part)) for part in (tails, heads, capacities, costs)))
        names = ("tails", "heads", "capacities", "costs")
        tail, head, capacity, cost = (
            whole_numbers(f"{name} of arcs", column, 0, INT64_MAX) for name, column in zip(names, columns, strict=True)
        )
        self._parts.append((tail, head, capacity, cost))
        start = self._count
        self._count += len(tail)
        return slice(start, self._count)

    def columns(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """(tails, heads, capacities, costs) of all arcs in the order they were added."""
        if not self._parts:
            none = np.zeros(0, dtype=np.int64)
            return none, none, none, none
        tails, heads, capacities, costs = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        return tails, heads, capacities, costs


@attrs.frozen(eq=False)
class Network:
    """A min-cost flow problem: node supplies and arcs.

    Args:
        supplies: (N,) what each node sends out (positive) or takes in (negative); they add up to 0.
        arcs: arcs between nodes 0..N-1, capacities and unit costs at least 0.
        longest_path: no simple path in the residual graph has more arcs; bounds the prices that the solver computes
            with. None: N.
    """

    supplies: npt.ArrayLike
    arcs: Arcs
    longest_path: int | None = None


def solve(network: Network) -> Int64Array:
    """The cheapest flow.

    Which of several cheapest flows it is depends on the network alone, not on the order in which arcs were added (but
    for parallel arcs) nor on earlier calls; another version of OR-Tools may choose another one.

    Returns:
        (A,) flow of each arc, in the order in which the arcs were added.

    Raises:
        InfeasibleFlowError: supplies and capacities do not fit.
        FlowError: a number is of the wrong kind or out of range, or the costs are too large for exact arithmetic.
    """
    supplies = whole_numbers("supplies", network.supplies, -INT64_MAX, INT64_MAX)
    tails, heads, capacities, costs = network.arcs.columns()
    nodes, count = len(supplies), len(tails)
    total = _check(network, supplies, tails, heads, costs)
    if total == 0:
        return np.zeros(count, dtype=np.int64)
    if not count:
        raise InfeasibleFlowError("There are supplies, but no arcs.")
    # Costs are at least 0, so no arc needs to carry more than everything; this keeps sums of capacities small.
    capacities = np.minimum(capacities, total)
    divisor = int(np.gcd.reduce(costs))
    if divisor > 1:
        costs = costs // divisor
    order = _order(tails, heads, nodes)
    if order is not None:
        tails, heads, capacities, costs = tails[order], heads[order], capacities[order], costs[order]
    flows = _ask(supplies, tails, heads, capacities, costs)
    if order is None:
        return flows
    result = np.empty(count, dtype=np.int64)
    result[order] = flows
    return result


def _check(network: Network, supplies: Int64Array, tails: Int64Array, heads: Int64Array, costs: Int64Array) -> int:
    nodes, count = len(supplies), len(tails)
    if nodes > MAX_NODES or count > MAX_ARCS:
        raise FlowError(
            f"The flow model has {nodes} nodes and {count} arcs, more than the solver takes ({MAX_NODES}, {MAX_ARCS}). "
            "Maybe use fewer classes of tasks or fewer exceptions."
        )
    for name, ends in (("tail", tails), ("head", heads)):
        if count and int(ends.max()) >= nodes:
            raise FlowError(f"The {name} of an arc ({int(ends.max())}) must be the number of a node, 0 to {nodes - 1}.")
    # In Python integers: sums of int64 columns wrap around without a word.
    total = _sum(supplies[supplies > 0])
    if total + _sum(supplies[supplies < 0]) != 0:
        raise InfeasibleFlowError(f"The supplies must add up to 0, but add up to {_sum(supplies)}.")
    if total > INT64_MAX // max(count, 1):
        raise FlowError(f"The supplies add up to {total}, which is too large for {count} arcs.")
    largest = int(costs.max()) // max(int(np.gcd.reduce(costs)), 1) if count else 0
    longest = nodes if network.longest_path is None else min(network.longest_path, nodes)
    if not is_exact(largest, nodes, longest):
        raise FlowError(
            f"The largest cost ({largest}) is too large to be solved exactly with {nodes} nodes; it must be below "
            f"{_largest_cost(nodes, longest) + 1}. Maybe use smaller costs of the same proportions."
        )
    return total


def _largest_cost(nodes: int, longest_path: int) -> int:
    # Cost scaling multiplies costs by (nodes + 1). A node's price falls, phase by phase, by at most the length of a
    # path to a deficit times the old plus the new precision (Goldberg and Tarjan). Precisions start at the largest cost
    # and shrink fivefold, so all falls together are at most 1.5 paths of largest costs. 8 is on the safe side.
    return INT64_MAX // (8 * (longest_path + 2) * (nodes + 1))


def is_exact(largest_cost: int, nodes: int, longest_path: int) -> bool:
    """Whether no number inside the solver can leave 64 bits."""
    return largest_cost <= _largest_cost(nodes, longest_path)


def _sum(values: Int64Array) -> int:
    # Exact: halves of 32 bits cannot overflow for less than 2^31 values.
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def exact_dot(first: Int64Array, second: Int64Array) -> int:
    """The sum of products as a Python integer, whatever its size."""
    if not len(first):
        return 0
    largest = max(int(np.abs(first).max()), 1) * max(int(np.abs(second).max()), 1)
    if largest <= INT64_MAX // len(first):
        return int(np.dot(first, second))
    return sum(map(math.prod, zip(first.tolist(), second.tolist(), strict=True)))


def _order(tails: Int64Array, heads: Int64Array, nodes: int) -> npt.NDArray[np.intp] | None:
    """The order of the arcs by (tail, head); None: they are in it."""
    keys = tails * nodes + heads
    if (keys[1:] >= keys[:-1]).all():
        return None
    return np.argsort(keys, kind="stable")


def _ask(
    supplies: Int64Array, tails: Int64Array, heads: Int64Array, capacities: Int64Array, costs: Int64Array
) -> Int64Array:
    from ortools.graph.python import min_cost_flow

    solver: Any = min_cost_flow.SimpleMinCostFlow()
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        tails.astype(np.int32), heads.astype(np.int32), capacities, costs
    )
    solver.set_nodes_supplies(np.arange(len(supplies), dtype=np.int32), supplies)
    status = solver.solve()
    # Flows of anything but a solved problem must not be read: OR-Tools would end the interpreter.
    if status == solver.INFEASIBLE:
        raise InfeasibleFlowError("The supplies do not fit through the capacities.")
    if status != solver.OPTIMAL:
        raise FlowError(f"OR-Tools could not solve the flow model: {status}.")
    return cast(Int64Array, np.asarray(solver.flows(arcs), dtype=np.int64))
