"""Which zones (racks) copies of very many items go to, at least cost: by a flow over zones for all, then copy by copy.

Owners of equal tags change places among themselves, so that no tag value is lost. Who of a zone gets a copy is dealt out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import numpy as np

from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.copies.at_once import AtOnce, dealt_at_once, parts
from task_assignor.engine.copies.deal import deal_in_cells
from task_assignor.engine.copies.flow import Cells
from task_assignor.engine.copies.goals import CopiedItems, copies_of
from task_assignor.engine.items import sums
from task_assignor.engine.places.min_cost import min_cost_places
from task_assignor.engine.places.problem import PlacesProblem
from task_assignor.sdk.arrays import csr_pairs, distinct, distinct_and_numbers, offsets_of
from task_assignor.sdk.columns import Int64Array


def in_cheap_zones(items: CopiedItems, holders: Int64Array, at_once: AtOnce | None) -> tuple[Int64Array, int | None]:
    """The holders after copies have changed zones, and a bound of the cost if one is known.

    Args:
        items: those that get copies.
        holders: a placement in which most copies are where they were.
        at_once: what one flow found, which may have left more tag values or cost less.
    """
    if items.is_free:
        return holders, 0
    # If there were places where no copy is any more, to go back there would cost less than zones alone say.
    is_known = items.held(holders) is items
    bound = None if at_once is None else at_once.bound
    if bound is None and is_known:
        bound = _bound(items, holders)
    others = [] if at_once is None else [at_once.holders]
    current, as_second = items, is_known and not items.total(holders).away and not items.claim_rank.any()
    while bound is None or items.total(holders).cost > bound:
        found = _better(current, [holders, *others], lambda held: bound is not None and items.total(held).cost <= bound)
        if found is not None:
            holders = found
        elif as_second:
            break
        # Seen from the result moving back is no longer free: look again, as a second call would.
        current, as_second, others = items.from_there(holders), True, []
    return holders, bound


def _bound(items: CopiedItems, holders: Int64Array) -> int:
    """No placement costs less: the cheapest by zones alone, as if copies of one item knew nothing of each other."""
    zones, of_owner = distinct_and_numbers(items.zone)
    cells = Cells(of_owner=of_owner, zone=zones, bits=items.bits[: len(zones), :0], value=items.value[: len(zones), :0])
    copies = _Copies.all_of(items, holders)
    return copies.cost(cells, copies.cheapest(cells))


def _better(items: CopiedItems, known: list[Int64Array], is_best: Callable[[Int64Array], bool]) -> Int64Array | None:
    """A better placement than the first one that is known, and than the others; None: none was found."""
    holders, held = known[0], items.held(known[0])
    # Owners may have no room for all that was there before: what they have now they can keep.
    at_once = dealt_at_once(held)
    cells, copies, best = items.of_alike(), _Copies.all_of(items, holders), items.total(holders)
    cell = copies.cheapest(cells)
    by_zones = copies.dealt(holders, cells, cell)
    others = [*known[1:], *([] if at_once is None else [at_once.holders]), *([] if by_zones is None else [by_zones])]
    totals = [items.total(other) for other in others]
    if totals and min(totals) < best:
        return others[totals.index(min(totals))]
    if at_once is not None and at_once.is_best and held is items:
        return None
    if by_zones is not None and totals[-1].cost <= copies.cost(cells, cell):
        return None
    # Copies of one item met: each must know of the others. So they go one by one, and no cell takes more than its owners can.
    cells = items.of_alike(parts(cells.of_owner, items.problem.room.high, items.most))

    def turn(placed: Int64Array, columns: Int64Array) -> Int64Array:
        freed = _Copies.one_of_each(items, placed, columns)
        dealt = freed.dealt(placed, cells, freed.cheapest(cells))
        return placed if dealt is None else dealt

    found = items.improved(holders, itertools.count(), turn, lambda held: () if is_best(held) else items.total(held))
    return found if items.total(found) < best else None


@attrs.frozen(eq=False, kw_only=True)
class _Copies:
    """Copies that go somewhere else.

    Args:
        items: those that get copies.
        item: (E,) item of each copy, ascending.
        column: (E,) its column.
        owner: (E,) its owner.
        fixed: (R, B) holders that stay; -1: none.
        room: (C,) fewest and most of these copies per owner.
    """

    items: CopiedItems
    item: Int64Array
    column: Int64Array
    owner: Int64Array
    fixed: Int64Array
    room: tuple[Int64Array, Int64Array]

    @classmethod
    def all_of(cls, items: CopiedItems, holders: Int64Array) -> _Copies:
        """All copies of all items."""
        item, column, owner = copies_of(holders)
        room = items.problem.room.low, items.problem.room.high
        return cls(items=items, item=item, column=column, owner=owner, fixed=holders[:, :1], room=room)

    @classmethod
    def one_of_each(cls, items: CopiedItems, holders: Int64Array, columns: Int64Array) -> _Copies:
        """The copies of all items in these columns."""
        fixed, owner, room = items.without(holders, columns)
        return cls(items=items, item=np.arange(len(holders)), column=columns, owner=owner, fixed=fixed, room=room)

    def cost(self, cells: Cells, cell: Int64Array) -> int:
        """What the copies cost in these cells, if those stay where they are whose cell is theirs."""
        items, prices = self.items, self.items.prices
        away = int(((items.claim_of(self.item, self.owner) < 0) | (cells.of_owner[self.owner] != cell)).sum())
        traffic = int(prices.costs.at(items.row[self.item], cells.zone[cell]).sum())
        return traffic * prices.traffic + away * prices.move

    def dealt(self, holders: Int64Array, cells: Cells, cell: Int64Array) -> Int64Array | None:
        """The holders after the copies have gone to the cells; None: they would meet."""
        is_away = self.items.claim_of(self.item, self.owner) < 0
        return deal_in_cells(self.items, holders, (self.item, self.column), cell, is_away, cells.of_owner, self.room)

    def cheapest(self, cells: Cells) -> Int64Array:
        """(E,) the cheapest cell of each copy, of those with the tags of its own; cells take what their owners have room for."""
        full, cell = self._full(cells), np.empty_like(self.item)
        tags_of_cell = Classes.alike(np.zeros_like(cells.zone), *cells.value.T).of
        tags = tags_of_cell[cells.of_owner[self.owner]]
        for one in distinct(tags).tolist():
            chosen = np.flatnonzero(tags == one)
            cell[chosen] = self._cheapest(cells, np.flatnonzero(tags_of_cell == one), chosen, *full)
        return cell

    def _full(self, cells: Cells) -> tuple[Int64Array, Int64Array]:
        """(item, cell) all pairs where all owners of the cell hold the item, by item."""
        size, width = np.bincount(cells.of_owner), len(cells.zone)
        is_small = np.append(size[cells.of_owner] <= self.fixed.shape[1], False)
        item, column = np.nonzero(is_small[self.fixed])
        pairs, number = distinct_and_numbers(item * width + cells.of_owner[self.fixed[item, column]])
        full_item, full_cell = np.divmod(pairs, width)
        is_full = np.bincount(number, minlength=len(pairs)) == size[full_cell]
        return full_item[is_full], full_cell[is_full]

    def _cheapest(
        self, cells: Cells, places: Int64Array, chosen: Int64Array, full_item: Int64Array, full_cell: Int64Array
    ) -> Int64Array:
        """(E,) the cheapest of the places, which are cells of equal tags, for each of the chosen copies."""
        items, prices, item, owner = self.items, self.items.prices, self.item[chosen], self.owner[chosen]
        is_away = items.claim_of(item, owner) < 0
        there = np.flatnonzero((full_cell >= places[0]) & (full_cell <= places[-1]))
        full_item, full_place = full_item[there], full_cell[there] - places[0]
        alike = Classes.alike(items.row[item], labels_of_lists(len(items), full_item, full_place)[item], is_away)
        (traffic, move), first = prices.in_flows, alike.first
        costs = prices.costs.of_rows(items.row[item[first]], alike.of).in_places(cells.zone[places])
        # No copy goes where all have the item: that is as dear as any.
        of_class, entry = csr_pairs(offsets_of(full_item, len(items)), item[first])
        members = np.flatnonzero((cells.of_owner >= places[0]) & (cells.of_owner <= places[-1]))
        place = cells.of_owner[members] - places[0]
        problem = PlacesProblem(
            costs=costs.but_for(of_class, full_place[entry]).times(traffic),
            item_place=cells.of_owner[owner] - places[0],
            move_cost=np.full(len(alike), move),
            # What is away pays for that wherever it is.
            stay_cost=is_away[first] * move,
            place_cell=np.arange(len(places)),
            lower=sums(place, self.room[0][members], len(places)),
            upper=sums(place, self.room[1][members], len(places)),
        )
        return places[min_cost_places(problem).place]
