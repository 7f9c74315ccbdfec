"""A way to a server on which connections break: before a request arrives, in its midst, or before its answer is back."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)


class FaultyNetwork:
    """Passes on what comes to a port of its own, as a context manager.

    Args:
        port: where the server is, on this host.
        seed: decides what breaks.
        chance: of every piece of a request or an answer that its connection breaks there.

    Attributes:
        broken: so many connections were broken.
    """

    def __init__(self, port: int, seed: int, chance: float) -> None:
        self._target = port
        self._random = random.Random(seed)
        self._chance = chance
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.broken = 0

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        """Begin to pass on."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more connections."""
        # Whoever waits for one is not woken by its end alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for one in (near, far):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if self._random.random() < self._chance:
                    self.broken += 1
                    target.sendall(piece[: self._random.randrange(len(piece))])
                    break
                target.sendall(piece)
        for one in (source, target):
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
