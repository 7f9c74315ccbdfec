"""The reference pages name what is public, all of it and nothing else, and every code; what they say of it is true."""

from __future__ import annotations

import ast
import builtins
import enum
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import task_assignor
from task_assignor.sdk import (
    AssignmentError,
    KafkaStreamsAssignment,
    StreamsException,
    TaskAssignment,
    registered_assignors,
)
from task_assignor.testing import a_process_id, random_assignment, random_states
from task_assignor.utils import Goal, MoveKind, SkipReason
from task_assignor.validation import Severity, ViolationKind, report_violations

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("reference-python.md", "reference-runtime.md")
CODES = "reference-codes.md"
# The command line (its reference is docs/cli.md), the demo, and rooms without public names: `utils` is their public face.
NOT_TO_IMPORT = {"cli", "demo", "engine", "kafka_order"}
# Rooms in the rooms, with names of their own.
INNER_ROOMS = {"task_assignor.group.consumers", "task_assignor.group.wire", "task_assignor.kafka.topics"}
NEEDS = {
    "task_assignor.kafka": "kafka",
    "task_assignor.kafka.topics": "confluent_kafka",
    "task_assignor.runtime": "pyarrow",
    "task_assignor.spark": "pyspark",
    "task_assignor.testing": "hypothesis",
}
# Words in code quotes that are no names of ours: values, and what a task id is like.
WORDS = {
    "none",
    "min_traffic",
    "balance_subtopology",
    "i_0",
    "i_1",
    "i_p",
    "help",
    "testing",
    "runtime",
    "spark",
    "jre",
    "otel",
    "kafka",
}
WORDS |= {"range", "roundrobin", "copartitioned"}
WORDS |= {"JAVA_HOME", "PYTHONHASHSEED", "TASK_WITHOUT_ACTIVE"}


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """Heading of the second level -> what is under it."""
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rooms_of(heading: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", heading)


def room(name: str) -> object:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return importlib.import_module(name)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of all rows whose first cell is code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def entries(text: str) -> list[tuple[str, str | None]]:
    """Name and arguments, as in the first cell; None: no arguments are said."""
    found = []
    for first, *_ in rows(text):
        match = re.fullmatch(r"`(\w+)(?:\((.*)\))?`", first)
        assert match, f"not a name with its arguments: {first}"
        found.append((match[1], match[2]))
    return found


SECTIONS = {heading: text for name in NAMES for heading, text in sections(page(name)).items()}


def public(heading: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in rooms_of(heading):
        module = room(name)
        found |= {each: getattr(module, each) for each in module.__all__}  # type: ignore[attr-defined]
    return found


def test_every_room_has_a_section() -> None:
    rooms = {f"task_assignor.{each.name}" for each in pkgutil.iter_modules(task_assignor.__path__) if each.ispkg}
    rooms -= {f"task_assignor.{name}" for name in NOT_TO_IMPORT}
    assert {name for heading in SECTIONS for name in rooms_of(heading)} == rooms | INNER_ROOMS | {"task_assignor"}


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_names_all_that_is_public_and_nothing_else(heading: str) -> None:
    assert sorted(name for name, _ in entries(SECTIONS[heading])) == sorted(public(heading))


@pytest.mark.parametrize("heading", SECTIONS)
def test_arguments_are_those_of_the_code(heading: str) -> None:
    objects = public(heading)
    for name, arguments in entries(SECTIONS[heading]):
        if arguments is not None:
            check_arguments(name, arguments, inspect.signature(objects[name]))  # type: ignore[arg-type]


def check_arguments(name: str, text: str, signature: inspect.Signature) -> None:
    is_whole = not text.endswith("...") or text.endswith("=...")
    text = text if is_whole else text.removesuffix("...").rstrip(", ").removesuffix("*").rstrip(", ")
    (function,) = ast.parse(f"def f({text}): pass").body
    assert isinstance(function, ast.FunctionDef)
    said = function.args
    kinds = inspect.Parameter
    positional = [each.arg for each in said.args]
    assert [each for each in signature.parameters.values() if each.name in positional] == [
        signature.parameters[each] for each in positional
    ], f"{name}: the order of the arguments"
    shown: dict[str, object] = dict.fromkeys(positional, kinds.POSITIONAL_OR_KEYWORD)
    shown |= {each.arg: kinds.KEYWORD_ONLY for each in said.kwonlyargs}
    if said.kwarg is not None:
        shown[said.kwarg.arg] = kinds.VAR_KEYWORD
    for argument, kind in shown.items():
        assert signature.parameters[argument].kind is kind, f"{name}: {argument}"
    if is_whole:
        assert set(shown) == set(signature.parameters), name
    else:
        assert set(shown) < set(signature.parameters), f"{name} has no more arguments"
    without = [None] * (len(positional) - len(said.defaults))
    defaults = dict(zip(positional, [*without, *said.defaults], strict=True))
    defaults |= {each.arg: value for each, value in zip(said.kwonlyargs, said.kw_defaults, strict=True)}
    for argument, value in defaults.items():
        real = signature.parameters[argument].default
        assert (value is None) == (real is inspect.Parameter.empty), f"{name}: {argument}"
        if value is not None and ast.unparse(value) != "...":
            assert ast.unparse(value) == repr(real), f"{name}: {argument}"


def test_other_names_in_the_pages_exist() -> None:
    """Attributes, methods and arguments that sentences name; what stands in a column of sources is Java's."""
    objects: dict[str, object] = {}
    for heading in SECTIONS:
        objects |= public(heading)
    words = set(objects) | set(dir(builtins)) | set(registered_assignors()) | WORDS
    for value in objects.values():
        words |= set(dir(value)) if isinstance(value, type) else set()
        if callable(value) and not (isinstance(value, type) and issubclass(value, enum.Enum)):
            try:
                words |= set(inspect.signature(value).parameters)
            except ValueError:
                assert isinstance(value, type)
                assert issubclass(value, Exception)
    unknown = []
    for text in map(page, (*NAMES, CODES)):
        has_source = False
        for line in text.splitlines():
            if line.startswith("| name |"):
                has_source = line.endswith("| source |")
            cells = line.split(" | ")
            said = cells[:2] if line.startswith("| ") and has_source else cells
            for code in re.findall(r"`([^`]+)`", " | ".join(said)):
                match = re.fullmatch(r"([A-Za-z_]\w*)((?:\.\w+)*)(?:\(.*\))?", code)
                if match and not is_known(match[1], match[2], objects, words):
                    unknown.append(code)
    assert unknown == []


def is_known(first: str, rest: str, objects: dict[str, object], words: set[str]) -> bool:
    if first == "task_assignor":
        return importlib.util.find_spec(first + rest) is not None
    if rest and first not in objects:
        # A setting, or a name of somebody else.
        return first.islower()
    value = objects.get(first)
    for attribute in rest.split(".")[1:]:
        if not hasattr(value, attribute):
            return False
        value = getattr(value, attribute)
    return first in words


def test_exceptions_are_of_one_family() -> None:
    for heading in SECTIONS:
        if rooms_of(heading) != ["task_assignor.testing"]:
            for value in public(heading).values():
                if isinstance(value, type) and issubclass(value, Exception):
                    assert issubclass(value, StreamsException), value


@pytest.mark.parametrize("codes", [ViolationKind, AssignmentError, SkipReason, Goal, MoveKind])
def test_all_codes_are_there_in_order(codes: type[enum.Enum]) -> None:
    (text,) = (text for heading, text in sections(page(CODES)).items() if f"`{codes.__name__}`" in heading)
    assert [name for name, _ in entries(text)] == [member.name for member in codes]
    assert all(all(cells) for cells in rows(text))


@pytest.mark.parametrize("codes", [ViolationKind, AssignmentError, SkipReason, Goal, MoveKind, Severity])
def test_help_explains_every_code(codes: type[enum.Enum]) -> None:
    explained = re.findall(r"^    (\w+): \S", inspect.getdoc(codes) or "", re.MULTILINE)
    assert explained == [member.name for member in codes]


def test_severities_and_what_kafka_says_are_as_in_the_table() -> None:
    (text,) = (text for heading, text in sections(page(CODES)).items() if "`ViolationKind`" in heading)
    table = {cells[0].strip("`"): cells for cells in rows(text)}
    for name, cells in table.items():
        assert (cells[3] == "says so") == (name in AssignmentError.__members__)
        assert cells[3] == "says so" or cells[3].startswith("not checked")

    said: dict[str, set[str]] = {name: set() for name in table}
    for state in random_states(924, 400):
        wrong = random_assignment(state, 1)
        # All twice, and somebody that nobody knows.
        worse = TaskAssignment([*wrong, *wrong, KafkaStreamsAssignment.of(a_process_id(0))])
        for answer in (wrong, worse, None):
            report = report_violations(state, answer)  # type: ignore[arg-type]
            for violation in report.violations:
                said[violation.kind.name].add(violation.severity.value)
            checked = {kind.name for kind in report.counts} & set(AssignmentError.__members__)
            if report.kafka_error is not None:
                assert (report.kafka_error is AssignmentError.NONE) == (not checked)
                assert checked == set() or report.kafka_error.name in checked
    assert {name: ", ".join(sorted(severities)) for name, severities in said.items()} == {
        name: cells[1] for name, cells in table.items()
    }


@pytest.mark.parametrize("name", [*NAMES, CODES])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page(name)):
        assert (DOCS / target).is_file(), target


def test_all_options_of_the_runtime_are_there_with_their_defaults() -> None:
    options = pytest.importorskip("task_assignor.runtime").RuntimeOptions
    table = sections(page("reference-settings.md"))["Options of the runtime"]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.+) \|$", table, flags=re.MULTILINE)
    arguments = inspect.signature(options).parameters.values()
    assert [(name, default) for name, default, _ in rows] == [(one.name, repr(one.default)) for one in arguments]
