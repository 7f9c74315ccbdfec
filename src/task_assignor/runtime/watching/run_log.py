"""What a run folder remembers for people: the log of what happened, and every state that the assignor was given.

The log is lines of JSON (`event_lines`) in files `log/<epoch>-<part>.jsonl`; a storage cannot append, so the newest part is
written anew when there is something new. The states are snapshots, `states/<epoch>-<number>.json`, which `task-assignor
plan`, `validate` and `compare` take: each is a line, so that they can be joined to JSON Lines. Of both the oldest are deleted. Nothing here decides whether a run goes on: what
cannot be written is a warning, and waits; where that becomes too much, a line `LinesDropped` says how many are not there.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final

from task_assignor.runtime.storage import Storage
from task_assignor.runtime.storage.disk import run_dir_errors
from task_assignor.sdk import ApplicationState, state_to_json
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import said

LOG: Final = "log"
STATES: Final = "states"
KEPT_STATES: Final = 100
"""The newest so many states are kept."""
KEPT_PARTS: Final = 64
"""The newest so many parts of the log are kept."""
PART_BYTES: Final = 256 << 10
"""A part of the log that is as long as this is followed by another one."""
WAITING_BYTES: Final = 16 * PART_BYTES
"""Of what cannot be written the newest lines, so much of them, wait for the storage to be back."""
_NAME: Final = re.compile(r"\d{8,}-\d{6,}\.jsonl?")
_LONGEST_END_S: Final = 60.0
"""At the end, what is left to be written is waited for so long."""
_GATHERED_S: Final = 1.0
"""What is told so soon after something else is written together with it."""

_log = logger_of(__name__)


class RunLog:
    """Writes the log and the states of one run, in a thread of its own. Its methods may be called from any thread.

    Args:
        storage: the run folder.
        application_id: `application.id`.
        epoch: the coordinator's epoch: no other run of this folder has it.
    """

    def __init__(self, storage: Storage, application_id: str, epoch: int) -> None:
        self._storage = storage
        self._application_id = application_id
        self._epoch = epoch
        self._lock = threading.Lock()
        self._lines: list[str] = []
        """Those of the part that is being written."""
        self._dropped = 0
        """How many lines more there would be in this part, had it not been impossible to write them for so long."""
        self._documents: dict[str, Callable[[], None]] = {}
        """Name of an object -> what writes it, of those that are to be written anew."""
        self._states: deque[ApplicationState] = deque(maxlen=KEPT_STATES)
        """Those that are not yet written."""
        self._parts = self._written_states = 0
        self._is_new_part = True
        self._has_news, self._is_over = threading.Event(), threading.Event()
        self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="run-log", daemon=True)
        self._thread.start()

    def line(self, text: str) -> None:
        """A line of the log."""
        with self._lock:
            self._lines.append(text)
        self._has_news.set()

    def state(self, state: ApplicationState) -> None:
        """A state that the assignor is given."""
        with self._lock:
            self._states.append(state)
        self._has_news.set()

    def document(self, name: str, write: Callable[[], None]) -> None:
        """An object is to be written anew soon, with what it has then."""
        with self._lock:
            self._documents[name] = write
        self._has_news.set()

    def close(self) -> None:
        """Write what was given, and end; a storage that does not answer is not waited for without end."""
        self._is_over.set()
        self._has_news.set()
        self._thread.join(_LONGEST_END_S)
        if self._thread.is_alive():
            _log.warning(
                "The log of the run is perhaps not written to its end: %s has not taken it for %g s.",
                self._storage.address,
                _LONGEST_END_S,
            )

    def _run(self) -> None:
        is_over = False
        while not is_over:
            self._has_news.wait()
            self._is_over.wait(_GATHERED_S)
            # In this order: who closes the log says first that it is over, then that there is news.
            self._has_news.clear()
            is_over = self._is_over.is_set()
            self._write_all()
        if self._has_warned:
            # What came next would have tried it again.
            self._write_all()
        if self._documents:
            _log.warning(
                "In %s %s is not what it should be at the end of the run. Run the application again when it can be written: then it is.",
                self._storage.address,
                ", ".join(sorted(self._documents)),
            )

    def _write_all(self) -> None:
        done = [self._write_documents(), *map(self._is_done, (self._write_states, self._write_lines))]
        self._has_warned = not all(done)

    def _is_done(self, write: Callable[[], None]) -> bool:
        """Write; what cannot be written is tried again with what comes next."""
        try:
            write()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the rest is to be written, in this thread
            level = logging.DEBUG if self._has_warned else logging.WARNING
            self._has_warned = True
            _log.log(level, "The log of the run cannot be written to %s: %s", self._storage.address, said(error))
            return False
        return True

    def _write_documents(self) -> bool:
        """Write each that can be, whatever becomes of the others; whether all are written."""
        with self._lock:
            documents = dict(self._documents)
        written = [(name, write) for name, write in documents.items() if self._is_done(write)]
        with self._lock:
            # They may have changed meanwhile.
            self._documents = dict(one for one in self._documents.items() if one not in written)
        return len(written) == len(documents)

    def _write_states(self) -> None:
        with self._lock:
            states = list(self._states)
        for state in states:
            self._written_states += 1
            name = f"{self._epoch:08d}-{self._written_states:06d}"
            document = state_to_json(state, f"{self._application_id}-{name}")
            self._storage.put(f"{STATES}/{name}.json", f"{json.dumps(document, separators=(',', ':'))}\n".encode())
            with self._lock:
                if self._states[0] is state:
                    self._states.popleft()
        if states:
            self._forget(STATES, KEPT_STATES)

    def _write_lines(self) -> None:
        with self._lock:
            self._drop_oldest()
            lines = list(self._lines)
        if not lines:
            return
        if self._dropped:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            lines.insert(0, json.dumps({"at": at, "event": "LinesDropped", "lines": self._dropped}))
        text = "".join(f"{line}\n" for line in lines).encode()
        self._storage.put(f"{LOG}/{self._epoch:08d}-{self._parts:06d}.jsonl", text)
        if self._is_new_part:
            # Also of short runs, which never fill a part: there may be many of them.
            self._is_new_part = False
            self._forget(LOG, KEPT_PARTS)
        if len(text) >= PART_BYTES:
            with self._lock:
                del self._lines[: len(lines) - bool(self._dropped)]
            self._dropped = 0
            self._parts += 1
            self._is_new_part = True

    def _drop_oldest(self) -> None:
        """They would be more and more, as long as the storage is away."""
        size = 0
        for kept, line in enumerate(reversed(self._lines)):
            size += len(line)
            if size > WAITING_BYTES:
                if not self._dropped:
                    _log.warning("Too much of the log of the run waits to be written; its oldest lines are dropped.")
                self._dropped += len(self._lines) - kept
                del self._lines[: len(self._lines) - kept]
                return

    def _forget(self, folder: str, kept: int) -> None:
        self._storage.delete(_ours(self._storage, folder)[:-kept])
        begun = [name for name in self._storage.unfinished(folder) if _NAME.fullmatch(name, len(folder) + 1)]
        # Of runs that were killed.
        self._storage.delete_unfinished(name for name in begun if _epoch_of(name) < self._epoch)


def _epoch_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _ours(storage: Storage, folder: str) -> list[str]:
    """What runs have written into a folder, oldest first; what else is there, somebody has put there."""
    return [name for name in storage.list(folder) if _NAME.fullmatch(name, len(folder) + 1)]


def read_log(storage: Storage) -> Iterator[dict[str, Any]]:
    """The lines of the log of all runs in a folder, oldest first; what is no JSON, or no event, is passed over.

    Raises:
        CommitLogException: a part cannot be read.
    """
    with _errors(storage):
        names = _ours(storage, LOG)
    for name in names:
        with _errors(storage):
            lines = bytes(storage.open(name)).splitlines()
        for line in lines:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict) and isinstance(found.get("event"), str):
                yield found


def list_states(storage: Storage) -> list[str]:
    """The names of the states that are kept, oldest first.

    Raises:
        CommitLogException: they cannot be listed.
    """
    with _errors(storage):
        return _ours(storage, STATES)


def _errors(storage: Storage) -> AbstractContextManager[None]:
    return run_dir_errors(f"The log of the run in {storage.address} cannot be read")
