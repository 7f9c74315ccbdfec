r"""The second network of actives: within what the first one left open, items stay or go where their state is.

    class -> claimants' places
      |  \-> lot (and on as in `network.py`), the more the better of items without state
      \----> places of owners with state, as many as the class has items with state there

Items that could go to the state of several owners are a node of their own on the way to these.
"""

from __future__ import annotations

import attrs
import numpy as np

from task_assignor.engine.actives.network import KINDS, ActivesNetwork, Best
from task_assignor.engine.along import along, dealt
from task_assignor.engine.classes import Classes, labels_of_lists
from task_assignor.engine.flow import Arcs, Network, solve
from task_assignor.engine.items import Pairs, rank_within
from task_assignor.sdk.arrays import are_in, distinct, order_by
from task_assignor.sdk.columns import BoolArray, Int64Array

_NO_STATE, _STATE_ELSEWHERE = 0, 1


@attrs.frozen(eq=False)
class _Groups:
    """Items of open classes, grouped by the state of them that can be of use.

    Args:
        items: (M,) items of open classes.
        classes: groups of these; they hold positions in `items`.
        of_class: (G,) class of each group.
        state: whether the group has no state, only state where it is of no use, or useful state (from 2).
        options: pairs of group and owner of useful state, with the number of owners that are less behind.
    """

    items: Int64Array
    classes: Classes
    of_class: Int64Array
    state: Int64Array
    options: Pairs


