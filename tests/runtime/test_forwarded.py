"""Forwarded outputs: what one sub-topology makes of a stream's records another one reads in the same task, at their places and times."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    CommitLogException,
    DeadLetters,
    DerivedStream,
    Forwarded,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    Repartitioned,
    StreamTableJoin,
    SubTopology,
    TableJoin,
    TaskContext,
    TimeWindows,
    Topic,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
    write_topic,
)
from tests.budget import examples
from tests.runtime.support import application
from tests.runtime.test_derived import EVEN, SKIP, run
from tests.runtime.test_side_by_side import (
    OUT,
    SCHEMA,
    Pass,
    Sources,
    Told,
    ToldToo,
    orders,
    run_task,
    specs,
    times,
    told,
    told_in_order,
)

cuts = st.lists(st.integers(-6, 6).filter(bool), min_size=1, max_size=4)
NUMBER = pa.schema([("n", pa.int64())])


class Evens(RecordProcessor):
    """Forwards rows with an even number, and is called by the clock, which cuts its batches."""

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(4, "stream_time", lambda _: None)

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record, or nothing."""
        return [record] if record["n"] % 2 == 0 else []


class EvensAtOnce(Processor):
    """The same for whole tables, in any order."""

    def init(self, context: TaskContext) -> None:
        """Be called."""
        context.schedule(4, "stream_time", lambda _: None)

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Those that are even, the last first."""
        made_of = np.flatnonzero(batch["x"].column("n").to_numpy() % 2 == 0)[::-1]
        context.forward(batch["x"].take(pa.array(made_of)).select(["n"]), made_of=made_of)


FORWARDS = SubTopology("evens", "x", Evens, outputs=Forwarded("even", SCHEMA))
FORWARDS_AT_ONCE = SubTopology("evens", "x", EvensAtOnce, outputs=Forwarded("even", SCHEMA))


@given(
    st.fixed_dictionaries(dict.fromkeys("xy", times)),
    cuts,
    st.permutations(["even", "y", "x"]),
    st.sampled_from([FORWARDS, FORWARDS_AT_ONCE]),
)
@example({"x": [None, 0, None], "y": [None]}, [1], ["even", "y", "x"], FORWARDS)
@settings(max_examples=examples(30), deadline=None)
def test_what_is_forwarded_comes_as_a_derived_stream_does(
    sources: Sources, most: list[int], names: list[str], makes: SubTopology
) -> None:
    """In the same order among all others, whatever batches and restores are."""
    with tempfile.TemporaryDirectory() as folder:
        derived = Topology(told(Told, *names), derived=EVEN)
        wanted = told_in_order(run(folder, "derived", derived, sources, [1_000]))
        # Who reads it may be declared before it.
        forwarded = Topology([told(Told, *names), makes])
        assert told_in_order(run(folder, "forwarded", forwarded, sources, most)) == wanted


@given(st.fixed_dictionaries(dict.fromkeys("xy", times)), cuts, st.sampled_from(["inner", "left"]), st.integers(0, 6))
@settings(max_examples=examples(20), deadline=None)
@pytest.mark.thorough
def test_a_join_of_what_is_forwarded_is_that_of_a_derived_stream(
    sources: Sources, most: list[int], how: str, grace: int
) -> None:
    """The same rows are late, and rows come alone at the same times."""
    more: Any = {"before_ms": 5, "after_ms": 3, "how": how, "left_grace_ms": grace, "right_grace_ms": grace, **SKIP}
    join = WindowedJoin(left="even", right="y", **more).sub_topology("join", "pairs")
    with tempfile.TemporaryDirectory() as folder:
        wanted = run(folder, "derived", Topology(join, derived=EVEN), sources, [1_000])["pairs"]
        found = run(folder, "forwarded", Topology([FORWARDS, join]), sources, most)["pairs"]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def lookup(how: str = "left", **more: Any) -> SubTopology:
    """A lookup whose result is forwarded."""
    join = StreamTableJoin(stream="x", table="z", how=how, **more)
    return join.sub_topology("lookup", Forwarded("looked-up"), topics=specs())


@given(st.fixed_dictionaries(dict.fromkeys("xz", times)), cuts, st.integers(0, 6), st.booleans())
@settings(max_examples=examples(5), deadline=None)
def test_windows_over_a_lookup_are_those_over_a_topic_with_its_rows(
    sources: Sources, most: list[int], grace: int, table_first: bool
) -> None:
    part = lookup(table_first=table_first)
    spec = part.spec_of("looked-up", specs())
    assert spec.schema.names == ["k", "at", "n", "at_right", "n_right"]
    windows = WindowedAggregation(
        source="looked-up",
        windows=TimeWindows(7),
        aggregates={"sum": Aggregate.sum("n_right"), "rows": Aggregate.count()},
        grace_ms=grace,
        **SKIP,
    ).sub_topology("windows", "windows", topics=[spec])
    with tempfile.TemporaryDirectory() as folder:
        join = StreamTableJoin(stream="x", table="z", how="left", table_first=table_first)
        rows = run(folder, "one", Topology(join.sub_topology("l", "o", topics=specs())), sources, [1_000])["o"]
        table = pa.Table.from_pylist(rows, spec.schema)
        write_topic(Path(folder) / "topics", "looked-up", table, partitions=1, key="k", timestamp="at")
        alone = application(Path(folder), Topology(windows), clients=1).run().table("windows").to_pylist()
        found = run(folder, "both", Topology([part, windows]), sources, most)["windows"]
    assert found == alone


class Twice(RecordProcessor):
    """Makes several rows of a record, by both ways, and of some none; others go elsewhere."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """As many rows as the number says, modulo 4."""
        for number in range(record["n"] % 4):
            context.forward({"n": 100 * record["n"] + number}, "several")
        context.forward({"n": record["n"]}, "all")
        return []


class Thrice(RecordProcessor):
    """Returns three rows, and forwards one before."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """Four rows."""
        context.forward([{"n": 10 * record["n"]}])
        return [{"n": 10 * record["n"] + number, "k": 0} for number in (1, 2, 3)]


@given(st.fixed_dictionaries(dict.fromkeys("xy", times)), cuts)
@settings(max_examples=examples(15), deadline=None)
def test_a_record_may_become_several_rows_again_and_again(sources: Sources, most: list[int]) -> None:
    """Each stands where the record does, those of one record in the order in which they were made."""
    topology = Topology(
        [
            told(Told, "four", "y"),
            SubTopology("thrice", "some", Thrice, outputs=Forwarded("four", NUMBER)),
            SubTopology("twice", "x", Twice, outputs=[Forwarded("several", NUMBER), Output("all", NUMBER)]),
        ],
        derived=DerivedStream("some", "several", filter=lambda rows: pc.not_equal(rows.column("n"), 301)),
    )
    assert [found.name for found in topology.processor_topologies] == ["twice, thrice, a"]
    with tempfile.TemporaryDirectory() as folder:
        plain = told_in_order(run(folder, "plain", Topology(told(Told, "x", "y")), sources, [1_000]))["out-a"]
        found = run(folder, "found", topology, sources, most)

        def rows_of(what: str) -> list[str]:
            if what[0] != "x":
                return [what]
            several = [100 * int(what[1:]) + number for number in range(int(what[1:]) % 4)]
            return [f"four{10 * n + number}" for n in several if n != 301 for number in range(4)]

        # Where all rows of a record are left out the hours of the clock stay where they are.
        assert told_in_order({"": found["out-a"]})[""] == [one for what in plain for one in rows_of(what)]
        assert [row["n"] for row in found["all"]] == [*range(len(sources["x"]))]


class Both(RecordProcessor):
    """Reads two topics."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """Rows of one of them."""
        return [{"n": record["n"] * 10}] if topic == "y" else []


@given(st.fixed_dictionaries(dict.fromkeys("xy", times)), cuts)
@settings(max_examples=examples(10), deadline=None)
def test_of_several_sources_one_is_named(sources: Sources, most: list[int]) -> None:
    both = SubTopology("both", ["x", "y"], Both, outputs=Forwarded("made", NUMBER, source="y"))
    mapped = DerivedStream(
        "made", specs()[1], map_values=lambda rows: pa.table({"n": pc.multiply(rows.column("n"), 10)})
    )
    with tempfile.TemporaryDirectory() as folder:
        derived = Topology(told(Told, "x", "made"), derived=mapped)
        wanted = told_in_order(run(folder, "derived", derived, sources, [1_000]))
        found = told_in_order(run(folder, "found", Topology([both, told(Told, "x", "made")]), sources, most))
    assert found == wanted


# Trouble.


class Wrong(Processor):
    """Does not say of what its rows are made, or what cannot be."""

    made_of: Any = None

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Its source."""
        if self.made_of is None:
            return batch["x"]
        context.forward(batch["x"], made_of=self.made_of)
        return None


