"""Looks at whether an assignor answers the same in other processes, where strings hash to other values."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from task_assignor.sdk import (
    ApplicationState,
    StreamsConfig,
    TaskAssignor,
    assignment_to_json,
    state_from_json,
    state_to_json,
)
from task_assignor.testing.assertions import assert_same


def assert_same_in_every_process(
    assignor: type[TaskAssignor],
    states: Iterable[ApplicationState],
    *,
    settings: Mapping[str, object] | None = None,
    hash_seeds: Sequence[int] = (0, 1),
    timeout_seconds: float = 300,
) -> None:
    """The assignor answers the same here and in fresh processes with other values of `PYTHONHASHSEED`.

    A process takes a second to start, so give many states at once.

    Args:
        assignor: a class at the top level of a module.
        states: what it is given.
        settings: what it is configured with, by Kafka's keys; as far as JSON can carry them.
        hash_seeds: one process is started for each.
        timeout_seconds: for each process.

    Raises:
        AssertionError: two answers differ, or a process failed.
    """
    documents = [state_to_json(state) for state in states]
    expected = _answers(assignor, documents, settings or {})
    request = json.dumps(
        {
            "path": sys.path,
            "module": assignor.__module__,
            "name": assignor.__qualname__,
            "file": inspect.getsourcefile(assignor),
            "settings": dict(settings or {}),
            "states": documents,
        }
    )
    for seed in hash_seeds:
        done = subprocess.run(
            [sys.executable, "-m", "task_assignor.testing.processes"],
            input=request,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        if done.returncode:
            raise AssertionError(f"The process with PYTHONHASHSEED={seed} failed:\n{done.stderr}")
        for number, (here, there) in enumerate(zip(expected, json.loads(done.stdout), strict=True)):
            assert_same(here, there, f"A process with PYTHONHASHSEED={seed}, for state number {number},")


def _answers(
    assignor: type[TaskAssignor], documents: Iterable[dict[str, Any]], settings: Mapping[str, object]
) -> list[list[dict[str, Any]]]:
    config = StreamsConfig({**settings, "task.assignor.class": assignor})
    return [assignment_to_json(config.task_assignor().assign(state_from_json(document))) for document in documents]


def _load(module: str, name: str, file: str | None) -> type[TaskAssignor]:
    """The class; from its file where its module cannot be imported by name, as with test files and scripts."""
    try:
        found: Any = importlib.import_module(module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(Path(file).stem, file) if file else None
        if spec is None or spec.loader is None:
            raise
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    for part in name.split("."):
        found = getattr(found, part)
    assignor: type[TaskAssignor] = found
    return assignor


def _answer_request() -> None:
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    assignor = _load(request["module"], request["name"], request["file"])
    json.dump(_answers(assignor, request["states"], request["settings"]), sys.stdout)


if __name__ == "__main__":
    _answer_request()
