"""docs/reference-settings.md says of every setting what the code says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from task_assignor.sdk import REQUIRED, ConfigKey, find_assignor_class, registered_assignors
from task_assignor.sdk.assignor_classes import DEFAULT_ASSIGNOR, JAVA_ASSIGNORS
from task_assignor.sdk.config_def import expectation
from task_assignor.sdk.config_keys import KNOWN_KEYS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-settings.md"


def limit(text: str) -> str:
    return text.replace(f"{2**31 - 1}", "2^31 - 1").replace(f"{2**63 - 1}", "2^63 - 1").replace(f"{-(2**31)}", "-2^31")


def default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "must be set"
    if key.default is None or key.default in ((), ""):
        return "not set"
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


def table(keys: Iterable[ConfigKey]) -> list[str]:
    return [
        f"| `{key.name}` | {limit(expectation(key))} | {default(key)} | {key.doc} |"
        for key in sorted(keys, key=lambda key: key.name)
    ]


def section(heading: str) -> list[str]:
    """The rows of the first table under a heading."""
    lines = REFERENCE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| ---"))
    return [
        line
        for number, line in enumerate(lines)
        if number > start and line.startswith("| ") and all(other.startswith("| ") for other in lines[start:number])
    ]


def test_the_table_of_known_settings_is_that_of_the_code() -> None:
    tag = next(row for row in section("Known settings") if "client.tag." in row)
    assert "at most 5" in tag
    assert table(KNOWN_KEYS.values()) == [row for row in section("Known settings") if row != tag]


@pytest.mark.parametrize("name", sorted(registered_assignors()))
def test_the_settings_of_the_built_in_assignors_are_those_that_they_declare(name: str) -> None:
    assignor = find_assignor_class(name)
    rows = [row for row in section("Settings of the built-in assignors") if row.startswith(f"| {name} |")]
    assert [f"| {name} {row}" for row in table(assignor.config_keys)] == rows


def test_java_names_and_the_default_are_those_of_the_code() -> None:
    assert [f"| `{java}` | `{name}` |" for java, name in JAVA_ASSIGNORS.items()] == section("Kafka's class names")
    assert f"The default is `{DEFAULT_ASSIGNOR}`" in REFERENCE.read_text(encoding="utf-8")
