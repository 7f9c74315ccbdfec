"""What is built and installed: the wheel's files, the entry points, the bounds of the dependencies."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from task_assignor.bridge.jar import JAR_NAME
from task_assignor.sdk import TaskAssignor

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("distribution")  # it is built once for all of them
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASSIGNORS: dict[str, str] = PROJECT["entry-points"]["task_assignor.assignors"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel_files(built: Path) -> set[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel_files: set[str]) -> None:
    package = ROOT / "src" / "task_assignor"
    expected = {
        f"task_assignor/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected == {name for name in wheel_files if ".dist-info/" not in name}


def test_the_wheel_says_that_it_is_typed_and_brings_the_schemas_and_the_licence(wheel_files: set[str]) -> None:
    assert "task_assignor/py.typed" in wheel_files
    assert any(name.startswith("task_assignor/") and name.endswith(".schema.json") for name in wheel_files)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_files)


def test_the_bridge_comes_as_a_jar_in_the_wheel_and_with_its_source_in_the_source_distribution(
    built: Path, wheel_files: set[str]
) -> None:
    assert f"task_assignor/bridge/{JAR_NAME}" in wheel_files
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "java").rglob("*.java")}
    assert sources
    assert sources | {"tests/bridge/jar.py", f"src/task_assignor/bridge/{JAR_NAME}"} <= files


def test_the_installed_assignors_are_those_of_pyproject() -> None:
    """Fails where the environment is older than pyproject.toml."""
    found = importlib.metadata.entry_points(group="task_assignor.assignors")
    ours = {point.name: point.value for point in found if point.dist is not None and point.dist.name == "task-assignor"}
    assert ours == ASSIGNORS


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_registered_assignor_is_one_and_can_be_made_without_arguments(name: str) -> None:
    (point,) = (p for p in importlib.metadata.entry_points(group="task_assignor.assignors") if p.name == name)
    assert isinstance(point.load()(), TaskAssignor)


def test_the_command_resolves() -> None:
    (point,) = (p for p in importlib.metadata.entry_points(group="console_scripts") if p.name == "task-assignor")
    assert callable(point.load())


TESTED_EXTRAS = ("jre", "kafka", "object-store", "otel", "rocksdb", "runtime", "spark", "testing")


def test_the_lower_bounds_that_are_tested_are_those_of_pyproject() -> None:
    extras = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *(one for name in TESTED_EXTRAS for one in extras[name])]
    requirements = [one for one in listed if not one.startswith("task-assignor[")]
    lowest = {}
    for requirement in requirements:
        match = re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z]+\])?>=([0-9.]+)(,<[0-9.]+)?", requirement)
        assert match, f"{requirement}: expected name>=version"
        lowest[match[1]] = match[2]

    lines = (ROOT / "tests" / "packaging" / "lower-bounds.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))

    assert sorted(lowest) == sorted(pinned)
    assert [name for name in lowest if not f"{pinned[name]}.".startswith(f"{lowest[name]}.")] == []
