"""From a state and an assignor to a plan, or to the reason why there is none; what is shown of it is in `plan.py`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from task_assignor.cli.output import BAD_INPUT, FINDING, FINE, others_code
from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    ConfigException,
    ConfigProblem,
    StateRecord,
    StreamsConfig,
    StreamsException,
    TaskAssignment,
    TaskAssignmentException,
)
from task_assignor.sdk.assignor_classes import assignors_with
from task_assignor.sdk.config_keys import (
    CLIENT_TAG_PREFIX,
    INTERNAL_TASK_ASSIGNOR_CLASS,
    KNOWN_KEYS,
    OTHER_KAFKA_KEYS,
    STATE_KEYS,
)
from task_assignor.sdk.hidden import visible, without_secrets
from task_assignor.sdk.properties import read_properties
from task_assignor.sdk.snapshot_assignment import document_to_json
from task_assignor.sdk.text import failure, failure_at, listed, own_place, said, shown
from task_assignor.validation import ValidationReport, report_violations

ASSIGNOR_KEY: Final = "task.assignor.class"
STANDBYS_KEY: Final = "num.standby.replicas"
TAGS_KEY: Final = "rack.aware.assignment.tags"


def parse_settings(texts: Iterable[str], assignor: str | None, standbys: int | None = None) -> dict[str, object]:
    """The settings of `--set key=value`, `--assignor` and `--standbys`.

    Raises:
        ConfigException: a text is not `key=value`, or a key is there twice.
    """
    options = {ASSIGNOR_KEY: ("--assignor", assignor), STANDBYS_KEY: ("--standbys", standbys)}
    settings: dict[str, object] = {key: value for key, (_, value) in options.items() if value is not None}
    by_option = frozenset(settings)
    problems = []
    for text in texts:
        key, value = key_and_value("--set", text, "num.standby.replicas=1")
        if key in settings:
            option = f" with {options[key][0]}" if key in by_option else ""
            problems.append(
                ConfigProblem(key, value, "given once", f"It is {visible(key, settings[key])!r} already{option}.")
            )
        else:
            settings[key] = value
    if problems:
        raise ConfigException.of(problems)
    return settings


def key_and_value(option: str, text: str, example: str) -> tuple[str, str]:
    """What follows an option that takes `KEY=VALUE`.

    Raises:
        ConfigException: it is something else.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not key or not equals:
        raise ConfigException(
            f"What follows {option} ({shown(visible(text, text))}) must be KEY=VALUE, such as {example}."
        )
    return key, value


def read_settings(path: Path) -> tuple[dict[str, object], dict[str, str]]:
    """The settings in a `.properties` file, and where in it each is.

    Raises:
        ConfigException: the file is none.
    """
    entries = read_properties(path)
    return (
        {entry.key: entry.value for entry in entries},
        {entry.key: f"{path}:{entry.line}" for entry in entries},
    )


@attrs.frozen
class Plan:
    """What became of one state.

    Args:
        state: the state with the settings put over it; None if it is wrong.
        assignment: what the assignor answered; None if there is no usable answer.
        error: why there is none.
        traceback: where the assignor failed, if it did.
        report: what is to say about the answer.
    """

    state: ApplicationState | None = None
    assignment: TaskAssignment | None = None
    error: str = ""
    traceback: str = ""
    report: ValidationReport | None = None

    @property
    def exit_code(self) -> int:
        """What the command shall end with because of this state."""
        if self.assignment is None or self.report is None:
            return BAD_INPUT
        return FINE if self.report.is_valid else FINDING

    def to_json(self, record: StateRecord) -> dict[str, Any]:
        """The answer as one JSON object."""
        if self.assignment is None:
            return error_to_json(record.id, record.line, self.error)
        answer: dict[str, Any] = {} if record.id is None else {"id": record.id}
        return {**answer, **document_to_json(self.assignment)}


def error_to_json(id: str | int | None, line: int, error: str) -> dict[str, Any]:
    """The answer to a document that is wrong. One without an `id` is found by its line (0: it is the whole file)."""
    if id is not None:
        return {"id": id, "error": error}
    return {"error": f"line {line}: {error}" if line else error}


