"""What may be committed, and whether the README and the docs tell the truth about it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Folders of the machines on which this was written, and hosts of package registries (which belong into a user's own
# settings). Put together here so that this file does not hold what it looks for.
FOLDERS = re.compile(r"(?:^|[^\w.\-])/(?:" + "|".join(["work", "farm", "root", r"home/[a-z]+", "tmp/" + "team"]) + ")/")
HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("repo", "maven", "apache", "org"),
            ("repo1", "maven", "org"),
            ("registry", "npmjs", "org"),
            ("proxy", "golang", "org"),
        )
    )
)


@pytest.fixture(scope="module")
def committed() -> list[Path]:
    """Every file that git knows."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
        if pattern.search(text):
            found += [
                f"{path.relative_to(ROOT)}:{number}"
                for number, line in enumerate(text.splitlines(), 1)
                if pattern.search(line)
            ]
    return found


def test_no_committed_line_names_a_folder_of_somebodys_machine(committed: list[Path]) -> None:
    assert lines_with(FOLDERS, committed) == []


def test_no_committed_line_names_the_host_of_a_registry(committed: list[Path]) -> None:
    assert lines_with(HOSTS, committed) == []


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists()
    ]
    assert broken == []


def test_every_make_target_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named - targets == set()


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of the README are one program, in an empty folder."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "README.md", "exec"), {"__name__": "readme"})
