"""Ordinary Spark jobs: their shares of work, and how they end at a real error, in a session that forgives a thousand failures for the sake of its clients."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeVar

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from task_assignor.runtime.shells.signals import unbroken
from task_assignor.sdk import StreamsException
from task_assignor.sdk.logs import logger_of

T = TypeVar("T")
MAX_TASK_FAILURES: Final = 4
"""What Spark itself allows unless it is told otherwise."""
_POLL_S: Final = 0.1
_GROUP_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_LOOK_S: Final = 0.5
_TAKEN_AWAY: Final = "exited unrelated to the running tasks"
OURS: Final = "task-assignor-"
"""Begins the names of the job groups of this package, whose failures are looked at by who has started them."""
_LISTED_TASKS: Final = 10_000
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*(?:\nPlease .*)?)")
"""What a traceback ends with, however its class is named, with the line of advice that some of PySpark's own have."""
_CAUSE: Final = "Caused by: "
_ADDRESSES: Final = "spark.executor.pyspark.memory"
_OF_ADDRESSES: Final = (
    "(crashed)",
    "MemoryError",
    "can't start new thread",
    "SystemError",
    "failed to map",
    "Cannot allocate",
)
"""What comes of too few."""
_FULL: Final = os.strerror(errno.ENOSPC)
_JAVA_CLASS: Final = re.compile(r"^: (?:\w+\.)+[\w$]+: ")

logger = logger_of(__name__)


class SparkJobError(StreamsException):
    """A Spark job failed; the message says which and why."""


@unbroken()
def how_ended(context: Any) -> Literal["stopped", "lost"] | None:
    """How a session has ended, by its context: it was stopped, or its JVM is not there any more; None: it has not."""
    java = context._jsc  # noqa: SLF001 (there is no public "is stopped")
    try:
        return "stopped" if java is None or java.sc().isStopped() else None
    except (Py4JError, OSError):
        return "lost"


@contextmanager
def made_active(spark: SparkSession) -> Iterator[None]:
    """Have a session be the active one of this thread: Spark looks there for sources and sinks in Python, whatever session is asked.

    Of a second session (`newSession`) it says else that there is one of that name already, or that there is none.
    """
    sessions: Any = SparkSession._get_j_spark_session_class(spark._jvm)  # noqa: SLF001 (as PySpark itself)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def fail_fast(spark: SparkSession, what: str) -> Iterator[None]:
    """Cancel the Spark jobs started inside as soon as one Spark task has failed `MAX_TASK_FAILURES` times, or at Ctrl-C.

    Args:
        spark: the session; its job group is set for the time inside.
        what: what is being done, for the message: "Writing topic flights".

    Raises:
        SparkJobError: a job failed; with the error that the task raised.
    """
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in _GROUP_PROPERTIES}
    group = f"{OURS}{uuid.uuid4()}"
    done = threading.Event()
    reasons: list[str] = []

    def watch() -> None:
        try:
            while not done.wait(_POLL_S):
                reason = repeated_failure(spark, group)
                if reason:
                    reasons.append(reason)
                    context.cancelJobGroup(group)
                    return
        except (Py4JError, OSError, AttributeError):
            # Whoever waits for the jobs says so.
            if how_ended(context) is None:
                raise

    context.setJobGroup(group, what)
    watcher = InheritableThread(target=watch, name="task-assignor-watch", daemon=True)
    watcher.start()
    try:
        yield
    except StreamsException:
        raise
    except Exception as error:  # Py4J and Spark raise their own kinds
        done.set()
        watcher.join()
        said = reason_of(spark, reasons[0] if reasons else str(error))
        match how_ended(context):
            case "stopped":
                said = "the Spark session was stopped meanwhile."
            case "lost":
                said = "Spark's JVM, the driver, has ended meanwhile. Maybe it was killed, as where memory runs out, or its own messages say why."
        raise SparkJobError(f"{what} failed: {said}") from error
    except BaseException:  # Ctrl-C in a notebook: only in scripts Spark itself has heard of it
        with suppress(Py4JError, OSError):
            context.cancelJobGroup(group)
        raise
    finally:
        done.set()
        # It waits for nothing but answers of Spark's JVM, as what follows does.
        watcher.join()
        with suppress(Py4JError, OSError, AttributeError):  # the session was stopped meanwhile, or its JVM has ended
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None removes it


def end_failing_jobs(spark: SparkSession) -> None:
    """From now on have jobs of the user end at the failures that Spark itself allows, in a session that forgives clients more.

    They would be tried a thousand times, for hours, before anybody sees the error. Ends with the session.

    Args:
        spark: the session.
    """
    context: Any = spark.sparkContext

    def look() -> None:
        for job in context.statusTracker().getActiveJobsIds():
            group = context._jsc.sc().statusStore().job(job).jobGroup()  # noqa: SLF001 (Spark has no public way to it)
            if group.isDefined() and str(group.get()).startswith(OURS):
                continue
            reason = _repeated_failure(spark, [job])
            if reason:
                said = f"since a Spark task of it has failed {MAX_TASK_FAILURES} times: {short_reason(reason)}"
                context._jsc.sc().cancelJob(job, said)  # noqa: SLF001 (of Python's the reason is not told)

    def watch() -> None:
        while context._jsc is not None:  # noqa: SLF001 (there is no public "is stopped")
            try:
                look()
            except (Py4JJavaError, PySparkException) as error:  # a job has just gone from the store
                logger.debug("The failures of Spark's jobs cannot be looked at: %s", error)
            except (Py4JError, OSError, AttributeError):
                return  # the session is being stopped, or its JVM has ended
            time.sleep(_LOOK_S)

    threading.Thread(target=watch, name="task-assignor-failures", daemon=True).start()


