"""`task-assignor inspect-run`: what a run folder remembers, as tables, as one object, as the log itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from task_assignor.cli.inspect_run import _states
from task_assignor.runtime import RuntimeOptions
from tests.cli.conftest import Runner
from tests.cli.test_docs import CLI
from tests.runtime.support import application, join_topology, settings, write_streams


def documented(heading: str) -> set[str]:
    """The members that the table with this heading names in docs/cli.md."""
    table = CLI.read_text(encoding="utf-8").split(f"| {heading} |")[1].split("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_a_run_is_shown_as_it_was(run: Runner, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=1_000, keys=50)
    result = application(tmp_path, join_topology(), config=settings(num_standby_replicas=1)).run()

    done = run("inspect-run", "run", "--json")
    assert (done.code, done.err) == (0, "")
    (found,) = done.lines
    assert found["application"] == "test"
    assert found["outputs"] == {"joined": result.rows_out}
    assert (found["rowsIn"], found["batches"], found["starts"]) == (result.rows_in, result.batches, 1)
    active = [task for tasks in found["assignment"].values() for task in tasks["active"]]
    assert sorted(active) == ["0_0", "0_1", "0_2", "0_3"]
    assert [line["event"] for line in found["happened"]].count("ClientJoined") == 2
    assert found["metrics"]["records-out-total"] == result.rows_out

    assert documented("in `--json`") == set(found)

    shown = run("inspect-run", "run")
    assert shown.code == 0
    for text in ("joined (", "1,500 rows in", "The assignment, generation 1", "2 clients are there", "records-lag"):
        assert text in shown.out

    log = run("inspect-run", "run", "--log").lines
    commits = next(line for line in log if line["event"] == "Commits")
    assert documented("in a line `Commits`") == set(commits) - {"at", "event"}
    assert log[-1] == {"at": log[-1]["at"], "event": "Metrics", "metrics": found["metrics"]}
    (state,) = found["states"]
    planned = run("plan", state, "--assignor", "sticky", "--json")
    assert planned.code == 0
    assert planned.lines[0]["id"] == "test-00000001-000001"


def test_rows_of_outputs_are_all_that_there_are_when_history_is_gone(run: Runner, tmp_path: Path) -> None:
    """They were those of the commits that were still known."""
    write_streams(tmp_path / "topics", rows=1_000, keys=50)
    options = RuntimeOptions(max_batch_rows=20, checkpoint_every_commits=4, history_bytes=1_000)
    result = application(tmp_path, join_topology(), options=options).run()
    (found,) = run("inspect-run", "run", "--json").lines
    assert found["olderCommits"] > 0
    assert found["rowsIn"] < result.rows_in
    assert found["outputs"] == found["rowsByOutput"] == {"joined": result.table("joined").num_rows}
    assert "what they read is not in the sums, nor what they wrote to topics" in " ".join(
        run("inspect-run", "run").out.split()
    )


def test_a_folder_without_a_run_is_named(run: Runner, tmp_path: Path) -> None:
    done = run("inspect-run", "nothing")
    assert done.code == 2
    assert f"There is no run in {tmp_path / 'nothing'}" in done.err
    log = run("inspect-run", str(tmp_path / "nothing"), "--log")
    assert (log.code, log.out, log.err) == (2, "", done.err)


def test_what_is_no_folder_or_nowhere_is_told(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    done = run("inspect-run", "file")
    assert done.code == 2
    assert f"There is no run in {tmp_path / 'file'}: {tmp_path / 'file' / 'application.json'} is missing." in done.err
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = run("inspect-run", "here")
    assert done.code == 2
    assert "The run_dir ('here') must be an absolute path, since the current folder is not there any more." in done.err


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "run" / "log").mkdir(parents=True)
    line = json.dumps({"at": "t", "event": "RunFailed", "message": "why"})
    (tmp_path / "run" / "log" / "00000001-000000.jsonl").write_text(f'{line}\n{{"at": "u", "ev')
    assert run("inspect-run", "run", "--log").lines == [json.loads(line)]


def test_a_log_that_somebody_changed_by_hand_is_shown(run: Runner, tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=10, keys=5)
    application(tmp_path, join_topology(), clients=1).run()
    lines: list[dict[str, object]] = [
        {"event": "Rebalanced", "moved": [["0_0", "a", "b"]], "kept": "", "generation": 1},
        {"event": "TaskRestored", "role": "active", "rows": 7, "snapshotRows": 7},
        {"event": "RunFinished", "rowsIn": 7},
        {"event": "LinesDropped", "lines": 7},
        {"event": "RunFailed", "at": "t", "client": "a", "message": "why"},
    ]
    log = tmp_path / "run" / "log" / "99999999-000000.jsonl"
    values: tuple[object, ...] = (None, [], {}, "x", 1.5, True, [[]], ["0_0"])
    for value in values:
        changed = [{**line, field: value} for line in lines for field in line]
        metrics = {"event": "Metrics", "metrics": {"records-out-total": value, "rates": {"a": value}}}
        for last in (metrics, {"event": "Metrics", "metrics": value}):
            log.write_text("\n".join(["[" * 100_000, *map(json.dumps, [*changed, last])]))
            shown = run("inspect-run", "run")
            assert (shown.code, shown.err) == (0, ""), value
            assert "┃ metric" in shown.out


@pytest.mark.parametrize(
    ("newest", "told"),
    [
        ("/runs/one/states/2.json", "task-assignor plan /runs/one/states/2.json"),
        ("/runs/my run/states/2.json", "task-assignor plan '/runs/my run/states/2.json'"),
        ("s3://runs/one/states/2.json", "s3://runs/one/states/2.json"),
    ],
)
def test_the_command_for_the_newest_state_can_be_typed(newest: str, told: str) -> None:
    assert _states(["/1.json", newest]) == f"2; the newest: {told}"
