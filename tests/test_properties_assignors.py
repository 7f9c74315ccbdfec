"""What holds for every registered assignor, with every value of its own settings: never invalid, deterministic, at rest.

Some thousands of random states by default; `TASK_ASSIGNOR_EXAMPLES=100000 pytest -m slow tests/test_properties_assignors.py`
(or `make test-long`) gives every assignor 100 000.
"""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Callable, Iterator, Mapping

import attrs
import pytest
from hypothesis import given, settings

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    ConfigKey,
    ProcessId,
    StateException,
    StreamsConfig,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
    TaskId,
)
from task_assignor.testing import (
    Cluster,
    a_state,
    application_states,
    assert_deterministic,
    assert_same_in_every_process,
    assert_valid,
    random_state,
    random_states,
    run_random_story,
)
from task_assignor.testing.answers import answer_of
from task_assignor.testing.drawing import ShapeArguments
from task_assignor.testing.specs import specs_of
from task_assignor.validation import ViolationKind, report_violations
from tests.budget import examples

STATES = 60
PARTS = 20
"""Of the very many states, for the workers of pytest."""
# As in Kafka, what stands in while lags cannot be had asks to be replaced soon, every time.
ALWAYS_ASKS = {"fallback-prior"}


@attrs.frozen
class Subject:
    """An assignor with settings of its own."""

    name: str
    assignor: type[TaskAssignor]
    settings: Mapping[str, object]

    @property
    def fresh(self) -> Callable[[], TaskAssignor]:
        """Makes a configured assignor, one for each rebalance."""
        return StreamsConfig({**self.settings, "task.assignor.class": self.assignor}).task_assignor

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.settings.items())])


def values_of(key: ConfigKey) -> tuple[object, ...]:
    """The values to try: all of them where they can be counted, else the default alone."""
    return (False, True) if key.type == "boolean" else key.choices or (key.default,)


def registered() -> Iterator[Subject]:
    """The assignors of the entry-point group; whether all can be loaded is tested with the distribution."""
    for point in sorted(importlib.metadata.entry_points(group="task_assignor.assignors"), key=lambda point: point.name):
        try:
            assignor = point.load()
        except (AttributeError, ImportError):
            continue
        keys = assignor.config_keys
        for values in itertools.product(*map(values_of, keys)):
            settings = {key.name: value for key, value in zip(keys, values, strict=True) if value != key.default}
            yield Subject(point.name, assignor, settings)


SUBJECTS = pytest.mark.parametrize("subject", list(registered()), ids=str)
# All but those that get there step by step, with warm-ups.
AT_ONCE = pytest.mark.parametrize(
    "subject", [each for each in registered() if each.name != "high-availability"], ids=str
)
SHAPES: Mapping[str, ShapeArguments] = {
    "usual": {},
    "tags": {
        "max_tasks": 60,
        "max_clients": 12,
        "max_threads": 8,
        "max_standbys": 4,
        "client_tags": {"zone": ("z0", "z1", "z2", None), "cluster": ("c0", "c1", "c2"), "host": ("h0", "h1", "h2")},
    },
    "racks": {"max_tasks": 40, "max_clients": 9, "max_standbys": 2, "racks_known": True},
    "uneven threads": {"max_tasks": 30, "max_clients": 8, "max_threads": 50, "max_standbys": 5},
}
"""Of random states, for those that a second call would most likely change."""


def check(subject: Subject, state: ApplicationState, seen_as: str, shuffles: int | None) -> None:
    """The answer is right, and the same every time; with None for `shuffles` it is asked once."""
    try:
        if shuffles is None:
            answer = answer_of(subject.fresh, state)
        else:
            answer = assert_deterministic(subject.fresh, state, shuffles=shuffles)
        report = report_violations(state, answer)
        kinds = set(report.counts)
        assert report.is_valid, str(report)
        assert report.kafka_error is AssignmentError.NONE
        # Standbys are all placed, and warm-ups are within their number.
        assert not kinds & {ViolationKind.TOO_FEW_STANDBYS, ViolationKind.STANDBY_WITHOUT_CHANGELOG}, str(report)
        assert not report.warnings, str(report)
    except Exception as error:
        error.add_note(f"{subject}, {seen_as}")
        raise


@SUBJECTS
@given(state=application_states())
@settings(max_examples=examples(20))
def test_is_right_and_deterministic_on_states_that_shrink(subject: Subject, state: ApplicationState) -> None:
    check(subject, state, "a state of Hypothesis", shuffles=1)


