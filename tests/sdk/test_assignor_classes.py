"""`task.assignor.class`: how a name leads to a class, and what is said when it does not."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    ConfigKey,
    StreamsConfig,
    TaskAssignment,
    TaskAssignor,
    find_assignor_class,
    registered_assignors,
)

OURS = """
from task_assignor.sdk import TaskAssignment, TaskAssignor

class Mine(TaskAssignor):
    def assign(self, application_state):
        return TaskAssignment([])

    class Inner(TaskAssignor):
        def assign(self, application_state):
            return TaskAssignment([])

instance = Mine()
text = "x"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes an importable module."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a distribution that registers assignors."""

    def install(name: str, entry_points: str) -> None:
        folder = tmp_path / f"site-{name}" / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[task_assignor.assignors]\n{entry_points}\n", encoding="utf-8")
        monkeypatch.syspath_prepend(folder.parent)

    return install


def refused(value: object) -> str:
    with pytest.raises(ConfigException) as caught:
        StreamsConfig({"task.assignor.class": value})
    (problem,) = caught.value.problems
    assert ("task.assignor.class", value) == (problem.key, problem.value)
    return str(caught.value)


def test_a_class_is_taken_as_it_is() -> None:
    assert find_assignor_class(StickyTaskAssignor) is StickyTaskAssignor


@pytest.mark.parametrize(
    "name",
    [
        "sticky",
        " sticky ",
        "task_assignor.builtin_assignors.StickyTaskAssignor",
        "task_assignor.builtin_assignors:StickyTaskAssignor",
        "org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor",
        "org.apache.kafka.streams.processor.internals.assignment.LegacyStickyTaskAssignor",
        "org.apache.kafka.streams.processor.internals.assignment.StickyTaskAssignor",
    ],
)
def test_all_names_of_the_sticky_assignor_lead_to_it(name: str) -> None:
    assert find_assignor_class(name) is StickyTaskAssignor
    assert StreamsConfig({"task.assignor.class": name}).task_assignor_class is StickyTaskAssignor


@pytest.mark.parametrize(
    ("java", "registered"),
    [("HighAvailabilityTaskAssignor", "high-availability"), ("FallbackPriorTaskAssignor", "fallback-prior")],
)
def test_kafkas_other_classes_lead_to_their_counterparts(java: str, registered: str) -> None:
    point = registered_assignors()[registered]
    name = f"org.apache.kafka.streams.processor.internals.assignment.{java}"
    assert find_assignor_class(name) is point.load()


def test_a_package_without_its_metadata_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a zip file, or where it was copied: "Registered are: none" was all, also of the default."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    with pytest.raises(
        ConfigException, match=r"Registered are: none\. .* its metadata .* is not there\. Maybe install it"
    ):
        StreamsConfig({}).task_assignor()
    path = "task_assignor.builtin_assignors.StickyTaskAssignor"
    assert StreamsConfig({"task.assignor.class": path}).task_assignor_class is StickyTaskAssignor


def test_kafkas_internal_setting_counts_only_where_the_public_one_is_not_set() -> None:
    fallback = find_assignor_class("fallback-prior")
    internal = {"internal.task.assignor.class": "fallback-prior"}
    assert StreamsConfig(internal).task_assignor_class is fallback
    assert StreamsConfig({**internal, "task.assignor.class": "sticky"}).task_assignor_class is StickyTaskAssignor
    with pytest.raises(ConfigException, match=r"The setting internal\.task\.assignor\.class \('x'\)"):
        StreamsConfig({"internal.task.assignor.class": "x"})


def test_a_plug_in_is_found_by_its_short_and_by_its_dotted_name(
    module: Callable[[str, str], None], plug_in: Callable[[str, str], None]
) -> None:
    module("theirs_module", OURS)
    plug_in("theirs", "theirs = theirs_module:Mine\ncom.example.Theirs = theirs_module:Mine.Inner")
    assert find_assignor_class("theirs").__qualname__ == "Mine"
    assert find_assignor_class("com.example.Theirs").__qualname__ == "Mine.Inner"
    assert {"theirs", "com.example.Theirs", "sticky"} <= set(registered_assignors())
    assert list(registered_assignors()) == sorted(registered_assignors())


def test_a_name_that_two_packages_register_must_be_written_out(plug_in: Callable[[str, str], None]) -> None:
    plug_in("one", "twice = one_module:A")
    plug_in("two", "twice = two_module:B")
    message = refused("twice")
    assert "Several packages register this name (one_module:A, two_module:B). Give the dotted path." in message
    assert "twice" not in registered_assignors()


