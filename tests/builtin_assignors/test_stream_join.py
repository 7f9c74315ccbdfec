"""`StreamJoinTaskAssignor`: KIP-315's rules on tasks, by example and by property."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.builtin_assignors import StreamJoinTaskAssignor
from task_assignor.builtin_assignors.stream_join import STREAM_JOIN_GROUPS, parse_join_groups
from task_assignor.engine.actives import group_shares
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentConfigs,
    ConfigException,
    ProcessId,
    StreamsConfig,
    TaskAssignment,
    TaskId,
    TaskTopicPartition,
    TopicPartition,
)
from task_assignor.utils import Goal, joined
from task_assignor.validation import report_violations
from tests.budget import examples

A, B, C, D = (ProcessId.parse(f"00000000-0000-0000-0000-00000000000{number}") for number in range(1, 5))
Previous = Mapping[ProcessId, Sequence[int]]
Owners = dict[TaskId, ProcessId]
LIMITS = ((joined.MOST_TOGETHER, 0), (0, group_shares.MOST_CANDIDATES), (0, 0))
"""Pairs of group and client up to which all is decided together, and up to which shares are."""


def _limit(monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]) -> None:
    monkeypatch.setattr(joined, "MOST_TOGETHER", limits[0])
    monkeypatch.setattr(group_shares, "MOST_CANDIDATES", limits[1])


def _state(
    partitions: Sequence[int],
    previous: Previous,
    generations: Mapping[ProcessId, int] | None = None,
    standbys: int = 0,
) -> ApplicationState:
    """Sub-topology g has `partitions[g]` tasks, all stateful; a client that had partition p had it in all of them."""
    builder = ApplicationStateBuilder(AssignmentConfigs(num_standby_replicas=standbys))
    for subtopology, number in enumerate(partitions):
        for partition in range(number):
            changelog = TaskTopicPartition(TopicPartition(f"store-{subtopology}", partition), False, True)
            builder.add_task(
                TaskId(subtopology, partition), is_stateful=True, topic_partitions=[changelog], end_offset_sum=10
            )
    for client, owned in previous.items():
        tasks = [TaskId(subtopology, p) for subtopology in range(len(partitions)) for p in owned]
        builder.add_client(client, previous_active_tasks=tasks, generation=(generations or {}).get(client))
    return builder.build()


def _state_of(
    sizes: Sequence[int],
    owners: Mapping[TaskId, ProcessId],
    clients: Sequence[ProcessId],
    *,
    standbys: Mapping[ProcessId, Mapping[TaskId, int]] | None = None,
    threads: Sequence[int] = (1, 1, 1, 1),
) -> ApplicationState:
    """Sub-topology g has `sizes[g]` stateful tasks; `owners` had them, and clients had `standbys`, with these lags."""
    builder = ApplicationStateBuilder()
    for task in _tasks(sizes):
        changelog = TaskTopicPartition(TopicPartition(f"store-{task.subtopology}", task.partition), False, True)
        builder.add_task(task, is_stateful=True, topic_partitions=[changelog], end_offset_sum=100)
    for client, number in zip(clients, threads, strict=False):
        mine = [task for task, owner in owners.items() if owner == client]
        copies = (standbys or {}).get(client, {})
        builder.add_client(
            client,
            num_processing_threads=number,
            previous_active_tasks=mine,
            previous_standby_tasks=list(copies),
            task_lags={**dict.fromkeys(mine, 0), **copies},
        )
    return builder.build()


def _tasks(sizes: Sequence[int]) -> list[TaskId]:
    return [TaskId(subtopology, p) for subtopology, number in enumerate(sizes) for p in range(number)]


def _owners(answer: TaskAssignment) -> Owners:
    return {
        task.id: one.process_id
        for one in answer
        for task in one.tasks.values()
        if task.type is AssignedTask.Type.ACTIVE
    }


def _loads(answer: TaskAssignment) -> list[int]:
    return sorted((len(one.tasks) for one in answer), reverse=True)


def _assign(state: ApplicationState, groups: str | None = None) -> TaskAssignment:
    assignor = StreamJoinTaskAssignor()
    assignor.configure({STREAM_JOIN_GROUPS: groups})
    answer = assignor.assign(state)
    assert report_violations(state, answer).errors == ()
    return answer


def _partitions(answer: TaskAssignment, subtopology: int = 0) -> dict[ProcessId, list[int]]:
    return {
        one.process_id: [
            task.id.partition
            for task in one.tasks.values()
            if task.id.subtopology == subtopology and task.type is AssignedTask.Type.ACTIVE
        ]
        for one in answer
    }


@pytest.mark.parametrize(
    ("previous", "generations", "expected"),
    [
        ({A: [0, 1, 2], B: [3, 4, 5], C: [6, 7]}, {}, {A: [0, 1, 2, 9], B: [3, 4, 5], C: [6, 7, 8]}),
        ({A: [0, 1], B: [0, 1]}, {A: 5, B: 3}, {A: [0, 1], B: [2, 3]}),
        ({A: [0, 1], B: [0, 1]}, {A: 3, B: 5}, {A: [2, 3], B: [0, 1]}),
        ({A: [0, 1], B: [2, 3]}, {}, {A: [0, 1], B: [2, 3]}),
        ({A: [0, 1], B: [2, 3]}, {A: 2, B: 2}, {A: [0, 1, 4], B: [2, 3, 5]}),
        ({A: [], B: [0, 1]}, {B: 4}, {A: [2, 3], B: [0, 1]}),
        ({A: [0, 1, 4], B: [2, 3]}, {}, {A: [0, 1], B: [2, 3]}),
    ],
    ids=[
        "one left",
        "old claim of B",
        "old claim of A",
        "nothing changed",
        "topics have grown",
        "newcomer",
        "vanished",
    ],
)
def test_the_only_right_answers_of_the_kip(
    previous: Previous, generations: Mapping[ProcessId, int], expected: dict[ProcessId, list[int]]
) -> None:
    """KIP-315's examples with a single answer: nothing moves without need, the newer claim wins."""
    number = 1 + max(partition for owned in expected.values() for partition in owned)
    answer = _assign(_state([number, number], previous, generations))

    assert _partitions(answer) == _partitions(answer, 1) == expected


