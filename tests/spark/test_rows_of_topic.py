"""The rows of a topic as Spark's source sees them: while others append, and without columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from task_assignor.runtime import Topic, append_topic, write_topic
from task_assignor.runtime.topics import changes, versions
from task_assignor.runtime.topics.versions import Segment
from task_assignor.spark.source import Rows, TaskAssignorSource, rows_of_topic


def test_all_partitions_are_of_one_version_though_its_lists_go_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows that become visible together some partitions were seen with them, others without."""
    for module in (versions, changes):
        monkeypatch.setattr(module, "KEPT_VERSIONS", 2)
    monkeypatch.setattr(versions, "LISTED_APPENDS", 1)
    rows = pa.table({"n": list(range(40))})
    write_topic(tmp_path, "t", rows.slice(0, 0), partitions=2, key=["n"])
    write_topic(tmp_path, "other", rows, partitions=2, key=["n"])
    other = Topic.open(tmp_path, "other")
    second = other.read(1, 0, other.end_offset(1))
    for number in range(6):
        append_topic(tmp_path, "t", second.slice(number, 1))
    really, calls = Topic.segments, []

    def slowly(topic: Topic, partition: int, start: int = 0) -> Sequence[Segment]:
        if topic.spec.name == "t":
            calls.append(partition)
            if len(calls) == 2:
                monkeypatch.setattr(Topic, "segments", really)
                for _ in range(20):
                    append_topic(tmp_path, "t", rows)
        return really(topic, partition, start)

    monkeypatch.setattr(Topic, "segments", slowly)
    found = rows_of_topic(tmp_path, "t")
    assert calls == [0, 1]
    counts = {part: end - (6 if part == "1" else 0) for part, end in found.ends.items()}
    per_append = [other.end_offset(0), other.end_offset(1)]
    assert counts["0"] // per_append[0] == counts["1"] // per_append[1], "an append is seen in part"


def test_what_a_frame_asks_for_is_no_option_of_users(tmp_path: Path) -> None:
    """They said nothing of rows that were left out."""
    write_topic(tmp_path, "numbers", pa.table({"key": list(range(100))}), partitions=2, key=["key"])
    rows = rows_of_topic(tmp_path, "numbers")
    places = {key: json.dumps(rows.upto({"0": 10, "1": 10})) for key in ("since", "upto")}
    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers", "splits": "1", **places})
    reader = found.reader(found.schema())
    read = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]  # type: ignore[union-attr]
    assert len(reader.partitions()) == 2
    assert sum(read) == 100


def test_rows_without_columns_are_as_many(tmp_path: Path) -> None:
    """A schema without any gave no rows, so that nothing was counted."""
    write_topic(tmp_path, "numbers", pa.table({"n": range(50)}), partitions=2, key=["n"])
    reader = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "numbers"}).reader(StructType([]))
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == 50


def test_a_stream_lists_what_is_there_once_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was listed once more for the parts of the batch, in an object store with all that this costs."""
    rows = pa.table({"n": list(range(40))})
    write_topic(tmp_path, "t", rows.slice(0, 30), partitions=1, key=["n"], segment_rows=10)
    looks: list[str] = []

    def look(root: str, topic: str) -> Rows:
        looks.append(topic)
        return rows_of_topic(root, topic)

    found = TaskAssignorSource({"topics_root": str(tmp_path), "topic": "t"})
    stream = found.streamReader(found.schema())
    begin, end = stream.initialOffset(), stream.latestOffset()  # type: ignore[call-arg]
    monkeypatch.setattr("task_assignor.spark.source.rows_of_topic", look)
    assert len(stream.partitions(begin, end)[0].value) == 3
    append_topic(tmp_path, "t", rows.slice(30))
    later = json.loads(json.dumps(stream.latestOffset(end, object())))  # type: ignore[arg-type]
    assert len(stream.partitions(end, later)[0].value) == 1
    assert looks == ["t"]
    assert len(stream.partitions(begin, end)[0].value) == 3, "a batch that is done again goes as far as it went"
