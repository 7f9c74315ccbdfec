"""A storage in an object store - S3 and what speaks like it, Google Cloud Storage, Azure - through `obstore`."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Self, TypeVar, cast

import obstore
import pyarrow as pa
from obstore import Bytes, exceptions, store

from task_assignor.runtime.storage.base import Data, Storage, check_object_name
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import is_name

T = TypeVar("T")
_FIRST_PATIENCE_S: Final = 15.0
"""For the first answer: maybe there is no store."""
_PATIENCE_S: Final = 60.0
_SILENCE_S: Final = 5.0
_REFUSAL: Final = re.compile(
    r"status code: 4(?!08|09|29|.*<Code>RequestTimeout<)|redirect without LOCATION|builder error|\(code: AccessDenied\)|InvalidCertificate\(",
    re.DOTALL,
)
"""An answer that will be the same the next time; others are too many requests, several at the same object, connections that were too slow, and servers in trouble."""
_ROLE: Final = re.compile(r"/latest/(api/token|meta-data/iam)\b")
"""Of the service of EC2 that has the keys of a machine's role: `obstore` asks it where the environment has none."""
_FORBIDDEN: Final = re.compile(
    rf"status code: 40[13]|<Code>(ExpiredToken|InvalidToken)<|\(code: AccessDenied\)|{_ROLE.pattern}"
)
"""What `obstore` has no error of its own for, in lists and deletions and where keys have expired or there are none."""
_SMALL_BYTES: Final = 5 << 20
"""Of more `obstore` makes many requests, and reads on where an answer broke off."""
_ALIGNED_BYTES: Final = 16
_log = logger_of(__name__)
_NOT_FOUND: Final = (FileNotFoundError, exceptions.NotFoundError)
_ERRNO: Final[tuple[tuple[tuple[type[BaseException], ...], int], ...]] = (
    (_NOT_FOUND, errno.ENOENT),
    ((FileExistsError, exceptions.PreconditionError), errno.EEXIST),
    ((exceptions.PermissionDeniedError, exceptions.UnauthenticatedError), errno.EACCES),
    ((NotImplementedError, exceptions.NotSupportedError), errno.ENOTSUP),
    # A ConnectionError: what the disk of a server says does not come here.
    ((OSError, exceptions.BaseError), errno.ECONNABORTED),
)


