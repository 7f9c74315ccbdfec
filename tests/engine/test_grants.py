"""Wishes granted: in order first, then as many as there can be, however large and lopsided the input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.actives import allocate
from task_assignor.engine.flow import FlowError, most_flow
from task_assignor.engine.grants import Wishes, grant
from task_assignor.engine.items import Pairs
from task_assignor.engine.problem import Problem
from tests.budget import examples


@st.composite
def small_wishes(draw: st.DrawFn) -> Wishes:
    """Few items and places, with and without groups and extras."""
    items, places, groups = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    pair = st.tuples(st.integers(0, items - 1), st.integers(0, places - 1))
    pairs = draw(st.lists(pair, max_size=10, unique=True))

    def numbers(count: int, most: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(0, most), min_size=count, max_size=count)), dtype=np.int64)

    grouped, spare = draw(st.booleans()), draw(st.booleans())
    return Wishes(
        np.array([item for item, _ in pairs], dtype=np.int64),
        np.array([place for _, place in pairs], dtype=np.int64),
        need=numbers(items, 2),
        room=numbers(places, 2),
        spare=numbers(places, 2) if spare else None,
        extras=draw(st.integers(0, 3)) if spare else 0,
        group=np.array(draw(st.lists(st.integers(0, groups - 1), min_size=items, max_size=items))) if grouped else None,
        budget=numbers(groups, 3) if grouped else None,
    )


def _is_allowed(wishes: Wishes, granted: np.ndarray) -> bool:
    items, places = len(wishes.need), len(wishes.room)
    given = np.bincount(wishes.item[granted], minlength=items)
    used = np.bincount(wishes.place[granted], minlength=places)
    beyond = np.maximum(used - wishes.room, 0)
    spare = np.zeros(places) if wishes.spare is None else wishes.spare
    fits = (given <= wishes.need).all() and (beyond <= spare).all() and beyond.sum() <= wishes.extras
    if wishes.group is not None and wishes.budget is not None:
        fits &= (np.bincount(wishes.group, given, len(wishes.budget)) <= wishes.budget).all()
    return bool(fits)


@settings(max_examples=examples(200))
@given(small_wishes())
def test_as_many_wishes_as_possible_are_granted(wishes: Wishes) -> None:
    granted = grant(wishes)
    count = len(wishes.item)
    best = max(
        sum(chosen)
        for chosen in itertools.product((False, True), repeat=count)
        if _is_allowed(wishes, np.array(chosen, dtype=np.bool_))
    )

    assert _is_allowed(wishes, granted)
    assert int(granted.sum()) == best


@settings(max_examples=examples(200))
@given(small_wishes())
def test_who_is_served_in_order_stays_served(wishes: Wishes) -> None:
    """What one wish after the other would give an item, it has in the end, perhaps elsewhere."""
    in_order = np.zeros(len(wishes.item), dtype=np.bool_)
    if wishes.spare is not None or wishes.group is not None:
        return
    for wish in range(len(in_order)):
        in_order[wish] = True
        in_order[wish] = _is_allowed(wishes, in_order)
    granted = grant(wishes)

    items = len(wishes.need)
    assert (
        np.bincount(wishes.item[granted], minlength=items) >= np.bincount(wishes.item[in_order], minlength=items)
    ).all()


def _three_neighbours(items: int, owners: int) -> tuple[np.ndarray, np.ndarray]:
    """Three neighbouring owners for each item, so that a perfect placement exists."""
    first = np.arange(items) * owners // items - np.random.default_rng(1).integers(0, 3, items)
    return np.repeat(np.arange(items), 3), ((first[:, None] + np.arange(3)) % owners).reshape(-1)


def test_long_chains_of_claims_and_of_state_are_resolved_quickly() -> None:
    """Three neighbouring owners for each of 100 000 items: one augmenting path after the other would take minutes."""
    items, owners = 100_000, 1_000
    weight, kinds, none = np.ones(owners, dtype=np.int64), np.ones(items, dtype=np.bool_), Pairs.of([], [])
    pairs = Pairs.of(*_three_neighbours(items, owners))
    had = np.zeros((items, owners), dtype=np.bool_)
    had[pairs.item, pairs.owner] = True

    for problem in (Problem(kinds, weight, pairs, none), Problem(kinds, weight, none, pairs)):
        owner = allocate(problem).owner
        assert np.bincount(owner).tolist() == [items // owners] * owners
        assert had[np.arange(items), owner].all()


@pytest.mark.parametrize("state", [1, 2])
def test_state_of_everything_on_few_owners_is_placed_quickly(state: int) -> None:
    """Only as many items as these owners take can be with their state; the others are not tried in vain, one by one."""
    items, owners = 200_000, 1_000
    pairs = Pairs.of(np.tile(np.arange(items), state), np.repeat(np.arange(state), items))
    problem = Problem(np.ones(items, dtype=np.bool_), np.ones(owners, dtype=np.int64), Pairs.of([], []), pairs)
    owner = allocate(problem).owner

    assert int((owner < state).sum()) == state * items // owners


def test_a_flow_out_of_range_is_refused() -> None:
    one = np.array([1])
    with pytest.raises(FlowError, match="spare capacities"):
        most_flow(np.array([0]), np.array([1]), one, one + 1, 0, 1)
    with pytest.raises(FlowError, match="more than the solver takes"):
        most_flow(np.array([0]), np.array([1]), np.array([2**62]), one, 0, 1)


def test_without_a_way_the_flow_stays() -> None:
    flow = most_flow(np.array([0, 1]), np.array([1, 3]), np.array([1, 1]), np.array([0, 0]), 0, 2)

    assert flow.tolist() == [0, 0]
