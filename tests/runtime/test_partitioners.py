"""Topics that meet in a task and were partitioned in different ways: equal keys do not meet, and somebody should say so."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime.arrow.keys import partitions_of
from task_assignor.runtime.topics.partitioners import Partitioners
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk import once

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
ROWS = pa.table([[*map(str, range(200)), None], list(range(201))], schema=SCHEMA)
AT = partitions_of(ROWS, ["k"], 4)
RIGHT = ROWS.filter(pa.array((AT == 2) | (AT > 3)))
OTHERS = ROWS.filter(pa.array(AT != 3))


@pytest.fixture(autouse=True)
def _nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "_named", set())


def _told(caplog: pytest.LogCaptureFixture, batches: dict[str, list[pa.Table]]) -> list[str]:
    """What is logged of topics with these batches in partition 2."""
    task = Partitioners(2, {name: TopicSpec(name, 4, SCHEMA, ("k",)) for name in batches})
    for rows in zip(*batches.values(), strict=True):
        task.look(dict(zip(batches, rows, strict=True)))
    return [message.rpartition("; topics: ")[2] for message in caplog.messages]


def test_topics_that_were_partitioned_otherwise_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """A join of topics, one of which confluent-kafka had written as it does by itself, gave half of its rows, without a word."""
    batches = {"a": [RIGHT, RIGHT], "b": [RIGHT[:0], OTHERS], "c": [OTHERS, OTHERS]}
    assert _told(caplog, batches) == ["c.", "b."]
    assert _told(caplog, batches) == ["c.", "b."]


@pytest.mark.parametrize(
    "batches",
    [
        {"a": [RIGHT], "b": [RIGHT]},
        # Both by another partitioner, maybe the same.
        {"a": [OTHERS], "b": [OTHERS]},
        {"a": [OTHERS]},
        # Too few keys to tell, however many rows there are.
        {"a": [RIGHT], "b": [pa.concat_tables([OTHERS[:9]] * 5)]},
        {"a": [RIGHT], "b": [OTHERS.filter(pc.is_null(OTHERS["k"]))]},
    ],
    ids=["right", "alike", "alone", "few", "null"],
)
def test_nothing_is_said_of_what_may_be_right(
    caplog: pytest.LogCaptureFixture, batches: dict[str, list[pa.Table]]
) -> None:
    assert _told(caplog, batches) == []


def test_nobody_looks_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    few = [OTHERS[:9]] * 20
    assert _told(caplog, {"a": [RIGHT] * 21, "b": [*few, OTHERS]}) == []
    assert _told(caplog, {"a": [RIGHT] * 20, "b": [*few[1:], OTHERS]}) == ["b."]


def test_keys_may_be_dictionaries_of_several_files() -> None:
    """A batch of two topics of pandas' categories ended with "Unifying differing dictionaries", whatever was tried again."""
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])
    files = [pa.table([pa.array(keys).dictionary_encode()], schema=schema) for keys in (["a", None], ["b", "a"])]
    task = Partitioners(2, {name: TopicSpec(name, 4, schema, ("k",)) for name in "cd"})
    task.look(dict.fromkeys("cd", pa.concat_tables(files)))


@pytest.mark.parametrize("name", [".k", ".", "[0]", "a.b"])
def test_keys_may_have_any_name(caplog: pytest.LogCaptureFixture, name: str) -> None:
    """Arrow took those that begin with a dot for paths, and the run ended: "No match for FieldRef.Name(k) in .k: string"."""
    schema = SCHEMA.set(0, pa.field(name, pa.string()))
    task = Partitioners(2, {topic: TopicSpec(topic, 4, schema, (name,)) for topic in "ab"})
    task.look({topic: rows.rename_columns(schema.names) for topic, rows in (("a", RIGHT), ("b", OTHERS))})
    assert "; topics: b." in caplog.text
