"""Who shall run, and what becomes of clients that are too many, of new ones, and of processes that end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import count, islice
from typing import Final

from task_assignor.runtime.blame import text_of
from task_assignor.runtime.errors import ClientException
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase
from task_assignor.runtime.machines.events import ClientJoined, ClientLeft, ClientLost, RunEvent
from task_assignor.runtime.shells.launcher import ClientBootstrap, ClientExit, ClientSpec, Launcher
from task_assignor.runtime.shells.server import CoordinatorServer
from task_assignor.sdk import StreamsConfig, StreamsException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import duration, named, shown

MOST_CLIENTS: Final = 10_000
_SETTLE_S = 10.0
"""So long the engine may take to have all places for clients."""
_log = logger_of(__name__)
_EARLY_EXITS = {False: 3, True: 50}
"""So often in a row a client's process may end before it joins; by whether it has joined before."""


class Clients:
    """The clients of a run, from its start to its end. All but `watch` is called from the coordinator's thread.

    Args:
        launcher: brings them to life.
        server: takes what the coordinator is to be told.
        wanted: who shall run now.
        bootstrap: what a client is told.
        min_clients: the run begins when so many are there; None: all that can run now.
        not_wanted: told of a client that has left by itself.
    """

    def __init__(
        self,
        launcher: Launcher,
        server: CoordinatorServer,
        wanted: Callable[[], Sequence[ClientSpec]],
        bootstrap: Callable[[ClientSpec], ClientBootstrap],
        min_clients: int | None,
        not_wanted: Callable[[str], None],
    ) -> None:
        self._launcher = launcher
        self._server = server
        self._wanted = wanted
        self._bootstrap = bootstrap
        self._min_clients = min_clients
        self._not_wanted = not_wanted
        self._settled = time.monotonic() + _SETTLE_S
        self._running = {spec.name: spec for spec in wanted()}
        """Those that the launcher was asked for."""
        self._ending: set[str] = set()
        """Those that shall not run any more, and whose processes have not ended."""
        self._told: set[str] = set()
        """Members of those, which were asked to leave."""
        self._present: set[str] = set()
        """Those that are members."""
        self._joined: set[str] = set()
        """Those that have been members."""
        self._left: set[str] = set()
        """Those that have left in order since, and end by themselves."""
        self._ended: set[str] = set()
        """Those whose processes have ended in order before it was heard that they leave."""
        self._moving: set[str] = set()
        """Those that leave where they are, and shall be started elsewhere."""
        self._early_exits: Counter[str] = Counter()
        """Client -> how often its process has ended since it joined the last time."""
        self._expected = self.expected

    @property
    def expected(self) -> int:
        """How many clients the run waits for before it begins: all, or when some time has passed those that can run."""
        wanted = max(len(self._running), 1)
        if self._min_clients is not None:
            return min(self._min_clients, wanted)
        if time.monotonic() < self._settled:
            return wanted
        capacity = self._launcher.capacity()
        return wanted if capacity is None else max(min(wanted, capacity), 1)

    def watch(self, event: RunEvent) -> None:
        """Something happened in the run."""
        match event:
            case ClientJoined(client):
                # The end of this process will be counted, but it is not an early one.
                self._early_exits[client] = -1
                self._told.discard(client)
                self._present.add(client)
                self._joined.add(client)
                self._left.discard(client)
                self._ended.discard(client)
                self._moving.discard(client)
            case ClientLost(client) | ClientLeft(client):
                self._present.discard(client)
                if isinstance(event, ClientLeft) or client in self._ended:
                    self._see_leave(client)
                if event.waits_ms:
                    _log.warning(
                        "No client is there any more; the run waits for one for %s (startup_timeout_ms).",
                        duration(event.waits_ms),
                    )

    def look_after(self, coordinator: Coordinator) -> None:
        """Start and end clients, and see which processes have ended.

        Raises:
            ClientException: processes of a client end again and again before it has joined, or the launcher fails.
        """
        if coordinator.phase is CoordinatorPhase.STOPPING:
            return  # now they may end
        try:
            self._look_after(coordinator)
        except StreamsException:
            raise
        except Exception as error:
            raise ClientException(
                f"The {type(self._launcher).__name__} does not say any more how its clients are: {text_of(error)}. Maybe what they run "
                "in has ended."
            ) from error

    def _look_after(self, coordinator: Coordinator) -> None:
        self._follow_wishes()
        for departing in self._launcher.departing():
            self._moving.add(departing.client)
            self._server.request_leave(departing.client, departing.reason)
        for ended in self._launcher.exits():
            if ended.client in self._ending:
                self._ending.remove(ended.client)
            elif ended.client in self._running:
                self._see_end(ended)
        if coordinator.phase is CoordinatorPhase.GATHERING and self.expected != self._expected:
            self._expected = self.expected
            self._server.expect_clients(self._expected)

    def _see_leave(self, client: str) -> None:
        self._left.add(client)
        if client in self._moving:
            self._moving.remove(client)
        elif client in self._running:
            # Somebody has ended its process in order, so it is one less.
            del self._running[client]
            if client in self._ended:
                self._ended.remove(client)
            else:
                self._ending.add(client)
            self._not_wanted(client)

    def end_absent(self) -> None:
        """The run is over: end processes that nobody has told so, since they have not joined or were lost.

        They would look for the coordinator in vain, or stand still, and the end of the run would wait for them.
        """
        for name in sorted(self._running.keys() - self._present - self._left):
            self._launcher.remove(name)

    def _follow_wishes(self) -> None:
        wanted = {spec.name: spec for spec in self._wanted()}
        # One that is to be another one leaves, too, and is started again when it has ended.
        for name in sorted(name for name, spec in self._running.items() if wanted.get(name) != spec):
            del self._running[name]
            self._ending.add(name)
            if name not in self._present:
                self._launcher.remove(name)
        for name in sorted(self._present & self._ending - self._told):
            self._told.add(name)
            self._server.request_leave(name, "scale-in")
        for name, spec in wanted.items():
            if name not in self._running and name not in self._ending:
                self._running[name] = spec
                self._launcher.add(self._bootstrap(spec))

    def _see_end(self, ended: ClientExit) -> None:
        if ended.has_left:
            self._ended.add(ended.client)
            _log.info("The process of %s has ended: %s", named("client", ended.client), ended.reason)
            if ended.client not in self._present:
                # Nobody else will tell: it has not come so far, or its connection was lost before.
                self._see_leave(ended.client)
            return
        _log.warning("The process of %s has ended: %s", named("client", ended.client), ended.reason)
        self._early_exits[ended.client] += 1
        limit = _EARLY_EXITS[ended.client in self._joined]
        if self._early_exits[ended.client] >= limit:
            # Spark says why; a process only that.
            advice = (
                ' Maybe its own messages say why; a script needs `if __name__ == "__main__":`.'
                if ended.reason.startswith("exit code ")
                else ""
            )
            raise ClientException(
                f"The process of {named('client', ended.client)} ended {limit} times in a row before it joined (the last "
                f"time: {ended.reason.removesuffix('.')}).{advice}"
            )
        self._launcher.replace(ended.client)


