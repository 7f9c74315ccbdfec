"""Deals items to owners who all may have any of them: as Kafka's sticky assignor does it for equal subscriptions, in arrays.

Source: `AbstractStickyAssignor.ConstrainedAssignmentBuilder` of Kafka 4.3 without racks, decision for decision. One order
is left to a hash map there, the members that keep one item more than others: here the first by id do.
"""

from __future__ import annotations

import numpy as np

from task_assignor.group.consumers.table import NOBODY
from task_assignor.sdk.columns import Int64Array


def deal_evenly(holder: Int64Array, keep_order: Int64Array, members: int) -> Int64Array:
    """Sizes differ by one at most; as few items as possible leave their holders.

    Args:
        holder: (P,) member that has an item; -1: nobody.
        keep_order: (P,) the rank of an item among those of its holder: the first stay.
        members: how many members there are, at least one.

    Returns:
        (P,) the member that gets each item. Free items go round, in their order, over members that have less than
        the smaller size, by position; then one each to those who have it, whoever came to it first.
    """
    held = np.bincount(holder[holder != NOBODY], minlength=members)
    least, more = divmod(len(holder), members)
    rich = np.flatnonzero(held > least)
    keeps = np.minimum(held, least)
    keeps[rich[:more]] += 1
    owner = keep_first(holder, keep_order, keeps)
    missing = least - keeps
    poor = np.flatnonzero(missing > 0)
    exact = np.flatnonzero((held >= least) & (keeps == least))
    later = poor[np.argsort(missing[poor], kind="stable")]
    extra = np.concatenate([exact, later])[: max(more - len(rich), 0)]
    free = np.flatnonzero(owner == NOBODY)
    owner[free] = np.concatenate([rounds(poor, missing[poor]), extra])
    return owner


def keep_first(holder: Int64Array, keep_order: Int64Array, keeps: Int64Array) -> Int64Array:
    """(P,) holders of the first `keeps[m]` items of each member m by `keep_order`; the other items become free."""
    owner = np.full(len(holder), NOBODY, dtype=np.int64)
    claimed = np.flatnonzero(holder != NOBODY)
    claimed = claimed[np.lexsort((keep_order[claimed], holder[claimed]))]
    members = holder[claimed]
    starts = np.searchsorted(members, np.arange(len(keeps)))
    stays = claimed[np.arange(len(claimed)) - starts[members] < keeps[members]]
    owner[stays] = holder[stays]
    return owner


def rounds(members: Int64Array, counts: Int64Array) -> Int64Array:
    """(sum of counts,) the members in rounds: in round r all, in their order, whose count is greater than r."""
    turns = np.repeat(members, counts)
    ends = np.cumsum(counts)
    number = np.arange(len(turns)) - np.repeat(ends - counts, counts)
    found: Int64Array = turns[np.argsort(number, kind="stable")]
    return found
