"""Copies on members, where the flow has not all pairs of a class and a member."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.engine.flow import _ROUNDS, Arcs, Network, prices_of, solve
from task_assignor.group.consumers import ConsumerMember, CopartitionedAssignor, GroupTopics, copies
from task_assignor.group.wire import CopartitionedUserData, encode_copartitioned_user_data
from task_assignor.sdk.columns import Int64Array
from tests.budget import examples

Said = tuple[list[int], list[int]]


def networks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[int]]]:
    """(how many arcs, what the flow costs by each goal) of all networks that are solved from now on."""
    found: list[tuple[int, list[int]]] = []

    def recorded(network: Network) -> Int64Array:
        flows = solve(network)
        *_, goals = network.arcs.columns()
        found.append((len(flows), [int((flows * cost).sum()) for cost in goals]))
        return flows

    monkeypatch.setattr(copies, "solve", recorded)
    return found


def members_of(said: Mapping[str, Said], topics: list[str]) -> list[ConsumerMember]:
    return [
        ConsumerMember(
            name,
            topics,
            encode_copartitioned_user_data(
                CopartitionedUserData(dict.fromkeys(topics, own), dict.fromkeys(topics, copied))
            ),
        )
        for name, (own, copied) in said.items()
    ]


NUMBERS = st.lists(st.integers(0, 19), max_size=12, unique=True)


@settings(max_examples=examples(20), deadline=None)
@given(
    st.dictionaries(st.sampled_from([f"m{number}" for number in range(9)]), st.tuples(NUMBERS, NUMBERS), min_size=2),
    st.integers(1, 20),
    st.integers(0, 20),
    st.integers(1, 3),
)
def test_what_is_left_out_would_not_have_made_it_better(
    said: Mapping[str, Said], first: int, second: int, standbys: int
) -> None:
    topics = GroupTopics({"t": first, "u": second})
    members = members_of(said, ["t", "u"])
    with pytest.MonkeyPatch.context() as patch:
        solved = networks(patch)
        CopartitionedAssignor(standbys).assign(topics, members)
        at_once = solved[-1][1]
        patch.setattr(copies, "_ALL_AT_ONCE", 0)
        CopartitionedAssignor(standbys).assign(topics, members)
        assert solved[-1][1] == at_once


@pytest.mark.parametrize("is_again", [False, True])
def test_the_flow_does_not_grow_with_the_square_of_the_members(monkeypatch: pytest.MonkeyPatch, is_again: bool) -> None:
    """Of 20 000 partitions and 1 000 members it took minutes, in which the group waited for its leader."""
    names, count = [f"m{number:03}" for number in range(400)], 800
    owned = np.arange(count).reshape(2, -1).T.tolist()
    said = (
        {name: (owned[n], owned[n - 1]) for n, name in enumerate(names)} if is_again else dict.fromkeys(names, ([], []))
    )
    solved = networks(monkeypatch)
    CopartitionedAssignor().assign(GroupTopics({"t": count}), members_of(said, ["t"]))
    assert max(arcs for arcs, _ in solved) < 20 * count


def test_what_only_seems_to_help_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many small groups nearly all pairs seemed to help, and each time the flow was solved with more of them."""
    monkeypatch.setattr(copies, "_ALL_AT_ONCE", 0)
    topics = [f"t{count}" for count in range(1, 31)]
    solved = networks(monkeypatch)
    counts = {topic: number for number, topic in enumerate(topics, 1)}
    CopartitionedAssignor().assign(GroupTopics(counts), [ConsumerMember(f"m{n:02}", topics) for n in range(30)])
    # That of the active ones, and that of the standbys.
    assert len(solved) == 2


def test_prices_of_a_flow_alone_are_always_found() -> None:
    """They were given up after some rounds; the same flow was then solved again and again, for ever (300 groups, 200 members)."""
    length = 2 * _ROUNDS
    arcs = Arcs(goals=1)
    arcs.add(np.arange(length), np.arange(1, length + 1), 1, 1)
    supplies = np.zeros(length + 1, dtype=np.int64)
    supplies[0], supplies[-1] = 1, -1
    network = Network(supplies, arcs)
    prices = prices_of(network, solve(network), np.zeros((3, 0), dtype=np.int64))
    assert prices is not None
    (price,) = prices.of
    assert price[-1] - price[0] == length
