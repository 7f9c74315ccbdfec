"""Records that cannot be processed: the run stops and names them, or they are left out, counted and kept aside."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    Aggregate,
    BadRecordException,
    CommitLogException,
    DeadLetters,
    DerivedStream,
    Forwarded,
    LateRecordException,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    RuntimeOptions,
    SubTopology,
    TaskContext,
    TimeWindows,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedAggregation,
    append_topic,
    read_output,
    write_topic,
)
from task_assignor.runtime.tasks.task_input import TaskInput
from task_assignor.runtime.tasks.task_processors import TaskProcessors
from task_assignor.runtime.topics.fetched import Unreadable
from task_assignor.runtime.topology.bad_records import DEAD_LETTER_SCHEMA, LeftOut, as_json, letters_of
from task_assignor.sdk import TaskId
from tests.runtime.support import application
from tests.runtime.thread_clients import ThreadLauncher

ROWS = pa.table({"key": [1, 1, 1, 1, 1, 1], "at": [10, 20, 30, 40, 50, 60], "price": [5, 0, 2, None, 4, 0]})
SHARES = pa.schema([("share", pa.int8())])


class Shares(RecordProcessor):
    """Divides by what may be zero or missing; counts and forwards before it does."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """A row, or an error."""
        context.count("begun")
        context.forward(pa.table({"at": [record["at"]]}), "begun")
        yield {"share": 100 // record["price"]}

    def output_schema(self) -> pa.Schema:
        """One small number."""
        return SHARES


class OneOutput(Shares):
    """The same with one output."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """A row; with a price of 0 one that does not fit."""
        return [{"share": 100 // record["price"] if record["price"] else 1_000}]


class Checks(Processor):
    """A processor for batches that looks itself for what is bad."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
        """Rows without a price are bad, those with 0 are late."""
        rows = batch["orders"]
        prices = rows.column("price").to_pylist()
        context.leave_out("orders", [row for row, price in enumerate(prices) if price is None], "has no price")
        zeros = [row for row, price in enumerate(prices) if price == 0]
        context.leave_out("orders", zeros, [f"is late by {row}" for row in zeros], is_late=True)


def _sub(processor: type[Processor], outputs: Iterable[Output | str] = (), **policies: LeftOut) -> SubTopology:
    return SubTopology("shares", "orders", processor, outputs=tuple(outputs), **policies)  # type: ignore[arg-type]


def _run(root: Path, sub: SubTopology, rows: int) -> Any:
    write_topic(root / "topics", "orders", ROWS, partitions=1, key=["key"], timestamp="at")
    return application(root, Topology(sub), clients=1, options=RuntimeOptions(max_batch_rows=rows)).run()


def test_the_error_names_the_record_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(ProcessorException) as caught:
        _run(tmp_path, _sub(Shares, [Output("shares"), Output("begun")]), 4)
    text = str(caught.value)
    assert "failed in task 0_0, batch 0" in text
    assert "at the record orders, partition 0, offset 1): ZeroDivisionError" in text
    assert 'yield {"share": 100 // record["price"]}' in text


@pytest.mark.parametrize(
    ("processor", "bad", "kind", "offset"),
    [
        (Shares, "stop", BadRecordException, 1),
        (Checks, "stop", BadRecordException, 3),
        (Checks, "skip", LateRecordException, 1),
    ],
)
def test_a_run_that_a_record_stops_says_so_to_programs(
    tmp_path: Path, processor: type[Processor], bad: LeftOut, kind: type[BadRecordException], offset: int
) -> None:
    """It was a ProcessorException like any other, which had the record in its text alone."""
    outputs = [Output("shares"), Output("begun")] if processor is Shares else []
    with pytest.raises(ProcessorException) as caught:
        _run(tmp_path, _sub(processor, outputs, bad_records=bad), 100)
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, BadRecordException)
    assert (error.topic, error.partition, error.offset, error.task) == ("orders", 0, offset, "0_0")
    assert error.line is not None
    assert error.line.function.startswith(processor.__name__)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


class NoMemory(Shares):
    """Has no memory."""

    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Iterable[Mapping[str, Any]]:
        """Never gives a row."""
        raise MemoryError


def test_what_is_no_fault_of_a_record_is_not_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ProcessorException, match=r"offset 0\): MemoryError") as caught:
        _run(tmp_path, _sub(NoMemory, [Output("shares"), Output("begun")]), 4)
    assert type(caught.value) is ProcessorException


