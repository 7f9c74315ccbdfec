"""Processes that use the same files, one operation of the storage at a time, in an order that a seed decides.

Each actor is a thread, of which exactly one runs: whenever it comes to the storage another one may go on, it may sleep while others do
much, or die there. So an order in which something is lost is found by trying many seeds, and seen again by the seed.
"""

from __future__ import annotations

import errno
import random
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime.storage import Data, Storage, addresses
from tests.runtime.simulated_storage import MemoryStorage

_MOST_STEPS: Final = 200_000
"""Who needs more goes round in circles."""
_LOOKS: Final = 20


class DiedError(BaseException):
    """The actor is dead: nothing that it does counts any more, whatever it would tidy up."""


@attrs.define(eq=False)
class Actor:
    """A process of its own.

    Args:
        name: for messages.
        act: what it does.
        dies: with this chance at each step.
        of: another one of the same process, with which it dies.
        wakes: the step up to which it sleeps.
    """

    name: str
    act: Callable[[], None]
    dies: float = 0.0
    of: Actor | None = None
    wakes: int = 0
    has_died: bool = False
    has_ended: bool = False
    turn: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    @property
    def is_dead(self) -> bool:
        """Its process is."""
        return self.has_died or (self.of is not None and self.of.has_died)


class Interleaving:
    """Runs actors, one step of one of them after the other.

    Args:
        seed: decides everything.

    Attributes:
        chance: for all that is decided.
        now: steps so far.
        deaths: how many actors have died.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = self.deaths = 0
        self._goes_on = self.chance.choice((0.2, 0.6, 0.9))
        self._sleeps = self.chance.choice((0.0, 0.01, 0.05))
        self._longest = self.chance.choice((1.5, 2.5, 3.5))
        self._is_looking = False
        self._running: list[Actor] = []
        self._actors: dict[int, Actor] = {}
        self._error: BaseException | None = None
        self._ended = threading.Semaphore(0)

    def add(self, name: str, act: Callable[[], None], dies: float = 0.0, of: Actor | None = None) -> Actor:
        """Another actor; its first step is its beginning."""
        actor = Actor(name, act, dies, of)
        self._running.append(actor)
        return actor

    def run(self) -> None:
        """Until all have ended or died.

        Raises:
            BaseException: what an actor raised first.
        """
        threads = [threading.Thread(target=self._live, args=(actor,), daemon=True) for actor in self._running]
        for thread in threads:
            thread.start()
        if threads:
            self._choose().turn.release()
            self._ended.acquire()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def point(self, sleep: int = 0) -> None:
        """Here another actor may go on, and for so many steps others do; what is called by none of them goes on itself."""
        if self._is_looking:
            return
        self.now += 1
        actor = self._actors.get(threading.get_ident())
        if actor is None:
            return
        if actor.dies and self.chance.random() < actor.dies:
            (actor.of or actor).has_died = True
            self.deaths += 1
        if self.now > _MOST_STEPS and self._error is None:
            self._error = AssertionError(f"{actor.name} does not come to an end")
        if actor.is_dead or self._error is not None:
            raise DiedError
        if sleep:
            actor.wakes = self.now + sleep
        elif self._sleeps and self.chance.random() < self._sleeps:
            actor.wakes = self.now + int(10 ** self.chance.uniform(0, self._longest))
        elif self.chance.random() < self._goes_on:
            return
        chosen = self._choose()
        if chosen is not actor:
            chosen.turn.release()
            actor.turn.acquire()
        if self._error is not None:
            raise DiedError

    @contextmanager
    def looking(self) -> Iterator[None]:
        """A look at everything, which is no step of anybody."""
        self._is_looking = True
        try:
            yield
        except Exception as error:
            # Not what the storage says to whoever uses it.
            raise AssertionError(f"{type(error).__name__}: {error}") from error
        finally:
            self._is_looking = False

    def _choose(self) -> Actor:
        awake = [actor for actor in self._running if actor.wakes <= self.now]
        return self.chance.choice(awake) if awake else min(self._running, key=lambda actor: actor.wakes)

    def _live(self, actor: Actor) -> None:
        self._actors[threading.get_ident()] = actor
        actor.turn.acquire()
        try:
            if self._error is None:
                actor.act()
        except DiedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where they were started
            if self._error is None and not actor.is_dead:
                self._error = error
        actor.has_ended = True
        del self._actors[threading.get_ident()]
        self._running.remove(actor)
        (self._choose().turn if self._running else self._ended).release()


class SteppedStorage(MemoryStorage):
    """A storage in memory that all actors share; before and after whatever it does others may go on.

    Lists are made as on a disk: names first, then a look at each, and again if what was put if absent has gone.

    Args:
        actors: those who use it.
        address: by which it is found.

    Attributes:
        fails: with this chance a put is an error, and nobody knows whether the object is there.
        sleepy: how likely it is that somebody sleeps before what is done (the name of a method) with a name; 0: as before all else.
        on_created: called with the name of what was put because it was absent, before anybody else goes on.
    """

    def __init__(self, actors: Interleaving, address: str) -> None:
        super().__init__()
        self.address = address
        self._all = actors
        self.fails = 0.0
        self.sleepy: Callable[[str, str], float] = lambda what, name: 0.0
        self.on_created: Callable[[str], None] = lambda name: None
        self._exclusive: set[str] = set()

    def put(self, name: str, data: Data) -> None:
        self._may_sleep("put", name)
        with self._step(name, fails=True):
            super().put(name, data)

    def put_if_absent(self, name: str, data: Data) -> None:
        self._may_sleep("put_if_absent", name)
        with self._step(name, fails=True):
            if name in self.objects:
                raise FileExistsError(errno.EEXIST, "File exists", name)
            MemoryStorage.put(self, name, data)
            self._exclusive.add(name)
            with self._all.looking():
                self.on_created(name)

    def put_all(self, objects: Mapping[str, Data]) -> None:
        for name, data in objects.items():
            self.put(name, data)

    def open(self, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        with self._step(name):
            return super().open(name, start, end)

    def size(self, name: str) -> int:
        with self._step(name):
            return super().size(name)

    def list(self, folder: str = "") -> list[str]:
        self._may_sleep("list", folder)
        with self._step(folder):
            for _ in range(_LOOKS):
                names = sorted(self._directly_in(folder))
                if self._all.chance.random() < 0.5:
                    break
                for _ in names:
                    self._all.point()
                if not any(name in self._exclusive and name not in self.objects for name in names):
                    break
            return names

    def list_below(self, folder: str = "") -> Iterator[str]:
        return Storage.list_below(self, folder)

    def _directly_in(self, folder: str) -> set[str]:
        prefix = f"{folder}/" if folder else ""
        parts = (name[len(prefix) :].partition("/") for name in self.objects if name.startswith(prefix))
        return {f"{prefix}{first}{slash}" for first, slash, _ in parts}

    def delete(self, names: Iterable[str]) -> None:
        names = list(names)
        self._may_sleep("delete", *names[:1] or [""])
        for name in names:
            with self._step(name):
                super().delete([name])

    def for_all(self, function: Callable[..., None], things: Iterable[object]) -> None:
        for thing in list(things):
            function(thing)

    def _may_sleep(self, what: str, name: str) -> None:
        likely = self.sleepy(what, name)
        if likely and self._all.chance.random() < likely:
            self._all.point(int(10 ** self._all.chance.uniform(1.5, 3)))

    @contextmanager
    def _step(self, name: str, *, fails: bool = False) -> Iterator[None]:
        self._all.point()
        if fails and self.fails and self._all.chance.random() < self.fails:
            raise OSError(errno.EIO, "Input/output error", name)
        yield
        if fails and self.fails and self._all.chance.random() < self.fails:
            raise OSError(errno.EIO, "Input/output error", name)
        # What is done is known to the others before who has done it knows.
        self._all.point()


class World(ABC):
    """Actors that use one storage: who they are, and what must hold.

    Args:
        seed: decides everything.
        address: by which the storage is found.
    """

    def __init__(self, seed: int, address: str) -> None:
        self.actors = Interleaving(seed)
        self.chance = self.actors.chance
        self.storage = SteppedStorage(self.actors, address)
        self.storage.on_created = self._created

    def run(self) -> None:
        """Live, and check what is left.

        Raises:
            AssertionError: what must hold does not.
        """
        with pytest.MonkeyPatch.context() as patch:
            self._patch(patch)
            self._add_actors()
            self.actors.run()
            self.storage.fails = 0
            self._check()

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        """Whatever asks for a storage gets this one, and chance decides all."""
        patch.setattr(addresses, "_storage", lambda *_: self.storage)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def _add(self, count: int, name: str, act: Callable[[], None], dies: float = 0.0) -> None:
        """So many actors who do the same."""
        for number in range(count):
            self.actors.add(f"{name} {number}", act, dies)

    @abstractmethod
    def _add_actors(self) -> None:
        """Make what is there before them, and add them."""

    @abstractmethod
    def _created(self, name: str) -> None:
        """Somebody has put what was absent; nobody goes on yet."""

    @abstractmethod
    def _check(self) -> None:
        """All have ended."""
