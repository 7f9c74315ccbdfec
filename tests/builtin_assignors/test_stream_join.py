"""`StreamJoinTaskAssignor`: KIP-315's rules on tasks, by example and by property."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import pytest

from task_assignor.builtin_assignors import StreamJoinTaskAssignor
from task_assignor.builtin_assignors.stream_join import STREAM_JOIN_GROUPS, parse_join_groups
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
from task_assignor.validation import report_violations

A, B, C, D = (ProcessId.parse(f"00000000-0000-0000-0000-00000000000{number}") for number in range(1, 5))
Previous = Mapping[ProcessId, Sequence[int]]


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
