"""Where the processor time of a run goes, part by part, in coordinator and clients; and runs without a part, to see what it costs.

Nothing of it is an option of the product: the functions are wrapped or replaced in the benchmark's processes. Its clients are
spawned and import the benchmark's module, which calls `install`; what to do is in the environment.

A part's time is the processor time of the functions that are its own, without those of other parts that they call: of the calling
thread and, as polars computes in a thread of its own, of that one. What no part has is the "rest": interpreter, threads,
sockets, imports at the start.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Final

WITHOUT: Final = "TASK_ASSIGNOR_BENCH_WITHOUT"
"""What is left out: "checksums", "fsync", "merging", or several with commas."""
PARTS: Final = "TASK_ASSIGNOR_BENCH_PARTS"
"""A folder: every process writes there what its parts took."""
_RUNTIME: Final = "task_assignor.runtime"
_FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "reading": ("tasks.task_input:TaskInput.read", "topics.topic:Topic.read"),
    "time-merging": (
        "tasks.task_input:times_so_far",
        "tasks.task_input:times_of",
        "tasks.task_input:rows_up_to_boundary",
    ),
    "join": ("processors.windowed_join:JoinProcessor.process_batch",),
    "store": tuple(
        f"stores.window:WindowStore.{name}"
        for name in ("append", "expire", "observe", "keep", "drain_changes", "views", "apply")
    ),
    "Arrow writing": ("storage.content:as_arrow", "tasks.results:FolderResults.write"),
    "checksums": ("storage.content:checksum_of",),
    "writing files": ("storage.local:LocalStorage._replace", "storage.local:LocalStorage.put_all"),
    "messages": ("shells.transport:Channel.send", "shells.transport:Channel.receive"),
    "state machines": (
        "machines.coordinator.machine:Coordinator.handle",
        "machines.client.machine:ClientMachine.handle",
    ),
    "task, else": ("tasks.task:StreamTask.process",),
    "snapshots": ("tasks.task:StreamTask.snapshot",),
    "files are there": ("run_folder.commits:CommitLog._check_are_there",),
    "commit record": ("run_folder.commits:CommitLog.append",),
    "checkpoints": ("run_folder.commits:CommitLog.write_checkpoint",),
}


class _Meter:
    """Processor seconds per part. Each thread has a stack of the parts that it is in."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begin to count."""
        self._begin = time.process_time()
        self.seconds: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def measured(*args: Any, **named: Any) -> Any:
            stack = self._local.__dict__.setdefault("inner", [])
            stack.append([0.0, 0.0])
            begin, begin_wall = _clock(), time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                took, took_wall = _clock() - begin, time.perf_counter() - begin_wall
                inner, inner_wall = stack.pop()
                if stack:
                    stack[-1][0] += took
                    stack[-1][1] += took_wall
                with self._lock:
                    self.seconds[part] += took - inner
                    self.wall[part] += took_wall - inner_wall
                    self.calls[part] += 1

        return measured

    def write(self, folder: Path, role: str) -> None:
        found = {
            "role": role,
            "total": time.process_time() - self._begin,
            "parts": {part: (self.seconds[part], self.wall[part], self.calls[part]) for part in self.seconds},
        }
        (folder / f"{role}-{os.getpid()}-{time.monotonic_ns()}.json").write_text(json.dumps(found))


METER: Final = _Meter()


def _clock() -> float:
    """Processor seconds of this thread and, in a client's worker, of polars' threads: nobody else uses them."""
    is_worker = threading.current_thread().name.endswith("-task_0")
    return time.thread_time() + (sum(map(time.clock_gettime, _polars_threads())) if is_worker else 0.0)


_found: list[int] = []


