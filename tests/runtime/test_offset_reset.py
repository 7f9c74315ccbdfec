"""Where an application begins to read, and that a run goes on where rows have gone, if it is told to (`auto.offset.reset`)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    ProcessorException,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    StreamTableJoin,
    SubTopology,
    Topic,
    TopicException,
    Topology,
    append_topic,
    delete_records,
    read_output,
    write_topic,
)
from task_assignor.runtime.errors import RowsGoneException
from task_assignor.runtime.machines.records import FORMAT_VERSION
from task_assignor.runtime.run_folder.layout import APPLICATION, RunLayout, read_application
from task_assignor.runtime.storage import open_document
from task_assignor.runtime.tasks.offset_reset import ResetSource
from task_assignor.sdk import ConfigException
from tests.runtime.support import QUICK, FailsAtRow, application, count_topology, settings, stream

EARLIEST = attrs.evolve(QUICK, auto_offset_reset="earliest")
ROWS = 1_000


def _write(root: Path, rows: pa.Table) -> Topic:
    return write_topic(root / "topics", "left", rows, partitions=2, key=["key"], timestamp="at", segment_rows=50)


def _counted(run_dir: Path) -> int:
    """Rows that the newest totals are made of."""
    totals: dict[int, int] = {}
    for row in read_output(run_dir, "totals-out").to_pylist():
        totals[row["key"]] = max(totals.get(row["key"], 0), row["count"])
    return sum(totals.values())


def _counting(root: Path, reset: str | None) -> StreamsApplication:
    return application(root, count_topology(), options=attrs.evolve(QUICK, auto_offset_reset=reset))


def test_a_run_goes_on_with_what_is_there_and_counts_what_has_gone(tmp_path: Path) -> None:
    """The state that it has is kept; more has gone than a batch has rows, which is one batch all the same."""
    topic = _write(tmp_path, stream(ROWS, 50, 1))
    _counting(tmp_path, "earliest").run()
    ends = topic.end_offsets()
    grown = append_topic(tmp_path / "topics", "left", stream(3 * ROWS, 50, 2)).end_offsets()
    firsts = [grown[0] - 30, ends[1] + 20]
    delete_records(tmp_path / "topics", "left", dict(enumerate(firsts)))
    with pytest.raises(RowsGoneException, match=r"were deleted .* with auto\.offset\.reset=earliest"):
        _counting(tmp_path, None).run()
    gone = sum(first - end for first, end in zip(firsts, ends, strict=True))
    result = _counting(tmp_path, "earliest").run()
    assert result.lost_records == gone
    assert f", {gone:,} offsets gone before they were read" in str(result)
    assert result.rows_in == 3 * ROWS
    left = [grown[0] - firsts[0], grown[1] - firsts[1]]
    assert result.batches_here <= 2 + sum(left) // 200 + 1, "what has gone takes no batches"
    assert _counted(tmp_path / "run") == ROWS + sum(left)
    again = _counting(tmp_path, None).run()
    assert (again.rows_in, again.lost_records) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_counted_or_lost_whenever_others_append_and_delete(tmp_path: Path, seed: int) -> None:
    """While the run goes on, too: its tasks are at different places then, and what is read ahead is kept."""
    chance = random.Random(seed)
    _write(tmp_path, stream(300, 50, seed))
    rows, lost, goes_on = 300, 0, False

    def meddle(event: RunEvent | None = None) -> None:
        nonlocal rows
        if not isinstance(event, BatchesCommitted | None):
            return
        # Where nothing comes any more a run that goes on would wait for ever.
        if event is None or goes_on or chance.random() < 0.5:
            rows += (more := chance.randrange(1, 400))
            append_topic(tmp_path / "topics", "left", stream(more, 50, chance.randrange(1_000)))
        if chance.random() < 0.3:
            topic = Topic.open(tmp_path / "topics", "left")
            places = enumerate(zip(topic.start_offsets(), topic.end_offsets(), strict=True))
            delete_records(tmp_path / "topics", "left", {part: chance.randint(*reach) for part, reach in places})
        if event is not None and chance.random() < 0.2:
            running.request_stop("enough")

    for goes_on in (False, True, False, True):
        running = _counting(tmp_path, "earliest")
        lost += running.run(meddle, until="stopped" if goes_on else "available_now").lost_records
        meddle()
    ends = append_topic(tmp_path / "topics", "left", stream(100, 50, seed)).end_offsets()
    delete_records(tmp_path / "topics", "left", {part: end - 1 for part, end in enumerate(ends)})
    lost += (last := _counting(tmp_path, "earliest").run().lost_records)
    rows += 100
    assert last
    assert _counted(tmp_path / "run") == rows - lost


@pytest.mark.parametrize("gone", [120, 200])
def test_a_source_gives_what_is_left_and_says_what_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: int
) -> None:
    rows = stream(200, 5, 1)
    topic = write_topic(tmp_path, "t", rows, partitions=1, key=["key"], timestamp="at", segment_rows=50)
    source = ResetSource(topic)
    assert ResetSource(Topic.open(tmp_path, "t")).fetch(0, 10, 100).lost == 0
    delete_records(tmp_path, "t", {0: gone})
    found = source.fetch(0, 10, 150)
    assert (found.lost, found.end) == (gone - 10, gone if gone > 150 else None)
    assert found.rows.equals(rows.slice(gone, max(150 - gone, 0)))
    told = f"The topic t, partition 0, has no offsets from 10 to {gone - 1} any more ({gone - 10} offsets)"
    assert told in caplog.text
    source.check([10])
    with pytest.raises(RowsGoneException):
        topic.check([10])


def test_who_has_passed_over_rows_that_nobody_else_has_seen_is_not_taken_for_one_that_has_read_others(
    tmp_path: Path,
) -> None:
    """A run that ends by itself looks at what it has read as it was when it began."""
    seen = ResetSource(write_topic(tmp_path, "t", stream(200, 5, 1), partitions=1, key=["key"], segment_rows=50))
    append_topic(tmp_path, "t", stream(20, 5, 1))
    delete_records(tmp_path, "t", {0: 210})
    read = ResetSource(Topic.open(tmp_path, "t"))
    assert read.fetch(0, 10, 200).end == 210
    seen.check([210], [read.seal_before(0, 210)])


def test_rows_may_go_while_it_is_looked_whether_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ended as it began, of rows that went just then."""
    write_topic(tmp_path, "t", stream(200, 5, 1), partitions=1, key=["key"], segment_rows=50)
    source, check, gone = ResetSource(Topic.open(tmp_path, "t")), Topic.check, [50, 100, 150]

    def check_late(topic: Topic, starts: Sequence[int], seals: Sequence[str] = ()) -> None:
        if gone:
            delete_records(tmp_path, "t", {0: gone.pop(0)})
            topic.refresh()
        check(topic, starts, seals)

    monkeypatch.setattr(Topic, "check", check_late)
    source.check([10])
    assert not gone
    assert source.start_offsets() == [150]


