"""`make demo-kafka`: the demo on topics of a broker that is started for it."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.kafka.broker import VERSION, BrokerFailedError, KafkaCluster
from tests.kafka.jars import KafkaUnavailableError, default_version


def main(arguments: list[str]) -> int:
    """Start a broker, run the demo on it with these arguments, stop it."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    sys.stdout.write(
        f"Starting Apache Kafka {VERSION or default_version()} (the first time Maven fetches 120 MB) ...\n"
    )
    sys.stdout.flush()
    try:
        with KafkaCluster(heap="512m") as cluster:
            command = [sys.executable, "-m", "task_assignor", "demo", "--bootstrap-server", cluster.bootstrap_servers]
            return subprocess.call([*command, *arguments])
    except KeyboardInterrupt:
        return 130
    except (KafkaUnavailableError, BrokerFailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
