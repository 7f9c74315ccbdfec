"""What the room needs of other packages is what pip is told, and is named where it is not there."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from task_assignor.runtime import packages
from task_assignor.sdk import MissingExtraException

PROJECT = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_it_needs_what_pip_is_told() -> None:
    listed = [*PROJECT["optional-dependencies"]["runtime"], *PROJECT["dependencies"]]
    oldest = {name: least for name, _, least in (one.partition(">=") for one in listed)}
    # The solver and what people see are not for clients.
    assert {name: oldest[name] for name in oldest.keys() - {"ortools", "rich", "typer"}} == packages.NEEDED


@pytest.mark.parametrize("package", sorted(packages.NEEDED))
@pytest.mark.parametrize("found", ["0", "0.9.1rc1", "0.20.9"])
def test_one_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, package: str, found: str) -> None:
    """With an older msgspec all went well until a file was damaged: its errors were no ValueErrors then."""
    oldest = packages.NEEDED[package]
    monkeypatch.setattr(packages, "version", lambda name: found if name == package else version(name))
    with pytest.raises(
        MissingExtraException, match=rf"needs the package '{package}>={oldest}', but {found} is installed"
    ):
        packages.check_packages()


def test_one_without_a_version_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(packages, "version", unknown)
    packages.check_packages()


@pytest.mark.parametrize("found", ["18.0.0", "18.0.1.dev7+g1", "18.1", "100"])
def test_versions_compare_as_numbers(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(packages, "version", lambda name: found if name == "pyarrow" else version(name))
    packages.check_packages()
