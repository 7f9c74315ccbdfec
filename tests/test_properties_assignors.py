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
from hypothesis import given

from task_assignor.sdk import (
    ApplicationState,
    AssignmentError,
    ConfigKey,
    StreamsConfig,
    TaskAssignmentException,
    TaskAssignor,
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
from task_assignor.validation import ViolationKind, report_violations
from tests.budget import examples

STATES = 250
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


def check(subject: Subject, state: ApplicationState, seen_as: str, shuffles: int) -> None:
    """The answer is right, and the same every time."""
    try:
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
def test_is_right_and_deterministic_on_states_that_shrink(subject: Subject, state: ApplicationState) -> None:
    check(subject, state, "a state of Hypothesis", shuffles=1)


@SUBJECTS
def test_is_right_and_deterministic_on_many_states(subject: Subject) -> None:
    for number, state in enumerate(random_states(1, STATES)):
        # Putting a state together again takes longer than assigning it, so only some are.
        check(subject, state, f"random_state(1, {number})", shuffles=int(number % 8 == 0))


@SUBJECTS
def test_is_right_and_deterministic_on_bigger_states(subject: Subject) -> None:
    for number in range(12):
        state = random_state(2, number, max_tasks=400, max_clients=40, max_standbys=2)
        check(subject, state, f"random_state(2, {number}, max_tasks=400, max_clients=40, max_standbys=2)", shuffles=1)


@SUBJECTS
def test_is_right_or_asks_for_another_try_where_lags_are_not_known(subject: Subject) -> None:
    for number, state in enumerate(random_states(5, 100, lags_known=False)):
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

    for seed in range(8):
        run_random_story(
            subject.fresh,
            seed,
            check=check_at_rest,
            heed_follow_ups=subject.name not in ALWAYS_ASKS,
            rack_aware_assignment_strategy=strategy,
            rack_aware_traffic_cost=seed % 4,
            rack_aware_non_overlap_cost=seed % 3,
        )


@SUBJECTS
def test_tasks_without_clients_are_an_error(subject: Subject) -> None:
    """And nothing at all is an empty answer."""
    with pytest.raises(TaskAssignmentException, match="has 1 task, but no clients to assign them to"):
        subject.fresh().assign(a_state(["0_0"], []))
    assert subject.fresh().assign(a_state([], [])).assignment == ()


@SUBJECTS
def test_does_not_depend_on_the_hash_seed(subject: Subject) -> None:
    states = random_states(3, 100)
    assert_same_in_every_process(subject.assignor, states, settings=subject.settings, hash_seeds=(1, 2))


@SUBJECTS
@pytest.mark.slow
def test_is_right_and_deterministic_on_very_many_states(subject: Subject) -> None:
    for number, state in enumerate(random_states(4, examples(100_000))):
        check(subject, state, f"random_state(4, {number})", shuffles=int(number % 8 == 0))
