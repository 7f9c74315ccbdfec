"""What launchers are handed, and what happens when they fail."""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe, forkserver, spawn
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from task_assignor.runtime import (
    ClientBootstrap,
    ClientException,
    ClientExit,
    ClientSpec,
    LaunchPlan,
    LocalProcessLauncher,
    RunFailed,
    RuntimeOptions,
    SubTopology,
    Topology,
)
from task_assignor.runtime.machines.client.task import Job, JobKind
from task_assignor.runtime.machines.client.values import (
    ClientEvent,
    ClientInstruction,
    End,
    HeartbeatDue,
    Outcome,
    RunJob,
)
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase
from task_assignor.runtime.machines.events import ClientJoined, ClientLeft, ClientLost
from task_assignor.runtime.shells import heartbeat, local
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.clients import Clients
from task_assignor.runtime.shells.heartbeat import Heartbeats
from task_assignor.runtime.shells.local import FORKED
from task_assignor.runtime.topics.topic import FolderTopics
from task_assignor.sdk import ConfigException, HostInfo, StreamsException, TaskId
from tests.runtime.support import PATIENCE_S, QUICK, Watch, application, join_topology, settings, write_streams
from tests.runtime.trouble import SpeechlessError, Troubled


class Idle(LocalProcessLauncher):
    """Starts nothing, and says what it is told to say."""

    def __init__(self, exits: Sequence[ClientExit] = (), error: Exception | None = None) -> None:
        super().__init__()
        self._exits, self._error = exits, error
        self.replaced: list[str] = []
        self.plan: LaunchPlan | None = None
        self.is_stopped = False

    def start(self, plan: LaunchPlan) -> None:
        self.plan = plan

    def replace(self, client: str) -> None:
        self.replaced.append(client)

    def exits(self) -> list[ClientExit]:
        if self._error is not None:
            raise self._error
        return list(self._exits)

    def stop(self, timeout_s: float) -> None:
        self.is_stopped = True


def _run(root: Path, launcher: Idle, **more: Any) -> str:
    write_streams(root / "topics", rows=100, keys=10)
    watch = Watch()
    with pytest.raises(StreamsException) as caught:
        application(root, join_topology(), launcher=launcher, **more).run(watch)
    assert [event.message for event in watch.of(RunFailed)] == [str(caught.value)]
    assert launcher.is_stopped
    return str(caught.value)


def test_a_client_whose_processes_end_before_they_join_fails_the_run(tmp_path: Path) -> None:
    launcher = Idle([ClientExit("client-2", "exit code 1")])
    message = _run(tmp_path, launcher)
    assert "The process of client-2 ended 3 times in a row before it joined (the last time: exit code 1)" in message
    assert message.endswith('a script needs `if __name__ == "__main__":`.')
    assert launcher.replaced == ["client-2", "client-2"]
    # Where it is known why, that is no advice.
    reason = "ClientException: No module named 'x'. Maybe install it"
    assert _run(tmp_path / "2", Idle([ClientExit("client-2", f"{reason}.")])).endswith(f"(the last time: {reason}).")


def test_an_engine_that_gives_up_fails_the_run(tmp_path: Path) -> None:
    assert _run(tmp_path, Idle(error=ClientException("the job was aborted"))) == "the job was aborted"


def test_an_engine_that_is_gone_is_told_with_what_its_launcher_raised(tmp_path: Path) -> None:
    """As Py4J's, when Spark's JVM has ended: nobody knew which part of the program it was from."""
    said = _run(tmp_path, Idle(error=ConnectionRefusedError(111, "Connection refused")))
    assert said == (
        "The Idle does not say any more how its clients are: ConnectionRefusedError: [Errno 111] Connection refused. Maybe what "
        "they run in has ended."
    )


class Half(LocalProcessLauncher):
    """Starts its first client only, and notes whom it shall end."""

    def __init__(self) -> None:
        super().__init__(start_method="forkserver")
        self.removed: list[str] = []

    def start(self, plan: LaunchPlan) -> None:
        self.add(plan.bootstraps[0])

    def remove(self, client: str) -> None:
        self.removed.append(client)
        super().remove(client)


