"""A program for tests: the random trouble of `tests.runtime.chaos` with topics and the run in an object store. Prints what it did as JSON.

    python -m tests.runtime.chaos_in_bucket --seeds 100

Besides, connections to the store break at any moment: whether a request has been carried out is not known then. There is no power
failure and no damage, since a store keeps what it has taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from task_assignor.runtime import RuntimeOptions
from tests.runtime import chaos
from tests.runtime.chaos_acts import arguments, run_seeds
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


def main() -> None:
    """Some seeds, a line each; clients find the store by the environment."""
    parser = arguments(__doc__, seeds=100)
    parser.add_argument(
        "--breaks", type=float, default=BREAKS, help="the chance of every piece that a connection breaks"
    )
    given = parser.parse_args()
    with S3Server() as server, FaultyNetwork(server.port, given.first, given.breaks) as network:
        os.environ.update(server.environment, AWS_ENDPOINT_URL=f"http://127.0.0.1:{network.port}")

        def run(seed: int, folder: Path) -> BucketChaos:
            before = network.broken
            found = BucketChaos(root=folder / "seed", seed=seed, server=server, url=f"{server.url}/seed-{seed}")
            found.run()
            found.kinds["connection"] = network.broken - before
            return found

        run_seeds(given, run)


if __name__ == "__main__":
    main()
