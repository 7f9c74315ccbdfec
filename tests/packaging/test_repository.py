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


def test_no_module_needs_a_table_of_contents(committed: list[Path]) -> None:
    """Neither ours nor a test's: a file of more lines is two files."""
    modules = [path for path in committed if path.suffix in (".py", ".java")]
    assert [path.name for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > 600] == []


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "src/task_assignor/engine/README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links_of(document: Path) -> list[tuple[str, str]]:
    """(path, anchor) of its relative links."""
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", document.read_text(encoding="utf-8"))
    return [(path, anchor) for path, anchor in links if "://" not in path and not path.startswith("mailto:")]


def anchors_of(document: Path) -> set[str]:
    """Its headings, as links name them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_relative_link_of_the_documents_leads_somewhere() -> None:
    broken = []
    for document in documents():
        for path, anchor in links_of(document):
            target = document.parent / path if path else document
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                broken.append(f"{document.relative_to(ROOT)}: {path}#{anchor}")
    assert broken == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {(ROOT / path).resolve() for path, _ in links_of(ROOT / "README.md")}
    assert [page.name for page in sorted((ROOT / "docs").glob("*.md")) if page.resolve() not in linked] == []


def test_every_module_that_the_architecture_names_exists() -> None:
    """Paths below the package or the checkout."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src/task_assignor"
    paths = re.findall(r"`([\w*/]+\.(?:py|java))`", text)
    assert len(paths) > 30
    assert [path for path in paths if not any([*root.glob(path)] for root in (package, ROOT))] == []


def test_the_architecture_names_every_module_of_the_runtime() -> None:
    """Each in its room, in the order in which they may import."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split("### Inside the runtime")[1].split("\n## ")[0]
    room, named = "", set()
    for first, second in re.findall(r"^\|(.*?)\|(.*?)\|", table, re.MULTILINE):
        room = "" if "—" in first else "".join(re.findall(r"`([\w/]+)`", first)) or room
        named |= {f"{room}/{module}.py".lstrip("/") for module in re.findall(r"`(\w+)`", second)}
    runtime = ROOT / "src/task_assignor/runtime"
    assert named == {path.relative_to(runtime).as_posix() for path in runtime.rglob("[!_]*.py")}


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
