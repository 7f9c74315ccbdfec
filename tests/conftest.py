"""What all tests share: Hypothesis profiles, and which tests can run on this machine; no fixtures of single rooms.

Environment:
    TASK_ASSIGNOR_EXAMPLES: so many random examples per property instead of the usual number, with a fresh seed each run.
        A property that wants more or fewer than the profile's asks `tests.budget.examples`.
    REQUIRE_KAFKA: with 1, tests marked `kafka` fail where a broker cannot be started, instead of being skipped.
    TASK_ASSIGNOR_REQUIRE_JVM: with 1, tests marked `jvm` run and fail where a JDK or Maven is missing, instead of being skipped.
"""

from __future__ import annotations

import doctest
import gc
import importlib.util
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestItem, DoctestModule
from hypothesis import HealthCheck, Verbosity, settings

from tests.bridge.streams import java
from tests.budget import requested_examples
from tests.kafka.fixtures import kafka_cluster, rack_cluster, unique
from tests.kafka.secured import secure_cluster
from tests.runtime.storage.fixtures import s3_folder, s3_server

__all__ = [
    "java",
    "kafka_cluster",
    "rack_cluster",
    "s3_folder",
    "s3_server",
    "secure_cluster",
    "unique",
]  # fixtures, known to all tests

pytest.register_assert_rewrite("tests.rack_comparison")  # a failed assert there tells the values, as in a test

# A deadline per example would fail whenever the machine is busy; derandomized, a red run is red for everybody.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "long",
    settings.get_profile("ci"),
    derandomize=False,
    database=None,
    max_examples=requested_examples() or 100_000,
    verbosity=Verbosity.normal,
)
settings.load_profile("long" if requested_examples() else "ci")


# Spark's JVMs live for seconds here: the second compiler and more collector threads cost 8 s of processor time per start, and
# 2 s more until the first query to prove Spark's own classes right.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)


def _keep_files_in_memory() -> None:
    """Let `tmp_path` be in memory, where that is large enough and programs in it can be run: most tests of the runtime wait for the disk to sync.

    Not in the long runs; who sets PYTEST_DEBUG_TEMPROOT or --basetemp has other places.
    """
    memory = Path("/dev/shm")
    if requested_examples() or not (memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)):
        return
    room = os.statvfs(memory)
    if room.f_bavail * room.f_frsize >= _ROOM_BYTES and not room.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


_ROOM_BYTES = 4 << 30
_LONGEST_NAME = 200
_keep_files_in_memory()


def pytest_configure() -> None:
    """A shell has what it starts with `&` ignore Ctrl-C, and so would all that tests start to interrupt it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No examples are looked for in the docstrings of tests: none has any, and it takes each worker over a second."""
    found = yield
    return [collector for collector in found if not isinstance(collector, DoctestModule)]


def pytest_make_parametrize_id(val: object) -> str | None:
    """A test is not named by a text of ten million characters: the names of all go to each worker, and back with each result."""
    return f"{val[:_LONGEST_NAME]}... ({len(val)})" if isinstance(val, str) and len(val) > _LONGEST_NAME else None


def _keep_what_is_there() -> None:
    """What is there now stays until the end: the collector shall not look through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """Some 700 MB of modules and tests."""
    _keep_what_is_there()


@pytest.fixture(autouse=True, scope="module")
def _keep_what_other_modules_left() -> None:
    """Recorded answers, for example: by and by a million objects, at which each full collection looked for a second."""
    _keep_what_is_there()


def _missing_for_jvm() -> list[str]:
    return [program for program in ("java", "javac", "mvn") if shutil.which(program) is None]


def _require_jvm() -> bool:
    return os.environ.get("TASK_ASSIGNOR_REQUIRE_JVM", "") not in ("", "0")


def _needs_a_broker(item: DoctestItem) -> bool:
    return all(doctest.SKIP in each.options for each in item.dtest.examples)


# Clusters of brokers that few tests use: those of one worker alone, which starts it for all of them.
_SHARED_CLUSTERS = ("frail_cluster", "rack_cluster", "secure_cluster")


@pytest.hookimpl(tryfirst=True)  # xdist's own hook reads the groups, and would else come before
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with one line that says what is missing; keep heavy machines on one worker.

    A Spark driver or a JVM is started once per worker process, so all tests that need one go to the same worker; those
    that start a Spark of their own in another process have a further group, and so another worker.
    """
    without_jvm = _missing_for_jvm()
    without_spark = importlib.util.find_spec("pyspark") is None
    for item in items:
        for cluster in set(_SHARED_CLUSTERS).intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(cluster))
        if isinstance(item, DoctestItem) and item.path.parent.name == "kafka" and _needs_a_broker(item):
            item.add_marker("kafka")  # tests/kafka/test_docs.py runs those of all public names
        if item.get_closest_marker("jvm"):
            item.add_marker(pytest.mark.xdist_group("jvm"))
            if without_jvm and not _require_jvm():
                item.add_marker(
                    pytest.mark.skip(reason=f"needs a JDK and Maven; not on the path: {', '.join(without_jvm)}")
                )
        if item.get_closest_marker("s3"):
            item.add_marker(pytest.mark.xdist_group("s3"))
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
            if without_spark:
                item.add_marker(pytest.mark.skip(reason="needs pyspark: pip install 'task-assignor[spark]'"))
