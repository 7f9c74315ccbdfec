"""Where a Spark task runs, as it finds out itself: Spark's Python interface does not tell; and whether all is there."""

from __future__ import annotations

import os
import pickle
import socket
from typing import Any, Final

from task_assignor.runtime import ClientBootstrap, ClientException, run_client

UNKNOWN: Final = "unknown"


def spark_attempt(executor: str) -> str:
    """What executes this, as commits tell it; in a Spark task only."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return (
        f"spark task {context.taskAttemptId()} (stage {context.stageId()}, attempt {context.attemptNumber()}, "
        f"executor {executor}, process {os.getpid()})"
    )


def executor_process() -> tuple[str, int]:
    """Id and process of the Spark executor that runs this Python worker.

    In local mode the id is `driver`; where /proc is missing, or says nothing of it, it is `UNKNOWN`.
    """
    process = "self"
    try:
        for _ in range(6):
            with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                arguments = file.read().split("\0")
            if "--executor-id" in arguments:
                return arguments[arguments.index("--executor-id") + 1], int(process)
            if any(argument.startswith("org.apache.spark.deploy.SparkSubmit") for argument in arguments):
                return "driver", int(process)
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                process = file.read().rsplit(")", 1)[1].split()[1]
    except OSError:
        pass
    return UNKNOWN, os.getpid()


def read_bootstrap(payload: bytes) -> ClientBootstrap:
    """What `pickle_bootstrap` made.

    Raises:
        ClientException: a module of the application is not here.
    """
    try:
        bootstrap: ClientBootstrap = pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ClientException(
            f"The application needs a module that the executor on {socket.gethostname()} does not have: {error}. Maybe give "
            "it to Spark (spark.sparkContext.addPyFile, spark-submit --py-files, task-assignor run --conf spark.submit.pyFiles=...), or install it there. "
            "What is sent by itself is what the program's own file defines; `task-assignor run FILE` sends the modules beside FILE, too."
        ) from None
    return bootstrap


def run_client_here(payload: bytes) -> str:
    """Run the client that a payload tells of, until the application stops it; gives what has executed it."""
    attempt = spark_attempt(executor_process()[0])
    run_client(read_bootstrap(payload), attempt)
    return attempt