@pytest.mark.parametrize("batch_rows", [1, 4, 100])
def test_bad_records_are_kept_aside_and_nothing_else_is_lost(tmp_path: Path, batch_rows: int) -> None:
    outputs = [Output("shares", SHARES), Output("begun")]

    class Named(Shares):
        def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> None:
            rows = super().process_batch(batch, context)
            if rows is not None:
                context.forward(rows, "shares")

    result = _run(tmp_path, _sub(Named, outputs, bad_records=DeadLetters("bad")), batch_rows)
    assert result.table("shares").column("share").to_pylist() == [20, 50, 25]
    assert result.table("begun").column("at").to_pylist() == [10, 30, 50], "what a bad record forwarded is forgotten"
    letters = result.table("bad")
    assert letters.schema.equals(DEAD_LETTER_SCHEMA)
    assert letters.column("offset").to_pylist() == [1, 3, 5]
    first, second, _ = letters.to_pylist()
    assert (first["topic"], first["partition"], first["reason"]) == ("orders", 0, "bad")
    assert first["error"].startswith("cannot be processed: ZeroDivisionError")
    assert "Shares.process" in first["error"]
    assert "TypeError" in second["error"]
    assert json.loads(second["record"]) == {"key": 1, "at": 40, "price": None}
    counters: dict[str, int] = {}
    for record in result.commits.records():
        for task in record.tasks.values():
            for name, number in task.counters.items():
                counters[name] = counters.get(name, 0) + number
    assert counters == {"begun": 3, "bad_records": 3}


def _context(policy: LeftOut, processor: type[Processor]) -> TaskContext:
    context = TaskContext(
        "app", TaskId(0, 0), {"orders": TopicSpec("orders", 1, ROWS.schema, "key", "at")}, ("out",), {}, policy, policy
    )
    context.begin(0, {"orders": (100, 106)}, {"orders": ROWS})
    return context


@pytest.mark.parametrize("error", [ImportError, MemoryError])
def test_what_is_no_fault_of_a_record_leaves_none_out(error: type[Exception]) -> None:
    """A module that is missing where a client runs would make all records bad ones."""

    class Fails(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> None:
            raise error

    context = _context("skip", Fails)
    with pytest.raises(error):
        Fails().process_batch({"orders": ROWS}, context)


def test_a_row_that_does_not_fit_its_schema_is_found(caplog: pytest.LogCaptureFixture) -> None:
    """Of all rows together Arrow only says that one does not fit."""
    context = _context("skip", OneOutput)
    rows = OneOutput().process_batch({"orders": ROWS.slice(0, 3)}, context)
    assert rows is not None
    assert (rows.column("share").to_pylist(), context.finish()[1]) == ([20, 50], {"bad_records": 1})
    assert "Task 0_0 leaves 1 record out, the first of which is orders, partition 0, offset 101, which" in caplog.text
    context = _context("stop", OneOutput)
    with pytest.raises(ValueError, match=r"^the column 'share' of a row is not of type int8: .*1000 too large"):
        OneOutput().process_batch({"orders": ROWS.slice(0, 3)}, context)
    assert context.record == ("orders", 101)


def test_a_batch_of_which_no_row_fits_its_schema_is_left_out() -> None:
    context = _context("skip", OneOutput)
    rows = OneOutput().process_batch({"orders": ROWS.slice(1, 1)}, context)
    assert rows is not None
    assert (rows.num_rows, rows.schema, context.finish()[1]) == (0, SHARES, {"bad_records": 1})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"share": 1.5}, "the column 'share' of a row is not of type int8: ArrowInvalid: 1.5 would become 1"),
        ({"shares": 1}, r"a row has columns \['shares'\] that are not declared; declared are \['share'\]"),
    ],
)
def test_what_the_schema_of_the_rows_would_lose_is_an_error_of_the_record(row: dict[str, Any], told: str) -> None:
    """It came as 1, and as null."""

    class Loses(Shares):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            return [row if record["price"] == 0 else {"share": 7.0}]

    context = _context("stop", Loses)
    with pytest.raises(ValueError, match=told):
        Loses().process_batch({"orders": ROWS.slice(0, 3)}, context)
    assert context.record == ("orders", 101)


