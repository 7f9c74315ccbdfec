"""Frames of pandas and polars, and whatever else speaks Arrow, as rows of topics; and folders that cannot be used."""

from __future__ import annotations

import datetime as dt
import errno
import math
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from task_assignor.runtime import CommitLogException, Topic, TopicException, WindowStoreSpec, append_topic, write_topic
from task_assignor.runtime.arrow import frames
from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.arrow.frames import (
    _longest,
    _wide,
    cast_exactly,
    exact_array,
    in_own_memory,
    taken,
    to_frame,
    to_records,
    valid,
)
from task_assignor.runtime.processors.columns import as_type, from_frame, plain
from task_assignor.runtime.storage.content import as_one_file, as_parquet, not_in_parquet
from task_assignor.runtime.storage.disk import disk_errors, run_dir_errors
from tests.runtime.support import application, count_topology, stream

TABLE = pa.table({"k": ["a", "b", "c", "a"], "v": [1, 2, 3, 4]})
PANDAS, POLARS = TABLE.to_pandas(), pl.DataFrame({"k": ["a", "b", "c", "a"], "v": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    "rows",
    [
        PANDAS,
        PANDAS.set_index("k"),
        POLARS,
        POLARS.with_columns(pl.col("k").cast(pl.Categorical)),
        [PANDAS[:1], POLARS[1:3], TABLE[3:]],
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        (piece for piece in [TABLE[:2], TABLE[2:]]),
    ],
    ids=["pandas", "pandas with a named index", "polars", "categorical", "mixed", "batch", "reader", "generator"],
)
def test_frames_become_the_same_topic_as_tables(tmp_path: Path, rows: Any) -> None:
    written = write_topic(tmp_path, "t", rows, partitions=2, key=["k"])
    expected = write_topic(tmp_path, "expected", TABLE, partitions=2, key=["k"])
    assert written.end_offsets() == expected.end_offsets()
    for partition, end in enumerate(expected.end_offsets()):
        found, wanted = (topic.read(partition, 0, end) for topic in (written, expected))
        assert found.select(["k", "v"]).to_pylist() == wanted.to_pylist()
    assert not pa.types.is_string_view(written.spec.schema.field("k").type)


def test_the_index_of_a_filtered_frame_is_no_column(tmp_path: Path) -> None:
    assert write_topic(tmp_path, "t", PANDAS[PANDAS.v > 1], partitions=1, key=["k"]).spec.schema.names == ["k", "v"]


AT, ZONED = dt.datetime(2024, 10, 27, 0, 15, 1, 2000), dt.datetime(2024, 10, 27, 0, 15, 1, 2000, dt.UTC)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.0, pa.int8()),
        (np.float64(2), pa.int64()),
        (Decimal(3), pa.int64()),
        (1.1, pa.float32()),
        (math.inf, pa.float32()),
        (7, pa.timestamp("ms")),
        (AT, pa.timestamp("ms")),
        (ZONED, pa.timestamp("ms", "Europe/Berlin")),
        (pd.Timestamp(5, tz="UTC"), pa.timestamp("ns", "UTC")),
        (dt.datetime(2024, 1, 1), pa.date32()),
        (dt.time(1, 2, 3), pa.time32("s")),
        (dt.timedelta(seconds=1), pa.duration("s")),
        ((1.0, None), pa.list_(pa.int64())),
        ({"a": 1}, pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        ([("a", 1.0)], pa.map_(pa.string(), pa.int64())),
        ("text", pa.large_string()),
        (b"bytes", pa.string()),
    ],
)
def test_a_value_that_a_type_can_hold_is_taken(value: object, kind: pa.DataType) -> None:
    assert exact_array([None, value], kind).equals(pa.array([None, value], kind))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (np.float32(1.5), pa.int64()),
        (Decimal("1.5"), pa.int64()),
        (1e300, pa.float32()),
        ([ZONED], pa.list_(pa.timestamp("us"))),
        ([{"a": 1, "b": 2}], pa.list_(pa.struct([("a", pa.int64())]))),
        (["ab"], pa.list_(pa.list_(pa.string()))),
        (1.5, pa.timestamp("ms")),
        (AT, pa.timestamp("s")),
        (AT, pa.date32()),
        (AT, pa.timestamp("us", "UTC")),
        (ZONED, pa.timestamp("us")),
        (ZONED, pa.timestamp("s", "Europe/Berlin")),
        (pd.Timestamp(5), pa.timestamp("us")),
        (dt.time(1, 2, 3, 4), pa.time32("ms")),
        (dt.timedelta(microseconds=1), pa.duration("ms")),
        ([1.5], pa.list_(pa.int64())),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())])),
        ([("a", 1.5)], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_value_that_arrow_would_cut_is_refused(value: object, kind: pa.DataType) -> None:
    assert len(pa.array([None, value], kind)) == 2
    with pytest.raises(pa.ArrowInvalid, match="would become"):
        exact_array([None, value], kind)


def test_a_number_that_is_too_large_for_half_a_float_is_refused() -> None:
    """By Arrow itself in older versions, which take no int there; newer ones make it infinite."""
    with pytest.raises(pa.ArrowException, match=r"would become|Expected np.float16"):
        exact_array([None, 70_000], pa.float16())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.float64()),
        (dt.date(2020, 1, 1), pa.date32()),
        (dt.datetime(2020, 1, 1), pa.timestamp("us")),
        ([1, None], pa.list_(pa.int64())),
        ({"a": [1.5], "b": None}, pa.struct([("a", pa.list_(pa.float64())), ("b", pa.string())])),
        ([("a", {"b": 1})], pa.map_(pa.string(), pa.struct([("b", pa.int64())]))),
    ],
)
def test_values_whose_types_arrow_takes_whole_are_not_compared_one_by_one(
    value: object, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with lists and structs took many times as long to convert as Arrow needs."""
    monkeypatch.setattr("task_assignor.runtime.arrow.frames._is_same", None)
    assert exact_array([value, None], kind).to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (np.array([1.0, 2.0]), pa.list_(pa.int64()), [1, 2]),
        (np.array(3.0), pa.int64(), 3),
        (np.int64(3), pa.decimal128(5, 2), Decimal(3)),
        (np.array(["2024-01-01"], "M8[s]"), pa.list_(pa.timestamp("us")), [dt.datetime(2024, 1, 1)]),
        ({"a": np.datetime64("2024-01-01")}, pa.struct([("a", pa.date32())]), {"a": dt.date(2024, 1, 1)}),
        (np.datetime64("2024-01-01", "ns"), pa.date64(), dt.date(2024, 1, 1)),
        (np.datetime64("2024-01-01", "m"), pa.timestamp("ns"), pd.Timestamp(2024, 1, 1)),
        ([("a", np.timedelta64(2, "h"))], pa.map_(pa.string(), pa.duration("ms")), [("a", dt.timedelta(hours=2))]),
        (np.timedelta64(2, "s"), pa.duration("s"), dt.timedelta(seconds=2)),
        (np.datetime64("NaT"), pa.timestamp("s"), None),
        (pd.NaT, pa.timestamp("us", "UTC"), None),
        (pd.NA, pa.int64(), None),
        (True, pa.bool8(), True),
    ],
)
def test_what_numpy_and_pandas_give_is_taken_as_it_is_meant(value: object, kind: pa.DataType, expected: object) -> None:
    """Arrow refused some, and of an array of times in another unit it made other times."""
    assert exact_array([None, value], kind).to_pylist() == [None, expected]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.array([1.5]), pa.list_(pa.int64())),
        (np.array(1.5), pa.int64()),
        ({1.5}, pa.list_(pa.int64())),
        (np.bool_(1), pa.int64()),
        (np.array([True]), pa.list_(pa.int64())),
        (5, pa.bool8()),
        (np.complex64(1), pa.int64()),
        (np.void(b"abc"), pa.list_(pa.int64())),
        ("abc", pa.list_(pa.string())),
        (np.datetime64("2024-01-01T05"), pa.date32()),
        (np.datetime64("2024-01-01", "ns"), pa.int64()),
        (np.datetime64("2024-01-01", "us"), pa.timestamp("us", "UTC")),
        (np.datetime64("9999-01-01"), pa.timestamp("ns")),
        (np.timedelta64(5, "s"), pa.timestamp("s")),
        (np.timedelta64(5), pa.duration("s")),
    ],
)
def test_what_numpy_gives_is_refused_where_it_is_something_else(value: object, kind: pa.DataType) -> None:
    with pytest.raises((TypeError, ValueError)):
        exact_array([None, value], kind)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (POLARS.lazy(), "not a LazyFrame. Maybe call collect"),
        ({"k": [1]}, "not a dict. Maybe write pyarrow.table"),
        ([{"k": 1}], "item 0 is a dict"),
        ("rows.csv", "not a str"),
        (None, "not a NoneType"),
        (POLARS["k"], "item 0 is a str"),
        (pd.DataFrame({"k": [1, "a"]}), "cannot be made an Arrow table: ArrowInvalid"),
        (pd.concat([PANDAS, PANDAS], axis=1), "Duplicate column names"),
        ([], "no tables to write"),
    ],
)
def test_what_is_no_table_is_refused_with_what_to_do(tmp_path: Path, rows: Any, told: str) -> None:
    with pytest.raises(TopicException, match=told):
        write_topic(tmp_path, "t", rows, partitions=1, key=["k"])
    assert list(tmp_path.iterdir()) == []


def _write_topic(file: Path) -> None:
    write_topic(file, "t", TABLE, partitions=1, key=["k"])


def _open_topic(file: Path) -> None:
    Topic.open(file, "t")


def _run(file: Path) -> None:
    write_topic(file.parent / "topics", "left", stream(10, 2, 1), partitions=1, key=["key"])
    application(file.parent, count_topology(), run_dir=file).run()


@pytest.mark.parametrize(
    ("use", "error", "told"),
    [
        (_write_topic, TopicException, "Topic 't' cannot be written to .*file.* Maybe choose another root"),
        (_open_topic, TopicException, "The description of topic 't' cannot be read"),
        (_run, CommitLogException, "The run folder .*file cannot be used.* Maybe use another run_dir"),
    ],
)
def test_a_folder_that_is_a_file_is_named(
    tmp_path: Path, use: Callable[[Path], None], error: type[Exception], told: str
) -> None:
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(error, match=told):
        use(file)


def test_a_store_that_does_not_answer_is_no_reason_to_take_another_folder() -> None:
    with (
        pytest.raises(
            CommitLogException, match=r"s3://b/c cannot be used: .*refused\. Maybe the store is away, the env"
        ) as told,
        disk_errors(CommitLogException, "The run folder s3://b/c cannot be used", "Maybe use another run_dir."),
    ):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    assert "another run_dir" not in str(told.value)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "What was committed before stays; run the application again when the disk can be written."),
        (errno.ESTALE, "What was committed before stays; run the application again when the disk can be written."),
        (errno.EMFILE, "Maybe allow for more memory and mappings (ulimit -v, vm.max_map_count) or more open files (ulimit -n)."),
        (errno.EACCES, "Maybe let this user read and write it, or use another run_dir."),
        (errno.ENOTDIR, "Maybe use another run_dir."),
    ],
)  # fmt: skip
def test_a_run_folder_is_not_left_because_its_disk_is_full(number: int, advice: str) -> None:
    """Another one was the advice whatever the disk said: there everything is computed anew."""
    with pytest.raises(CommitLogException) as told, run_dir_errors("The commit log cannot be opened"):
        raise OSError(number, os.strerror(number), "run/commits")
    assert (
        str(told.value)
        == f"The commit log cannot be opened: [Errno {number}] {os.strerror(number)}: 'run/commits'. {advice}"
    )


def test_polars_gets_times_whose_zone_is_an_offset_within_lists_and_structs_too() -> None:
    zone = pa.timestamp("us", "+05:30")
    table = pa.table(
        {
            "many": pa.array([[1]], pa.list_(zone)),
            "one": pa.array([{"at": [2]}], pa.struct([("at", pa.large_list(zone))])),
        }
    )
    found = to_frame(table).to_arrow()
    assert found.cast(table.schema).equals(table)


def test_rows_are_taken_of_tables_that_are_too_large_for_arrow() -> None:
    one = {"s": ["a" * 50, None], "b": [b"", b"b"], "l": [["x"], None], "t": [{"u": ["y"]}, None], "d": [1, None]}
    schema = pa.schema({"s": pa.string(), "b": pa.binary(), "l": pa.list_(pa.string()), "t": pa.struct({"u": pa.list_(pa.string())}),
                        "d": pa.dictionary(pa.int8(), pa.int64())})  # fmt: skip
    table = pa.concat_tables([pa.table(one, schema=schema)] * 5)
    rows = pa.array([9, 0, 0, None, 4, 7, 2])
    assert taken(table, rows, 8).equals(table.take(rows))
    assert taken(table, rows[:0], 8).equals(table[:0])


@pytest.mark.slow
@pytest.mark.parametrize("value", ["a" * 2**24, {"u": "a" * 2**24}], ids=["text", "struct"])
def test_a_row_is_taken_so_often_that_arrow_has_no_room_for_its_texts(value: object) -> None:
    """Pairs of a join: "Take operation overflowed binary array capacity", or with older versions of Arrow wrong rows."""
    found = taken(pa.table({"s": [value]}), pa.array(np.zeros(129, dtype=np.int64)))
    column = found.column("s") if isinstance(value, str) else found.flatten().column("s.u")
    assert pc.binary_length(column).unique().to_pylist() == [2**24]
    assert column.null_count == 0
    assert len(column) == 129


@pytest.mark.parametrize("column", [[[1, 2]], ["xyz"], [{"a": [True]}]], ids=["list", "text", "bits in a struct"])
def test_what_may_have_wrapped_around_is_taken_again(monkeypatch: pytest.MonkeyPatch, column: list[object]) -> None:
    """Arrow counts the values of lists in 32 bits."""
    table, rows = pa.table({"l": column, "n": [1]}), pa.array([0, 0, 0])
    asked: list[pa.DataType] = []

    def recorded(kind: pa.DataType) -> pa.DataType:
        asked.append(kind)
        return _wide(kind)

    monkeypatch.setattr(frames, "_wide", recorded)
    for longest in (0, table.nbytes):
        assert not asked
        monkeypatch.setattr(frames, "_longest", lambda column, longest=longest: longest)
        assert taken(table, rows, 2 * table.nbytes).to_pydict() == {"l": column * 3, "n": [1] * 3}
    assert asked


@pytest.mark.parametrize("column", [[[1, 2]], ["xyz"], [{"a": [True]}]], ids=["list", "text", "bits in a struct"])
def test_texts_and_lists_are_what_may_wrap_around(column: list[object]) -> None:
    table = pa.table({"l": column, "n": [1]})
    assert [_longest(column) > 0 for column in table.columns] == [True, False]


@pytest.mark.parametrize(
    ("value", "kind", "other"),
    [
        ({"a": "x", "b": 5}, {"a": pa.string(), "b": pa.int64()}, {"a": pa.string()}),
        ({"a": "x", "b": AT}, {"a": pa.string(), "b": pa.timestamp("us")}, {"a": pa.string(), "b": pa.date32()}),
        ({"a": [("x", 1e300)]}, {"a": pa.map_("string", "double")}, {"a": pa.map_("string", "float")}),
        ({"a": [1e300]}, {"a": pa.list_(pa.float64(), 1)}, {"a": pa.list_(pa.float32(), 1)}),
    ],
    ids=["field", "time", "map", "list"],
)
def test_what_is_beside_a_text_is_not_cut(value: dict[str, Any], kind: Any, other: Any) -> None:
    """A field was left out, and a time became a day, without a word; floats in maps and lists of one length became infinite."""
    pieces = [pa.array([each, None], pa.struct(kind)) for each in (None, value)]
    with pytest.raises(pa.ArrowException):
        cast_exactly(pa.chunked_array(pieces), pa.struct(other))


def test_times_of_day_in_lists_of_one_length_and_maps_are_not_cut() -> None:
    times = pa.array([1_000_001], pa.int64()).cast(pa.time64("ns"))
    for array in (pa.FixedSizeListArray.from_arrays(times, 1), pa.MapArray.from_arrays([0, 1], pa.array(["k"]), times)):
        with pytest.raises(ValueError, match="'at' has a time of day with nanoseconds"):
            to_records(pa.table({"at": array}))


def test_views_become_what_every_reader_knows(tmp_path: Path) -> None:
    """As other libraries give them in Arrow tables: Arrow itself cannot sort them into partitions."""
    views = {
        "s": pa.array(["a", None], pa.string_view()),
        "l": pa.array([["a"], []], pa.list_(pa.string_view())),
        "t": pa.array([{"b": b"b"}, None], pa.struct([("b", pa.binary_view())])),
    }
    rows = pa.table({"k": [1, 1], **views})
    assert write_topic(tmp_path, "t", rows, partitions=1, key=["k"]).read(0, 0, 2).to_pylist() == rows.to_pylist()


_NO_TEXT = pa.array([b"a", b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (_NO_TEXT, "no string: .*Invalid UTF8 sequence at string index 1"),
        (pa.ListArray.from_arrays([0, 2], _NO_TEXT), "no list<item: string>: .*Invalid UTF8"),
        (_NO_TEXT.dictionary_encode(), "no dictionary<values=string.*Invalid UTF8"),
        (pa.DictionaryArray.from_arrays(pa.array([7]), ["a"], safe=False), "no dictionary<.*out of bounds: 7"),
    ],
)
def test_what_nobody_could_read_later_is_refused(column: pa.Array, told: str) -> None:
    """It was committed: then `to_pylist` raised, and what lies beyond a dictionary is memory of others."""
    with pytest.raises(ValueError, match=f"the column 'v' holds what is {told}") as caught:
        in_own_memory(pa.table({"v": column}))
    assert "Maybe it was made of memory that nobody has checked" in str(caught.value)


class Marked(pa.ExtensionType):  # type: ignore[misc]  # Arrow has no types
    """What users declare has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "test.marked")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Marked:
        return cls()


