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
from typing import Any, Final

from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    StreamsConfig,
    TaskAssignor,
    state_from_json,
    state_to_json,
)
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.hidden import HidingSettings
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import shown
from task_assignor.testing.answers import answer_of
from task_assignor.testing.arguments import listed_values, number_from_0
from task_assignor.testing.assertions import answer_to_json, assert_same

_CHILD: Final = "TASK_ASSIGNOR_TESTING_CHILD"
"""Environment variable that is set in the processes that are started here."""
_LONGEST_SECONDS: Final = INT32_MAX / 1_000
"""What the operating system can wait: it counts milliseconds."""


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
        assignor: a class at the top level of a module. A script that calls this must do so behind
            `if __name__ == "__main__":`, because it is imported again.
        states: what it is given.
        settings: what it is configured with, by Kafka's keys; as far as JSON can carry them.
        hash_seeds: one process is started for each.
        timeout_seconds: for each process.

    Raises:
        AssertionError: two answers differ, one is not a `TaskAssignment`, or a process failed or took too long.
        ConfigException: the assignor is no such class, a setting, a hash seed or the time is wrong, or there is nothing to
            compare.
    """
    where = _whereabouts(assignor)
    name = shown(assignor)
    if _CHILD in os.environ:
        raise ConfigException(
            f"The module of {name} calls assert_same_in_every_process when it is imported. "
            "Put the call into a test, or behind if __name__ == '__main__':."
        )
    timeout_seconds = number_from_0("timeout_seconds", timeout_seconds)
    seeds = listed_values("hash_seeds", hash_seeds, "ints", ConfigException)
    for seed in seeds:
        whole_number("hash seed", seed, 0, 2 * INT32_MAX + 1)
    documents = [state_to_json(state) for state in listed_values("states", states, "states", ConfigException)]
    if not seeds or not documents:
        raise ConfigException(f"There are no {'states' if seeds else 'hash_seeds'}, so nothing would be compared.")
    if not isinstance(settings, Mapping | None):
        raise ConfigException(f"The settings ({shown(settings)}) must be a mapping from keys to values.")
    expected = _answers(assignor, documents, settings or {})
    try:
        path = [entry for entry in sys.path if isinstance(entry, str)]  # Python looks at no others
        request = json.dumps({**where, "path": path, "settings": dict(settings or {}), "states": documents})
    except TypeError as error:
        raise ConfigException(
            f"The settings ({shown(HidingSettings(settings or {}))}) must be values that JSON can carry: {error}."
        ) from error
    for seed in seeds:
        there = _answers_of_process(name, request, seed, timeout_seconds)
        for number, (one, other) in enumerate(zip(expected, there, strict=True)):
            assert_same(one, other, f"A process with PYTHONHASHSEED={seed}, for state number {number},")


def _answers_of_process(assignor: str, request: str, seed: int, timeout_seconds: float) -> list[list[dict[str, Any]]]:
    process = f"The process with PYTHONHASHSEED={seed} for {assignor}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"from {__name__} import answer_request; answer_request()"],
            input=request,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=min(timeout_seconds, _LONGEST_SECONDS),
            env={**os.environ, "PYTHONHASHSEED": str(seed), _CHILD: "1"},
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(
            f"{process} was not done after {timeout_seconds:g} seconds. Maybe it never ends; else give more timeout_seconds."
        ) from None
    if done.returncode or not done.stdout:
        ended = f"by signal {-done.returncode}" if done.returncode < 0 else f"with exit code {done.returncode}"
        # An error of Python says all of it; who is killed, say for want of memory, says nothing.
        how = "" if done.returncode == 1 else f"It ended {ended}, without an answer.\n"
        raise AssertionError(f"{process} failed:\n{done.stderr}{how}")
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answers


def _whereabouts(assignor: object) -> dict[str, str | None]:
    """Where another process finds the class.

    Raises:
        ConfigException: nowhere.
    """
    if not (isinstance(assignor, type) and issubclass(assignor, TaskAssignor)):
        raise ConfigException(f"The assignor ({shown(assignor)}) must be a class derived from TaskAssignor.")
    try:
        file = inspect.getsourcefile(assignor)
    except (OSError, TypeError):
        file = None
    module, is_main = assignor.__module__, assignor.__module__ == "__main__"
    if is_main:
        # `python -m package.module` knows the module's name; a script has none.
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = "" if spec is None else spec.name
    if "<locals>" in assignor.__qualname__ or (is_main and not module and file is None):
        raise ConfigException(_not_found(shown(assignor)))
    return {"module": module, "name": assignor.__qualname__, "file": file}


def _not_found(name: str) -> str:
    return f"The class {name} must be at the top level of a module, so that another process can import it."


def _answers(
    assignor: type[TaskAssignor], documents: Iterable[dict[str, Any]], settings: Mapping[str, object]
) -> list[list[dict[str, Any]]]:
    config = StreamsConfig({**settings, "task.assignor.class": assignor})
    return [answer_to_json(answer_of(config.task_assignor, state_from_json(document))) for document in documents]


def _load(module: str, name: str, file: str | None) -> type[TaskAssignor]:
    """The class; from its file where its module's name does not lead there, as with test files and scripts.

    Raises:
        ConfigException: the module has no such class.
        ImportError: there is no such module.
    """
    found: Any = importlib.import_module(module) if _leads_to(module, file) else _module_of(file)
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise ConfigException(_not_found(f"{module or file}.{name}")) from None
    assignor: type[TaskAssignor] = found
    return assignor


def _leads_to(module: str, file: str | None) -> bool:
    """Whether that is the module's name here; another folder may have one of the same name."""
    try:
        spec = importlib.util.find_spec(module) if module else None
    except ImportError:
        spec = None
    return spec is not None and (file is None or Path(spec.origin or "").resolve() == Path(file).resolve())


def _module_of(file: str | None) -> Any:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file) if file else None
    if spec is None or spec.loader is None:
        raise ImportError(f"There is no module in the file {file}.")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def answer_request() -> None:
    """What the started process does: answers on standard output what it is asked on standard input."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    # An assignor may print what it likes, and so may what it calls in other languages.
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        try:
            assignor = _load(request["module"], request["name"], request["file"])
        except ConfigException as error:
            sys.exit(str(error))
        json.dump(_answers(assignor, request["states"], request["settings"]), answer)
