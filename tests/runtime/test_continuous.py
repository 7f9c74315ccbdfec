"""Runs that go on while their topics grow, and how they end: conditions, requests, signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientJoined,
    LocalProcessLauncher,
    RunEvent,
    RunFinished,
    TopicException,
    Topology,
    WindowedJoin,
    append_topic,
    read_output,
    write_topic,
)
from task_assignor.runtime.shells.signals import stopping_on_signals, unbroken
from task_assignor.runtime.shells.watcher import Moved, Watcher
from task_assignor.runtime.tasks.log import Log
from task_assignor.runtime.topics.topic import FolderTopics, Topic
from task_assignor.sdk import ConfigException
from tests.runtime.support import (
    AFTER_MS,
    BEFORE_MS,
    QUICK,
    Watch,
    application,
    in_order,
    join_topology,
    plain_join,
    stream,
    write_streams,
)

PIECES = 4


def _join() -> Topology:
    """The join for rows of one topic that may come long before those of the other."""
    join = WindowedJoin(
        left="left", right="right", before_ms=BEFORE_MS, after_ms=AFTER_MS, left_grace_ms=None, right_grace_ms=None
    )
    return Topology([join.sub_topology("join", output="joined")])


def _pieces(rows: int = 400) -> tuple[list[pa.Table], list[pa.Table]]:
    """Two streams, each cut into pieces in the order of time."""
    left, right = stream(rows, rows // 20, seed=1), stream(rows, rows // 20, seed=2)
    size = rows // PIECES
    return tuple([table.slice(at, size) for at in range(0, rows, size)] for table in (left, right))  # type: ignore[return-value]


def _begin(root: Path, left: list[pa.Table], right: list[pa.Table]) -> None:
    for name, pieces in (("left", left), ("right", right)):
        write_topic(root / "topics", name, pieces[0], partitions=2, key=["key"], timestamp="at")


def _grow(root: Path, left: pa.Table, right: pa.Table) -> None:
    append_topic(root / "topics", "left", left)
    append_topic(root / "topics", "right", right)


def _is_right(root: Path, left: list[pa.Table], right: list[pa.Table]) -> bool:
    expected = plain_join(pa.concat_tables(left), pa.concat_tables(right))
    return bool(in_order(expected).equals(in_order(read_output(root / "run", "joined"))))


def test_rows_that_come_while_it_runs_are_processed_as_they_come(tmp_path: Path) -> None:
    left, right = _pieces()
    _begin(tmp_path, left, right)
    app = application(tmp_path, _join())
    to_come = [*zip(left[1:], right[1:], strict=True)]
    read = [0]

    def on_event(event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            read[0] += event.rows_in
            if read[0] == 2 * (PIECES - len(to_come)) * left[0].num_rows:
                if to_come:
                    _grow(tmp_path, *to_come.pop(0))
                else:
                    app.request_stop("all is read")

    result = app.run(on_event, until="stopped")
    assert result.stopped == "all is read"
    assert "Stopped: all is read." in str(result)
    assert result.rows_in == sum(table.num_rows for table in (*left, *right))
    assert _is_right(tmp_path, left, right)


def test_a_run_ends_when_its_condition_is_met_and_the_next_one_goes_on(tmp_path: Path) -> None:
    left, right = _pieces()
    _begin(tmp_path, left, right)
    watch = Watch()
    result = application(tmp_path, _join()).run(watch, until=lambda event: isinstance(event, BatchesCommitted))
    assert result.stopped == "the condition of `until` is met"
    assert not watch.of(RunFinished)
    for pieces in zip(left[1:], right[1:], strict=True):
        _grow(tmp_path, *pieces)
    result = application(tmp_path, _join()).run()
    assert result.stopped == ""
    assert _is_right(tmp_path, left, right)


def test_rows_that_come_during_a_bounded_run_wait_for_the_next_one(tmp_path: Path) -> None:
    left, right = _pieces()
    _begin(tmp_path, left, right)
    watch = Watch()
    to_come = [(left[1], right[1])]
    watch.on(BatchesCommitted, lambda _: _grow(tmp_path, *to_come.pop()) if to_come else None)
    app = application(tmp_path, _join())
    assert app.run(watch).rows_in == left[0].num_rows + right[0].num_rows
    assert app.run().rows_in == left[1].num_rows + right[1].num_rows
    assert _is_right(tmp_path, left[:2], right[:2])


def test_a_condition_that_is_none_is_refused(tmp_path: Path) -> None:
    left, right = _pieces()
    _begin(tmp_path, left, right)
    with pytest.raises(
        ConfigException, match=r"until \('tomorrow'\) of a run must be 'available_now', 'stopped' or a function"
    ):
        application(tmp_path, _join()).run(until="tomorrow")  # type: ignore[arg-type]


def test_with_idle_time_a_task_waits_for_the_source_that_comes_later(tmp_path: Path) -> None:
    """A join without any grace stops at the first record that is late. Rows of one topic come before the other's."""
    left, right = _pieces()
    _begin(tmp_path, left, right)
    options = attrs.evolve(QUICK, max_task_idle_ms=600_000)
    app = application(tmp_path, join_topology(), options=options)
    watch = Watch()
    to_come = [*zip(left[1:], right[1:], strict=True)]
    watch.on(BatchesCommitted, lambda _: _grow(tmp_path, *to_come.pop(0)) if to_come else None)
    read = sum(table.num_rows for table in (*left[:-1], *right[:-1]))
    app.run(watch, until=lambda _: sum(event.rows_in for event in watch.of(BatchesCommitted)) > read)
    assert not to_come
    result = application(tmp_path, join_topology()).run()
    assert 0 < result.rows_in < left[0].num_rows + right[0].num_rows
    assert _is_right(tmp_path, left, right)


