"""The same on a standalone cluster out of the wheel: three executors whose Python lacks this package; one is killed with -9."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import task_assignor
from task_assignor.runtime import read_output
from tests.spark.cluster import bare_python, cluster, run_program

__all__ = ["bare_python", "cluster"]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the executors' processes in /proc"),
]

JOIN = str(Path(__file__).with_name("join_on_cluster.py"))
CONF = {"spark.driver.host": "127.0.0.1", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
APPLICATION = """
import pyarrow as pa
from task_assignor import StreamsConfig
from task_assignor.runtime import Output, Processor, RuntimeOptions, StreamsApplication, SubTopology, Topology, write_topic
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
    options=RuntimeOptions(startup_timeout_ms=600_000),
)
"""


def join(bare_python: Path, *arguments: str) -> dict[str, Any]:
    """What the program says that joins on a cluster; its result is right, and every task ran where it should."""
    done = run_program(bare_python, JOIN, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["equal"]
    assert found["misplaced"] == []
    assert len(found["troubled"]) == 1
    return found


@pytest.mark.parametrize("launcher", ["resident", "pinned"])
def test_a_killed_executor_changes_nothing_and_the_package_ships_itself(
    cluster: str, bare_python: Path, tmp_path: Path, launcher: str
) -> None:
    found = join(bare_python, cluster, str(tmp_path), launcher, "kill")

    assert found["lost"] == ["client-1"]
    assert found["left"] == {}
    # The client that was lost went on under another executor, or the run ended before.
    assert set(found["troubled"]) < set(found["executors"])
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


# Last, since each takes one of the workers away.


@pytest.mark.parametrize("launcher", ["resident", "pinned"])
def test_the_client_of_a_decommissioned_worker_leaves_in_order(
    cluster: str, bare_python: Path, tmp_path: Path, launcher: str
) -> None:
    """It is not lost: it finishes its batches, others take its tasks, and nothing is done twice."""
    found = join(bare_python, cluster, str(tmp_path), launcher, "decommission")

    (executor,) = found["troubled"]
    assert found["left"] == {"client-1": f"executor {executor} is being decommissioned"}
    assert (found["lost"], found["refused"]) == ([], 0)
    assert found["clients"]["client-1"][0] == executor
    assert executor not in found["clients"]["client-1"][1:]
