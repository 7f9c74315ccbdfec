"""A storage in memory that fails as disks do: it is full, files are lost, torn or flipped, and somebody else is faster."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from task_assignor.runtime.storage import Data, Storage


class MemoryStorage(Storage):
    """Objects in a dict.

    Attributes:
        objects: name -> content.
        damaged: name -> what was there before somebody damaged it.
        is_full: whatever is written is an error.
        before_exclusive: called once, before the next object is put if it is absent.
        counts: folder -> how many objects in it were deleted; what others count.
    """

    def __init__(self) -> None:
        self.address = "memory"
        self.objects: dict[str, bytes] = {}
        self.damaged: dict[str, bytes] = {}
        self.is_full = False
        self.before_exclusive: Callable[[], None] | None = None
        self.counts: Counter[str] = Counter()

    def put(self, name: str, data: Data) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        self.objects[name] = bytes(data)
        self.damaged.pop(name, None)

    def put_all(self, objects: Mapping[str, Data]) -> None:
        for name, data in objects.items():
            self.put(name, data)

    def put_if_absent(self, name: str, data: Data) -> None:
        before, self.before_exclusive = self.before_exclusive, None
        if before is not None:
            before()
        if name in self.objects:
            raise FileExistsError(errno.EEXIST, "File exists", name)
        self.put(name, data)

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        return pa.py_buffer(self._content(name)[start:end])

    def size(self, name: str) -> int:
        return len(self._content(name))

    def list(self, folder: str = "") -> list[str]:
        prefix = f"{folder}/" if folder else ""
        found = set()
        for name in self.list_below(folder):
            first, slash, _ = name[len(prefix) :].partition("/")
            found.add(prefix + first + slash)
        return sorted(found)

    def list_below(self, folder: str = "") -> Iterator[str]:
        prefix = f"{folder}/" if folder else ""
        return iter(sorted(name for name in self.objects if name.startswith(prefix)))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if self.objects.pop(name, None) is not None:
                self.counts[name.partition("/")[0]] += 1
            self.damaged.pop(name, None)

    def _content(self, name: str) -> bytes:
        try:
            return self.objects[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "No such file", name) from None

    # Damage.

    def is_whole(self, name: str) -> bool:
        """The object is there as it was written."""
        return name in self.objects and name not in self.damaged

    def damage(self, name: str, chance: random.Random, *, tears: bool) -> None:
        """An object loses its second half, or a bit of it is flipped."""
        whole = self.objects[name]
        self.damaged.setdefault(name, whole)
        if tears:
            self.objects[name] = whole[: len(whole) // 2]
        elif whole:  # Torn again and again, nothing is left of it.
            spoilt = bytearray(whole)
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
            self.objects[name] = bytes(spoilt)

    def mend(self) -> None:
        """Somebody has copies, and makes room."""
        self.is_full = False
        self.objects.update(self.damaged)
        self.damaged.clear()
