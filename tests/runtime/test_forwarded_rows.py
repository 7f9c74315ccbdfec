"""What may be forwarded, and how: of which records rows are made, which columns they have, and what is told of those that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    Forwarded,
    Output,
    ProcessorException,
    RecordProcessor,
    SubTopology,
    TaskContext,
    Topology,
)
from tests.runtime.test_derived import EVEN
from tests.runtime.test_forwarded import NUMBER
from tests.runtime.test_side_by_side import SCHEMA, Sources, Told, run_task, told, told_in_order

SEEN = pa.schema([*SCHEMA, ("offset", pa.int64())])


class Seen(RecordProcessor):
    """What it reads, with the offset."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record."""
        assert context.record is not None
        return [{**record, "offset": context.record[1]}]


def seen(root: Path, processor: Any, *, schema: pa.Schema = NUMBER, most: int = 3) -> list[tuple[int, int, int]]:
    """Time, number and offset of each row that a processor forwards of five records."""
    makes = SubTopology("makes", "x", processor, outputs=Forwarded("made", schema))
    reads = SubTopology("reads", "made", Seen, outputs=Output("seen", SEEN))
    found = run_task(root, Topology([makes, reads]), {"x": [3, 1, 4, 1, 5]}, [most])["seen"]
    return [(row["at"], row["n"], row["offset"]) for row in found]


class Ten(RecordProcessor):
    """Ten times the number, but for the first."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """A row, or none."""
        return [{"n": 10 * record["n"]}] if record["n"] else []


TENS = [(1, 10, 1), (4, 20, 2), (1, 30, 3), (5, 40, 4)]


class Later(Told):
    """Is told of a part only."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Those that are not the first."""
        later = {topic: rows.filter(pc.greater(rows.column("n"), 0)) for topic, rows in batch.items()}
        return super().process_batch(later, context)


@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_a_record_processor_may_be_given_a_part_of_the_rows(tmp_path: Path, most: int) -> None:
    """Where nothing is forwarded, and its sources are topics."""
    sources: Sources = {"x": [1, 2, 13], "y": [1, 3, 12]}
    whole = told_in_order(run_task(tmp_path / "whole", Topology(told(Told, "x", "y")), sources, [1_000]))["out-a"]
    found = told_in_order(run_task(tmp_path / "part", Topology(told(Later, "x", "y")), sources, [most]))["out-a"]
    assert found == [what for what in whole if what not in ("x0", "y0")]


def test_streams_of_one_topic_must_be_given_as_they_come(tmp_path: Path) -> None:
    topology = Topology(told(Later, "even", "x"), derived=EVEN)
    with pytest.raises(ProcessorException, match="is known of the batch as it is, but of 'even' 1 row"):
        run_task(tmp_path, topology, {"x": [None, None, None, 1]}, [1_000])