def test_types_that_users_declare_are_taken(tmp_path: Path) -> None:
    """`unhashable type` was all that was said."""
    column = pa.ExtensionArray.from_storage(Marked(), pa.array([3, 4]))
    rows = pa.table({"k": [1, 1], "m": column})
    assert write_topic(tmp_path, "t", rows, partitions=1, key=["k"]).read(0, 0, 2)["m"].to_pylist() == [3, 4]


def test_a_dictionary_has_room_for_what_other_rows_bring(tmp_path: Path) -> None:
    """Pandas counts its categories in one byte where they are few; those of rows that come later are others."""

    def frame(start: int) -> pd.DataFrame:
        names = [f"n{number}" for number in range(start, start + 100)]
        return pd.DataFrame({"k": range(100), "v": pd.Categorical(names)})

    write_topic(tmp_path, "t", frame(0), partitions=1, key=["k"])
    topic = append_topic(tmp_path, "t", frame(100))
    rows = topic.read(0, 0, 200)
    assert in_own_memory(rows).column("v").to_pylist() == [f"n{number}" for number in range(200)]
    # Within lists and structs, too, and of tables that nobody has looked at before.
    few = pa.dictionary(pa.uint8(), pa.string())
    kind = pa.struct([("names", pa.list_(few))])
    pieces = [
        pa.table({"v": pa.array([{"names": [f"n{start + number}"]} for number in range(200)]).cast(kind)})
        for start in (0, 200)
    ]
    found = in_own_memory(pa.concat_tables(pieces))
    assert found.column("v").to_pylist() == [{"names": [f"n{number}"]} for number in range(400)]


