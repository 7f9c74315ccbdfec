"""`task-assignor read-store`: what a store holds, as lines of JSON."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from task_assignor.runtime import TableChanges, Topology, write_topic
from tests.cli.conftest import Run, Runner
from tests.runtime.support import application, count_topology, stream, write_streams

APP = """
from task_assignor.runtime import StreamsApplication
from tests.runtime.support import count_topology, settings

application = StreamsApplication(count_topology(), settings(), topics_root="topics", run_dir="run")
print("made")
"""

FAR = """
from task_assignor.runtime import StreamsApplication, TableChanges, Topic, Topology
from tests.runtime.support import settings

topology = Topology([TableChanges(table="t").sub_topology("changes", "out", Topic.open("topics", "t").spec)])
application = StreamsApplication(topology, settings(), topics_root="topics", run_dir="run")
"""


@pytest.fixture
def read(run: Runner, tmp_path: Path) -> Runner:
    """Runs the command on an application with topics, each time from a file of another name: a process reads a file once."""
    write_streams(tmp_path / "topics", rows=200, keys=10)
    numbers = itertools.count()

    def reading(*arguments: object) -> Run:
        file = tmp_path / f"application_{next(numbers)}.py"
        file.write_text(APP)
        return run("read-store", file.name, *arguments)

    return reading


def test_rows_are_lines_of_json(read: Runner, tmp_path: Path) -> None:
    application(tmp_path, count_topology()).run()
    done = read("totals")
    assert (done.code, done.err) == (0, "made\n")
    keys = stream(200, 10, seed=1).column("key").to_pylist()
    assert {line["key"]: line["count"] for line in done.lines} == {key: keys.count(key) for key in keys}
    assert all(list(line) == ["key", "count", "sum"] for line in done.lines)
    parts = [read("totals", "--partition", number).lines for number in range(4)]
    assert [line for part in parts for line in part] == done.lines
    assert read("totals", "--partition", 3, "--partition", 0).lines == [*parts[0], *parts[3]]


def test_what_is_not_there_is_named(read: Runner, tmp_path: Path) -> None:
    none = read("totals")
    assert (none.code, none.out) == (2, "")
    assert f"There is no run in {tmp_path / 'run'}" in none.err
    application(tmp_path, count_topology()).run()
    for arguments, said in (
        (["total"], "no store 'total'; its stores: totals. Maybe 'totals' is meant."),
        (["totals", "--partition", "4"], "'totals' has no partition 4: it has 4, from 0 to 3."),
        (["totals", "--run-dir", "other"], "There is no run in"),
    ):
        done = read(*arguments)
        assert (done.code, done.out) == (2, "")
        assert said in done.err


def test_times_that_python_does_not_know_are_numbers(run: Runner, tmp_path: Path) -> None:
    """The command ended with a traceback: "date value out of range"."""
    rows = pa.table(
        {
            "k": ["a"],
            "far": pa.array([10**18]).cast(pa.timestamp("us", "UTC")),
            "day": pa.array([10**9], pa.int32()).cast(pa.date32()),
            "of_day": pa.array([1]).cast(pa.time64("ns")),
            "near": pa.array([5]).cast(pa.timestamp("s")),
            "many": pa.array([[10**15, None]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("s"))),
        }
    )
    topic = write_topic(tmp_path / "topics", "t", rows, partitions=1, key=["k"])
    topology = Topology([TableChanges(table="t").sub_topology("changes", "out", topic.spec)])
    application(tmp_path, topology).run()
    (tmp_path / "far.py").write_text(FAR)
    done = run("read-store", "far.py", "changes-table")
    assert (done.code, done.err) == (0, "")
    near = {"k": "a", "near": "1970-01-01 00:00:05"}
    assert done.lines == [near | {"far": 10**18, "day": 10**9, "of_day": 1, "many": [10**15, None]}]
