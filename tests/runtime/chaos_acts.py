"""Trouble that a seed makes for a run of real processes: they are killed, stopped and asked to leave, and so is the driver."""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    ClientLost,
    Launcher,
    LocalProcessLauncher,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
)

LIMIT_S = 900


class DriverDied(BaseException):
    """The driver's process is gone; nobody is there to handle it."""


@attrs.define
class Trouble:
    """What is done to a run, life by life, and how the run is watched for that.

    Args:
        root: folder of everything.
        seed: decides what happens when.
        launcher: makes the launcher of a life.
        acts: what is done to clients and driver, each as often as it is there.
        options: of the runs.
    """

    root: Path
    seed: int
    launcher: Callable[[], Launcher] = partial(LocalProcessLauncher, start_method="forkserver")
    acts: Sequence[str] = ("kill", "stop", "scale", "sigterm", "driver", "drain")
    options: RuntimeOptions = RuntimeOptions()
    happened: list[str] = attrs.field(factory=list)
    """What was done to the run, and what it said."""
    kinds: Counter[str] = attrs.field(factory=Counter)
    """How often which of the acts was done."""
    _random: random.Random = attrs.field(init=False)
    _plan: list[tuple[int, str]] = attrs.field(init=False, factory=list)
    """(batches that are committed before, what happens then), of this life."""
    _batches: int = 0
    _pids: dict[str, int] = attrs.field(factory=dict)
    _stopped: list[int] = attrs.field(factory=list)
    _asked: set[int] = attrs.field(factory=set)
    """Processes that were asked to leave."""
    _is_drained: bool = False
    """The driver was asked to stop, in this life."""
    _app: StreamsApplication | None = None

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def run(self) -> None:
        """All lives, then the checks.

        Raises:
            AssertionError: what must hold does not, or the run hangs.
        """
        with self._limited():
            self._run()

    def _run(self) -> None:
        raise NotImplementedError

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """What takes longer than `LIMIT_S` is a run that hangs: it ends, and says what was done to it."""

        def give_up(*_: object) -> None:
            raise AssertionError(f"after {LIMIT_S} s it has not come to its end: {self.happened}")

        before = signal.signal(signal.SIGALRM, give_up)
        signal.alarm(LIMIT_S)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def _begin_life(self, app: StreamsApplication, acts: int) -> None:
        """Another life of the run begins, in which so much happens."""
        self._app = app
        self._plan = sorted((self._random.randint(1, 30), self._random.choice(self.acts)) for _ in range(acts))
        self._batches = 0
        self._is_drained = False

    def _note(self, kind: str, what: str) -> None:
        self.kinds[kind] += 1
        self.happened.append(what)

    def _on_event(self, event: RunEvent) -> None:
        match event:
            case ClientJoined():
                self._pids[event.client] = event.pid
            case ClientLeft():
                self._pids.pop(event.client, None)
                self._resume_the_last()
            case ClientLost():
                if self._random.random() < 0.5:
                    self._resume_all()
                self._resume_the_last()
            case BatchesCommitted():
                self._batches += len(event.batches)
                while self._plan and self._plan[0][0] <= self._batches:
                    self._act(self._plan.pop(0)[1])

    def _act(self, kind: str) -> None:
        self._note(kind, f"{kind} after {self._batches} batches")
        names = sorted(self._pids)
        if names:
            self._do(kind, self._pids[self._random.choice(names)])

    def _do(self, kind: str, pid: int) -> None:
        """Do something to the run, or to the client with that process."""
        assert self._app is not None
        match kind:
            case "kill":
                send(pid, signal.SIGKILL)
            case "stop":
                self._stopped.append(pid)
                send(pid, signal.SIGSTOP)
            case "sigterm" if len(self._staying()) > 1:
                # Somebody stays: who leaves in order is not started again.
                self._asked.add(pid)
                send(pid, signal.SIGTERM)
            case "scale":
                # Somebody stays who was not asked to leave: who leaves in order is not started again.
                leave = len(self._asked.intersection(self._pids.values()))
                self._app.scale(self._random.randint(min(leave + 1, 3), 3))
            case "driver":
                raise DriverDied
            case "drain" if not self._is_drained:
                self._is_drained = True
                signal.raise_signal(signal.SIGTERM)

    def _staying(self) -> set[int]:
        """Processes of clients that nobody has asked to leave, neither by a signal nor by a number."""
        assert self._app is not None
        wanted = {spec.name for spec in self._app.clients}
        return {pid for name, pid in self._pids.items() if name in wanted} - self._asked

    def _resume_the_last(self) -> None:
        """Nobody replaces a process that only stands still: if all do, they go on."""
        if set(self._pids.values()) <= set(self._stopped):
            self._resume_all()

    def _resume_all(self) -> None:
        """Those that were stopped go on, as zombies."""
        for pid in self._stopped:
            send(pid, signal.SIGCONT)
        self._stopped = []


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have ended before."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def arguments(description: str | None, seeds: int) -> argparse.ArgumentParser:
    """What the programs of chaos take; so many seeds if nothing is said."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0] if description else None)
    parser.add_argument("--seeds", type=int, default=seeds, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    return parser


def run_seeds(given: argparse.Namespace, run: Callable[[int, Path], Trouble]) -> None:
    """Run one seed after the other, each in an empty folder, and print what was done to it as a line of JSON.

    Raises:
        AssertionError: what must hold does not.
    """
    # Between two lives, too, a signal ends it so that what it has started ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    for seed in range(given.first, given.first + given.seeds):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="task-assignor-chaos-") as folder:
            found = run(seed, Path(folder))
        seconds = round(time.monotonic() - began)
        done = {"seed": seed, "seconds": seconds, "kinds": +found.kinds, "happened": found.happened}
        sys.stdout.write(json.dumps(done) + "\n")
        sys.stdout.flush()