def client_specs(
    clients: int | Sequence[ClientSpec], config: StreamsConfig, *, are_together: bool = False
) -> tuple[ClientSpec, ...]:
    """The clients that are given, or so many, with what the settings say where they say nothing themselves.

    Args:
        clients: the clients.
        config: the settings.
        are_together: all of them are on one machine, so two of one state directory would delete each other's files.

    Raises:
        ClientException: none, too many, two of one name or, if they are together, of one state directory, or something else.
    """
    if type(clients) is int:
        clients = new_specs(clients)
    if not isinstance(clients, Sequence) or not all(isinstance(spec, ClientSpec) for spec in clients):
        raise ClientException(f"The clients ({shown(clients)}) must be an int, or a list of ClientSpec objects.")
    if not clients:
        raise ClientException("An application needs at least one client.")
    twice = sorted(name for name, times in Counter(spec.name for spec in clients).items() if times > 1)
    if twice:
        raise ClientException(f"There are two clients of the name {twice[0]!r}. Names must be unique.")
    folders: dict[str, str] = {}
    for spec in clients if are_together else ():
        other = spec.state_dir and folders.setdefault(os.path.realpath(spec.state_dir), spec.name)
        if other not in (None, spec.name):
            raise ClientException(
                f"The clients {other!r} and {spec.name!r} have one state_dir ({spec.state_dir!r}), in which each would delete files of "
                "the other. Maybe a folder for each; the setting state.dir makes one for each by itself."
            )
    return tuple(spec.with_settings(config) for spec in clients)


def new_specs(many: int, taken: Collection[str] = ()) -> list[ClientSpec]:
    """So many clients more, of names that are not taken.

    Raises:
        ClientException: too many.
    """
    if many + len(taken) > MOST_CLIENTS:
        raise ClientException(f"The clients ({many + len(taken)}) must be at most {MOST_CLIENTS}.")
    names = (name for number in count(1) if (name := f"client-{number}") not in taken)
    return [ClientSpec(name) for name in islice(names, max(many, 0))]
