"""What may be forwarded, and how: of which records rows are made, which columns they have, and what is told of those that cannot be."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    Aggregate,
    DeadLetters,
    Forwarded,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    Repartitioned,
    StreamTableJoin,
    SubTopology,
    TaskContext,
    TimeWindows,
    Topology,
    TopologyException,
    WindowedAggregation,
    write_topic,
)
from task_assignor.runtime.arrow.frames import cast_exactly
from tests.runtime.support import QUICK, application
from tests.runtime.test_derived import EVEN
from tests.runtime.test_forwarded import NUMBER, lookup
from tests.runtime.test_side_by_side import SCHEMA, Pass, Sources, Told, run_task, specs, told, told_in_order

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


# Processors that call others.


class Whole(Ten):
    """Says what its base says."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """With other columns, but the same rows."""
        return super().process_batch({"x": batch["x"].append_column("more", batch["x"].column("n"))}, context)


class Named(Ten):
    """Forwards what its base says."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Under its name."""
        found = super().process_batch(batch, context)
        if found is not None:
            context.forward(found, "made")


class Nothing(Ten):
    """Does not want what its base says."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Nothing."""
        super().process_batch(batch, context)


class Half(Ten):
    """Wants a part of what its base says."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Others."""
        found = super().process_batch(batch, context)
        return None if found is None else found.filter(pc.greater(found.column("n"), 10))


class Given(Ten):
    """Gives its base a part of the rows."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Others."""
        return super().process_batch({"x": batch["x"].filter(pc.greater(batch["x"].column("n"), 1))}, context)


class Turned(Ten):
    """Gives its base the rows in another order."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Others."""
        return super().process_batch({"x": batch["x"].sort_by("at")}, context)


@pytest.mark.parametrize(("processor", "rows"), [(Ten, TENS), (Whole, TENS), (Named, TENS), (Nothing, [])])
def test_what_a_processor_says_of_its_base_is_forwarded(tmp_path: Path, processor: Any, rows: Any) -> None:
    assert seen(tmp_path, processor) == rows


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Half, r"none is processed alone. Maybe say of which: context.forward\(rows, made_of="),
        (Given, "The rows of 'x' of which the forwarded output 'made' is made must be given as they come"),
        (Turned, "The rows of 'x' of which the forwarded output 'made' is made must be given as they come"),
    ],
)
def test_of_which_records_other_rows_than_those_are_made_is_not_known(
    tmp_path: Path, processor: Any, message: str
) -> None:
    """They were forwarded as they were, or as made of other records."""
    with pytest.raises(ProcessorException, match=message):
        seen(tmp_path, processor)


class Joined(Processor):
    """A join of ours in a processor of a user's."""

    wants: ClassVar[Any] = None

    def init(self, context: TaskContext) -> None:
        """Make it."""
        self.join = lookup().processor()
        self.join.init(context)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """What it says, or a part of it."""
        found = self.join.process_batch(batch, context)
        return found if found is None or self.wants is None else found.filter(self.wants)


class JoinedHalf(Joined):
    """A part of what it says."""

    wants = pc.field("n") > 1


def test_a_ready_made_processor_may_be_called(tmp_path: Path) -> None:
    part = lookup()
    spec = part.spec_of("looked-up", specs())
    outputs = Forwarded("looked-up", spec.schema, source="x")
    sources: Sources = {"x": [1, 2, 3], "z": [2]}
    show = SubTopology("show", "looked-up", Pass, outputs="o")
    wanted = run_task(tmp_path / "wanted", Topology([part, show]), sources, [2])
    within = attrs.evolve(part, processor=Joined, outputs=outputs)
    assert run_task(tmp_path / "found", Topology([within, show]), sources, [2]) == wanted
    with pytest.raises(ProcessorException, match="Maybe say of which"):
        run_task(tmp_path / "half", Topology([attrs.evolve(within, processor=JoinedHalf), show]), sources, [2])


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


# Punctuators.


