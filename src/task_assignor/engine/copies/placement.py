"""Copies (standbys) of items: each on owners of its own, loads even, tag values different, cheap, most where they were.

One way: all copies are placed by a flow (`engine/copies/at_once.py`); then one copy of every item is freed and all of these are
placed anew, in turn, until nothing changes. What a flow is made of is said in `engine/copies/flow.py`, the goals in
`engine/copies/goals.py`.
"""

from __future__ import annotations

import itertools
from typing import Final

import attrs
import numpy as np

from task_assignor.engine.copies.at_once import dealt_at_once, pairs_at_once
from task_assignor.engine.copies.cells import place_by_cells
from task_assignor.engine.copies.deal import ascending
from task_assignor.engine.copies.flow import MOST_PAIRS, Freed, FreedFlow, Special, TooManyPairsError, bit_count
from task_assignor.engine.copies.goals import CopiedItems, CopyGoal, CopyProblem, copies_of
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.integers import INT64_MAX

MOST_PAIRS_IN_TURNS: Final = 20_000
"""Pairs of class and owner where several tag keys and copies need many flows and nothing costs: cells do nearly as well then."""


@attrs.frozen(eq=False)
class Copies:
    """The answer.

    Args:
        item: (P,) item of each copy; pairs are sorted by item, then owner.
        owner: (P,) its owner.
        cost: what all copies cost.
        bound: no placement that is as good by the goals before costs less; None: that is not known.
        exact: goals that no other placement reaches better, those before it being as they are.
    """

    item: Int64Array
    owner: Int64Array
    cost: int
    bound: int | None
    exact: frozenset[CopyGoal]


def place_copies(problem: CopyProblem) -> Copies:
    """Place all copies by the goals of `CopyGoal`, in their order.

    With a flow over single owners, all is exact with one copy per item, or without tags, or with one tag key. With
    several copies and several keys tags are brought up copy by copy until none helps. Where that flow would have too
    many pairs (`MOST_PAIRS`), owners of equal tags in one zone are one cell, and copies are dealt out within cells. If
    costs count and one flow over cells can be dealt out as it is, costs and tags are exact, too; else nothing but the
    loads is known to be, and costs are if they equal the bound. A second call changes nothing.
    """
    items = CopiedItems(problem)
    if not len(items):
        return Copies(items.number, items.number, 0, 0, frozenset(CopyGoal))
    try:
        return _Exactly(items, _most_pairs(items)).answer()
    except TooManyPairsError:
        at_once = dealt_at_once(items)
    if at_once is not None and at_once.is_best:
        return _copies(items, at_once.holders, at_once.bound, frozenset({CopyGoal.LOADS, CopyGoal.TAGS}))
    placed = place_by_cells(items, at_once)
    if placed is None:
        # As many copies as owners, or nearly: they meet unless they are placed exactly, however long that takes.
        return _Exactly(items, INT64_MAX).answer()
    holders, bound = placed
    has_all_tags = not items.value.shape[1] or not items.missing(holders)
    return _copies(
        items, holders, bound, frozenset({CopyGoal.LOADS, CopyGoal.TAGS} if has_all_tags else {CopyGoal.LOADS})
    )


def _copies(items: CopiedItems, holders: Int64Array, bound: int | None, exact: frozenset[CopyGoal]) -> Copies:
    item, _, owner = copies_of(holders)
    cost = items.total(holders).cost
    return Copies(items.number[item], owner, cost, bound, exact | ({CopyGoal.COST} if cost == bound else set()))


def _most_pairs(items: CopiedItems) -> int:
    is_free = not items.problem.keeps_tags and items.problem.prices is None
    return min(MOST_PAIRS, MOST_PAIRS_IN_TURNS) if is_free and items.needs_turns else MOST_PAIRS


class _Exactly:
    """Placement by flows over single owners."""

    def __init__(self, items: CopiedItems, most_pairs: int) -> None:
        self.items, self.most_pairs = items, most_pairs
        self.cells = items.of_owners()

    def answer(self) -> Copies:
        """See `place_copies`."""
        items = self.items
        if not items.needs_turns:
            best = self._all_at_once(with_tags=True)
            return _copies(items, best, items.total(best).cost, frozenset(CopyGoal))
        best, bound = self._improved(self._all_at_once(with_tags=False)), None
        # All that runs well stays; so a second call, for which all was as it is, looks at nothing else either.
        if items.problem.keeps_tags or items.total(best).away:
            best, bound = self._better_with_tags(best)
        exact = frozenset({CopyGoal.LOADS})
        if not items.problem.keeps_tags:
            return _copies(items, best, None, exact)
        if (bound is None or items.total(best).cost > bound) and items.total(best).away:
            # Seen from the result moving back is no longer free: look again, until a second call would change nothing.
            later = _Exactly(items.from_there(best), self.most_pairs).answer()
            item = np.searchsorted(items.number, later.item)
            best = items.table(item, later.owner)
        return _copies(items, best, bound, exact)

    def _better_with_tags(self, best: Int64Array) -> tuple[Int64Array, int | None]:
        """The better one of this placement and what is found from another start; and a bound, if tags are kept."""
        bound = None
        try:
            relaxed = self._all_at_once(with_tags=True)
            bound = self.items.total(relaxed).cost
            best = min(best, self._improved(relaxed), key=self.items.total)
        except TooManyPairsError:
            # So many flows are as large as they may be: what was found before them counts.
            pass
        return best, bound

    def _all_at_once(self, with_tags: bool) -> Int64Array:
        return self.items.table(*pairs_at_once(self.items, self.cells, self.most_pairs, with_tags))

    def _improved(self, holders: Int64Array) -> Int64Array:
        return self.items.improved(holders, itertools.count(), self._turn, self.items.total)

    def _turn(self, holders: Int64Array, columns: Int64Array) -> Int64Array:
        items = self.items
        fixed, current, room = items.without(holders, columns)
        # Claims that no other copy has; else the place where the copy is.
        is_open = ~(fixed[items.claim_item] == items.claim_owner[:, None]).any(axis=1)
        is_lone = np.ones(len(fixed), dtype=np.bool_)
        is_lone[items.claim_item[is_open]] = False
        lone = np.flatnonzero(is_lone)
        present = items.present(fixed)
        freed = Freed(
            row=items.row,
            special=self._special(np.flatnonzero(is_open), lone, current[lone]),
            present=present,
            wanted=np.clip(items.wanted - bit_count(present), 0, items.value.shape[1]),
            blocked=fixed,
        )
        item, owner = FreedFlow(freed, self.cells, items.prices, self.most_pairs).pairs(*room)
        fixed[item, columns[item]] = owner
        return ascending(fixed)

    def _special(self, claims: Int64Array, item: Int64Array, owner: Int64Array) -> Special:
        """Where copies of the items were before; and, of items without an open one, where the copy is now."""
        items, none = self.items, np.zeros_like(item)
        return Special(
            item=np.concatenate([items.claim_item[claims], item]),
            cell=np.concatenate([items.claim_owner[claims], owner]),
            is_away=np.arange(len(claims) + len(item)) >= len(claims),
            behind=np.concatenate([items.claim_behind[claims], none]),
            prefer=np.concatenate([items.claim_rank[claims], none]),
        )