@pytest.mark.parametrize(
    "given",
    [{"share": 1}, ["share"], [None], "share", 5, False],
    ids=["no list", "names", "None", "text", "number", "false"],
)
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_what_process_gives_instead_of_rows_is_told(policy: LeftOut, given: Any) -> None:
    """It is no fault of the record; Arrow said of the first key that it is no mapping, and what is false was taken for no rows."""

    class Gives(Shares):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> Any:
            return given if record["price"] == 0 else []

    context = _context(policy, Gives)
    with pytest.raises(
        TopologyException, match=r"What process\(\) of .*Gives gives must be rows, .* Maybe a list around a row"
    ):
        Gives().process_batch({"orders": ROWS}, context)
    assert context.record == ("orders", 101)


def test_what_a_record_brings_into_the_log_is_no_command_for_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    class Names(Shares):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            raise ValueError("no such name: \x1b[31m\x07\nor it is new")

    context = _context("skip", Names)
    Names().process_batch({"orders": ROWS.slice(0, 1)}, context)
    assert "no such name: \\x1b[31m\\x07\n    or it is new" in caplog.text
    assert "\x1b" not in caplog.text


def test_an_error_that_tells_of_half_a_surrogate_pair_is_kept_aside() -> None:
    """Arrow took no such text, so the run ended at a record that was to be left out."""

    class Names(Shares):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            raise ValueError("no such name: \ud83d")

    context = _context(DeadLetters("bad"), Names)
    Names().process_batch({"orders": ROWS.slice(0, 1)}, context)
    context.leave_out("orders", [1], "is named \udc00")
    letters = [row["error"] for table in context.finish()[0]["bad"] for row in table.to_pylist()]
    assert letters[0].startswith(r"cannot be processed: ValueError: no such name: \ud83d (File")
    assert letters[1] == r"is named \udc00"


@pytest.mark.parametrize(
    ("topic", "rows", "errors", "told"),
    [
        ("prices", [0], "is bad", "The sub-topology of the processor reads no topic 'prices'; it reads orders"),
        (
            "orders",
            [False, True],
            "is bad",
            r"must be places in the batch, as numpy.flatnonzero\(mask\) gives, but one is of type bool",
        ),
        ("orders", pa.array([False, True]), "is bad", "must be places in the batch"),
        ("orders", ROWS.slice(0, 1), "is bad", "must be places in the batch, .* not "),
        ("orders", [1.5], "is bad", "must be places in the batch, .* type float"),
        ("orders", pa.array([1, None]), "is bad", "must be places in the batch, .* type NoneType"),
        ("orders", 1, "is bad", r"must be places in the batch, as numpy.flatnonzero\(mask\) gives, not 1\."),
        (["orders"], [0], "is bad", r"reads no topic \['orders'\]; it reads orders"),
        ("orders", [0], None, "Why rows of 'orders' are left out must be texts, but one is None"),
        ("orders", [-1], "is bad", "There is no row -1 in the batch of 'orders', which has 6 rows"),
        ("orders", [6], "is bad", "There is no row 6 in the batch of 'orders', which has 6 rows"),
        ("orders", [0, 1], ["is bad"], "To leave out 2 rows of 'orders' 1 errors were given"),
        (
            "orders",
            [0],
            [ValueError("is bad")],
            r"Why rows of 'orders' are left out must be texts, but one is ValueError",
        ),
    ],
)
def test_records_that_are_not_there_are_not_left_out(topic: str, rows: Any, errors: Any, told: str) -> None:
    """Of a mask the first two records were, once for each that it had."""
    context = _context(DeadLetters("bad"), Checks)
    with pytest.raises(TopologyException, match=told):
        context.leave_out(topic, rows, errors)
    assert context.finish() == ({}, {})


