"""All copies of all items at once, by one flow over owners, or over cells of owners that are alike."""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.copies.deal import deal, formers
from task_assignor.engine.copies.flow import MOST_PAIRS, Cells, Freed, FreedFlow, Special, TooManyPairsError, bit_count
from task_assignor.engine.copies.goals import CopiedItems
from task_assignor.engine.flow import InfeasibleFlowError
from task_assignor.engine.items import NOBODY, rank_within, starts_of, sums
from task_assignor.sdk.arrays import distinct, order_by
from task_assignor.sdk.columns import Int64Array


def pairs_at_once(
    items: CopiedItems, cells: Cells, most_pairs: int, with_tags: bool = True
) -> tuple[Int64Array, Int64Array]:
    """Pairs (item, cell) of all copies; what one flow cannot say of tags is thought to be as good as it can be.

    Raises:
        TooManyPairsError: there are more pairs of class and cell than that.
        InfeasibleFlowError: the cells have no room for all copies.
    """
    room, blocked = items.problem.room, np.append(cells.of_owner, NOBODY)[items.main]
    key, wanted = _cover(items)
    if not with_tags:
        key, wanted = np.full_like(key, NOBODY), np.zeros_like(wanted)
    freed = Freed(
        row=items.row,
        special=Special(
            item=items.claim_item,
            cell=cells.of_owner[items.claim_owner],
            is_away=np.zeros(len(items.claim_item), dtype=np.bool_),
            behind=items.claim_behind,
            prefer=items.claim_rank,
        ),
        supply=items.needs,
        present=items.present(items.main[:, None]),
        wanted=wanted,
        blocked=blocked[:, None],
        cover_key=key,
        is_new=True,
    )
    prices = items.prices if with_tags else attrs.evolve(items.prices, in_flows=(0, 0))
    least, most = (sums(cells.of_owner, part, len(cells.zone)) for part in (room.low, room.high))
    return FreedFlow(freed, cells, prices, most_pairs).pairs(least, most)


def _cover(items: CopiedItems) -> tuple[Int64Array, Int64Array]:
    """(R,) of several copies the key that counts, and (R,) values that are wanted beyond those of the main owner.

    With several keys and copies no flow can say how different holders are: the key that must bring most counts, the
    others are thought to bring as much as they can.
    """
    known = bit_count(items.present(items.main[:, None]))
    wanted = np.maximum(items.wanted - known, 0)
    key = np.full(len(items), NOBODY, dtype=np.int64)
    several = items.needs > 1
    most = []
    for column in items.value.T:
        values = len(distinct(column[column >= 0]))
        has = (items.main >= 0) & (column[items.main] >= 0)
        most.append(np.minimum(values - has, items.needs))
    best = np.zeros(len(items), dtype=np.int64)
    for number, mine in enumerate(most):
        others = sum((other for place, other in enumerate(most) if place != number), np.zeros_like(mine))
        need = np.minimum(wanted - others, mine)
        if not items.problem.keeps_tags:
            need = mine
        better = several & (need > best)
        key[better], best[better] = number, need[better]
    return key, np.where(several, best, wanted)


@attrs.frozen(eq=False)
class AtOnce:
    """What `dealt_at_once` found.

    Args:
        holders: (R, H) the placement.
        is_best: no other with these loads has more of the tag values, or as many and costs less.
        bound: what no placement with as many tag values is below; None: that is not known.
    """

    holders: Int64Array
    is_best: bool
    bound: int | None


def dealt_at_once(items: CopiedItems) -> AtOnce | None:
    """A placement by one flow over cells of owners with equal tags in one zone, who get the copies dealt out.

    None: there are too many classes for that, or copies would meet, or no costs or more tags than one flow can count.
    """
    if items.is_free or items.needs_turns:
        return None
    cells = items.of_alike(parts(items.of_alike().of_owner, items.problem.room.high, items.most))
    try:
        item, cell = pairs_at_once(items, cells, MOST_PAIRS)
    except (TooManyPairsError, InfeasibleFlowError):
        return None
    order = order_by(item, cell)
    item, cell = item[order], cell[order]
    open_items, room = items.table(item[:0], item[:0]), (items.problem.room.low, items.problem.room.high)
    former = formers(items, open_items, item, cell, cells.of_owner)
    found = deal(open_items, item, cell, former, former < 0, cells.of_owner, room)
    if found is None:
        return None
    # Copies that met may have gone to other cells; and owners may have no room for all that would stay in their cell.
    prices, moved, total = items.prices, int((former < 0).sum()), items.total(found)
    cost = int(prices.costs.at(items.row[item], cells.zone[cell]).sum()) * prices.traffic + moved * prices.move
    reached, chosen = np.append(cells.of_owner, NOBODY)[found[:, 1:]], items.table(item, cell)[:, 1:]
    is_best = total.cost <= cost and bool((np.sort(reached, axis=1) == np.sort(chosen, axis=1)).all())
    return AtOnce(found, is_best, cost if is_best or not items.value.shape[1] else None)


def parts(of_owner: Int64Array, load: Int64Array, most: int) -> Int64Array:
    """(C,) parts of cells, so that up to `most` copies of any item (or as many as owners) can be dealt out in each.

    If no item has more copies there than the load of all divided by the greatest one's, they can (Gale and Ryser). So owners
    with the greatest loads are parts of their own until that holds for the rest.
    """
    order = order_by(of_owner, -load)
    cell, load = of_owner[order], load[order]
    first = starts_of(cell[1:] != cell[:-1])
    size = np.bincount(cell)[cell] - (np.arange(len(cell)) - first)
    before = np.cumsum(load) - load
    rest = sums(cell, load, int(cell.max(initial=-1)) + 1)[cell] - (before - before[first])
    alone = np.flatnonzero(np.minimum(most, size) * load > rest)
    last = np.full(int(cell.max(initial=-1)) + 1, -1)
    last[cell[alone]] = alone
    part = np.empty_like(order)
    part[order] = np.where(np.arange(len(cell)) <= last[cell], 1 + rank_within(cell), 0)
    return part
