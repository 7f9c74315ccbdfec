"""Who gets which item: by two flows, a coarse one that knows nothing of state, and a fine one within what that leaves open.

It knows neither tasks nor Kafka: items and owners are numbers. The networks are in `network.py` and `state_network.py`,
what even means in `even.py`; the README has the picture.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from task_assignor.engine.actives.network import ActivesNetwork
from task_assignor.engine.actives.problem import Allocation, ItemGoal, Problem
from task_assignor.engine.actives.racks_first import split_by_rack
from task_assignor.engine.actives.state_network import StateNetwork
from task_assignor.engine.claims import most_kept
from task_assignor.engine.even import unit_of_prices
from task_assignor.engine.items import NOBODY, Pairs, rank_within
from task_assignor.engine.places.cells_first import differ_too_much
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

    Only where very many items are claimed by several owners each, or have state on several, are the goals after the fewest
    claims (with costs on racks: after the shares), or from state on, not reached exactly: then each of these items looks at
    one claimant, chosen so that fewest claims are lost, or at one owner with state at a time, a few times. So it is with
    the goals after the shares where very many items cost differently on many racks (`racks_first.py`), and with the
    stateful items of owners that share bearers, where their weights have no common multiple of some thousands.
    """
    items = len(problem.is_stateful)
    if not len(problem.weight) or not items:
        return Allocation(np.full(items, NOBODY, dtype=np.int32))
    racks, inexact = problem.racks, set[ItemGoal]()
    if racks is not None and differ_too_much(racks.costs) and (split := split_by_rack(problem, racks)) is not None:
        problem, inexact = split, set(ItemGoal) - {ItemGoal.SHARES}
    if problem.bearers is not None and unit_of_prices(problem.weight) is None:
        inexact |= {ItemGoal.EVEN_STATEFUL, ItemGoal.STATE, ItemGoal.LEAST_BEHIND}
    network = ActivesNetwork(problem)
    if network.choices <= MOST_CHOICES:
        best = network.solve()
    else:
        exact = {ItemGoal.SHARES}
        if problem.bearers is not None:
            # Their loads come before claims.
            exact |= {ItemGoal.EVEN}
        elif racks is None:
            exact |= {ItemGoal.COST}
        inexact |= set(ItemGoal) - ({ItemGoal.COST} if problem.keep_all_claims else exact)
        claims = one_claim_each(problem.claims, items, *problem.share)
        network = ActivesNetwork(attrs.evolve(problem, claims=claims))
        best = network.solve()
    second = StateNetwork(network, best)
    if second.choices <= MOST_CHOICES:
        owner = second.owners()
    else:
        inexact |= {ItemGoal.STATE, ItemGoal.LEAST_BEHIND}
        tried = np.zeros(items, dtype=np.int64)
        for _ in range(MOST_TRIES):
            owner = second.owners(tried)
            tried[second.away(owner)] += 1
    return Allocation(owner.astype(np.int32), frozenset(ItemGoal) - inexact)


def one_claim_each(claims: Pairs, items: int, low: Int64Array, high: Int64Array) -> Pairs:
    """One claim of each item, so that as many as can be are kept within the shares.

    Args:
        claims: those that count.
        items: number of items.
        low: (C,) least items of each owner.
        high: (C,) most items of each owner.
    """
    number = np.bincount(claims.item, minlength=items)
    # At first in turn, so that no owner is asked for too much.
    turn = np.cumsum(number > 1) % np.maximum(number, 1)
    is_first = rank_within(claims.item) == turn[claims.item]
    first = np.flatnonzero(is_first)
    kept = np.zeros(len(claims), dtype=np.bool_)
    kept[first] = rank_within(claims.owner[first]) < low[claims.owner[first]]
    kept = most_kept(claims, kept, np.ones(items, dtype=np.int64), low, high)
    has_kept = np.bincount(claims.item[kept], minlength=items) > 0
    return claims.where(kept | (is_first & ~has_kept[claims.item]))
