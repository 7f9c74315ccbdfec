"""A program for tests: the random trouble of `tests.runtime.chaos` with topics and the run in an object store. Prints what it did as JSON.

    python -m tests.runtime.chaos_in_bucket --seeds 100

Besides, connections to the store break at any moment: whether a request has been carried out is not known then. There is no power
failure and no damage, since a store keeps what it has taken.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from task_assignor.runtime import RuntimeOptions
from tests.runtime import chaos
from tests.runtime.chaos_files import Damage
from tests.runtime.storage.faulty_network import FaultyNetwork
from tests.runtime.storage.s3_server import S3Server

OPTIONS: RuntimeOptions = attrs.evolve(
    chaos.OPTIONS, session_timeout_ms=3_000, rejoin_timeout_ms=5_000, max_poll_interval_ms=30_000
)
ACTS = ("kill", "kill", "stop", "scale", "sigterm", "driver", "drain", "grow", "shed", "marker", "pause", "pause")
"""`pause`: the store stands still for some seconds."""
LONGEST_PAUSE_S = 8.0
BREAKS = 0.01
"""The chance of every piece that comes or goes."""


@attrs.define(kw_only=True)
class BucketChaos(chaos.Chaos):
    """One run with trouble in an object store.

    Args:
        server: the store.
        url: an empty folder there.
    """

    server: S3Server
    url: str
    acts: Sequence[str] = ACTS
    options: RuntimeOptions = OPTIONS
    can_be_full: bool = False

    def _at(self, folder: str) -> str:
        return f"{self.url}/{folder}"

    def _do(self, kind: str, pid: int) -> None:
        if kind == "pause":
            self.server.pause(self._random.uniform(0.5, LONGEST_PAUSE_S))
        else:
            super()._do(kind, pid)

    def _damage(self, life: int) -> Damage:
        return Damage(None, self._random)


def run(seed: int, server: S3Server, folder: Path) -> dict[str, object]:
    """One seed, in an empty folder; clients find the store by the environment.

    Raises:
        AssertionError: what must hold does not.
    """
    began = time.monotonic()
    found = BucketChaos(root=folder, seed=seed, server=server, url=f"{server.url}/seed-{seed}")
    found.run()
    return {"seed": seed, "seconds": round(time.monotonic() - began), "kinds": +found.kinds, "happened": found.happened}


def main() -> None:
    """Some seeds, a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument(
        "--breaks", type=float, default=BREAKS, help="the chance of every piece that a connection breaks"
    )
    given = parser.parse_args()
    # Between two lives, too, a signal ends it so that the server ends with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    with S3Server() as server, FaultyNetwork(server.port, given.first, given.breaks) as network:
        os.environ.update(server.environment, AWS_ENDPOINT_URL=f"http://127.0.0.1:{network.port}")
        for seed in range(given.first, given.first + given.seeds):
            with tempfile.TemporaryDirectory(prefix="task-assignor-chaos-") as folder:
                done = {**run(seed, server, Path(folder) / "seed"), "broken connections so far": network.broken}
            sys.stdout.write(json.dumps(done) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
