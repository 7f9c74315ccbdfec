"""Processors, assignors and clients that raise strange things, hang, or do not end: the run goes on or ends with a clear error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from task_assignor.group import AssignmentRejectedException
from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientJoined,
    ClientLost,
    LocalProcessLauncher,
    Processor,
    ProcessorException,
    RunFinished,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    Topology,
    TopologyException,
    write_topic,
)
from task_assignor.runtime.topics.topic import FolderTopics
from task_assignor.sdk import ConfigException
from tests.processes import alive
from tests.runtime import assignors, trouble
from tests.runtime.support import QUICK, Watch, application, settings, stream

ROWS = 1_000
# Twice what a machine may stand still for, since each client that is lost counts; a hang costs it once.
HANGING = attrs.evolve(QUICK, max_poll_interval_ms=4_000, max_attempts=2)


def _application(
    root: Path, processor: Callable[[], Processor], *, partitions: int = 1, **more: Any
) -> StreamsApplication:
    rows = stream(ROWS, keys=20, seed=1)
    write_topic(root / "topics", "left", rows, partitions=partitions, key=["key"], timestamp="at")
    topology = Topology([SubTopology("troubled", "left", processor, [], ["out"])])
    more.setdefault("clients", 1)
    return application(root, topology, **more)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that processors leave behind."""
    path = tmp_path / "mark"
    monkeypatch.setenv("TROUBLE_MARK", str(path))
    return path


def _spawned() -> LocalProcessLauncher:
    """Its clients see the environment as it is now; a fork server has that of the first test."""
    return LocalProcessLauncher(start_method="spawn")


# What is raised.


@pytest.mark.parametrize(
    ("processor", "told", "code"),
    [
        (trouble.Exits, "SystemExit: no licence", 'sys.exit("no licence")'),
        (trouble.Interrupts, "KeyboardInterrupt", "raise KeyboardInterrupt"),
        (trouble.Closes, "GeneratorExit: done", 'raise GeneratorExit("done")'),
        (trouble.Panics, "PanicException: index out of bounds", 'raise PanicException("index out of bounds")'),
        (trouble.Speechless, "__str__ raised SystemExit", "raise SpeechlessError"),
        (trouble.Ambiguous, "AmbiguousError: too many values", 'raise AmbiguousError("too many values")'),
        (trouble.Talks, "characters left out", 'raise ValueError("x" * 100_000_000)'),
        (trouble.CountsBack, "given were 'rows' and -1", 'context.count("rows", -1)'),
        (trouble.Counts, "TopologyException: A counter has a text as name", 'context.count("rows", threading.Lock())'),
    ],
)
def test_whatever_a_processor_raises_ends_the_run_with_its_line(
    tmp_path: Path, processor: type, told: str, code: str
) -> None:
    with pytest.raises(ProcessorException) as caught:
        _application(tmp_path, processor).run()
    error = caught.value
    message = str(error)
    assert f"The processor {processor.__name__} of sub-topology 'troubled' failed in task 0_0, batch 3" in message
    assert told in message
    assert len(message) < 20_000
    assert error.line is not None
    assert (error.line.file, error.line.function) == (trouble.__file__, f"{processor.__name__}.trouble")
    assert error.line.code.startswith(code)
    assert f'File "{trouble.__file__}", line {error.line.line}, in {processor.__name__}.trouble: {code}' in message
    (note,) = error.__notes__
    assert "The traceback on client-1:\nTraceback (most recent call last)" in note
    assert len(note) < 20_000


# What hangs.


@pytest.mark.thorough
def test_a_processor_that_always_hangs_ends_the_run(tmp_path: Path) -> None:
    watch = Watch()
    with pytest.raises(ClientException) as caught:
        _application(tmp_path, trouble.Hangs, clients=2, options=HANGING).run(watch)
    for part in (
        "Task 0_0, batch 3 (topic left, partition 0, offsets 600 to 799) was lost 2 times together with its client",
        "the processor Hangs has not returned from task 0_0 for 4000 ms, which is the limit max.poll.interval.ms",
        "Maybe it waits",
    ):
        assert part in str(caught.value)
    assert len(watch.of(ClientLost)) == 2
    assert not [event.pid for event in watch.of(ClientJoined) if alive(event.pid)]


