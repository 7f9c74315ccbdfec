"""How the works of a client get on: code in the thread of one says what it does now, and another thread looks.

What waits for a disk, a network or somebody else's code says so before it does (`step`). Who does not say anything for too
long hangs, and the last words tell where. What has computed all that it has to, and only waits for others from there on, says that, too
(`only_waits`): the client begins something else meanwhile. In a thread that does no work of a client, both do nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from task_assignor.runtime.machines.client.works import Steps as StepsOfWorks
from task_assignor.sdk import TaskId

_here = threading.local()


class Steps:
    """The works of a client that are done at the moment. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._works: dict[tuple[str, TaskId], list[tuple[int, str]]] = {}
        self.computing: set[tuple[str, TaskId]] = set()
        """Those of them that do not only wait for others."""

    def begin(self, kind: str, task: TaskId) -> None:
        """A thread for it is on its way."""
        self.computing.add((kind, task))

    @contextmanager
    def of(self, kind: str, task: TaskId, waits: Callable[[], object] = bool) -> Iterator[None]:
        """What is done inside, in this thread, is a work of this kind; `waits` is called when it only waits for others."""
        # The last of these says how far it is; to put a whole pair there needs no lock.
        key = (kind, task)
        self._works[key] = _here.last = [(0, "")]
        self.computing.add(key)
        _here.waits, _here.key, _here.steps = waits, key, self
        try:
            yield
        finally:
            _here.last = _here.waits = _here.key = _here.steps = None
            self.computing.discard(key)
            del self._works[key]

    def now(self) -> StepsOfWorks:
        """How far they are."""
        return {key: last[0] for key, last in self._works.copy().items()}


@contextmanager
def parent_only() -> Iterator[None]:
    """Somebody else's code runs inside: if it forks, the child ends where it would come out, as it has nothing to do there."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)


def step(doing: str = "") -> None:
    """The work of this thread has got on, and now does this.

    Args:
        doing: as a sentence, for the message if it never gets any further; "": it runs a processor's code.
    """
    last: list[tuple[int, str]] | None = getattr(_here, "last", None)
    if last is not None:
        last[0] = (last[0][0] + 1, doing)


def only_waits(doing: str) -> None:
    """The work of this thread has computed all that it has to, and only waits for others from here on.

    Args:
        doing: for what, as for `step`.
    """
    step(doing)
    waits: Callable[[], object] | None = getattr(_here, "waits", None)
    if waits is not None:
        _here.steps.computing.discard(_here.key)
        waits()


def others_compute() -> bool:
    """Other tasks for which the client does the same kind of work compute something, and may soon have to wait as this thread does."""
    steps: Steps | None = getattr(_here, "steps", None)
    if steps is None:
        return False
    kind, task = _here.key
    return any(other_kind == kind and other != task for other_kind, other in list(steps.computing))
