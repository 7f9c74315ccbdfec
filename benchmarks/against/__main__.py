"""`python -m benchmarks.against OTHER_CHECKOUT`: both checkouts answer the same states; which is better, at which goal."""

from __future__ import annotations

import argparse
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from benchmarks.against.goals import Goals, Judged, goals_of
from benchmarks.against.states import KINDS, large_state, small_states
from task_assignor.sdk import ApplicationState

ASSIGNORS: dict[str, tuple[str, dict[str, object]]] = {
    "sticky": ("StickyTaskAssignor", {}),
    "stream-join": ("StreamJoinTaskAssignor", {}),
    "fallback-prior": ("FallbackPriorTaskAssignor", {}),
}
HERE = Path(__file__).resolve().parents[2]
Named = tuple[str, ApplicationState]


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.against",
        description="Compare the answers of this checkout with those of another one, goal by goal.",
    )
    made.add_argument("checkout", type=_checkout, help="folder of the other checkout")
    made.add_argument("--states", type=int, default=5_000, help="random states (default %(default)s)")
    made.add_argument("--sizes", type=int, nargs="*", default=[30_000, 100_000, 1_000_000], help="tasks of large ones")
    made.add_argument("--only", default="", help="only kinds of large states in whose name this is found")
    made.add_argument("--assignors", nargs="*", choices=ASSIGNORS, default=list(ASSIGNORS))
    made.add_argument("--calls", type=int, default=2, help="calls of which the fastest counts, for large states")
    return made


def _checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "src" / "task_assignor").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} must be a checkout: a folder with src/task_assignor in it")
    return path


def main() -> None:
    """Print a line per assignor for the random states, and a table of the large ones."""
    options = parser().parse_args()
    for name in options.assignors:
        states = [(f"random {number}", state) for number, state in enumerate(small_states(options.states))]
        _print_small(name, options.checkout, states)
    print("\n| assignor | tasks | kind | better at | worse at | other s | this s |\n|---|---|---|---|---|---|---|")
    for size in options.sizes:
        for kind, shape in KINDS.items():
            if re.search(options.only, kind):
                for name in options.assignors:
                    _print_large(name, options.checkout, size, kind, large_state(size, shape), options.calls)


def _print_small(name: str, checkout: Path, states: list[Named]) -> None:
    counts: Counter[str] = Counter()
    for (number, _), (before, _), (after, _) in zip(states, *_both(name, checkout, states, 1), strict=True):
        goal = _first_difference(before, after)
        counts[
            "equal" if goal is None else f"better at {goal}" if after[goal] < before[goal] else f"worse at {goal}"
        ] += 1
        if goal is not None and after[goal] > before[goal]:
            print(f"  {name}, {number}: {goal} {_shown(before[goal])} -> {_shown(after[goal])}")
    print(f"{name}, {len(states)} random states: " + ", ".join(f"{text}: {n}" for text, n in counts.most_common()))


def _print_large(name: str, checkout: Path, size: int, kind: str, state: ApplicationState, calls: int) -> None:
    (before, other_s), (after, this_s) = (next(one) for one in _both(name, checkout, [(kind, state)], calls))
    parts = []
    for is_better in (True, False):
        goals = [goal for goal in before if before[goal] != after[goal] and (after[goal] < before[goal]) == is_better]
        parts.append("; ".join(f"{goal}: {_shown(before[goal])} -> {_shown(after[goal])}" for goal in goals) or "–")
    print(f"| {name} | {_shown(size)} | {kind} | {' | '.join(parts)} | {other_s:.2f} | {this_s:.2f} |")
    sys.stdout.flush()


def _first_difference(before: Goals, after: Goals) -> str | None:
    return next((goal for goal in before if before[goal] != after[goal]), None)


def _shown(value: Fraction | int) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{float(value):,.1f}".replace(",", " ")


def _both(
    name: str, checkout: Path, states: Iterable[Named], calls: int
) -> tuple[Iterator[tuple[Goals, float]], Iterator[tuple[Goals, float]]]:
    """(goals, processor seconds) of every state: of the other checkout, and of this one."""
    assignor, settings = ASSIGNORS[name]
    states = list(states)
    questions = [
        {
            "columns": state.columns,
            "configs": attrs.asdict(state.assignment_configs, recurse=False),
            "assignor": assignor,
            "settings": settings,
            "calls": calls,
        }
        for _, state in states
    ]
    found = (_answers(root, questions) for root in (checkout, HERE))
    before, after = (
        [_judged(assignor, state, one) for (_, state), one in zip(states, part, strict=True)] for part in found
    )
    return iter(before), iter(after)


def _answers(root: Path, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "questions"), Path(folder, "answers")
        with asked.open("wb") as target:
            for question in questions:
                pickle.dump(question, target)
        worker = Path(__file__).with_name("worker.py")
        environment = {**os.environ, "PYTHONPATH": str(root / "src")}
        subprocess.run([sys.executable, worker, asked, answered], env=environment, check=True)
        with answered.open("rb") as source:
            return [pickle.load(source) for _ in questions]


def _judged(assignor: str, state: ApplicationState, answer: dict[str, Any]) -> tuple[Goals, float]:
    owner, task, client = (
        np.asarray(answer[name], dtype=np.int64) for name in ("owner", "standby_task", "standby_client")
    )
    return goals_of(assignor, Judged(state, owner, task, client)), answer["seconds"]


if __name__ == "__main__":
    main()