# Signals.

PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from task_assignor.runtime import BatchesCommitted
from tests.runtime.support import application
from tests.runtime.test_continuous import _join

def tell(event):
    if isinstance(event, BatchesCommitted):
        print("committed", flush=True)

if __name__ == "__main__":
    result = application(Path(sys.argv[1]), _join()).run(tell, until="stopped")
    print("stopped:", result.stopped, flush=True)
"""


@contextmanager
def _program(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A continuous run in a process of its own, and in a group of its own, as a shell starts it."""
    (root / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(root)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.thorough)])
def test_a_signal_ends_a_run_after_the_batches_that_are_being_processed(tmp_path: Path, name: str) -> None:
    left, right = _pieces()
    _begin(tmp_path, left, right)
    with _program(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        _grow(tmp_path, left[1], right[1])
        process.send_signal(getattr(signal, name))
        lines = process.stdout.read().splitlines()
        assert process.wait(timeout=60) == 0
    assert lines[-1] == f"stopped: {'Ctrl-C' if name == 'SIGINT' else name}"
    _grow(tmp_path, left[2], right[2])
    application(tmp_path, _join()).run()
    assert _is_right(tmp_path, left[:3], right[:3])


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    asked: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with stopping_on_signals(asked.append):
        signal.raise_signal(signal.SIGTERM)
        assert asked == ["SIGTERM"]
        with pytest.raises(KeyboardInterrupt, match="Ctrl-C after SIGTERM"):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_left_alone_where_they_are_ignored_and_outside_of_the_main_thread() -> None:
    asked: list[str] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping_on_signals(asked.append):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    handlers: list[Any] = []

    def elsewhere() -> None:
        with stopping_on_signals(asked.append):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert (asked, handlers) == ([], [before])


def test_what_is_unbroken_is_done_before_a_signal_comes() -> None:
    """The second Ctrl-C came in the middle of a call of Java, of which PySpark printed a traceback."""
    asked: list[str] = []
    done: list[tuple[int, int]] = []

    def call(signals: int) -> None:
        with unbroken():
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)
            done.append((signals, len(asked)))

    with stopping_on_signals(asked.append):
        call(1)
        assert asked == ["Ctrl-C"]
        with pytest.raises(KeyboardInterrupt):
            call(1)
        # It does not end.
        with pytest.raises(KeyboardInterrupt):
            call(2)
    assert done == [(1, 0), (1, 1)]


class Interrupted(LocalProcessLauncher):
    """Somebody presses Ctrl-C while its clients end."""

    def stop(self, timeout_s: float) -> None:
        signal.raise_signal(signal.SIGINT)
        super().stop(timeout_s)


def test_ctrl_c_while_the_clients_end_costs_neither_the_result_nor_their_end(tmp_path: Path) -> None:
    """It interrupted the wait for them: nobody ended them, as in a notebook, which lives on, and the result was lost."""
    left, right = write_streams(tmp_path / "topics", rows=100, keys=10)
    launcher = Interrupted(start_method="forkserver")
    result = application(tmp_path, join_topology(), launcher=launcher).run()
    assert in_order(result.table("joined")).equals(in_order(plain_join(left, right)))
    assert launcher.pids == {}


