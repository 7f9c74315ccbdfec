"""What `import task_assignor` brings with it, seen from a fresh interpreter."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

HEAVY = {"cloudpickle", "hypothesis", "msgspec", "ortools", "pandas", "polars", "pyarrow", "pyspark", "rich", "typer"}


def fresh_interpreter(code: str) -> str:
    # Coverage's start-up hook would add its own modules and time to the child.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(statement: str) -> set[str]:
    return set(json.loads(fresh_interpreter(f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))")))


def test_importing_the_package_imports_no_solver_no_screen_and_no_engine() -> None:
    assert modules_after("import task_assignor") & HEAVY == set()


@pytest.mark.parametrize("room", ["sdk", "validation", "utils", "builtin_assignors", "group"])
def test_importing_a_room_of_the_core_imports_nothing_heavy(room: str) -> None:
    """OR-Tools only when something is solved, so not even `utils` brings it."""
    assert modules_after(f"import task_assignor.{room}") & HEAVY == set()


def test_importing_the_package_takes_at_most_four_times_what_numpy_and_attrs_take() -> None:
    """The best of several runs, in processor time: on a machine with a load of twenty, by the clock, it was five times."""

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    def seconds(code: str) -> float:
        begin = used()
        fresh_interpreter(code)
        return used() - begin

    ours, base, bare = [], [], []
    for _ in range(5):
        bare.append(seconds("pass"))
        base.append(seconds("import numpy, attrs"))
        ours.append(seconds("import task_assignor"))
    assert min(ours) - min(bare) < 4 * (min(base) - min(bare))


def test_the_version_is_the_one_of_the_installed_distribution() -> None:
    out = fresh_interpreter(
        "import importlib.metadata, task_assignor\n"
        "print(task_assignor.__version__)\nprint(importlib.metadata.version('task-assignor'))"
    )
    ours, installed = out.split()
    assert ours == installed
