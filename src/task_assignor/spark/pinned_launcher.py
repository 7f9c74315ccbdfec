"""Pinned jobs: each stream task is a Spark task, on the executor of the client that the assignor chose; for bounded runs.

A client is a share of an executor: as many slots as it has threads. It lives in the driver, as one of the members that the
coordinator knows, and has its jobs done by Spark tasks (`pinned_tasks`). Spark is asked to run them on the client's executor; one
that finds itself elsewhere does nothing, says so, and is started again.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import attrs
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from task_assignor.runtime import ClientBootstrap, ClientExit, Departure, LaunchPlan, pickle_bootstrap
from task_assignor.runtime.blame import text_of
from task_assignor.runtime.machines.protocol import Alive, ToClient
from task_assignor.runtime.shells.client_shell import ClientShell
from task_assignor.runtime.shells.signals import unbroken
from task_assignor.runtime.shells.transport import connect
from task_assignor.sdk import ConfigException
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted
from task_assignor.spark.executors import (
    NO_EXECUTOR_S,
    Executor,
    live_executors,
    warn_of_waiting,
    warn_without_executors,
)
from task_assignor.spark.pinned_tasks import Door, PinnedTasks
from task_assignor.spark.session import (
    SparkSessionError,
    check_slots,
    driver_host,
    is_local,
    needs_session,
    require_classic,
)
from task_assignor.spark.shipping import ship_package

_LOOK_EVERY_S: Final = 0.2
_CANCEL_TIMEOUT_S: Final = 10.0
_LEAST: Final = "spark.dynamicAllocation.minExecutors"

logger = logger_of(__name__)


@attrs.define(eq=False)
class _Client:
    """A client with its place, or one that waits for a place."""

    bootstrap: ClientBootstrap
    payload: bytes
    """The same, for Spark tasks."""
    executor: Executor | None = None
    """Where its tasks belong; None: nowhere yet."""
    shell: ClientShell | None = None
    tasks: PinnedTasks | None = None
    thread: threading.Thread | None = None
    ended: str | None = None
    """How it has ended; None: it has not."""
    is_seen: bool = False
    """That was told."""
    was_told: bool = False
    departs: bool = False
    """Its executor is being decommissioned."""

    @property
    def name(self) -> str:
        return self.bootstrap.spec.name

    @property
    def slots(self) -> int:
        return self.bootstrap.spec.capacity

    def give_up(self, reason: str) -> None:
        """End at once, also where a slot is waited for."""
        if self.shell is not None and self.tasks is not None:
            self.tasks.begin_no_more()
            self.shell.give_up(reason)


class PinnedLauncher:
    """Runs each stream task of an application as a Spark task, on the executor of the client that it was assigned to.

    Give it to `StreamsApplication(launcher=...)` for a run over what the topics have (`until="available_now"`): a backfill, or
    any bounded work. Each client is a share of one executor, with as many slots as it has threads (`num.stream.threads`); clients
    for which there is no room wait until an executor comes. A task holds a slot from its first batch to its last, and keeps its
    state meanwhile; the next one follows. Standbys are not kept: a task whose executor is lost goes on elsewhere after its
    last commit, from a snapshot in the run folder and the changelog. Results and commits are those of `SparkLauncher`.

    Args:
        spark: the session; `spark_session()` makes a suitable one, any other is checked when the run starts.

    Raises:
        SparkSessionError: it is no session, or one of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        require_classic(spark)
        self.spark = spark
        self._clients: dict[str, _Client] = {}
        self._door: Door | None = None
        self._authkey = secrets.token_bytes(32)
        self._stopping = False
        self._next_look = 0.0
        self._executors: list[Executor] = []
        self._place_due = math.inf
        """No client with a place by then: that is told."""
        self._waiting_due = 0.0
        self._waiting: set[str] = set()
        """Clients of which was told that they wait for a slot."""

    @property
    def coordinator_host(self) -> str:
        """The address at which Spark's executors reach the driver."""
        return driver_host(self.spark)

    @unbroken()
    def start(self, plan: LaunchPlan) -> None:
        """Find a place for each client.

        Raises:
            ConfigException: the run is to go on until it is stopped.
            SparkSessionError: the session cannot run so many clients.
        """
        if plan.is_continuous:
            raise ConfigException(
                "Pinned Spark tasks are for bounded runs: a run that goes on until it is stopped would hold one slot for each of its "
                "tasks for ever. Maybe until='available_now', or resident clients: SparkLauncher(spark)."
            )
        threads = sum(bootstrap.spec.capacity for bootstrap in plan.bootstraps)
        check_slots(self.spark, threads, "threads of clients (num.stream.threads)")
        _require_executors(self.spark)
        ship_package(self.spark)
        first = plan.bootstraps[0]
        # They reach it as clients elsewhere would reach the coordinator, which has the port before.
        options = first.options
        port = options.bind_port and options.bind_port + 1
        self._door = Door(options.bind_host or self.coordinator_host, port, self._authkey, first.address[0])
        self._clients, self._waiting, self._stopping = {}, set(), False
        self._place_due = time.monotonic() + NO_EXECUTOR_S
        for bootstrap in plan.bootstraps:
            self.add(bootstrap)

    def capacity(self) -> int:
        """How many of the clients have a place now."""
        return sum(client.executor is not None for client in self._clients.values())

    @unbroken()
    def add(self, bootstrap: ClientBootstrap) -> None:
        """One client more looks for a place."""
        # What cannot travel shall be told before Spark is asked for anything.
        self._clients[bootstrap.spec.name] = _Client(bootstrap, pickle_bootstrap(bootstrap))
        self._look()
        self._find_places()

    def remove(self, client: str) -> None:
        """A client shall not run any more."""
        found = self._clients[client]
        found.give_up("it is not wanted any more")
        if found.thread is None:
            found.ended = "it had no place"

    def replace(self, client: str) -> None:
        """A client that has ended looks for a place again."""
        self.add(self._clients[client].bootstrap)

    def _look(self) -> None:
        self._executors = live_executors(self.spark)

    def _find_places(self) -> None:
        taken = Counter(
            {
                executor_id: sum(
                    client.slots
                    for client in self._clients.values()
                    if client.executor is not None and client.executor.executor_id == executor_id
                )
                for executor_id in (one.executor_id for one in self._executors)
            }
        )
        for client in self._clients.values():
            if client.executor is not None or client.ended is not None:
                continue
            free = {one: one.slots - taken[one.executor_id] for one in self._executors if not one.leaves}
            # Spread: the first of those with the most room.
            best = max(free, key=lambda one: free[one], default=None)
            if best is not None and free[best] >= client.slots:
                taken[best.executor_id] += client.slots
                self._begin(client, best)

    def _begin(self, client: _Client, executor: Executor) -> None:
        assert self._door is not None
        bootstrap = client.bootstrap
        client.executor = executor

        def give_up(reason: str) -> None:
            shell.give_up(reason)

        tasks = client.tasks = PinnedTasks(
            self.spark, bootstrap, client.payload, executor, self._door, self._authkey, give_up
        )
        shell = client.shell = ClientShell(
            bootstrap,
            f"{executor} (pinned Spark tasks)",
            tasks,
            has_places=True,
            heartbeats=lambda member_id: _Heartbeats(bootstrap, member_id, give_up),
        )

        def run() -> None:
            try:
                client.ended, client.was_told = shell.run(), True
            except BaseException as error:  # noqa: BLE001 - whatever it is, the application is told
                client.ended = text_of(error)
            finally:
                tasks.close()

        client.thread = InheritableThread(target=run, name=f"pinned-{bootstrap.spec.name}", daemon=True)
        client.thread.start()

    def departing(self) -> Sequence[Departure]:
        """Clients whose executors are being decommissioned."""
        leaving = {one.executor_id for one in self._executors if one.leaves}
        found = []
        for client in self._clients.values():
            if client.executor is not None and client.executor.executor_id in leaving and not client.departs:
                client.departs = True
                reason = f"executor {client.executor.executor_id} is being decommissioned"
                found.append(Departure(client.name, reason))
        return found

    @needs_session
    def exits(self) -> Sequence[ClientExit]:
        """Clients that have ended since the last call; gives those that wait a place, and looks which executors there are."""
        now = time.monotonic()
        if self._stopping or now < self._next_look:
            return ()
        self._next_look = now + _LOOK_EVERY_S
        self._look()
        live = {one.executor_id for one in self._executors}
        found = []
        for client in self._clients.values():
            if client.executor is not None and client.executor.executor_id not in live:
                client.give_up(f"{client.executor} is lost")
            if client.ended is not None and not client.is_seen:
                client.is_seen = True
                found.append(ClientExit(client.name, client.ended, client.was_told and not client.departs))
                client.executor = client.shell = None
        self._find_places()
        if now >= self._place_due:
            self._place_due = math.inf
            self._tell_without_places()
        if now >= self._waiting_due:
            self._waiting_due = now + NO_EXECUTOR_S / 3
            self._tell_who_waits()
        return found

    def _tell_who_waits(self) -> None:
        full = {one.executor_id for one in self._executors if one.busy >= one.slots}
        waiting = {
            client.name
            for client in self._clients.values()
            if client.executor is not None
            and client.executor.executor_id in full
            and client.tasks is not None
            and client.tasks.wait_for_slot(NO_EXECUTOR_S)
        }
        warn_of_waiting(waiting - self._waiting, sum(one.slots for one in self._executors))
        self._waiting = waiting

    def _tell_without_places(self) -> None:
        if self.capacity():
            return
        if not self._executors:
            warn_without_executors(self.spark)
            return
        logger.warning(
            "No executor has room for a client. A client wants as many slots as it has threads (num.stream.threads: %d at least), the largest "
            "executor has %d (spark.executor.cores / spark.task.cpus).",
            min((client.slots for client in self._clients.values()), default=1),
            max(one.slots for one in self._executors),
        )

    def stop(self, timeout_s: float) -> None:
        """Wait for the clients, which were told to stop; end those that are left, with their Spark tasks."""
        if self._door is None:
            return
        self._stopping = True
        self._join(timeout_s)
        left = [client for client in self._clients.values() if client.thread is not None and client.thread.is_alive()]
        if left:
            logger.info("%s left after the run; their Spark tasks are cancelled.", counted(len(left), "client"))
            for client in left:
                client.give_up("the run is over")
            self._join(_CANCEL_TIMEOUT_S)
        self._door.close()
        self._door = None

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for client in self._clients.values():
            if client.thread is not None:
                client.thread.join(max(deadline - time.monotonic(), 0))