def test_a_launcher_has_the_clients_of_one_run_at_a_time_and_of_the_next_one_after_it(tmp_path: Path) -> None:
    """A second run with it, as in a notebook's thread, ended the clients of the first one, too."""
    left, right = write_streams(tmp_path / "topics", rows=100, keys=10)
    launcher = LocalProcessLauncher(start_method="forkserver")
    first = application(tmp_path, join_topology(), launcher=launcher)
    second = first.evolve(run_dir=tmp_path / "second")
    refused: list[str] = []

    def interfere(_: ClientJoined) -> None:
        with pytest.raises(ClientException) as caught:
            second.run()
        refused.append(str(caught.value))

    watch = Watch()
    watch.on(ClientJoined, interfere)
    result = first.run(watch)
    assert "The LocalProcessLauncher of this application has the clients of another run" in refused[0]
    assert result.lost_clients == ()
    for one in (result, second.run()):
        assert in_order(one.table("joined")).equals(in_order(plain_join(left, right)))


# Watching.


class _Told:
    """Collects what a watcher tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, what: Any) -> None:
        with self._changed:
            self.found.append(what)
            self._changed.notify_all()

    def wait_for(self, is_there: Callable[[list[Any]], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: is_there(self.found), timeout=60), self.found


def test_a_watcher_tells_of_ends_that_move_and_of_nothing_else(tmp_path: Path) -> None:
    rows = pa.table({"key": [1, 2, 3]})
    topics = {name: write_topic(tmp_path, name, rows, partitions=1, key="key") for name in ("a", "b")}
    told = _Told()
    watcher = Watcher(topics, interval_s=0.001, patience_s=60)
    watcher.start(told)
    try:
        told.wait_for(lambda found: len(found) == 1)
        append_topic(tmp_path, "b", rows)
        told.wait_for(lambda found: len(found) == 2)
        watcher.look("marker")
        told.wait_for(lambda found: len(found) == 3)
    finally:
        watcher.stop()
    assert told.found == [Moved({"a": [3], "b": [3]}), Moved({"b": [6]}), Moved({}, ("marker",))]


class _OneByOne:
    """Part of a log: several are looked at one after the other."""

    @classmethod
    def refresh_at_once(cls, logs: Sequence[Any]) -> None:
        for log in logs:
            log.refresh()


class _Long(_OneByOne):
    """A log at which a look takes so many seconds of processor time: the last of them again and again."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)
        self._ended_s = 0.0
        self._pauses_s: list[float] = []
        self.was_seen_often = threading.Event()

    def refresh(self) -> None:
        self._pauses_s.append(time.monotonic() - self._ended_s)
        if len(self._pauses_s) > 10:
            self.was_seen_often.set()
        until = time.thread_time() + (self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0])
        while time.thread_time() < until:
            pass
        self._ended_s = time.monotonic()

    def end_offsets(self) -> list[int]:
        return []

    def check(self, starts: object) -> None:
        pass

    start_offsets = end_offsets

    def pauses(self) -> list[float]:
        """After each look, seconds."""
        watcher = Watcher({"a": cast(Log, self)}, interval_s=0.001, patience_s=60)
        watcher.start(_Told())
        try:
            assert self.was_seen_often.wait(60)
        finally:
            watcher.stop()
        return self._pauses_s[1:]


def test_a_watcher_does_not_keep_a_processor_busy_where_a_look_is_long() -> None:
    """A thousand partitions of a topic of Kafka took a quarter of one all the time, though nothing came."""
    assert sum(_Long(0.01).pauses()[3:]) > 7 * 0.01 * 8


def test_a_look_that_met_something_else_makes_no_long_pause() -> None:
    """As a collection of garbage, of 50 ms; new rows were seen half a second later then."""
    assert _Long(0.0, 0.0, 0.5, 0.0).pauses()[2] < 0.5 * 9


def test_a_watcher_tells_whatever_ends_it() -> None:
    """As a log of somebody else's may raise; the run would go on, and see nothing of what comes."""

    class Exiting(_OneByOne):
        def refresh(self) -> None:
            sys.exit("no licence")

    told, log = _Told(), Exiting()
    Watcher({"a": log}, interval_s=0.001, patience_s=0.01).start(told)  # type: ignore[dict-item]
    told.wait_for(lambda found: len(found) == 1)
    assert str(told.found[0]) == "SystemExit: no licence"


