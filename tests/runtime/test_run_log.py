"""What a run folder remembers: every state as a snapshot, what happened as lines; bounded, and never a reason to stop."""

from __future__ import annotations

import errno
import json
import logging
import threading
from functools import partial
from pathlib import Path

import pytest

from task_assignor.runtime import CommitLogException, RunResult
from task_assignor.runtime.storage import LocalStorage
from task_assignor.runtime.storage.base import Data
from task_assignor.runtime.watching import run_log
from task_assignor.runtime.watching.run_log import RunLog, list_states, read_log
from task_assignor.sdk import ApplicationStateBuilder, iter_states, read_state
from tests.runtime.simulated_storage import MemoryStorage
from tests.runtime.support import QUICK, application, count_topology, join_topology, write_streams


def finished(root: Path) -> RunResult:
    write_streams(root / "topics", rows=1_000, keys=50)
    return application(root, join_topology()).run()


def test_a_run_leaves_its_log_its_metrics_and_the_states_of_its_assignor(tmp_path: Path) -> None:
    result = finished(tmp_path)
    storage = LocalStorage(tmp_path / "run")
    lines = list(read_log(storage))
    told = [line["event"] for line in lines]
    assert told.count("ClientJoined") == 2
    assert told.count("Rebalanced") == 1
    assert told[-2:] == ["RunFinished", "Metrics"]
    assert sum(line["rowsIn"] for line in lines if line["event"] == "Commits") == result.rows_in
    assert lines[-1]["metrics"]["records-out-total"] == result.rows_out
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)

    (name,) = list_states(storage)
    state = read_state(tmp_path / "run" / name)
    assert len(state.all_tasks) == 4
    assert len(state.kafka_streams_states(compute_task_lags=False)) == 2
    # The next run in the folder has a log and states of its own.
    application(tmp_path, join_topology()).run()
    assert len(storage.list("log")) == 2
    assert {line["event"] for line in read_log(storage)} >= {"RunFinished", "Metrics"}


def test_a_run_that_its_listener_ends_says_so_in_its_log(tmp_path: Path) -> None:
    """It just broke off there."""
    write_streams(tmp_path / "topics", rows=10, keys=5)

    def listener(_: object) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        application(tmp_path, count_topology()).run(listener)
    failed, metrics = list(read_log(LocalStorage(tmp_path / "run")))[-2:]
    assert failed["message"].startswith("ValueError: enough (tests.runtime.test_run_log.")
    assert metrics["metrics"]["failed-runs-total"] == 1


def test_log_and_states_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "_GATHERED_S", 0.0)
    monkeypatch.setattr(run_log, "PART_BYTES", 100)
    monkeypatch.setattr(run_log, "KEPT_PARTS", 3)
    monkeypatch.setattr(run_log, "KEPT_STATES", 2)
    storage = LocalStorage(tmp_path)
    state = ApplicationStateBuilder().build()
    for epoch in range(1, 7):
        log = RunLog(storage, "shop", epoch)
        log.state(state)
        for number in range(20):
            log.line(json.dumps({"event": "x", "epoch": epoch, "number": number}))
        log.close()
    assert len(storage.list("log")) <= 4
    assert list_states(storage) == ["states/00000005-000001.json", "states/00000006-000001.json"]
    # As `cat` joins them.
    joined = tmp_path / "states.jsonl"
    joined.write_bytes(b"".join((tmp_path / name).read_bytes() for name in list_states(storage)))
    assert [record.id for record in iter_states(joined)] == ["shop-00000005-000001", "shop-00000006-000001"]
    # How many lines are gathered in a part is chance: the newest parts may not have all of them.
    last = [line["number"] for line in read_log(storage) if line["epoch"] == 6]
    assert last
    assert last == list(range(20 - len(last), 20))


