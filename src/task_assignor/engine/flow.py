"""The flow model asks OR-Tools here alone: a flow, cheapest or greatest, is checked, solved and handed back. What the nodes mean is elsewhere.

OR-Tools' Python face takes floats and wraps large numbers silently, and a wrong question can end the interpreter, so
everything is checked here before it is asked.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Sequence
from operator import mul
from typing import Any, Final, cast

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import BoolArray, Int64Array
from task_assignor.sdk.errors import StreamsException
from task_assignor.sdk.integers import INT64_MAX, plain_int
from task_assignor.sdk.text import shown

MAX_NODES: Final = 2**31 - 2
MAX_ARCS: Final = 2**30
"""OR-Tools numbers arcs with 31 bits and keeps a reverse arc for each."""
_ROUNDS: Final = 200
"""Prices that need more of them, with arcs that the flow was not asked with, most likely never end."""


class FlowError(StreamsException, ValueError):
    """A flow problem cannot be stated as it is: a number of the wrong kind, out of range, or too large to be solved exactly."""


class CostRangeError(FlowError):
    """The costs are too large to be solved exactly with so many nodes."""


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
        if not isinstance(values, np.ndarray):
            # A list of whole numbers too large for 64 bits can come out as floats, and beside a text all come out as texts.
            array = np.asarray(values, dtype=object)
        wrong = [value for value in array.tolist() if type(plain_int(value)) is not int]
        if wrong:
            advice = " Maybe use integers: astype(int), or int()." if isinstance(wrong[0], float) else ""
            raise FlowError(f"The {name} must be whole numbers, but one is {shown(wrong[0])}.{advice}")
    for extreme in (array.min(), array.max()):
        if not low <= int(extreme) <= high:
            raise FlowError(f"The {name} must be whole numbers from {low} to {high}, but one is {int(extreme)}.")
    return np.ascontiguousarray(array, dtype=np.int64)


class Arcs:
    """Collects arcs, array by array. Costs are per unit, one per goal.

    Args:
        goals: number of goals; what is cheapest by the first goal is decided among by the second, and so on.
    """

    def __init__(self, goals: int = 1) -> None:
        self._goals = goals
        self._parts: list[list[Int64Array]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self, tails: npt.ArrayLike, heads: npt.ArrayLike, capacities: npt.ArrayLike, *costs: npt.ArrayLike
    ) -> slice:
        """Add arcs; scalars are repeated, costs of later goals are 0 if left out. Returns their positions."""
        given = [("tails", tails), ("heads", heads), ("capacities", capacities), *(("costs", cost) for cost in costs)]
        found = [
            whole_numbers(f"{name} of arcs", np.atleast_1d(np.asarray(column)), 0, INT64_MAX) for name, column in given
        ]
        (length,) = np.broadcast_shapes(*(column.shape for column in found))
        part = [column if len(column) == length else np.full(length, column[0]) for column in found]
        part += [np.zeros(length, dtype=np.int64)] * (self._goals - len(costs))
        self._parts.append(part)
        start = self._count
        self._count += len(part[0])
        return slice(start, self._count)

    def columns(self) -> tuple[Int64Array, Int64Array, Int64Array, list[Int64Array]]:
        """(tails, heads, capacities, costs of each goal) of all arcs in the order they were added."""
        none = [np.zeros(0, dtype=np.int64)] * (3 + self._goals)
        if len(self._parts) != 1:
            # Kept, so that the next call need not do it again.
            self._parts = [[np.concatenate(parts) for parts in zip(none, *self._parts, strict=True)]]
        tails, heads, capacities, *costs = self._parts[0]
        return tails, heads, capacities, costs


@attrs.frozen(eq=False)
class Network:
    """A min-cost flow problem: node supplies and arcs.

    Args:
        supplies: (N,) what each node sends out (positive) or takes in (negative); they add up to 0.
        arcs: arcs between nodes 0..N-1, capacities and unit costs at least 0.
        longest_path: no simple path in the residual graph has more arcs; bounds the prices that the solver computes
            with. None: N.
        changes: for each goal but the first, by how much its cost can change on a simple cycle of the residual graph.
    """

    supplies: npt.ArrayLike
    arcs: Arcs
    longest_path: int | None = None
    changes: tuple[int, ...] = ()


def solve(network: Network) -> Int64Array:
    """The cheapest flow: least cost by the first goal, among these least by the second, and so on.

    Which of several such flows it is depends on the network alone, not on the order in which arcs were added (but
    for parallel arcs) nor on earlier calls; another version of OR-Tools may choose another one.

    Returns:
        (A,) flow of each arc, in the order in which the arcs were added.

    Raises:
        InfeasibleFlowError: supplies and capacities do not fit.
        CostRangeError: the costs are too large for exact arithmetic.
        FlowError: a number is of the wrong kind or out of range.
    """
    return solve_face(network, with_face=False)[0]


def solve_face(network: Network, with_face: bool = True) -> tuple[Int64Array, BoolArray]:
    """The cheapest flow, and where other flows that are as cheap may differ from it.

    Returns:
        (A,) flow of each arc as `solve` gives it; (A,) whether the arc may have another flow: all others have this one in
        every flow that is as good in all goals, and all flows that agree with this one on them are as good.

    Raises:
        FlowError: as `solve`.
    """
    supplies = whole_numbers("supplies", network.supplies, -INT64_MAX, INT64_MAX)
    tails, heads, capacities, goals = network.arcs.columns()
    total = _check(supplies, tails, heads)
    if total == 0:
        return np.zeros(len(tails), dtype=np.int64), np.zeros(len(tails), dtype=np.bool_)
    if not len(tails):
        raise InfeasibleFlowError("There are supplies, but no arcs.")
    # Costs are at least 0, so no arc needs to carry more than everything; this keeps sums of capacities small.
    capacities = np.minimum(capacities, total + 1)
    # A goal that costs nothing anywhere decides nothing, but would make the others' weights larger.
    matter = [number for number, cost in enumerate(goals) if not number or cost.any()]
    changes = tuple(network.changes[number - 1] for number in matter[1:])
    goals = [goals[number] // max(int(np.gcd.reduce(goals[number])), 1) for number in matter]
    order = order_by(tails * len(supplies) + heads)
    tails, heads, capacities, *goals = (column[order] for column in (tails, heads, capacities, *goals))
    longest = len(supplies) if network.longest_path is None else min(network.longest_path, len(supplies))
    combined = _combined(goals, changes, _largest_cost(len(supplies), longest))
    goals = goals if combined is None else [combined]
    flows, is_free = _in_stages(supplies, tails, heads, capacities, goals, longest, with_face)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return flows[back], is_free[back]


@attrs.frozen(eq=False)
class Prices:
    """What nodes are worth in a cheapest flow: it tells of arcs that the network does not have whether they could help.

    Args:
        of: for each goal the (N,) prices.
    """

    of: Sequence[Int64Array]

    def may_help(self, tails: Int64Array, heads: Int64Array, *costs: Int64Array | int) -> BoolArray:
        """Whether the flow may be cheaper with an arc of these costs, one for each goal. Where no arc may help, all of them do not."""
        shape = np.broadcast_shapes(tails.shape, heads.shape)
        helps, is_open = np.zeros(shape, dtype=np.bool_), np.ones(shape, dtype=np.bool_)
        for cost, price in zip(costs, self.of, strict=True):
            reduced = cost + price[tails] - price[heads]
            helps |= is_open & (reduced < 0)
            is_open &= reduced == 0
        return helps


def prices_of(network: Network, flows: Int64Array, others: Sequence[Int64Array] | Int64Array) -> Prices | None:
    """The prices of a flow that `solve` gave, if it would be cheapest with some more arcs, too.

    Args:
        network: the network.
        flows: its flow.
        others: the tails, the heads and for each goal the costs of arcs that it does not have.

    Returns:
        The prices; None: with these arcs another flow may be cheaper.
    """
    tails, heads, capacities, goals = network.arcs.columns()
    count = len(others[0])
    tails, heads, *goals = (
        np.concatenate([mine, more]) for mine, more in zip((tails, heads, *goals), others, strict=True)
    )
    spare = np.concatenate([capacities - flows, np.ones(count, dtype=np.int64)])
    flows = np.concatenate([flows, np.zeros(count, dtype=np.int64)])
    nodes = len(np.atleast_1d(network.supplies))
    is_open = np.ones(len(tails), dtype=np.bool_)
    most = _ROUNDS if count else None
    found = []
    for cost in goals:
        price = _prices(nodes, tails[is_open], heads[is_open], spare[is_open], flows[is_open], cost[is_open], most)
        if price is None:
            return None
        # The later goals are those of the arcs that the earlier ones leave free.
        is_open &= cost + price[tails] == price[heads]
        found.append(price)
    return Prices(found)


def _check(supplies: Int64Array, tails: Int64Array, heads: Int64Array) -> int:
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
    total: int = sum(supplies[supplies > 0].tolist())
    all_supplies: int = sum(supplies.tolist())
    if all_supplies != 0:
        raise InfeasibleFlowError(f"The supplies must add up to 0, but add up to {all_supplies}.")
    if total > INT64_MAX // max(count, 1):
        raise FlowError(f"The supplies add up to {total}, which is too large for {count} arcs.")
    return total


def _combined(goals: list[Int64Array], changes: tuple[int, ...], largest: int) -> Int64Array | None:
    """One cost for all goals; None: it would be too large.

    A flow is best, goal by goal, if no simple cycle of the residual graph makes it better. So a goal counts enough if it
    weighs more than all that the later ones can change on one simple cycle, which is much less than they can change at all.
    """
    combined = goals[0]
    most = int(combined.max())
    for cost, change in zip(goals[1:], changes, strict=True):
        most = most * (change + 1) + int(cost.max())
        if most > largest:
            return None
        combined = combined * (change + 1) + cost
    return combined if most <= largest else None


def _in_stages(
    supplies: Int64Array,
    tails: Int64Array,
    heads: Int64Array,
    capacities: Int64Array,
    goals: list[Int64Array],
    longest: int,
    with_face: bool,
) -> tuple[Int64Array, BoolArray]:
    """Goal after goal: what is the same in all flows that are best so far is fixed before the next goal."""
    fixed = np.zeros(len(tails), dtype=np.int64)
    is_free = np.ones(len(tails), dtype=np.bool_)
    for number, cost in enumerate(goals, 1):
        largest = _largest_cost(len(supplies), longest)
        if int(cost.max()) > largest:
            raise CostRangeError(
                f"The largest cost ({int(cost.max())}) is too large to be solved exactly with {len(supplies)} nodes; it must "
                f"be at most {largest}. Maybe use smaller costs of the same proportions."
            )
        flows = _ask(supplies, tails, heads, capacities, cost)
        total: Int64Array = fixed + flows
        if number == len(goals) and not with_face:
            break
        price = cast(Int64Array, _prices(len(supplies), tails, heads, capacities - flows, flows, cost))
        # An arc of another reduced cost than 0 is empty, or full, in every flow that is best so far.
        same = cost + price[tails] != price[heads]
        is_free &= ~same
        fixed[same] += flows[same]
        supplies = supplies.copy()
        np.subtract.at(supplies, tails[same], flows[same])
        np.add.at(supplies, heads[same], flows[same])
        capacities = np.where(same, 0, capacities)
    return total, is_free


def _prices(
    nodes: int,
    tails: Int64Array,
    heads: Int64Array,
    spare: Int64Array,
    flows: Int64Array,
    cost: Int64Array,
    most: int | None = None,
) -> Int64Array | None:
    """(N,) shortest distances in the residual graph from anywhere (Bellman and Ford); it has no negative cycle, or `most` rounds end it."""
    source = np.concatenate([tails[spare > 0], heads[flows > 0]])
    target = np.concatenate([heads[spare > 0], tails[flows > 0]])
    length = np.concatenate([cost[spare > 0], -cost[flows > 0]])
    order = order_by(target)
    source, length = source[order], length[order]
    reached, starts = np.unique(target[order], return_index=True)
    distance = np.zeros(nodes, dtype=np.int64)
    for _ in itertools.count() if most is None else range(most):
        shorter = np.minimum(np.minimum.reduceat(distance[source] + length, starts), distance[reached])
        if (shorter == distance[reached]).all():
            return distance
        distance[reached] = shorter
    return None


def _largest_cost(nodes: int, longest_path: int) -> int:
    """With costs up to this no number inside the solver can leave 64 bits."""
    # Cost scaling multiplies costs by (nodes + 1). A node's price falls, phase by phase, by at most the length of a
    # path to a deficit times the old plus the new precision (Goldberg and Tarjan). Precisions start at the largest cost
    # and shrink fivefold, so all falls together are at most 1.5 paths of largest costs. 8 is on the safe side.
    return INT64_MAX // (8 * (longest_path + 2) * (nodes + 1))


def exact_dot(first: Int64Array, second: Int64Array) -> int:
    """The sum of products as a Python integer, whatever its size."""
    used = np.flatnonzero(first)
    return sum(map(mul, first[used].tolist(), second[used].tolist()))


def most_flow(
    tails: Int64Array, heads: Int64Array, capacities: Int64Array, flows: Int64Array, source: int, sink: int
) -> Int64Array:
    """The greatest flow from source to sink that can be made of a given one by augmenting it.

    Args:
        tails: (A,) nodes that arcs leave.
        heads: (A,) nodes that arcs enter.
        capacities: (A,) most flow of each arc.
        flows: (A,) the flow there is; what leaves the source on any arc does not get less.
        source: node without arcs into it.
        sink: node without arcs out of it.

    Returns:
        (A,) flow of each arc.

    Raises:
        FlowError: a number is out of range.
    """
    spare = whole_numbers("spare capacities", capacities - flows, 0, INT64_MAX)
    flows = whole_numbers("flows", flows, 0, INT64_MAX)
    forward, backward = np.flatnonzero(spare), np.flatnonzero((flows > 0) & (tails != source) & (heads != sink))
    nodes = 1 + max(int(tails.max(initial=0)), int(heads.max(initial=0)), source, sink)
    if nodes > MAX_NODES or len(forward) + len(backward) > MAX_ARCS or sum(capacities.tolist()) > INT64_MAX // 4:
        raise FlowError(f"The flow model has {nodes} nodes and {len(tails)} arcs, more than the solver takes.")
    tail = np.concatenate([tails[forward], heads[backward]])
    head = np.concatenate([heads[forward], tails[backward]])
    room = np.concatenate([spare[forward], flows[backward]])
    order = order_by(tail * nodes + head)
    changes = np.zeros(len(order), dtype=np.int64)
    changes[order] = _ask_most(tail[order], head[order], room[order], source, sink)
    result = flows.copy()
    result[forward] += changes[: len(forward)]
    result[backward] -= changes[len(forward) :]
    return result


def _ask_most(tails: Int64Array, heads: Int64Array, capacities: Int64Array, source: int, sink: int) -> Int64Array:
    if not len(tails) or source not in tails or sink not in heads:
        return np.zeros(len(tails), dtype=np.int64)
    solver = _graph_module("max_flow").SimpleMaxFlow()
    arcs = solver.add_arcs_with_capacity(tails.astype(np.int32), heads.astype(np.int32), capacities)
    status = solver.solve(source, sink)
    if status != solver.OPTIMAL:
        raise FlowError(f"OR-Tools could not solve the flow model: {status}.")
    return cast(Int64Array, np.asarray(solver.flows(arcs), dtype=np.int64))


def _graph_module(name: str) -> Any:
    """A module of OR-Tools. The functions in its libraries are bound when first called: that saves half of the 40 ms.

    Imported here, since most who import this package solve nothing.
    """
    if not hasattr(sys, "setdlopenflags"):
        return importlib.import_module(f"ortools.graph.python.{name}")
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags & ~os.RTLD_NOW | os.RTLD_LAZY)
    try:
        return importlib.import_module(f"ortools.graph.python.{name}")
    finally:
        sys.setdlopenflags(flags)


def _ask(
    supplies: Int64Array, tails: Int64Array, heads: Int64Array, capacities: Int64Array, costs: Int64Array
) -> Int64Array:
    solver = _graph_module("min_cost_flow").SimpleMinCostFlow()
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