def test_a_watcher_tells_of_what_it_saw_before_a_look_that_failed(tmp_path: Path) -> None:
    """It was lost until that topic grew once more; and a marker of that look was taken for reached without it."""
    rows = pa.table({"key": [1]})
    topics = {name: write_topic(tmp_path, name, rows, partitions=1, key="key") for name in ("a", "b")}
    told = _Told()
    has_failed = threading.Event()

    class Failing(_OneByOne):
        """The topic b, which cannot be read once after a has grown."""

        def __getattr__(self, name: str) -> Any:
            return getattr(topics["b"], name)

        def refresh(self) -> None:
            if topics["a"].end_offsets() == [2] and not has_failed.is_set():
                has_failed.set()
                raise TopicException("it is away")
            topics["b"].refresh()

    watcher = Watcher({"a": topics["a"], "b": Failing()}, interval_s=0.001, patience_s=60)
    watcher.start(told)
    try:
        told.wait_for(lambda found: len(found) == 1)
        append_topic(tmp_path, "a", rows)
        assert has_failed.wait(60)
        watcher.look("marker")
        told.wait_for(lambda found: any("marker" in moved.markers for moved in found))
    finally:
        watcher.stop()
    assert [moved.ends for moved in told.found if moved.ends] == [{"a": [1], "b": [1]}, {"a": [2]}]


def test_a_watcher_gives_up_when_a_topic_has_gone_for_good(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "a", pa.table({"key": [1]}), partitions=1, key="key")
    (tmp_path / "a").rename(tmp_path / "gone")
    told = _Told()
    watcher = Watcher({"a": topic}, interval_s=0.001, patience_s=0.01)
    watcher.start(told)
    told.wait_for(bool)
    (error,) = told.found
    assert isinstance(error, TopicException)
    assert "There is no topic 'a'" in str(error)


def test_a_watcher_tells_of_whatever_ends_it(tmp_path: Path) -> None:
    """A thread that has died of a bug tells nobody of new rows, and the run would wait for ever."""

    class Broken(_OneByOne):
        def refresh(self) -> None:
            raise KeyError("a bug")

    told = _Told()
    Watcher({"a": Broken()}, interval_s=0.001, patience_s=0.01).start(told)  # type: ignore[dict-item]
    told.wait_for(bool)
    (error,) = told.found
    assert isinstance(error, TopicException)
    assert str(error) == "KeyError: 'a bug'"


def test_a_watcher_tells_also_of_what_ends_it_between_two_looks(tmp_path: Path) -> None:
    """As where there is no memory for a lock to wait with."""

    def fail(_: float) -> None:
        raise MemoryError

    topic, told = write_topic(tmp_path, "a", pa.table({"key": [1]}), partitions=1, key="key"), _Told()
    watcher = Watcher({"a": topic}, interval_s=0.001, patience_s=60)
    over: Any = SimpleNamespace(is_set=lambda: False, wait=fail)
    watcher._is_over = over
    watcher.start(told)
    told.wait_for(lambda found: len(found) == 2)
    assert isinstance(told.found[1], TopicException)
    assert str(told.found[1]) == "It cannot be seen any more how far the sources reach: MemoryError"


def test_a_topic_that_was_written_anew_is_noticed_whatever_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"key": [1]})
    topic = write_topic(tmp_path, "a", rows, partitions=1, key="key")
    assert topic.end_offsets() == [1]
    (tmp_path / "a").rename(tmp_path / "gone")
    write_topic(tmp_path, "a", rows, partitions=1, key="key")
    monkeypatch.setattr("task_assignor.runtime.topics.topic._LOOK_INSIDE_S", 0)
    with pytest.raises(TopicException, match="written anew"):
        topic.refresh()
    assert Topic.open(tmp_path, "a").end_offsets() == [1]


def test_a_stop_that_is_requested_while_the_run_opens_what_it_needs_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from another thread, while brokers are waited for: there was no run to be ended, and then it went on for ever."""
    write_streams(tmp_path / "topics", rows=100, keys=10)
    app, told = application(tmp_path, join_topology(), clients=1), list[bool]()
    prepare = FolderTopics.prepare

    def prepared(topics: FolderTopics, *given: Any, **more: Any) -> None:
        told.append(app.request_stop("not now"))
        prepare(topics, *given, **more)

    monkeypatch.setattr(FolderTopics, "prepare", prepared)
    watch = Watch()
    # Else it would go on for ever.
    watch.on(BatchesCommitted, lambda _: app.request_stop("it goes on"))
    assert app.run(watch, until="stopped").stopped == "not now"
    assert (told, app.request_stop()) == ([True], False)
