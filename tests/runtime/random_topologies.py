"""Random topics and topologies against a plain computation: `python -m tests.runtime.random_topologies --seeds 500 --jobs 2`.

A seed decides topics, operators and how they are run: once by one client in large batches, once by several in small ones, with
kills and resumes, another order of the sub-topologies, other places for the state, and topics that grow and gain columns between runs, in
which records that are bad or late may go elsewhere than before. What each output has must be what the plain
computation gives, in both.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import attrs

from task_assignor.runtime import (
    BatchesCommitted,
    ClientSpec,
    DerivedStream,
    KeyValueStoreSpec,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    SubTopology,
    TopicException,
    Topology,
    TopologyException,
    read_output,
)
from tests.runtime.plain_rows import Row, bag, canonical, rows_of
from tests.runtime.plain_streams import Expected, Rows, compute
from tests.runtime.random_operators import RandomTopology, topology_of
from tests.runtime.support import application, settings
from tests.runtime.thread_clients import ThreadLauncher

_PATIENCE_MS = 600_000
_OPTIONS = RuntimeOptions(
    heartbeat_interval_ms=50,
    # Nothing depends on how fast the machine is: who is slow is waited for.
    session_timeout_ms=_PATIENCE_MS,
    startup_timeout_ms=_PATIENCE_MS,
    stop_timeout_ms=_PATIENCE_MS,
    max_poll_interval_ms=_PATIENCE_MS,
    max_attempts=99,
    validate_state=True,
)
_MOST_KILLS = 10
_SHOWN = 3
"""So many rows of a difference are shown."""


def check(seed: int, folder: Path) -> None:
    """Run what a seed says.

    Args:
        seed: the seed.
        folder: where topics and runs go.

    Raises:
        AssertionError: an output has other rows than it should, or a run has failed; says which.
    """
    stages = drawn_of(seed)
    found = []
    for run, drawn in ((_run_at_once, stages[-1:]), (_run_with_trouble, stages)):
        way = run.__name__.removeprefix("_run_")
        try:
            run(drawn, folder, way)
        except Exception as error:
            raise AssertionError(f"{way}, {_shown(drawn[-1])}") from error
        for name, wanted in expected_of(drawn).items():
            found += [f"{way}, output {name}: {said}" for said in _differences(folder / way, name, wanted)]
    assert not found, "\n".join([*found, _shown(stages[-1])])


def drawn_of(seed: int) -> list[RandomTopology]:
    """The topology of a seed in each stage of its topics.

    In one, where what it gives hangs on what comes when, or where something fits only with a column that is gained.
    """
    last = RandomTopology(seed)
    stages = [*(RandomTopology(seed, stage) for stage in range(last.stages - 1)), last]
    operators = [[(step.declared.name, step.kind, step.sources) for step in drawn.steps] for drawn in stages]
    return stages if last.is_certain and operators.count(operators[-1]) == len(stages) else [last]


def expected_of(stages: Sequence[RandomTopology]) -> dict[str, Expected]:
    """What each output must have, computed plainly, when the topics have come in these stages."""
    return compute(
        [drawn.steps for drawn in stages],
        {
            name: Rows(topic.whole.spec, topic.whole.rows, topic.stages if len(stages) > 1 else ())
            for name, topic in stages[-1].topics.items()
        },
    )


# Running.


def _run_at_once(stages: Sequence[RandomTopology], folder: Path, name: str) -> None:
    (drawn,) = stages
    for topic in drawn.topics.values():
        topic.whole.write(folder / "topics")
    more: dict[str, Any] = {"run_dir": folder / name, "clients": 1, "launcher": ThreadLauncher(), "options": _OPTIONS}
    application(folder, topology_of(drawn.steps), **more).run()


def _run_with_trouble(stages: Sequence[RandomTopology], folder: Path, name: str) -> None:
    """In several lives, each with other clients and other places for the state; between them topics grow."""
    chance = random.Random(stages[-1].seed)
    grown = folder / "grown"
    # Where several read the same topics the order of their declaration may decide in which order these are read.
    order = chance.sample(range(len(stages[-1].steps)), len(stages[-1].steps))
    for stage, drawn in enumerate(stages):
        for topic in drawn.topics.values():
            if len(stages) > 1:
                topic.grow(grown / "topics", stage)
            else:
                topic.whole.write(grown / "topics")
        topology = topology_of(drawn.steps)
        with suppress(TopologyException):
            topology = topology_of([drawn.steps[number] for number in order])
        for life in range(chance.choice((1, 2, 4)), 0, -1):
            options = attrs.evolve(
                _OPTIONS,
                max_batch_rows=chance.choice((1, 3, 7, 20)),
                snapshot_interval_ms=chance.choice((100, 60_000)),
                snapshot_changelog_bytes=chance.choice((0, 1, 2_000, 64 << 20)),
                checkpoint_every_commits=chance.choice((1, 3, 256)),
                state_memory_bytes=chance.choice((1, 1 << 20, 512 << 20)),
            )
            assignor, standbys = chance.choice(("sticky", "high-availability")), chance.choice((0, 1))
            threads = [chance.choice((1, 2)) for _ in range(chance.choice((1, 2, 3)))]
            launcher = ThreadLauncher()
            living = application(
                grown,
                _with_state_elsewhere(topology, chance),
                config=settings(task_assignor_class=assignor, num_standby_replicas=standbys),
                run_dir=folder / name,
                clients=[ClientSpec(f"c{number}", threads=count) for number, count in enumerate(threads)],
                launcher=launcher,
                options=options,
            )
            living.run(_Trouble(living, launcher, random.Random(chance.random()), is_last=life == 1))


def _with_state_elsewhere(topology: Topology, chance: random.Random) -> Topology:
    """Stores are on disk or in memory, from life to life."""

    def moved(sub: SubTopology) -> SubTopology:
        stores = [
            attrs.evolve(store, on_disk=chance.random() < 0.5) if isinstance(store, KeyValueStoreSpec) else store
            for store in sub.stores
        ]
        return attrs.evolve(sub, stores=stores)

    return attrs.evolve(topology, sub_topologies=[moved(sub) for sub in topology.sub_topologies])


class _Trouble:
    """Kills clients as batches are committed, and ends the life at times.

    Args:
        application: is run.
        launcher: has its clients.
        chance: decides.
        is_last: the life goes to the end.
    """

    def __init__(
        self, application: StreamsApplication, launcher: ThreadLauncher, chance: random.Random, *, is_last: bool
    ) -> None:
        self._application = application
        self._launcher = launcher
        self._chance = chance
        self._kill_every = chance.choice((None, 1, 3))
        self._ends_after = None if is_last else chance.choice((1, 2, 5, 10))
        self._commits = 0

    def __call__(self, event: RunEvent) -> None:
        """What was committed decides, not time: a slow machine has as much trouble as a fast one."""
        if not isinstance(event, BatchesCommitted):
            return
        self._commits += 1
        running = self._launcher.running
        if self._kill_every and running and self._commits % self._kill_every == 0 and self._commits <= _MOST_KILLS:
            self._launcher.kill(self._chance.choice(running))
        if self._commits == self._ends_after:
            self._application.request_stop()


# Comparing.


def _differences(run: Path, name: str, wanted: Expected) -> Iterator[str]:
    """What is missing in an output, and what it has besides."""
    try:
        rows = rows_of(read_output(run, name))
    except TopicException:
        # Nothing was ever written.
        rows = []
    if name.startswith("dead-"):
        rows = [{column: row[column] for column in ("topic", "partition", "offset", "reason")} for row in rows]
        rows = [{**row, "offset": None} if row["topic"].startswith("r-") else row for row in rows]
    found = bag(_last(rows, wanted.last_by))
    least, most = bag(_last(wanted.rows, wanted.last_by)), bag(_last(wanted.possible, wanted.last_by))
    for what, difference in (("missing", least - found), ("extra", found - most)):
        if difference:
            some = "".join(f"\n    {count} x {str(dict(row))[:600]}" for row, count in difference.most_common(_SHOWN))
            yield f"{difference.total()} rows {what} (it has {found.total()}){some}"


def _last(rows: list[Row], by: tuple[str, ...] | None) -> list[Row]:
    """Where the last row of each group counts, those; groups that are gone or were never there look the same."""
    if by is None:
        return rows
    last = {tuple(canonical(row[column]) for column in by): row for row in rows}
    return [row for row in last.values() if any(value is not None for column, value in row.items() if column not in by)]


# Telling.


def _shown(drawn: RandomTopology) -> str:
    """A topology for people, in few lines."""
    lines = []
    for name, topic in drawn.topics.items():
        spec, rows = topic.whole.spec, topic.whole.rows
        columns = ", ".join(f"{field.name}: {field.type}" for field in spec.schema)
        stages = f"stages {topic.stages}, gained {dict(topic.gained)}"
        what = f"key {', '.join(spec.key)}, {spec.partitions} partitions, {rows.num_rows} rows, {stages}"
        lines.append(f"  {name}: {columns}; {what}")
    for step in drawn.steps:
        one = step.declared
        gives = one.name if isinstance(one, DerivedStream) else ", ".join(output.name for output in one.outputs)
        details = ", ".join(map(_detail, getattr(step.compute, "args", ())))
        lines.append(f"  {step.kind}: {', '.join(step.sources)} -> {gives}; {details}")
    return "\n".join(["the topology:", *lines])


def _detail(value: Any) -> str:
    """What differs from what is usual."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_detail(one)}" for name, one in value.items()) + "}"
    if not attrs.has(type(value)):
        return getattr(value, "__name__", repr(value))
    fields = [field for field in attrs.fields(type(value)) if getattr(value, field.name) != field.default]
    return f"{type(value).__name__}({', '.join(f'{field.name}={_detail(getattr(value, field.name))}' for field in fields)})"


def _failure(seed: int) -> tuple[int, str | None]:
    """What was wrong with a seed; None: nothing."""
    # Clients that are killed say so.
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(seed, Path(folder))
        except AssertionError as error:
            story = str(error)
            return seed, story if error.__cause__ is None else "".join(traceback.format_exception(error))
        except Exception as error:  # noqa: BLE001 - the next seed has its turn
            return seed, "".join(traceback.format_exception(error))
    return seed, None


def main() -> None:
    """Run the seeds, tell of those that fail, and exit with 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args()
    seeds, failures, begin = range(asked.first, asked.first + asked.seeds), 0, time.monotonic()
    with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
        for done, (seed, story) in enumerate(pool.map(_failure, seeds), 1):
            if story is not None:
                failures += 1
                sys.stdout.write(f"seed {seed}:\n{story}\n")
            if story is not None or done % 20 == 0 or done == asked.seeds:
                sys.stdout.write(f"{done} seeds, {failures} failed, {time.monotonic() - begin:.0f} s\n")
                sys.stdout.flush()
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
