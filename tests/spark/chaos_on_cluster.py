"""A program for tests: the random trouble of `tests.runtime.chaos` on a standalone cluster. Prints what it did as JSON.

    python -m tests.spark.chaos_on_cluster --seeds 20

Every seed has a cluster of its own and every life a Spark application, as that of a driver that was started again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
from pyspark.sql import SparkSession

from task_assignor.runtime import RuntimeOptions
from task_assignor.spark import SparkLauncher, spark_session
from tests.runtime import chaos
from tests.runtime.chaos_acts import arguments, run_seeds
from tests.spark.cluster import SOURCES, WORKERS, Cluster, standalone

OPTIONS: RuntimeOptions = attrs.evolve(
    chaos.OPTIONS, session_timeout_ms=3_000, rejoin_timeout_ms=5_000, max_poll_interval_ms=6_000, stop_timeout_ms=3_000
)
ACTS = (
    *("kill", "stop", "executor", "executor", "decommission", "scale", "sigterm", "driver", "drain", "power"),
    *("grow", "shed", "marker"),
)
"""Those of clients are done to the Python of their executors. `executor`: its JVM is killed with -9."""
_EXECUTOR = "CoarseGrainedExecutorBackend"


def parent_of(pid: int) -> int:
    """The process that has started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(pid: int) -> int | None:
    """The executor in whose Python a client is; None: it is gone."""
    try:
        while pid > 1 and _EXECUTOR not in Path(f"/proc/{pid}/cmdline").read_text():
            pid = parent_of(pid)
    except OSError:
        return None
    return pid if pid > 1 else None


@attrs.define(kw_only=True)
class ClusterChaos(chaos.Chaos):
    """One run with trouble on a cluster.

    Args:
        cluster: the cluster.
    """

    cluster: Cluster
    acts: Sequence[str] = ACTS
    options: RuntimeOptions = OPTIONS
    can_be_full: bool = False

    def _do(self, kind: str, pid: int) -> None:
        if kind not in ("executor", "decommission"):
            super()._do(kind, pid)
            return
        executor = executor_of(pid)
        if executor is None:
            return
        if kind == "executor":
            os.kill(executor, signal.SIGKILL)
        else:
            # Another machine comes, as with those that go and come for their price.
            self.cluster.start_worker()
            os.kill(parent_of(executor), signal.SIGPWR)


class Sessions:
    """Spark applications, one after the other.

    Args:
        master: where they run.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._session: SparkSession | None = None

    def launcher(self) -> SparkLauncher:
        """The launcher of the next one."""
        self.stop()
        self._session = spark_session(
            self._master,
            clients=WORKERS,
            config={
                "spark.driver.host": "127.0.0.1",
                "spark.executor.cores": 1,
                "spark.executor.memory": "512m",
                "spark.decommission.enabled": "true",
                "spark.executorEnv.PYTHONPATH": f"{SOURCES}:{SOURCES.parent}",
            },
        )
        return SparkLauncher(self._session)

    def stop(self) -> None:
        """End the one that there is."""
        if self._session is not None:
            self._session.stop()
            self._session = None


@contextmanager
def _sessions(cluster: Cluster) -> Iterator[Sessions]:
    sessions = Sessions(cluster.address)
    try:
        yield sessions
    finally:
        sessions.stop()


def run(seed: int, folder: Path) -> ClusterChaos:
    """One seed, with a cluster of its own."""
    (folder / "cluster").mkdir(parents=True)
    with standalone(folder / "cluster", Path(sys.executable)) as cluster, _sessions(cluster) as sessions:
        found = ClusterChaos(root=folder / "run", seed=seed, launcher=sessions.launcher, cluster=cluster)
        found.run()
    return found


def main() -> None:
    """Some seeds, a line each."""
    run_seeds(arguments(__doc__, seeds=20).parse_args(), run)


if __name__ == "__main__":
    main()
