"""Resident clients: long Spark jobs of one Spark task each, which is a Streams client. What a client does is known in `runtime`.

Spark chooses where the clients live and starts them again when they die. Which task runs on which client is decided
by the assignor alone: Spark's scheduler has no part in it.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from task_assignor.runtime import (
    ClientBootstrap,
    ClientException,
    ClientExit,
    Departure,
    LaunchPlan,
    pickle_bootstrap,
)
from task_assignor.runtime.shells.signals import unbroken
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted, named, said
from task_assignor.spark.executors import (
    NO_EXECUTOR_S,
    is_decommissioned,
    live_executors,
    warn_of_waiting,
    warn_without_executors,
)
from task_assignor.spark.jobs import OURS, failed_attempts, reason_of, running_executors, short_reason
from task_assignor.spark.session import check_session, driver_host, needs_session, require_classic
from task_assignor.spark.shipping import sent_function, ship_package

_LOOK_EVERY_S: Final = 0.5
_GRACE_S: Final = 3.0
_CANCEL_TIMEOUT_S: Final = 10.0

logger = logger_of(__name__)


@attrs.define
class _ClientJob:
    """The Spark job of a client."""

    bootstrap: ClientBootstrap
    group: str
    thread: threading.Thread | None = None
    error: BaseException | None = None
    departs: bool = False
    """Its executor is being decommissioned."""
    is_cancelled: bool = False

    @property
    def runs(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class SparkLauncher:
    """Runs each client of an application as a Spark job with one Spark task.

    Give it to `StreamsApplication(launcher=...)`. A client that is lost is started again by Spark itself, under its
    name. One whose executor is decommissioned leaves in order and is started elsewhere. A client holds a slot until it
    ends; those for which there is no slot wait for one, and come when executors come. Other Spark jobs need slots of
    their own.

    Args:
        spark: the session; `spark_session()` makes a suitable one, any other is checked when the run starts.

    Raises:
        SparkSessionError: it is no session, or one of Spark Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        require_classic(spark)
        self.spark = spark
        self._group = ""
        self._jobs: dict[str, _ClientJob] = {}
        self._is_started = False
        self._stopping = False
        self._next_look = dict.fromkeys(("exits", "departing"), 0.0)
        self._told: dict[str, int] = {}
        """Client -> its last Spark task that was told to have failed, also of one that was taken away and comes back."""
        self._waiting_due = math.inf
        """Clients that have no slot by then are told."""

    @property
    def coordinator_host(self) -> str:
        """The address at which Spark's executors reach the driver."""
        return driver_host(self.spark)

    @unbroken()
    def start(self, plan: LaunchPlan) -> None:
        """Start the clients' jobs.

        Raises:
            SparkSessionError: the session cannot run so many clients.
        """
        check_session(self.spark, len(plan.bootstraps))
        ship_package(self.spark)
        self._is_started, self._stopping = True, False
        self._group, self._jobs, self._told = f"{OURS}clients-{uuid.uuid4()}", {}, {}
        for bootstrap in plan.bootstraps:
            self.add(bootstrap)
        slots = self.capacity()
        if slots < len(plan.bootstraps):
            logger.warning("%d clients want a slot each, Spark has %d now; the rest wait.", len(plan.bootstraps), slots)
        self._waiting_due = time.monotonic() + NO_EXECUTOR_S

    @unbroken()
    def capacity(self) -> int:
        """How many slots the executors have that are there now."""
        context: Any = self.spark.sparkContext._jsc.sc()  # noqa: SLF001 (Spark has no public way to it)
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))

    @unbroken()
    def add(self, bootstrap: ClientBootstrap) -> None:
        """Start the job of one client more."""
        name = bootstrap.spec.name
        self._jobs[name] = _ClientJob(bootstrap, f"{self._group}-{name}")
        self._run(self._jobs[name])

    def _run(self, job: _ClientJob) -> None:
        payload = pickle_bootstrap(job.bootstrap)
        run = client_function()
        context = self.spark.sparkContext
        what = f"Streams client {job.bootstrap.spec.name} of {job.bootstrap.application_id}"

        def collect() -> None:
            context.setJobGroup(job.group, what, interruptOnCancel=True)
            try:
                context.parallelize([payload], 1).mapPartitions(run).collect()
            except BaseException as error:  # noqa: BLE001 (Py4J and Spark raise their own kinds; nobody else hears of it)
                if not self._stopping and not job.is_cancelled:
                    job.error = error

        job.departs = False
        job.thread = InheritableThread(target=collect, name=job.group, daemon=True)
        job.thread.start()

    def remove(self, client: str) -> None:
        """Cancel the job of a client."""
        self._cancel(self._jobs[client])

    @unbroken()
    def replace(self, client: str) -> None:
        """Start the job of a client again if it has ended; a lost Spark task is started again by Spark itself."""
        if not self._jobs[client].runs:
            self._run(self._jobs[client])

    @needs_session
    def departing(self) -> Sequence[Departure]:
        """Clients whose executors are being decommissioned; looks every half second."""
        if self._stopping or not self._is_due("departing"):
            return ()
        found = []
        for name, job in sorted(self._jobs.items()):
            if job.departs or not job.runs:
                continue
            for executor in running_executors(self.spark, job.group):
                if is_decommissioned(self.spark, executor):
                    job.departs = True
                    found.append(Departure(name, f"executor {executor} is being decommissioned"))
        return found

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now < self._next_look[what]:
            return False
        self._next_look[what] = now + _LOOK_EVERY_S
        return True

    @needs_session
    def exits(self) -> Sequence[ClientExit]:
        """Clients whose Spark task has failed or ended since the last call; looks every half second.

        Raises:
            ClientException: Spark has given a client up: it has failed too often.
        """
        if self._stopping or not self._is_due("exits"):
            return ()
        self._tell_who_waits()
        found = []
        for name, job in sorted(self._jobs.items()):
            if job.error is not None:
                reason = reason_of(self.spark, said(job.error))
                raise ClientException(f"The Spark job of {named('client', name)} has ended: {reason}")
            if job.thread is not None and not job.runs:
                job.thread = None
                found.append(ClientExit(name, "its Spark task has ended", has_left=not job.departs))
            for attempt in failed_attempts(self.spark, job.group, self._told.get(name, -1)):
                self._told[name] = attempt.task_id
                found.append(ClientExit(name, reason_of(self.spark, attempt.message)))
        return found

    def _tell_who_waits(self) -> None:
        """Say that no executor has come, or that others hold the slots; that there are too few was said at the start."""
        if time.monotonic() < self._waiting_due:
            return
        self._waiting_due, slots = math.inf, self.capacity()
        if not slots:
            warn_without_executors(self.spark)
            return
        waiting = [
            name for name, job in self._jobs.items() if job.runs and not running_executors(self.spark, job.group)
        ]
        has_too_few = waiting and slots > len(self._jobs) - len(waiting)
        if has_too_few and sum(one.busy for one in live_executors(self.spark)) >= slots:
            warn_of_waiting(waiting, slots)

    def stop(self, timeout_s: float) -> None:
        """Wait for the clients, which were told to stop; cancel the jobs of those that are left.

        Those that were members have said goodbye by now. What is left is one that Spark has just started again, which
        would look for the coordinator in vain, or one that hangs, or waits for a slot.
        """
        if not self._is_started:
            return
        self._stopping = True
        self._join(min(timeout_s, _GRACE_S))
        left = [job for job in self._jobs.values() if job.runs]
        if left:
            logger.info("%s left after the run; their Spark jobs are cancelled.", counted(len(left), "client"))
            for job in left:
                self._cancel(job)
            self._join(_CANCEL_TIMEOUT_S)
        self._is_started = False

    def _join(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for job in self._jobs.values():
            if job.thread is not None:
                job.thread.join(max(deadline - time.monotonic(), 0))

    def _cancel(self, job: _ClientJob) -> None:
        job.is_cancelled = True
        try:
            with unbroken():
                self.spark.sparkContext.cancelJobGroup(job.group)
        except (Py4JError, OSError, AttributeError) as error:  # the session was stopped meanwhile, or its JVM has ended
            logger.warning(
                "The Spark job of %s could not be cancelled: %s", job.bootstrap.spec.name, short_reason(said(error))
            )


def client_function() -> Callable[[Iterable[bytes]], Iterable[str]]:
    """What each Spark task of the job does; made inside another function so that it travels by value."""
    begin = sent_function("task_assignor.spark.where", "run_client_here")

    def run(payloads: Iterable[bytes]) -> Iterable[str]:
        import time

        from pyspark import TaskContext

        context: Any = TaskContext.get()
        if context.attemptNumber() > 3:
            # A client that cannot even start fails again at once: leave the coordinator the time to see it.
            time.sleep(0.2)
        yield begin(payloads)

    return run