class Planner:
    """Asks one assignor about any number of states.

    Args:
        settings: settings in Kafka's keys, to be put over those of each state.
        file: a `.properties` file with more of them; `settings` come before what is in it.

    Raises:
        ConfigException: a setting is wrong, whatever the state.

    Attributes:
        unused: a sentence for each setting of which it is known that it changes nothing, or likely.
    """

    def __init__(self, settings: Mapping[str, object], file: Path | None = None) -> None:
        make_current_folder_importable()
        in_file, where = ({}, {}) if file is None else read_settings(file)
        self._where = {key: place for key, place in where.items() if key not in settings}
        settings = {**in_file, **settings}
        # Rack tags depend on the clients of a state; all the rest is known to be right or wrong now.
        without_tags = {key: value for key, value in settings.items() if key != TAGS_KEY}
        with others_code():
            config = StreamsConfig.of_state(ApplicationStateBuilder().build(), without_tags, self._where)
        self._settings = {**settings, ASSIGNOR_KEY: config.task_assignor_class}
        unused = (key for key in sorted(settings) if not _is_used(key, settings, config))
        # The file is that of an application, whose clients have settings too; who names one at the prompt means a plan.
        self.unused = [_why_unused(key, config) for key in unused if key not in self._where or _owners(key)]

    def plan(self, record: StateRecord) -> Plan:
        """The plan for a state, or why there is none; whatever the assignor does, this does not fail."""
        if record.state is None:
            return Plan(error=str(record.error))
        found = self._plan(record.state)
        # What an assignor says of its failure may hold any of the settings.
        error, trace = (without_secrets(text, self._settings) for text in (found.error, found.traceback))
        return attrs.evolve(found, error=error, traceback=trace)

    def _plan(self, given: ApplicationState) -> Plan:
        try:
            with others_code():
                config = StreamsConfig.of_state(given, self._settings, self._where)
        except ConfigException as error:
            return Plan(error=str(error))
        state = ApplicationState(given.columns, config.assignment_configs, given.now_ms)
        try:
            with others_code():
                answer = config.task_assignor().assign(state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (`sys.exit`, a panic of a library: it is the assignor's)
            return Plan(state, error=_failure(config.task_assignor_class, error), traceback=_trace(error))
        try:
            with others_code():
                report = report_violations(state, answer)
        except Exception as error:  # noqa: BLE001  (a class of its own, say without the `__init__` of what it inherits from)
            why = f"The answer of the assignor {_name(config.task_assignor_class)} cannot be read: {failure(error)}"
            return Plan(state, error=why, traceback=_trace(error))
        if report.kafka_error is None:
            return Plan(state, error=" ".join(violation.message for violation in report.violations))
        return Plan(state, answer, report=report)


def _is_used(key: str, settings: Mapping[str, object], config: StreamsConfig) -> bool:
    declared = {own.name for own in config.task_assignor_class.config_keys}
    names_assignor = ASSIGNOR_KEY if ASSIGNOR_KEY in settings else INTERNAL_TASK_ASSIGNOR_CLASS
    return key in STATE_KEYS or key in declared or key == names_assignor


def _why_unused(key: str, config: StreamsConfig) -> str:
    chosen = shown(config.task_assignor_class)
    if key == INTERNAL_TASK_ASSIGNOR_CLASS:
        return f"The setting {key} is not looked at, since the assignor is given."
    if key in KNOWN_KEYS or key.startswith(CLIENT_TAG_PREFIX):
        what = "changes nothing in a state, whose clients have their own racks, tags and threads"
        return f"The setting {key} {what}; it is handed to configure() of {chosen}."
    others = _owners(key)
    if others:
        return f"The setting {key} is one of {listed(others)}, not of {chosen}."
    what = "one of Kafka's that has no part in assignment" if key in OTHER_KAFKA_KEYS else "not known"
    return f"The setting {key} is {what}, and {chosen} does not declare it; it is handed to its configure()."


def _owners(key: str) -> list[str]:
    with others_code():
        return assignors_with(key)


def _failure(assignor: type, error: BaseException) -> str:
    # Without a line of its own a utility says what it cannot do; with one it was given something wrong there.
    if isinstance(error, TaskAssignmentException) or (isinstance(error, StreamsException) and not own_place(error)):
        return f"The assignor {_name(assignor)} gave up: {said(error)}"
    return f"The assignor {_name(assignor)} failed with {failure_at(error)}"


def _name(assignor: type) -> str:
    return f"{assignor.__module__}.{assignor.__qualname__}"


def _trace(error: BaseException) -> str:
    """The traceback from the assignor on, without the call in this module."""
    own_part = None if error.__traceback__ is None else error.__traceback__.tb_next
    return "".join(traceback.format_exception(type(error), error, own_part))


def make_current_folder_importable() -> None:
    """A dotted path may lead to a module in the current folder, as with `python -m`; nothing is hidden by it."""
    # The folder may have been deleted.
    with suppress(FileNotFoundError):
        folder = str(Path.cwd())
        if not {"", folder} & set(sys.path):
            sys.path.append(folder)
