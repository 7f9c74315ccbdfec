"""Resident clients: one long Spark job whose Spark tasks are the Streams clients. What a client does is known in `runtime`.

Spark chooses where the clients live and starts them again when they die. Which task runs on which client is decided
by the assignor alone: Spark's scheduler has no part in it.
"""

from __future__ import annotations

import logging
import pickle
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from task_assignor.runtime import ClientException, ClientExit, LaunchPlan, pickle_bootstrap
from task_assignor.spark.jobs import failed_attempts, short_reason
from task_assignor.spark.session import check_session, is_local

_LOOK_EVERY_S: Final = 0.5
_GRACE_S: Final = 3.0
_CANCEL_TIMEOUT_S: Final = 10.0

logger = logging.getLogger(__name__)


class SparkLauncher:
    """Runs the clients of an application as the Spark tasks of one job.

    Give it to `StreamsApplication(launcher=...)`. A client that is lost is started again by Spark itself, under its
    name. The job holds one slot per client until the run ends; other Spark jobs need slots of their own.

    Args:
        spark: the session; `spark_session()` makes a suitable one, any other is checked when the run starts.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._group = f"task-assignor-clients-{uuid.uuid4()}"
        self._names: tuple[str, ...] = ()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._stopping = False
        self._next_look = 0.0
        self._seen: set[int] = set()
        self._interrupt_handler: Any = None

    @property
    def coordinator_host(self) -> str:
        """The address at which Spark's executors reach the driver."""
        return str(self.spark.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1")

    def start(self, plan: LaunchPlan) -> None:
        """Start the job.

        Raises:
            SparkSessionError: the session cannot run so many clients.
        """
        if self._thread is not None:
            raise ClientException("This SparkLauncher has been started before. Make a new one for every run.")
        check_session(self.spark, len(plan.bootstraps))
        self._names = tuple(bootstrap.spec.name for bootstrap in plan.bootstraps)
        payloads = [pickle_bootstrap(bootstrap) for bootstrap in plan.bootstraps]
        run = client_function()
        context = self.spark.sparkContext

        def job() -> None:
            context.setJobGroup(self._group, f"Streams clients of {plan.application_id}", interruptOnCancel=True)
            try:
                context.parallelize(payloads, len(payloads)).mapPartitions(run).collect()
            except Exception as error:  # noqa: BLE001 (Py4J and Spark raise their own kinds)
                if not self._stopping:
                    self._error = error

        self._interrupt_handler = _leave_interrupts_to_python()
        self._thread = InheritableThread(target=job, name=self._group, daemon=True)
        self._thread.start()
        slots = context.defaultParallelism
        if not is_local(self.spark) and slots < len(payloads):
            logger.warning("%d clients want a slot each, Spark has %d now; the rest wait.", len(payloads), slots)

    def replace(self, client: str) -> None:
        """Nothing: Spark starts a lost Spark task again by itself."""

    def exits(self) -> Sequence[ClientExit]:
        """Clients whose Spark task has failed since the last call; looks every half second.

        Raises:
            ClientException: the job itself has ended, so no client is left and none will come back.
        """
        if self._thread is None or self._stopping:
            return ()
        if not self._thread.is_alive():
            reason = short_reason(str(self._error)) if self._error else "all its tasks have ended"
            raise ClientException(f"The Spark job of the clients has ended: {reason}")
        if time.monotonic() < self._next_look:
            return ()
        self._next_look = time.monotonic() + _LOOK_EVERY_S
        found = []
        for attempt in failed_attempts(self.spark, self._group):
            if attempt.task_id not in self._seen:
                self._seen.add(attempt.task_id)
                found.append(ClientExit(self._names[attempt.index], short_reason(attempt.message)))
        return found

    def stop(self, timeout_s: float) -> None:
        """Wait for the clients, which were told to stop; cancel the job if some are left.

        Those that were members have said goodbye by now. What is left is one that Spark has just started again, which
        would look for the coordinator in vain, or one that hangs.
        """
        self._stopping = True
        if self._thread is None:
            return
        if self._interrupt_handler is not None:
            signal.signal(signal.SIGINT, self._interrupt_handler)
        self._thread.join(min(timeout_s, _GRACE_S))
        if self._thread.is_alive():
            logger.info("Some clients are left after the run; their Spark job is cancelled.")
            try:
                self.spark.sparkContext.cancelJobGroup(self._group)
            except Py4JError as error:  # the session was stopped meanwhile
                logger.warning("The Spark job of the clients could not be cancelled: %s", error)
            self._thread.join(_CANCEL_TIMEOUT_S)


def _leave_interrupts_to_python() -> Any:
    """Have Ctrl-C raise KeyboardInterrupt and nothing else, so that the run ends in order; returns the handler before.

    Spark's handler would cancel all jobs first, the clients among them, and from inside whatever call it interrupts.
    """
    before = signal.getsignal(signal.SIGINT)
    is_sparks = str(getattr(before, "__module__", "")).startswith("pyspark.")
    if not is_sparks or threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGINT, signal.default_int_handler)


def client_function() -> Callable[[Iterable[bytes]], Iterable[str]]:
    """What each Spark task of the job does.

    The function is made inside another one so that it travels by value: where this package is missing on an executor
    the error then says so, in place of a failure to read the function itself.
    """

    def run(payloads: Iterable[bytes]) -> Iterable[str]:
        import os
        import time

        from pyspark import TaskContext

        (payload,) = payloads
        context: Any = TaskContext.get()
        if context.attemptNumber() > 3:
            # A client that cannot even start fails again at once: leave the coordinator the time to see it.
            time.sleep(0.2)

        from task_assignor.runtime import run_client
        from task_assignor.spark.launcher import executor_id

        bootstrap = pickle.loads(payload)
        attempt = (
            f"spark task {context.taskAttemptId()} (stage {context.stageId()}, attempt {context.attemptNumber()}, "
            f"executor {executor_id()}, process {os.getpid()})"
        )
        run_client(bootstrap, attempt)
        yield attempt

    return run


def executor_id() -> str:
    """Id of the Spark executor that runs this Python worker; `driver` in local mode, `unknown` where /proc is missing."""
    process = "self"
    try:
        for _ in range(6):
            with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                arguments = file.read().split("\0")
            if "--executor-id" in arguments:
                return arguments[arguments.index("--executor-id") + 1]
            if any(argument.startswith("org.apache.spark.deploy.SparkSubmit") for argument in arguments):
                return "driver"
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                process = file.read().rsplit(")", 1)[1].split()[1]
    except OSError:
        pass
    return "unknown"
