"""Clients as operating system processes on this machine: `LocalProcessLauncher`."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker, spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Literal

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.shells.client_shell import run_client
from task_assignor.runtime.shells.launcher import ClientBootstrap, ClientExit, Departure, LaunchPlan, pickle_bootstrap
from task_assignor.runtime.shells.places import tags_of
from task_assignor.runtime.storage.disk import disk_errors
from task_assignor.sdk import ConfigException, StreamsException
from task_assignor.sdk.checks import check_choice, check_flag
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, shown

_log = logger_of(__name__)


_LEFT: Final = ""
"""The reason of a client that was told to end; a processor that ends its process can give none."""
FORKED: Final = ("task_assignor.runtime.shells.client_shell", "pyarrow.pandas_compat", "pandas")
"""What the fork server imports: all that clients need but polars, which must not be forked (https://docs.pola.rs/user-guide/misc/multiprocessing).
pyarrow asks for both others at its first conversion, where pandas is installed; what is not there is passed over. They bring the
threads of OpenBLAS, which ends them before each fork, and that of jemalloc, which looks after it and its locks at one."""


_FOR_OTHERS: Final = "task_assignor.runtime.shells.fork_server"
"""What it imports for the sake of other processes than clients."""
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4)
"""Between two tries to start a process."""
_NO_PROCESS: Final = "Maybe allow for more processes (ulimit -u), or set TMPDIR to a folder that can be written."
"""What to do where one cannot be started; the fork server has its socket there."""
_KILLED_S: Final = 30.0
"""So long processes that were killed are waited for: the kernel may hold one whose disk does not answer."""
_UNKNOWN: Final = 255
"""The exit code of a process of which the kernel has told somebody else; that of a fork server, too."""
_LOOK_EVERY_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.05
"""At the fork server, while it is waited for the end of processes."""


def _main(payload: bytes, reasons: Connection) -> None:
    # Ctrl-C reaches the whole process group; the application decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # Ignored, as it may be where this process comes from, it would hide how processes end that are started here.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # What a processor prints shall be seen when it is printed, also where the output is no terminal.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    code = 1
    try:
        run_client(pickle.loads(payload), f"pid {os.getpid()}")
        code = 0
        with suppress(OSError):
            reasons.send(_LEFT)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the application is told
        with suppress(OSError):
            reasons.send(text_of(error))
        _log.error("%s", error, exc_info=not isinstance(error, StreamsException))
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or nobody reads it any more
                stream.flush()
        # Threads of a job that hangs would keep the interpreter from ending.
        os._exit(code)


@contextmanager
def _kept_from_ctrl_c() -> Iterator[None]:
    """What is started meanwhile hears no Ctrl-C while it imports what it needs: a fork server would end, and a client before it could say why."""
    # It would let the signal through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forget_foreign_fork_server() -> None:
    """Python would wait for it as for a child of its own: for that of the process which this one was forked from, or one whose end it cannot see."""
    server = vars(forkserver._forkserver)  # noqa: SLF001
    pid = server.get("_forkserver_pid")
    if pid is not None and _exit_code(pid) is not None:
        with suppress(OSError):
            os.close(server["_forkserver_alive_fd"])
        server.update(dict.fromkeys(("_forkserver_pid", "_forkserver_address", "_forkserver_alive_fd")))


def _wake_fork_server() -> None:
    """While it is stopped (by SIGSTOP) it starts nobody and tells no end: both would be waited for without end."""
    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)  # noqa: SLF001
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _exit_code(child: int) -> int | None:
    """How a process ended that this one has started; None: it has not."""
    try:
        ended, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return _UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else None


def _is_alive(process: BaseProcess) -> bool:
    """Of what the kernel tells no more, since somebody else in this program has waited for it or ignores such ends, `is_alive` never sees the end."""
    if process.is_alive():
        popen = process._popen  # type: ignore[attr-defined]  # noqa: SLF001
        if popen.method != "forkserver":
            code = _exit_code(process.pid or 0)
            # Another thread may have asked, and heard it.
            popen.returncode = code if popen.returncode is None else popen.returncode
    return process.is_alive()


def _wait_for_end(process: BaseProcess, timeout_s: float) -> None:
    """Wait so long at most. `join` waits without end for a process that has closed its files, and so what tells of its end, and lives on."""
    until = time.monotonic() + timeout_s
    wait([process.sentinel], max(timeout_s, 0))
    while _is_alive(process) and (left_s := until - time.monotonic()) > 0:
        time.sleep(min(_LOOK_AGAIN_S, left_s))


def _how(code: int) -> str:
    """How a process has ended, by its exit code."""
    if code == _UNKNOWN:
        return f"exit code {code}, or how nobody has told: maybe this program waits for all its processes, or ignores SIGCHLD"
    if code >= 0:
        return f"exit code {code}"
    # Of real-time signals only the first and the last have names.
    return f"signal {signal.Signals(-code).name if -code in [*signal.Signals] else -code}"


def _forget_missing_main() -> None:
    """Of a program that Python reads from its standard input multiprocessing would look for a file `<stdin>`."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and getattr(main, "__spec__", None) is None and not Path(file).exists():
        del main.__file__


def end_if_starting() -> None:
    """End a process that `multiprocessing` starts and that runs the program anew, as it does without a guard: it would run it for ever.

    Raises:
        SystemExit: this is one, which has no use for a traceback.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(
            "A client of the application was to start here, but its process runs the script again, up to the call of run(). Maybe "
            'guard what only the first process shall do with `if __name__ == "__main__":`.'
        )


class LocalProcessLauncher:
    """One process per client, started by `multiprocessing`: a script needs `if __name__ == "__main__":`.

    Args:
        replace_lost: start another process when one has ended although nobody told it to.
        start_method: "spawn": every client begins with a fresh interpreter; "forkserver": clients are forked from a
            process that has imported what they need and nothing else, which is quicker.

    Raises:
        ConfigException: one of them is something else.
    """

    def __init__(self, *, replace_lost: bool = True, start_method: Literal["spawn", "forkserver"] = "spawn") -> None:
        # Whoever forks this process forks its threads, Arrow's and those of polars too, in whatever state they are.
        check_choice("The start_method", start_method, ("spawn", "forkserver"), ConfigException)
        check_flag("replace_lost", replace_lost, error=ConfigException)
        self._replace_lost = replace_lost
        self._context: BaseContext = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            self._context.set_forkserver_preload([*FORKED, _FOR_OTHERS])
        self._bootstraps: dict[str, ClientBootstrap] = {}
        self._processes: dict[str, BaseProcess] = {}
        self._reasons: dict[str, Connection] = {}
        """Client -> where its process says why it ends."""
        self._absent: list[str] = []
        """Those that shall not run any more, and had no process."""

    @property
    def coordinator_host(self) -> str:
        """Its clients are on this machine."""
        return "127.0.0.1"

    @property
    def pids(self) -> dict[str, int]:
        """Client -> its process, for those that run."""
        return {
            name: process.pid
            for name, process in sorted(self._processes.items())
            if process.pid is not None and _is_alive(process)
        }

    def start(self, plan: LaunchPlan) -> None:
        """Start all clients of the plan.

        Raises:
            ConfigException: the environment, which they have from this process, says nothing that tags can be.
            ClientException: this process may have none of its own.
        """
        if multiprocessing.current_process().daemon:
            raise ClientException(
                "The processes of clients cannot be started: this one is a daemon of multiprocessing, such as a worker of its Pool or of Celery, which "
                "may have none of its own. Maybe a worker of concurrent.futures.ProcessPoolExecutor, or `task-assignor run`."
            )
        for bootstrap in plan.bootstraps:
            # Else each of them would be started, and fail, several times.
            tags_of(bootstrap.spec, os.environ)
        for bootstrap in plan.bootstraps:
            self.add(bootstrap)

    def capacity(self) -> int | None:
        """As many as are wanted."""
        return None

    def add(self, bootstrap: ClientBootstrap) -> None:
        """Start one client more."""
        self._bootstraps[bootstrap.spec.name] = bootstrap
        self._start(bootstrap)

    def remove(self, client: str) -> None:
        """End the process of a client."""
        if client in self._processes:
            self._processes[client].kill()
        else:
            self._absent.append(client)

    def departing(self) -> list[Departure]:
        """None: this machine stays. A client whose process gets SIGTERM says itself that it leaves."""
        return []

    def _start(self, bootstrap: ClientBootstrap) -> None:
        with disk_errors(ClientException, f"The process of {bootstrap.spec.name} cannot be started", _NO_PROCESS):
            self._start_one(bootstrap)

    def _start_one(self, bootstrap: ClientBootstrap) -> None:
        payload = pickle_bootstrap(bootstrap)
        reader, writer = self._context.Pipe(duplex=False)
        # Before anything is imported there: polars reads it when it starts.
        before = os.environ.get("POLARS_MAX_THREADS")
        os.environ["POLARS_MAX_THREADS"] = before or "1"
        try:
            _forget_missing_main()
            process = self._started(payload, writer, bootstrap.spec.name)
        finally:
            if before is None:
                del os.environ["POLARS_MAX_THREADS"]
            writer.close()
        self._processes[bootstrap.spec.name] = process
        self._reasons[bootstrap.spec.name] = reader

    def _started(self, payload: bytes, writer: Connection, name: str) -> BaseProcess:
        # It may have gone since the last time, with the environment that it was in.
        python = os.fsdecode(spawn.get_executable() or "")
        if not (Path(python).is_file() and os.access(python, os.X_OK)):
            raise ClientException(
                f"The process of {name} cannot be started: Python ({shown(python)}) must be a file that this user may execute. "
                "Maybe multiprocessing.set_executable(sys.executable), or put it back where it was."
            )
        for pause_s in (*_PAUSES_S, None):
            process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
                target=_main, args=(payload, writer), name=name, daemon=True
            )
            process.unblocks_itself = True  # type: ignore[attr-defined]
            _forget_foreign_fork_server()
            _wake_fork_server()
            try:
                with _kept_from_ctrl_c():
                    process.start()
            except (EOFError, ConnectionError) as error:
                # The fork server ends, by a signal to the whole group maybe. Once it has ended, the next try starts another one.
                if pause_s is None:
                    raise ClientException(f"The process of {name} cannot be started: {failure(error)}.") from error
                time.sleep(pause_s)
            else:
                return process
        raise AssertionError(name)

    def replace(self, client: str) -> None:
        """Start another process for a client whose process has ended."""
        if self._replace_lost:
            self._start(self._bootstraps[client])

    def exits(self) -> list[ClientExit]:
        """Processes that have ended since the last call."""
        _wake_fork_server()
        ended = [(name, process) for name, process in sorted(self._processes.items()) if not _is_alive(process)]
        exits = [ClientExit(name, "it had no process") for name in self._absent]
        self._absent.clear()
        for name, process in ended:
            # It has ended, so this comes back at once.
            process.join()
            reason = _how(process.exitcode or 0)
            with self._reasons.pop(name) as reader, suppress(EOFError, OSError):
                reason = str(reader.recv()) if reader.poll() else reason
            del self._processes[name]
            has_left = reason == _LEFT
            exits.append(ClientExit(name, "it was told to" if has_left else reason, has_left))
        return exits

    def stop(self, timeout_s: float) -> None:
        """Wait for the processes to end, then end them: first politely, then not."""
        deadline = time.monotonic() + timeout_s
        for process in self._processes.values():
            _wait_for_end(process, deadline - time.monotonic())
        for process in self._processes.values():
            if _is_alive(process):
                # A stopped process would ignore anything milder.
                process.kill()
        until, left = time.monotonic() + _KILLED_S, []
        for name, process in sorted(self._processes.items()):
            while _is_alive(process) and time.monotonic() < until:
                _wake_fork_server()
                _wait_for_end(process, min(_LOOK_EVERY_S, _KILLED_S))
            if _is_alive(process):
                left.append(f"{name} (pid {process.pid})")
            else:
                process.close()
        if left:
            _log.warning("Killed, but not ended within %g s, and not waited for: %s.", _KILLED_S, ", ".join(left))
        for reader in self._reasons.values():
            reader.close()
        self._processes, self._reasons, self._absent = {}, {}, []
