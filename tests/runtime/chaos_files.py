"""What becomes of files in chaos: damage that somebody mends later, and what a power failure leaves of unsynced writes."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Self

from task_assignor.runtime.storage.local import CONTENT


class Damage:
    """While it lasts, a file is gone or torn, or has a flipped bit; then it is as it was, if nobody has written or removed it."""

    def __init__(self, victim: Path | None, chance: random.Random) -> None:
        self._victim = victim
        self._whole = b"" if victim is None else victim.read_bytes()
        kinds = ("flipped", "torn", "gone")
        # Without its newest version a topic is what it was before: nobody can tell that from one that has not grown.
        self._what = chance.choice(kinds[:2] if victim is not None and "versions" in victim.parts else kinds)
        self._spoilt = self._spoil(chance)

    def __bool__(self) -> bool:
        return self._victim is not None

    def __str__(self) -> str:
        return f"{self._what}: {self._victim}"

    def is_named_in(self, text: str) -> bool:
        """The file, or the topic that it is of, can be found by what an error says."""
        if self._victim is None:
            return False
        if "topics" in self._victim.parts and "'left'" in text:
            return True
        # What was put if absent is a folder with one file.
        name = self._victim.parent.name if self._victim.name == CONTENT else self._victim.name
        return name in text

    def __enter__(self) -> Self:
        if self._victim is not None:
            self._leave(self._victim, self._spoilt)
        return self

    def __exit__(self, *_: object) -> None:
        victim = self._victim
        if victim is None or not victim.parent.exists() or self._found(victim) != self._spoilt:
            return
        # That a checkpoint is there says that it counts. One that was gone would have been removed with what it names since.
        if (
            self._what == "gone"
            and victim.parent.name == "checkpoints"
            and any(one > victim for one in victim.parent.iterdir())
        ):
            return
        self._leave(victim, self._whole)

    def _spoil(self, chance: random.Random) -> bytes | None:
        """What is left of it; None: nothing."""
        match self._what:
            case "flipped" if self._whole:
                spoilt = bytearray(self._whole)
                spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
                return bytes(spoilt)
            case "torn":
                return self._whole[: len(self._whole) // 2]
        return None

    @staticmethod
    def _leave(path: Path, data: bytes | None) -> None:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)

    @staticmethod
    def _found(path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() else None


def lose(path: Path, chance: random.Random) -> None:
    """Leave nothing of a file, its first half, or zeros."""
    size = path.stat().st_size
    match chance.choice(("gone", "torn", "zeros")):
        case "gone":
            path.unlink()
        case "torn":
            os.truncate(path, size // 2)
        case "zeros":
            path.write_bytes(bytes(size))