def test_short_runs_leave_no_more_of_the_log_than_long_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them fills a part. What is not theirs stays: it went, once there was so much of it."""
    monkeypatch.setattr(run_log, "KEPT_PARTS", 3)
    storage = LocalStorage(tmp_path)
    mine = {f"log/{number}.log" for number in range(5)}
    storage.put_all(dict.fromkeys(mine, b"mine"))
    for epoch in range(1, 7):
        log = RunLog(storage, "shop", epoch)
        log.line(json.dumps({"event": "x", "epoch": epoch}))
        log.close()
    assert [line["epoch"] for line in read_log(storage)] == [4, 5, 6]
    assert mine <= set(storage.list("log"))


def test_what_killed_runs_have_begun_to_write_goes(tmp_path: Path) -> None:
    """That of another run that is there by now stays: who was replaced may be late."""
    storage = LocalStorage(tmp_path)
    begun = [
        tmp_path / folder / f"~{epoch:08d}-000001.{ending}-4711-140018551092928-3"
        for folder, ending in (("log", "jsonl"), ("states", "json"))
        for epoch in (1, 2, 3)
    ]
    for path in begun:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half")
    log = RunLog(storage, "shop", 2)
    log.state(ApplicationStateBuilder().build())
    log.line(json.dumps({"event": "x"}))
    log.close()
    assert [path.exists() for path in begun] == [False, True, True] * 2


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "log").write_text("in the way")
    with caplog.at_level(logging.WARNING, "task_assignor"):
        log = RunLog(LocalStorage(tmp_path), "shop", 1)
        log.line("{}")
        log.close()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"The log of the run cannot be written to {tmp_path}: ")


def test_what_could_not_be_written_for_a_while_is_written_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_log, "_GATHERED_S", 0.0)
    in_the_way = [tmp_path / folder for folder in ("manifest", "states")]
    for path in in_the_way:
        path.write_text("")
    storage, tried = LocalStorage(tmp_path), threading.Semaphore(0)
    log = RunLog(storage, "shop", 1)

    def write(name: str) -> None:
        tried.release()
        storage.put(name, b"file\n")

    log.state(ApplicationStateBuilder().build())
    for name in ("manifest/one/files.txt", "manifest/other/files.txt"):
        log.document(name, partial(write, name))
    for number in range(3):
        assert tried.acquire(timeout=60)
        log.line(f"{number}")
    for path in in_the_way:
        path.unlink()
    log.close()
    assert [*storage.list_below("manifest")] == ["manifest/one/files.txt", "manifest/other/files.txt"]
    assert len(list_states(storage)) == 1
    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert record.getMessage().startswith(f"The log of the run cannot be written to {tmp_path}: ")


def test_of_lines_that_cannot_be_written_the_newest_wait_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All waited, in memory, and were put together again every second: for days, where a folder had the wrong owner."""
    monkeypatch.setattr(run_log, "_GATHERED_S", 0.0)
    monkeypatch.setattr(run_log, "WAITING_BYTES", 1_000, raising=False)
    (tmp_path / "log").write_text("in the way")
    log = RunLog(LocalStorage(tmp_path), "shop", 1)
    for number in range(200):
        log.line(json.dumps({"event": "x", "number": number}))
    waited = threading.Event()
    # Documents come before lines, so at the second one those lines have been looked at.
    for name in ("one", "other"):
        waited.clear()
        log.document(name, waited.set)
        assert waited.wait(60)
    (tmp_path / "log").unlink()
    log.line(json.dumps({"event": "x", "number": 200}))
    log.close()
    first, *others = read_log(LocalStorage(tmp_path))
    assert [line["number"] for line in others] == list(range(first["lines"], 201))
    assert first["event"] == "LinesDropped"
    assert 20 < len(others) < 60
    (told,) = (record.message for record in caplog.records if "dropped" in record.message)
    assert told == "Too much of the log of the run waits to be written; its oldest lines are dropped."


def test_a_run_whose_log_cannot_be_written_goes_on(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=1_000, keys=50)
    (tmp_path / "run").mkdir()
    for name in ("log", "states"):
        (tmp_path / "run" / name).write_text("in the way")
    result = application(tmp_path, count_topology(), options=QUICK).run()
    assert result.rows_in == 1_000


