"""Random states: repeatable, of the shape asked for, and with every oddity that the sdk allows."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from task_assignor.sdk import (
    MISSING,
    ApplicationState,
    ConfigException,
    Role,
    StateException,
    TaskAssignment,
    state_from_json,
    state_to_json,
)
from task_assignor.testing import application_states, random_assignment, random_state, random_states, task_assignments
from task_assignor.validation import report_violations

# A test that shall fail need not do so by the smallest example: to look for that one takes seconds.
NOT_SHRUNK = (Phase.generate,)


def test_equal_seeds_give_equal_states_and_each_can_be_had_alone() -> None:
    states = [state_to_json(state) for state in random_states(3, 20)]
    assert [state_to_json(random_state(3, number)) for number in range(20)] == states
    assert [state_to_json(state) for state in random_states(3, 5, start=15)] == states[15:]
    assert [state_to_json(state) for state in random_states(4, 20)] != states


def features(state: ApplicationState) -> Iterator[str]:
    """What is special about a state."""
    columns, configs = state.columns, state.assignment_configs
    tasks, clients, previous, lags = columns.tasks, columns.clients, columns.previous, columns.lags
    yield f"strategy {configs.rack_aware_assignment_strategy}"
    for name, cost in (
        ("traffic", configs.rack_aware_traffic_cost),
        ("non-overlap", configs.rack_aware_non_overlap_cost),
    ):
        yield f"{name} cost {'none' if cost is None else 'zero' if cost == 0 else 'positive'}"
    yield f"{configs.num_standby_replicas} standbys"
    yield f"{len(configs.rack_aware_assignment_tags)} rack tags"
    yield f"{len(clients)} clients"
    if not len(tasks):
        yield "no task"
        return
    names = {tasks.topology[row] < 0 for row in range(len(tasks))}
    yield "named and unnamed topologies" if len(names) == 2 else "unnamed" if names == {True} else "named"
    yield "several sub-topologies" if len(tasks.group_offsets) > 2 else "one sub-topology"
    if (np.diff(tasks.partition) > 1).any():
        yield "partitions missing"
    if (tasks.is_stateful & ~tasks.has_changelog).any():
        yield "stores without changelog"
    if (tasks.partition_is_source & tasks.partition_is_changelog).any():
        yield "source changelog"
    if (~tasks.is_stateful).any():
        yield "stateless"
    if (tasks.end_offset_sum == MISSING)[tasks.has_changelog].any():
        yield "no end offset sum"
    if (tasks.end_offset_sum == -3).any():
        yield "end offset sum unknown"
    racks = {None if row < 0 else len(tasks.rack_sets[row]) for row in tasks.partition_rack_set.tolist()}
    yield from (f"partition with racks: {count}" for count in racks)
    yield from {"client without rack" if rack < 0 else "client with rack" for rack in clients.rack.tolist()}
    if any(process_id.id.int >> 127 for process_id in clients.process_ids):
        yield "process id with the high bit"
    if len(set(clients.num_processing_threads.tolist())) > 1:
        yield "different threads"
    if any(clients.client_tags):
        yield "client tags"
    if (clients.generation != MISSING).any():
        yield "generations"
    if any(clients.host_infos):
        yield "host"
    if any(len(names) > 1 for names in clients.consumers):
        yield "several consumers"
    owners = Counter(previous.pairs(Role.ACTIVE)[1].tolist())
    if max(owners.values(), default=0) > 1:
        yield "two claim a task"
    if previous.vanished:
        yield "vanished"
    pairs = [set(zip(*(column.tolist() for column in previous.pairs(role)), strict=True)) for role in Role]
    if pairs[0] & pairs[1]:
        yield "both roles"
    if not len(previous.task):
        yield "no history"
    yield from (f"lag {lag}" for lag in {-2, -3, 0, 2**63 - 1} & set(lags.lag.tolist()))
    if len(lags.lag) < int(tasks.has_changelog.sum()) * len(clients):
        yield "sparse lags"
    if not lags.is_computed.all():
        yield "lags not known"


EXPECTED = {
    *(f"strategy {name}" for name in ("none", "min_traffic", "balance_subtopology")),
    *(f"{which} cost {cost}" for which in ("traffic", "non-overlap") for cost in ("none", "zero", "positive")),
    *(f"{count} standbys" for count in range(4)),
    *(f"{count} rack tags" for count in range(3)),
    *(f"{count} clients" for count in range(1, 7)),
    *(f"partition with racks: {count}" for count in (None, 0, 1, 2, 3)),
    *(f"lag {lag}" for lag in (-2, -3, 0, 2**63 - 1)),
    "no task",
    "named and unnamed topologies",
    "named",
    "unnamed",
    "several sub-topologies",
    "one sub-topology",
    "partitions missing",
    "stores without changelog",
    "source changelog",
    "stateless",
    "no end offset sum",
    "end offset sum unknown",
    "client without rack",
    "client with rack",
    "process id with the high bit",
    "different threads",
    "client tags",
    "generations",
    "host",
    "several consumers",
    "two claim a task",
    "vanished",
    "both roles",
    "no history",
    "sparse lags",
    "lags not known",
}


def test_every_feature_of_states_occurs_and_often_enough() -> None:
    found = Counter(feature for state in random_states(1, 600, lags_known=False) for feature in features(state))
    assert set(found) == EXPECTED
    assert {feature: count for feature, count in found.items() if count < 6} == {}


@pytest.mark.parametrize(
    ("shape", "never"),
    [
        ({"consistent": True}, {"vanished", "two claim a task", "both roles"}),
        ({"racks_known": True}, {"client without rack", "partition with racks: None", "partition with racks: 0"}),
        ({}, {"lags not known"}),
        ({"max_standbys": 0}, {"1 standbys", "2 standbys", "3 standbys"}),
        ({"max_threads": 1}, {"different threads", "several consumers"}),
        ({"max_clients": 1}, {"2 clients", "two claim a task"}),
    ],
)
def test_the_shape_is_kept(shape: dict[str, Any], never: set[str]) -> None:
    found = {feature for state in random_states(2, 300, **shape) for feature in features(state)}
    assert found & never == set()


def gpus(state: ApplicationState) -> list[str | None]:
    return [tags.get("gpu") for tags in state.columns.clients.client_tags]


def test_tags_of_ones_own_are_drawn_for_each_client_and_missing_where_they_may() -> None:
    drawn = Counter(gpu for state in random_states(1, 50, client_tags={"gpu": ("a", "b", None)}) for gpu in gpus(state))
    assert set(drawn) == {"a", "b", None}
    assert min(drawn.values()) > 20


def test_the_usual_tags_can_have_other_values() -> None:
    states = list(random_states(1, 50, client_tags={"zone": ("elsewhere", None)}))
    tags = [tags for state in states for tags in state.columns.clients.client_tags]
    assert {tag.get("zone") for tag in tags} == {"elsewhere", None}
    assert any("cluster" in tag for tag in tags)


def test_tags_are_drawn_by_hypothesis_too() -> None:
    states = application_states(client_tags={"gpu": (None, "yes")})
    find(states, lambda state: set(gpus(state)) == {None, "yes"}, settings=settings(phases=NOT_SHRUNK))


def test_topologies_are_drawn_from_the_names_that_are_given() -> None:
    """By seeds and by Hypothesis; without names the states are what they were."""

    def names(state: ApplicationState) -> set[str | None]:
        return {task.topology_name for task in state.all_tasks}

    states = list(random_states(1, 60, topologies=("orders", "shops")))
    assert set().union(*map(names, states)) == {"orders", "shops"}
    assert any(len(names(state)) == 2 for state in states)
    assert set().union(*(names(state) for state in random_states(1, 60, topologies=(None,)))) == {None}
    plain = random_state(1, 3)
    assert len(plain.all_tasks) == len(random_state(1, 3, topologies=("orders",)).all_tasks)
    states_of_both = application_states(topologies=("orders", None))
    find(states_of_both, lambda state: names(state) == {"orders", None}, settings=settings(phases=NOT_SHRUNK))


@pytest.mark.parametrize("topologies", ["orders", ("",), (1,), {"orders"}, 3, None])
def test_topologies_of_another_form_are_refused(topologies: Any) -> None:
    with pytest.raises(ConfigException, match=r"^The topologies .* such as \('orders', None\)"):
        random_states(1, 1, topologies=topologies)


@pytest.mark.parametrize(
    "client_tags", ["gpu", {"gpu": "yes"}, {"gpu": ()}, {"gpu": (1,)}, {1: ("yes",)}, {"gpu": {"yes", "no"}}]
)
def test_tags_of_another_form_are_refused(client_tags: Any) -> None:
    with pytest.raises(ConfigException, match=r"^The client_tags .* such as \{'gpu': \('yes', None\)\}"):
        random_states(1, 1, client_tags=client_tags)


# Before tags could be asked for, these were the states: a seed in somebody's bug report still means the same.
def test_seeds_mean_what_they_always_meant() -> None:
    documents = [state_to_json(state) for state in random_states(3, 50, lags_known=False)]
    assert (
        hashlib.sha256(json.dumps(documents).encode()).hexdigest()
        == "25e6b0d063dc8ed1d70b92d093da65ebe8a10c5a8badb87dde89cbf6f9ba237b"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_state(1, max_clients=0), r"max_clients \(0\) must be an int from 1"),
        (lambda: random_state(1, max_threads=0), r"max_threads \(0\) must be an int from 1"),
        (lambda: random_states(1, 1, max_tasks=-1), r"max_tasks \(-1\) must be an int from 0"),
        (lambda: application_states(max_standbys=-1), r"max_standbys \(-1\) must be an int from 0"),
        (lambda: random_state(1, lags_known="no"), r"lags_known \('no'\) must be True or False"),  # type: ignore[arg-type]
        (lambda: application_states(consistent=1), r"consistent \(1\) must be True or False"),  # type: ignore[arg-type]
        (lambda: random_states(1, 1, racks_known=None), r"racks_known \(None\) must be True or False"),  # type: ignore[arg-type]
        (lambda: random_states(1, -1), r"count \(-1\) must be an int from 0"),
        (lambda: random_states(1, 1, start=-1), r"start \(-1\) must be an int from 0"),
    ],
)
def test_a_shape_that_there_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigException, match=f"^The {message}"):
        make()


def notes_of(test: Callable[[], None]) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        test()
    return caught.value.__notes__


def test_a_state_that_fails_is_shown_so_that_it_can_be_repeated() -> None:
    @settings(database=None, phases=NOT_SHRUNK)
    @given(application_states(max_clients=2))
    def fails(state: ApplicationState) -> None:
        assert len(state.all_tasks) < 2

    (line,) = [line for note in notes_of(fails) for line in note.splitlines() if line.startswith("{")]
    assert len(state_from_json(json.loads(line)).all_tasks) >= 2


def test_an_assignment_that_fails_is_shown_too() -> None:
    state = random_state(1)

    @settings(database=None, phases=NOT_SHRUNK)
    @given(task_assignments(state))
    def fails(assignment: TaskAssignment) -> None:
        assert not list(assignment)

    notes = notes_of(fails)
    assert any(note.startswith("The assignment, as `task-assignor validate` reads it:\n") for note in notes)


def test_answers_to_what_is_no_state_are_refused() -> None:
    wrong: Any = application_states()
    with pytest.raises(StateException, match=r"^The state \(.*must be an ApplicationState\."):
        find(task_assignments(wrong), lambda assignment: True)


def test_a_state_that_is_large_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("task_assignor.testing.strategies._LONGEST_NOTE", 100)

    @settings(database=None, phases=NOT_SHRUNK)
    @given(application_states())
    def fails(state: ApplicationState) -> None:
        assert state.columns is None

    (note,) = [note for note in notes_of(fails) if note.startswith("The state")]
    assert re.fullmatch(
        r"The state is too large .* \(\d+ characters of JSON\)\. Ask for fewer tasks and clients\.", note
    )


def test_states_that_do_not_fail_are_not_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("task_assignor.testing.strategies.state_to_json")

    @settings(database=None, max_examples=5)
    @given(application_states())
    def holds(state: ApplicationState) -> None:
        assert state.columns is not None

    holds()


def test_big_states_can_be_asked_for() -> None:
    sizes = [
        (len(s.columns.tasks), len(s.columns.clients)) for s in random_states(5, 20, max_tasks=300, max_clients=40)
    ]
    assert max(tasks for tasks, _ in sizes) > 150
    assert max(clients for _, clients in sizes) > 20


def test_random_answers_are_usually_wrong_in_many_ways_and_sometimes_right() -> None:
    reports = [report_violations(state, random_assignment(state, 1)) for state in random_states(7, 600)]
    kinds = Counter(violation.kind for report in reports for violation in report.violations)
    assert sum(report.is_valid for report in reports) > 10
    assert len(kinds) >= 11


def test_numbers_of_numpy_do_not_wrap_around() -> None:
    found = list(random_states(3, np.uint8(2), start=np.uint8(255)))  # type: ignore[arg-type]
    assert [state_to_json(state) for state in found] == [
        state_to_json(random_state(3, number)) for number in (255, 256)
    ]


def test_equal_tags_are_drawn_alike_in_whatever_order_they_are_given() -> None:
    tags: dict[str, list[str | None]] = {"a": ["1", "2", None], "b": ["3", "4"]}
    backwards = {tag: tags[tag] for tag in reversed(tags)}
    for number in range(6):
        one, other = (random_state(1, number, client_tags=order) for order in (tags, backwards))
        assert state_to_json(one) == state_to_json(other)