def test_the_end_of_a_run_waits_for_members_only(tmp_path: Path) -> None:
    """Who has not joined, or was lost, would look for the coordinator in vain for as long as it is waited for."""
    write_streams(tmp_path / "topics", rows=100, keys=10)
    launcher = Half()
    options = attrs.evolve(QUICK, min_clients=1)
    result = application(tmp_path, join_topology(), launcher=launcher, options=options).run()
    assert result.rows_in == 150
    assert launcher.removed == ["client-2"]


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("told", [ClientLeft("b", "b-1", "SIGTERM"), ClientLost("b", "b-1", "connection closed"), None])
def test_a_client_that_has_left_by_itself_can_be_had_again(
    is_seen_first: bool, told: ClientLeft | ClientLost | None
) -> None:
    """Its process may have ended before the coordinator, who is at a slow disk, has heard that it leaves; or before it has joined."""
    specs = {name: ClientSpec(name) for name in ("a", "b")}
    wanted, ended, started = dict(specs), list[ClientExit](), list[str]()

    class Launcher(Idle):
        def exits(self) -> list[ClientExit]:
            found, ended[:] = list(ended), []
            return found

        def add(self, bootstrap: Any) -> None:
            started.append(bootstrap)

    coordinator: Any = SimpleNamespace(phase=CoordinatorPhase.RUNNING)
    server: Any = None
    bootstrap: Any = attrgetter("name")
    clients = Clients(Launcher(), server, lambda: [*wanted.values()], bootstrap, None, wanted.__delitem__)
    for name in specs if told else ["a"]:
        clients.watch(ClientJoined(name, "", f"{name}-1", "", "", 1))
    for happens in (True, False) if is_seen_first else (False, True):
        if happens:
            ended.append(ClientExit("b", "it was told to", has_left=True))
        elif told:
            clients.watch(told)
        clients.look_after(coordinator)
    assert (list(wanted), started) == (["a"], [])
    wanted["b"] = specs["b"]
    clients.look_after(coordinator)
    assert started == ["b"]


@pytest.mark.parametrize("ends", [1, 9])
def test_a_fork_server_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int) -> None:
    """SIGTERM to the whole group while it was importing ended it, and the run with an EOFError."""
    told = iter([EOFError("unexpected EOF")] * ends)
    heard = forkserver.read_signed

    def answer(connection: int) -> Any:
        if error := next(told, None):
            raise error
        return heard(connection)

    monkeypatch.setattr(forkserver, "read_signed", answer)
    launcher = LocalProcessLauncher(start_method="forkserver")
    if ends > 1:
        with pytest.raises(ClientException, match=r"The process of c cannot be started: EOFError: unexpected EOF\."):
            launcher.add(_bootstrap(tmp_path))
        return
    launcher.add(_bootstrap(tmp_path))
    launcher._processes["c"].join(PATIENCE_S)
    assert "There is no topic 'left'" in launcher.exits()[0].reason


def _bootstrap(root: Path) -> ClientBootstrap:
    """Of a client that looks for its topics in vain, and ends."""
    return ClientBootstrap(
        *(("127.0.0.1", 1), b"x", ClientSpec("c"), "x", "x"),
        *(join_topology(), FolderTopics(str(root)), str(root), str(root), QUICK),
    )


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_python_that_cannot_be_executed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_method: Any
) -> None:
    """Three exit codes 255 were all that was said, or `Connection refused`."""
    (tmp_path / "python").touch(0o644)
    monkeypatch.setattr(spawn, "_python_exe", os.fsencode(tmp_path / "python"))
    with pytest.raises(ClientException, match=r"Python \('.*/python'\) must be a file that this user may execute"):
        LocalProcessLauncher(start_method=start_method).add(_bootstrap(tmp_path))


def test_a_way_to_start_processes_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigException, match=r"start_method \('fork'\) must be 'spawn' or 'forkserver'"):
        LocalProcessLauncher(start_method="fork")  # type: ignore[arg-type]


def test_ctrl_c_does_not_end_a_client_that_is_still_starting(tmp_path: Path) -> None:
    """A terminal sends it to all: a fork server that was importing ended, and the run with an EOFError instead of stopping."""
    launcher = LocalProcessLauncher(start_method="spawn")
    launcher.add(_bootstrap(tmp_path))
    os.kill(launcher.pids["c"], signal.SIGINT)
    launcher._processes["c"].join(PATIENCE_S)
    (end,) = launcher.exits()
    assert "There is no topic 'left'" in end.reason, "it came so far as to look for what it reads"