@pytest.mark.parametrize(
    ("previous", "sizes", "moves"),
    [
        ({A: [], B: [], C: [], D: []}, [3, 3, 2, 2], 0),
        ({A: [0, 1, 2, 9], B: [3, 4, 5], C: [6, 7, 8], D: []}, [3, 3, 2, 2], 2),
        ({A: [0, 1, 2, 3, 4], B: [5, 6, 7, 8, 9], C: []}, [4, 3, 3], 3),
        ({A: [0, 1, 2, 3, 4], B: [5, 6, 7, 8, 9], C: [], D: []}, [3, 3, 2, 2], 4),
        ({A: [0, 1, 2, 3, 4, 5], B: [6, 7, 8, 9], C: []}, [4, 3, 3], 3),
    ],
)
def test_newcomers_get_their_fair_share(previous: Previous, sizes: list[int], moves: int) -> None:
    """Sizes are fair, and no more partitions move than that takes; who has most gives first."""
    answer = _assign(_state([10, 10], previous))
    now = _partitions(answer)
    lost = {client: len(set(owned) - set(now[client])) for client, owned in previous.items()}

    assert now == _partitions(answer, 1)
    assert sorted(map(len, now.values()), reverse=True) == sizes
    assert sum(lost.values()) == moves
    longest = max(map(len, previous.values()))
    assert max(lost[client] for client, owned in previous.items() if len(owned) == longest) == max(lost.values())


@pytest.mark.parametrize("limits", LIMITS, ids=["together", "shares first", "in turn"])
@pytest.mark.parametrize(
    ("sizes", "groups", "had", "loads", "moves"),
    [
        ([3] * 10, "0,1", [A, B, C], [8, 8, 7, 7], 7),
        ([3] * 10, "0,1", [], [8, 8, 7, 7], 0),
        ([1] * 10, ";".join(map(str, range(10))), [A], [3, 3, 2, 2], 7),
        (range(1, 17, 2), None, [A, B], [16, 16, 16, 16], 32),
        ([5, 5, 5, 3, 3, 2, 2, 2, 1], None, [A, B, C], [8, 8, 6, 6], 9),
    ],
    ids=["groups of three", "from scratch", "groups of one", "two newcomers", "units of several tasks"],
)
def test_newcomers_get_their_fair_share_over_all_groups(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    sizes: Sequence[int],
    groups: str | None,
    had: Sequence[ProcessId],
    loads: list[int],
    moves: int,
) -> None:
    """Also where groups have fewer partitions than there are clients. Client c had each partition p with p mod n = c."""
    _limit(monkeypatch, limits)
    owners = {task: had[task.partition % len(had)] for task in _tasks(sizes) if had}
    answer = _assign(_state_of(sizes, owners, [A, B, C, D]), groups)
    after = _owners(answer)

    assert _loads(answer) == loads
    assert sum(after[task] != owner for task, owner in owners.items()) == moves


