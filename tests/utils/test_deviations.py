"""The list of deviations is what differs, no more and no less; every entry is pinned and documented, and all of docs/ is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import attrs
import pytest

from tests.deviations import DEVIATIONS, Deviation, Difference, explanations
from tests.differences import differences_of
from tests.vectors import Vector, vectors

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/deviations.md"
pytestmark = pytest.mark.xdist_group("deviations")  # the vectors are answered once for all of them
FILES = (
    "default_standby_load",
    "default_standby_tags",
    "fallback_prior",
    "ha",
    "ha_racks",
    "legacy_sticky",
    "optimize_active",
    "optimize_standby",
    "sticky",
)


@attrs.frozen
class _Found:
    """A difference to a recorded answer."""

    vector: Vector
    difference: Difference


@cache
def _differences(name: str) -> tuple[_Found, ...]:
    return tuple(_Found(vector, one) for vector in vectors(name) for one in differences_of(vector))


@pytest.mark.parametrize("name", FILES)
def test_every_difference_to_a_recorded_answer_is_explained(name: str) -> None:
    """What no entry explains is a bug."""
    for found in _differences(name):
        assert explanations(found.vector, found.difference), (found.vector.id, found.difference)


@pytest.mark.parametrize("deviation", [one for one in DEVIATIONS if not one.only_in_jvm], ids=lambda one: one.name)
def test_every_entry_explains_what_no_other_does(deviation: Deviation) -> None:
    """An entry that no vector needs any more is out of date. (`tests/jvm` has those that no vector ever needed.)"""
    assert any(
        explanations(found.vector, found.difference) == [deviation]
        for name in FILES
        for found in _differences(name)
        if found.vector.json["operation"] in deviation.operations
    )


def _functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _documented() -> dict[str, list[str]]:
    """Heading -> the tests that it says pin it."""
    found: dict[str, list[str]] = {}
    text = DOCUMENT.read_text("utf-8")
    for section in text.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        pinned = body.split("\n## ")[0].split("Pinned by")[1:]
        found[heading] = [test.partition("`")[2].partition("`")[0] for test in pinned]
    return found


def test_every_documented_deviation_names_a_test_that_exists() -> None:
    """One test each, as pytest names it."""
    documented = _documented()
    assert len(documented) >= 20
    for heading, tests in documented.items():
        assert len(tests) == 1, heading
        path, _, name = tests[0].partition("::")
        assert name in _functions(path), heading


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda deviation: deviation.name)
def test_each_entry_is_documented_with_the_same_test(deviation: Deviation) -> None:
    """docs/deviations.md has the name as a heading, and the test that `pinned_by` names."""
    assert _documented()[deviation.name] == [deviation.pinned_by]


def test_names_are_distinct() -> None:
    """A name means one deviation."""
    assert len({deviation.name for deviation in DEVIATIONS}) == len(DEVIATIONS)