def test_the_same_registration_found_twice_is_one(
    module: Callable[[str, str], None], plug_in: Callable[[str, str], None]
) -> None:
    module("theirs_module", OURS)
    plug_in("one", "same = theirs_module:Mine")
    plug_in("two", "same = theirs_module:Mine")
    assert find_assignor_class("same").__qualname__ == "Mine"


def test_a_broken_registration_says_where_it_leads(
    module: Callable[[str, str], None], plug_in: Callable[[str, str], None]
) -> None:
    module("theirs_module", "raise OSError('no disk')")
    plug_in("theirs", "theirs = theirs_module:Mine\ngone = no_such_module:Mine")
    assert "registered as theirs_module:Mine, but importing that failed with OSError: no disk" in refused("theirs")
    assert "No module named 'no_such_module'" in refused("gone")


def test_a_registration_that_needs_an_extra_says_how_to_get_it(
    module: Callable[[str, str], None], plug_in: Callable[[str, str], None]
) -> None:
    module(
        "theirs_module",
        "from task_assignor.sdk import MissingExtraException\nraise MissingExtraException('kafka', 'a.b', 'c')",
    )
    plug_in("theirs", "theirs = theirs_module:Mine")
    assert "pip install 'task-assignor[kafka]'" in refused("theirs")


@pytest.mark.parametrize(
    "name", ["ours_module.Mine", "ours_module:Mine", "ours_module.Mine.Inner", "ours_module:Mine.Inner"]
)
def test_a_dotted_path_leads_to_a_class(module: Callable[[str, str], None], name: str) -> None:
    module("ours_module", OURS)
    assert find_assignor_class(name).__qualname__ == name[len("ours_module.") :]


def test_a_dotted_path_leads_into_packages(module: Callable[[str, str], None]) -> None:
    module("ours_package.__init__", "")
    module("ours_package.inner", OURS)
    assert find_assignor_class("ours_package.inner.Mine").__module__ == "ours_package.inner"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ours_module.Yours", "ours_module was imported, but has no Yours."),
        ("ours_module.Mine.Other", "ours_module.Mine was imported, but has no Other."),
        ("ours_module:instance", "Give the class, not an object of it"),
        ("ours_module.text", "It is not a class."),
        ("ours_module", "Of a module of yours the class is needed too: ours_module.ClassName. Registered are: "),
        (
            "ours_module.py",
            "A file is none of them. Maybe its class: ours_module.ClassName, with its folder in PYTHONPATH.",
        ),
        (
            "./ours_module.py:Ours",
            "A file is none of them. Maybe its class: ours_module.Ours, with its folder in PYTHONPATH.",
        ),
        ("some/ours_module.py", "Maybe its class: some.ours_module.ClassName, with"),
        ("no_such_module.Mine", "There is no module no_such_module"),
        (
            "taskassignor.PythonTaskAssignor",
            "That is a class of the bridge, in Java: python.task.assignor.class says which",
        ),
        ("ours_module..Mine", "A dotted path has the form package.module.ClassName."),
        (".Mine", "A dotted path has the form"),
        ("ours module.Mine", "A dotted path has the form"),
        (
            "builtins.dict",
            "must be a subclass of task_assignor.sdk.TaskAssignor. Maybe write class dict(TaskAssignor).",
        ),
    ],
)
def test_dotted_paths_that_lead_nowhere(module: Callable[[str, str], None], name: str, expected: str) -> None:
    module("ours_module", OURS)
    assert expected in refused(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("1 / 0", "ZeroDivisionError: division by zero (ours_module.<module>, line 1)"),
        ("def", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise BaseException('a panic')", "BaseException: a panic"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(
    module: Callable[[str, str], None], text: str, expected: str
) -> None:
    module("ours_module", text)
    message = refused("ours_module.Mine")
    assert "Importing ours_module failed with" in message
    assert "Registered are" not in message
    assert expected in message


def test_a_module_that_imports_late_says_why_it_cannot(module: Callable[[str, str], None]) -> None:
    module(
        "ours_lazy",
        "def __getattr__(name):\n    if name == 'Mine': raise ImportError('needs more')\n    raise AttributeError",
    )
    assert "Importing ours_lazy.Mine failed with ImportError: needs more" in refused("ours_lazy.Mine")
    assert "ours_lazy was imported, but has no Yours" in refused("ours_lazy.Yours")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("stiky", "sticky"),
        ("Sticky", "sticky"),
        ("StickyTaskAssignor", "sticky"),
        ("HighAvailabilityTaskAssignor", "high-availability"),
        ("high_availability", "high-availability"),
        ("stream.join", "stream-join"),
        ("task_assignor.builtin_assignors.StickyAssignor", "sticky"),
    ],
)
def test_an_unknown_name_lists_the_registered_ones_and_the_nearest(name: str, near: str) -> None:
    message = refused(name)
    assert f"Maybe {near} is meant. Registered are: fallback-prior, " in message