class ObjectStorage(Storage):
    """Objects of a store, below a prefix.

    Args:
        address: URL of the root, for messages.
        found: the store with its prefix; it tries again what failed for a moment, for minutes where nothing comes back. For what is large.
        once: the same store, which tries once only, so that we hear of it. None: `found` does not repeat anything.
    """

    def __init__(self, address: str, found: store.ObjectStore, once: store.ObjectStore | None = None) -> None:
        self.address = address.rstrip("/")
        self._store = found
        self._once = once or found
        self._is_exclusive = False
        self._has_answered = False
        self._check = threading.Lock()
        self._waiters = 0
        self._count = threading.Lock()

    @classmethod
    def at(cls, url: str) -> Self:
        """The storage that a URL means. Credentials and endpoint come from the environment, as `obstore` reads it.

        Raises:
            ValueError: the URL or the environment is not enough to reach a store.
        """
        if url.startswith("s3:"):
            _check_endpoint()
        try:
            return cls(url, _from_url(url), _from_url(url, retry_config={"max_retries": 0}))
        except (exceptions.BaseError, ValueError) as error:
            raise ValueError(_brief(error)) from None

    def put(self, name: str, data: Data) -> None:  # noqa: D102
        with self._errors(name):
            self._ask(lambda: obstore.put(self._store_for(len(_bytes(data))), name, _bytes(data)))

    def put_all(self, objects: Mapping[str, Data]) -> None:  # noqa: D102
        self.for_all(lambda name: self.put(name, objects[name]), objects)

    def put_if_absent(self, name: str, data: Data) -> None:  # noqa: D102
        with self._errors(name):
            self._create(name, data)
            if not self._is_exclusive:
                self._check_exclusive(name, data)

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:  # noqa: D102
        with self._errors(name):
            if end is not None:
                return _aligned(self._ask(lambda: obstore.get_range(self._once, name, start=start, end=end)))
            return _aligned(self._ask(lambda: self._whole(name))).slice(start)

    def size(self, name: str) -> int:  # noqa: D102
        with self._errors(name):
            return self._ask(lambda: obstore.head(self._once, name))["size"]

    def list(self, folder: str = "") -> list[str]:  # noqa: D102
        with self._errors(folder or None):
            found = self._ask(lambda: obstore.list_with_delimiter(self._once, folder or None))
        names = [f"{name}/" for name in found["common_prefixes"]] + [entry["path"] for entry in found["objects"]]
        # Some stores have an empty object for the folder itself.
        return sorted(name for name in names if name != folder and is_name(name.rstrip("/").rpartition("/")[2]))

    def delete(self, names: Iterable[str]) -> None:  # noqa: D102
        names = list(names)
        for name in names:
            check_object_name(name)
        if names:
            with self._errors(names[0]):
                try:
                    self._ask(lambda: obstore.delete(self._once, names))
                except _NOT_FOUND:
                    # Not all stores pass over what is not there, and then nobody knows what became of the others.
                    for name in names:
                        with suppress(*_NOT_FOUND):
                            self._ask(functools.partial(obstore.delete, self._once, name))

    def _store_for(self, size: int) -> store.ObjectStore:
        return self._once if size <= _SMALL_BYTES else self._store

    def _whole(self, name: str) -> Bytes:
        answer = obstore.get(self._once, name)
        again = self._store_for(answer.meta["size"])
        return (answer if again is self._once else obstore.get(again, name)).bytes()

    def _create(self, name: str, data: Data) -> None:
        is_first = True

        def create() -> bool:
            nonlocal is_first
            try:
                if self._is_made(name, data):
                    return True
            except exceptions.GenericError:
                is_first = False
                raise
            found = self._find(name)
            if found is None:
                # S3 also says so when somebody else is at it.
                raise exceptions.GenericError("the store says that it is there, and does not find it")
            # Equal: the answer to an earlier try was lost.
            return not is_first and found.equals(pa.py_buffer(data))

        if not self._ask(create):
            raise FileExistsError

    def _is_made(self, name: str, data: Data) -> bool:
        try:
            obstore.put(self._once, name, _bytes(data), mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        return True

    def _ask(self, ask: Callable[[], T]) -> T:
        """What the store answers to something that may be asked twice.

        `obstore` asks again by itself what is large, but for a few seconds only where the store answers with errors.
        """
        begin, said = time.monotonic(), False
        patience = _PATIENCE_S if self._has_answered else _FIRST_PATIENCE_S
        with ExitStack() as waiting:
            for attempt in itertools.count():
                try:
                    answer = ask()
                # The latter is a 409 to what has no condition: somebody else is at the object.
                except (exceptions.GenericError, exceptions.AlreadyExistsError) as error:
                    waited = time.monotonic() - begin
                    if waited > patience or _REFUSAL.search(str(error)):
                        raise
                    if waited > _SILENCE_S and not said:
                        said = True
                        text = "%s does not answer: %s. It is waited for up to %.0f s."
                        waiting.enter_context(self._waiting(text, self.address, _brief(error), patience))
                except (OSError, exceptions.BaseError):
                    self._has_answered = True
                    raise
                else:
                    self._has_answered = True
                    return answer
                time.sleep(min(0.05 * 2**attempt, 5))
        raise AssertionError("it is asked until it answers")

    @contextmanager
    def _waiting(self, text: str, *values: object) -> Iterator[None]:
        """Say that nothing answers, and when something does: once, however many requests wait."""
        if self._count_waiting(1) == 1:
            _log.warning(text, *values)
        is_answered = False
        try:
            yield
            is_answered = True
        finally:
            if self._count_waiting(-1) == 0 and is_answered:
                _log.warning("%s answers again.", self.address)

    def _count_waiting(self, more: int) -> int:
        with self._count:
            self._waiters += more
            return self._waiters

    def _find(self, name: str) -> pa.Buffer | None:
        try:
            return self.open(name)
        except FileNotFoundError:
            return None

    def _check_exclusive(self, name: str, data: Data) -> None:
        """A store that does not know conditional puts takes them for others, and several coordinators would win."""
        with self._check:
            if not self._is_exclusive:
                if self._ask(lambda: self._is_made(name, data)):
                    raise OSError(
                        errno.ENOTSUP,
                        "The store does not know conditional puts (If-None-Match), without which several writers would "
                        "overwrite each other. Maybe use a newer version of it",
                        self.locate(name),
                    )
                self._is_exclusive = True

    @contextmanager
    def _errors(self, name: str | None) -> Iterator[None]:
        if name is not None:
            check_object_name(name)
        try:
            yield
        except (OSError, NotImplementedError, exceptions.BaseError) as error:
            if isinstance(error, OSError) and error.filename:
                raise
            number = next(number for kinds, number in _ERRNO if isinstance(error, kinds))
            if number == errno.ECONNABORTED and _FORBIDDEN.search(str(error)):
                number = errno.EACCES
            is_plain = number == errno.EEXIST or (number == errno.ENOENT and "NoSuchBucket" not in str(error))
            text = os.strerror(number) if is_plain else _brief(error)
            raise OSError(number, text, self.locate(name or "")) from error


def _from_url(url: str, **options: Any) -> store.ObjectStore:
    make = cast(Callable[..., store.ObjectStore], store.from_url)
    return make(url, **options)


def _check_endpoint() -> None:
    """Without a scheme `obstore` ends in a panic of Rust, which is no Exception."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        endpoint = os.environ.get(name)
        if endpoint and not re.match("https?://", endpoint):
            raise ValueError(f"{name} ({endpoint!r}) must begin with https:// or http://")


def _aligned(data: Bytes) -> pa.Buffer:
    """Bytes as Arrow wants them; what comes in an answer begins anywhere."""
    found = pa.py_buffer(data)
    if found.address % _ALIGNED_BYTES == 0:
        return found
    copied = pa.allocate_buffer(found.size)
    memoryview(copied).cast("B")[:] = memoryview(found).cast("B")
    return copied


def _bytes(data: Data) -> memoryview:
    return memoryview(data).cast("B")


def _brief(error: BaseException) -> str:
    """What an error of obstore says, without the structures of Rust that follow, of which only they say why TLS failed."""
    text, _, structures = str(error).partition("\n\nDebug source")
    reason = re.search(r"(Invalid\w+)\(\s*(\w+)", structures)
    said = f"{text.strip()}: {reason[1]} ({reason[2]})" if reason else text.strip()
    if _ROLE.search(said):
        said += " (asked for the keys of a role, as the environment has no AWS_ACCESS_KEY_ID; profiles of ~/.aws are not read)"
    return said
