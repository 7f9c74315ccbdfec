"""The residual graph of a flow that is cheapest: what other flows as cheap have in common with it."""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.columns import Int64Array

_MOST_ROUNDS: Final = 30


def prices(
    nodes: int, tails: Int64Array, heads: Int64Array, spare: Int64Array, flows: Int64Array, cost: Int64Array
) -> Int64Array:
    """(N,) shortest distances in the residual graph from anywhere (Bellman and Ford); it has no negative cycle."""
    source = np.concatenate([tails[spare > 0], heads[flows > 0]])
    target = np.concatenate([heads[spare > 0], tails[flows > 0]])
    length = np.concatenate([cost[spare > 0], -cost[flows > 0]])
    order = order_by(target)
    source, length = source[order], length[order]
    reached, starts = np.unique(target[order], return_index=True)
    distance = np.zeros(nodes, dtype=np.int64)
    while True:
        shorter = np.minimum(np.minimum.reduceat(distance[source] + length, starts), distance[reached])
        if (shorter == distance[reached]).all():
            return distance
        distance[reached] = shorter


def circles(nodes: int, source: Int64Array, target: Int64Array) -> Int64Array:
    """(N,) a number per node, equal for nodes that can reach each other; after many rounds perhaps for some more.

    In a round every node takes the greatest number that reaches it; who reaches the node of that number back is of its
    circle, and leaves.
    """
    circle = np.full(nodes, -1)
    for _ in range(_MOST_ROUNDS):
        if not len(source):
            break
        number = _spread(np.arange(nodes), source, target)
        inside = number[source] == number[target]
        source, target = source[inside], target[inside]
        returns = _spread((number == np.arange(nodes)).astype(np.int64), target, source) > 0
        circle = np.where(returns & (circle < 0), number, circle)
        left = ~(returns[source] | returns[target])
        source, target = source[left], target[left]
    open_nodes = np.append(source, target)
    alone = circle < 0
    circle[alone] = nodes + np.arange(nodes)[alone]
    circle[open_nodes] = 2 * nodes
    return circle


def _spread(number: Int64Array, source: Int64Array, target: Int64Array) -> Int64Array:
    """(N,) the greatest number from which each node can be reached."""
    if not len(source):
        return number
    number = number.copy()
    order = order_by(target)
    source = source[order]
    reached, starts = np.unique(target[order], return_index=True)
    while True:
        greater = np.maximum(np.maximum.reduceat(number[source], starts), number[reached])
        if (greater == number[reached]).all():
            return number
        number[reached] = greater