class Called(Ten):
    """Forwards when it is called."""

    def init(self, context: TaskContext) -> None:
        """By the records."""
        context.schedule(1, "stream_time", lambda _: context.forward({"n": 1}, made_of=[0]))


class CalledByClock(Ten):
    """The same by the clock."""

    def init(self, context: TaskContext) -> None:
        """It is due when the batch begins."""
        context.schedule(1, "wall_clock_time", lambda _: context.forward({"n": 1}, made_of=[0]))
        time.sleep(0.01)


@pytest.mark.parametrize("processor", [Called, CalledByClock])
def test_what_is_called_by_a_clock_has_no_records(tmp_path: Path, processor: Any) -> None:
    """By that of the wall it ended as a KeyError; by that of the records rows were made of others, as batches were cut."""
    with pytest.raises(
        ProcessorException, match=r"'made' must be made of a record of 'x' each, but a punctuator has no"
    ):
        seen(tmp_path, processor)


class CalledForNothing(Ten):
    """Has nothing to say when it is called."""

    def init(self, context: TaskContext) -> None:
        """By the records."""
        context.schedule(1, "stream_time", lambda _: [])


def test_who_has_no_rows_need_not_say_of_what_they_are_made(tmp_path: Path) -> None:
    assert seen(tmp_path, CalledForNothing) == TENS


class OneByOne(Processor):
    """Forwards rows one by one, with other columns now and then, and tables without any."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """The last first."""
        rows = batch["x"]
        for row in range(rows.num_rows)[::-1]:
            context.forward(pa.table({}), made_of=[])
            context.forward(rows.slice(row, 1).select(["n"] if row % 2 else ["n", "at"]), made_of=[row])
            context.forward([], "made")


def test_tables_may_have_other_columns_and_no_rows(tmp_path: Path) -> None:
    """Where there are no rows, it was said, there must be columns."""
    assert seen(tmp_path, OneByOne) == [(3, 0, 0), *((at, n // 10, offset) for at, n, offset in TENS)]


# Columns.


class Forwards(RecordProcessor):
    """Forwards or returns what it was told to."""

    def __init__(self, what: Any, *, returns: bool, declared: bool) -> None:
        self.what, self.returns, self.declared = what, returns, declared

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """Made of the record."""
        rows = self.what(record)
        if self.returns:
            return rows  # type: ignore[no-any-return]
        context.forward(rows)
        return []

    def output_schema(self) -> pa.Schema | None:
        """With the key."""
        return SCHEMA if self.declared else None


def without(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Neither key nor time."""
    return [{"n": record["n"]}]


