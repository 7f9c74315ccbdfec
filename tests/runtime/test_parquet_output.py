"""Outputs in Parquet: what any engine reads by the manifest is exactly what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    CommitLogException,
    CorruptLogException,
    Output,
    Processor,
    SubTopology,
    TaskContext,
    Topology,
    TopologyException,
    WindowedJoin,
    append_topic,
    committed_files,
    read_output,
    write_topic,
)
from tests.runtime.support import AFTER_MS, BEFORE_MS, Watch, application, in_order, plain_join, stream, write_streams

SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("value", pa.string())])


class Same(Processor):
    """Gives what it gets."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """The rows."""
        (rows,) = batch.values()
        return rows


def same(output: Output) -> Topology:
    return Topology([SubTopology("same", "left", Same, outputs=[output])])


def manifest(run_dir: Path, output: str) -> list[str]:
    return (run_dir / "manifest" / output / "files.txt").read_text().splitlines()


def test_every_engine_reads_exactly_the_committed_rows(tmp_path: Path) -> None:
    left, right = write_streams(tmp_path / "topics", rows=2_000, keys=100)
    join = WindowedJoin(left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS)
    result = application(tmp_path, Topology([join.sub_topology("join", Output("joined", format="parquet"))])).run()
    expected = in_order(plain_join(left, right))
    assert in_order(result.table("joined")).equals(expected)
    files = manifest(tmp_path / "run", "joined")
    assert files == committed_files(tmp_path / "run", "joined")
    assert in_order(pq.ParquetDataset(files).read()).equals(expected)
    assert in_order(pl.read_parquet(files).to_arrow()).cast(expected.schema).equals(expected)
    assert not list((tmp_path / "run" / "output").rglob("*.arrow"))


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028"])
def test_a_folder_that_would_break_the_lines_of_the_manifest_is_refused(tmp_path: Path, end: str) -> None:
    """Its list had no path that there is."""
    write_streams(tmp_path / "topics", rows=20, keys=5)
    run_dir = tmp_path / f"a{end}b"
    with pytest.raises(
        CommitLogException, match=r"The run folder '.*' cannot have the output 'o' in Parquet: .* the end of a line"
    ):
        application(tmp_path, same(Output("o", SCHEMA, format="parquet"))).evolve(run_dir=run_dir).run()
    assert not any(run_dir.glob("*.json"))


def test_rows_come_back_in_the_types_that_were_declared(tmp_path: Path) -> None:
    """Parquet has others in their place."""
    kinds = [pa.timestamp("s", "UTC"), pa.list_(pa.time32("s")), pa.date64(), pa.dictionary(pa.int8(), pa.string())]
    schema = pa.schema([("key", pa.int64()), *((f"c{number}", kind) for number, kind in enumerate(kinds))])
    values = [[5], [[1, None]], [86_400_000], ["a"]]
    rows = pa.table(
        [pa.array([1]), *(pa.array(one, kind) for one, kind in zip(values, kinds, strict=True))], schema=schema
    )
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"])
    result = application(tmp_path, same(Output("out", schema, format="parquet")), clients=1).run()
    found = result.table("out")
    assert found.schema.equals(schema)
    assert found.to_pylist() == rows.to_pylist()


def test_the_manifest_goes_on_with_the_next_run(tmp_path: Path) -> None:
    left, _ = write_streams(tmp_path / "topics", rows=1_000, keys=50)
    topology = same(Output("out", SCHEMA, format="parquet"))
    watch = Watch()
    app = application(tmp_path, topology)
    watch.on(BatchesCommitted, lambda _: app.request_stop())
    app.run(watch)
    first = manifest(tmp_path / "run", "out")
    assert first == committed_files(tmp_path / "run", "out")
    half = tmp_path / "run" / "manifest" / "out" / "~files.txt-4711-140018551092928-3"
    half.write_bytes(b"of a run that was killed")
    more = stream(500, 50, seed=9)
    append_topic(tmp_path / "topics", "left", more)
    application(tmp_path, topology).run()
    files = manifest(tmp_path / "run", "out")
    assert files == committed_files(tmp_path / "run", "out")
    assert set(first) < set(files)
    assert not half.exists()
    assert in_order(pl.read_parquet(files).to_arrow().cast(SCHEMA)).equals(in_order(pa.concat_tables([left, more])))


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=1_000, keys=50)
    application(tmp_path, same(Output("out", SCHEMA, format="parquet"))).run()
    path = Path(manifest(tmp_path / "run", "out")[0])
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    with pytest.raises(CorruptLogException, match="its checksum is"):
        read_output(tmp_path / "run", "out")


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        TopologyException, match=r"The format \('csv'\) of the output 'out' must be 'arrow' or 'parquet'"
    ):
        Output("out", SCHEMA, format="csv")  # type: ignore[arg-type]
    with pytest.raises(TopologyException, match="the output 'out' in Parquet without its columns"):
        same(Output("out", format="parquet"))
    write_streams(tmp_path / "topics", rows=100, keys=5)
    for kind in (pa.dictionary(pa.int8(), pa.int64()), pa.month_day_nano_interval(), pa.decimal128(5, -2)):
        # Of the first rows could be written, and never read again; of the others the first batch failed.
        strange = Output("out", SCHEMA.append(pa.field("x", kind)), format="parquet")
        with pytest.raises(
            TopologyException, match=r"The output 'out' cannot be in Parquet, .* its column 'x' of type"
        ):
            application(tmp_path, same(strange), run_dir=tmp_path / "strange").run()
    twice = pa.field("x", pa.dictionary(pa.int32(), pa.dictionary(pa.int32(), pa.string())))
    with pytest.raises(TopologyException, match=r"The output 'out' cannot be in Arrow, .* its column 'x' of type"):
        application(tmp_path, same(Output("out", SCHEMA.append(twice))), run_dir=tmp_path / "strange").run()
    application(tmp_path, same(Output("out", SCHEMA))).run()
    with pytest.raises(CommitLogException, match="outputs in Parquet"):
        application(tmp_path, same(Output("out", SCHEMA, format="parquet"))).run()
