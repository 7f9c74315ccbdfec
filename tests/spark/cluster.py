"""A standalone cluster out of the wheel for tests: a master and three workers of one core, whose Python lacks this package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyspark
import pytest

from task_assignor.spark import prepare_java
from tests.processes import Server

SOURCES = Path(__file__).parents[2] / "src"
WORKERS = 3


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that finds the packages that ours finds, but not this one."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Folders are added as they are: the links of editable installs in them do not count.
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = folder / "bin" / "python"
    asked = [str(python), "-E", "-c", "import attrs, polars, pyarrow; import task_assignor"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stderr
    if "No module named 'task_assignor'" not in said:
        pytest.skip(f"the package is not installed as editable: {said}")
    return python


@attrs.define
class Cluster:
    """A master and workers of one core each, on loopback. SIGPWR to a worker decommissions it.

    Args:
        folder: for what they write.
        environ: their environment.
        port: the master's.
    """

    folder: Path
    environ: Mapping[str, str]
    port: int = attrs.field(factory=free_port)
    processes: list[Server] = attrs.field(factory=list)

    @property
    def address(self) -> str:
        """What `spark_session` takes."""
        return f"spark://127.0.0.1:{self.port}"

    def _start(self, *arguments: str) -> Path:
        log = self.folder / f"{len(self.processes)}.log"
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), *arguments]
        with log.open("wb") as file:
            environ = {**self.environ, "SPARK_HOME": str(home)}
            self.processes.append(Server(command, file, environ=environ))
        return log

    def start_master(self) -> None:
        """And wait until it listens."""
        listen = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        log = self._start("org.apache.spark.deploy.master.Master", *listen)
        deadline = time.monotonic() + 600
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise AssertionError(log.read_text()) from None
                time.sleep(0.1)

    def start_worker(self) -> None:
        """One more."""
        self._start(
            "org.apache.spark.deploy.worker.Worker",
            self.address,
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--webui-port", "0"),
            *("--work-dir", str(self.folder / f"work-{len(self.processes)}")),
        )

    def stop(self) -> None:
        """End all."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def standalone(folder: Path, python: Path) -> Iterator[Cluster]:
    """A cluster with `WORKERS` workers, whose Python that is."""
    environ = dict(os.environ, SPARK_NO_DAEMONIZE="1", SPARK_DAEMON_MEMORY="256m", PYSPARK_PYTHON=str(python))
    environ["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.decommission.enabled=true"
    environ.pop("PYTHONPATH", None)
    prepare_java(environ)
    cluster = Cluster(folder, environ)
    try:
        cluster.start_master()
        for _ in range(WORKERS):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[str]:
    """The address of a master with three workers."""
    with standalone(tmp_path_factory.mktemp("cluster"), bare_python) as found:
        yield found.address


def run_program(bare_python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ, PYTHONPATH=str(SOURCES), PYSPARK_PYTHON=str(bare_python))
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