@pytest.mark.parametrize(
    ("error", "warned"),
    [
        (ConnectionRefusedError(111, "Connection refused"), []),
        (OSError(11, "Resource temporarily unavailable"), ["No heartbeat process for client c: [Errno 11] "]),
    ],
)
def test_a_client_whose_coordinator_has_gone_says_nothing_of_heartbeats(
    tmp_path: Path, error: OSError, warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """After a run that had ended early its clients wrote lines after its last one."""

    def fails(member_id: str) -> Heartbeats:
        raise error

    tasks: Any = None
    ClientShell(_bootstrap(tmp_path), "x", tasks, heartbeats=fails)._start_heartbeats("c-1")
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == len(warned)
    assert all(one.startswith(expected) for one, expected in zip(told, warned, strict=True))


class _NoTasks:
    def is_due(self, _: TaskId) -> bool:
        return False

    def close(self) -> None:
        """There are none."""


def test_a_heartbeat_is_due_also_where_there_always_is_something_else_to_hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would hear how far a long restore is, and it would be taken for one that hangs."""
    tasks: Any = _NoTasks()
    shell = ClientShell(_bootstrap(tmp_path), "x", tasks)
    deadline = time.monotonic() + 20

    def handle(event: ClientEvent) -> list[ClientInstruction]:
        assert time.monotonic() < deadline, "nobody looks at the clock"
        shell.leave("again")
        return [End("a heartbeat is due", was_told=True)] if isinstance(event, HeartbeatDue) else []

    monkeypatch.setattr(shell._machine, "start", list)
    monkeypatch.setattr(shell._machine, "handle", handle)
    shell.leave("once")
    assert shell.run() == "a heartbeat is due"


class _Failing(_NoTasks):
    def do(self, job: Job) -> Outcome:
        raise ZeroDivisionError(job.kind.value)


def test_a_job_that_fails_where_nobody_looks_ends_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised in a thread of a pool is kept there, and the end of the job was waited for until the client was given up."""
    tasks: Any = _Failing()
    shell = ClientShell(_bootstrap(tmp_path), "x", tasks)
    deadline = time.monotonic() + 20

    def handle(_: ClientEvent) -> list[ClientInstruction]:
        assert time.monotonic() < deadline, "nobody has heard of it"
        return []

    monkeypatch.setattr(shell._machine, "start", lambda: [RunJob(Job(JobKind.CLOSE, TaskId(0, 0)))])
    monkeypatch.setattr(shell._machine, "handle", handle)
    with pytest.raises(ClientException, match=r"The process of client c ended: ZeroDivisionError: close\."):
        shell.run()


def test_a_client_that_fails_says_no_more_that_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its process goes on, as a worker of Spark does, its heartbeats went on, too."""
    ended: list[bool] = []
    tasks: Any = _NoTasks()
    heartbeats: Any = SimpleNamespace(runs=True, end=lambda: ended.append(True))
    shell = ClientShell(_bootstrap(tmp_path), "x", tasks, heartbeats=lambda _: heartbeats)
    shell._start_heartbeats("c-1")

    def handle(_: ClientEvent) -> list[ClientInstruction]:
        raise ZeroDivisionError

    monkeypatch.setattr(shell._machine, "start", list)
    monkeypatch.setattr(shell._machine, "handle", handle)
    with pytest.raises(ZeroDivisionError):
        shell.run()
    assert ended == [True]


class _Unbearable:
    """Cannot be made where it comes to, says so in an error without words, and leaves a thread behind that never ends."""

    def __reduce__(self) -> Any:
        return _unbearable, ()


def test_a_signal_without_a_name_ends_a_client_as_others_do(tmp_path: Path) -> None:
    """It ended the run: `ValueError: 40 is not a valid Signals`."""
    launcher = LocalProcessLauncher()
    launcher.add(_bootstrap(tmp_path))
    os.kill(launcher.pids["c"], 40)
    launcher._processes["c"].join(60)
    assert [end.reason for end in launcher.exits()] == ["signal 40"]


def _unbearable() -> None:
    threading.Thread(target=threading.Event().wait).start()
    raise SpeechlessError


def test_a_client_that_cannot_begin_ends_and_says_why_whatever_it_met(tmp_path: Path) -> None:
    """To log the error failed, so why was not told; and the process waited for its threads until the run gave up."""
    topology = Topology([SubTopology("mine", "left", functools.partial(Sleepless, _Unbearable()))])
    launcher = LocalProcessLauncher(start_method="forkserver")
    launcher.add(attrs.evolve(_bootstrap(tmp_path), topology=topology))
    launcher._processes["c"].join(60)
    (end,) = launcher.exits()
    assert end.reason == "SpeechlessError: (its text cannot be had: __str__ raised SystemExit)"


class Sleepless(Troubled):
    """Is given something."""

    def __init__(self, _: object) -> None:
        """It is of no use."""


def test_a_fork_server_has_what_every_client_needs_but_not_polars() -> None:
    """Pandas comes with the first conversion of pyarrow, and costs each client a third of a second if it is not there.
    Polars has threads as soon as it is imported, which a fork loses."""
    program = (
        f"import importlib, sys\nfor name in {FORKED}: importlib.import_module(name)\n"
        "import pyarrow\nbefore = set(sys.modules)\npyarrow.scalar(0)\nprint(*set(sys.modules) - before)\n"
        "print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    *later, polars = done.stdout.split()
    assert [name for name in later if not name.startswith("pyarrow.")] == []
    assert polars == "False"


def test_a_fork_server_has_no_threads_that_a_fork_would_lose(tmp_path: Path) -> None:
    """OpenBLAS ends its own before each fork and starts them when it needs them; jemalloc looks after its one, and its locks."""
    launcher = LocalProcessLauncher(start_method="forkserver")
    launcher.add(_bootstrap(tmp_path))
    server = Path(f"/proc/{launcher.pids['c']}/stat").read_text().rpartition(")")[2].split()[1]
    threads = {path.name: (path / "comm").read_text().strip() for path in Path(f"/proc/{server}/task").iterdir()}
    launcher.stop(PATIENCE_S)
    threads.pop(server)
    assert {*threads.values()} <= {"jemalloc_bg_thd"}


def test_clients_get_what_the_settings_and_specs_say(tmp_path: Path) -> None:
    launcher = Idle(error=ClientException("enough"))
    config = settings(
        num_stream_threads=3, client_rack="r1", client_tag_zone="a", application_server="host:80", application_id="mine"
    )
    _run(tmp_path, launcher, config=config, clients=2)
    assert launcher.plan is not None
    assert [bootstrap.spec.name for bootstrap in launcher.plan.bootstraps] == ["client-1", "client-2"]
    bootstrap = launcher.plan.bootstrap("client-2")
    spec = bootstrap.spec
    assert (spec.threads, spec.rack, spec.tags, str(spec.host_info)) == (3, "r1", {"zone": "a"}, "host:80")
    assert (bootstrap.address[0], bootstrap.application_id) == ("127.0.0.1", "mine")
    assert Path(bootstrap.state_dir) == tmp_path / "run" / "clients" / "client-2"
    # Those with names have it, too, where they say nothing themselves: num.stream.threads and client.rack did nothing for them.
    one = ClientSpec("one", rack="r2", tags={"cluster": "c"})
    other = ClientSpec("other", threads=1, tags={"zone": "b"}, host_info=HostInfo("there", 80))
    named = Idle(error=ClientException("enough"))
    _run(tmp_path / "named", named, config=config, clients=[one, other])
    assert named.plan is not None
    assert [
        (found.spec.threads, found.spec.rack, found.spec.tags, str(found.spec.host_info))
        for found in named.plan.bootstraps
    ] == [(3, "r2", {"zone": "a", "cluster": "c"}, "host:80"), (1, "r1", {"zone": "b"}, "there:80")]
    # Where an executor works, is not where this process does.
    folders = [ClientSpec("a", state_dir="mine"), ClientSpec("b")]
    there = Idle(error=ClientException("enough"))
    _run(tmp_path / "more", there, config=settings(state_dir="theirs", application_id="mine"), clients=folders)
    assert there.plan is not None
    assert [one.state_dir for one in there.plan.bootstraps] == [
        str(Path(name).absolute()) for name in ("mine", "theirs/b")
    ]
    again = pickle.loads(pickle.dumps(bootstrap))
    assert isinstance(again, ClientBootstrap)
    assert (again.spec, again.address, again.topology) == (
        spec,
        bootstrap.address,
        bootstrap.topology,
    )
    assert repr(bootstrap.authkey) not in repr(bootstrap)


def test_an_address_that_is_not_ours_is_named(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)
    app = application(tmp_path, join_topology(), launcher=Idle(), options=RuntimeOptions(bind_host="192.0.2.1"))
    with pytest.raises(ClientException, match=r"cannot listen on '192\.0\.2\.1'.* and advertised_host"):
        app.run()


@pytest.mark.parametrize("meanwhile", ["it starts", "it ends"])
def test_a_fork_server_that_is_stopped_goes_on(tmp_path: Path, meanwhile: str) -> None:
    """It told the end of no client, and the run waited for it for ever."""
    launcher = LocalProcessLauncher(start_method="forkserver")
    launcher.add(_bootstrap(tmp_path))
    server = Path(f"/proc/{launcher.pids['c']}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(server), signal.SIGSTOP)
    if meanwhile == "it starts":
        launcher.add(_bootstrap(tmp_path))
    launcher.stop(0)
    assert launcher.pids == {}


@pytest.mark.thorough
def test_a_script_without_a_guard_is_told_so_by_the_processes_that_run_it_again(tmp_path: Path) -> None:
    """They said that another coordinator had the folder, with a traceback each."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.runtime.support import application, join_topology, write_streams\n"
        f"root = Path({str(tmp_path)!r})\n"
        "if not (root / 'topics').exists():\n"
        "    write_streams(root / 'topics', rows=10, keys=1)\n"
        "application(root, join_topology(), clients=1, launcher=None).run()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])}
    folder = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert "its process runs the script again" in done.stderr
    assert "Another coordinator" not in done.stderr
    assert done.stderr.count("Traceback") == 1  # that of the script


@pytest.mark.thorough
def test_workers_of_the_user_hear_ctrl_c_after_a_run(tmp_path: Path) -> None:
    """They are forked from the same server, which was started with the signal blocked."""
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, signal\n"
        "from pathlib import Path\n"
        "from task_assignor.runtime import LocalProcessLauncher\n"
        "from tests.runtime.test_launcher import _bootstrap\n"
        "def blocked(found):\n"
        "    found.put(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "if __name__ == '__main__':\n"
        "    launcher = LocalProcessLauncher(start_method='forkserver')\n"
        f"    launcher.add(_bootstrap(Path({str(tmp_path)!r})))\n"
        "    launcher.stop(60)\n"
        "    context = multiprocessing.get_context('forkserver')\n"
        "    found = context.Queue()\n"
        "    context.Process(target=blocked, args=(found,)).start()\n"
        "    print(found.get(timeout=60))\n"
    )
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == "set()\n"


