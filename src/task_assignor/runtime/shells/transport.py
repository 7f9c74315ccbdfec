"""Connections between coordinator and clients: TCP with a shared secret. What travels, others say.

A thin layer over `multiprocessing.connection` that adds what it lacks: a hand-shake that cannot hang, no delay of
small messages (Nagle's algorithm and delayed acknowledgements would add 40 ms to every batch), and checksums: those of TCP
overlook what a bad network card or proxy changes now and then, and a message may say what is committed.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Final, Generic, TypeVar

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.machines.encoding import encode, reader_of
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted

_log = logger_of(__name__)
T = TypeVar("T")
HANDSHAKE_TIMEOUT_S: Final = 10.0
_SILENCE_S: Final = 60
"""So long the machine of the other side may not answer."""
_PAUSE_S: Final = 0.1
"""After a connection that could not be taken."""
_TOLD_EVERY_S: Final = 600.0
"""A warning of connections that were refused: who looks whether a port is open does so again and again."""
_SEAL_BYTES: Final = 4
_BEGINS: Final = (b"{", b"[")
"""What messages begin with, those of former versions with nothing before."""
_LONG_MESSAGE: Final = 0x7FFFFFFF
"""From here on `multiprocessing.connection` writes another header."""
_SHORT: Final = struct.Struct("!i")
_LONG: Final = struct.Struct("!Q")
"""These headers: how long a message is; in the first, -1: that the second one follows."""
_MOST_AT_ONCE: Final = 1 << 20


class DamagedMessageError(OSError):
    """A connection that has changed what was sent: another one may be better."""


class Channel(Generic[T]):
    """One connection. One thread may send while another receives.

    Args:
        sock: a connected socket, before the hand-shake.
        read: makes messages of what comes.
    """

    def __init__(self, sock: socket.socket, read: Callable[[bytes], T]) -> None:
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(os.dup(sock.fileno()))
        self._sock = sock
        self._read = read
        self.arriving = 0
        """So many bytes have come of a message that is not complete."""
        self._sending, self._closing = threading.Lock(), threading.Lock()

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            OSError: the connection is gone.
        """
        data = _sealed(message)
        with self._sending:
            self._connection.send_bytes(data)

    def receive(self) -> T:
        """Wait for a message.

        Raises:
            EOFError: the other side has closed the connection.
            OSError: the connection is gone.
            DamagedMessageError: it has changed what was sent.
            ValueError: what came is no message.
        """
        size, seal = self._receive_size(), self._receive_exactly(_SEAL_BYTES)
        if seal != _seal_of_size(size):
            if seal[:1] in _BEGINS:
                raise ValueError("it has no checksum of its length")
            # It may be waited for without end what is to come by that.
            raise _damaged("the checksum of its length", size)
        body, seal = self._receive_exactly(size - 2 * _SEAL_BYTES), self._receive_exactly(_SEAL_BYTES)
        self.arriving = 0
        if seal != _seal(body, size):
            raise _damaged("its checksum", size)
        return self._read(body)

    def _receive_size(self) -> int:
        """What `Connection.send_bytes` begins with."""
        size: int
        (size,) = _SHORT.unpack(self._receive_exactly(_SHORT.size))
        if size == -1:
            (size,) = _LONG.unpack(self._receive_exactly(_LONG.size))
        return size

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = os.read(self._connection.fileno(), min(size - len(data), _MOST_AT_ONCE))
            if not more:
                raise EOFError
            data += more
            self.arriving += len(more)
        return bytes(data)

    def close(self) -> None:
        """Close; threads that wait in `receive` or `send` wake up."""
        with self._closing:
            with suppress(OSError):  # the other side may have been faster
                self._sock.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):  # a processor may have closed what is not its own
                self._sock.close()

    def release(self) -> None:
        """Close, and give the descriptor back; for the thread that receives, when it is done.

        Whoever sends has the descriptor's number. Given back meanwhile, it can be that of a file that somebody opens just then, and
        the message is written there.
        """
        self.close()
        with self._sending, suppress(OSError):
            self._connection.close()

    def fileno(self) -> int:
        """The connection's descriptor, for a process that shall inherit it."""
        return self._sock.fileno()

    @property
    def is_over(self) -> bool:
        """The other side has closed it, or it is broken; nothing is taken from who reads it."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def watch_for_silence(self) -> None:
        """Have the connection break when the other side's machine has not answered for `_SILENCE_S`, as when it has lost its power.

        Else the kernel waits for a quarter of an hour, or for ever where there is nothing to send.
        """
        pause_s, times = _SILENCE_S // 3, 2
        wanted = {
            "TCP_KEEPIDLE": pause_s,
            "TCP_KEEPINTVL": pause_s,
            "TCP_KEEPCNT": times,
            "TCP_USER_TIMEOUT": 1000 * _SILENCE_S,
        }
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            if hasattr(socket, name):  # not every system has all of them
                self._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def _set_timeout(self, seconds: float) -> None:
        whole = int(seconds)
        value = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def shake_hands(self, authkey: bytes, *, is_server: bool) -> None:
        """Both sides prove that they know the secret.

        Raises:
            OSError: the other side did not, or took too long.
        """
        self._set_timeout(HANDSHAKE_TIMEOUT_S)
        try:
            if is_server:
                deliver_challenge(self._connection, authkey)
                answer_challenge(self._connection, authkey)
            else:
                answer_challenge(self._connection, authkey)
                deliver_challenge(self._connection, authkey)
        except EOFError as error:
            raise OSError("the other side has closed it before it has shown that it knows the secret") from error
        except (AuthenticationError, ValueError, AssertionError) as error:
            raise OSError(f"the other side does not know the secret ({type(error).__name__}: {error})") from error
        self._set_timeout(0.0)


def _seal_of_size(size: int) -> bytes:
    return _as_bytes(zlib.crc32(b"%d" % size))


def _seal(body: bytes, size: int) -> bytes:
    """The checksum of what comes before it but for the header."""
    return _as_bytes(zlib.crc32(body, zlib.crc32(_seal_of_size(size))))


def _as_bytes(checksum: int) -> bytes:
    return checksum.to_bytes(_SEAL_BYTES, "big")


def _damaged(what: str, size: int) -> DamagedMessageError:
    told = f"what came is not what was sent: {what} differs ({counted(size, 'byte')})"
    _log.warning("A connection is given up: %s. Maybe look at the network of this machine.", told)
    return DamagedMessageError(told)


def _sealed(message: object) -> bytes:
    """A message between the checksum of the length and that of both: one that knows only the second takes it for what is no message."""
    body = encode(message)
    size = len(body) + 2 * _SEAL_BYTES
    return b"".join((_seal_of_size(size), body, _seal(body, size)))


def frame(message: object) -> bytes:
    """A short message as it travels: for a program that can send bytes, but knows no messages."""
    body = _sealed(message)
    assert len(body) < _LONG_MESSAGE
    return _SHORT.pack(len(body)) + body


def connect(address: tuple[str, int], authkey: bytes, timeout_s: float, kind: Any) -> Channel[Any]:
    """A channel to the coordinator, over which messages of a type come.

    Raises:
        OSError: nobody listens there, or the hand-shake failed.
    """
    channel: Channel[Any] = Channel(socket.create_connection(address, timeout=timeout_s), reader_of(kind))
    try:
        channel.watch_for_silence()
        channel.shake_hands(authkey, is_server=False)
    except OSError:
        channel.close()
        channel.release()
        raise
    return channel


class Listener:
    """Each connection whose other side knows the secret is served in a thread of its own.

    Args:
        host: address to listen on.
        port: port to listen on; 0: any that is free.
        authkey: secret of the connections.
        kind: type of the messages that come.
        serve: does what there is to do with a connection, and closes and releases it.

    Raises:
        ClientException: the address cannot be used, or the sockets of this process are no longer Python's.
    """

    def __init__(self, host: str, port: int, authkey: bytes, kind: Any, serve: Callable[[Channel[Any]], None]) -> None:
        package = socket.socket.__module__.partition(".")[0]
        if package in ("gevent", "eventlet"):
            raise ClientException(
                f"The sockets of this process are those of {package} (monkey.patch_all maybe), over which no client can be heard. Maybe run "
                "the application in a process of its own, as by `task-assignor run`."
            )
        self._authkey = authkey
        self._read = reader_of(kind)
        self._serve = serve
        try:
            families = {found[0] for found in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)}
            family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
            is_either = family is socket.AF_INET6 and socket.has_dualstack_ipv6()
            self._socket = socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=is_either)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES} and port:
                raise ClientException(
                    f"The coordinator cannot listen on port {port} of {host!r}: {error.strerror}. Maybe end what has it, or set bind_port "
                    "to another port (pinned Spark jobs take the one after it, too), or to 0, which is any that is free."
                ) from error
            raise ClientException(
                f"The coordinator cannot listen on {host!r}: {error}. Maybe set bind_host to an address of this machine, and advertised_host "
                "to the one at which clients reach it."
            ) from error
        # Whatever somebody's `socket.setdefaulttimeout` says: clients may come late.
        self._socket.settimeout(None)
        self._closed = threading.Event()
        self._refusing = threading.Lock()
        self._refused = 0
        """How many connections were refused that nothing was said of."""
        self._told_at = -_TOLD_EVERY_S
        """When that was last said, in seconds of the monotonic clock."""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Take connections from now on."""
        threading.Thread(target=self._accept, name="acceptor", daemon=True).start()

    def _accept(self) -> None:
        told = ""
        while not self._closed.is_set():
            try:
                self._take(*self._socket.accept())
            except BaseException as error:  # noqa: BLE001 - whatever it is, clients would wait for ever
                # Too many open files, no more threads, no memory: others may give some back.
                if not self._closed.is_set() and told != (said := text_of(error)):
                    told = said
                    _log.warning("Nobody can be connected at the moment; it is tried again: %s", told)
                self._closed.wait(_PAUSE_S)

    def _take(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        with ExitStack() as held:
            held.callback(sock.close)
            channel = Channel(sock, self._read)
            held.callback(channel.release)
            threading.Thread(target=self._welcome, args=(channel, address[0]), name="reader", daemon=True).start()
            held.pop_all()

    def _welcome(self, channel: Channel[Any], host: str) -> None:
        try:
            channel.shake_hands(self._authkey, is_server=True)
        except OSError as error:
            self._tell_of_refused(host, error)
            channel.close()
            channel.release()
        else:
            self._serve(channel)

    def _tell_of_refused(self, host: str, error: OSError) -> None:
        with self._refusing:
            self._refused += 1
            now = time.monotonic()
            if now < self._told_at + _TOLD_EVERY_S:
                return
            others, self._refused, self._told_at = self._refused - 1, 0, now
        _log.warning(
            "A connection from %s was refused: %s%s",
            host,
            error,
            f" (and {counted(others, 'other')} since that was last said)" if others else "",
        )

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        self._closed.set()
        # Wakes the thread in accept, which a plain close does not.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):  # somebody may have closed what is not his own
            self._socket.close()
