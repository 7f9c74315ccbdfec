"""The errors: one family, readable by people and programs, and able to cross processes."""

from __future__ import annotations

import pickle

import pytest

from task_assignor import sdk
from task_assignor.sdk import (
    ConfigException,
    ConfigProblem,
    MissingExtraException,
    SnapshotException,
    StreamsException,
    UnknownTaskError,
)
from task_assignor.sdk.text import nearest, shown

ERRORS = [
    value
    for value in vars(sdk).values()
    if isinstance(value, type) and issubclass(value, Exception) and value.__module__.startswith("task_assignor")
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_a_streams_exception(error: type[Exception]) -> None:
    assert issubclass(error, StreamsException)


@pytest.mark.parametrize(
    "error",
    [
        ConfigException.of([ConfigProblem("a", 1, "2"), ConfigProblem("b", "x", "y", "Do it.", "f:3")]),
        SnapshotException("$.a: wrong", "$.a"),
        MissingExtraException("spark", "task_assignor.spark", "pyspark", python="/elsewhere/python"),
        UnknownTaskError("no task"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling_with_all_it_says(error: StreamsException) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert (type(error), str(error), vars(error)) == (type(other), str(other), vars(other))


def test_a_problem_is_a_sentence_with_place_key_value_expectation_and_advice() -> None:
    problem = ConfigProblem("num.standby.replicas", "x", "an int", "Maybe 1.", "app.properties:3")
    expected = "app.properties:3: The setting num.standby.replicas ('x') must be an int. Maybe 1."
    assert expected == str(problem) == str(ConfigException.of([problem]))


def test_several_problems_are_one_error_with_a_line_each() -> None:
    error = ConfigException.of([ConfigProblem("a", 1, "2"), ConfigProblem("b", 3, "4")])
    assert str(error).splitlines() == [
        "2 settings are wrong.",
        "  The setting a (1) must be 2.",
        "  The setting b (3) must be 4.",
    ]


def test_a_missing_extra_says_what_to_install() -> None:
    assert "pip install 'task-assignor[spark]'" in str(MissingExtraException("spark", "room", "pyspark"))


def test_an_unknown_task_prints_as_a_sentence_not_as_a_key() -> None:
    assert str(UnknownTaskError("There is no task 0_0.")) == "There is no task 0_0."


def test_an_error_inside_a_document_moves_with_it() -> None:
    moved = SnapshotException("$.tasks[0]: wrong", "$.tasks[0]").moved(".state")
    assert (str(moved), moved.path) == ("$.state.tasks[0]: wrong", "$.state.tasks[0]")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_are_shown_briefly_whatever_they_are() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, 10**6000, "x" * 10**6, Unprintable(), [Unprintable()], {1: "y" * 10**6}, object(), None, int):
        assert 0 < len(shown(value)) < 400


def test_the_nearest_name_does_not_depend_on_case_and_separators() -> None:
    names = ["num.standby.replicas", "num.stream.threads", "rack.aware.assignment.traffic_cost"]
    assert [names[0], names[2], names[1], None] == [
        nearest(word, names)
        for word in ("NUM_STANDBY_REPLICA", "rack-aware-assignment-traffic-costs", "num.threads", "zzz")
    ]