def repeated_failure(spark: SparkSession, group: str) -> str | None:
    """Why a Spark task of the job group has failed `MAX_TASK_FAILURES` times; None: none has."""
    return _repeated_failure(spark, spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def _repeated_failure(spark: SparkSession, jobs: Sequence[int]) -> str | None:
    count: Counter[tuple[int, int]] = Counter()
    for attempt in _failed_attempts(spark, jobs, at_least=MAX_TASK_FAILURES):
        # Spark does not count those of an executor that was taken away.
        count[attempt.stage, attempt.index] += _TAKEN_AWAY not in attempt.message
        if count[attempt.stage, attempt.index] >= MAX_TASK_FAILURES:
            return attempt.message
    return None


@attrs.frozen
class FailedAttempt:
    """An attempt of a Spark task that failed.

    Args:
        stage: the stage.
        index: number of the task in its stage, which is the number of its partition.
        task_id: Spark's number of the attempt.
        message: what Spark says about it.
    """

    stage: int
    index: int
    task_id: int
    message: str


def failed_attempts(spark: SparkSession, group: str, after: int = -1) -> list[FailedAttempt]:
    """The failed attempts of the Spark tasks of a job group, oldest first.

    Args:
        spark: the session.
        group: the job group.
        after: the `task_id` up to which they are left out: those of a client that lives for months would take longer and longer.
    """
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    return _failed_attempts(spark, jobs, at_least=1, after=after)


def _failed_attempts(spark: SparkSession, jobs: Sequence[int], at_least: int, after: int = -1) -> list[FailedAttempt]:
    """Those of some jobs; stages with fewer failures are left out, which spares asking for their tasks."""
    found = []
    for stage, task in _attempts(spark, jobs, "FAILED", lambda info: info.numFailedTasks >= at_least, after):
        message = task.errorMessage()
        text = str(message.get()) if message.isDefined() else ""
        found.append(FailedAttempt(stage, task.index(), task.taskId(), text))
    return sorted(found, key=lambda attempt: attempt.task_id)


def running_executors(spark: SparkSession, group: str) -> list[str]:
    """The executors that run Spark tasks of a job group now, sorted."""
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    attempts = _attempts(spark, jobs, "RUNNING", lambda info: info.numActiveTasks > 0)
    return sorted({str(task.executorId()) for _, task in attempts})


def _attempts(
    spark: SparkSession,
    jobs: Sequence[int],
    status: str,
    wanted: Callable[[Any], bool],
    after: int = -1,
) -> Iterator[tuple[int, Any]]:
    """(stage, Spark's own description) of the attempts of the Spark tasks of some jobs, of that status and of those stages.

    Spark's JVM chooses: of a stage there may be thousands, and each question about one is a message to it.
    """
    context = spark.sparkContext
    tracker = context.statusTracker()
    store: Any = context._jsc.sc().statusStore()  # noqa: SLF001 (Spark has no public way to the message)
    jvm: Any = context._jvm  # noqa: SLF001
    api = jvm.org.apache.spark.status.api.v1
    chosen = jvm.java.util.Collections.singletonList(api.TaskStatus.valueOf(status))
    for job in jobs:
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is None or not wanted(stage_info):
                continue
            attempt = stage_info.currentAttemptId
            try:
                tasks = store.taskList(stage, attempt, 0, _LISTED_TASKS, api.TaskSorting.ID, chosen)
            except Py4JError:  # the stage has just gone from the store
                continue
            for number in reversed(range(tasks.size())):
                task = tasks.apply(number)
                if task.taskId() <= after:
                    break
                yield stage, task


def short_reason(text: str) -> str:
    """The error that a Python worker raised, out of the pages that Spark prints around it; else the first sentence."""
    found = _PYTHON_ERROR.findall(text)
    lines = text.strip().splitlines() or ["no reason given"]
    if found:
        return str(found[-1]).replace("\n", " ")
    if lines[0].startswith("An error occurred while calling ") and len(lines) > 1:
        # What Py4J says of itself; what Java said comes after it, and why at the end.
        said = _JAVA_CLASS.sub("", lines[1])
        why = next((line.removeprefix(_CAUSE) for line in reversed(lines) if line.startswith(_CAUSE)), said)
        return said if why.partition(": ")[2] in said else f"{said} ({why})"
    return lines[0].removeprefix("org.apache.spark.SparkException: ").split(". Consider setting ")[0]


def reason_of(spark: SparkSession, text: str) -> str:
    """`short_reason`; where Spark, or a Python worker of it, was short of something, with the setting that keeps it from it."""
    reason = short_reason(text)
    if reason.endswith(_FULL):  # our own files are named behind it
        return f"{reason} (for Spark's temporary files. Maybe set spark.local.dir, or SPARK_LOCAL_DIRS, to a folder that has some)"
    with suppress(Py4JError, OSError, AttributeError):  # the session was stopped meanwhile, or its JVM has ended
        limit = spark.sparkContext.getConf().get(_ADDRESSES)
        if limit and any(sign in text for sign in _OF_ADDRESSES):
            return (
                f"{reason.removesuffix('.')} ({_ADDRESSES} lets a Python worker have {limit} of addresses. Maybe more: libraries and threads "
                "take more of them than of memory)"
            )
    return reason


def even_shares(items: Sequence[T], shares: int, rows: Callable[[T], int]) -> list[list[T]]:
    """Consecutive items in at most so many lists with about equal numbers of rows, one list per Spark task."""
    total = max(sum(map(rows, items)), 1)
    found: list[list[T]] = [[] for _ in range(shares)]
    done = 0
    for item in items:
        found[min(done * shares // total, shares - 1)].append(item)
        done += rows(item)
    return [share for share in found if share]