@SUBJECTS
def test_is_right_and_deterministic_on_many_states(subject: Subject) -> None:
    for number, state in enumerate(random_states(1, STATES)):
        # Putting a state together again takes longer than assigning it, so only some are.
        check(subject, state, f"random_state(1, {number})", shuffles=int(number % 8 == 0))


@SUBJECTS
def test_is_right_and_deterministic_on_bigger_states(subject: Subject) -> None:
    for number in range(6):
        state = random_state(2, number, max_tasks=400, max_clients=40, max_standbys=2)
        check(subject, state, f"random_state(2, {number}, max_tasks=400, max_clients=40, max_standbys=2)", shuffles=1)


@SUBJECTS
def test_is_right_or_asks_for_another_try_where_lags_are_not_known(subject: Subject) -> None:
    for number, state in enumerate(random_states(5, 30, lags_known=False)):
        try:
            check(subject, state, f"random_state(5, {number}, lags_known=False)", shuffles=0)
        except TaskAssignmentException:
            assert not state.columns.lags.is_computed.all()


@SUBJECTS
@pytest.mark.parametrize("strategy", ["none", "min_traffic", "balance_subtopology"])
def test_comes_to_rest_with_all_standbys_and_no_warm_ups(subject: Subject, strategy: str) -> None:
    """Within Kafka's limits, while clients leave, join and come back."""

    def check_at_rest(cluster: Cluster) -> None:
        assert_valid(cluster.rebalances[-1].state, cluster.rebalances[-1].assignment, strict=True)

    for seed in range(2):
        run_random_story(
            subject.fresh,
            seed,
            check=check_at_rest,
            heed_follow_ups=subject.name not in ALWAYS_ASKS,
            rack_aware_assignment_strategy=strategy,
            rack_aware_traffic_cost=seed % 4,
            rack_aware_non_overlap_cost=seed % 3,
        )


def check_second_call(subject: Subject, shape: ShapeArguments, seed: int, number: int) -> None:
    """Where all is as the answer says, and caught up, the next answer is the same."""
    state = random_state(seed, number, **shape)
    tasks, clients = specs_of(state)
    cluster = Cluster(tasks, clients, state.assignment_configs, story=f"random_state({seed}, {number}, **{shape})")
    first, second = (cluster.rebalance(subject.fresh).assignment for _ in range(2))
    assert _tasks_of(first) == _tasks_of(second), f"{subject}\n{cluster.story}\n{cluster.history}"


def _tasks_of(answer: TaskAssignment) -> dict[ProcessId, dict[TaskId, AssignedTask]]:
    return {each.process_id: dict(each.tasks) for each in answer}


@AT_ONCE
@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_call_changes_nothing(subject: Subject, shape: str) -> None:
    for number in range(15):
        check_second_call(subject, SHAPES[shape], 6, number)


@AT_ONCE
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_call_changes_nothing_on_very_many_states(subject: Subject, shape: str) -> None:
    for number in range(examples(3_225)):
        check_second_call(subject, SHAPES[shape], 7, number)


@SUBJECTS
def test_tasks_without_clients_are_an_error(subject: Subject) -> None:
    """And nothing at all is an empty answer."""
    with pytest.raises(TaskAssignmentException, match="has 1 task, but no clients to assign them to"):
        subject.fresh().assign(a_state(["0_0"], []))
    with pytest.raises(StateException, match=r"application_state \(None\) must be an ApplicationState"):
        subject.fresh().assign(None)  # type: ignore[arg-type]
    with_tags = a_state([], [], num_standby_replicas=1, rack_aware_assignment_tags=["zone"])
    for nothing in (a_state([], []), with_tags):
        assert subject.fresh().assign(nothing).assignment == ()


@SUBJECTS
def test_does_not_depend_on_the_hash_seed(subject: Subject) -> None:
    # Here it is another one.
    states = random_states(3, 60)
    assert_same_in_every_process(subject.assignor, states, settings=subject.settings, hash_seeds=(1,))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_is_right_and_deterministic_on_very_many_states(part: int) -> None:
    """Every assignor on the same states. Only some are asked again, since that takes as long as the first time."""
    subjects = list(registered())
    for number in range(part, examples(100_000), PARTS):
        state = random_state(4, number)
        for subject in subjects:
            check(subject, state, f"random_state(4, {number})", shuffles=1 if number // PARTS % 8 == 0 else None)
