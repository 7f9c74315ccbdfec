"""Many simulated runs by one command: `python -m tests.runtime.simulate --seeds 100000`. Each seed decides everything of its run."""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.runtime.assignors import HesitatingAssignor, ProbingAssignor, ScatteringAssignor
from tests.runtime.simulated_checks import check_everything_is_done
from tests.runtime.simulated_leader import WhimsicalLeader
from tests.runtime.simulation import MANY, World

_PIECE = 50


def simulate(seed: int) -> World:
    """One run, with as many clients, faults and changes as its seed says.

    Raises:
        AssertionError: what must hold does not.
    """
    chance = random.Random(seed)
    standbys = chance.randint(0, 2)
    moves, warms_up = chance.choice((0.02, 0.1, 0.5)), chance.random() < 0.5
    # Real assignors take most of the time, and most of what they can say the whimsical one says too.
    assignor = chance.choice((None, ScatteringAssignor, HesitatingAssignor, ProbingAssignor))
    is_real = chance.random() < 0.05
    world = World(
        seed,
        clients=chance.randint(1, 4),
        standbys=standbys,
        faults=chance.choice((0, 4, 8)),
        threads=chance.randint(1, 2),
        changes=chance.choice((0, 3, 6)),
        storage_faults=chance.choice((0, 3)),
        places=chance.choice((0, 0, 0.5, 1)),
        mishaps=chance.choice((0, 0, 1, 4)),
        assignor=assignor,
        idle_ms=chance.choice((None, None, 0, 100, 2_000)),
        partitions=(chance.choice((1, 1, 2, 3)), chance.choice((1, 1, 2)), chance.choice((1, 1, 2))),
        leader=None if is_real else partial(WhimsicalLeader, standbys=standbys, moves=moves, warms_up=warms_up),
        max_attempts=chance.choice((3, MANY, MANY)),
        rows=chance.choice(((0, 5, 10, 30), (0, 5, 30), (0, 5, 10, 37, 60))),
        slow_restores=chance.choice((0.1, 0.5)),
        slow_links=chance.choice((0, 0, 0.2)),
        stop_timeout_ms=chance.choice((300, 5_000)),
        clocks=chance.choice((0, 0.2)),
        checks=chance.choice((0.05, 0.05, 0.05, 1.0)),
        slow_batches=chance.choice((0, 0, 0.1)),
        markers=chance.choice((0, 3, 10)),
        permits=chance.choice((False, True)),
        standstills=chance.choice((0, 0, 3)),
    )
    world.run()
    errors = [finished.error for finished in world.finished]
    assert errors == [None], f"it ended with {errors}"
    check_everything_is_done(world)
    return world


def _piece(first: int, last: int) -> list[tuple[int, str]]:
    """The seeds of a piece that failed, with what they said."""
    # Assignors that hesitate say so, thousands of times.
    logging.disable(logging.WARNING)
    failed = []
    # A world is full of cycles; to look for them again and again takes longer than to let them be for a while.
    gc.disable()
    for seed in range(first, last):
        try:
            simulate(seed)
        except Exception as error:  # noqa: BLE001 - the next seed has its turn
            failed.append((seed, "".join(traceback.format_exception(error))[-2000:]))
    gc.collect()
    return failed


def _pieces(first: int, seeds: int) -> Iterator[int]:
    return iter(range(first, first + seeds, _PIECE))


def main() -> None:
    """Run the seeds, tell of those that fail, and exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100_000, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    end, failures, begin = asked.first + asked.seeds, 0, time.monotonic()
    starts = list(_pieces(asked.first, asked.seeds))
    with ProcessPoolExecutor(asked.jobs) as pool:
        ends = (min(start + _PIECE, end) for start in starts)
        for start, failed in zip(starts, pool.map(_piece, starts, ends), strict=True):
            failures += len(failed)
            for seed, story in failed:
                sys.stdout.write(f"seed {seed}:\n{story}\n")
            done = min(start + _PIECE, end) - asked.first
            if failed or done % (20 * _PIECE) == 0 or done == asked.seeds:
                sys.stdout.write(f"{done} seeds, {failures} failed, {time.monotonic() - begin:.0f} s\n")
                sys.stdout.flush()
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
