"""Processors for single records: in which order they see the records of several sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.runtime import (
    InvalidTransitionException,
    Output,
    Processor,
    RecordProcessor,
    RuntimeOptions,
    StoreException,
    SubTopology,
    TaskContext,
    TopicException,
    TopicSpec,
    Topology,
    TopologyException,
    write_topic,
)
from task_assignor.runtime.machines.protocol import START, TaskOrder
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.runtime.topology.bad_records import LeftOut
from task_assignor.runtime.topology.rows import exact_table
from task_assignor.sdk import TaskId
from tests.runtime.support import application


class Watcher(RecordProcessor):
    """Remembers what it sees, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def process(
        self, topic: str, record: Mapping[str, Any], context: TaskContext
    ) -> Iterable[Mapping[str, Any]] | None:
        """Remember topic and number."""
        self.seen.append((topic, record["n"]))
        return None


def _seen(
    sources: Mapping[str, list[int | None]], kind: pa.DataType, without_time: tuple[str, ...] = ()
) -> list[tuple[str, int]]:
    schema = pa.schema([("k", pa.int64()), ("at", kind), ("n", pa.int64())])
    topics = {name: TopicSpec(name, 1, schema, ("k",), None if name in without_time else "at") for name in sources}
    batch = {
        name: pa.table([pa.nulls(len(times), pa.int64()), pa.array(times, kind), range(len(times))], schema=schema)
        for name, times in sources.items()
    }
    processor = Watcher()
    context = TaskContext("app", TaskId(0, 0), topics, (), {})
    context.begin(0, {name: (0, len(times)) for name, times in sources.items()})
    assert processor.process_batch(batch, context) is None
    return processor.seen


