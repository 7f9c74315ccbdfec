"""Single items follow a flow of many: from node to node, as many along each arc as flow there."""

from __future__ import annotations

import numpy as np

from task_assignor.engine.items import rank_within, starts_of
from task_assignor.sdk.arrays import are_in, order_by
from task_assignor.sdk.columns import Int64Array


def along(
    at: Int64Array, tail: Int64Array, head: Int64Array, flow: Int64Array, weight: Int64Array | None = None
) -> Int64Array:
    """(N,) where items are after those at tails of arcs have gone along these: smaller numbers on earlier arcs.

    Args:
        at: (N,) node of each item.
        tail: (A,) tails of arcs; all items there leave.
        head: (A,) their heads.
        flow: (A,) how many go along each.
        weight: (N,) what each item counts for: it goes along the arc where its middle falls. None: 1.
    """
    order = order_by(tail)
    if weight is None:
        return _sent(at, tail, np.repeat(head[order], flow[order]))
    order = order[flow[order] > 0]
    tail, head, flow = tail[order], head[order], flow[order]
    items = np.flatnonzero(are_in(at, tail))
    if not len(items):
        return at
    items = items[order_by(at[items])]
    node, own, end = at[items], weight[items], np.cumsum(flow)
    before = np.cumsum(own) - own
    start = before[starts_of(node[1:] != node[:-1])] - (end - flow)[np.searchsorted(tail, node)]
    arc = np.searchsorted(2 * end, 2 * (before - start) + own)
    after = at.copy()
    # What is past all that flows takes the last arc.
    after[items] = head[np.minimum(arc, np.searchsorted(tail, node, side="right") - 1)]
    return after


def dealt(
    at: Int64Array, tail: Int64Array, head: Int64Array, flow: Int64Array, level: Int64Array, weight: Int64Array
) -> Int64Array:
    """The same, but items of neighbouring numbers go along different arcs: one after the other where it is emptiest.

    Args:
        at: as for `along`.
        tail: as for `along`.
        head: as for `along`.
        flow: as for `along`.
        level: (A,) how many items there are at the end of each arc before.
        weight: (A,) how many count as one there.
    """
    arc = np.repeat(np.arange(len(tail)), flow)
    emptiness = (level[arc] + rank_within(arc)) / weight[arc]
    order = np.lexsort((head[arc], emptiness, tail[arc]))
    return _sent(at, tail, head[arc[order]])


def _sent(at: Int64Array, tail: Int64Array, to: Int64Array) -> Int64Array:
    """Items at the tails, by tail and number, go to these nodes."""
    leaves = np.zeros(1 + max(int(at.max(initial=0)), int(tail.max(initial=0))), dtype=np.bool_)
    leaves[tail] = True
    items = np.flatnonzero(leaves[at])
    after = at.copy()
    after[items[order_by(at[items])]] = to
    return after
