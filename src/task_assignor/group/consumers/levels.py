"""How many items each member can have at best: the fair levels of a group in which not all members may have every item.

The least sum of squares over real numbers splits the members into blocks of one level each: a block with more than its
share can give nothing away. In whole numbers every member has its level, rounded down or up.

Source: Fujishige, Submodular Functions and Optimization (decomposition of a base); Frank and Murota, Decreasing
minimization on M-convex sets (the whole numbers next to it).
"""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.flow import most_flow
from task_assignor.sdk.columns import BoolArray, Int64Array


@attrs.frozen(eq=False)
class _Block:
    """Some crowds, their items, some members, and who of them is in which crowd."""

    sizes: Int64Array
    members: Int64Array
    crowd_of: Int64Array
    member_of: Int64Array
    """Pairs: positions in `sizes`, positions in `members`."""

    def without(self, crowds: BoolArray, members: BoolArray) -> _Block:
        """What is left without some crowds and some members."""
        stays = ~crowds[self.crowd_of] & ~members[self.member_of]
        return _Block(
            self.sizes[~crowds],
            self.members[~members],
            (np.cumsum(~crowds) - 1)[self.crowd_of[stays]],
            (np.cumsum(~members) - 1)[self.member_of[stays]],
        )


def fair_levels(sizes: Int64Array, crowds: list[Int64Array], members: int) -> tuple[Int64Array, Int64Array]:
    """Bounds that every assignment with the least sum of squares keeps.

    Args:
        sizes: (K,) number of items of each crowd, whose members alone may have them.
        crowds: the members of each crowd, at least one.
        members: how many members there are.

    Returns:
        (M,) fewest and (M,) most items of each member; they differ by one at most.
    """
    fewest, most = np.zeros(members, dtype=np.int64), np.zeros(members, dtype=np.int64)
    pairs = [np.zeros(0, dtype=np.int64), *crowds]
    crowd_of = np.repeat(np.arange(len(crowds)), [len(crowd) for crowd in crowds])
    todo = [_Block(sizes, np.arange(members), crowd_of, np.concatenate(pairs))]
    while todo:
        block = todo.pop()
        total, count = int(block.sizes.sum()), len(block.members)
        overloaded = _overloaded(block, total) if total else None
        if overloaded is None:
            fewest[block.members], most[block.members] = total // count, -(-total // count)
            continue
        # A crowd all of whose members are overloaded can only add to their load.
        inside = np.ones(len(block.sizes), dtype=np.bool_)
        inside[block.crowd_of[~overloaded[block.member_of]]] = False
        todo += [block.without(~inside, ~overloaded), block.without(inside, overloaded)]
    return fewest, most


def _overloaded(block: _Block, total: int) -> BoolArray | None:
    """Members that cannot do with the average, however the items are spread; None: there are none."""
    crowds, count = len(block.sizes), len(block.members)
    source, sink = crowds + count, crowds + count + 1
    # Everything times the number of members, so that the average is a whole number.
    supply = block.sizes * count
    tails = np.concatenate([np.full(crowds, source), block.crowd_of, crowds + np.arange(count)])
    heads = np.concatenate([np.arange(crowds), crowds + block.member_of, np.full(count, sink)])
    room = np.concatenate([supply, supply[block.crowd_of], np.full(count, total)])
    flows = most_flow(tails, heads, room, np.zeros(len(tails), dtype=np.int64), source, sink)
    if int(flows[:crowds].sum()) == total * count:
        return None
    reached = np.zeros(crowds + count + 2, dtype=np.bool_)
    reached[source] = True
    forward, backward = flows < room, flows > 0
    while True:
        found = np.concatenate([heads[forward & reached[tails]], tails[backward & reached[heads]]])
        if reached[found].all():
            return reached[crowds : crowds + count]
        reached[found] = True
