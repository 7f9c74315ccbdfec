"""The same on a standalone cluster out of the wheel: three executors whose Python lacks this package; one is killed with -9."""

from __future__ import annotations

import json
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

import task_assignor
from task_assignor.runtime import read_output
from task_assignor.spark import prepare_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SOURCES = Path(__file__).parents[2] / "src"
WORKERS = 3

# Runs a join on the cluster, kills the executor of one client in the middle, and prints what came of it as JSON.
PROGRAM = """
import json, os, re, signal, sys
from collections import Counter
import polars as pl
from task_assignor import StreamsConfig
from task_assignor.runtime import *
from task_assignor.spark import SparkLauncher, read_results, spark_session

master, folder = sys.argv[1:]
rows = 20_000
for name, step in (("left", 7919), ("right", 104_729)):
    numbers = pl.int_range(rows, eager=True)
    table = pl.DataFrame({"key": numbers * step % 500, "time": numbers, name: numbers}).to_arrow()
    write_topic(f"{folder}/topics", name, table, partitions=4, key=["key"], timestamp="time")

spark = spark_session(
    master,
    clients=2,
    config={"spark.driver.host": "127.0.0.1", "spark.executor.cores": 1, "spark.executor.memory": "512m"},
)


def where_it_is(_):
    import importlib.util

    found = importlib.util.find_spec("task_assignor")
    return "nowhere" if found is None else found.origin


before = spark.sparkContext.parallelize([0], 1).map(where_it_is).collect()
executors, pids, killed = {}, {}, []


def executor_process(executor):
    for entry in os.listdir("/proc"):
        try:
            arguments = open(f"/proc/{entry}/cmdline").read().split(chr(0)) if entry.isdigit() else []
        except OSError:
            continue
        if "--executor-id" in arguments and spark.sparkContext.applicationId in arguments:
            if arguments[arguments.index("--executor-id") + 1] == executor:
                return int(entry)


def on_event(event):
    if isinstance(event, ClientJoined):
        executors[event.client] = re.search(r"executor (\\S+),", event.attempt)[1]
    if isinstance(event, BatchesCommitted) and event.commit >= 20 and not killed:
        killed.append(executors["client-1"])
        os.kill(executor_process(executors["client-1"]), signal.SIGKILL)


join = WindowedJoin(left="left", right="right", before_ms=50, after_ms=50)
result = StreamsApplication(
    Topology([join.sub_topology("join", output="pairs")]),
    StreamsConfig({"application.id": "cluster", "num.standby.replicas": 1}),
    topics_root=f"{folder}/topics",
    run_dir=f"{folder}/run",
    clients=2,
    launcher=SparkLauncher(spark),
    options=RuntimeOptions(max_batch_rows=100),
).run(on_event=on_event)
found = pl.from_arrow(read_results(spark, f"{folder}/run", "pairs").toArrow())
left, right = (pl.scan_ipc(f"{folder}/topics/{name}/*/*.arrow") for name in ("left", "right"))
window = (pl.col("time_right") - pl.col("time")).is_between(-50, 50)
expected = left.join(right, on="key").filter(window).select("left", "right").collect()
after = spark.sparkContext.parallelize([0], 1).map(where_it_is).collect()
by_executor = Counter(re.search(r"executor (\\S+),", task.attempt)[1] for record in result.commits.records() for task in record.tasks.values())
print(json.dumps({
    "equal": expected.sort("left", "right").equals(found.select("left", "right").sort("left", "right")),
    "lost": [lost.client for lost in result.lost_clients],
    "killed": killed,
    "executors": sorted(by_executor),
    "before": before,
    "after": after,
}))
spark.stop()
"""

CONF = {"spark.driver.host": "127.0.0.1", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
APPLICATION = """
import pyarrow as pa
from task_assignor import StreamsConfig
from task_assignor.runtime import Output, Processor, StreamsApplication, SubTopology, Topology, write_topic
from tripled_helper import tripled

write_topic("{folder}/topics", "numbers", pa.table({{"key": range(1_000)}}), partitions=6, key=["key"])


class Tripled(Processor):
    def process_batch(self, batch, context):
        (rows,) = batch.values()
        return pa.table({{"value": tripled(rows.column("key").to_pylist())}})


application = StreamsApplication(
    Topology([SubTopology("triple", "numbers", Tripled, outputs=[Output("tripled")])]),
    StreamsConfig({{"application.id": "tripled"}}),
    topics_root="{folder}/topics",
    run_dir="{folder}/run",
    clients=3,
)
"""


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
    """A master and three workers of one core each, on loopback."""
    tmp_path = tmp_path_factory.mktemp("cluster")
    environ = dict(os.environ, SPARK_NO_DAEMONIZE="1", SPARK_DAEMON_MEMORY="256m", PYSPARK_PYTHON=str(bare_python))
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
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < deadline, (tmp_path / "master.log").read_text()
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


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the executor's process in /proc")
def test_a_killed_executor_changes_nothing_and_the_package_ships_itself(
    cluster: str, bare_python: Path, tmp_path: Path
) -> None:
    done = run_program(bare_python, "-c", PROGRAM, cluster, str(tmp_path))

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"]
    assert found["lost"] == ["client-1"]
    # The client that was lost went on under another executor, or the run ended before.
    assert len(found["killed"]) == 1
    assert set(found["killed"]) < set(found["executors"])
    assert found["before"] == ["nowhere"]
    assert f"task_assignor-{task_assignor.__version__}.zip" in found["after"][0]


def test_the_command_line_runs_a_file_with_what_lies_beside_it(cluster: str, bare_python: Path, tmp_path: Path) -> None:
    (tmp_path / "tripled_helper.py").write_text(
        "def tripled(numbers):\n    return [3 * number for number in numbers]\n"
    )
    (tmp_path / "tripled_app.py").write_text(APPLICATION.format(folder=tmp_path))
    options = [option for key, value in CONF.items() for option in ("--conf", f"{key}={value}")]
    app = str(tmp_path / "tripled_app.py")

    done = run_program(bare_python, "-m", "task_assignor", "run", app, "--master", cluster, "--json", *options)

    assert done.returncode == 0, done.stderr
    clients = {line["client"] for line in map(json.loads, done.stdout.splitlines()) if line["event"] == "ClientJoined"}
    assert clients == {"client-1", "client-2", "client-3"}
    values = read_output(tmp_path / "run", "tripled").column("value").to_pylist()
    assert sorted(values) == [3 * number for number in range(1_000)]