def test_processes_that_were_killed_and_do_not_end_are_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel may hold them, as while a disk does not answer: the end of a run waited for them for ever."""

    class Held:
        pid = 7
        _popen = SimpleNamespace(method="forkserver")

        def __init__(self, sentinel: Connection) -> None:
            self.sentinel = sentinel

        def is_alive(self) -> bool:
            return True

        def kill(self) -> None: ...

    monkeypatch.setattr(local, "_KILLED_S", 0.05)
    launcher = LocalProcessLauncher()
    reader, writer = Pipe(duplex=False)
    with reader, writer:
        launcher._processes["client-0"] = Held(reader)  # type: ignore[assignment]
        launcher.stop(0)
    assert "Killed, but not ended within 0.05 s, and not waited for: client-0 (pid 7)." in caplog.text


def _close_all_files(says: Connection) -> None:
    # All but standard input and output and what is waited for.
    os.closerange(3, says.fileno())
    os.closerange(says.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    says.close()
    signal.pause()


def test_a_client_that_has_closed_its_files_is_killed_at_the_end_of_a_run() -> None:
    """With them it had closed what says that it ends: that was waited for without end, by a call that has a timeout."""
    launcher = LocalProcessLauncher()
    reader, writer = Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_close_all_files, args=(writer,), daemon=True)
    process.start()
    writer.close()
    with reader, pytest.raises(EOFError):
        reader.recv()
    launcher._processes["client-0"] = process
    pid = process.pid
    assert pid is not None
    ends = threading.Thread(target=launcher.stop, args=(0.1,), daemon=True)
    ends.start()
    ends.join(PATIENCE_S)
    try:
        assert not ends.is_alive()
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_heartbeat_process_that_was_killed_and_does_not_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client waited for it for ever, and did not join again."""

    class Held:
        pid = 7

        def kill(self) -> None: ...

        def wait(self, timeout: float) -> None:
            raise subprocess.TimeoutExpired("beat", timeout)

    heartbeats = heartbeat.HeartbeatProcess.__new__(heartbeat.HeartbeatProcess)
    heartbeats._process = Held()  # type: ignore[assignment]
    heartbeats._channel = SimpleNamespace(release=bool)  # type: ignore[assignment]
    heartbeats.end()
    assert "The heartbeat process 7 was killed and has not ended within 5 s" in caplog.text