def test_a_dotted_path_is_not_taken_for_a_name_that_is_a_bit_like_it(plug_in: Callable[[str, str], None]) -> None:
    plug_in("theirs", "not-an-assignor = theirs_module:Mine")
    message = refused("com.acme.MyAssignor")
    assert "Maybe not-an-assignor" not in message
    assert "Registered are: " in message


def test_an_unknown_class_of_kafka_lists_those_with_a_counterpart() -> None:
    message = refused("org.apache.kafka.streams.processor.internals.assignment.Nothing")
    assert "org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor" in message


@pytest.mark.parametrize("value", [3, True, [], b"sticky", ""])
def test_other_things_are_no_classes(value: object) -> None:
    assert "must be a TaskAssignor class, the dotted path of one, or a registered name" in refused(value)


class Complete(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment([])


class NeedsArgument(Complete):
    def __init__(self, limit: int) -> None:
        self.limit = limit


class NeedsKeyword(Complete):
    def __init__(self, *, limit: int) -> None:
        self.limit = limit


class HasDefaults(Complete):
    def __init__(self, limit: int = 3, *others: int, **more: int) -> None:
        self.limit = limit


class Abstract(Complete):
    @abstractmethod
    def cost(self) -> int: ...


class Later(Complete):
    async def assign(self, application_state: ApplicationState) -> TaskAssignment:  # type: ignore[override]
        return super().assign(application_state)


class Generates(Complete):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:  # type: ignore[misc]
        yield super().assign(application_state)


class NoMethod(Complete):
    assign = 3  # type: ignore[assignment]


class DeclaresOnce(Complete):
    config_keys = (ConfigKey(name=name, type="int", default=1) for name in ("own.a", "own.b"))  # type: ignore[assignment]


class NoAssignor:
    pass


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (NeedsArgument, "must be a class that can be made without arguments"),
        (NeedsKeyword, "must be a class that can be made without arguments"),
        (Abstract, "It does not implement: cost."),
        (Later, "Maybe write `def assign` in place of `async def assign`."),
        (Generates, "Maybe write `return` in it in place of `yield`."),
        (DeclaresOnce, "must be a class that declares its settings as ConfigKey objects"),
        (NoMethod, "Maybe write `def assign`."),
        (TaskAssignor, "It does not implement: assign."),
        (NoAssignor, "must be a subclass of task_assignor.sdk.TaskAssignor"),
        (Complete(), "Give the class, not an object of it: one is made for every rebalance."),
    ],
)
def test_classes_that_cannot_serve(wrong: object, expected: str) -> None:
    assert expected in refused(wrong)


def test_a_constructor_may_have_defaults() -> None:
    assert isinstance(StreamsConfig({"task.assignor.class": HasDefaults}).task_assignor(), HasDefaults)


def test_building_settings_imports_no_solver_no_engine_and_only_the_chosen_assignor() -> None:
    code = (
        "import sys\nfrom task_assignor.sdk import StreamsConfig\n"
        "StreamsConfig({'task.assignor.class': 'sticky', 'num.standby.replicas': 1}).task_assignor()\n"
        "print(sorted({'ortools', 'pyspark', 'polars', 'pyarrow', 'rich', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_both_names_of_the_setting_must_name_an_assignor() -> None:
    """The public one counts; nonsense in the internal one would be taken for something that does something."""
    both = {"task.assignor.class": "sticky", "internal.task.assignor.class": "nothing.like.it"}
    with pytest.raises(ConfigException) as caught:
        StreamsConfig(both)
    assert [problem.key for problem in caught.value.problems] == ["internal.task.assignor.class"]
    both["internal.task.assignor.class"] = "fallback-prior"
    assert StreamsConfig(both).task_assignor_class.__name__ == "StickyTaskAssignor"