def test_what_is_missing_in_the_middle_is_no_deletion(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "t", stream(200, 5, 1), partitions=1, key=["key"], segment_rows=50)
    next(iter(sorted((tmp_path / "t" / "0").glob("*.arrow"))[1:])).unlink()
    with pytest.raises(TopicException) as raised:
        ResetSource(topic).fetch(0, 0, 200)
    assert not isinstance(raised.value, RowsGoneException)


@pytest.mark.parametrize(("reset", "read"), [("latest", 0), ("by_duration:PT1H", 300), ("earliest", 700)])
def test_a_new_application_begins_where_it_is_told(tmp_path: Path, reset: str, read: int) -> None:
    """And goes on there, whatever the setting is by then."""
    now_ms = round(time.time() * 1_000)
    rows = stream(700, 50, 1, span_ms=1)
    ages = pa.array([7_200_000] * 400 + [1_800_000] * 300)
    _write(tmp_path, rows.set_column(1, "at", pc.subtract(now_ms, ages)))
    assert _counting(tmp_path, reset).run().rows_in == read
    append_topic(tmp_path / "topics", "left", rows.slice(0, 100))
    assert _counting(tmp_path, None).run().rows_in == 100
    assert _counted(tmp_path / "run") == read + 100
    layout = RunLayout(tmp_path / "run")
    assert read_application(layout).reset == reset
    # Former versions read all rows that are there, so they are to refuse what began later.
    document = open_document(layout.storage, APPLICATION, dict)
    assert document["formatVersion"] == FORMAT_VERSION + (reset != "earliest")


