"""Clients that are threads of this process: real ones with real connections, quick to start; a kill is a client that falls silent."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence

from task_assignor.runtime import ClientBootstrap, ClientException, ClientExit, Departure, LaunchPlan, pickle_bootstrap
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.tasks import TasksHere


class _NoHeartbeats:
    """The client's own messages say that it lives: nothing here takes so long that another process has to."""

    runs = True

    def end(self) -> None:
        """Nothing is to be ended."""


class _Client:
    def __init__(self, bootstrap: ClientBootstrap) -> None:
        # As another process has it: with processors of its own.
        copied: ClientBootstrap = pickle.loads(pickle_bootstrap(bootstrap))
        self.shell = ClientShell(copied, "thread", TasksHere(copied), heartbeats=lambda member: _NoHeartbeats())
        self.reason, self.has_left = "", False
        self.thread = threading.Thread(target=self._run, name=bootstrap.spec.name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.reason, self.has_left = self.shell.run(), True
        except ClientException as error:
            self.reason = str(error)


class ThreadLauncher:
    """A launcher of such clients."""

    coordinator_host = "127.0.0.1"

    def __init__(self) -> None:
        self._bootstraps: dict[str, ClientBootstrap] = {}
        self._clients: dict[str, _Client] = {}
        self._gone: list[_Client] = []

    @property
    def running(self) -> list[str]:
        """Names of the clients that run."""
        return sorted(self._clients)

    def start(self, plan: LaunchPlan) -> None:
        """Start all."""
        for bootstrap in plan.bootstraps:
            self.add(bootstrap)

    def capacity(self) -> int | None:
        """As many as are wanted."""
        return None

    def add(self, bootstrap: ClientBootstrap) -> None:
        """Start one."""
        self._bootstraps[bootstrap.spec.name] = bootstrap
        self._clients[bootstrap.spec.name] = _Client(bootstrap)

    def remove(self, client: str) -> None:
        """It ends without a word."""
        if client in self._clients:
            self._clients[client].shell.give_up("it is not wanted any more")

    def kill(self, client: str) -> None:
        """It ends without a word, and is replaced."""
        self._clients[client].shell.give_up("it was killed")

    def departing(self) -> Sequence[Departure]:
        """Nobody leaves."""
        return []

    def replace(self, client: str) -> None:
        """Start it again."""
        self.add(self._bootstraps[client])

    def exits(self) -> Sequence[ClientExit]:
        """Whose thread has ended."""
        ended = {name: client for name, client in self._clients.items() if not client.thread.is_alive()}
        for name in ended:
            self._gone.append(self._clients.pop(name))
        return [ClientExit(name, client.reason, client.has_left) for name, client in ended.items()]

    def stop(self, timeout_s: float) -> None:
        """Wait for all, also for what clients that were killed are still doing."""
        for client in self._clients.values():
            client.thread.join(timeout_s)
            client.shell.give_up("the run is over")
        for client in [*self._clients.values(), *self._gone]:
            client.thread.join()
            for pool in (client.shell._workers, client.shell._shares, client.shell._looks):
                pool.shutdown()
        self._clients, self._gone = {}, []