def _require_executors(spark: SparkSession) -> None:
    """Refuse a session whose executors come only when Spark tasks wait: pinned ones are started when executors are there.

    Raises:
        SparkSessionError: it is one.
    """
    conf = spark.sparkContext.getConf()
    is_dynamic = (conf.get("spark.dynamicAllocation.enabled") or "false").lower() == "true"
    if is_dynamic and not is_local(spark) and int(conf.get(_LEAST) or 0) == 0:
        raise SparkSessionError(
            f"spark.dynamicAllocation.enabled is on and {_LEAST} is 0: Spark starts executors when Spark tasks wait, and pinned ones wait for "
            f"executors. Build the session with so many of them as the clients need ({_LEAST}), or use resident clients: SparkLauncher(spark)."
        )


class _Heartbeats:
    """Says that a client lives; whether its executor does, the launcher sees. Ends the client if the coordinator says that it hangs.

    Raises:
        OSError: no connection.
    """

    def __init__(self, bootstrap: ClientBootstrap, member_id: str, give_up: Callable[[str], None]) -> None:
        self._channel = connect(bootstrap.address, bootstrap.authkey, 5, ToClient)
        self._ended = threading.Event()
        self._give_up = give_up
        interval_s = bootstrap.options.heartbeat_interval_ms / 1000
        threading.Thread(target=self._beat, args=(member_id, interval_s), name="pinned-beat", daemon=True).start()
        threading.Thread(target=self._listen, name="pinned-listen", daemon=True).start()

    @property
    def runs(self) -> bool:
        """It is there."""
        return not self._ended.is_set()

    def _beat(self, member_id: str, interval_s: float) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                self._channel.send(Alive(member_id))
                self._ended.wait(interval_s)

    def _listen(self) -> None:
        with suppress(EOFError, OSError, ValueError):
            self._channel.receive()
            self._give_up("the coordinator has ended it, since it hangs")
        self._ended.set()
        self._channel.release()

    def end(self) -> None:
        """End it."""
        self._ended.set()
        self._channel.close()