def test_what_came_while_the_processor_could_do_nothing_is_not_passed_over_when_it_is_another_one(
    tmp_path: Path,
) -> None:
    """A run that has committed nothing begins anew with what is computed now, but not later."""
    _write(tmp_path, stream(100, 50, 1))
    latest = attrs.evolve(QUICK, auto_offset_reset="latest")
    failing = Topology([SubTopology("count", "left", FailsAtRow, outputs="totals-out")])
    assert application(tmp_path, failing, options=latest).run().rows_in == 0
    append_topic(tmp_path / "topics", "left", stream(701, 50, 1).slice(700))
    with pytest.raises(ProcessorException):
        application(tmp_path, failing, options=latest).run()
    assert _counting(tmp_path, "latest").run().rows_in == 1


def test_rows_that_go_before_the_first_batch_are_missed_where_nothing_else_is_said(tmp_path: Path) -> None:
    """By a run that has begun late as by others; where it may go on it does."""
    topic = _write(tmp_path, stream(100, 50, 1))
    assert _counting(tmp_path, "latest").run().rows_in == 0
    ends = topic.end_offsets()
    append_topic(tmp_path / "topics", "left", stream(100, 50, 2))
    delete_records(tmp_path / "topics", "left", {0: ends[0] + 1})
    with pytest.raises(RowsGoneException, match=f"from offset {ends[0]} to {ends[0]} are wanted"):
        _counting(tmp_path, None).run()
    assert _counting(tmp_path, "latest").run().lost_records == 1
    assert _counted(tmp_path / "run") == 99


def test_tables_are_read_from_their_beginning(tmp_path: Path) -> None:
    """What they had before is what a stream that begins now looks up."""
    people = pa.table({"key": [1, 2], "at": [1, 2], "name": ["a", "b"]})
    write_topic(tmp_path / "topics", "people", people, partitions=1, key=["key"], timestamp="at")
    write_topic(tmp_path / "topics", "visits", stream(20, 2, 1), partitions=1, key=["key"], timestamp="at")
    topics = [Topic.open(tmp_path / "topics", name).spec for name in ("visits", "people")]
    join = StreamTableJoin(stream="visits", table="people")
    topology = Topology([join.sub_topology("join", "named", topics=topics)])
    options = attrs.evolve(QUICK, auto_offset_reset="latest")
    assert application(tmp_path, topology, options=options).run().rows_in == 2
    visits = pa.table({"key": [1, 2], "at": [700_000, 700_001], "value": ["x", "y"]})
    append_topic(tmp_path / "topics", "visits", visits)
    application(tmp_path, topology, options=options).run()
    assert read_output(tmp_path / "run", "named").column("name").to_pylist() == ["a", "b"]


def test_a_duration_needs_times(tmp_path: Path) -> None:
    write_topic(tmp_path / "topics", "left", stream(20, 2, 1), partitions=1, key=["key"])
    with pytest.raises(TopicException, match="Topic left has no timestamp column"):
        _counting(tmp_path, "by_duration:PT1H").run()
    assert _counting(tmp_path, None).run().rows_in == 20


@pytest.mark.parametrize("key", ["auto.offset.reset", "consumer.auto.offset.reset", "main.consumer.auto.offset.reset"])
def test_the_setting_of_kafka_gives_the_option(tmp_path: Path, key: str, caplog: pytest.LogCaptureFixture) -> None:
    _write(tmp_path, stream(20, 2, 1))
    config = settings().__class__({**settings().originals, key: "latest"})
    assert application(tmp_path, count_topology(), config=config).run().rows_in == 0
    assert "do nothing" not in caplog.text
    with pytest.raises(ConfigException, match=r"\(latest\) and the auto_offset_reset \(earliest\) .* differ"):
        application(tmp_path, count_topology(), config=config, options=EARLIEST)


@pytest.mark.parametrize("value", ["none", "newest", "by_duration:1h", "by_duration:P", "by_duration:PT", "", 1, True])
def test_what_is_none_of_them_is_refused(value: object) -> None:
    with pytest.raises(
        ConfigException, match=r"auto_offset_reset \(.*\) of a RuntimeOptions must be earliest, latest, or"
    ):
        RuntimeOptions(auto_offset_reset=value)  # type: ignore[arg-type]
