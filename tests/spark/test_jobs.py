"""What is told of Spark jobs that fail."""

from types import SimpleNamespace
from typing import Any

import pytest

from task_assignor.spark.jobs import reason_of, short_reason

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