def test_a_column_that_not_all_rows_of_a_batch_have_is_kept() -> None:
    class Odd(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            return [{"at": record["at"], **({} if record["price"] else {"is_free": True})}]

    rows = Odd().process_batch({"orders": ROWS.slice(0, 3)}, _context("stop", Odd))
    assert rows is not None
    assert rows.to_pylist() == [{"at": 10, "is_free": None}, {"at": 20, "is_free": True}, {"at": 30, "is_free": None}]


def test_nanoseconds_stay_without_a_schema() -> None:
    """Of columns that are passed on; Arrow takes what pandas has for them for microseconds."""
    pytest.importorskip("pandas", reason="without it Arrow gives no nanoseconds as values, and says so")

    class PassesOn(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            return [{**record}]

    times = [None, 1_001, 2]
    rows = ROWS.slice(0, 3).append_column("utc", pa.array(times, pa.timestamp("ns", "UTC")))
    rows = rows.append_column("local", pa.array(times, pa.timestamp("ns")))
    rows = rows.append_column("took", pa.array(times, pa.duration("ns")))
    rows = rows.append_column("ms", pa.array(times, pa.timestamp("ms")))
    nested = pa.struct([("many", pa.list_(pa.timestamp("ns", "UTC")))])
    rows = rows.append_column("nested", pa.array([None, {"many": [1_001]}, {"many": []}], nested))
    seen = PassesOn().process_batch({"orders": rows}, _context("stop", PassesOn))
    assert seen is not None
    assert [str(seen.schema.field(name).type) for name in ("utc", "local", "took", "ms")] == [
        "timestamp[ns, tz=UTC]",
        "timestamp[ns]",
        "duration[ns]",
        "timestamp[us]",
    ]
    for name in ("utc", "local", "took"):
        assert seen.column(name).cast(pa.int64()).to_pylist() == times
    assert seen.column("nested").combine_chunks().equals(rows.column("nested").combine_chunks())


def test_a_time_of_day_that_python_cannot_hold_is_a_bad_record() -> None:
    """Its `time` has microseconds, and Arrow cuts what is finer."""
    rows = ROWS.slice(0, 3).append_column("of_day", pa.array([1_000, 1_001, None], pa.time64("ns")))

    class PassesOn(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            return [{"of_day": record["of_day"]}]

    context = _context("skip", PassesOn)
    seen = PassesOn().process_batch({"orders": rows}, context)
    assert seen is not None
    assert (seen.column("of_day").to_pylist(), context.finish()[1]) == (
        [dt.time(microsecond=1), None],
        {"bad_records": 1},
    )
    with pytest.raises(ValueError, match="'of_day' has a time of day with nanoseconds"):
        PassesOn().process_batch({"orders": rows}, _context("stop", PassesOn))


def test_a_row_that_is_no_dictionary_is_found() -> None:
    """A time between two microseconds, which Python cannot say, without pandas."""
    column = pa.array([1_000, 1_500_000_000_000_000_000 * 7, 3_000], pa.uint64())

    class Sees(RecordProcessor):
        def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
            return [{"n": record["n"]}]

    binary = pa.array([b"a", b"\xff", b"c"]).view(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 3, binary.buffers())
    rows = pa.table({"key": [1, 1, 1], "at": [1, 2, 3], "text": text, "n": column})
    context = _context("skip", Sees)
    seen = Sees().process_batch({"orders": rows}, context)
    assert seen is not None
    assert (seen.num_rows, context.finish()[1]) == (2, {"bad_records": 1})


def test_batch_processors_can_say_what_is_bad() -> None:
    for policy, late in (("skip", "skip"), (DeadLetters("letters"), DeadLetters("letters"))):
        context = _context(policy, Checks)  # type: ignore[arg-type]
        Checks().process_batch({"orders": ROWS}, context)
        outputs, counters = context.finish()
        assert counters == {"bad_records": 1, "late": 2}
        letters = [row for table in outputs.get("letters", ()) for row in table.to_pylist()]
        if late == "skip":
            assert not letters
        else:
            assert [(row["offset"], row["reason"], row["error"]) for row in letters] == [
                (103, "bad", "has no price"),
                (101, "late", "is late by 1"),
                (105, "late", "is late by 5"),
            ]
    with pytest.raises(
        BadRecordException, match=r"The record orders, partition 0, offset 103 has no price\."
    ) as caught:
        Checks().process_batch({"orders": ROWS}, _context("stop", Checks))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 103)


def test_what_json_does_not_know_is_kept_aside_as_its_text() -> None:
    pairs = pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64()))
    record = {"price": [math.nan], "prices": [[{"a": -math.inf}]], "raw": [b"x"], "pairs": pairs}
    known = {"price": "nan", "prices": [{"a": "-inf"}], "raw": "b'x'", "pairs": [["k", None]]}

    def refuse(text: str) -> None:
        raise ValueError(text)

    (written,) = as_json(pa.table(record))
    assert json.loads(written, parse_constant=refuse) == known


def test_the_setting_is_checked_and_its_output_is_declared() -> None:
    letters = DeadLetters("letters")
    sub = _sub(Shares, ["out"], bad_records=letters, late_records=letters)
    assert [output.name for output in sub.outputs] == ["out", "letters"]
    assert sub.dead_letters == ("letters",)
    assert attrs.evolve(sub, name="again").outputs == sub.outputs
    with pytest.raises(TopologyException, match=r"'shares': bad_records \('ignore'\) must be 'stop', 'skip' or DeadL"):
        _sub(Shares, bad_records="ignore")  # type: ignore[arg-type]
    with pytest.raises(TopologyException, match="output name"):
        DeadLetters("no good name")
    with pytest.raises(TopologyException, match="'letters' is there twice"):
        Topology(_sub(Shares, ["letters"], bad_records=letters))


