"""The list of deviations is complete in itself: every entry is pinned by a test that exists, and documented."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.deviations import DEVIATIONS, Deviation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda deviation: deviation.name)
def test_each_deviation_is_pinned_and_documented(deviation: Deviation) -> None:
    """The test that `pinned_by` names exists, and docs/deviations.md has the name as a heading."""
    path, _, name = deviation.pinned_by.partition("::")
    functions = {
        node.name for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
    }
    headings = [
        line.lstrip("# ")
        for line in (ROOT / "docs/deviations.md").read_text("utf-8").splitlines()
        if line.startswith("#")
    ]

    assert name in functions
    assert headings.count(deviation.name) == 1


def test_names_are_distinct() -> None:
    """A name means one deviation."""
    assert len({deviation.name for deviation in DEVIATIONS}) == len(DEVIATIONS)
