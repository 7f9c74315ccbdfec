"""Objects that are written while the work goes on; who is to be told of them hears when they are durable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from task_assignor.runtime.storage.base import Data, Storage


class BackgroundWriter:
    """Writes into a storage in threads of its own. Its methods may be called from any thread.

    Args:
        storage: where the objects go.
        threads: how many calls of `put_all` are carried out at the same time.
    """

    def __init__(self, storage: Storage, threads: int) -> None:
        self._storage = storage
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="write")
        self._open: dict[str, Future[None]] = {}
        self._lock = threading.Lock()

    def put_all(self, objects: Mapping[str, Data]) -> None:
        """`Storage.put_all`, but begin only; `when_written` says how it went."""
        if not objects:
            return
        writing = self._pool.submit(self._storage.put_all, dict(objects))
        with self._lock:
            # Nobody has to wait for what is done, and nobody may ever ask for it.
            self._open = {name: one for name, one in self._open.items() if not _is_done(one)}
            self._open.update(dict.fromkeys(objects, writing))

    def when_written(self, names: Iterable[str], then: Callable[[BaseException | None], None]) -> None:
        """Call a function when objects that were given to `put_all` are durable: in the thread that wrote the last one, or at once.

        Args:
            names: the objects.
            then: is given why one of them could not be written; None: all were. It must not raise, for nobody would hear of that.
        """
        with self._lock:
            writing = [self._open[name] for name in names if name in self._open]
        _when_done(list(dict.fromkeys(writing)), then)

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _when_done(writing: list[Future[None]], then: Callable[[BaseException | None], None]) -> None:
    if not writing:
        then(None)
        return

    def go_on(done: Future[None]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        if error is None:
            _when_done(writing[1:], then)
        else:
            then(error)

    writing[0].add_done_callback(go_on)


def _is_done(writing: Future[None]) -> bool:
    return writing.done() and not writing.cancelled() and writing.exception() is None