def test_late_and_bad_records_have_settings_of_their_own(tmp_path: Path) -> None:
    result = _run(tmp_path, _sub(Checks, bad_records="skip", late_records=DeadLetters("late")), 2)
    assert read_output(tmp_path / "run", "late").num_rows == 2
    assert result.table("late").schema.equals(DEAD_LETTER_SCHEMA)


@pytest.mark.parametrize("ready_made", [False, True])
@pytest.mark.parametrize("policy", ["skip", DeadLetters("letters")])
def test_a_run_that_a_record_has_stopped_goes_on_without_it(tmp_path: Path, ready_made: bool, policy: LeftOut) -> None:
    """In the same folder: what is committed fits, whatever becomes of the records that come."""
    times = pa.array([10, 20, None, 40, 5, 60, 70], pa.int64())
    table = pa.table({"key": [1] * 7, "at": times, "price": [5, 4, 0, 2, None, 1, 1]})
    orders = write_topic(tmp_path / "topics", "orders", table, partitions=1, key=["key"], timestamp="at")

    def run(policy: LeftOut) -> Any:
        policies = {"bad_records": policy, "late_records": policy}
        if ready_made:
            count = {"orders": Aggregate.count()}
            windows = WindowedAggregation(source="orders", windows=TimeWindows(10), aggregates=count, **policies)  # type: ignore[arg-type]
            sub = windows.sub_topology("shares", "shares", [orders.spec])
        else:
            sub = _sub(OneOutput, ["shares"], **policies)
        return application(tmp_path, Topology(sub), clients=1, options=RuntimeOptions(max_batch_rows=1)).run()

    with pytest.raises(ProcessorException, match="offset 2"):
        run("stop")
    result = run(policy)
    assert (result.rows_in, result.table("shares").num_rows) == (5, 4 if ready_made else 5)
    if isinstance(policy, DeadLetters):
        assert result.table("letters").column("offset").to_pylist() == [2, 4]
    commits = [commit for record in result.commits.records() for commit in record.tasks.values()]
    assert sum(commit.counters.get(reason, 0) for commit in commits for reason in ("bad_records", "late")) == 2


def test_outputs_for_bad_records_come_and_go(tmp_path: Path) -> None:
    """What was kept aside before stays, whatever becomes of the records that come."""
    write_topic(tmp_path / "topics", "orders", ROWS, partitions=1, key=["key"], timestamp="at")
    policies: list[LeftOut] = [DeadLetters("one"), "skip", DeadLetters("two"), DeadLetters("one")]
    for number, policy in enumerate(policies):
        if number:
            append_topic(tmp_path / "topics", "orders", ROWS)
        application(tmp_path, Topology(_sub(OneOutput, ["shares"], bad_records=policy)), clients=1).run()
    offsets = {name: read_output(tmp_path / "run", name).column("offset").to_pylist() for name in ("one", "two")}
    assert offsets == {"one": [1, 3, 5, 19, 21, 23], "two": [13, 15, 17]}
    with pytest.raises(CommitLogException, match="outputs, shares: was null, is gone"):
        application(tmp_path, Topology(_sub(OneOutput, bad_records="skip")), clients=1).run()


def test_an_output_for_bad_records_stays_with_its_tasks(tmp_path: Path) -> None:
    """Files of batches with equal numbers became one file of one name, and the rows of one task were lost."""
    subs = [
        SubTopology(name, "payments" if name == "paid" else "orders", OneOutput, outputs=[name])
        for name in ("ordered", "again", "paid")
    ]

    def run(owner: str, letters: str, commits: int = 256) -> None:
        policies: list[LeftOut] = [DeadLetters(letters) if sub.name == owner else "skip" for sub in subs]
        topology = Topology([attrs.evolve(sub, bad_records=one) for sub, one in zip(subs, policies, strict=True)])
        options = RuntimeOptions(max_batch_rows=3, checkpoint_every_commits=commits)
        application(tmp_path, topology, clients=1, options=options, launcher=ThreadLauncher()).run()

    for name in ("orders", "payments"):
        rows = ROWS if name == "orders" else ROWS.slice(0, 0)
        write_topic(tmp_path / "topics", name, rows, partitions=1, key=["key"], timestamp="at")
    run("ordered", "letters")
    append_topic(tmp_path / "topics", "payments", ROWS)
    with pytest.raises(
        CommitLogException, match=r"'letters' for records that 'paid' leaves out: .* of 'ordered, again'"
    ):
        run("paid", "letters")
    run("paid", "others", 8)
    append_topic(tmp_path / "topics", "orders", ROWS)
    run("again", "letters")
    offsets = {name: read_output(tmp_path / "run", name).column("offset").to_pylist() for name in ("letters", "others")}
    assert offsets == {"letters": [1, 3, 5, 7, 9, 11], "others": [1, 3, 5]}


