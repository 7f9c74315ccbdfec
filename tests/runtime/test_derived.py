"""Derived streams and tables: rows are filtered and mapped within the task, and times stay those of the topic."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    BatchesCommitted,
    CommitLogException,
    DeadLetters,
    DerivedStream,
    DerivedTable,
    Output,
    ProcessorException,
    Repartitioned,
    StreamTableJoin,
    SubTopology,
    TimeWindows,
    Topic,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
    append_topic,
    write_topic,
)
from task_assignor.sdk import StreamsException
from tests.budget import examples
from tests.runtime.support import QUICK, application
from tests.runtime.test_side_by_side import (
    SCHEMA,
    Even,
    Pass,
    Shop,
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
SKIP: Any = {"late_records": "skip", "bad_records": "skip", "late_limit_ms": None}


def even(rows: pa.Table) -> pa.ChunkedArray:
    """Those with an even number."""
    return pc.equal(pc.bit_wise_and(rows.column("n"), 1), 0)


EVEN = DerivedStream("even", "x", filter=even)
ODD = DerivedStream("odd", "x", filter=pc.bit_wise_and(pc.field("n"), 1) == 1)
EVEN_Y = DerivedStream("even-y", "y", filter=even)


def run(
    folder: str, name: str, topology: Topology, sources: Sources, most: list[int]
) -> dict[str, list[dict[str, Any]]]:
    """What the outputs of its only task have."""
    return run_task(Path(folder) / name, topology, sources, most)


@given(st.fixed_dictionaries(dict.fromkeys("xy", times)), cuts)
@settings(max_examples=examples(15), deadline=None)
def test_a_filtered_stream_is_the_stream_without_some_rows(sources: Sources, most: list[int]) -> None:
    """In their order among all others, at the same times, whatever batches and restores are."""
    with tempfile.TemporaryDirectory() as folder:
        whole = told_in_order(run(folder, "whole", Topology(told(Told, "x", "y")), sources, [1_000]))["out-a"]
        kept = [
            f"even{what[1:]}" if what[0] == "x" else what for what in whole if what[0] != "x" or not int(what[1:]) % 2
        ]
        topology = Topology(told(Told, "even", "y"), derived=EVEN)
        assert told_in_order(run(folder, "derived", topology, sources, most)) == {"out-a": kept}


@given(st.fixed_dictionaries(dict.fromkeys("xy", times)), cuts, st.permutations(["even", "y", "odd"]))
@example({"x": [None, None], "y": [None]}, [1], ["even", "y", "odd"])
@settings(max_examples=examples(15), deadline=None)
def test_two_streams_of_one_topic_come_in_the_order_of_its_offsets(
    sources: Sources, most: list[int], names: list[str]
) -> None:
    """Beside another sub-topology that reads the whole of it."""
    with tempfile.TemporaryDirectory() as folder:
        order = [*dict.fromkeys("y" if name == "y" else "x" for name in names)]
        whole = told_in_order(run(folder, "whole", Topology(told(Told, *order)), sources, [1_000]))["out-a"]
        named = [f"{('even', 'odd')[int(what[1:]) % 2]}{what[1:]}" if what[0] == "x" else what for what in whole]
        topology = Topology([told(ToldToo, *order), told(Told, *names)], derived=[ODD, EVEN])
        assert told_in_order(run(folder, "derived", topology, sources, most))["out-a"] == named


@given(
    st.fixed_dictionaries(dict.fromkeys("xy", times)),
    cuts,
    st.sampled_from(
        [("even", "y", "inner"), ("even", "y", "left"), ("x", "even-y", "inner"), ("even", "even-y", "inner")]
    ),
    st.integers(0, 6),
)
@settings(max_examples=examples(20), deadline=None)
def test_a_join_of_filtered_streams_gives_the_pairs_of_what_is_kept(
    sources: Sources, most: list[int], case: tuple[str, str, str], grace: int
) -> None:
    """The same rows are late as in the join of the whole, and rows come alone at the same times."""
    left, right, how = case
    more: Any = {"before_ms": 5, "after_ms": 3, "how": how, "left_grace_ms": grace, "right_grace_ms": grace, **SKIP}
    with tempfile.TemporaryDirectory() as folder:
        plain = WindowedJoin(left="x", right="y", **more).sub_topology("join", "pairs")
        whole = run(folder, "whole", Topology(plain), sources, [1_000])["pairs"]
        wanted = [
            row
            for row in whole
            if not (left == "even" and row["n"] % 2) and not (right == "even-y" and row["n_right"] % 2)
        ]
        topology = Topology(
            WindowedJoin(left=left, right=right, **more).sub_topology("join", "pairs"),
            derived=[one for one in (EVEN, EVEN_Y) if one.name in (left, right)],
        )
        found = run(folder, "derived", topology, sources, most)["pairs"]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def numbered(rows: pa.Table) -> pa.Table:
    """Whether they are even, as a number."""
    return pa.table({"is_even": pc.cast(even(rows), pa.int64())})


@given(times, cuts, st.integers(0, 6))
@settings(max_examples=examples(20), deadline=None)
def test_windows_of_a_filtered_stream_are_closed_by_the_times_of_its_topic(
    found: list[int | None], most: list[int], grace: int
) -> None:
    """As many even rows as the sum of those that are, over the same windows."""
    mapped = DerivedStream("mapped", specs()[0], map_values=numbered)
    only = DerivedStream("only", mapped, filter=lambda rows: pc.equal(rows.column("is_even"), 1))
    assert [field.name for field in only.spec.schema] == ["k", "at", "is_even"]
    sums = WindowedAggregation(
        source="mapped", windows=TimeWindows(7), aggregates={"rows": Aggregate.sum("is_even")}, grace_ms=grace, **SKIP
    )
    counts = WindowedAggregation(
        source="only", windows=TimeWindows(7), aggregates={"rows": Aggregate.count()}, grace_ms=grace, **SKIP
    )
    parts = [
        sums.sub_topology("sums", "sums", topics=[mapped.spec]),
        counts.sub_topology("counts", "counts", topics=[only.spec]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        whole = run(folder, "whole", Topology(parts[0], derived=mapped), {"x": found}, [1_000])["sums"]
        both = run(folder, "derived", Topology(parts, derived=[mapped, only]), {"x": found}, most)
    assert sorted(both["sums"], key=repr) == sorted(whole, key=repr)
    assert sorted(both["counts"], key=repr) == sorted((row for row in whole if row["rows"]), key=repr)


@given(st.fixed_dictionaries(dict.fromkeys("xz", times)), cuts)
@settings(max_examples=examples(15), deadline=None)
def test_a_row_that_a_table_leaves_out_deletes_its_key(sources: Sources, most: list[int]) -> None:
    table = DerivedTable("table", specs()[2], filter=even)
    more: Any = {"stream": "x", "how": "left", "table_columns": "n"}
    with tempfile.TemporaryDirectory() as folder:
        plain = StreamTableJoin(table="z", **more).sub_topology("lookup", "found", topics=specs())
        whole = run(folder, "whole", Topology(plain), sources, [1_000])["found"]
        derived = StreamTableJoin(table="table", **more).sub_topology("lookup", "found", topics=[*specs(), table.spec])
        found = run(folder, "derived", Topology(derived, derived=table), sources, most)["found"]
    wanted = [row | {"n_right": None if (row["n_right"] or 0) % 2 else row["n_right"]} for row in whole]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_what_deletes_a_key_is_not_given_to_the_functions_of_a_table() -> None:
    schema = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("price", pa.int64()), ("name", pa.string())])
    prices = TopicSpec("prices", 1, schema, "k", "at")
    seen: list[int] = []

    def shown(rows: pa.Table) -> pa.Table:
        seen.extend(rows.column("k").to_pylist())
        return pa.table({"text": pc.cast(rows.column("price").fill_null(-1), pa.string())})

    table = DerivedTable("t", prices, filter=pc.is_null(pc.field("price")) | (pc.field("price") > 1), map_values=shown)
    rows = pa.table([[1, 2, 3, 4], [1, 2, 3, 4], [5, None, None, 1], ["a", None, "c", "d"]], schema=schema)
    places, made = table.rows_of(rows, table.specs_of(prices))
    assert places.tolist() == [0, 1, 2, 3]
    assert made.to_pylist() == [
        {"k": 1, "at": 1, "text": "5"},
        {"k": 2, "at": 2, "text": None},
        {"k": 3, "at": 3, "text": "-1"},
        {"k": 4, "at": 4, "text": None},
    ]
    assert (seen, made.schema) == ([1, 3], table.spec.schema)


# Bad rows.


def halved(rows: pa.Table) -> pa.Table:
    """Does not like the third."""
    numbers = rows.column("n").to_pylist()
    if 2 in numbers:
        raise ZeroDivisionError("two")
    return rows.set_column(2, "n", pa.array([number * 10 for number in numbers], pa.int64()))


HALVED = DerivedStream("halved", "x", filter=pc.field("n") > 0, map_values=halved)


def test_an_error_names_the_stream_and_the_record(tmp_path: Path) -> None:
    parts = Topology(told(Told, "halved", "y"), derived=HALVED)
    with pytest.raises(
        ProcessorException,
        match=r"^The derived stream 'halved' of sub-topology 'a' failed in task 0_0, batch 0 \(topic x, partition 0, offsets 0 to 3; "
        r"topic y, .*; at the record x, partition 0, offset 2\): ZeroDivisionError: two",
    ) as caught:
        run_task(tmp_path, parts, {"x": [1, 2, 3, 4], "y": [1]}, [1_000])
    assert "in halved" in caught.value.remote_traceback


@pytest.mark.parametrize("policy", ["skip", DeadLetters("letters")])
def test_bad_records_of_a_stream_are_left_out_as_those_of_a_processor(tmp_path: Path, policy: Any) -> None:
    topology = Topology(told(Told, "halved", bad_records=policy), derived=HALVED)
    found = run_task(tmp_path, topology, {"x": [1, 2, 3, 4]}, [2])
    assert [what for what in told_in_order({"": found["out-a"]})[""] if "time" not in what] == ["halved10", "halved30"]
    if policy != "skip":
        (letter,) = found["letters"]
        assert (letter["topic"], letter["offset"], letter["record"]) == ("x", 2, '{"k": 0, "at": 3, "n": 2}')
        assert "ZeroDivisionError: two" in letter["error"]
        assert "in halved" in letter["error"]


def test_a_value_that_its_column_cannot_hold_is_bad(tmp_path: Path) -> None:
    small = DerivedStream(
        "small",
        "x",
        map_values=lambda rows: pa.table({"n": pc.multiply(rows.column("n"), 100)}),
        schema=pa.schema([("n", pa.int8())]),
    )
    topology = Topology(told(Told, "small", bad_records="skip"), derived=small)
    found = told_in_order(run_task(tmp_path, topology, {"x": [1, 2, 3]}, [1_000]))["out-a"]
    assert [what for what in found if "time" not in what] == ["small0", "small100"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"filter": lambda rows: [True]},
            "filter of the derived stream 's' must give one for each row, but gave 1 for 2 rows",
        ),
        ({"filter": lambda rows: rows.column("n")}, "must give booleans, one for each row, but gave int64"),
        ({"filter": lambda rows: None}, "must give booleans, one for each row, but gave None"),
        ({"filter": lambda rows: pc.field("n") > 1}, "gave .*Expression .* Maybe give it as it is: filter=expression"),
        ({"map_values": lambda rows: rows.slice(0, 1), "schema": SCHEMA}, "map_values of .* gave 1 for 2 rows"),
        (
            {"map_values": lambda rows: rows.set_column(0, "k", pc.add(rows.column("k"), 1))},
            "has changed the column 'k', but keys and times stay as they are. Maybe use a repartition topic",
        ),
    ],
)
def test_what_does_not_go_row_by_row_ends_the_run(tmp_path: Path, more: Any, message: str) -> None:
    """Whatever is done with bad records: it is no fault of theirs."""
    topology = Topology(told(Told, "s", bad_records="skip"), derived=DerivedStream("s", "x", **more))
    with pytest.raises(ProcessorException, match=message):
        run_task(tmp_path, topology, {"x": [1, 2]}, [1_000])


def test_an_exit_names_the_stream_whose_function_has_called_it(tmp_path: Path) -> None:
    topology = Topology(told(Told, "s", bad_records="skip"), derived=DerivedStream("s", "x", filter=sys.exit))
    with pytest.raises(ProcessorException, match=r"^The derived stream 's' of sub-topology 'a' failed .*SystemExit"):
        run_task(tmp_path, topology, {"x": [1, 2]}, [1_000])


@pytest.mark.parametrize("bad", [[], [0], [77, 9_999], [*range(40, 60)]])
def test_few_bad_rows_among_many_are_found_with_few_calls(tmp_path: Path, bad: list[int]) -> None:
    calls = []

    def picky(rows: pa.Table) -> pa.ChunkedArray:
        calls.append(rows.num_rows)
        if not set(bad).isdisjoint(rows.column("n").to_pylist()):
            raise ZeroDivisionError
        return pc.greater_equal(rows.column("n"), 9_990)

    topology = Topology(
        _sub("a", "s", bad_records=DeadLetters("letters")),
        derived=DerivedStream("s", "x", filter=picky),
    )
    found = run_task(tmp_path, topology, {"x": [1] * 10_000}, [20_000])
    assert [letter["offset"] for letter in found["letters"]] == bad
    assert len(calls) <= 2 + 2 * 14 * len(bad)


def test_functions_are_not_given_tables_without_rows(tmp_path: Path) -> None:
    """Not all can do anything with them, and a schema says which columns there are."""

    def first(rows: pa.Table) -> int:
        return int(rows.column("n")[0].as_py())

    stream = DerivedStream(
        "s",
        DerivedStream("later", "x", filter=lambda rows: [first(rows) > 2] * len(rows)),
        map_values=lambda rows: pa.table({"n": [first(rows)] * len(rows)}),
        schema=pa.schema([("n", pa.int64())]),
    )
    topology = Topology(told(Told, "s", "y"), derived=stream)
    found = told_in_order(run_task(tmp_path, topology, {"x": [1, 2, 3, 4], "y": [1, 5]}, [1]))["out-a"]
    assert [what for what in found if what[0] == "s"] == ["s3"]


def test_what_several_read_is_made_once(tmp_path: Path) -> None:
    calls: list[pa.Table] = []
    first = DerivedStream("s", "x", filter=lambda rows: [calls.append(rows) is None] * len(rows))  # type: ignore[func-returns-value]
    later = DerivedStream("later", first, filter=even)
    run_task(
        tmp_path, Topology([told(Told, "s"), told(ToldToo, "later")], derived=[first, later]), {"x": [1, 2, 3]}, [2]
    )
    assert [len(rows) for rows in calls] == [2, 1]


def test_keys_and_times_may_come_back_in_other_types_of_the_same_values() -> None:
    """As polars gives them."""
    schema = pa.schema([("k", pa.string()), ("at", pa.timestamp("ms")), ("n", pa.int64())])
    other = pa.schema([("n", pa.int32()), ("k", pa.large_string()), ("at", pa.timestamp("us"))])
    spec = TopicSpec("x", 1, schema, "k", "at")
    rows = pa.table([["a", None], [1, None], [1, 2]], schema=schema)
    stream = DerivedStream("s", spec, map_values=lambda rows: rows.select(other.names).cast(other))
    _, made = stream.rows_of(rows, stream.specs_of(spec))
    assert (
        made.schema
        == stream.spec.schema
        == pa.schema([*[schema.field(name) for name in ("k", "at")], other.field("n")])
    )
    assert made.select(["k", "at"]).equals(rows.select(["k", "at"]))


def test_rows_do_not_change_when_a_function_uses_its_memory_again() -> None:
    memory = np.zeros(2, np.int64)

    def reused(rows: pa.Table) -> pa.Table:
        memory[: len(rows)] = rows.column("n").to_numpy()
        return pa.table({"n": memory[: len(rows)]})

    stream = DerivedStream("s", specs()[0], map_values=reused)
    _, made = stream.rows_of(pa.table([[0, 0], [1, 2], [3, 4]], schema=SCHEMA), stream.specs_of(specs()[0]))
    memory[:] = 0
    assert made.column("n").to_pylist() == [3, 4]


def test_the_columns_of_a_table_do_not_hang_on_what_is_left_out() -> None:
    schema = pa.schema([pa.field("k", pa.int64(), False), pa.field("n", pa.int64(), False)])
    spec = TopicSpec("x", 1, schema, "k")
    table = DerivedTable("t", spec, filter=pc.field("n") > 1)
    for numbers in ([1, 2], [2, 3]):
        _, made = table.rows_of(pa.table([[0, 0], numbers], schema=schema), table.specs_of(spec))
        assert made.schema == table.spec.schema


def test_streams_with_an_expression_can_be_compared() -> None:
    one, same, other = (DerivedStream("s", "x", filter=pc.field("n") > least) for least in (1, 1, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (("a b", "x"), {"filter": even}, "The derived stream name \\('a b'\\)"),
        (("s", 5), {"filter": even}, "'s' was given 5 as its source"),
        (("x", "x"), {"filter": even}, "'x' has the name of what it is made of"),
        (
            ("even", DerivedStream("more", EVEN, filter=even)),
            {"filter": even},
            "'even' has the name of what it is made of",
        ),
        (("s", "x"), {}, "'s' is its source as it is"),
        (("s", "x"), {"filter": 5}, "filter \\(5\\) must be a function"),
        (("s", "x"), {"map_values": pc.field("n")}, "map_values .* must be a function"),
        (("s", "x"), {"map_values": numbered, "schema": 5}, "the schema \\(5\\)"),
        (("s", "x"), {"filter": even, "schema": SCHEMA}, "'s' has the columns of its source"),
    ],
)
def test_a_derived_stream_that_cannot_be_is_refused(arguments: Any, more: Any, message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        DerivedStream(*arguments, **more)


def _sub(name: str, *sources: str, **more: Any) -> SubTopology:
    return SubTopology(name, sources, Pass, **more)


LOOKUP = StreamTableJoin(stream="y", table="even").sub_topology(
    "lookup", "out", topics=[specs()[1], TopicSpec("even", 1, SCHEMA, "k", "at")]
)


class WithTables(Pass):
    """Has something of its own under a name that ready-made ones use."""

    tables, takes_any_order = 5, True


def test_a_processor_may_have_attributes_of_any_name() -> None:
    other = SubTopology("other", ["y", "x"], WithTables)
    Topology(other)
    with pytest.raises(TopologyException, match="in different orders"):
        Topology([_sub("a", "x", "y"), other])


@pytest.mark.parametrize(
    ("parts", "derived", "message"),
    [
        ([_sub("a", "x")], EVEN, "Nothing reads the derived stream 'even'"),
        ([_sub("a", "even")], [EVEN, EVEN], "'even' has the name of another one"),
        ([_sub("a", "even", outputs=["even"])], EVEN, "'even' has the name of an output"),
        (
            [_sub("a", "y", "even")],
            [EVEN, DerivedStream("y", "even", filter=even)],
            "'even' has the name of a topic that is read. Maybe rename it, or give it itself, not its name",
        ),
        ([_sub("a", "even")], ["even"], "are DerivedStream or DerivedTable objects, but it was given 'even'"),
        ([LOOKUP], EVEN, "'lookup' reads the derived stream 'even' as a table, but an older value"),
        ([_sub("a", "even", "y"), _sub("b", "y", "x")], EVEN, r"name the topics \['x', 'y'\] .* in different orders"),
        (
            [_sub("a", "even", "x", tables=["x"])],
            EVEN,
            "'x' is a table for some of the sub-topologies a, and none for 'a'",
        ),
        (
            [_sub("a", "x", outputs=["made"]), _sub("b", "s")],
            DerivedStream("s", "made", filter=even),
            "reads 'made', which is an output",
        ),
    ],
)
def test_a_topology_that_cannot_be_is_refused(parts: Any, derived: Any, message: str) -> None:
    with pytest.raises(TopologyException, match=message):
        Topology(parts, derived=derived)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (DerivedStream("s", "orders", filter=pc.field("price") > 1), "filter of .* does not fit the columns"),
        (
            DerivedStream("s", "orders", map_values=lambda rows: rows.select(["price"])),
            "'s' has is not known: .* Maybe give schema=",
        ),
        (DerivedStream("s", "orders", map_values=lambda rows: rows.column("at")), "must be a pyarrow.Table"),
        (
            DerivedStream("s", "orders", map_values=lambda rows: pa.table([rows["at"]] * 2, ["a", "a"])),
            "map_values of the derived stream 's' has a column name twice",
        ),
        (
            DerivedStream("s", "orders", map_values=lambda rows: pa.table({"a": rows["at"].to_pylist()})),
            r"gives \['a'\] without a type. Maybe give schema=",
        ),
        (DerivedStream("s", "views2", filter=even), "'views2'"),
    ],
)
def test_what_does_not_fit_its_topic_is_refused_before_the_run(
    tmp_path: Path, stream: DerivedStream, message: str
) -> None:
    orders(tmp_path)
    with pytest.raises(StreamsException, match=message):
        application(tmp_path, Topology(_sub("a", "s"), derived=stream)).run()


def test_what_it_is_like_is_not_known_of_a_name() -> None:
    with pytest.raises(TopologyException, match=r"Maybe give it as source=topic.spec, not as the name 'x'"):
        EVEN.spec  # noqa: B018


# Whole runs.


def large(rows: pa.Table) -> pa.ChunkedArray:
    """The rows that count."""
    return pc.greater(rows.column("amount"), 2)


def priced(rows: pa.Table) -> pa.Table:
    """A column more."""
    return rows.append_column("price", pc.multiply(rows.column("amount"), 100))


def topology_of(root: Path, least: int = 2) -> Topology:
    """A join of filtered rows, and counts of them by another key."""
    spec = Topic.open(root / "topics", "orders").spec
    expensive = DerivedStream("expensive", spec, filter=pc.field("amount") > least, map_values=priced)
    views = DerivedStream("some-views", "views", filter=lambda rows: pc.not_equal(rows.column("shop"), 1))
    shops = Repartitioned(
        "by-shop", pa.schema([("shop", pa.int64()), ("amount", pa.int64())]), key="shop", partitions=2
    )
    ones = DerivedStream("ones", shops, filter=large)
    per_shop = Aggregation(source="ones", aggregates={"rows": Aggregate.count()})
    join = WindowedJoin(left="expensive", right="some-views", before_ms=150, after_ms=150)
    return Topology(
        [
            join.sub_topology("join", "pairs"),
            SubTopology("shop", "orders", Shop, outputs=[shops]),
            SubTopology("all", "expensive", Even, outputs=[Output("all", pa.schema([("amount", pa.int64())]))]),
            per_shop.sub_topology("per-shop", "per-shop", topics=[ones.spec]),
        ],
        derived=[expensive, views, ones],
    )


def test_a_join_and_counts_of_derived_streams_are_exact_in_processes(tmp_path: Path) -> None:
    rows = orders(tmp_path).to_pylist()
    result = application(tmp_path, topology_of(tmp_path)).run()
    assert {record_task.subtopology for record in result.commits.records() for record_task in record.tasks} == {0, 1}
    wanted = [
        (left["item"], left["at"], left["amount"] * 100, right["at"])
        for left in rows
        for right in rows
        if left["item"] == right["item"]
        and abs(left["at"] - right["at"]) <= 150
        and left["amount"] > 2
        and right["shop"] != 1
    ]
    pairs = result.table("pairs").to_pylist()
    assert sorted((row["item"], row["at"], row["price"], row["at_right"]) for row in pairs) == sorted(wanted)
    assert result.table("all").num_rows == sum(row["amount"] > 2 for row in rows)
    counts = {row["shop"]: row["rows"] for row in result.table("per-shop").to_pylist()}
    assert counts == {shop: sum(row["amount"] > 2 for row in rows if row["shop"] == shop) for shop in range(3)}
    # The same program goes on, another one does not.
    assert application(tmp_path, topology_of(tmp_path)).run().rows_out == 0
    with pytest.raises(
        CommitLogException, match=r"derived streams, expensive, steps: was .*amount > 2.* is .*amount > 3"
    ):
        application(tmp_path, topology_of(tmp_path, least=3)).run()


class Unpicklable:
    """A filter that cannot travel."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        """Not."""
        return large(rows)


def test_a_function_that_cannot_travel_is_named(tmp_path: Path) -> None:
    orders(tmp_path)
    with (tmp_path / "file").open("w") as file:
        stream = DerivedStream("open", "orders", filter=Unpicklable(file))
        with pytest.raises(StreamsException, match="The derived stream 'open' cannot be sent to another process"):
            application(tmp_path, Topology(_sub("a", "open"), derived=stream)).run()


def test_a_topic_that_gains_a_column_brings_it_to_what_is_derived(tmp_path: Path) -> None:
    mapping: Mapping[str, Any] = {"k": [1], "at": pa.array([1], pa.int64()), "n": [2]}
    spec = write_topic(tmp_path / "topics", "x", pa.table(mapping), partitions=1, key="k", timestamp="at").spec
    grown = TopicSpec("x", 1, spec.schema.append(pa.field("more", pa.string())), "k", "at")
    assert EVEN.spec_of(grown).schema.names == ["k", "at", "n", "more"]
    assert EVEN.spec_of(spec).name == "even"


def test_in_a_run_that_goes_on_rows_that_are_left_out_close_windows(tmp_path: Path) -> None:
    def add(at: int, number: int) -> None:
        append_topic(tmp_path / "topics", "x", pa.table([[0], [at], [number]], schema=SCHEMA))

    one = pa.table([[0], [1], [2]], schema=SCHEMA)
    write_topic(tmp_path / "topics", "x", one, partitions=1, key="k", timestamp="at")
    counts = WindowedAggregation(source="even", windows=TimeWindows(10), aggregates={"rows": Aggregate.count()})
    topics = [attrs.evolve(specs()[0], name="even")]
    topology = Topology(counts.sub_topology("counts", "counts", topics=topics), derived=EVEN)
    app = application(tmp_path, topology, options=attrs.evolve(QUICK, source_poll_interval_ms=20))
    batches: list[int] = []

    def on_event(event: Any) -> None:
        if isinstance(event, BatchesCommitted):
            batches.append(event.rows_out)
            if len(batches) == 1:
                add(25, 1)
            else:
                app.request_stop("the window is closed")

    result = app.run(on_event, until="stopped")
    assert batches == [0, 1]
    assert result.table("counts").to_pylist() == [{"k": 0, "window_start": 0, "window_end": 10, "rows": 1}]
