"""Clients as processes of a program that does with its processes what it wants."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from task_assignor.runtime import (
    ClientException,
    LaunchPlan,
    LocalProcessLauncher,
    Metrics,
    SubTopology,
    Topology,
    metrics_on_port,
)
from task_assignor.runtime.storage import LocalStorage
from tests.runtime.support import PATIENCE_S
from tests.runtime.test_launcher import Sleepless, _bootstrap


class _Tells:
    """Says in the process where it comes to what becomes of signals of children."""

    def __reduce__(self) -> Any:
        return _tell, ()


def _tell() -> None:
    raise ClientException(f"here it is {signal.getsignal(signal.SIGCHLD)!r}")


def test_the_end_of_a_client_is_seen_where_who_started_the_program_ignores_such_ends(tmp_path: Path) -> None:
    """It is inherited; no client that had died was started again, and the end of each run took half a minute more."""
    launcher, before = LocalProcessLauncher(start_method="spawn"), signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    topology = Topology([SubTopology("mine", "left", functools.partial(Sleepless, _Tells()))])
    try:
        launcher.add(attrs.evolve(_bootstrap(tmp_path), topology=topology))
        launcher._processes["c"].join(60)
        (end,) = launcher.exits()
        assert end.reason == f"ClientException: here it is {signal.SIG_DFL!r}", "a client hears of its own"
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN, "what the program wants stays"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_end_of_a_client_is_seen_where_the_program_waits_for_all_its_processes(tmp_path: Path) -> None:
    """As those do that clear up after others; no client that had died was started again, and the end of each run took half a minute more."""
    launcher = LocalProcessLauncher()
    launcher.add(_bootstrap(tmp_path))
    pid = launcher.pids["c"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert launcher.pids == {}
    launcher.stop(0)
    launcher.add(_bootstrap(tmp_path))
    pid = launcher.pids["c"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    (end,) = launcher.exits()
    assert end.reason.startswith(
        "exit code 255, or how nobody has told: maybe this program waits for all its processes"
    )


def _end_of_client(root: Path) -> str:
    launcher = LocalProcessLauncher(start_method="forkserver")
    launcher.add(_bootstrap(root))
    launcher._processes["c"].join(PATIENCE_S)
    return launcher.exits()[0].reason


def test_a_process_that_was_forked_from_one_with_a_fork_server_has_its_own(tmp_path: Path) -> None:
    """A worker of a service whose first process has had a run: `No child processes. Maybe allow for more processes`."""
    assert "There is no topic 'left'" in _end_of_client(tmp_path)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as forked:
        assert "There is no topic 'left'" in forked.submit(_end_of_client, tmp_path).result(PATIENCE_S)
    assert "There is no topic 'left'" in _end_of_client(tmp_path)


def test_who_is_forked_during_a_run_keeps_neither_its_folder_nor_the_port_of_its_metrics(tmp_path: Path) -> None:
    """Workers of a pool live longer: `Another coordinator runs on` was said of the folder from then on."""
    storage = LocalStorage(tmp_path)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        with storage.hold("lock"), metrics_on_port(Metrics("shop")) as port:
            pool.submit(os.getpid).result(PATIENCE_S)
            with pytest.raises(BlockingIOError), LocalStorage(tmp_path).hold("lock"):
                pass
        with storage.hold("lock"), metrics_on_port(Metrics("shop"), port):
            pass


def test_a_run_goes_on_in_another_thread_when_the_main_one_has_ended(tmp_path: Path) -> None:
    """`RuntimeError: cannot schedule new futures after interpreter shutdown`, at the first checkpoint: after 256 commits."""
    program = (
        "import threading\nfrom pathlib import Path\n"
        "from task_assignor.runtime import LocalProcessLauncher, RuntimeOptions\n"
        "from tests.runtime.support import application, count_topology, write_streams\n"
        "if __name__ == '__main__':\n"
        f"    root = Path({str(tmp_path)!r})\n"
        "    write_streams(root / 'topics', rows=400, keys=10)\n"
        "    options = RuntimeOptions(max_batch_rows=20, checkpoint_every_commits=2)\n"
        "    app = application(root, count_topology(), options=options)\n"
        "    threading.Thread(target=lambda: print(app.run().rows_in)).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("400\n", "")


def _try_to_start(root: Path) -> str:
    try:
        LocalProcessLauncher().start(LaunchPlan("x", "x", (_bootstrap(root),), is_continuous=False))
    except ClientException as error:
        return str(error)
    return ""


def test_a_process_that_may_have_no_others_says_so(tmp_path: Path) -> None:
    """A traceback: `AssertionError: daemonic processes are not allowed to have children`."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert "this one is a daemon of multiprocessing, such as a worker of its Pool or of Celery" in pool.apply(
            _try_to_start, (tmp_path,)
        )
