"""As many claims as can be kept, where items have several or owners too many: by a greatest flow."""

from __future__ import annotations

import numpy as np

from task_assignor.engine.flow import most_flow
from task_assignor.engine.items import Pairs
from task_assignor.sdk.columns import BoolArray, Int64Array


def most_kept(claims: Pairs, kept: BoolArray, needs: Int64Array, low: Int64Array, high: Int64Array) -> BoolArray:
    """(P,) which claims are kept: as many as can be, made of those that are kept so far.

    Items that have lost theirs have others, or others make room for them.

    Args:
        claims: who claims which item.
        kept: (P,) claims that are kept so far, within all bounds.
        needs: (N,) most claims of each item that are kept.
        low: (C,) least items that each owner has in the end; all items are somewhere then.
        high: (C,) most of them.
    """
    has, claimed = (np.bincount(item, minlength=len(needs)) for item in (claims.item[kept], claims.item))
    # An item all of whose claims are kept has no other, and makes no room: it stays as it is.
    is_open = claimed > has
    if (has == needs)[is_open].all():
        return kept
    open_items, chosen = np.flatnonzero(is_open), np.flatnonzero(is_open[claims.item])
    items, owners, every = len(open_items), len(low), np.arange(len(low))
    item, owner = np.searchsorted(open_items, claims.item[chosen]), claims.owner[chosen]
    used = np.bincount(claims.owner[kept], minlength=owners)
    extra = np.maximum(used - low, 0)
    hub, source, sink = items + owners, items + owners + 1, items + owners + 2
    # What owners have beyond their least numbers is little, all in all.
    most_extra = np.array([needs.sum() - low.sum()])
    tails = np.concatenate([item, np.full(items, source), items + every, items + every, [hub]])
    heads = np.concatenate([items + owner, np.arange(items), np.full(owners, sink), np.full(owners, hub), [sink]])
    capacities = np.concatenate([np.ones_like(item), needs[open_items], low, high - low, most_extra])
    flows = np.concatenate([kept[chosen].astype(np.int64), has[open_items], used - extra, extra, [extra.sum()]])
    found = kept.copy()
    found[chosen] = most_flow(tails, heads, capacities, flows, source, sink)[: len(chosen)] > 0
    return found
