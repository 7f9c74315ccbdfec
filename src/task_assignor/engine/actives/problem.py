"""The question that `engine/actives/allocation.py` answers, and the answer: who gets which item, and which goals were reached exactly."""

from __future__ import annotations

import enum

import attrs
import numpy as np

from task_assignor.engine.items import Pairs, quotas
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk.columns import BoolArray, Int32Array, Int64Array


class ItemGoal(enum.Enum):
    """What is sought, in this order."""

    SHARES = "every owner has floor or ceil of its share"
    COST = "fewest claims are lost, or the cost on racks is least"
    EVEN_STATEFUL = "stateful items are even"
    EVEN = "all items are even"
    STATE = "items that move go where their state is"
    LEAST_BEHIND = "there they are least behind"


@attrs.frozen(eq=False)
class RackCosts:
    """What items cost on racks, in place of lost claims alone.

    Args:
        costs: what items cost on racks: cells are racks.
        move: cost of an item that is with none of its claimants.
        rack: (C,) rack of each owner.
    """

    costs: RowCosts
    move: int
    rack: Int64Array

    @classmethod
    def nothing(cls, items: int, owners: int) -> RackCosts:
        """One rack, where only lost claims cost."""
        return cls(RowCosts.nothing(np.zeros(items, dtype=np.int64)), 1, np.zeros(owners, dtype=np.int64))


@attrs.frozen(eq=False)
class Bearers:
    """Who bears the loads of owners: one may be an owner in each of several pools.

    Args:
        of: (C,) bearer of each owner.
        weight: (B,) weights of the bearers, at least 1.
        load: (B,) what each bears beside the items.
        size: load of one item, in the same unit.
    """

    of: Int64Array
    weight: Int64Array
    load: Int64Array
    size: int


def _newest(claims: Pairs) -> Pairs:
    return claims.newest()


@attrs.frozen(eq=False)
class Problem:
    """Items to be allocated.

    Args:
        is_stateful: (N,) the items that are spread first.
        weight: (C,) weights of the owners, at least 1.
        claims: who had which item, sorted by item, then owner; of several claims on one item only those of the newest
            generation count, and are kept here.
        state: who has state of which item, and how far behind it is.
        keep_all_claims: claims come before shares: nobody loses an item to make the shares even.
        share: (C,) least and most items of each owner, decided elsewhere; by default floor and ceil of the share by weight.
        racks: what items cost on racks; None: only lost claims count.
        item_pool: (N,) pool of each item: it goes to owners of that pool alone; by default there is one.
        owner_pool: (C,) pool of each owner, with `share`, which allows the items of the pool.
        bearers: who bears the loads of owners, with `share`: these loads are even before claims are looked at; None: each
            owner bears its own, which is even as `ItemGoal` says.
    """

    is_stateful: BoolArray
    weight: Int64Array
    claims: Pairs = attrs.field(converter=_newest)
    state: Pairs
    keep_all_claims: bool = False
    share: tuple[Int64Array, Int64Array] = attrs.Factory(
        lambda self: quotas(self.weight, len(self.is_stateful)), takes_self=True
    )
    racks: RackCosts | None = None
    item_pool: Int64Array = attrs.Factory(lambda self: np.zeros(len(self.is_stateful), dtype=np.int64), takes_self=True)
    owner_pool: Int64Array = attrs.Factory(lambda self: np.zeros(len(self.weight), dtype=np.int64), takes_self=True)
    bearers: Bearers | None = None


@attrs.frozen(eq=False)
class Allocation:
    """The answer: an owner per item.

    Args:
        owner: (N,) owner numbers; -1: there is no owner at all.
        exact: the goals that were reached exactly; for the others, very large inputs got a good answer.
    """

    owner: Int32Array
    exact: frozenset[ItemGoal] = frozenset(ItemGoal)