def test_the_log_tells_of_many_records_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a line for each."""
    now = 100.0
    monkeypatch.setattr("task_assignor.runtime.topology.bad_records.time.monotonic", lambda: now)
    context = _context("skip", OneOutput)

    def lines(about: str) -> list[str]:
        return [line for record in caplog.records if about in (line := record.getMessage())]

    for second in range(130):
        now = 100.0 + second
        context.begin(second, {"orders": (100 + second, 106 + second)}, {"orders": ROWS})
        context.leave_out("orders", [0, 1], "is bad")
        context.leave_out("orders", [2], "is too old", is_late=True)
        assert context.finish()[1] == {"bad_records": 2, "late": 1}
    so_far = [
        "Task 0_0 leaves 2 records out, the first of which is orders, partition 0, offset 100, which is bad.",
        # Before the batch of that moment.
        "Task 0_0 has left 118 more records out in the last 60 s, the first of which was orders, partition 0, offset 101, which is bad.",
        "Task 0_0 has left 120 more records out in the last 60 s, the first of which was orders, partition 0, offset 160, which is bad.",
    ]
    assert lines("is bad") == so_far
    assert len(lines("is too old")) == 3
    context.begin(130, {"orders": (0, 0)})
    assert len(caplog.records) == 6, "not a minute has passed"
    now = 280.0
    context.begin(131, {"orders": (0, 0)})
    assert "left 20 more records out in the last 60 s" in lines("is bad")[-1]
    assert "left 10 more late records out" in lines("is too old")[-1]
    context.end()
    assert len(caplog.records) == 8
    context.begin(132, {"orders": (0, 6)}, {"orders": ROWS})
    context.leave_out("orders", [0], "is bad")
    context.end()
    assert "left 1 more record out in the last 1 s" in lines("is bad")[-1], "nothing is lost at the end"


def test_a_record_that_is_large_is_kept_aside_as_it_begins() -> None:
    """Where dead letters go to Kafka the run ended: in JSON, in JSON, it was larger than a record may be."""
    exact, large = json.dumps({"value": "ä" * 40_000}, ensure_ascii=False), json.dumps({"value": '"' * 900_000})
    letters = letters_of(
        "orders", 3, [7, 8, 9], "bad", ["is bad", "is worse: " + "x" * 900_000, "?"], [exact, large, None]
    )
    assert letters.schema.equals(DEAD_LETTER_SCHEMA)
    first, second, third = letters.column("record").to_pylist()
    assert (first, third) == (exact, None)
    found = json.loads(second)
    assert large.startswith(found["begins"])
    assert (len(found["begins"]), found["bytes"]) == (100_000, len(large))
    assert all(len(json.dumps(row)) < 900_000 for row in letters.to_pylist())


def test_who_stops_at_a_record_that_cannot_be_read_is_named() -> None:
    """Also who reads a derived stream of its topic; not who is forwarded what another one makes of it."""
    same = DerivedStream("same", "orders", filter=lambda rows: [True] * rows.num_rows)
    spec = TopicSpec("orders", 1, ROWS.schema, "key", "at")

    def check(policy: LeftOut) -> None:
        topology = Topology(
            [
                SubTopology("first", "orders", Shares, outputs=Forwarded("all", ROWS.schema), bad_records="skip"),
                SubTopology("second", "same", Shares, bad_records=policy),
                SubTopology("third", "all", Shares),
            ],
            derived=same,
        )
        processors = TaskProcessors("app", TaskId(0, 0), topology.processor_topologies[0], {"orders": spec}, {})
        unreadable = {"orders": [Unreadable(3, "cannot be read: it is torn", "{}")]}
        processors.check(TaskInput({}, {}, (), {}, {}, unreadable=unreadable))

    check("skip")
    with pytest.raises(
        BadRecordException, match=r"orders, partition 0, offset 3 cannot be read: it is torn.* 'second'"
    ):
        check("stop")