def test_records_come_in_order_of_time_whatever_source_they_are_from() -> None:
    assert _seen({"a": [1, 4, 4], "b": [2, 4, 5]}, pa.int64()) == [
        ("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1), ("b", 2)
    ]  # fmt: skip


def test_units_of_time_do_not_matter() -> None:
    """Seconds of one source beside milliseconds of another."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("s")), ("n", pa.int64())])
    moment = dt.datetime(2024, 1, 1)
    other = schema.set(1, pa.field("at", pa.timestamp("us")))
    processor = Watcher()
    topics = {"a": TopicSpec("a", 1, schema, ("k",), "at"), "b": TopicSpec("b", 1, other, ("k",), "at")}
    context = TaskContext("app", TaskId(0, 0), topics, (), {})
    times = [moment, moment + dt.timedelta(seconds=10)]
    between = [moment + dt.timedelta(seconds=5)]
    batch = {
        "a": pa.table([[1, 1], times, [0, 1]], schema=schema),
        "b": pa.table([[1], between, [0]], schema=other),
    }
    context.begin(0, {"a": (0, 2), "b": (0, 1)})
    processor.process_batch(batch, context)
    assert processor.seen == [("a", 0), ("b", 0), ("a", 1)]


def test_records_without_time_follow_the_one_before_them() -> None:
    assert _seen({"a": [None, 7, None], "b": [3, 8]}, pa.int64()) == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]
    assert _seen({"a": [1, 2], "t": [9, 9]}, pa.int64(), without_time=("t",))[:2] == [("t", 0), ("t", 1)]
    assert _seen({"a": [], "b": []}, pa.int64()) == []


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=9), min_size=1)
)
def test_offsets_keep_their_order_and_heads_are_taken_by_time(sources: dict[str, list[int | None]]) -> None:
    """As in Kafka Streams: of the next record of each source the oldest is taken, the first source if they are equal."""
    heads = dict.fromkeys(sources, 0)
    newest = dict.fromkeys(sources, -(10**9))
    expected = []
    while any(heads[name] < len(times) for name, times in sources.items()):

        def time(name: str) -> tuple[int, int]:
            found = sources[name][heads[name]]
            return max(newest[name], newest[name] if found is None else found), list(sources).index(name)

        name = min((name for name, times in sources.items() if heads[name] < len(times)), key=time)
        newest[name] = time(name)[0]
        expected.append((name, heads[name]))
        heads[name] += 1
    assert _seen(sources, pa.int64()) == expected


class Gives(RecordProcessor):
    """Gives what a function makes of each record."""

    def __init__(self, make: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]) -> None:
        self.make = make

    def process(
        self, topic: str, record: Mapping[str, Any], context: TaskContext
    ) -> Iterable[Mapping[str, Any]] | None:
        """Call it."""
        return self.make(record)


def _given(
    make: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]], records: int, bad_records: LeftOut = "stop"
) -> list[Any]:
    """What becomes of that for some records."""
    schema = pa.schema([("k", pa.int64())])
    context = TaskContext("app", TaskId(0, 0), {"a": TopicSpec("a", 1, schema, ("k",))}, (), {}, bad_records)
    context.begin(0, {"a": (0, records)})
    table = Gives(make).process_batch({"a": pa.table([pa.array(range(records))], schema=schema)}, context)
    return [] if table is None else table.to_pylist()


def test_rows_are_as_they_were_when_they_were_given() -> None:
    """Whoever fills the same dictionary or list again got the last row so many times."""
    row: dict[str, Any] = {"seen": [], "last": {"k": None}}

    def fill(record: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        row["seen"].append(record["k"])
        for row["n"] in range(2):
            row["last"]["k"] = record["k"]
            yield row

    assert [(given["n"], given["last"]["k"], given["seen"]) for given in _given(fill, 2)] == [
        (0, 0, [0]),
        (1, 0, [0]),
        (0, 1, [0, 1]),
        (1, 1, [0, 1]),
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.map_(pa.string(), pa.list_(pa.int64())), [("a", [1]), ("b", None)]),
        (pa.list_(pa.map_(pa.string(), pa.int64())), [[("a", 1)], None]),
        (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])),
    ],
)
def test_pairs_of_maps_and_intervals_stay_what_arrow_takes(kind: pa.DataType, value: object) -> None:
    """They became lists: a record with such a column could not be given on."""

    class Declared(Gives):
        def output_schema(self) -> pa.Schema:
            return pa.schema([("v", kind)])

    context = TaskContext("app", TaskId(0, 0), {}, (), {})
    context.begin(0, {"a": (0, 1)})
    rows = pa.table({"v": pa.array([value], kind)})
    found = Declared(lambda record: [record]).process_batch({"a": rows}, context)
    assert found is not None
    assert found.equals(rows)


def test_tables_are_as_they_were_when_they_were_forwarded() -> None:
    """Arrow takes columns of numpy and pandas where they are: what was written there later was in the output."""
    context = TaskContext("app", TaskId(0, 0), {}, ("one", "other"), {})
    context.begin(0, {})
    numbers, names = np.arange(3), pa.chunked_array([pa.array(["a"]), pa.array(["b", "c"])]).dictionary_encode()
    for output in ("one", "other"):
        context.forward(pa.table({"n": numbers, "name": names}), output)
        numbers *= 10
    found = {name: tables[0].column("n").to_pylist() for name, tables in context.finish()[0].items()}
    assert found == {"one": [0, 1, 2], "other": [0, 10, 20]}


def test_rows_can_be_forwarded_as_mappings() -> None:
    """As `process` gives them: with several outputs it was tables of one row, and a schedule could give nothing else."""
    declared = pa.schema([("n", pa.int64()), ("name", pa.string())])
    context = TaskContext("app", TaskId(0, 0), {}, ("one", "other"), {}, schemas={"one": declared, "other": None})
    context.begin(0, {})
    row = {"n": 1}
    context.forward(row, "one")
    row["n"] = 2
    context.forward([row, {"n": np.int64(3), "name": "c"}], "one")
    context.forward([], "one")
    context.forward({"at": 1.5}, "other")
    found = context.finish()[0]
    rows = [row for table in found["one"] for row in table.to_pylist()]
    assert rows == [{"n": 1, "name": None}, {"n": 2, "name": None}, {"n": 3, "name": "c"}]
    assert [table.to_pylist() for table in found["other"]] == [[{"at": 1.5}]]
    for wrong, message in (({"m": 1}, "columns .'m'."), ({"n": 1.5}, "'n' of a row is not of type int64")):
        with pytest.raises(ValueError, match=message):
            context.forward(wrong, "one")
    with pytest.raises(ValueError, match="'t' of a row is not of type"):
        context.forward([{"t": dt.date(2024, 1, 1)}, {"t": dt.datetime(2024, 1, 1, 5)}], "other")
    for unknown in (2**63, [("a", 1)], object()):
        # These were a TypeError, an OverflowError and an ArrowInvalid, and none said where.
        with pytest.raises(ValueError, match="'u' of a row has a type only if its output declares it"):
            context.forward({"t": 1, "u": unknown}, "other")
    for strange in ([1], "n", iter([row])):
        with pytest.raises(TopologyException, match=r"must be a pyarrow\.Table"):
            context.forward(strange, "one")


class _Both(RecordProcessor):
    """Of some records it returns rows, of some it forwards them, of one both; one does not fit."""

    def init(self, context: TaskContext) -> None:
        """What comes at a time of 40 and later is told after that record."""
        context.schedule(40, "stream_time", lambda time: [{"n": 1_000 + time}])

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """The number of the record tells which."""
        number = record["n"]
        if number % 3:
            context.forward({"n": 10 * number})
        if number % 3 < 2:
            yield {"n": 10 * number + 1 if number != 4 else 0.5}
            yield {"n": 10 * number + 2}

    def output_schema(self) -> pa.Schema:
        """Whole numbers."""
        return pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_that_are_forwarded_and_returned_come_in_the_order_of_their_records(
    tmp_path: Path, batch_rows: int
) -> None:
    """What was forwarded came before all that was returned in the batch: of a key the last row was that of an earlier record."""
    rows = pa.table({"n": range(8), "at": range(10, 90, 10)})
    write_topic(tmp_path / "topics", "x", rows, partitions=1, key=["n"], timestamp="at")
    both = SubTopology("both", "x", _Both, outputs=["found"], bad_records="skip")
    options = RuntimeOptions(max_batch_rows=batch_rows)
    found = application(tmp_path, Topology([both]), clients=1, options=options).run().table("found")
    assert found.column("n").to_pylist() == [1, 2, 1_010, 10, 11, 12, 20, 31, 32, 1_040, 50, 61, 62, 70, 71, 72, 1_080]


def test_rows_of_a_table_without_columns_are_an_error() -> None:
    """They were no rows, and nobody was told."""
    context = TaskContext("app", TaskId(0, 0), {}, ("one",), {})
    for table in (pa.table({"n": [1, 2]}).select([]), pa.Table.from_pandas(pd.DataFrame(index=range(2)))):
        with pytest.raises(TopologyException, match=r"must have columns, but these 2 rows of a table have none"):
            context.forward(table)
    context.forward(pa.table({}))
    assert sum(map(len, context.finish()[0]["one"])) == 0


def test_rows_without_an_output_say_what_to_do() -> None:
    context = TaskContext("app", TaskId(0, 0), {}, (), {})
    with pytest.raises(TopologyException, match=r"no output. Maybe SubTopology\(..., outputs=\[NAME\]\)"):
        context.forward({"n": 1})


def test_columns_are_declared_by_a_method() -> None:
    class Declared(Gives):
        output_schema = pa.schema([("v", pa.int64())])

    context = TaskContext("app", TaskId(0, 0), {}, (), {})
    with pytest.raises(
        TopologyException, match=r"output_schema of .*Declared must be a method. Maybe def output_schema"
    ):
        Declared(lambda record: [record]).process_batch({}, context)


ZONED = dt.datetime(2024, 1, 1, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    "values",
    [
        [dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 5)],
        [ZONED.replace(tzinfo=None), ZONED],
        [ZONED, ZONED.replace(tzinfo=None)],
        [[dt.time(1)], [dt.time(2, tzinfo=dt.UTC)]],
    ],
    ids=["date", "naive", "zoned", "time"],
)
def test_times_of_several_kinds_are_an_error_of_the_record(values: list[Any]) -> None:
    """Arrow cut a time to its day, or took it for one of UTC, and nobody was told."""
    with pytest.raises(ValueError, match=r"the column 'x' of a row is not of type .* would become"):
        _given(lambda record: [{"x": values[record["k"]]}], 2)
    assert _given(lambda record: [{"x": values[record["k"]]}], 2, "skip") == [{"x": values[0]}]
    assert _given(lambda _: [{"x": values[0]}], 2) == [{"x": values[0]}] * 2


@pytest.mark.parametrize(
    ("values", "at"),
    [
        ([1, 1.5, "a", 2.5], 2),
        (["a", 1, "b"], 1),
        ([None, object(), 5], 1),
        ([1, np.bool_(1), 2], 1),
        ([np.datetime64(0, "s"), np.datetime64(1, "ns")], 1),
    ],
    ids=["text", "number", "object", "bool", "unit"],
)
def test_a_value_of_another_type_is_an_error_of_its_record(values: list[Any], at: int) -> None:
    """Without a schema the whole batch was refused, and nobody knew for which record."""
    with pytest.raises(ValueError, match=r"the column 'x' of a row is not of type \w+"):
        _given(lambda record: [{"x": values[record["k"]]}], len(values))
    left = values[:at] + values[at + 1 :]
    found = _given(lambda record: [{"x": values[record["k"]]}], len(values), "skip")
    assert [row["x"] for row in found] == pa.array(left).to_pylist()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, r"a row has no columns. Maybe return \[\] where there is none, or declare output_schema\(\)"),
        (
            {"x": [("a", 1)]},
            r"the column 'x' of a row has a type only if output_schema\(\) declares it: ArrowTypeError: Expected bytes",
        ),
        # Arrow said that it had expected bytes, and not of which record.
        ({1: 2}, r"a row has the column 1, but names of columns are texts, in Unicode"),
        ({"\ud83d": 2}, r"a row has the column '.*ud83d', but names of columns are texts, in Unicode"),
    ],
)
def test_a_row_without_columns_or_types_is_an_error_of_its_record(row: dict[Any, Any], told: str) -> None:
    """Rows without columns were lost, where no other row of the batch had one."""
    with pytest.raises(ValueError, match=told):
        _given(lambda _: [row], 2)
    assert _given(lambda record: [row] if record["k"] else [], 2, "skip") == []


DECLARED = pa.schema([("x", pa.int64()), pa.field("y", pa.int64(), nullable=False)])


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"x": 1, "y": 2, "z": 3}, r"columns \['z'\] that are not declared; declared are \['x', 'y'\]"),
        ({"x": 1}, "The column 'y' for the output 'o' is declared as never null, but has nulls"),
        ({"x": 1.5, "y": 2}, "the column 'x' of a row is not of type int64: ArrowInvalid: 1.5 would become 1"),
    ],
    ids=["unknown", "lacking", "type"],
)
def test_what_an_output_declares_decides_about_each_row_alone(row: dict[str, Any], told: str, at_once: int) -> None:
    """A column that it lacks was dropped; one that a row lacks was null or an error, as the other rows of the batch had it."""
    rows = [{"x": 1, "y": 2}, row, {"y": 3}, {"y": 4, "x": None}]
    topic = TopicSpec("a", 1, pa.schema([("k", pa.int64())]), ("k",))
    records = pa.table([pa.array(range(len(rows)))], schema=topic.schema)

    def kept_of(bad_records: LeftOut) -> list[Any]:
        found: list[Any] = []
        context = TaskContext("app", TaskId(0, 0), {"a": topic}, ("o",), {}, bad_records, schemas={"o": DECLARED})
        for start in range(0, len(rows), at_once):
            context.begin(0, {"a": (start, start + at_once)})
            batch = {"a": records.slice(start, at_once)}
            table = Gives(lambda record: [rows[record["k"]]]).process_batch(batch, context)
            found += [] if table is None else table.cast(DECLARED).to_pylist()
        return found

    with pytest.raises((ValueError, TopicException), match=told):
        kept_of("stop")
    assert kept_of("skip") == [{"x": 1, "y": 2}, {"x": None, "y": 3}, {"x": None, "y": 4}]


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (1_000, pa.timestamp("ms", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)),
        ("7", pa.int64(), 7),
        ({"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ([("a", 1)], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    ],
    ids=["number", "text", "dict", "pairs"],
)
def test_an_output_may_declare_what_arrow_would_not_find(value: object, kind: pa.DataType, found: object) -> None:
    topic = TopicSpec("a", 1, pa.schema([("k", pa.int64())]), ("k",))
    context = TaskContext("app", TaskId(0, 0), {"a": topic}, ("o",), {}, schemas={"o": pa.schema([("x", kind)])})
    context.begin(0, {"a": (0, 2)})
    batch = {"a": pa.table([pa.array([0, 1])], schema=topic.schema)}
    table = Gives(lambda record: [{"x": value if record["k"] else None}]).process_batch(batch, context)
    assert table is not None
    assert table.column("x").to_pylist() == [None, found]


def test_dates_and_nothing_of_numpy_are_taken_without_a_schema() -> None:
    """Arrow knows their type, and then cannot make one of it."""
    day = np.datetime64("2024-01-01")
    for value, expected in ((day, day.item()), ([day], [day.item()]), (np.array([day]), [day.item()])):
        rows = [{"x": value, "y": np.timedelta64(2, "D")}, {"x": None, "y": np.timedelta64("NaT")}]
        assert _given(lambda _, rows=rows: rows, 1) == [  # type: ignore[misc]
            {"x": expected, "y": dt.timedelta(2)},
            {"x": None, "y": None},
        ]


def test_times_with_and_without_zone_are_not_mixed() -> None:
    """They are up to 14 hours apart, and nobody would notice."""
    naive, zoned = pa.timestamp("ms"), pa.timestamp("ms", "Europe/Berlin")

    def bind(times: tuple[pa.DataType, pa.DataType], keys: tuple[pa.DataType, pa.DataType]) -> None:
        topics = {
            name: TopicSpec(name, 1, pa.schema([("k", key), ("at", time)]), ("k",), "at")
            for name, time, key in zip("ab", times, keys, strict=True)
        }
        Topology(SubTopology("both", ("a", "b"), Watcher, (), (Output("out"),))).bind("app", topics)

    with pytest.raises(
        TopologyException, match=r"'both'.*'at' of 'a' has no time zone.*'at' of 'b' has.*Europe/Berlin"
    ):
        bind((naive, zoned), (pa.int64(), pa.int64()))
    with pytest.raises(TopologyException, match=r"'both'.*'k' of 'b' has no time zone.*'k' of 'a' has.*Europe/Berlin"):
        bind((zoned, zoned), (zoned, naive))
    bind((zoned, pa.timestamp("us", "UTC")), (naive, naive))
    bind((zoned, pa.int64()), (zoned, pa.timestamp("s", "UTC")))


def test_a_column_that_no_text_names_is_named_where_columns_are_declared_too() -> None:
    with pytest.raises(ValueError, match="a row has the column 1, but names of columns are texts"):
        exact_table([{"x": 1, 1: 2}], pa.schema([("x", pa.int64())]))  # type: ignore[dict-item]


def test_a_name_that_is_no_text_is_no_store() -> None:
    context = TaskContext("a", TaskId(0, 0), {}, (), {})
    with pytest.raises(StoreException, match=r"has no store \['totals'\]; it declares: none"):
        context.key_value_store(["totals"])  # type: ignore[arg-type]


class Talkative(Processor):
    """Forwards and counts whenever it can, and keeps what comes of that."""

    heard: ClassVar[list[str]] = []

    def _tell(self) -> None:
        for tell in (partial(self.context.forward, {"k": 1}), partial(self.context.count, "told")):
            try:
                tell()
                self.heard.append("")
            except InvalidTransitionException as error:
                self.heard.append(str(error))

    def init(self, context: TaskContext) -> None:
        """Too early."""
        self.context = context
        self._tell()

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """In time; and then, as from another thread, when the batch is over."""
        self._tell()
        finish = context.finish

        def late() -> tuple[dict[str, list[pa.Table]], dict[str, int]]:
            self._tell()
            return finish()

        context.finish = late  # type: ignore[method-assign]
        return None

    def close(self) -> None:
        """Too late."""
        self._tell()


def test_what_no_batch_would_have_cannot_be_forwarded_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was lost without a word."""
    monkeypatch.setattr(Talkative, "heard", [])
    topic = write_topic(tmp_path, "a", pa.table({"k": [1, 2]}), partitions=1, key="k")
    task, what = TaskId(0, 0), Topology([SubTopology("s", "a", Talkative, outputs="o")])
    processors = TaskProcessors("app", task, what.of_task(task), {"a": topic.spec}, {})
    order = TaskOrder(task, 0, 1, {"a": (0, 2)}, START)
    outputs, counters = processors.run(order, TaskInput.read(order, ["a"], (), {"a": topic}))
    processors.close()
    assert (outputs["o"].num_rows, counters) == (1, {"told": 1})
    assert [bool(error) for error in Talkative.heard] == [True, True, False, False, *[True] * 4]
    assert "rows or counts, which no batch would have" in Talkative.heard[0]


@pytest.mark.parametrize(("topic", "row"), [("b", 0), (["a"], 0), ("a", -1), ("a", 2), ("a", None)])
def test_records_that_are_not_there_have_no_offset(topic: Any, row: Any) -> None:
    """Those of a topic that is not read began at 0, and before the first row there were others."""
    rows = pa.table({"k": [1, 2]})
    context = TaskContext("app", TaskId(0, 0), {"a": TopicSpec("a", 1, rows.schema, ("k",))}, (), {})
    context.begin(0, {"a": (100, 102)}, {"a": rows})
    assert context.offset_of("a", 1) == 101
    with pytest.raises(TopologyException, match=r"reads no topic|There is no row|must be places in the batch"):
        context.offset_of(topic, row)