@st.composite
def _cases(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int], Owners, list[ProcessId], list[int]]:
    """(Join groups, partitions of each, owners before, clients, threads); partitions were not torn apart before."""
    tasks_per_unit = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    numbers = iter(range(6))
    groups = [tuple(next(numbers) for _ in range(one)) for one in tasks_per_unit]
    sizes = [draw(st.integers(1, 4)) for _ in groups]
    clients = [A, B, C][: draw(st.integers(1, 3))]
    threads = [draw(st.integers(1, 2)) for _ in clients]
    owners = {}
    for group, size in zip(groups, sizes, strict=True):
        for partition in range(size):
            owner = draw(st.sampled_from([None, *clients]))
            if owner is not None:
                owners.update({TaskId(number, partition): owner for number in group})
    return groups, sizes, owners, clients, threads


Shares = tuple[int, ...]


def _all_shares(size: int, threads: Sequence[int]) -> list[Shares]:
    """All ways to give everybody floor or ceil of the share of a group."""
    floor = [size * one // sum(threads) for one in threads]
    may = [client for client, one in enumerate(threads) if size * one % sum(threads)]
    return [
        tuple(number + (client in chosen) for client, number in enumerate(floor))
        for chosen in combinations(may, size - sum(floor))
    ]


def _evenness(shares: Sequence[Shares], weights: Sequence[int], threads: Sequence[int]) -> Fraction:
    loads = [sum(share[c] * weight for share, weight in zip(shares, weights, strict=True)) for c in range(len(threads))]
    return sum((Fraction(load * load, thread) for load, thread in zip(loads, threads, strict=True)), Fraction(0))


@settings(max_examples=examples(40))
@given(_cases())
def test_loads_are_even_first_and_fewest_partitions_move_second(
    case: tuple[list[tuple[int, ...]], list[int], Owners, list[ProcessId], list[int]],
) -> None:
    """Against all choices of shares, groups of large partitions first; asked again, nothing moves."""
    groups, sizes, owners, clients, threads = case
    spelled = ";".join(",".join(map(str, group)) for group in groups)
    of_subtopology = [size for group, size in zip(groups, sizes, strict=True) for _ in group]
    state = _state_of(of_subtopology, owners, clients, threads=threads)
    after = _owners(_assign(state, spelled))

    decided = [[size * one // sum(threads) for one in threads] for size in sizes]
    shares = [tuple(share) for share in decided]
    for weight in (2, 1):
        of_class = [index for index, group in enumerate(groups) if len(group) == weight]
        found = list(shares)
        moved = 0
        for index in of_class:
            units = [TaskId(groups[index][0], partition) for partition in range(sizes[index])]
            found[index] = tuple(sum(after[unit] == client for unit in units) for client in clients)
            moved += sum(unit in owners and after[unit] != owners[unit] for unit in units)
        possible = []
        for choice in product(*(_all_shares(sizes[index], threads) for index in of_class)):
            other = list(shares)
            lost = 0
            for index, share in zip(of_class, choice, strict=True):
                other[index] = share
                units = [TaskId(groups[index][0], partition) for partition in range(sizes[index])]
                had = [sum(owners.get(unit) == client for unit in units) for client in clients]
                lost += sum(max(0, before - now) for before, now in zip(had, share, strict=True))
            possible.append((_evenness(other, [len(group) for group in groups], threads), lost))
        assert (_evenness(found, [len(group) for group in groups], threads), moved) == min(possible)
        shares = found

    assert _owners(_assign(_state_of(of_subtopology, after, clients, threads=threads), spelled)) == after


@settings(max_examples=examples(40))
@given(_cases())
def test_what_is_decided_for_large_partitions_first_is_said_where_it_may_matter(
    case: tuple[list[tuple[int, ...]], list[int], Owners, list[ProcessId], list[int]],
) -> None:
    """Against all choices of shares of all groups: a goal that is not named is reached as well as by any of them."""
    groups, sizes, owners, clients, threads = case
    of_subtopology = [size for group, size in zip(groups, sizes, strict=True) for _ in group]
    answer = _assign(
        _state_of(of_subtopology, owners, clients, threads=threads),
        ";".join(",".join(map(str, group)) for group in groups),
    )
    after, weights = _owners(answer), [len(group) for group in groups]
    units = [[TaskId(group[0], p) for p in range(size)] for group, size in zip(groups, sizes, strict=True)]
    found = [tuple(sum(after[unit] == client for unit in of) for client in clients) for of in units]
    had = [[sum(owners.get(unit) == client for unit in of) for client in clients] for of in units]
    moved = sum(unit in owners and after[unit] != owners[unit] for of in units for unit in of)
    possible = [
        (
            _evenness(choice, weights, threads),
            sum(
                max(0, b - n) for before, now in zip(had, choice, strict=True) for b, n in zip(before, now, strict=True)
            ),
        )
        for choice in product(*(_all_shares(size, threads) for size in sizes))
    ]
    best, reached = min(possible), (_evenness(found, weights, threads), moved)
    if Goal.ACTIVE_EVEN not in answer.inexact:
        assert reached[0] == best[0]
        if Goal.ACTIVE_COST not in answer.inexact:
            assert reached == best
    if len(set(weights)) == 1:
        assert not answer.inexact


def test_a_choice_for_large_partitions_that_makes_loads_less_even_is_said() -> None:
    """A client with three threads and one with one: it gets 5 of 8 tasks, where 6 would be more even."""
    state = _state_of([1, 1, 2, 2, 2], {}, [A, B], threads=[1, 3])
    answer = _assign(state, "0,1;2,3,4")

    assert _loads(answer) == [5, 3]
    assert Goal.ACTIVE_EVEN in answer.inexact
    assert _assign(_state_of([2] * 5, {}, [A, B]), "0,1;2,3,4").inexact == {Goal.ACTIVE_EVEN_STATEFUL}


@given(_cases())
def test_too_large_for_the_flow_the_shares_are_kept_all_the_same(
    case: tuple[list[tuple[int, ...]], list[int], Owners, list[ProcessId], list[int]],
) -> None:
    """Group after group: floor or ceil in each, and asked again nothing moves."""
    groups, sizes, owners, clients, threads = case
    spelled = ";".join(",".join(map(str, group)) for group in groups)
    of_subtopology = [size for group, size in zip(groups, sizes, strict=True) for _ in group]
    with pytest.MonkeyPatch.context() as patch:
        _limit(patch, LIMITS[-1])
        after = _owners(_assign(_state_of(of_subtopology, owners, clients, threads=threads), spelled))
        again = _owners(_assign(_state_of(of_subtopology, after, clients, threads=threads), spelled))

    for group, size in zip(groups, sizes, strict=True):
        units = [after[TaskId(group[0], partition)] for partition in range(size)]
        assert tuple(map(units.count, clients)) in _all_shares(size, threads)
    assert again == after


def test_partitions_go_where_most_of_their_state_is_then_least_behind() -> None:
    """Both clients get one of two partitions; only one way round fits."""
    half, whole, other = TaskId(0, 0), TaskId(1, 0), (TaskId(0, 1), TaskId(1, 1))
    both = dict.fromkeys((half, whole, *other), 50)
    more = _state_of([2, 2], {}, [A, B], standbys={A: {half: 0, **dict.fromkeys(other, 50)}, B: both})
    behind = _state_of([2, 2], {}, [A, B], standbys={A: both, B: {**both, whole: 49}})

    assert _partitions(_assign(more, "0,1")) == {A: [1], B: [0]}
    assert _partitions(_assign(behind, "0,1")) == {A: [1], B: [0]}


@pytest.mark.parametrize("limits", LIMITS, ids=["together", "shares first", "in turn"])
def test_of_groups_of_one_partition_each_client_gets_those_whose_state_it_has(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    """What it had stays; of what nobody has the client that is least behind takes over."""
    _limit(monkeypatch, limits)
    tasks = _tasks([1] * 4)
    near, far = [1, 9, 9, 1], [9, 1, 1, 9]
    standbys = {A: dict(zip(tasks, far, strict=True)), B: dict(zip(tasks, near, strict=True))}
    had = dict(zip(tasks, [B, A, A, B], strict=True))

    assert _owners(_assign(_state_of([1] * 4, {}, [A, B], standbys=standbys), "0;1;2;3")) == had
    assert _owners(_assign(_state_of([1] * 4, had, [A, B]), "0;1;2;3")) == had


def test_newcomers_get_the_groups_whose_state_they_have_but_nothing_moves_for_state() -> None:
    """Groups of one partition. The newcomer's state decides what it gets, but not how many partitions move."""
    tasks = _tasks([1] * 4)
    warm = _state_of([1] * 4, dict.fromkeys(tasks, A), [A, B], standbys={B: {tasks[1]: 5, tasks[2]: 5}})
    stays = _state_of([1, 1], {tasks[0]: A}, [A, B], standbys={A: {tasks[1]: 5}, B: {tasks[0]: 5}})

    assert [_owners(_assign(warm, "0;1;2;3"))[task] for task in tasks] == [A, B, B, A]
    assert [_owners(_assign(stays, "0;1"))[task] for task in tasks[:2]] == [A, B]


@pytest.mark.parametrize("number", [0, 1])
def test_who_cannot_have_what_it_is_best_for_gets_what_it_has_some_state_of(number: int) -> None:
    """A is least behind in both groups of one partition, B has old state of one."""
    tasks = _tasks([1, 1])
    state = _state_of([1, 1], {}, [A, B], standbys={A: dict.fromkeys(tasks, 1), B: {tasks[number]: 9}})

    assert _owners(_assign(state, "0;1")) == {tasks[number]: B, tasks[1 - number]: A}


def test_of_equal_answers_clients_of_smaller_number_get_more() -> None:
    answer = _assign(_state_of([1] * 6, {}, [A, B, C, D]), "0;1;2;3;4;5")

    assert [len(one.tasks) for one in sorted(answer, key=lambda one: one.process_id)] == [2, 2, 1, 1]


def _mixed(
    stateful: Sequence[int], stateless: Sequence[int], owned: Mapping[ProcessId, Sequence[TaskId]]
) -> ApplicationState:
    """Sub-topologies of so many partitions, the stateful ones first, and who had which tasks."""
    builder = ApplicationStateBuilder()
    for task in _tasks([*stateful, *stateless]):
        builder.add_task(task, is_stateful=task.subtopology < len(stateful))
    for client, tasks in owned.items():
        builder.add_client(client, previous_active_tasks=tasks)
    return builder.build()


def test_of_several_claims_most_stateful_tasks_count_then_most_tasks() -> None:
    """Partition 0 was torn apart: A had sub-topology 0 of it, B the others."""
    torn = {A: [TaskId(0, 0)], B: [TaskId(1, 0), TaskId(2, 0)]}
    turned = {A: [TaskId(1, 0), TaskId(2, 0)], B: [TaskId(0, 0)]}

    assert _partitions(_assign(_mixed([], [2, 2, 2], torn))) == {A: [1], B: [0]}
    assert _partitions(_assign(_mixed([2], [2, 2], turned))) == {A: [1], B: [0]}


def test_partitions_with_stateful_tasks_are_spread_evenly_even_away_from_their_state() -> None:
    """Two of the four have stateful tasks; B has standbys of both."""
    builder = ApplicationStateBuilder()
    stateful = _tasks([2])
    for task in _tasks([2, 4]):
        changelog = TaskTopicPartition(TopicPartition("store", task.partition), False, True)
        builder.add_task(
            task,
            is_stateful=task in stateful,
            topic_partitions=[changelog] if task in stateful else [],
            end_offset_sum=9,
        )
    builder.add_client(A)
    builder.add_client(B, previous_standby_tasks=stateful)
    after = _partitions(_assign(builder.build(), "0,1"))

    assert sorted(map(len, after.values())) == [1, 1]


@pytest.mark.parametrize(("unlogged", "logged"), [(1, 4), (3, 3), (1, 7)])
def test_stores_without_a_changelog_have_no_standbys(unlogged: int, logged: int) -> None:
    """They are no standbys in the counting either: with those of the others all loads are equal."""
    builder = ApplicationStateBuilder(AssignmentConfigs(num_standby_replicas=1))
    for task in _tasks([unlogged, logged]):
        changelog = TaskTopicPartition(TopicPartition("store", task.partition), False, True)
        topics = [changelog] if task.subtopology else []
        builder.add_task(task, is_stateful=True, topic_partitions=topics, end_offset_sum=10)
    for client in (A, B, C):
        builder.add_client(client)
    answer = _assign(builder.build(), "0;1")
    standbys = [task.id for one in answer for task in one.tasks.values() if task.type is AssignedTask.Type.STANDBY]

    assert sorted(standbys) == [TaskId(1, partition) for partition in range(logged)]
    assert _loads(answer) == [(unlogged + 2 * logged) // 3] * 3


def test_groups_come_from_partition_counts_unless_they_are_set() -> None:
    """By default equal counts are a group; the setting names others, and what it leaves out stands alone."""
    state = _state([4, 4, 2], {A: [], B: []})
    default, named = _assign(state), _assign(state, "0,2")

    assert _partitions(default, 0) == _partitions(default, 1) == {A: [0, 2], B: [1, 3]}
    assert _partitions(named, 2) == {
        client: [p for p in owned if p < 2] for client, owned in _partitions(named, 0).items()
    }
    assert sorted(chain.from_iterable(_partitions(named, 1).values())) == [0, 1, 2, 3]


def test_partitions_that_not_all_subtopologies_have_are_placed_too() -> None:
    """A longer sub-topology's extra tasks have owners, and the common ones stay together."""
    answer = _assign(_state([6, 4], {A: [0, 1], B: [2, 3]}), "0,1")
    long, short = _partitions(answer, 0), _partitions(answer, 1)

    assert sorted(chain.from_iterable(long.values())) == list(range(6))
    assert {client: [p for p in owned if p < 4] for client, owned in long.items()} == short


def test_standbys_of_a_join_are_together_and_take_over() -> None:
    """Standbys of equal partitions share a client; when the active one dies the partition goes there whole."""
    before = _assign(_state([6, 6], {A: [], B: [], C: []}, standbys=1))
    standbys = {
        (task.id.partition, task.id.subtopology): one.process_id
        for one in before
        for task in one.tasks.values()
        if task.type is AssignedTask.Type.STANDBY
    }
    assert all(standbys[partition, 0] == standbys[partition, 1] for partition in range(6))

    builder = ApplicationStateBuilder(AssignmentConfigs(num_standby_replicas=1))
    for info in _state([6, 6], {A: []}).all_tasks.values():
        builder.add_task_info(info, end_offset_sum=10)
    for one in before:
        if one.process_id != A:
            roles = {kind: [t.id for t in one.tasks.values() if t.type is kind] for kind in AssignedTask.Type}
            builder.add_client(
                one.process_id,
                previous_active_tasks=roles[AssignedTask.Type.ACTIVE],
                previous_standby_tasks=roles[AssignedTask.Type.STANDBY],
            )
    after = _partitions(_assign(builder.build()))

    lost = _partitions(before)[A]
    assert [partition in after[standbys[partition, 0]] for partition in lost] == [True] * len(lost)


@pytest.mark.parametrize("groups", ["0,", "a", "0;1;0", "0,1;;2", "-1", "12345678901"])
def test_wrong_groups_are_refused_when_the_settings_are_built(groups: str) -> None:
    """The error names the key and the value."""
    settings = {"application.id": "app", "task.assignor.class": "stream-join", STREAM_JOIN_GROUPS: groups}
    with pytest.raises(ConfigException, match=r"stream\.join\.groups") as caught:
        StreamsConfig(settings)
    assert groups in str(caught.value)


def test_a_number_too_long_for_python_is_refused_briefly() -> None:
    with pytest.raises(ConfigException, match=r"stream\.join\.groups") as caught:
        parse_join_groups("9" * 5_000)
    assert len(str(caught.value)) < 400


def test_standbys_of_joins_are_spread_over_tags() -> None:
    """Clients A and B in one zone, C and D in the other: every partition is in both, whole, and loads are even."""
    plain = _state([8, 8], {A: [], B: [], C: [], D: []})
    builder = ApplicationStateBuilder(AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_tags=["zone"]))
    for info in plain.all_tasks.values():
        builder.add_task_info(info, end_offset_sum=10)
    zones = {A: "east", B: "east", C: "west", D: "west"}
    for client, zone in zones.items():
        builder.add_client(client, client_tags={"zone": zone})
    holders: dict[int, set[str]] = {}
    for one in _assign(builder.build()):
        assert len(one.tasks) == 8
        for task in one.tasks:
            holders.setdefault(task.partition, set()).add(zones[one.process_id])

    assert all(found == {"east", "west"} for found in holders.values())


def test_a_group_of_subtopologies_that_do_not_exist_is_refused() -> None:
    """The error says which there are."""
    with pytest.raises(ConfigException, match=r"sub-topology 7, but the application has only 0, 1"):
        _assign(_state([2, 2], {A: []}), "0,7")
