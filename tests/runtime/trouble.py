"""Processors and assignors that do what nobody should, for tests; importable, since clients are other processes."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
from polars.exceptions import PanicException

from task_assignor.runtime import KeyValueStore, KeyValueStoreSpec, Processor, TaskContext
from task_assignor.runtime.machines.records import SavedStore
from task_assignor.runtime.stores.memory import StoreMemory
from task_assignor.runtime.stores.memory_rows import MemoryRows
from task_assignor.sdk import ApplicationState, TaskAssignment, TaskAssignor
from tests.runtime.assignors import ScatteringAssignor


class Troubled(Processor):
    """Passes its rows on; in the batch with the value 1-700 it first does what its subclass says."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Get into trouble at the row with value 1-700."""
        (rows,) = batch.values()
        if "1-700" in rows.column("value").to_pylist():
            self.trouble(context)
        return rows

    def trouble(self, context: TaskContext) -> None:
        """What goes wrong."""


class Exits(Troubled):
    """Believes that it is a script."""

    def trouble(self, context: TaskContext) -> None:
        sys.exit("no licence")


class Interrupts(Troubled):
    """Raises what Ctrl-C raises."""

    def trouble(self, context: TaskContext) -> None:
        raise KeyboardInterrupt


class Closes(Troubled):
    """Raises what ends a generator."""

    def trouble(self, context: TaskContext) -> None:
        raise GeneratorExit("done")


class Panics(Troubled):
    """Raises what polars raises when Rust gives up."""

    def trouble(self, context: TaskContext) -> None:
        raise PanicException("index out of bounds")


class SpeechlessError(Exception):
    """Cannot say what is wrong, and cannot be pickled."""

    def __str__(self) -> str:
        raise SystemExit("no words")

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


class Speechless(Troubled):
    """Raises an error that raises."""

    def trouble(self, context: TaskContext) -> None:
        raise SpeechlessError


class AmbiguousError(Exception):
    """Is neither true nor false, as the array that it holds."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class Ambiguous(Troubled):
    """Raises an error that one cannot ask for its truth."""

    def trouble(self, context: TaskContext) -> None:
        raise AmbiguousError("too many values")


class Talks(Troubled):
    """Raises an error with a hundred megabytes of text."""

    def trouble(self, context: TaskContext) -> None:
        raise ValueError("x" * 100_000_000)


class Counts(Troubled):
    """Counts what is no number."""

    def trouble(self, context: TaskContext) -> None:
        context.count("rows", threading.Lock())  # type: ignore[arg-type]


class CountsBack(Troubled):
    """Takes back what it has counted."""

    def trouble(self, context: TaskContext) -> None:
        context.count("rows", -1)


class Hangs(Troubled):
    """Waits for what does not come."""

    def trouble(self, context: TaskContext) -> None:
        threading.Event().wait()


class HangsInC(Troubled):
    """Never gives Python's lock back."""

    def trouble(self, context: TaskContext) -> None:
        ctypes.PyDLL(None).sleep(3600)


class HangsOnce(Troubled):
    """Waits for what does not come, and then for nothing any more: the first try leaves a file behind."""

    def trouble(self, context: TaskContext) -> None:
        mark = Path(os.environ["TROUBLE_MARK"])
        if not mark.exists():
            mark.touch()
            threading.Event().wait()


class KeepsTheBatch(Troubled):
    """Changes a store with every batch."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Change the store, too."""
        context.key_value_store("hanging").put("key", {"value": context.batch})
        return super().process_batch(batch, context)


class KeepsTheBatchAndExits(KeepsTheBatch):
    """Needs a restore then."""

    def trouble(self, context: TaskContext) -> None:
        os._exit(1)


class _HangsInRestores(KeyValueStore):
    def apply(self, changes: pa.Table) -> None:
        threading.Event().wait()


class _HangsInSnapshots(KeyValueStore):
    def save(self) -> SavedStore:
        threading.Event().wait()
        return super().save()


@attrs.frozen
class HangingStoreSpec(KeyValueStoreSpec):
    """A store that can be written, but not restored or not saved."""

    in_restores: bool = True

    def create(self, folder: Path | None = None, memory: StoreMemory | None = None) -> KeyValueStore:
        store = _HangsInRestores if self.in_restores else _HangsInSnapshots
        return store(self, MemoryRows(folder, self.name))


class HogsTheLock(Troubled):
    """Holds Python's lock for longer than the lease of its client."""

    def trouble(self, context: TaskContext) -> None:
        ctypes.PyDLL(None).usleep(4_000_000)


class HangsAtTheEnd(Troubled):
    """Cannot be closed."""

    def close(self) -> None:
        """Wait for ever."""
        threading.Event().wait()


class Forks(Troubled):
    """Forks, and lets its child run on."""

    def trouble(self, context: TaskContext) -> None:
        os.fork()


class ForksAtTheEnd(Troubled):
    """Forks as it is closed; in the child nobody is left who would end it."""

    def close(self) -> None:
        """Both go on."""
        child = os.fork()
        if child:
            Path(os.environ["TROUBLE_MARK"]).write_text(str(child))


class ForksADaemon(Troubled):
    """Leaves a child behind that holds all that it had open."""

    def trouble(self, context: TaskContext) -> None:
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        # Whole when it is there: who sees it kills this process.
        mark = Path(os.environ["TROUBLE_MARK"])
        mark.with_suffix(".new").write_text(str(child))
        mark.with_suffix(".new").rename(mark)


class ClosesStdout(Troubled):
    """Closes what it prints to, and what it says its errors to."""

    def trouble(self, context: TaskContext) -> None:
        sys.stdout.close()
        sys.stderr.close()


class ClosesEverything(Troubled):
    """Closes all files that it has not opened, as daemons do."""

    def trouble(self, context: TaskContext) -> None:
        os.closerange(3, 256)


class LeavesThreads(Troubled):
    """Leaves a thread behind that never ends."""

    def trouble(self, context: TaskContext) -> None:
        threading.Thread(target=threading.Event().wait).start()


class ExitsHard(Troubled):
    """Ends its process without a word."""

    def trouble(self, context: TaskContext) -> None:
        os._exit(0)


class Prints(Troubled):
    """Says where it is."""

    def trouble(self, context: TaskContext) -> None:
        print("processing", context.task_id)  # noqa: T201


class HangingAssignor(TaskAssignor):
    """Never decides."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Go round in circles."""
        while True:
            time.sleep(0.01)


class ExitingAssignor(TaskAssignor):
    """Believes that it is a script."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Exit."""
        sys.exit(3)


class LaterAssignor(ScatteringAssignor):
    """Gives something to wait for."""

    def assign(self, application_state: ApplicationState) -> Any:
        """A coroutine."""

        async def answer() -> TaskAssignment:
            return ScatteringAssignor().assign(application_state)

        return answer()
