"""`task-assignor read-store`: what a store holds, as lines of JSON."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Runner
from tests.runtime.support import application, count_topology, stream, write_streams

APP = """
from task_assignor.runtime import StreamsApplication
from tests.runtime.support import count_topology, settings

application = StreamsApplication(count_topology(), settings(), topics_root="topics", run_dir="run")
print("made")
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