@pytest.mark.parametrize("processor", [trouble.HangsOnce, pytest.param(trouble.HangsInC, marks=pytest.mark.thorough)])
def test_a_client_that_hangs_is_killed_and_its_task_done_elsewhere(
    tmp_path: Path, mark: Path, processor: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that never gives Python's lock back, and so cannot be asked to end."""
    watch = Watch()
    app = _application(tmp_path, processor, clients=2, options=HANGING, launcher=_spawned(), partitions=2)
    died: list[float] = []

    def wait_for_its_end(event: ClientLost) -> None:
        (pid,) = [each.pid for each in watch.of(ClientJoined) if each.member_id == event.member_id]
        deadline = time.monotonic() + 60
        while alive(pid) and time.monotonic() < deadline:
            app._launcher.exits()  # it is a child of this process, and a zombie until then
            time.sleep(0.01)
        assert not alive(pid)
        died.append(time.monotonic())

    watch.on(ClientLost, wait_for_its_end)
    if processor is trouble.HangsInC:
        with pytest.raises(ClientException, match="the processor HangsInC has not returned from task"):
            app.run(watch)
        assert len(died) == 2
    else:
        assert app.run(watch).table("out").num_rows == ROWS
        assert len(died) == 1


@pytest.mark.parametrize(
    ("processor", "in_restores", "what"),
    [
        (
            trouble.KeepsTheBatchAndExits,
            True,
            "the restore of task 0_0 has not got on for 4000 ms: the store 'hanging' makes the changes of batch 0, ",
        ),
        pytest.param(
            trouble.KeepsTheBatch,
            False,
            "the snapshot of task 0_0 has not got on for 4000 ms: the store 'hanging' is saved, ",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_store_that_always_hangs_ends_the_run(tmp_path: Path, processor: type, in_restores: bool, what: str) -> None:
    keys, values = pa.schema({"key": pa.string()}), pa.schema({"value": pa.int64()})
    store = trouble.HangingStoreSpec("hanging", keys, values, in_restores=in_restores)
    write_topic(tmp_path / "topics", "left", stream(ROWS, keys=20, seed=1), partitions=1, key=["key"], timestamp="at")
    snapshots = 0 if in_restores else 1
    options = attrs.evolve(HANGING, snapshot_changelog_bytes=snapshots)
    topology = Topology([SubTopology("troubled", "left", processor, [store], ["out"])])
    watch = Watch()
    with pytest.raises(ClientException) as caught:
        application(tmp_path, topology, clients=1, options=options).run(watch)
    message = str(caught.value)
    assert message.startswith("Task 0_0, batch ")
    assert " was lost 2 times together with its client (the last: client-1, " in message
    assert f"{what}which is the limit max.poll.interval.ms" in message
    assert not [event.pid for event in watch.of(ClientJoined) if alive(event.pid)]


def test_holding_pythons_lock_past_the_session_timeout_costs_no_membership(tmp_path: Path) -> None:
    options = attrs.evolve(QUICK, session_timeout_ms=3_000)
    watch = Watch()
    result = _application(tmp_path, trouble.HogsTheLock, options=options).run(watch)
    assert result.table("out").num_rows == ROWS
    assert watch.of(ClientLost) == []


@pytest.mark.thorough
def test_a_client_that_cannot_be_closed_does_not_delay_the_end(tmp_path: Path) -> None:
    watch = Watch()
    finished: list[float] = []
    watch.on(RunFinished, lambda _: finished.append(time.monotonic()))
    _application(tmp_path, trouble.HangsAtTheEnd, clients=2, partitions=2).run(watch)
    assert time.monotonic() - finished[0] < 30
    assert not [event.pid for event in watch.of(ClientJoined) if alive(event.pid)]


@pytest.mark.thorough
def test_a_stopped_client_does_not_delay_the_end(tmp_path: Path) -> None:
    watch = Watch()
    finished: list[float] = []
    watch.on(RunFinished, lambda _: finished.append(time.monotonic()))
    watch.on(RunFinished, lambda _: os.kill(watch.of(ClientJoined)[0].pid, signal.SIGSTOP))
    _application(tmp_path, trouble.Prints, clients=2, partitions=2).run(watch)
    assert time.monotonic() - finished[0] < 30
    assert not [event.pid for event in watch.of(ClientJoined) if alive(event.pid)]


@pytest.mark.thorough
def test_a_stop_that_is_requested_does_not_wait_for_a_batch_that_hangs(tmp_path: Path) -> None:
    watch = Watch()
    app = _application(tmp_path, trouble.Hangs, options=attrs.evolve(QUICK, stop_timeout_ms=300))
    watch.on(BatchesCommitted, lambda event: app.request_stop("enough") if event.remaining == 400 else None)
    asked: list[float] = []
    watch.on(BatchesCommitted, lambda _: asked.append(time.monotonic()))
    result = app.run(watch)
    assert result.table("out").num_rows == 600
    assert time.monotonic() - asked[-1] < 60


def test_a_stop_does_not_wait_for_topics_that_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers were away: they were waited for for a minute, to see whether they still had what the next run looks for, too."""
    is_over, missed = threading.Event(), list[bool]()
    monkeypatch.setattr(FolderTopics, "check_results", lambda *_: missed.append(not is_over.wait(60)))
    watch = Watch()
    app = _application(tmp_path, trouble.Prints, options=attrs.evolve(QUICK, stop_timeout_ms=300))
    watch.on(BatchesCommitted, lambda _: app.request_stop("enough"))
    assert app.run(watch).stopped == "enough"
    is_over.set()
    assert not any(missed), "nobody waits for it"
    assert "The run was stopped (enough), and " in caplog.text
    assert "did not say within 300 ms whether all is still there" in caplog.text


@pytest.mark.parametrize(
    "assignor", ["HangingAssignor", pytest.param("ScatteringAssignor", marks=pytest.mark.thorough)]
)
def test_ctrl_c_ends_a_run_that_hangs(tmp_path: Path, assignor: str) -> None:
    """In the assignor, or in a processor."""
    stream_rows = stream(ROWS, keys=20, seed=1)
    write_topic(tmp_path / "topics", "left", stream_rows, partitions=1, key=["key"], timestamp="at")
    program = tmp_path / "program.py"
    program.write_text(
        f"""
from tests.runtime.support import *
from tests.processes import alive
from tests.runtime import trouble
from pathlib import Path
from task_assignor.runtime import ClientJoined, BatchesCommitted
import attrs

def tell(event):
    if isinstance(event, (ClientJoined, BatchesCommitted)):
        print(type(event).__name__, getattr(event, "remaining", ""), flush=True)

if __name__ == "__main__":
    topology = Topology([SubTopology("troubled", "left", trouble.Hangs, [], ["out"])])
    config = settings(task_assignor_class="tests.runtime.trouble.{assignor}")
    options = attrs.evolve(QUICK, stop_timeout_ms=300)
    result = application(Path({str(tmp_path)!r}), topology, clients=1, config=config, options=options).run(tell)
    print("stopped by", result.stopped)
""",
        encoding="utf-8",
    )
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        process_group=0,
    )
    assert process.stdout is not None
    last = "ClientJoined" if assignor == "HangingAssignor" else "BatchesCommitted 400"
    for line in process.stdout:
        if line.startswith(last):
            break
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    try:
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "stopped by Ctrl-C" in said, errors
    assert time.monotonic() - begin < 40


def test_an_assignor_that_never_decides_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = attrs.evolve(QUICK, assignor_timeout_ms=300)
    config = settings(task_assignor_class=f"{trouble.__name__}.HangingAssignor")
    with pytest.raises(
        AssignmentRejectedException, match=r"HangingAssignor has not decided in 300 ms, .* assignor_timeout_ms"
    ):
        _application(tmp_path, trouble.Prints, options=options, config=config).run()
    deadline = time.monotonic() + 30
    while any(thread.name == "assignor" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "assignor" not in {thread.name for thread in threading.enumerate()}
    assert "is given up; it was at tests.runtime.trouble.HangingAssignor.assign, line " in caplog.text


@pytest.mark.parametrize(
    ("assignor", "told"),
    [
        ("ExitingAssignor", "The assignor ExitingAssignor failed with SystemExit: 3"),
        ("LaterAssignor", "returned a coroutine, not a TaskAssignment. Maybe write `def assign`"),
    ],
)
def test_an_assignor_that_does_not_answer_is_named(tmp_path: Path, assignor: str, told: str) -> None:
    config = settings(task_assignor_class=f"{trouble.__name__}.{assignor}")
    with pytest.raises(AssignmentRejectedException, match=told):
        _application(tmp_path, trouble.Prints, config=config).run()


def test_clients_of_an_assignment_that_is_refused_are_named(tmp_path: Path) -> None:
    """It had their process ids, which nobody knows."""
    config = settings(task_assignor_class=f"{assignors.__name__}.GenerousAssignor")
    with pytest.raises(AssignmentRejectedException, match="Task 0_0 is active on client-1, but also on client-2"):
        _application(tmp_path, trouble.Prints, clients=2, config=config).run()


def test_more_clients_cannot_be_waited_for_than_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match=r"min_clients \(3\) .* at most the number of clients, which is 2"):
        _application(tmp_path, trouble.Prints, clients=2, options=RuntimeOptions(min_clients=3))


# What strangers do.


@pytest.mark.parametrize("processor", [trouble.Forks, trouble.ClosesStdout, trouble.LeavesThreads])
def test_a_processor_may_fork_close_files_and_leave_threads(tmp_path: Path, processor: type) -> None:
    result = _application(tmp_path, processor).run()
    assert sorted(result.table("out").column("value").to_pylist()) == sorted(f"1-{n}" for n in range(ROWS))


def test_a_child_of_a_processor_that_is_closed_ends_where_it_comes_out(tmp_path: Path, mark: Path) -> None:
    """It waited for ever for the jobs of a client that it is not."""
    result = _application(tmp_path, trouble.ForksAtTheEnd, launcher=_spawned()).run()
    assert result.table("out").num_rows == ROWS
    child, deadline = int(mark.read_text()), time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    is_there = alive(child)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    assert not is_there


@pytest.mark.parametrize("listener", ["on_event", "on_line"])
def test_a_child_of_a_listener_is_no_second_coordinator(tmp_path: Path, listener: str) -> None:
    """It went on as one, held the folder of the run after its end, and could commit what its parent was to commit."""
    children: list[int] = []
    told = tmp_path / "the child was told"

    def fork(_: object) -> None:
        if not children:
            children.append(os.fork())
        elif not children[0]:
            told.touch()

    more: dict[str, Any] = {listener: fork}
    assert _application(tmp_path, trouble.Prints).run(**more).table("out").num_rows == ROWS
    os.waitpid(children[0], 0)
    assert not told.exists()


def test_a_killed_client_is_missed_at_once_although_a_child_of_it_lives(tmp_path: Path, mark: Path) -> None:
    """The child has the client's connection too, so that it does not break."""
    watch = Watch()
    launcher = _spawned()
    # Many batches are left when it is killed: it must not have answered the last one by then.
    options = attrs.evolve(QUICK, session_timeout_ms=60_000, max_batch_rows=10)
    app = _application(tmp_path, trouble.ForksADaemon, options=options, launcher=launcher)
    killed: list[int] = []

    def kill(_: BatchesCommitted) -> None:
        if mark.exists() and not killed:
            pid = launcher.pids["client-1"]
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # some kernels take their time

    watch.on(BatchesCommitted, kill)
    try:
        result = app.run(watch)
        assert result.table("out").num_rows == ROWS
        assert [event.reason for event in watch.of(ClientLost)] == ["its process has ended"]
    finally:
        os.kill(int(mark.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("processor", [trouble.ExitsHard, trouble.ClosesEverything])
def test_a_process_that_always_ends_itself_is_given_up(tmp_path: Path, processor: type) -> None:
    options = attrs.evolve(QUICK, max_attempts=2)
    with pytest.raises(ClientException, match=r"Task 0_0, batch 3 .* was lost 2 times together with its client"):
        _application(tmp_path, processor, options=options).run()


def test_what_a_processor_prints_reaches_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _application(tmp_path, trouble.Prints, launcher=_spawned()).run().rows_in == ROWS
    assert "processing 0_0\n" in capfd.readouterr().out


# What is sent to other processes.


def test_lambdas_and_local_classes_are_processors_too(tmp_path: Path) -> None:
    class Local(trouble.Troubled):
        """Known to this function only."""

    made = _application(tmp_path, lambda: Local()).run()  # noqa: PLW0108 - a lambda is the point
    assert made.table("out").num_rows == ROWS


def test_a_processor_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()

    class Locked(trouble.Troubled):
        """Holds what only this process has."""

        lock_of_mine = lock

    with pytest.raises(TopologyException, match=r"Locked of the sub-topology 'troubled' cannot be sent .* in init\(\)"):
        _application(tmp_path, Locked).run()


NOTEBOOK = """
import threading
from pathlib import Path
from task_assignor.runtime import Processor, StreamsApplication, SubTopology, Topology
from tests.runtime.support import settings, QUICK
{lock}

class Cell(Processor):
    def process_batch(self, batch, context):
        {use}
        print("in", context.task_id)
        return batch["left"]

def main():
    topology = Topology([SubTopology("cells", "left", Cell, [], ["out"])])
    print(StreamsApplication(
        topology, settings(), topics_root="topics", run_dir="run", clients=1, options=QUICK
    ).run().rows_out)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("kind", ["notebook", "script"])
def test_classes_of_a_notebook_run_and_so_do_those_of_a_script_with_a_lock(tmp_path: Path, kind: str) -> None:
    """There is no file of the former that another process could import; the latter cannot go by value."""
    write_topic(tmp_path / "topics", "left", stream(ROWS, 20, 1), partitions=1, key=["key"], timestamp="at")
    is_script = kind == "script"
    lock = "LOCK = threading.Lock()" if is_script else ""
    program = NOTEBOOK.format(lock=lock, use="LOCK.acquire(); LOCK.release()" if is_script else "pass")
    (tmp_path / "app.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "app.py" if is_script else "-"],
        input=None if is_script else program,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(ROWS) in done.stdout.splitlines()
    assert "in 0_0" in done.stdout.splitlines(), "what it prints is seen, although the output is no terminal"


def test_why_a_client_cannot_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text(
        "from tests.runtime.trouble import Troubled\n\nclass Copy(Troubled):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = _application(tmp_path, __import__("only_here").Copy, launcher=_spawned())
    (tmp_path / "only_here.py").unlink()
    with pytest.raises(ClientException, match="No module named 'only_here'"):
        app.run()
    sys.modules.pop("only_here")
