"""What a storage promises: whole objects under relative names, durable when a call returns, one winner of an exclusive put."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa

from task_assignor.sdk.text import NAME_RULE, is_name, shown

T = TypeVar("T")
Data: TypeAlias = bytes | pa.Buffer
PARALLEL: Final = 32
"""Objects that are made durable at the same time: waiting costs nothing, and one flush of a disk serves all that wait."""


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Those of this process: one that was forked has none of the threads of its parent."""
    return ThreadPoolExecutor(PARALLEL, thread_name_prefix="storage")


def check_object_name(name: str) -> None:
    """Make sure that a name stays below the root: parts between slashes, each as Kafka allows names of topics.

    Raises:
        ValueError: it may not; names it.
    """
    if not isinstance(name, str) or not name or not all(map(is_name, name.split("/"))):
        raise ValueError(
            f"The object name ({shown(name)}) must be a relative path of parts divided by '/', each with {NAME_RULE}."
        )


class Storage(ABC):
    """Objects under names.

    A name is a relative path with slashes; nothing is both an object and a folder of others. All methods may be called
    from any thread. What they raise is an OSError that names the object: FileNotFoundError, FileExistsError,
    PermissionError, or what the disk or the service says; and ValueError for a name that is not allowed.

    Attributes:
        address: path or URL of the root.
    """

    address: str

    @abstractmethod
    def put(self, name: str, data: Data) -> None:
        """Write an object, in place of the one that is there. Others see the old one or the new one, never a part.

        When it returns, no power failure takes the object away; if one comes before, the old or the new one is there.
        """

    @abstractmethod
    def put_all(self, objects: Mapping[str, Data]) -> None:
        """Write new objects, and come back when all of them are durable: much cheaper than one after the other.

        A power failure before it returns may leave some of them damaged. So nobody may look for these names before
        something that was put later says that they are there, with their seals.
        """

    @abstractmethod
    def put_if_absent(self, name: str, data: Data) -> None:
        """Write an object that is not there; of many who try, whatever machine they are on, exactly one succeeds.

        Durable when it returns. `data` should be different for each who tries (with an id in it, say): that is how the
        winner is known where a network lost the answer.

        Raises:
            FileExistsError: the object is there.
        """

    @abstractmethod
    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        """Bytes of an object, not copied where the storage can map them into memory.

        Args:
            name: the object.
            start: the first byte.
            end: where to stop, at most the size; None: at its end.

        Raises:
            FileNotFoundError: there is no such object.
        """

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of an object.

        Raises:
            FileNotFoundError: there is no such object.
        """

    @abstractmethod
    def list(self, folder: str = "") -> list[str]:
        """What is directly in a folder, sorted: names relative to the root; folders end with a slash.

        All of it was there at one time, as far as it was put if it was absent. A folder that is not there is empty; one whose
        objects were all deleted may still be listed. What is no name of ours somebody else has put there: it is left out.
        """

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over. A power failure may bring a deleted object back."""

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:  # noqa: ARG002
        """Keep out others who hold the same name, as far as they can be seen; ends with the process, however that ends.

        A storage that cannot see them lets everybody in: what only one may do is done by `put_if_absent` all the same.

        Raises:
            BlockingIOError: somebody else holds it.
        """
        yield

    def locate(self, name: str) -> str:
        """Path or URL of an object, for messages and for other programs."""
        return f"{self.address}/{name}" if name else self.address

    def list_below(self, folder: str = "") -> Iterator[str]:
        """The names of all objects in a folder and in those below it."""
        for name in self.list(folder):
            if name.endswith("/"):
                yield from self.list_below(name[:-1])
            else:
                yield name

    def unfinished(self, folder: str) -> Iterator[str]:  # noqa: ARG002
        """The names of objects in a folder and below that somebody has begun to write, who may have died since."""
        return iter(())

    def delete_unfinished(self, names: Iterable[str]) -> None:
        """Delete what was begun to be written under these names; who still writes there is told that it cannot be."""

    def is_there(self, name: str) -> bool:
        """Whether there is such an object."""
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def for_all(self, function: Callable[[T], None], things: Iterable[T]) -> None:
        """Call a function for all things at the same time, and raise the first error when all have ended: for calls that wait.

        The function must not do so itself: all storages of a process share the threads.
        """
        things = list(things)
        if not things:
            return
        waiting: list[Future[None]] = []
        for thing in things[:-1]:
            try:
                waiting.append(_threads(os.getpid()).submit(function, thing))
            except RuntimeError:
                break  # Python is ending, and gives no more work to threads.
        failures: list[BaseException] = []
        # This thread would only wait.
        for thing in things[len(waiting) :]:
            try:
                function(thing)
            except Exception as error:  # noqa: BLE001 - raised below, when all have ended
                failures.append(error)
        failures[:0] = [found for found in (future.exception() for future in waiting) if found is not None]
        if failures:
            raise failures[0]