def with_time(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One of them."""
    return [{"n": record["n"], "at": record["at"]}]


def now_and_then(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """One row with them and one without."""
    return [record, {"n": record["n"]}]


def alternately(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """With them or without."""
    return [record] if record["n"] % 2 else [{"n": record["n"]}]


@pytest.mark.parametrize("what", [without, with_time, now_and_then, alternately])
@pytest.mark.parametrize("schema", [NUMBER, SCHEMA])
@pytest.mark.parametrize(("returns", "declared"), [(False, False), (True, False), (True, True)])
def test_key_and_time_may_be_left_out_or_given(
    tmp_path: Path, what: Any, schema: pa.Schema, returns: bool, declared: bool
) -> None:
    """Whatever the output or the processor declares: it was said that they had been changed, or are not declared."""
    processor = functools.partial(Forwards, what, returns=returns, declared=declared)
    wanted = [(at, n, n) for n, at in enumerate([3, 1, 4, 1, 5]) for _ in range(2 if what is now_and_then else 1)]
    assert seen(tmp_path, processor, schema=schema) == wanted


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("more", [{"k": 1}, {"at": None}])
def test_another_key_or_time_is_refused_also_where_other_rows_have_none(
    tmp_path: Path, returns: bool, more: Mapping[str, Any]
) -> None:
    what = lambda record: [{"n": 1}, {**record, **more}]  # noqa: E731
    with pytest.raises(
        ProcessorException, match=r"has another '(k|at)' than that, but keys and times stay as they are"
    ):
        seen(tmp_path, functools.partial(Forwards, what, returns=returns, declared=False))


class Same(RecordProcessor):
    """The record."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """As it is."""
        return [record]


class SameTable(Processor):
    """The rows."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """As they are."""
        context.forward(batch["x"], made_of=range(batch["x"].num_rows))


class PassMade(Processor):
    """Gives on what it reads."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows."""
        return batch["made"]


TIMES = [
    pa.array([1, 2, 3], pa.timestamp(unit, zone)) for unit in ("s", "ms", "us", "ns") for zone in (None, "Asia/Tokyo")
]
KEYS = [
    *TIMES,
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array([1, None, 1]).dictionary_encode(),
    pa.array(["a", None, ""], pa.large_string()),
    pa.array([b"a", b"\xff", b""]),
    pa.array([1, 0, None], pa.int8()),
    pa.array([True, False, None]),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(key.type))
@pytest.mark.parametrize("processor", [Same, pytest.param(SameTable, marks=pytest.mark.thorough)])
def test_keys_of_all_types_are_as_before(tmp_path: Path, key: pa.Array, processor: Any) -> None:
    """No two dictionaries are equal to Arrow: it was said that they had been changed."""
    time = key if pa.types.is_timestamp(key.type) and key.type.unit != "s" else pa.array([1, 2, 3], pa.int64())
    rows = pa.table({"k": key, "at": time, "n": [1, 2, 3]})
    write_topic(tmp_path / "topics", "x", rows, partitions=1, key="k", timestamp="at")
    makes = SubTopology("makes", "x", processor, outputs=Forwarded("made", NUMBER))
    topology = Topology([makes, SubTopology("reads", "made", PassMade, outputs="o")])
    found = application(tmp_path, topology, clients=1).run().table("o")
    assert found.schema.field("k").type == key.type
    assert found.to_pylist() == rows.to_pylist()


def test_lists_without_values_have_a_type_in_every_batch(tmp_path: Path) -> None:
    """Of a batch in which none has a value Arrow knows none, and it was said that values would change."""
    values = pa.array([[None], [1], [], None])
    rows = pa.table({"k": [1, 2, 3, 4], "at": [1, 2, 3, 4], "n": values})
    for most in (1, 1_000):
        root = tmp_path / f"{most}"
        write_topic(root / "topics", "x", rows, partitions=1, key="k", timestamp="at")
        makes = SubTopology("makes", "x", Same, outputs=Forwarded("made", pa.schema([("n", values.type)])))
        topology = Topology([makes, SubTopology("reads", "made", PassMade, outputs="o")])
        app = application(root, topology, clients=1, options=attrs.evolve(QUICK, max_batch_rows=most))
        assert app.run().table("o").to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("given", [pa.array([5, None]), pa.array([5, None], pa.int8()).dictionary_encode()])
def test_numbers_become_a_dictionary_of_another_kind(given: pa.Array) -> None:
    kind = pa.dictionary(pa.int16(), pa.int64())
    found = cast_exactly(pa.chunked_array([given, given.slice(1)]), kind)
    assert (found.type, found.to_pylist()) == (kind, [5, None, None])
    with pytest.raises(pa.ArrowInvalid):
        cast_exactly(pa.chunked_array([pa.array([1.5])]), kind)


# Bad and late records.


class Fussy(RecordProcessor):
    """Does not say beforehand that what it returns does not fit."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """Forwarded and counted before."""
        context.count("seen")
        context.forward({"n": record["n"]}, "all")
        return [{"n": "no" if record["n"] in (1, 2) else record["n"]}]

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Elsewhere."""
        found = super().process_batch(batch, context)
        if found is not None:
            context.forward(found, "fit")

    def output_schema(self) -> pa.Schema:
        """Numbers."""
        return NUMBER


def test_nothing_is_left_behind_of_records_whose_rows_do_not_fit(tmp_path: Path) -> None:
    """What they had forwarded and counted stayed."""
    outputs = [Output("all", NUMBER), Output("fit", NUMBER)]
    part = SubTopology("a", "x", Fussy, outputs=outputs, bad_records=DeadLetters("letters"))
    rows = pa.table([[0] * 4, [1, 2, 3, 4], [0, 1, 2, 3]], schema=SCHEMA)
    write_topic(tmp_path / "topics", "x", rows, partitions=1, key="k", timestamp="at")
    result = application(tmp_path, Topology(part), clients=1).run()
    assert [result.table(name).column("n").to_pylist() for name in ("all", "fit")] == [[0, 3], [0, 3]]
    assert result.table("letters").column("offset").to_pylist() == [1, 2]
    (commit,) = (commit for record in result.commits.records() for commit in record.tasks.values())
    assert commit.counters == {"seen": 2, "bad_records": 2}


def test_a_late_record_is_named_by_its_topic(tmp_path: Path) -> None:
    part = SubTopology("m", "x", Ten, outputs=Forwarded("made", NUMBER))
    topics = [part.spec_of("made", specs())]
    windows = WindowedAggregation(source="made", windows=TimeWindows(2), aggregates={"n": Aggregate.count()})
    topology = Topology([part, windows.sub_topology("w", "w", topics=topics)])
    with pytest.raises(ProcessorException, match="The record x, partition 0, offset 2 is 17 ms older"):
        run_task(tmp_path, topology, {"x": [1, 20, 3]}, [1_000])


# What is refused.


def test_columns_are_named_once(tmp_path: Path) -> None:
    twice = pa.schema([("n", pa.int64()), ("n", pa.string())])
    with pytest.raises(TopologyException, match=r"schema of the output 'made' has a column name twice: \['n', 'n'\]"):
        Forwarded("made", twice)

    class Twice(Processor):
        def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
            numbers = batch["x"].column("n")
            context.forward(pa.table([numbers, numbers], ["n", "n"]), made_of=range(len(numbers)))

    with pytest.raises(ProcessorException, match="rows for the forwarded output 'made' have a column twice"):
        seen(tmp_path, Twice)


@pytest.mark.parametrize("output", [Forwarded("looked-up"), Repartitioned("looked-up", key="k", partitions=2)])
def test_what_all_sources_of_a_join_are_like_must_be_given(output: Output) -> None:
    part = StreamTableJoin(stream="x", table="z").sub_topology("lookup", output, topics=specs())
    for place, missing in ((0, "x"), (2, "z")):
        topics = [spec for number, spec in enumerate(specs()) if number != place]
        with pytest.raises(TopologyException, match=f"What the source '{missing}' is like must be given to know what"):
            part.spec_of("looked-up", topics)


def test_of_tables_nothing_can_be_forwarded() -> None:
    with pytest.raises(TopologyException, match="cannot forward 'made': all its sources are tables"):
        SubTopology("a", "z", Ten, tables="z", outputs=Forwarded("made", NUMBER))
    with pytest.raises(TopologyException, match=r"Forwarded\('made', source='y'\)"):
        SubTopology("a", ["x", "y", "z"], Ten, tables="z", outputs=Forwarded("made", NUMBER))


class OfAirports(Ten):
    """Has something of its own under a name that ready-made ones use."""

    origins = ("FRA", "MUC")


def test_a_processor_may_have_origins_of_its_own(tmp_path: Path) -> None:
    assert seen(tmp_path, OfAirports) == TENS
    rows = pa.table([[0], [1], [1]], schema=SCHEMA)
    write_topic(tmp_path / "topics", "y", rows, partitions=1, key="k", timestamp="at")
    assert (
        application(tmp_path, Topology(SubTopology("a", "y", OfAirports, outputs="o"))).run().table("o").num_rows == 1
    )
