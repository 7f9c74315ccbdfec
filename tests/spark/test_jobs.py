"""What is told of Spark jobs that fail."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from task_assignor.spark.jobs import MAX_TASK_FAILURES, OURS, failed_attempts, reason_of, repeated_failure, short_reason

pytestmark = pytest.mark.spark


def test_what_java_said_is_told_and_not_what_py4j_says_of_itself() -> None:
    text = (
        "An error occurred while calling None.a.B.\n: org.apache.spark.SparkException: Invalid URL: x\n\tat a.b(C:1)\n"
    )
    assert short_reason(text) == "Invalid URL: x"
    cause = "Caused by: java.io.IOException: no way\n\tat a.b(C:2)\nCaused by: java.net.ConnectException: refused\n"
    assert short_reason(text + cause) == "Invalid URL: x (java.net.ConnectException: refused)"
    assert short_reason(f"{text}Caused by: java.io.IOException: URL: x\n") == "Invalid URL: x"


def test_the_advice_of_pyspark_is_told_too() -> None:
    advised = "Traceback (most recent call last):\npyspark.errors.PySparkRuntimeError: [X] 3.12\nPlease check PYSPARK_PYTHON\n\n\tat y"
    assert short_reason(advised) == "pyspark.errors.PySparkRuntimeError: [X] 3.12 Please check PYSPARK_PYTHON"


@pytest.mark.parametrize("error", ["pyarrow.lib.ArrowInvalid: too wide", "__main__.BadRow: of Monday", "MemoryError"])
def test_an_error_of_python_is_told_however_its_class_is_named(error: str) -> None:
    """All that was said was that the worker had raised something."""
    frames = '  File "/udf.py", line 3, in <lambda>\n    f(x)\n    ^^^^\n'
    text = f"org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n{frames}{error}\n\n\tat a.b(C:1)\n"
    assert short_reason(f"Job aborted: Lost task 0.3 (TID 3): {text}\nDriver stacktrace:\n\tat d.e(F:1)") == error
    again = f"Traceback (most recent call last):\n{frames}KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert short_reason(f"{again}{text}Caused by: java.io.IOException: x") == error


def test_a_worker_that_may_have_too_few_addresses_is_told_of_the_setting() -> None:
    """It was only said that it had crashed, or could not start a thread."""

    def session(**conf: str) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))

    few, crashed = session(**{"spark.executor.pyspark.memory": "300m"}), "Python worker exited unexpectedly (crashed)"
    assert reason_of(few, crashed).startswith(
        f"{crashed} (spark.executor.pyspark.memory lets a Python worker have 300m"
    )
    assert reason_of(session(), crashed) == crashed
    assert reason_of(few, "the processor says no") == "the processor says no"


def test_a_full_disk_under_the_files_of_spark_is_told_as_theirs() -> None:
    """`[Errno 28] No space left on device` was all that was said."""
    full, nowhere = "[Errno 28] No space left on device", cast(Any, SimpleNamespace())
    assert reason_of(nowhere, full).startswith(f"{full} (for Spark's temporary files. Maybe set spark.local.dir, ")
    assert reason_of(nowhere, f"{full}: '/run/a.arrow'") == f"{full}: '/run/a.arrow'"


@pytest.fixture
def questions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Spark's JVM is asked."""
    gateway: Any = spark.sparkContext._gateway
    client, found = gateway._gateway_client, list[str]()
    send = client.send_command

    def noted(command: str, *given: Any, **more: Any) -> Any:
        found.append(command)
        return send(command, *given, **more)

    monkeypatch.setattr(client, "send_command", noted)
    return found


def test_a_job_of_many_spark_tasks_is_looked_at_by_few_questions(spark: SparkSession, questions: list[str]) -> None:
    """Each of its tasks was asked for, ten times a second: of 6 000, four of which had failed, each look took a second."""
    fail(spark, f"{OURS}many", tasks=300, times=MAX_TASK_FAILURES)
    questions.clear()
    assert "the first one" in str(repeated_failure(spark, f"{OURS}many"))
    assert len(questions) < 100


def test_a_client_that_has_failed_often_is_looked_at_by_few_questions(
    spark: SparkSession, questions: list[str]
) -> None:
    """Each look asked for all of its failures again: with 300 of them that took 0.23 s of the coordinator's time, twice a second."""
    fail(spark, f"{OURS}often", tasks=1, times=20)
    first = failed_attempts(spark, f"{OURS}often")
    assert len(first) == 20
    assert failed_attempts(spark, f"{OURS}often", first[18].task_id) == first[19:]
    questions.clear()
    assert failed_attempts(spark, f"{OURS}often", first[19].task_id) == []
    assert len(questions) < 80


def fail(spark: SparkSession, group: str, tasks: int, times: int) -> None:
    """Run a Spark job whose first Spark task fails so many times."""

    def run(numbers: Iterable[int]) -> Iterator[int]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        if context.partitionId() == 0 and context.attemptNumber() < times:
            raise ValueError("the first one")
        yield from numbers

    spark.sparkContext.setJobGroup(group, "a test")
    spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(run).count()
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
