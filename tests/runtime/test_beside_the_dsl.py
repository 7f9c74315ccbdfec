"""What the ready-made processors do where the DSL of Kafka Streams does something else: an example of each difference.

`tests/jvm/test_dsl.py` asks Kafka the same. The headings are those of docs/deviations.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.jvm.dsl import Row, Scenario, Step, ours

DOCUMENT = Path(__file__).parents[2] / "docs/deviations.md"
END = Row("end", 0, 1_000)
"""It closes all windows before it."""


@attrs.frozen
class Example:
    """A difference.

    Args:
        heading: of docs/deviations.md.
        scenario: what is asked.
        ours: what we give.
        kafka: what Kafka gives.
    """

    heading: str
    scenario: Scenario
    ours: Sequence[str]
    kafka: Sequence[str]


def shown(steps: Sequence[Step]) -> list[str]:
    """What came out: key, window, value; of several aggregates the count."""
    told = [out for step in steps for out in step.out if out.what in ("", "count")]
    return sorted(
        " ".join(map(str, (out.key, *(["..".join(map(str, out.window))] if out.window else []), out.value)))
        for out in told
    )


def _example(
    heading: str,
    operator: str,
    options: Mapping[str, Any],
    logs: Mapping[str, Sequence[Row]],
    ours: Sequence[str],
    kafka: Sequence[str],
) -> Example:
    return Example(heading, Scenario(heading, operator, options, logs), ours, kafka)


EXAMPLES = [
    _example(
        "A row out of order waits for its partner",
        "streams",
        {"how": "left", "before": 5, "after": 5, "grace": 10},
        {"l": [Row("x", 1, 100), Row("a", 2, 90)], "r": [Row("y", 3, 100), Row("a", 4, 94)]},
        ours=["a 2 4"],
        kafka=["a 2 4", "a 2 null"],
    ),
    _example(
        "Rows without a partner come as soon as their window is closed",
        "streams",
        {"how": "left", "before": 5, "after": 5, "grace": 0},
        {"l": [Row("a", 1, 100)], "r": [Row(None, 2, 200)]},
        ours=["a 1 null"],
        kafka=[],
    ),
    _example(
        "A pair at the edge of a window is a pair",
        "streams",
        {"how": "inner", "before": 0, "after": 10, "grace": 0},
        {"l": [Row("a", 1, 100), Row("b", 2, 110)], "r": [Row("a", 3, 110)]},
        ours=["a 1 3"],
        kafka=[],
    ),
    _example(
        "A pair at the edge of a window is a pair",
        "streams",
        {"how": "inner", "before": -2, "after": 9, "grace": 0},
        {"l": [Row("a", 1, 100), Row("b", 2, 107)], "r": [Row("a", 3, 108)]},
        ours=["a 1 3"],
        kafka=[],
    ),
    _example(
        "Late records are left out",
        "streams",
        {"how": "inner", "before": 5, "after": 5, "grace": 0},
        {"l": [Row("a", 1, 100), Row("b", 2, 103), Row("a", 3, 101)], "r": [Row("a", 4, 103)]},
        ours=["a 1 4"],
        kafka=["a 1 4", "a 3 4"],
    ),
    _example(
        "Late records are left out",
        "sessions",
        {"gap": 5, "grace": 0, "final": "close"},
        {"s": [Row("a", 1, 100), Row("b", 2, 104), Row("a", 3, 102), END]},
        ours=["a 100..100 1", "b 104..104 1"],
        kafka=["a 100..102 2", "b 104..104 1"],
    ),
    _example(
        "A session is open one millisecond longer",
        "sessions",
        {"gap": 5, "grace": 0, "final": "suppress"},
        {"s": [Row("a", 1, 100), Row("b", 2, 105), Row("a", 3, 105), END]},
        ours=["a 100..105 2", "b 105..105 1"],
        kafka=["a 100..100 1", "a 105..105 1", "b 105..105 1"],
    ),
    _example(
        "A session is open one millisecond longer",
        "sliding",
        {"difference": 10, "grace": 3, "final": "suppress"},
        {"s": [Row("a", 1, 100), Row("b", 2, 103), Row("a", 3, 100), END]},
        ours=["a 90..100 2", "b 93..103 1"],
        kafka=["a 90..100 1", "a 90..100 2", "b 93..103 1"],
    ),
    _example(
        "A late record is in sliding windows that are open",
        "sliding",
        {"difference": 8, "grace": 0, "final": "close"},
        {"s": [Row("z", 1, 103), Row("a", 2, 100), Row("a", 3, 104), END]},
        ours=["a 101..109 1", "a 96..104 2", "z 95..103 1"],
        kafka=["a 96..104 1", "z 95..103 1"],
    ),
    _example(
        "Windows begin before 1970, too",
        "sliding",
        {"difference": 10, "grace": 0, "final": "close"},
        {"s": [Row("a", 1, 3), END]},
        ours=["a -7..3 1"],
        kafka=["a 0..10 1"],
    ),
    _example(
        "Windows begin before 1970, too",
        "windows",
        {"size": 10, "advance": 5, "grace": 0, "final": "suppress"},
        {"s": [Row("a", 1, 3), END]},
        ours=["a -5..5 1", "a 0..10 1"],
        kafka=["a 0..10 1"],
    ),
    _example(
        "Windows begin before 1970, too",
        "streams",
        {"how": "inner", "before": 5, "after": -3, "grace": 0},
        {"l": [Row("a", 1, 1)], "r": [Row("a", 2, 0)]},
        ours=[],
        kafka=["a 1 2"],
    ),
    _example(
        "A row without values is a row",
        "running",
        {},
        {"s": [Row("a", None, 1)]},
        ours=["a 1"],
        kafka=[],
    ),
    _example(
        "A row without values is a row",
        "lookup",
        {"how": "inner"},
        {"t": [Row("a", 1, 1)], "s": [Row("a", None, 2)]},
        ours=["a -3 1"],
        kafka=[],
    ),
    _example(
        "A row without values is a row",
        "streams",
        {"how": "left", "before": 5, "after": 5, "grace": 0},
        {"l": [Row("a", 1, 100)], "r": [Row("a", None, 100), END]},
        ours=["a 1 -101"],
        kafka=["a 1 null"],
    ),
    _example(
        "A record without a key moves the time",
        "windows",
        {"size": 10, "advance": 10, "grace": 0, "final": "suppress"},
        {"s": [Row("a", 1, 3), Row(None, 2, 10)]},
        ours=["a 0..10 1"],
        kafka=[],
    ),
    _example(
        "A deletion of what is not there is no row",
        "tables",
        {"how": "inner"},
        {"l": [Row("a", None, 2)], "r": [Row("a", 1, 1)]},
        ours=[],
        kafka=["a None"],
    ),
    Example(
        "A group of a table that has no row left is gone",
        Scenario("a group", "groups", {}, {"t": [Row("a", 1, 1), Row("a", None, 2)]}, first={"t": 1}),
        ours=["g1 1", "g1 None"],
        kafka=["g1 0", "g1 1"],
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.heading)
@pytest.mark.parametrize("seed", range(3))
def test_what_we_do_where_kafka_does_something_else(example: Example, seed: int) -> None:
    """In batches and with restarts as they come."""
    steps, _ = ours(example.scenario, random.Random(seed))

    assert shown(steps) == example.ours != example.kafka
    assert f"\n### {example.heading}\n" in DOCUMENT.read_text("utf-8")
