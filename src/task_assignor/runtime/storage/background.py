"""Objects that are written while the work goes on, and waited for when somebody is to be told of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

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
        """`Storage.put_all`, but begin only; `wait` says how it went."""
        if not objects:
            return
        writing = self._pool.submit(self._storage.put_all, dict(objects))
        with self._lock:
            # Nobody has to wait for what is done, and nobody may ever ask for it.
            self._open = {name: one for name, one in self._open.items() if not _is_done(one)}
            self._open.update(dict.fromkeys(objects, writing))

    def wait(self, names: Iterable[str]) -> None:
        """Come back when objects that were given to `put_all` are durable.

        Raises:
            OSError: one of them could not be written.
        """
        for name in names:
            with self._lock:
                writing = self._open.get(name)
            if writing is not None:
                writing.result()

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _is_done(writing: Future[None]) -> bool:
    return writing.done() and not writing.cancelled() and writing.exception() is None
