"""Spark's executors: which there are, and Spark jobs of one Spark task that ask for one of them. What runs there is told by others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

import attrs
from pyspark import RDD
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import counted

T = TypeVar("T")
NO_EXECUTOR_S: Final = 15
"""Without any for so long, that is told."""

logger = logger_of(__name__)


@attrs.frozen
class Executor:
    """An executor that can be given Spark tasks.

    Args:
        executor_id: its id; "driver" in local mode.
        host: where it is.
        slots: Spark tasks that it runs at the same time.
        busy: Spark tasks that it runs now.
        leaves: it is being decommissioned, and is given no more Spark tasks.
    """

    executor_id: str
    host: str
    slots: int
    busy: int = attrs.field(default=0, eq=False)
    leaves: bool = attrs.field(default=False, eq=False)

    def __str__(self) -> str:
        return f"executor {self.executor_id} on {self.host}"


def live_executors(spark: SparkSession) -> list[Executor]:
    """The executors that live, by id."""
    context = spark.sparkContext
    scala: Any = context._jsc.sc()  # noqa: SLF001 (Spark has no public way to its executors)
    cores = int(context.getConf().get("spark.task.cpus") or 1)
    told = scala.statusStore().executorList(True)
    found = []
    for number in range(told.size()):
        one = told.apply(number)
        executor_id = str(one.id())
        slots = int(one.totalCores()) // cores
        # Where it is, Spark knows when it can be given data, a while after it was counted.
        host = str(one.hostPort()).rpartition(":")[0]
        if slots and host:
            found.append(
                Executor(executor_id, host, slots, int(one.activeTasks()), is_decommissioned(spark, executor_id))
            )
    return sorted(found, key=lambda one: (len(one.executor_id), one.executor_id))


def warn_without_executors(spark: SparkSession) -> None:
    """Say that there is none. Spark would say it too, where its messages are not turned down, and without the sizes."""
    conf = spark.sparkContext.getConf()
    logger.warning(
        "Spark has had no executor for %d s. Maybe no worker has room for one: it wants the memory spark.executor.memory (%s), "
        "and the cores spark.executor.cores (%s). The master's page shows workers and what waits.",
        NO_EXECUTOR_S,
        conf.get("spark.executor.memory") or "1g, Spark's own choice",
        conf.get("spark.executor.cores") or "all of a worker",
    )


def warn_of_waiting(clients: Collection[str], slots: int) -> None:
    """Say which clients wait for slots that other Spark jobs hold; nothing where none does."""
    if clients:
        logger.warning(
            "%s without a slot for %d s: %s. Spark has %d, and other jobs hold them. Maybe wait for these, or ask for fewer clients.",
            counted(len(clients), "client"),
            NO_EXECUTOR_S,
            ", ".join(sorted(clients)),
            slots,
        )


def is_decommissioned(spark: SparkSession, executor_id: str) -> bool:
    """The executor is about to go away: Spark gives it no more Spark tasks."""
    scheduler: Any = spark.sparkContext._jsc.sc().taskScheduler()  # noqa: SLF001
    return bool(scheduler.getExecutorDecommissionState(executor_id).isDefined())


def run_on(spark: SparkSession, executor: Executor, payload: bytes, function: Callable[[Iterable[bytes]], T]) -> T:
    """Run a Spark job of one Spark task that Spark is asked to run on an executor.

    That is a wish and no order: if the executor has no slot for longer than `spark.locality.wait`, another one gets it. What
    runs there has to look where it is.

    Args:
        spark: the session.
        executor: the executor.
        payload: what the function is given.
        function: travels by pickle.
    """
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 (only the JVM's side can say where a Spark task should run)

    def sequence(one: object) -> Any:
        return jvm.PythonUtils.toSeq([one])

    place = f"executor_{executor.host}_{executor.executor_id}"
    row = jvm.scala.Tuple2(pickle.dumps(payload), sequence(place))
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    rows = context._jsc.sc().makeRDD(sequence(row), kind)  # noqa: SLF001
    found: RDD[bytes] = RDD(rows.toJavaRDD(), context, CPickleSerializer())
    (outcome,) = found.mapPartitions(lambda payloads: [function(payloads)]).collect()
    return outcome