def _polars_threads() -> list[int]:
    """The clocks (see clock_getcpuclockid) of polars' threads, if there are any yet: they stay."""
    if not _found and "polars" in sys.modules:
        names = {int(task.name): (task / "comm").read_text() for task in Path("/proc/self/task").iterdir()}
        _found.extend((~number << 3) | 6 for number, name in names.items() if name.startswith(("polars", "async-exec")))
    return _found


def _replace(where: str, change: Callable[[Any], Any]) -> Callable[[], None]:
    """Change a function or method, in every module that knows it by its name; gives what takes that back."""
    module, _, path = where.partition(":")
    owner: Any = import_module(f"{_RUNTIME}.{module}")
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    found = owner.__dict__[name]
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    changed = kind(change(found.__func__)) if kind else change(found)
    places = [owner]
    if not classes:
        places += [known for key, known in sys.modules.items() if key.startswith(_RUNTIME)]
    places = [place for place in places if place.__dict__.get(name) is found]

    def put(what: Any) -> None:
        for place in places:
            setattr(place, name, what)

    put(changed)
    return partial(put, found)


_forever: Final = ExitStack()


def _no_sync(fd: object) -> None:
    pass


@contextmanager
def leaving_out(without: str) -> Iterator[None]:
    """In this process and in clients that are started meanwhile: without some of checksums, fsync and merging of outputs."""
    for module in ("application", "run_folder.compaction", "processors.windowed_join", "shells.local"):
        import_module(f"{_RUNTIME}.{module}")
    undo: list[Callable[[], None]] = [partial(setattr, os, "fsync", os.fsync)]
    os.environ[WITHOUT] = without
    if "checksums" in without:
        undo.append(_replace("storage.content:checksum_of", lambda _: lambda _data: "00000000"))
    if "fsync" in without:
        os.fsync = _no_sync
    if "merging" in without:
        undo.append(_replace("run_folder.compaction:Compaction.merge", lambda _: lambda *_args: []))
    try:
        yield
    finally:
        os.environ[WITHOUT] = ""
        for each in undo:
            each()


@cache
def install() -> None:
    """Do what the environment says, until the end of the process."""
    _forever.enter_context(leaving_out(os.environ.get(WITHOUT, "")))
    folder = os.environ.get(PARTS)
    if folder:
        for part, places in _FUNCTIONS.items():
            for place in places:
                _replace(place, partial(METER.wrap, part))
        os.fsync = METER.wrap("fsync", os.fsync)
        _replace("shells.client_shell:ClientShell._connect", _and_begin)
        _replace("shells.local:run_client", lambda run: _and_write(run, Path(folder)))


def _and_begin(connect: Callable[..., Any]) -> Callable[..., Any]:
    def beginning(*args: Any) -> Any:
        METER.reset()
        return connect(*args)

    return beginning


def _and_write(run: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def measured(*args: Any, **named: Any) -> Any:
        try:
            return run(*args, **named)
        finally:
            METER.write(folder, "client")

    return measured


def lines(folder: Path, runs: int) -> Iterator[str]:
    """A table of what all processes wrote, per run, as lines of Markdown."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    totals: dict[str, float] = defaultdict(float)
    for path in folder.glob("*.json"):
        found = json.loads(path.read_text())
        totals[found["role"]] += found["total"]
        for part, values in found["parts"].items():
            for place, value in enumerate(values):
                seconds[found["role"], part][place] += value
    yield "| process | part | CPU s | wall s of its threads | calls |"
    yield "|---|---|---|---|---|"
    for role, total in sorted(totals.items()):
        mine = {part: values for (whose, part), values in seconds.items() if whose == role}
        for part, (cpu, wall, calls) in sorted(mine.items(), key=lambda item: -item[1][0]):
            yield f"| {role} | {part} | {cpu / runs:.3f} | {wall / runs:.3f} | {calls / runs:.0f} |"
        yield f"| {role} | rest | {(total - sum(cpu for cpu, _, _ in mine.values())) / runs:.3f} | | |"
        yield f"| {role} | all | {total / runs:.3f} | | |"
