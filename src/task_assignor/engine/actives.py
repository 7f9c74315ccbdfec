"""Who gets which item: by two flows, a coarse one that knows nothing of state, and a fine one within what that leaves open.

It knows neither tasks nor Kafka: items and owners are numbers. The networks are in `network.py` and `state_network.py`,
what even means in `even.py`; the README has the picture.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from task_assignor.engine.by_racks import MOST_ENTRIES, split_by_rack
from task_assignor.engine.items import Pairs, rank_within
from task_assignor.engine.network import ActivesNetwork, Best
from task_assignor.engine.problem import NOBODY, Allocation, Goal, Problem
from task_assignor.engine.state_network import StateNetwork
from task_assignor.engine.transport import MOST_PLACES
from task_assignor.sdk.columns import Int64Array

MOST_CHOICES: Final = 300_000
"""Owners that classes of items can choose between, in all; with more each item looks at one owner at a time."""
MOST_TRIES: Final = 4
"""How many owners an item looks at then, one after the other."""


def allocate(problem: Problem) -> Allocation:
    """Give every item an owner.

    In this order: every owner has floor or ceil of its share by weight, or the share that is given (unless all claims are
    to be kept); fewest claims are lost, or the cost on racks is least; the sum of load² / weight is least, of stateful
    items, then of all; as many items as can be stay or go where their state is; as few owners as can be, added up over
    those that go, are less behind; fewest claims are lost, where racks cost.

    Only where very many items are claimed by several owners each, or have state on several, are the goals from the fewest
    claims on, or from state on, not reached exactly: then each of these items looks at one owner at a time, a few times.
    So it is with the goals after the shares where very many items cost differently on many racks (`by_racks.py`).
    """
    items = len(problem.is_stateful)
    if not len(problem.weight) or not items:
        return Allocation(np.full(items, NOBODY, dtype=np.int32))
    claims, inexact = problem.newest_claims(), set[Goal]()
    racks = problem.racks
    if racks is not None and len(racks.entry_row) > MOST_ENTRIES and racks.racks <= MOST_PLACES:
        problem = split_by_rack(problem, racks, claims)
        claims, inexact = problem.claims, set(Goal) - {Goal.SHARES}
    network = ActivesNetwork(problem, claims)
    if network.choices <= MOST_CHOICES:
        best = network.solve()
    else:
        inexact |= set(Goal) - {Goal.CLAIMS if problem.keep_all_claims else Goal.SHARES}
        network, best = _one_claim_at_a_time(problem, claims)
    second = StateNetwork(network, best)
    if second.choices <= MOST_CHOICES:
        owner = second.owners()
    else:
        inexact |= {Goal.STATE, Goal.LEAST_BEHIND}
        tried = np.zeros(items, dtype=np.int64)
        for _ in range(MOST_TRIES):
            owner = second.owners(tried)
            tried[second.away(owner)] += 1
    return Allocation(owner.astype(np.int32), frozenset(Goal) - inexact)


def _one_claim_at_a_time(problem: Problem, claims: Pairs) -> tuple[ActivesNetwork, Best]:
    """The first flow with one claim of each item; items that lose it look at the next one, so fewer and fewer are lost."""
    number = np.bincount(claims.item, minlength=len(problem.is_stateful))
    place = rank_within(claims.item)
    # At first in turn, so that no owner is asked for too much.
    tried: Int64Array = np.cumsum(number > 1).astype(np.int64)
    for attempt in range(MOST_TRIES):
        network = ActivesNetwork(problem, claims.where(place == (tried % np.maximum(number, 1))[claims.item]))
        best = network.solve()
        lost = _losing(best)
        if attempt == MOST_TRIES - 1 or not (number[lost] > 1).any():
            break
        tried[lost] += 1
    return network, best


def _losing(best: Best) -> Int64Array:
    """As many items of each class as lose their claim: those of the greatest numbers."""
    kept = np.bincount(best.claims.item, best.kept, len(best.classes)).astype(np.int64)
    return np.flatnonzero(rank_within(best.classes.of) >= kept[best.classes.of])
