"""What somebody writes who has not read all of the documentation: it works, or the message says what to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    DerivedStream,
    Forwarded,
    ProcessorException,
    RecordProcessor,
    StreamTableJoin,
    SubTopology,
    TableChanges,
    TableJoin,
    TaskContext,
    TimeWindows,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
    write_topic,
)
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.rows import to_table
from task_assignor.sdk import ConfigException
from tests.runtime.support import application, count_topology

SPEC = TopicSpec("orders", 1, pa.schema([("key", pa.int64()), ("at", pa.int64())]), ("key",), "at")
NAME: Any = "large"
LARGE: Any = DerivedStream("large", "orders", filter=lambda rows: [True] * rows.num_rows)


class Each(RecordProcessor):
    """Passes records on."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        """The record."""
        return [record]


def test_one_topic_need_not_be_in_a_list() -> None:
    """It was a TypeError of Python's: a TopicSpec is not iterable."""
    count = Aggregation(source="orders", aggregates={"orders": Aggregate.count()})
    assert count.sub_topology("count", "counts", topics=SPEC) == count.sub_topology("count", "counts", topics=[SPEC])
    each = SubTopology("each", "orders", Each, outputs=Forwarded("all", SPEC.schema))
    assert each.spec_of("all", SPEC) == each.spec_of("all", [SPEC])


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: Topology(SubTopology("a", "large", Each), derived=NAME), r"Maybe derived=\[stream\]: the object itself"),
        (lambda: Topology([SubTopology("a", "large", Each), LARGE]), r"Maybe derived=\[\.\.\.\] for it"),
        (lambda: SubTopology("a", LARGE, Each), "Maybe its name, 'large'"),
        (
            lambda: Aggregation(source="large", aggregates={"n": Aggregate.count()}).sub_topology("n", "n", topics=[LARGE]),
            "of a derived stream its spec",
        ),
    ],
)  # fmt: skip
def test_where_a_derived_stream_is_named_and_where_it_is_given_is_said(make: Callable[[], object], advice: str) -> None:
    with pytest.raises(TopologyException, match=advice):
        make()


@pytest.mark.parametrize(("given", "meant"), [("available-now", "available_now"), ("stop", "stopped")])
def test_until_when_a_run_goes_is_understood_though_it_is_misspelt(tmp_path: Path, given: str, meant: str) -> None:
    rows = pa.table({"key": [1], "at": [1], "value": ["a"]})
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    with pytest.raises(ConfigException, match=f"Maybe '{meant}' is meant"):
        application(tmp_path, count_topology("left"), clients=1).run(until=given)  # type: ignore[arg-type]


def test_what_makes_a_processor_and_returns_nothing_is_told_so(tmp_path: Path) -> None:
    """It was said that None has no init."""
    rows = pa.table({"key": [1], "at": [1], "value": ["a"]})
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    topology = Topology(SubTopology("none", "left", lambda: None))  # type: ignore[arg-type, return-value]
    with pytest.raises(ProcessorException, match="the processor must give a Processor, but gave None"):
        application(tmp_path, topology, clients=1).run()


def test_tables_by_the_names_of_outputs_are_not_taken_for_a_row() -> None:
    """It was said that Arrow cannot convert the table, all of which was shown."""
    for given in (SPEC.schema.empty_table(), polars.DataFrame({"key": [1]})):
        with pytest.raises(
            TopologyException, match=r"tables by name \(\['orders'\]\): .* context\.forward\(table, output\)"
        ):
            to_table({"orders": given}, None)


def test_what_is_no_rows_is_told_what_rows_are() -> None:
    """Of a punctuator with `yield` it was said that only a table will do."""
    rows: Any = ({"key": number} for number in range(3))
    with pytest.raises(
        TopologyException, match=r"a pyarrow.Table, or, slower, a mapping .* list of such .*, not generator"
    ):
        to_table(rows, None)


@pytest.mark.parametrize("given", [5, [None], [b"a"]], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda columns: Aggregation(source="s", aggregates={"n": Aggregate.count()}, by=columns),
        lambda columns: StreamTableJoin(stream="s", table="t", stream_columns=columns),
        lambda columns: TableJoin(left="s", right="t", right_columns=columns),
        lambda columns: WindowedJoin(left="s", right="t", before_ms=1, after_ms=1, left_columns=columns),
    ],
)
def test_columns_of_ready_made_processors_are_names(make: Callable[[Any], object], given: object) -> None:
    with pytest.raises(TopologyException, match=r"The columns \(.*\) must be a list of names, or None: all of them"):
        make(given)


def test_what_joins_are_given_for_choices_and_suffixes_is_checked() -> None:
    """The text "no" counted as true, and None was the end of a column's name."""
    no: Any = "no"
    with pytest.raises(TopologyException, match=r"The table_first of a StreamTableJoin \('no'\) must be True or False"):
        StreamTableJoin(stream="s", table="t", table_first=no)
    nothing: Any = None
    with pytest.raises(TopologyException, match=r"The suffix \(None\) of the TableJoin must be a str\."):
        TableJoin(left="orders", right="others", suffix=nothing)


@pytest.mark.parametrize(
    "join",
    [
        WindowedJoin(left="orders", right="shops", before_ms=1, after_ms=1),
        StreamTableJoin(stream="orders", table="shops"),
        TableJoin(left="orders", right="shops"),
    ],
)
def test_topics_whose_keys_have_not_as_many_columns_are_told(join: WindowedJoin | StreamTableJoin | TableJoin) -> None:
    """It was a ValueError of zip()."""
    columns = pa.schema([("key", pa.int64()), ("shop", pa.int64()), ("at", pa.int64()), ("size", pa.int64())])
    shops = TopicSpec("shops", 1, columns, ("key", "shop"), "at")
    with pytest.raises(TopologyException, match=r"that of 'orders' is \['key'\] and that of 'shops' \['key', 'shop'\]"):
        join.sub_topology("join", "out", topics=[SPEC, shops])


COUNT = {"n": Aggregate.count()}
PARTS = TopicSpec("parts", 1, pa.schema([*SPEC.schema, ("part", pa.struct([("a", pa.int8())]))]), ("key",), "at")
TAKEN = TopicSpec("taken", 1, pa.schema([*SPEC.schema, ("__deleted", pa.bool_())]), ("key",), "at")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Aggregation(source="parts", by=("key", "part"), aggregates=COUNT).sub_topology("n", "n", PARTS),
            r"The aggregation of 'parts': The key column 'part' .* struct<a: int8>, which cannot be a key",
        ),
        (lambda: TableChanges(table="taken").sub_topology("n", "n", TAKEN), r"__deleted is reserved"),
        (
            lambda: WindowedAggregation(source="orders", windows=TimeWindows(1), aggregates=COUNT).sub_topology(
                "a/b", "n", SPEC
            ),
            "store name .'a/b-windows'. must",
        ),
        (
            lambda: WindowedJoin(left="a", right="b", before_ms=1, after_ms=1).sub_topology("a/b", "n"),
            "store name .'a/b-left'. must",
        ),
    ],
)
def test_what_stores_cannot_be_is_said_of_the_topology(make: Callable[[], object], told: str) -> None:
    """It was a StoreException, of a store that nobody had asked for."""
    with pytest.raises(TopologyException, match=told):
        make()
