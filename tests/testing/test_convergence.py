"""A cluster comes to rest within Kafka's own limits, whatever the assignor; one that does not says what happened."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from task_assignor.builtin_assignors import HighAvailabilityTaskAssignor, StickyTaskAssignor
from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    ConfigException,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskAssignor,
    TaskId,
    UnknownClientError,
)
from task_assignor.testing import (
    Cluster,
    NotConvergedError,
    a_client,
    a_process_id,
    a_stateful_task,
    an_assignment,
    assert_balanced,
    assert_fair_shares,
    assert_valid,
    run_random_story,
    stateful_tasks,
    stateless_tasks,
)
from tests.budget import examples

Check: TypeAlias = Callable[[Cluster], None]
RACKS = [f"rack-{number}" for number in range(5)]


def kafka_cluster(clients: int, stateless: int, stateful: int, strategy: str) -> Cluster:
    """As in Kafka's test: sub-topologies of up to five partitions, two racks for each task, one thread per client."""
    tasks = [
        task
        for make, count, first in ((stateless_tasks, stateless, 0), (stateful_tasks, stateful, 50))
        for start in range(0, count, 5)
        for task in make(first + start // 5, min(5, count - start), racks=RACKS[start % 3 : start % 3 + 2])
    ]
    configs = AssignmentConfigs(
        acceptable_recovery_lag=100,
        max_warmup_replicas=2,
        probing_rebalance_interval_ms=60_000,
        rack_aware_assignment_strategy=strategy,
    )
    return Cluster(tasks, [a_client(n, rack=RACKS[n % 5]) for n in range(1, clients + 1)], configs)


def costs(seed: int) -> dict[str, Any]:
    """Kafka's test leaves the costs open; the public assignors look at racks only with both of them."""
    return {} if seed % 2 else {"rack_aware_traffic_cost": 1 + seed % 11, "rack_aware_non_overlap_cost": seed % 7}


def check_at_rest(cluster: Cluster) -> None:
    """There are no warm-ups, and all standbys that there could be."""
    last = cluster.rebalances[-1]
    assert_valid(last.state, last.assignment, strict=True)


def check_high_availability(cluster: Cluster) -> None:
    """What Kafka's test asks for: no strategy but min_traffic gives up balance."""
    check_at_rest(cluster)
    last = cluster.rebalances[-1]
    if cluster.configs.rack_aware_assignment_strategy != "min_traffic":
        assert_balanced(last.state, last.assignment)
        assert_balanced(last.state, last.assignment, tasks="stateful")


def check_sticky(cluster: Cluster) -> None:
    """Its first goal, whatever the strategy. (It moves no task only to even out those with state.)"""
    check_at_rest(cluster)
    assert_fair_shares(cluster.rebalances[-1].state, cluster.rebalances[-1].assignment)


@pytest.mark.parametrize(
    ("assignor", "check"),
    [
        pytest.param(HighAvailabilityTaskAssignor, check_high_availability, id="high-availability"),
        pytest.param(StickyTaskAssignor, check_sticky, id="sticky"),
    ],
)
@pytest.mark.parametrize("strategy", ["none", "min_traffic", "balance_subtopology"])
class TestWithinTheLimitsOfKafkasOwnTest:
    """`TaskAssignorConvergenceTest`: static, a node joins, a node leaves, at random."""

    def test_a_cluster_where_nothing_happens_is_at_rest_at_once(
        self, assignor: type[TaskAssignor], check: Check, strategy: str
    ) -> None:
        cluster = kafka_cluster(1, 1, 1, strategy)
        assert cluster.settle(assignor, 1) == 1
        check(cluster)

    def test_one_joins(self, assignor: type[TaskAssignor], check: Check, strategy: str) -> None:
        cluster = kafka_cluster(1, 7, 11, strategy)
        cluster.settle(assignor, 1)
        cluster.add(a_client(2, rack=RACKS[2]))
        cluster.settle(assignor, 11 // 2 + 1)
        check(cluster)

    def test_one_leaves(self, assignor: type[TaskAssignor], check: Check, strategy: str) -> None:
        cluster = kafka_cluster(7, 11, 13, strategy)
        cluster.settle(assignor, 1)
        cluster.drop(a_process_id(7))
        cluster.settle(assignor, 13 // 2 + 2)
        check(cluster)

    def test_at_random(self, assignor: type[TaskAssignor], check: Check, strategy: str) -> None:
        for seed in range(3):
            run_random_story(assignor, seed, check=check, rack_aware_assignment_strategy=strategy, **costs(seed))

    @pytest.mark.slow
    def test_at_random_for_long(self, assignor: type[TaskAssignor], check: Check, strategy: str) -> None:
        for seed in range(1_000, 1_000 + examples(10_000) // 20):
            run_random_story(assignor, seed, check=check, rack_aware_assignment_strategy=strategy, **costs(seed))


def test_a_newcomer_warms_up_before_it_takes_over() -> None:
    """Two warm-ups at a time, each asked for with a follow-up; tasks move only once their state is there."""
    cluster = Cluster(stateful_tasks(0, 8), [a_client(1)], AssignmentConfigs(max_warmup_replicas=2))
    cluster.settle(HighAvailabilityTaskAssignor, 1)
    cluster.add(a_client(2))
    count = cluster.settle(HighAvailabilityTaskAssignor, 5)

    rounds = cluster.rebalances[-count - 1 :]
    active_on_newcomer = [
        sum(str(task).startswith("ACTIVE") for task in each.tasks.values())
        for done in rounds
        for each in done.assignment
        if each.process_id == a_process_id(2)
    ]
    assert active_on_newcomer == [0, 2, 4, 4]
    assert [done.follow_up for done in rounds] == [True, True, False, False]


class Flaps(TaskAssignor):
    """Gives everything to another client every time."""

    def __init__(self) -> None:
        self.calls = itertools.count()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        numbers = [client.id.int for client in application_state.columns.clients.process_ids]
        owner = numbers[next(self.calls) % len(numbers)]
        return an_assignment(application_state, active={owner: application_state.all_tasks})


class Forgets(TaskAssignor):
    """Leaves out a task as soon as there are two clients."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        tasks = list(application_state.all_tasks)
        first, *others = (client.id.int for client in application_state.columns.clients.process_ids)
        return an_assignment(application_state, active={first: tasks[1:] if others else tasks})


class AlwaysAsks(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        first = application_state.columns.clients.process_ids[0].id.int
        assignment = an_assignment(application_state, active={first: application_state.all_tasks})
        return TaskAssignment(each.with_followup_rebalance(0) for each in assignment)


def test_one_that_never_comes_to_rest_is_shown_with_all_that_happened() -> None:
    cluster = Cluster(stateful_tasks(0, 1), [a_client(1), a_client(2)], story="flapping")
    with pytest.raises(NotConvergedError) as caught:
        cluster.settle(Flaps(), 2)

    first, second = a_process_id(1), a_process_id(2)
    assert str(caught.value).splitlines() == [
        "flapping: not at rest after 2 rebalances",
        "What happened:",
        f"  client {first} joins",
        f"  client {second} joins",
        "  rebalance 1",
        f"    {first}  active: 0_0",
        f"    {second}  nothing",
        "  rebalance 2",
        f"    {first}  nothing",
        f"    {second}  active: 0_0",
        "  rebalance 3",
        f"    {first}  active: 0_0",
        f"    {second}  nothing",
    ]


def test_a_wrong_answer_is_shown_with_the_seed_of_the_story() -> None:
    with pytest.raises(NotConvergedError) as caught:
        run_random_story(Forgets, 5)
    assert re.search(
        r"^run_random_story\(.*\.Forgets, 5\): rebalance 1 went wrong. The assignment is not valid: 1 error.*\n"
        r".*\[TASK_WITHOUT_ACTIVE\](\n.*)*\nWhat happened:\n  client .* joins",
        str(caught.value),
    )


def test_whatever_an_assignor_raises_has_the_seed_of_the_story_in_its_notes() -> None:
    class Fails(StickyTaskAssignor):
        def assign(self, application_state: ApplicationState) -> TaskAssignment:
            raise ArithmeticError("no luck")

    with pytest.raises(ArithmeticError, match="no luck") as caught:
        run_random_story(Fails, 5)
    (note,) = caught.value.__notes__
    assert re.search(r"^run_random_story\(.*\.Fails, 5\): rebalance 1 failed\nWhat happened:\n  client .* joins", note)


def test_a_check_that_fails_is_shown_with_the_seed_of_the_story() -> None:
    def check(cluster: Cluster) -> None:
        assert len(cluster.rebalances) < 3, "too many"

    with pytest.raises(
        NotConvergedError, match=r"(?s)^run_random_story\([\w.]*\.StickyTaskAssignor, 5\): too many.*\n  rebalance 3"
    ):
        run_random_story(StickyTaskAssignor, 5, check=check)


@pytest.mark.parametrize("seed", [1, 8, 141])
def test_the_limit_is_that_of_the_standbys_asked_for(seed: int) -> None:
    run_random_story(HighAvailabilityTaskAssignor, seed, num_standby_replicas=6, max_warmup_replicas=1)


def test_a_failure_names_all_that_is_needed_to_repeat_it() -> None:
    with pytest.raises(NotConvergedError) as caught:
        run_random_story(
            Forgets,
            5,
            heed_follow_ups=False,
            client_tags={"gpu": ("yes", None)},
            num_standby_replicas=2,
            rack_aware_assignment_strategy="none",
        )
    call = (
        "Forgets, 5, heed_follow_ups=False, client_tags={'gpu': ('yes', None)}, num_standby_replicas=2, "
        "rack_aware_assignment_strategy='none'): rebalance 1 went wrong."
    )
    assert call in str(caught.value).splitlines()[0]


def test_stories_are_repeatable_and_differ() -> None:
    stories = [run_random_story(StickyTaskAssignor, seed).history for seed in (1, 2, 1)]
    assert stories[0] == stories[2] != stories[1]


def test_a_story_is_told_of_named_topologies() -> None:
    story = run_random_story(StickyTaskAssignor, 4)
    named = run_random_story(StickyTaskAssignor, 4, topologies=("orders", None))
    assert {task.task_id.topology_name for task in named.tasks} == {"orders", None}
    assert "topologies=('orders', None)" in named.story

    def without_names(cluster: Cluster) -> list[tuple[int, int]]:
        return [(task.task_id.subtopology, task.task_id.partition) for task in cluster.tasks]

    assert without_names(named) == without_names(story)
    with pytest.raises(ConfigException, match=r"^The topologies"):
        run_random_story(StickyTaskAssignor, 1, topologies="orders")


def test_a_story_with_tags_is_the_same_story_but_for_the_tags() -> None:
    story = run_random_story(StickyTaskAssignor, 4)
    tagged = run_random_story(StickyTaskAssignor, 4, client_tags={"gpu": ("yes", None)})
    assert tagged.history == story.history
    assert {client.client_tags.get("gpu") for client in tagged.clients} == {"yes", None}
    assert not any(client.client_tags for client in story.clients)


def test_one_that_always_asks_for_more_can_be_taken_as_it_is() -> None:
    cluster = Cluster(stateful_tasks(0, 1), [a_client(1)])
    assert cluster.settle(AlwaysAsks, 1, heed_follow_ups=False) == 1
    with pytest.raises(
        NotConvergedError, match="after 5 rebalances; nothing changes, but the last one asks for a follow-up"
    ):
        cluster.settle(AlwaysAsks, 5)


def test_what_was_assigned_is_caught_up_next_time_and_what_was_not_is_gone() -> None:
    cluster = Cluster([a_stateful_task("0_0", end_offset_sum=None)], [a_client(1), a_client(2, standby=["0_0"])])
    done = cluster.rebalance(AlwaysAsks)

    first, second = cluster.state().kafka_streams_states(compute_task_lags=True).values()
    assert done.follow_up
    assert (first.previous_active_tasks, first.lag_for(TaskId(0, 0))) == ((TaskId(0, 0),), -2)
    assert (second.previous_standby_tasks, second.lag_for(TaskId(0, 0))) == ((), 150_000)
    assert cluster.state().columns.clients.generation.tolist() == [1, 1]
    assert cluster.state().now_ms == 600_000


class Reuses(TaskAssignor):
    """Changes what it answered before, and answers it again."""

    def __init__(self) -> None:
        self.placed: dict[ProcessId, KafkaStreamsAssignment] = {}

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
        placed = [self.placed.setdefault(client, KafkaStreamsAssignment.of(client)) for client in clients]
        for task in application_state.all_tasks:
            active = AssignedTask(task, AssignedTask.Type.ACTIVE)
            for each in placed:
                each.remove_task(active)
            placed[-1].assign_task(active)
        return TaskAssignment(placed)


def test_what_happened_stays_as_it_was_whatever_an_assignor_does_with_its_answer() -> None:
    assignor, cluster = Reuses(), Cluster(["0_0"], 1)
    first = cluster.rebalance(assignor)
    told = str(first)
    cluster.add(2)
    cluster.rebalance(assignor)
    assert str(first) == told
    assert "active: 0_0" in told


def test_a_client_that_comes_back_has_what_it_had() -> None:
    cluster = Cluster(stateful_tasks(0, 2), [a_client(1), a_client(2)])
    cluster.rebalance(StickyTaskAssignor)
    had = cluster.clients[1]
    cluster.drop(a_process_id(2))
    assert list(cluster.dropped) == [a_process_id(2)]
    cluster.rebalance(StickyTaskAssignor)
    cluster.resurrect(a_process_id(2))

    assert cluster.clients[1] == had
    assert not cluster.dropped
    cluster.settle(StickyTaskAssignor, 1)


def test_a_cluster_takes_what_a_state_takes() -> None:
    cluster = Cluster(["0_0"], 2)
    cluster.add(3)
    cluster.add(a_process_id(4))
    cluster.drop(3)
    assert [client.process_id for client in cluster.clients] == [a_process_id(number) for number in (1, 2, 4)]
    cluster.resurrect(3)
    assert cluster.settle(StickyTaskAssignor, 1) == 1


def test_a_cluster_at_rest_needs_no_rebalance_beyond_the_one_that_shows_it() -> None:
    """No limit of 0 was ever enough."""
    cluster = Cluster(["0_0", "0_1"], 2)
    with pytest.raises(NotConvergedError, match="not at rest after 0 rebalances"):
        cluster.settle(StickyTaskAssignor, 0)
    assert cluster.settle(StickyTaskAssignor, 0) == 0
    cluster.drop(1)
    assert cluster.settle(StickyTaskAssignor, 1) == 1


def test_a_client_cannot_join_twice_nor_lose_what_is_on_its_disk() -> None:
    cluster = Cluster(["0_0"], 2)
    with pytest.raises(StateException, match=r"The client .*1 is there already\."):
        cluster.add(a_client(1))
    cluster.drop(1)
    with pytest.raises(StateException, match=r"The client .*1 left, .*Use resurrect"):
        cluster.add(a_client(1))
    with pytest.raises(StateException, match=r"The client .*1 is there already\."):
        Cluster(["0_0"], [1, a_client(1)])


def test_clients_that_are_not_there_are_named_with_those_that_are() -> None:
    cluster = Cluster(["0_0"], 1)
    with pytest.raises(UnknownClientError, match=r"^The client .*9 is not there\. These are: .*1\.$"):
        cluster.drop(a_process_id(9))
    with pytest.raises(UnknownClientError, match=r"^The client .*1 is not among those that left\. These are: none\.$"):
        cluster.resurrect(1)


def test_settings_and_limits_of_another_kind_are_refused() -> None:
    wrong: Any = {"num_standby_replicas": 1}
    with pytest.raises(
        ConfigException, match=r"must be AssignmentConfigs or None\. Maybe AssignmentConfigs\(\*\*configs\)"
    ):
        Cluster(["0_0"], 1, wrong)
    with pytest.raises(ConfigException, match=r"The limit \(-1\) must be an int from 0"):
        Cluster(["0_0"], 1).settle(StickyTaskAssignor, -1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"check": "no"}, r"^The check \('no'\) must be a function that takes the cluster, or None\.$"),
        ({"heed_follow_ups": "no"}, r"^The heed_follow_ups \('no'\) must be True or False\.$"),
    ],
)
def test_a_story_refuses_arguments_of_another_kind(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        run_random_story(StickyTaskAssignor, 1, **given)
