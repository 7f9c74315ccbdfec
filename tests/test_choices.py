"""Options of one word and names in declarations: whatever else is given is named at once, by the room's own error."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from task_assignor.kafka.topics import KafkaTopic
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    Forwarded,
    LocalProcessLauncher,
    Output,
    RuntimeOptions,
    StreamsApplication,
    StreamTableJoin,
    SubTopology,
    TableChanges,
    TableJoin,
    TaskContext,
    TopicException,
    TopologyException,
    WindowedJoin,
)
from task_assignor.sdk import ConfigException, ConfigKey, StateException
from task_assignor.testing import a_state, assert_balanced, stateful_tasks
from task_assignor.utils import RackAwareOptimizationParams, place_actives, rack_rows

STATE = a_state(stateful_tasks(0, 2), 2)
WINDOW: dict[str, Any] = {"left": "l", "right": "r", "before_ms": 0, "after_ms": 0}
ROWS = {"rows": Aggregate.count()}

CASES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda word: WindowedJoin(**WINDOW, how=word), TopologyException, "'inner', 'left' or 'outer'"),
    (lambda word: StreamTableJoin(stream="s", table="t", how=word), TopologyException, "'inner' or 'left'"),
    (lambda word: TableJoin(left="l", right="r", how=word), TopologyException, "'inner', 'left' or 'outer'"),
    (lambda word: WindowedJoin(**WINDOW, late_records=word), TopologyException, "'stop', 'skip' or DeadLetters"),
    (lambda word: Aggregation(source="s", aggregates=ROWS, bad_records=word), TopologyException, "'stop', 'skip' or "),
    (lambda word: SubTopology("s", "t", object, bad_records=word), TopologyException, "'stop', 'skip' or DeadLetters"),  # type: ignore[arg-type]
    (lambda word: Output("out", format=word), TopologyException, "'arrow' or 'parquet'"),
    (Aggregate, TopologyException, "'count', 'sum', 'min', 'max', 'mean' or 'fold'"),
    (
        lambda word: TaskContext.schedule(_CONTEXT, 1, word, print),
        TopologyException,
        "'stream_time' or 'wall_clock_time'",
    ),
    (
        lambda word: StreamsApplication.run(_APPLICATION, until=word),
        ConfigException,
        "'available_now', 'stopped' or a ",
    ),
    (lambda word: LocalProcessLauncher(start_method=word), ConfigException, "'spawn' or 'forkserver'"),
    (lambda word: RuntimeOptions(compression=word), ConfigException, "None, 'lz4' or 'zstd'"),
    (lambda word: KafkaTopic("t", key_in=word), TopicException, "'value' or 'key'"),
    (lambda word: KafkaTopic("t", timestamp_in=word), TopicException, "'value' or 'record'"),
    (
        lambda word: ConfigKey(name="my.key", type=word),
        ConfigException,
        "'string', 'int', 'long', 'boolean', 'list' or 'class'",
    ),
    (
        lambda word: RackAwareOptimizationParams(STATE, word),
        StateException,
        "'all', 'stateful', 'stateless' or 'given'",
    ),
    (lambda word: rack_rows(STATE.columns, np.array([0]), word), StateException, "'source', 'changelog' or 'all'"),
    (lambda word: assert_balanced(STATE, place_actives(STATE), tasks=word), ConfigException, "'all', 'stateful' or "),
]
_CONTEXT: Any = SimpleNamespace()
_APPLICATION: Any = SimpleNamespace()


@pytest.mark.parametrize(
    "given",
    ["nothing like it", 5, True, np.array(["inner", "left"]), pd.Series(["stop", "skip"]), pd.NA, ["all"], {}],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize(("call", "error", "expected"), CASES, ids=[expected for _, _, expected in CASES])
def test_one_word_of_some(call: Callable[[Any], object], error: type[Exception], expected: str, given: object) -> None:
    """Of arrays numpy said that their truth is ambiguous, of lists Python that they cannot be hashed."""
    with pytest.raises(error, match=rf"(?s) \(.*\)( of .*)? must be {expected}"):
        call(given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WindowedJoin(**WINDOW, how="Outer"), "Maybe 'outer' is meant."),
        (lambda: Output("out", format="parket"), "Maybe 'parquet' is meant."),  # type: ignore[arg-type]
        (lambda: RuntimeOptions(compression="lz"), "Maybe 'lz4' is meant."),
    ],
)
def test_the_nearest_word_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_words_of_numpy_are_words() -> None:
    assert StreamTableJoin(stream="s", table="t", how=np.str_("left")).how == "left"
    assert Output("out", pa.schema([]), format=np.str_("parquet")).format == "parquet"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Aggregate.sum(None), r"^Aggregate.sum\(\): the column \(None\) must be the name of one\.$"),  # type: ignore[arg-type]
        (lambda: Aggregate.count(["k"]), r"^Aggregate.count\(\): the column \(\['k'\]\) must be the name of one"),  # type: ignore[arg-type]
        (lambda: Aggregate.fold("x", 0, pa.int64()), r"fold\(\): the function \('x'\) must be callable"),  # type: ignore[arg-type]
        (lambda: Aggregate.fold(max, 0, "int"), r"fold\(\): the type \('int'\) must be a pyarrow.DataType, such as"),
        (lambda: Aggregate("fold"), r"fold\(\): the function \(None\) must be callable"),
        (
            lambda: WindowedJoin(**WINDOW | {"left": None}),
            r"^The left \(None\) of the WindowedJoin must be the name of a ",
        ),
        (lambda: StreamTableJoin(stream="s", table=5), r"^The table \(5\) of the StreamTableJoin must be the name of"),  # type: ignore[arg-type]
        (
            lambda: TableJoin(left="a/b", right="r"),
            r"^The left \('a/b'\) of the TableJoin must be the name of a topic: 1 ",
        ),
        (lambda: Aggregation(source=["s"], aggregates=ROWS), r"^The source \(\['s'\]\) of the Aggregation must be the"),  # type: ignore[arg-type]
        (lambda: TableChanges(table=np.zeros(2)), r"^The table \(array.*\) of the TableChanges must be the name"),  # type: ignore[arg-type]
        (lambda: Forwarded("f", source=5), r"^The source \(5\) of the Forwarded must be the name of a topic"),  # type: ignore[arg-type]
    ],
)
def test_what_a_processor_cannot_do_with_is_named_when_it_is_made(call: Callable[[], object], message: str) -> None:
    """It was found when the sub-topology was made, or in a client in the midst of a run."""
    with pytest.raises(TopologyException, match=message):
        call()