@pytest.mark.parametrize("error", [ValueError("no such type"), SystemExit("no such type")])
def test_whatever_cannot_be_written_the_rest_is(
    error: BaseException, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log ended, without a word, at whatever was neither the storage's error nor ours."""
    log = RunLog(LocalStorage(tmp_path), "shop", 1)

    def write() -> None:
        raise error

    others: list[str] = []
    log.document("manifest/one/files.txt", write)
    log.document("manifest/other/files.txt", partial(others.append, "written"))
    log.line('{"event": "Last"}')
    log.close()
    assert others == ["written"]
    assert [line["event"] for line in read_log(LocalStorage(tmp_path))] == ["Last"]
    first, last = (record.getMessage() for record in caplog.records)
    assert first.endswith(": no such type")
    assert last.startswith(f"In {tmp_path} manifest/one/files.txt is not what it should be at the end of the run. Run ")


def test_what_could_not_be_written_the_last_time_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing came after it, so the list of an output that other engines read stayed what it was, of a run that had ended well."""
    log = RunLog(storage := LocalStorage(tmp_path), "shop", 1)
    tried: list[str] = []

    def write() -> None:
        tried.append("")
        if len(tried) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        storage.put("manifest/one/files.txt", b"file\n")

    # It is over before anything is written.
    log._is_over.set()
    log.document("manifest/one/files.txt", write)
    log.close()
    assert bytes(storage.open("manifest/one/files.txt")) == b"file\n"
    assert len(caplog.records) == 1


def test_a_listener_that_raises_does_not_keep_the_log_from_its_end(tmp_path: Path) -> None:
    """`on_line` of a pipe that nobody reads any more raised again at the end: the log was left open, its clients stayed alive."""
    write_streams(tmp_path / "topics", rows=1_000, keys=50)
    app = application(tmp_path, count_topology(), options=QUICK)

    def on_line(line: str) -> None:
        if '"Commits"' in line or '"Metrics"' in line:
            raise BrokenPipeError("nobody reads")

    with pytest.raises(BrokenPipeError):
        app.run(on_line=on_line)
    assert not [thread for thread in threading.enumerate() if thread.name == "run-log"]
    assert [line["event"] for line in read_log(LocalStorage(tmp_path / "run"))][-1] == "Metrics"
    assert {sample.value for sample in app.metrics.samples() if sample.metric.name == "alive-clients"} == {0}


def test_a_log_that_is_closed_at_the_end_of_a_pause_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in 160 runs on a busy machine it waited for ever."""
    storage = MemoryStorage()
    log = RunLog(storage, "app", 1)

    def is_told_just_now(timeout: float | None = None) -> bool:
        log._is_over.set()
        log._has_news.set()
        return False

    monkeypatch.setattr(log._is_over, "wait", is_told_just_now)
    log.line("the last one")
    log._thread.join(30)
    assert not log._thread.is_alive()
    assert list(storage.objects.values()) == [b"the last one\n"]


def test_a_storage_that_does_not_answer_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of a run waited for it for ever."""
    monkeypatch.setattr(run_log, "_LONGEST_END_S", 0.05)
    monkeypatch.setattr(run_log, "_GATHERED_S", 0.0)
    answers = threading.Event()

    class Silent(MemoryStorage):
        def put(self, name: str, data: Data) -> None:
            answers.wait()

    log = RunLog(Silent(), "shop", 1)
    log.line("{}")
    log.close()
    answers.set()
    assert "The log of the run is perhaps not written to its end" in caplog.text


@pytest.mark.parametrize("forbidden", ["open", "list"])
def test_a_log_that_this_user_may_not_read_is_told(monkeypatch: pytest.MonkeyPatch, forbidden: str) -> None:
    """`task-assignor inspect-run --log` ended with a traceback."""
    storage = MemoryStorage()
    storage.put("log/00000001-000001.jsonl", b"{}")

    def refuse(name: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", name)

    monkeypatch.setattr(storage, forbidden, refuse)
    with pytest.raises(
        CommitLogException, match=r"The log of the run in .* cannot be read: .*denied: 'log.*let this user"
    ):
        list(read_log(storage))
