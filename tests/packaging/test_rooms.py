"""The rooms as a user meets them: sorted public names, and a clear error where an extra is missing."""

from __future__ import annotations

import ast
import graphlib
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import task_assignor

ROOMS = sorted(module.name for module in pkgutil.iter_modules(task_assignor.__path__) if module.ispkg)

# Room -> the extra that brings what the room needs, and the packages of that extra.
EXTRAS = {
    "runtime": ("runtime", ["cloudpickle", "msgspec", "polars", "pyarrow"]),
    "spark": ("spark", ["pyspark"]),
    "testing": ("testing", ["hypothesis"]),
}

USE_ROOM_WITHOUT = """
import importlib, sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
from task_assignor.sdk import MissingExtraException
try:
    room = importlib.import_module("task_assignor.{room}")
    for name in room.__all__:  # a room may put the error off until a name that needs the extra is asked for
        getattr(room, name)
except MissingExtraException as problem:
    print(problem.extra)
    print(problem)
"""


def room_order(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then functions: the order that the linter keeps."""
    kind = 0 if name.isupper() else 1 if name[:1].isupper() else 2
    return kind, name


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_lists_its_public_names_sorted_and_has_them(room: str) -> None:
    module = importlib.import_module(f"task_assignor.{room}")
    assert sorted(set(module.__all__), key=room_order) == list(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_lives_in_it(room: str) -> None:
    assert importlib.import_module(f"task_assignor.{room}").__doc__


def test_the_front_door_has_the_public_names_of_the_sdk() -> None:
    sdk = importlib.import_module("task_assignor.sdk")
    assert {"__version__", *sdk.__all__} == set(task_assignor.__all__)
    assert all(getattr(task_assignor, name) is getattr(sdk, name) for name in sdk.__all__)


RUN_WITHOUT = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cloudpickle", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
from task_assignor.cli import main
sys.argv[1:] = ["run", sys.argv[1]]
main()
"""


def use_room_without(room: str, hidden: set[str]) -> str:
    """What is printed by a fresh interpreter that uses the room's names and cannot import what is hidden."""
    code = USE_ROOM_WITHOUT.format(hidden=hidden, room=room)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_if_empty(room: str) -> None:
    if not importlib.import_module(f"task_assignor.{room}").__all__:
        pytest.skip(f"task_assignor.{room} has no public names yet")


@pytest.mark.parametrize("room", sorted(EXTRAS))
def test_a_room_whose_extra_is_missing_names_the_extra(room: str) -> None:
    skip_if_empty(room)
    extra, packages = EXTRAS[room]
    printed = use_room_without(room, set(packages))
    assert printed.splitlines()[:1] == [extra]
    assert f"pip install 'task-assignor[{extra}]'" in printed


def test_an_application_that_is_run_without_the_extra_names_it(tmp_path: Path) -> None:
    """Its file may ask for pyarrow first: there was a traceback, and no word of an extra."""
    app = tmp_path / "app.py"
    app.write_text("import pyarrow\n", encoding="utf-8")
    command = [sys.executable, "-c", RUN_WITHOUT, str(app)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "pip install 'task-assignor[runtime]'" in done.stderr


@pytest.mark.parametrize(("room", "package"), [(room, name) for room in sorted(EXTRAS) for name in EXTRAS[room][1]])
def test_a_room_without_one_package_of_its_extra_works_or_names_the_extra(room: str, package: str) -> None:
    """A package that only some functions of the room need may be asked for when they are called."""
    skip_if_empty(room)
    assert use_room_without(room, {package}).splitlines()[:1] in ([], [EXTRAS[room][0]])


def test_no_room_reaches_into_what_is_private_to_another() -> None:
    """Modules and names that begin with an underscore are their room's own."""
    package = Path(task_assignor.__path__[0])
    wrong = []
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom | ast.Import):
                continue
            names = [name.name for name in node.names]
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            imported = [f"{module}.{name}".strip(".").split(".") for name in names]
            wrong += [
                f"{path.relative_to(package)}: {'.'.join(parts)}"
                for parts in imported
                if parts[0] == "task_assignor"
                and parts[1:2] != [room]
                and any(part.startswith("_") and not part.startswith("__") for part in parts)
            ]
    assert wrong == []


def test_built_in_assignors_use_the_public_names_of_the_utilities() -> None:
    """Nothing that an author of an own assignor does not have."""
    utils = importlib.import_module("task_assignor.utils")
    package = Path(task_assignor.__path__[0])
    found, wrong = 0, []
    for path in sorted((package / "builtin_assignors").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("task_assignor."):
                continue
            room = (node.module or "").split(".")[1]
            names = {name.name for name in node.names}
            found += room == "utils"
            is_public = node.module == "task_assignor.utils" and names <= set(utils.__all__)
            if room not in {"sdk", "builtin_assignors"} and not is_public:
                wrong.append(f"{path.name}: {node.module} {sorted(names)}")
    assert wrong == []
    assert found >= 5


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Whatever the import is for, types too: who reads one file of a circle has to read them all."""
    package = Path(task_assignor.__path__[0])
    modules = {
        ".".join(("task_assignor", *path.relative_to(package).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    imports: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = imports[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {
                    one if one in modules else node.module for one in (f"{node.module}.{n.name}" for n in node.names)
                }
            elif isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
        # A room's face hands on names of its modules.
        found &= modules.keys() - {name} - {face for face in modules if modules[face].name == "__init__.py"}

    assert sum(map(len, imports.values())) > 500
    graphlib.TopologicalSorter(imports).prepare()