class WrongNumber(Wrong):
    """Too few."""

    made_of = (0,)


class WrongRow(Wrong):
    """There is none such."""

    made_of = (0, 2)


class WrongKind(Wrong):
    """A mask."""

    made_of = (True, False)


def make(kind: type[Processor]) -> Processor:
    """Something else that makes processors."""
    return kind()


class Anything(RecordProcessor):
    """Gives what it was told to."""

    def __init__(self, given: Any, more: Any = None) -> None:
        self.given, self.more = given, more

    def init(self, context: TaskContext) -> None:
        """Give it by the clock."""
        if self.more:
            context.schedule(1, "stream_time", lambda _: self.more)

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Any:
        """For each record."""
        return self.given


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (
            functools.partial(Anything, [{"n": 1, "k": 5}]),
            "What makes the forwarded output 'made' has changed the column 'k'",
        ),
        (functools.partial(Anything, [{"n": 1, "at": 5}]), "'made' has changed the column 'at'"),
        (WrongNumber, r"for 2 rows made_of is \(0,\)"),
        (WrongRow, "made_of has 2, and the batch 2 rows of it"),
        (WrongKind, r"for 2 rows made_of is \(True, False\)"),
        (Wrong, r"Maybe say of which: context.forward\(rows, made_of="),
        (
            functools.partial(make, Wrong),
            "Rows of the forwarded output 'made' must be made of a record of 'x' each, but none is",
        ),
        (functools.partial(Anything, [], [{"n": 1}]), "but a punctuator has no records. Maybe keep"),
    ],
)
def test_what_cannot_be_forwarded_ends_the_run(tmp_path: Path, processor: Any, message: str) -> None:
    makes = SubTopology("makes", "x", processor, outputs=Forwarded("made", NUMBER), bad_records="skip")
    with pytest.raises(ProcessorException, match=f"of sub-topology 'makes' failed in task 0_0, batch 0 .*{message}"):
        run_task(tmp_path, Topology([makes, told(Told, "made")]), {"x": [1, 2]}, [1_000])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"m": 1}, r"columns \['m'\] that are not declared; declared are \['k', 'at', 'n'\]"),
        ({"n": "a"}, "the column 'n' of a row is not of type int64: .*'a'"),
    ],
)
def test_a_row_that_does_not_fit_what_is_forwarded_is_a_bad_record(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    for policy in ("stop", "skip"):
        processor = functools.partial(Anything, [row])
        makes = SubTopology("makes", "x", processor, outputs=Forwarded("made", NUMBER), bad_records=policy)
        topology = Topology([makes, told(Told, "made")])
        if policy == "stop":
            with pytest.raises(ProcessorException, match=f"at the record x, partition 0, offset 0.*{message}"):
                run_task(tmp_path / policy, topology, {"x": [1, 2]}, [1_000])
        else:
            found = run_task(tmp_path / policy, topology, {"x": [1, 2]}, [1_000])
            assert found
            assert not any(row["what"].startswith("made") for rows in found.values() for row in rows)


def test_rows_of_records_of_another_source_end_the_run(tmp_path: Path) -> None:
    for processor, message in (
        (
            functools.partial(Anything, [{"n": 1}]),
            "gives rows for a record of 'x', but what it forwards is made of records of 'y'",
        ),
        (Twice, "of 'y' each, but the record that is processed is one of 'x'"),
    ):
        outputs = [Forwarded("several", NUMBER, source="y"), *([Output("all")] if processor is Twice else [])]
        makes = SubTopology("makes", ["x", "y"], processor, outputs=outputs)
        with pytest.raises(ProcessorException, match=message):
            run_task(
                tmp_path / str(processor is Twice),
                Topology([makes, told(Told, "several")]),
                {"x": [1, 2], "y": [9]},
                [9],
            )


class Picky(RecordProcessor):
    """Does not like the third, nor a text that is no number."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """Forwarded before it fails."""
        context.forward({"n": 10 * record["n"]}, "made")
        return [{"n": "no" if record["n"] == 2 else record["n"] // (record["n"] - 4)}]

    def output_schema(self) -> pa.Schema:
        """Numbers."""
        return NUMBER


def test_bad_records_leave_nothing_behind_and_those_of_readers_are_named_by_topic_and_offset(tmp_path: Path) -> None:
    letters = DeadLetters("letters")
    makes = SubTopology("makes", "x", Picky, outputs=Forwarded("made", NUMBER), bad_records=letters)
    windows = WindowedAggregation(
        source="made", windows=TimeWindows(2), aggregates={"sum": Aggregate.sum("n")}, late_records=DeadLetters("late")
    ).sub_topology("windows", "windows", topics=[makes.spec_of("made", specs())])
    found = run_task(tmp_path, Topology([makes, windows]), {"x": [1, 2, 3, 9, 4, 5, 20]}, [3])
    assert [one["offset"] for one in found["letters"]] == [2, 4]
    assert [one["offset"] for one in found["late"]] == [5, 5]
    assert found["late"][0]["topic"] == "x"
    sums = {row["window_start"]: row["sum"] for row in found["windows"]}
    assert sums == {0: 0, 2: 10 - 1, 8: 30 - 3}


def test_an_error_of_a_reader_names_it_and_the_record(tmp_path: Path) -> None:
    class Fails(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> None:
            if record["n"] == 4:
                raise ZeroDivisionError("four")

    topology = Topology([FORWARDS, SubTopology("fails", "even", Fails)])
    with pytest.raises(
        ProcessorException,
        match=r"Fails of sub-topology 'fails' failed .*at the record x, partition 0, offset 4\): ZeroDiv",
    ):
        run_task(tmp_path, topology, {"x": [1, 2, 3, 4, 5, 6]}, [1_000])


# What is refused.


def _sub(name: str, *sources: str, **more: Any) -> SubTopology:
    return SubTopology(name, sources, Pass, **more)


@pytest.mark.parametrize(
    ("processor", "sources", "output", "message"),
    [
        (Evens, ["x", "y"], Forwarded("made"), r"several sources.*Forwarded\('made', source='y'\)"),
        (Evens, ["x", "y"], Forwarded("made", source="z"), "its source 'z' is none of 'x', 'y'"),
        (Evens, "x", Forwarded("made", format="parquet"), "is read by tasks, so it cannot be in Parquet"),
    ],
)
def test_a_sub_topology_that_cannot_forward_is_refused(
    processor: Any, sources: Any, output: Output, message: str
) -> None:
    with pytest.raises(TopologyException, match=message):
        SubTopology("makes", sources, processor, outputs=output)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda made: TableJoin(left="x", right="y").sub_topology("j", made, topics=specs()), "what a TableJoin gives"),
        (
            lambda made: WindowedJoin(left="x", right="y", before_ms=1, after_ms=1).sub_topology("j", made),
            "what a WindowedJoin gives is not made of one record",
        ),
        (
            lambda made: Aggregation(source="x", aggregates={"n": Aggregate.count()}).sub_topology(
                "a", made, topics=specs()
            ),
            "what a Aggregation gives|what an? Aggregation gives",
        ),
        (
            lambda made: StreamTableJoin(stream="x", table="z").sub_topology(
                "j", Forwarded(made.name, source="z"), topics=specs()
            ),
            "its source 'z' is none of 'x'",
        ),
    ],
)
def test_ready_made_processors_that_cannot_forward_say_so(make: Any, message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        make(Forwarded("made"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([FORWARDS], "Nothing reads the forwarded output 'even', so its rows would be lost"),
        ([FORWARDS, _sub("a", "even", outputs="even")], "The output 'even' is there twice"),
        ([FORWARDS, _sub("a", "even", "y", tables=["even"])], "'a' reads 'even' as a table, but what is forwarded is a stream"),
        (
            [FORWARDS, StreamTableJoin(stream="y", table="even").sub_topology(
                "j", "out", topics=[specs()[1], TopicSpec("even", 1, SCHEMA, "k", "at")])],
            "'j' reads 'even' as a table",
        ),
        (
            [SubTopology("a", "b", Evens, outputs=Forwarded("c")), SubTopology("b", "c", Evens, outputs=Forwarded("b"))],
            "The sub-topologies 'a', 'b' read what they forward themselves",
        ),
        ([SubTopology("a", "a", Evens, outputs=Forwarded("a"))], "'a' read what they forward themselves"),
        ([_sub("a", "x", outputs="made"), _sub("b", "made")], r"Maybe declare it .*: Forwarded\('made', schema\)"),
        ([FORWARDS, _sub("a", "even", topology="other")], "one belongs to the topology None and the other to 'other'"),
    ],
)  # fmt: skip
def test_a_topology_that_cannot_be_is_refused(parts: Any, message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        Topology(parts)


def test_what_an_output_is_like_is_asked_of_its_sub_topology() -> None:
    topics = specs()
    with pytest.raises(TopologyException, match="has no output 'x' that is Forwarded or Repartitioned"):
        FORWARDS.spec_of("x", topics)
    with pytest.raises(TopologyException, match="the forwarded output 'made' is must be known before the run"):
        SubTopology("a", "x", Evens, outputs=Forwarded("made")).spec_of("made", topics)
    with pytest.raises(
        TopologyException, match="What the source 'x' is like must be given to know what the output 'even'"
    ):
        FORWARDS.spec_of("even", topics[1:])
    # Key and timestamp are those of the stream, in its types.
    part = SubTopology("a", "x", Evens, outputs=Forwarded("made", pa.schema([("n", pa.int32()), ("at", pa.int32())])))
    spec = part.spec_of("made", topics)
    assert (spec.key, spec.timestamp, spec.partitions) == (("k",), "at", 1)
    assert spec.schema == pa.schema([("k", pa.int64()), ("at", pa.int64()), ("n", pa.int32())])
    by_n = Repartitioned("by-n", None, key="n", partitions=3)
    join = StreamTableJoin(stream="x", table="z").sub_topology("j", by_n, topics=topics)
    assert (join.spec_of("by-n", topics).key, join.spec_of("by-n", topics).partitions) == (("n",), 3)


def test_a_column_of_the_table_under_the_name_of_the_streams_time_is_refused() -> None:
    part = StreamTableJoin(stream="x", table="z", stream_columns="n").sub_topology(
        "j", Forwarded("made"), topics=specs()
    )
    with pytest.raises(TopologyException, match="column 'at' of the forwarded output 'made' would be 'at of z'"):
        Topology([part, _sub("a", "made")]).specs({spec.name: spec for spec in specs()})
    without = StreamTableJoin(stream="x", table="z", stream_columns="n", table_columns="n")
    spec = without.sub_topology("j", Forwarded("made"), topics=specs()).spec_of("made", specs())
    assert spec.schema.names == ["k", "at", "n", "n_right"]


# Whole runs.


class Large(RecordProcessor):
    """Large orders only, with their price."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """A row, or none."""
        return [{"price": record["amount"] * 100, "shop": record["shop"]}] if record["amount"] > 2 else []


PRICED = pa.schema([("price", pa.int64()), ("shop", pa.int64())])


def topology_of(root: Path, name: str = "large") -> Topology:
    """Large orders with what was viewed last, summed up by item and by shop."""
    spec, views = (Topic.open(root / "topics", name).spec for name in ("orders", "views"))
    large = SubTopology("large", "orders", Large, outputs=Forwarded(name, PRICED))
    with_view = StreamTableJoin(stream=name, table="views", how="left", table_columns="at", suffix="_viewed")
    topics = [large.spec_of(name, [spec]), views]
    joined = with_view.sub_topology("viewed", Forwarded("viewed"), topics=topics)
    viewed = joined.spec_of("viewed", topics)
    by_item = Aggregation(
        source="viewed", aggregates={"price": Aggregate.sum("price"), "viewed": Aggregate.max("at_viewed")}
    )
    shops = Repartitioned("shops", PRICED, key="shop", partitions=2)
    by_shop = Aggregation(source="shops", aggregates={"price": Aggregate.sum("price")})
    return Topology(
        [
            by_item.sub_topology("by-item", "by-item", topics=[viewed]),
            joined,
            large,
            SubTopology("shops", "viewed", ToShops, outputs=shops),
            by_shop.sub_topology("by-shop", "by-shop", topics=[shops.spec]),
        ]
    )


class ToShops(Processor):
    """By another key."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """Two of its columns."""
        return batch["viewed"].select(["price", "shop"])


def test_a_chain_is_exact_in_processes_and_remembered(tmp_path: Path) -> None:
    rows = orders(tmp_path).to_pylist()
    result = application(tmp_path, topology_of(tmp_path)).run()
    large = [row for row in rows if row["amount"] > 2]
    by_item = {row["item"]: (row["price"], row["viewed"]) for row in result.table("by-item").to_pylist()}
    assert by_item == {
        item: (
            sum(row["amount"] * 100 for row in large if row["item"] == item),
            # Of equal times the table's row comes first.
            max(row["at"] for row in large if row["item"] == item),
        )
        for item in {row["item"] for row in large}
    }
    by_shop = {row["shop"]: row["price"] for row in result.table("by-shop").to_pylist()}
    assert by_shop == {shop: sum(row["amount"] * 100 for row in large if row["shop"] == shop) for shop in range(3)}
    assert not {"large", "viewed"} & {path.name for path in (tmp_path / "run" / "output").iterdir()}
    # The same program goes on, another one does not.
    assert application(tmp_path, topology_of(tmp_path)).run().rows_out == 0
    with pytest.raises(CommitLogException, match=r"forwarded, viewed: was \"large\", is \"other\""):
        application(tmp_path, topology_of(tmp_path, "other")).run()


def test_a_forwarded_output_is_no_result(tmp_path: Path) -> None:
    orders(tmp_path)
    result = application(tmp_path, topology_of(tmp_path)).run()
    with pytest.raises(Exception, match="viewed"):
        result.table("viewed")


class Never(RecordProcessor):
    """Gives nothing."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> None:
        """Nothing."""


def test_what_is_never_forwarded_moves_the_time_all_the_same(tmp_path: Path) -> None:
    """As rows that a derived stream leaves out do."""
    topology = Topology([SubTopology("n", "x", Never, outputs=Forwarded("none", OUT)), told(ToldToo, "none")])
    found = told_in_order(run_task(tmp_path, topology, {"x": [1, 8, 15, 40]}, [1]))["out-b"]
    assert found == ["time 1", "time 8", "time 15", "time 40"]
