"""How much memory the stores of one process may take together. What they do about it is their own affair."""

from __future__ import annotations

import threading
from typing import Any, Final

from task_assignor.runtime.options import STATE_MEMORY_BYTES

_CACHE_SHARE: Final = 4
"""Stores on disk take together one part in so many as their cache."""


class StoreMemory:
    """What all stores of a process share.

    Args:
        limit: bytes that they may take together, but for key-value stores in memory.
    """

    def __init__(self, limit: int = STATE_MEMORY_BYTES) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._windows = 0
        self._cache: Any = None

    @property
    def window_bytes(self) -> int:
        """What one window store may have in memory."""
        with self._lock:
            return (self.limit - self.limit // _CACHE_SHARE) // max(self._windows, 1)

    def join(self) -> None:
        """There is one more window store."""
        with self._lock:
            self._windows += 1

    def leave(self) -> None:
        """There is one less."""
        with self._lock:
            self._windows -= 1

    def cache(self) -> Any:
        """RocksDB's cache and the manager of its write buffers, whose memory counts as the cache's."""
        import rocksdict

        with self._lock:
            if self._cache is None:
                size = self.limit // _CACHE_SHARE
                cache = rocksdict.Cache(size)
                manager = rocksdict.WriteBufferManager.new_write_buffer_manager_with_cache(size // 2, False, cache)
                self._cache = (cache, manager)
            return self._cache
