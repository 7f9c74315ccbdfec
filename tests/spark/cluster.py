"""A standalone cluster out of the wheel for tests: a master and three workers of one core, whose Python lacks this package."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from task_assignor.spark import prepare_java

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
    asked = [str(python), "-c", "import attrs, polars, pyarrow; import task_assignor"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stderr
    if "No module named 'task_assignor'" not in said:
        pytest.skip(f"the package is not installed as editable: {said}")
    return python


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: Path) -> Iterator[str]:
    """A master and three workers of one core each, on loopback. SIGPWR to a worker decommissions it."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    environ = dict(os.environ, SPARK_NO_DAEMONIZE="1", SPARK_DAEMON_MEMORY="256m", PYSPARK_PYTHON=str(bare_python))
    environ["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.decommission.enabled=true"
    environ.pop("PYTHONPATH", None)
    prepare_java(environ)
    home, port = Path(pyspark.__file__).parent, free_port()
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with (tmp_path / f"{name}.log").open("wb") as log:
            command = [str(home / "bin" / "spark-class"), *arguments]
            processes.append(subprocess.Popen(command, env=environ | {"SPARK_HOME": str(home)}, stdout=log, stderr=log))

    start(
        "master",
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"),
    )
    deadline = time.monotonic() + 600
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                processes[0].kill()
                pytest.fail((tmp_path / "master.log").read_text())
            time.sleep(0.1)
    for number in range(WORKERS):
        start(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            f"spark://127.0.0.1:{port}",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "700m", "--webui-port", "0"),
            *("--work-dir", str(tmp_path / f"work-{number}")),
        )
    yield f"spark://127.0.0.1:{port}"
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(30)


def run_program(bare_python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ, PYTHONPATH=str(SOURCES), PYSPARK_PYTHON=str(bare_python))
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
