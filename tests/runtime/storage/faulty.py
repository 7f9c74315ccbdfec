"""A storage that fails as disks and machines do: full, cut off in the middle of a write, forgetful, with wrong bits."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterable, Mapping

import pyarrow as pa

from task_assignor.runtime.storage import Data, Storage


class PowerFailure(BaseException):
    """The machine went dark in the middle of a call; nobody is there to handle it."""


class FaultyStorage(Storage):
    """A storage over another one.

    Args:
        inner: where the objects really are.
        seed: decides what is lost, torn and flipped.
        capacity: so many bytes may be written until the disk is full; None: any number.
        forgets: the disk says that writes are durable, but `power_failure` may take back those since the last one.

    Attributes:
        dark_after: so many calls that write may still be made; the next one ends in a `PowerFailure`. None: any number.
    """

    def __init__(self, inner: Storage, seed: int, *, capacity: int | None = None, forgets: bool = False) -> None:
        self.address = inner.address
        self.dark_after: int | None = None
        self._inner = inner
        self._random = random.Random(seed)
        self._left = capacity
        self._forgets = forgets
        self._before: dict[str, bytes | None] = {}
        """Object -> what it was when the power was last gone."""

    def put(self, name: str, data: Data) -> None:
        self._remember([name])
        if self._goes_dark():
            # The old one or the new one.
            if self._random.random() < 0.5:
                self._inner.put(name, data)
            raise PowerFailure
        self._charge(name, data)
        self._inner.put(name, data)

    def put_all(self, objects: Mapping[str, Data]) -> None:
        self._remember(objects)
        if self._goes_dark():
            for name, data in objects.items():
                # Each may be there, torn, or not there.
                self._inner.put(name, data)
                self._spoil(name, None)
            raise PowerFailure
        for name, data in objects.items():
            self._charge(name, data)
        self._inner.put_all(objects)

    def put_if_absent(self, name: str, data: Data) -> None:
        self._remember([name])
        if self._goes_dark():
            if self._random.random() < 0.5:
                self._inner.put_if_absent(name, data)
            raise PowerFailure
        self._charge(name, data)
        self._inner.put_if_absent(name, data)

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        return self._inner.open(name, start, end)

    def size(self, name: str) -> int:
        return self._inner.size(name)

    def list(self, folder: str = "") -> list[str]:
        return self._inner.list(folder)

    def delete(self, names: Iterable[str]) -> None:
        names = sorted(names)
        self._remember(names)
        if self._goes_dark():
            self._inner.delete(names[: self._random.randint(0, len(names))])
            raise PowerFailure
        self._inner.delete(names)

    # Damage.

    def power_failure(self) -> None:
        """Take back what a forgetful disk had only promised; whoever goes on finds what is left."""
        if self._forgets:
            for name, before in self._before.items():
                self._spoil(name, before)
        self._before.clear()
        self.dark_after = None

    def tear(self, name: str) -> None:
        """Cut an object off, or let its end be zeros."""
        whole = self._inner.open(name).to_pybytes()
        kept = self._random.randrange(len(whole)) if whole else 0
        self._inner.put(name, whole[:kept] + self._random.choice([b"", bytes(len(whole) - kept)]))

    def flip(self, name: str) -> None:
        """Turn one bit of an object over."""
        whole = bytearray(self._inner.open(name).to_pybytes())
        whole[self._random.randrange(len(whole))] ^= 1 << self._random.randrange(8)
        self._inner.put(name, bytes(whole))

    def _spoil(self, name: str, before: bytes | None) -> None:
        """Leave an object as it is, as it was, or torn."""
        fate = self._random.choice(["stays", "goes", "torn"])
        if fate == "torn" and self._inner.is_there(name):
            self.tear(name)
        elif fate == "goes":
            if before is None:
                self._inner.delete([name])
            else:
                self._inner.put(name, before)

    def _remember(self, names: Iterable[str]) -> None:
        if self._forgets:
            for name in names:
                if name not in self._before:
                    self._before[name] = self._inner.open(name).to_pybytes() if self._inner.is_there(name) else None

    def _goes_dark(self) -> bool:
        if self.dark_after is None:
            return False
        self.dark_after -= 1
        return self.dark_after < 0

    def _charge(self, name: str, data: Data) -> None:
        if self._left is not None:
            size = len(memoryview(data))
            if size > self._left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.locate(name))
            self._left -= size