def test_tensors_are_columns_like_others(tmp_path: Path) -> None:
    """Arrow makes none of Python's values, not even one without rows, and its error came out."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(3, 2, 2))
    rows = pa.table({"k": [1, 1, 1], "v": tensors})
    assert write_topic(tmp_path, "t", rows, partitions=1, key=["k"]).read(0, 0, 3).equals(rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pl.DataFrame({"k": [1], "o": [object()]}), "has columns of Python objects, which polars gives"),
        (
            pa.table({"k": [1], "r": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array(["x"]))}),
            "The column 'r' of topic t has type run_end_encoded.* of which Arrow cannot take single rows",
        ),
        (
            pa.table({"k": [1], "u": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}),
            "The column 'u' of topic t has type sparse_union.* of which Arrow cannot take single rows",
        ),
        (
            # The topic was written, and could not be read.
            pa.table(
                {"k": [1], "d": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array(["x"]).dictionary_encode())}
            ),
            "Topic t cannot have the column 'd' of type dictionary<values=dictionary.* Arrow does not read from files",
        ),
        (
            # The topic was there, but nobody could open it.
            pa.table({"k": [1], "u": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([b"u" * 16], pa.uuid()))}),
            "Topic t cannot have the column 'u' of type dictionary<values=extension.* Arrow does not read from files",
        ),
    ],
)
def test_types_that_cannot_be_kept_are_refused(tmp_path: Path, rows: Any, said: str) -> None:
    with pytest.raises(TopicException, match=said):
        write_topic(tmp_path, "t", rows, partitions=1, key=["k"])
    assert not any(tmp_path.iterdir())


def _dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), values)


@pytest.mark.parametrize(
    "pieces",
    [
        [_dictionary(pa.array([text, None])) for text in ("a", "b", "c")],
        [_dictionary(pa.array([n, n + 0.5], pa.float32()).cast(pa.float16())) for n in (1, 2, 3)],
        [_dictionary(pa.array([{"n": n}, None])) for n in (1, 2, 3)],
        [_dictionary(pa.array([[n], [n, None]])) for n in (1, 2, 3)],
        [_dictionary(pa.array([[(f"n{n}", n)], []], pa.map_(pa.string(), pa.int64()))) for n in (1, 2, 3)],
    ],
    ids=["null among the values", "half floats", "structs", "lists", "maps"],
)
def test_dictionaries_of_which_arrow_makes_no_one_are_written_read_and_merged(
    tmp_path: Path, pieces: list[pa.Array]
) -> None:
    """With null, structs or lists among their values a run ended; half floats were other numbers then, and files of outputs with any never
    became one.
    """
    tables = [pa.table({"k": [1, 2], "x": piece}) for piece in pieces]
    expected = pa.concat_tables(tables).column("x").to_pylist()
    topic = write_topic(tmp_path, "t", tables[0], partitions=1, key=["k"])
    for table in tables[1:]:
        topic = append_topic(tmp_path, "t", table)
    whole = pa.concat_tables(tables)
    merged, seal = as_one_file(iter(tables), whole.schema, is_parquet=False)
    read = topic.read(0, 0, 6)
    found = [
        in_own_memory(whole),
        in_own_memory(read),
        read.take(pa.array(range(6))),
        pa.ipc.open_file(merged).read_all(),
    ]
    assert [table.column("x").to_pylist() for table in found] == [expected] * 4
    assert seal.rows == 6
    # As joins have it.
    values = plain(read.schema.field("x"))
    joined = from_frame(to_frame(read), pa.schema([values])).column("x")
    assert joined.to_pylist() == as_type(read.column("x"), values.type).to_pylist() == expected
    is_there = valid(read.column("x"))
    assert (is_there is None) == (None not in expected)
    assert is_there is None or is_there.tolist() == [value is not None for value in expected]


def test_tensors_of_numpy_are_read_where_there_are_none(tmp_path: Path) -> None:
    """A run ended at the first batch in which one of its sources had no rows: Arrow makes no such column of no values."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2, 3)))
    rows = pa.table({"k": [1, 2], "t": [1, 2], "x": tensors})
    topic = write_topic(tmp_path, "t", rows, partitions=1, key=["k"])
    assert topic.read(0, 1, 1).equals(rows.slice(0, 0))
    assert topic.read(0, 0, 2).equals(rows)
    store = WindowStoreSpec("w", "t").create()
    store.append(rows)
    store.expire(9)
    assert store.rows is not None
    assert store.rows.equals(rows.slice(0, 0))
    assert not_in_parquet(rows.schema) is None


