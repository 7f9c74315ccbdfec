"""What is asked of copies, and how good a placement is: the problem, its goals, and their totals. Nothing is placed here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

import attrs
import numpy as np

from task_assignor.engine.classes import Classes
from task_assignor.engine.copies.flow import WORD, Bits, Cells, Prices, bit_count
from task_assignor.engine.even import even_levels
from task_assignor.engine.items import NOBODY, Pairs, rank_within
from task_assignor.sdk.arrays import distinct, distinct_and_numbers, order_by, rows_of
from task_assignor.sdk.columns import Int64Array


class CopyGoal(enum.Enum):
    """A goal of copies; all copies are placed in any case."""

    LOADS = "loads"
    """As even as they can be."""
    TAGS = "tags"
    """Most different tag values."""
    COST = "cost"
    """Least cost."""
    STATE = "state"
    """Fewest copies where none was before."""


@attrs.frozen(eq=False)
class Room:
    """How many copies items get and owners take.

    Args:
        needs: (N,) copies of each item: as many as are wanted, if there are enough owners.
        low: (C,) fewest copies of each owner.
        high: (C,) most copies; between the two all is equally even.
    """

    needs: Int64Array
    low: Int64Array
    high: Int64Array

    @classmethod
    def even(cls, main_owner: Int64Array, wanted: Int64Array, weight: Int64Array) -> Room:
        """Room for copies of items that are with `main_owner` (-1: nobody), so that items and copies together are even.

        Args:
            main_owner: (N,) owner of each item itself.
            wanted: (N,) copies of each item; the same number for all that have any.
            weight: (C,) weights of the owners.
        """
        # With one number for all any loads within the bounds of each owner alone are possible together.
        bounds = copy_bounds(main_owner, wanted, len(weight))
        low, high = even_levels(weight, bounds.least, bounds.most, bounds.total)
        return cls(bounds.needs, low - bounds.least, high - bounds.least)


@attrs.frozen(eq=False)
class CopyBounds:
    """How many items and copies owners can hold.

    Args:
        needs: (N,) copies that each item can have.
        least: (C,) the items themselves.
        most: (C,) the items, and a copy of every item that has copies and is elsewhere.
        total: all items and copies.
    """

    needs: Int64Array
    least: Int64Array
    most: Int64Array
    total: int


def copy_bounds(main_owner: Int64Array, wanted: Int64Array, owners: int) -> CopyBounds:
    """The bounds for `wanted` copies of items that are with `main_owner` (-1: nobody)."""
    is_owned = main_owner >= 0
    needs = np.minimum(wanted, owners - is_owned)
    least = np.bincount(main_owner[is_owned], minlength=owners)
    copied_here = np.bincount(main_owner[is_owned & (needs > 0)], minlength=owners)
    most = least + int((needs > 0).sum()) - copied_here
    return CopyBounds(needs, least, most, int(least.sum() + needs.sum()))


@attrs.frozen(eq=False, kw_only=True)
class CopyProblem:
    """Copies of N items for C owners.

    Args:
        main_owner: (N,) owner of each item itself; -1: nobody.
        room: how many copies there are.
        claims: who had which item or copy before; a smaller rank is better.
        tags: (C, G) number of each owner's value of each tag key; -1: it has none.
        keeps_tags: former copies are as many, and no item's holders may have fewer different tag values than with them;
            else they have as many as can be.
        prices: what copies cost; None: nothing.
    """

    main_owner: Int64Array
    room: Room
    claims: Pairs
    tags: Int64Array
    keeps_tags: bool = False
    prices: Prices | None = None


class Total(NamedTuple):
    """How good a placement is, goal after goal; less is better."""

    missing: int
    """Tag values that are wanted and not there."""
    cost: int
    away: int
    """Copies where none was before."""
    behind: int
    """How many owners of former copies would have been preferred."""


class CopiedItems:
    """The R items of a problem that get copies, and what is asked of them. Beside the problem's own numbers they have these.

    `holders` are (R, H) owners: the main one, then those of the copies, ascending, then -1.
    """

    def __init__(self, problem: CopyProblem) -> None:
        self.problem = problem
        self.number = np.flatnonzero(problem.room.needs)
        self.main = problem.main_owner[self.number]
        self.needs = problem.room.needs[self.number]
        self.most = int(self.needs.max(initial=0))
        self.owners = len(problem.room.low)
        self.value = _numbered(problem.tags)
        self.bits = _bits(self.value)
        item = np.full(len(problem.main_owner), NOBODY, dtype=np.int64)
        item[self.number] = np.arange(len(self))
        claims = problem.claims.where(item[problem.claims.item] >= 0)
        claims = claims.where(self.main[item[claims.item]] != claims.owner)
        claims = claims.where(order_by(claims.item, claims.owner))
        self.claim_item, self.claim_owner, self.claim_rank = item[claims.item], claims.owner, claims.rank
        self.claim_behind = claims.behind()
        self.claim_key = self.claim_item * self.owners + self.claim_owner
        self.wanted = (
            bit_count(self.present(self.table(self.claim_item, self.claim_owner)))
            if problem.keeps_tags
            else np.full(len(self), self.value.shape[1] * (self.most + 1))
        )
        self.prices = problem.prices or Prices.nothing(len(problem.main_owner), self.owners)
        self.row, self.zone = self.prices.costs.row[self.number], self.prices.zone

    def __len__(self) -> int:
        return len(self.number)

    @property
    def needs_turns(self) -> bool:
        """Whether one flow cannot say how different holders are."""
        return self.most > 1 and self.value.shape[1] > 1

    @property
    def is_free(self) -> bool:
        """Whether copies cost nothing anywhere."""
        return not (self.prices.traffic or self.prices.move)

    def present(self, holders: Int64Array) -> Bits:
        """(R, W) tag values of the holders."""
        bits = np.concatenate([self.bits, np.zeros((1, self.bits.shape[1]), dtype=np.uint64)])
        found = np.zeros((len(holders), self.bits.shape[1]), dtype=np.uint64)
        for column in holders.T:
            found |= bits[column]
        return found

    def claim_of(self, item: Int64Array, owner: Int64Array) -> Int64Array:
        """Number of the claim of each pair; -1: there is none."""
        return np.where(owner >= 0, rows_of(self.claim_key, item * self.owners + owner), NOBODY)

    def total(self, holders: Int64Array) -> Total:
        """How good the placement is."""
        item, _, owner = copies_of(holders)
        claim = self.claim_of(item, owner)
        away = int((claim < 0).sum())
        traffic = int(self.prices.costs.at(self.row[item], self.zone[owner]).sum())
        cost = traffic * self.prices.traffic + away * self.prices.move
        return Total(self.missing(holders), cost, away, int(self.claim_behind[claim[claim >= 0]].sum()))

    def table(self, item: Int64Array, owner: Int64Array) -> Int64Array:
        """Holders of copies in any order."""
        holders = np.full((len(self), self.most + 1), NOBODY, dtype=np.int64)
        holders[:, 0] = self.main
        order = order_by(item, owner)
        item, owner = item[order], owner[order]
        holders[item, 1 + rank_within(item)] = owner
        return holders

    def of_owners(self) -> Cells:
        """A cell for each owner."""
        return Cells(of_owner=np.arange(self.owners), bits=self.bits, zone=self.zone, value=self.value)

    def of_alike(self, *labels: Int64Array) -> Cells:
        """A cell for owners of equal tags in one zone, whose labels (C,) are equal, too; in this order."""
        alike = Classes.alike(*self.value.T, self.zone, *labels)
        first = alike.first
        return Cells(of_owner=alike.of, zone=self.zone[first], bits=self.bits[first], value=self.value[first])

    def of_tags(self, keys: int) -> Cells:
        """A cell for owners with equal values of so many keys, those with fewest values first. All are in zone 0."""
        used = order_by(np.array([len(distinct(column)) for column in self.value.T], dtype=np.int64))[:keys]
        value = np.full_like(self.value, NOBODY)
        value[:, used] = self.value[:, used]
        known, of_owner = np.unique(value, axis=0, return_inverse=True)
        zone = np.zeros(len(known), dtype=np.int64)
        return Cells(of_owner=of_owner.reshape(-1), bits=_bits(known, self.bits.shape[1]), zone=zone, value=known)

    def columns(self, holders: Int64Array, number: int) -> Int64Array:
        """(R,) column of the copy of each item that is freed: the one that adds least, or the first, second and so on."""
        if number:
            return 1 + (number - 1) % self.needs
        known, adds = bit_count(self.present(holders)), []
        for column in range(1, self.most + 1):
            rest = np.delete(holders, column, axis=1)
            fewer = np.minimum(known, self.wanted) - bit_count(self.present(rest))
            adds.append(np.where(holders[:, column] >= 0, fewer, np.iinfo(np.int64).max))
        last: Int64Array = self.most - np.argmin(np.stack(adds[::-1]), axis=0)
        return last

    def improved(
        self,
        holders: Int64Array,
        turns: Iterator[int],
        place: Callable[[Int64Array, Int64Array], Int64Array],
        total: Callable[[Int64Array], tuple[int, ...]],
    ) -> Int64Array:
        """Free one copy of every item and place these anew, in turn, until nothing is better.

        Args:
            holders: the placement so far.
            turns: numbers of the turns.
            place: another placement, made of one without the copies in these columns.
            total: how good a placement is, goal after goal; less is better, and nothing is better than 0.
        """
        best, quiet = total(holders), 0
        while quiet <= self.most and any(best):
            found = place(holders, self.columns(holders, next(turns) % (self.most + 1)))
            worth, quiet = total(found), quiet + 1
            if worth < best:
                holders, best, quiet = found, worth, 0
        return holders

    def without(
        self, holders: Int64Array, columns: Int64Array
    ) -> tuple[Int64Array, Int64Array, tuple[Int64Array, Int64Array]]:
        """The holders without the copies in these columns, the owners of these, and (C,) the least and most that owners take."""
        every, room = np.arange(len(holders)), self.problem.room
        current, fixed = holders[every, columns], holders.copy()
        fixed[every, columns] = NOBODY
        used = np.bincount(copies_of(fixed)[2], minlength=self.owners)
        return fixed, current, (np.maximum(room.low - used, 0), room.high - used)

    def missing(self, holders: Int64Array) -> int:
        """Tag values that are wanted and not there."""
        return int(np.maximum(self.wanted - bit_count(self.present(holders)), 0).sum())

    def held(self, holders: Int64Array) -> CopiedItems:
        """The same items, with those of the former copies that the placement has, too."""
        item, _, owner = copies_of(holders)
        claim = self.claim_of(item, owner)
        claim = claim[claim >= 0]
        if len(claim) == len(self.claim_item):
            return self
        kept = Pairs(self.number[self.claim_item[claim]], self.claim_owner[claim], self.claim_rank[claim])
        return CopiedItems(attrs.evolve(self.problem, claims=kept))

    def from_there(self, holders: Int64Array) -> CopiedItems:
        """The same items, seen by a second call: the copies of the placement are the former ones."""
        item, _, owner = copies_of(holders)
        claims = Pairs.of(self.number[item], owner)
        return CopiedItems(attrs.evolve(self.problem, claims=claims))


def copies_of(holders: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """(item, column, owner) of all copies, by item."""
    item, column = np.nonzero(holders[:, 1:] >= 0)
    return item, column + 1, holders[item, column + 1]


def _numbered(tags: Int64Array) -> Int64Array:
    """The values with numbers that no two keys share. Keys that tell no two owners apart, or all of them, are left out."""
    columns, number = [], 0
    for column in tags.T:
        values, of_owner = distinct_and_numbers(column)
        if len(values) <= 1 or (len(values) == len(column) and values[0] >= 0):
            continue
        columns.append(np.where(column >= 0, of_owner - int(values[0] < 0) + number, NOBODY))
        number += len(values)
    return np.stack(columns, axis=1) if columns else np.zeros((len(tags), 0), dtype=np.int64)


def _bits(value: Int64Array, words: int | None = None) -> Bits:
    if words is None:
        words = int(value.max(initial=-1)) // WORD + 1 if value.size else 0
    bits = np.zeros((len(value), words), dtype=np.uint64)
    for column in value.T:
        known = np.flatnonzero(column >= 0)
        bits[known, column[known] // WORD] |= np.uint64(1) << (column[known] % WORD).astype(np.uint64)
    return bits