class StateNetwork:
    """The second network of a problem, within the best flow of the first one.

    Args:
        network: the first one.
        best: its flow.
    """

    def __init__(self, network: ActivesNetwork, best: Best) -> None:
        self.problem, self.nodes, self.best = network.problem, network.nodes, best
        self.classes, self.claims = network.classes, network.claims
        self.lot, self.kind = self.nodes.lot[self.classes.first], self.nodes.kind[self.classes.first]
        self.useful = self._useful(network.problem.state)
        self.number = np.bincount(self.useful.item, minlength=len(self.nodes.kind))
        self.choices = int(self.number[self.number > 1].sum())

    def owners(self, tried: Int64Array | None = None) -> Int64Array:
        """(N,) owner of each item.

        Args:
            tried: (N,) which of its useful state each item looks at, 0 is the least behind; None: all.
        """
        state = self.useful
        if tried is not None:
            looked_at = tried % np.maximum(self.number, 1)
            state = state.where(rank_within(state.item) == looked_at[state.item])
        self._number(self._grouped(state))
        return self._solve()

    def _number(self, groups: _Groups) -> None:
        """Give nodes to open classes, and to groups that could go to several owners."""
        best, self.groups = self.best, groups
        self.open = np.flatnonzero(best.is_open)
        self.node = np.full(len(self.lot), -1)
        self.node[self.open] = self.nodes.first_class + np.arange(len(self.open))
        choices = np.bincount(self.groups.options.item, minlength=len(self.groups.state))
        several = np.flatnonzero(choices > 1)
        self.several = choices[self.groups.options.item] > 1
        self.group_node = np.full(len(choices), -1)
        self.group_node[several] = self.nodes.first_class + len(self.open) + np.arange(len(several))
        self.end = self.nodes.first_class + len(self.open) + len(several)

    def _solve(self) -> Int64Array:
        best, nodes, groups = self.best, self.nodes, self.groups
        arcs = Arcs(goals=4)
        self._add_classes(arcs)
        of_classes = len(arcs)
        way, to = self._add_ways(arcs)
        ways = slice(of_classes, len(arcs))
        free_tail, free_head = best.tail[best.is_free], best.head[best.is_free]
        # In the end bearers of several owners' loads have more if their number is smaller.
        is_last = (free_head == nodes.sink) & (self.problem.bearers is not None)
        number = np.where(is_last, free_tail - nodes.first_bearer, 0)
        rest = arcs.add(free_tail, free_head, best.capacity[best.is_free], 0, 0, 0, number)
        settled = ~best.is_open[self.claims.item]
        of_settled, settled_flow = self.claims.item[settled], best.kept[settled]
        settled_place = nodes.place(self.claims.owner[settled], self.kind[of_settled])
        trunk = np.where(best.is_free, 0, best.flow)
        supplies = np.zeros(self.end, dtype=np.int64)
        supplies[: nodes.first_class] = best.supply
        supplies[self.node[self.open]] = self.classes.size[self.open]
        np.subtract.at(supplies, best.tail, trunk)
        np.add.at(supplies, best.head, trunk)
        np.add.at(supplies, settled_place, settled_flow)
        # A simple cycle meets each node once; what it costs is on arcs of classes.
        turns = 2 * min(self.end - nodes.first_class + nodes.others, nodes.first_class) + 2
        most_behind = int(groups.options.rank.max(initial=0))
        flow = solve(Network(supplies, arcs, 4 * turns, (turns * most_behind, turns, nodes.sink - nodes.first_bearer)))
        trunk[best.is_free] = flow[rest]

        # Items begin at their group, or their settled class; these have numbers after all nodes.
        tail, head, _, _ = arcs.columns()
        first_settled = self.end + len(groups.state)
        at = first_settled + self.classes.of
        at[groups.items] = self.end + groups.classes.of
        stay = groups.classes.size.copy()
        stay[way] -= flow[ways]
        group_nodes = self.end + np.arange(len(stay))
        layers = [
            (
                np.append(self.end + way, group_nodes),
                np.append(to, self.node[groups.of_class]),
                np.append(flow[ways], stay),
            ),
            (
                np.append(tail[:of_classes], first_settled + of_settled),
                np.append(head[:of_classes], settled_place),
                np.append(flow[:of_classes], settled_flow),
            ),
        ]
        for low, high in ((0, nodes.first_hub), (nodes.first_hub, nodes.first_cell)):
            here = (best.tail >= low) & (best.tail < high)
            layers.append((best.tail[here], best.head[here], trunk[here]))
        for layer in layers:
            at = along(at, *layer)
        return self._dealt(at, trunk)

    def _dealt(self, at: Int64Array, trunk: Int64Array) -> Int64Array:
        """(N,) owners: those that are at cells yet are dealt out."""
        best, nodes = self.best, self.nodes
        there = at[at >= nodes.first_place] - nodes.first_place
        held = np.bincount(there // KINDS, minlength=len(nodes.cell))
        here = (best.tail >= nodes.first_cell) & (best.tail < nodes.first_place)
        owner = (best.head[here] - nodes.first_place) // KINDS
        at = dealt(at, best.tail[here], best.head[here], trunk[here], held[owner], self.problem.weight[owner])
        return (at - nodes.first_place) // KINDS

    def _add_classes(self, arcs: Arcs) -> None:
        """Arcs that are open to all items of a class or group: to claimants, to the lot though there is state, to state."""
        best, nodes, options = self.best, self.nodes, self.groups.options
        everything = len(nodes.kind) + 1
        keep = np.flatnonzero(best.may_keep & best.is_open[self.claims.item])
        of_class = self.claims.item[keep]
        arcs.add(self.node[of_class], nodes.place(self.claims.owner[keep], self.kind[of_class]), everything)
        away = distinct(self.groups.of_class[self.groups.state != _NO_STATE])
        away = away[best.may_leave[away]]
        arcs.add(self.node[away], self.lot[away], everything, 1, 0, self._moved(away))
        several = options.where(self.several)
        place = nodes.place(several.owner, self.kind[self.groups.of_class[several.item]])
        arcs.add(self.group_node[several.item], place, everything, 0, several.rank)

    def _add_ways(self, arcs: Arcs) -> tuple[Int64Array, Int64Array]:
        """Arcs that are open to the items of one group alone: to the lot without state, else to its state.

        Returns:
            (groups that have one, the nodes that they lead to).
        """
        groups, single = self.groups, self.groups.options.where(~self.several)
        head, behind = self.lot[groups.of_class], np.zeros(len(groups.state), dtype=np.int64)
        head = np.where(self.group_node >= 0, self.group_node, head)
        head[single.item] = self.nodes.place(single.owner, self.kind[groups.of_class[single.item]])
        behind[single.item] = single.rank
        way = np.flatnonzero((groups.state != _STATE_ELSEWHERE) & self.best.may_leave[groups.of_class])
        of_class = groups.of_class[way]
        arcs.add(self.node[of_class], head[way], groups.classes.size[way], 0, behind[way], self._moved(of_class))
        return way, head[way]

    def _moved(self, of_class: Int64Array) -> Int64Array:
        """Last goal, with racks: fewest claims lost. Without them the first flow has decided that."""
        has_claims = self.nodes.is_claimed[self.lot[of_class]] & (self.problem.racks is not None)
        moved: Int64Array = has_claims.astype(np.int64)
        return moved

    def _useful(self, state: Pairs) -> Pairs:
        """Owners with state that items may go to, sorted by item, then by how far behind; ranks: how many are less."""
        may_leave = self.best.may_leave[self.classes.of]
        # Only items with useful state are looked at more closely: with millions, most have none.
        is_near = may_leave[state.item]
        is_near[is_near] = self._has_open_place(state.where(is_near))
        has_useful = np.zeros(len(may_leave), dtype=np.bool_)
        has_useful[state.item[is_near]] = True
        state = state.where(has_useful[state.item])
        state = state.where(order_by(state.item, state.rank, state.owner))
        state = Pairs(state.item, state.owner, state.behind())
        state = state.where(self._has_open_place(state))
        return state.where(self._is_useful(state))

    def _grouped(self, state: Pairs) -> _Groups:
        best = self.best
        items = np.flatnonzero(best.is_open[self.classes.of])
        label = np.full(len(self.classes.of), _NO_STATE)
        label[self.problem.state.item] = _STATE_ELSEWHERE
        width = int(state.rank.max(initial=0)) + 1
        lists = labels_of_lists(len(label), state.item, state.owner * width + state.rank)
        label = np.where(lists > 0, _STATE_ELSEWHERE + lists, label)
        classes = Classes.alike(self.classes.of[items], label[items])
        first = items[classes.first]
        group_of = np.full(len(label), -1)
        group_of[first] = np.arange(len(first))
        state = state.where(group_of[state.item] >= 0)
        group = group_of[state.item]
        order = order_by(group)
        options = Pairs(group[order], state.owner[order], state.rank[order])
        return _Groups(items, classes, self.classes.of[first], label[first], options)

    def away(self, owner: Int64Array) -> Int64Array:
        """Items that went neither to a claimant nor to state, though somebody's could be of use."""
        is_away = np.zeros(len(owner), dtype=np.bool_)
        is_away[self.useful.item] = True
        is_away[self.useful.item[owner[self.useful.item] == self.useful.owner]] = False
        kept = self.claims.have(self.classes.of, owner)
        return np.flatnonzero(is_away & ~kept)

    def _has_open_place(self, state: Pairs) -> BoolArray:
        """(S,) whether the first flow left open how many items come to the owner's place from its cell."""
        is_open = np.zeros(KINDS * len(self.nodes.cell), dtype=np.bool_)
        at_cell = (self.best.tail >= self.nodes.first_cell) & (self.best.tail < self.nodes.first_place)
        is_open[self.best.head[at_cell] - self.nodes.first_place] = self.best.is_free[at_cell]
        found: BoolArray = is_open[KINDS * state.owner + self.nodes.kind[state.item]]
        return found

    def _is_useful(self, state: Pairs) -> BoolArray:
        """(S,) whether the item may come to the owner's cell, and has no claim there."""
        best, nodes = self.best, self.nodes
        of_class, lot = self.classes.of[state.item], nodes.lot[state.item]
        cell = nodes.cell[state.owner, nodes.kind[state.item]]
        width = nodes.first_class
        free = best.is_free & (best.head < nodes.first_place)
        known = best.tail[free] * width + best.head[free]

        def is_way(tail: Int64Array, head: Int64Array) -> BoolArray:
            return are_in(tail * width + head, known)

        is_claim = self.claims.have(of_class, state.owner)
        by_hub = is_way(lot, nodes.hub[lot]) & is_way(nodes.hub[lot], cell)
        return ~is_claim & (by_hub | is_way(lot, cell))