def test_a_dictionary_of_nothing_but_null_is_written_as_parquet() -> None:
    """The early check let it pass, and Parquet takes no null among the values of a dictionary."""
    nothing = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int32()), pa.nulls(1))
    rows = pa.table({"d": pa.chunked_array([nothing, nothing])})
    assert not_in_parquet(rows.schema) is None
    data, _ = as_parquet(in_one_piece(rows))
    assert pq.read_table(pa.BufferReader(data)).cast(rows.schema).column("d").null_count == 4


_TEXTS = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int8()), ["x", None])
_STARTS = pa.array([0, 2, 4], pa.int32())


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(_STARTS, _TEXTS),
        pa.FixedSizeListArray.from_arrays(_TEXTS, 2),
        pa.StructArray.from_arrays([_TEXTS], ["a"]),
        pa.MapArray.from_arrays(_STARTS, ["a", "b", "c", "d"], _TEXTS),
        pa.ListArray.from_arrays(_STARTS, pa.StructArray.from_arrays([_TEXTS], ["a"])),
    ],
    ids=lambda column: str(column.type)[:12],
)
def test_null_among_the_values_of_a_dictionary_in_a_list_or_struct_is_written_and_merged(column: pa.Array) -> None:
    """Parquet does not take it, and Arrow makes no one dictionary of several with it."""
    rows = pa.table({"c": column})
    assert not_in_parquet(rows.schema) is None
    data, _ = as_parquet(in_one_piece(rows))
    assert pq.read_table(pa.BufferReader(data)).cast(rows.schema).to_pylist() == rows.to_pylist()
    for is_parquet in (True, False):
        merged, _ = as_one_file([in_one_piece(rows)] * 2, rows.schema, is_parquet=is_parquet)
        read = pq.read_table(pa.BufferReader(merged)) if is_parquet else pa.ipc.open_file(merged).read_all()
        assert read.cast(rows.schema).to_pylist() == 2 * rows.to_pylist()


@pytest.mark.parametrize("value", [pa.int64(), pa.float64(), pa.bool_(), pa.binary(3)], ids=str)
def test_dictionaries_in_lists_that_parquet_does_not_give_back_are_told(value: pa.DataType) -> None:
    """Else only who reads the first rows would find out."""
    kind = pa.list_(pa.dictionary(pa.int8(), value))
    told = not_in_parquet(pa.schema({"c": pa.list_(pa.struct({"a": kind}))}))
    assert told is not None
    assert "'c' of type list<item: struct<a: list<item: dictionary<" in told
