"""What a type checker tells the author of an assignor: nothing where it is right, the mistake where it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

CASES = Path(__file__).parent / "cases"
pytestmark = pytest.mark.xdist_group("subclasses")  # mypy runs once for all of them


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, int, str]]:
    """(file, line, code) of everything that `mypy --strict` reports for the cases, with no settings of ours."""
    folder = tmp_path_factory.mktemp("user")
    arguments = ["--strict", "--config-file=", "--no-error-summary", f"--cache-dir={folder}"]
    out, err, _status = api.run([*arguments, *(str(path) for path in sorted(CASES.glob("*.py")))])
    assert err == ""
    reported = re.findall(r"^(?:.*[/\\])?(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", out, re.MULTILINE)
    assert len(reported) == out.count(": error: "), out
    return {(file, int(line), code) for file, line, code in reported}


def expected_in(file: str) -> set[tuple[str, int, str]]:
    lines = (CASES / file).read_text(encoding="utf-8").splitlines()
    marked = ((number, re.search(r"# E: ([a-z-]+)$", line)) for number, line in enumerate(lines, 1))
    return {(file, number, match[1]) for number, match in marked if match}


@pytest.mark.parametrize("file", ["correct.py", "wrong.py"])
def test_mypy_finds_exactly_the_marked_mistakes(file: str, findings: set[tuple[str, int, str]]) -> None:
    assert expected_in(file) == {finding for finding in findings if finding[0] == file}


def test_the_wrong_case_has_mistakes_and_the_correct_one_has_none() -> None:
    assert expected_in("correct.py") == set()
    assert len(expected_in("wrong.py")) >= 9
