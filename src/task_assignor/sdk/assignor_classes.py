"""From the value of `task.assignor.class` to a class: registered names, Java names, dotted paths. No assignor is known here."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from task_assignor.sdk.assignor import TaskAssignor
from task_assignor.sdk.config_def import ConfigKey, ValueProblem, find_attribute
from task_assignor.sdk.errors import ConfigException, ConfigProblem, MissingExtraException
from task_assignor.sdk.text import failure, listed, nearest, own_place, shown

ENTRY_POINT_GROUP: Final = "task_assignor.assignors"
DEFAULT_ASSIGNOR: Final = "high-availability"

_STREAMS: Final = "org.apache.kafka.streams.processor"
JAVA_ASSIGNORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{_STREAMS}.assignment.assignors.StickyTaskAssignor": "sticky",
        f"{_STREAMS}.internals.assignment.FallbackPriorTaskAssignor": "fallback-prior",
        f"{_STREAMS}.internals.assignment.HighAvailabilityTaskAssignor": "high-availability",
        f"{_STREAMS}.internals.assignment.LegacyStickyTaskAssignor": "sticky",
        # Its name before Kafka 3.8.
        f"{_STREAMS}.internals.assignment.StickyTaskAssignor": "sticky",
    }
)
"""Kafka's class -> the name under which we have the like of it."""

_OF_BRIDGE: Final = "taskassignor."
"""The package of the classes that a Java application names in the same setting."""

# How alike what was written and what may be meant must be.
_SLIP, _DOTTED_SLIP = 0.6, 0.85
_MAYBE: Final = "Maybe "
_EXPECTED: Final = "a TaskAssignor class, the dotted path of one, or a registered name"
_NO_METADATA: Final = (
    " The package's own are not, since its metadata (the folder task_assignor-*.dist-info) is not there. Maybe install it with pip, "
    "or let what bundles programs take its metadata along; dotted paths can be used without."
)


def registered_assignors() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Name -> entry point of every assignor registered under `task_assignor.assignors`, sorted by name.

    None of them is imported: `load()` does that. A name that two packages register for different classes is left
    out here, and using it is an error.
    """
    return MappingProxyType({name: points[0] for name, points in registrations().items() if len(points) == 1})


def registrations() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Name -> the entry points of the different classes that are registered under it: several make it ambiguous."""
    by_name: dict[str, dict[str, importlib.metadata.EntryPoint]] = {}
    # One package can be found twice on sys.path; what it registers is then there twice and equal.
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        by_name.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: [by_name[name][value] for value in sorted(by_name[name])] for name in sorted(by_name)}


def assignors_with(key: str) -> list[str]:
    """The names of the registered assignors that declare a setting. All are imported; those that cannot be have none."""
    return [name for name, point in registered_assignors().items() if key in _declared_by(point)]


