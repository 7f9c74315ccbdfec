"""One Spark session for all tests of the room, and a PATH on which everything is found but Java."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from task_assignor.spark import spark_session

CLIENTS = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with a slot for each of four clients and one more."""
    session = spark_session(clients=CLIENTS, app_name="task-assignor tests")
    yield session
    session.stop()


@pytest.fixture
def no_slots(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    """Another job holds all slots."""
    slots, free = spark.sparkContext.defaultParallelism, tmp_path / "free"

    def hold(_: object) -> list[int]:
        (free.parent / f"held-{time.monotonic_ns()}").touch()
        while not free.exists():
            time.sleep(0.05)
        return []

    with ThreadPoolExecutor() as pool:
        held = pool.submit(spark.sparkContext.parallelize(range(slots), slots).mapPartitions(hold).collect)
        try:
            while len(list(tmp_path.glob("held-*"))) < slots:
                time.sleep(0.05)
            yield
            assert not held.done()
        finally:
            free.touch()
        held.result(60)


@pytest.fixture(scope="session")
def path_without_java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with links to all commands of the PATH, except those of Java."""
    folder = tmp_path_factory.mktemp("bin")
    for directory in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for command in Path(directory).glob("*"):
            link = folder / command.name
            if not command.name.startswith("java") and not link.is_symlink():
                link.symlink_to(command)
    return str(folder)