def _declared_by(point: importlib.metadata.EntryPoint) -> frozenset[str]:
    try:
        return frozenset(key.name for key in point.load().config_keys)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  (somebody else's package may be broken; that is no matter here)
        return frozenset()


def find_assignor_class(value: object) -> type[TaskAssignor]:
    """The class that `value` names, as in the setting `task.assignor.class`.

    Args:
        value: a class, a registered name, one of Kafka's Java names, or a dotted path.

    Raises:
        ConfigException: there is no such class, or it is not a usable `TaskAssignor`.

    Examples:
        >>> find_assignor_class("sticky").__name__
        'StickyTaskAssignor'
    """
    try:
        return load_assignor_class(value)
    except ValueProblem as problem:
        raise ConfigException.of(
            [ConfigProblem("task.assignor.class", value, problem.expected, problem.advice)]
        ) from problem


def load_assignor_class(value: object) -> type[TaskAssignor]:
    """As `find_assignor_class`, for callers that collect problems.

    Raises:
        ValueProblem: there is no such class, or it is not a usable `TaskAssignor`.
    """
    found = _find(value.strip()) if isinstance(value, str) else value
    return _checked(found)


def _find(name: str) -> object:
    points = registrations()
    registered = points.get(name) or points.get(JAVA_ASSIGNORS.get(name, ""))
    if registered is not None:
        if len(registered) > 1:
            values = listed(point.value for point in registered)
            raise ValueProblem(_EXPECTED, f"Several packages register this name ({values}). Give the dotted path.")
        return _load(registered[0])
    if file := re.fullmatch(r"(.*)\.py(?::(\w*))?", name):
        module = file[1].replace("/", ".").strip(".")
        advice = f"A file is none of them. Maybe its class: {module}.{file[2] or 'ClassName'}, with its folder in PYTHONPATH."
        expected = _EXPECTED
    elif "." in name or ":" in name:
        try:
            return find_attribute(name)
        except ValueProblem as problem:
            if problem.__cause__ is not None:
                # The module is there, but broken: no other name was meant.
                raise
            expected = _EXPECTED
            advice = f"{problem.advice} {_suggestion(name, points)}"
            if name.startswith("org.apache.kafka."):
                advice = f"Of Kafka's classes these have a counterpart here: {listed(JAVA_ASSIGNORS)}."
            elif name.startswith(_OF_BRIDGE):
                advice = (
                    "That is a class of the bridge, in Java: python.task.assignor.class says which assignor it asks. Registered "
                    f"are: {listed(points)}."
                )
    else:
        expected, advice = _EXPECTED, _suggestion(name, points)
        if name.isidentifier() and not advice.startswith(_MAYBE):
            advice = f"Of a module of yours the class is needed too: {name}.ClassName. {advice}"
    raise ValueProblem(expected, advice)


def _load(point: importlib.metadata.EntryPoint) -> object:
    try:
        return point.load()
    except MissingExtraException as error:
        raise ValueProblem("an assignor whose packages are installed", str(error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module runs whatever code it likes
        raise ValueProblem(
            "a class that can be imported",
            f"It is registered as {point.value}, but importing that failed with {failure(error)}{own_place(error)}.",
        ) from error


def _suggestion(name: str, points: Mapping[str, object]) -> str:
    # `StickyTaskAssignor`, `a.b.StickyAssignor` and `stiky` all mean `sticky`.
    word = re.split(r"[.:]", name)[-1]
    word = re.sub(r"(?<=.)(Task)?Assignor$", "", word)
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word)
    # A dotted path is a bit like many a name, but hardly ever meant as one.
    cutoff = _DOTTED_SLIP if re.search(r"[.:]", name) else _SLIP
    near = nearest(name, points, cutoff) or nearest(word, points, cutoff)
    maybe = f"{_MAYBE}{near} is meant. " if near else ""
    return f"{maybe}Registered are: {listed(points)}.{'' if DEFAULT_ASSIGNOR in points else _NO_METADATA}"


def _checked(found: object) -> type[TaskAssignor]:
    if not isinstance(found, type):
        advice = "Give the class, not an object of it: one is made for every rebalance."
        raise ValueProblem(_EXPECTED, advice if isinstance(found, TaskAssignor) else "It is not a class.")
    if not issubclass(found, TaskAssignor):
        raise ValueProblem(
            "a subclass of task_assignor.sdk.TaskAssignor", f"Maybe write class {found.__name__}(TaskAssignor)."
        )
    if inspect.isabstract(found):
        methods = listed(getattr(found, "__abstractmethods__", ()))
        raise ValueProblem("a class that can be made", f"It does not implement: {methods}.")
    for is_wrong, advice in (
        (inspect.iscoroutinefunction, "Maybe write `def assign` in place of `async def assign`."),
        (inspect.isasyncgenfunction, "Maybe write `def assign` in place of `async def assign`."),
        (inspect.isgeneratorfunction, "Maybe write `return` in it in place of `yield`."),
        (lambda assign: not callable(assign), "Maybe write `def assign`."),
    ):
        if is_wrong(found.assign):
            raise ValueProblem("a class whose assign can be called", advice)
    keys: object = found.config_keys
    # An iterator would have nothing left for the next who asks.
    if not isinstance(keys, Collection) or not all(isinstance(key, ConfigKey) for key in keys):
        raise ValueProblem(
            "a class that declares its settings as ConfigKey objects", f"Its config_keys are {shown(keys)}."
        )
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # a class in C may not say
        return found
    try:
        signature.bind()
    except TypeError as error:
        raise ValueProblem(
            "a class that can be made without arguments",
            f"Its constructor needs some ({error}). Maybe give them defaults, and read settings in configure().",
        ) from error
    return found
