"""What would happen with the settings of a Java application: which assignor decides, and what is wrong or without effect."""

from __future__ import annotations

import codecs
import enum
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from task_assignor import __version__
from task_assignor.bridge.hello import HelloException, say_hello
from task_assignor.bridge.keys import (
    JAVA_CLASSES,
    KEYS,
    PREFIX,
    PYTHON_CLASS,
    RECORDING_CLASS,
    SHADOW_CLASS,
)
from task_assignor.sdk import ConfigException, StreamsConfig
from task_assignor.sdk.config_def import ValueProblem, parse_value
from task_assignor.sdk.config_keys import KNOWN_KEYS, MAIN_CONSUMER_PREFIXES
from task_assignor.sdk.hidden import visible
from task_assignor.sdk.properties import Property, read_properties
from task_assignor.sdk.text import listed, nearest, shown

_CLASS: Final = "task.assignor.class"
_GROUP_PROTOCOL: Final = "group.protocol"
_SESSION: Final = "session.timeout.ms"
_SESSION_SPELLINGS: Final = (*(f"{prefix}{_SESSION}" for prefix in MAIN_CONSUMER_PREFIXES), _SESSION)
"""The first that is given counts, as in Kafka."""
_SESSION_DEFAULT_MS: Final = 45_000
_ADDRESS: Final = f"{PREFIX}address"
_FOLDER: Final = f"{PREFIX}record.dir"
_MOST: Final = f"{PREFIX}record.max.bytes"
_NOBODY: Final = "nobody"
"""In place of an address that is none."""
_WITHOUT_EFFECT: Final[Mapping[str, Sequence[str]]] = {
    PYTHON_CLASS: ("java.class",),
    RECORDING_CLASS: ("address", "class", "command", "timeout.ms"),
}
"""Class -> settings of the bridge that it does not read."""
_MILLISECONDS: Final = re.compile(r"[0-9]{1,10}")


class Verdict(enum.Enum):
    """How much a finding matters."""

    FINE = "fine"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen
class Finding:
    """One thing to say about settings.

    Args:
        verdict: whether it is wrong, or likely not meant.
        message: a sentence.
    """

    verdict: Verdict
    message: str


def check_properties(path: str | os.PathLike[str]) -> list[Finding]:
    """What would happen with the settings in a `.properties` file. Where Python is to be asked, it is: once, with hello.

    Raises:
        ConfigException: the file cannot be read.
    """
    entries = read_properties(path)
    settings = {entry.key: entry.value.strip() for entry in entries}
    return [*_mark(path, entries), *_findings(settings)]


def _mark(path: str | os.PathLike[str], entries: Sequence[Property]) -> Iterator[Finding]:
    """Where the file begins with a byte order mark, which editors of Windows write, Java does not see the first setting."""
    # What is no file, such as a pipe, can be read only once.
    is_first = bool(entries) and entries[0].line == 1 and Path(path).is_file()
    if is_first and Path(path).read_bytes().startswith(codecs.BOM_UTF8):
        yield Finding(
            Verdict.ERROR,
            f"{entries[0].key} is not seen by Java: the file begins with a byte order mark, which Java takes for a part of the "
            "key. Save it as UTF-8 without one.",
        )


def _findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    chosen = settings.get(_CLASS, "")
    if settings.get(_GROUP_PROTOCOL, "classic").lower() == "streams":
        yield Finding(
            Verdict.ERROR,
            f"{_GROUP_PROTOCOL}=streams: the brokers decide, and Kafka ignores {_CLASS} without a word. "
            f"Set {_GROUP_PROTOCOL}=classic.",
        )
    if chosen not in JAVA_CLASSES:
        near = nearest(chosen, JAVA_CLASSES, 0.8) if chosen else None
        advice = f" Maybe {near} is meant." if near else f" Maybe set it to {PYTHON_CLASS}."
        yield Finding(
            Verdict.ERROR, f"{_CLASS} is {shown(chosen) if chosen else 'not set'}: the bridge plays no part.{advice}"
        )
    else:
        yield Finding(Verdict.FINE, f"{_CLASS}={chosen}: {JAVA_CLASSES[chosen]}")
    values: dict[str, Any] = {}
    for key in settings:
        if key.startswith(PREFIX):
            yield from _own(key, settings[key], values)
    yield from _without_effect(settings, chosen)
    values = {**{name: key.default for name, key in KEYS.items()}, **values}
    yield from _assignment_settings(settings, values[f"{PREFIX}class"], chosen)
    if chosen == PYTHON_CLASS:
        yield from _times(settings, values)
    if chosen == RECORDING_CLASS or values[_FOLDER]:
        yield from _recording(settings, values[_FOLDER], values[_MOST])
    if chosen in (PYTHON_CLASS, SHADOW_CLASS):
        if values[_ADDRESS] != _NOBODY:
            yield from _python(values)
        if values[f"{PREFIX}on.failure"] == "exception":
            yield Finding(
                Verdict.WARNING, f"{PREFIX}on.failure=exception: without an answer all members of the group stop."
            )
        elif chosen == PYTHON_CLASS:
            wait = values[f"{PREFIX}retry.ms"] / 1000
            yield Finding(
                Verdict.FINE,
                "Without a valid answer in time all tasks stay where they are, those without owner go to a standby or to the "
                f"least loaded client, and the group asks again after {wait:g} s.",
            )


def _own(key: str, text: str, values: dict[str, Any]) -> Iterator[Finding]:
    declared = KEYS.get(key)
    if declared is None:
        near = nearest(key, KEYS)
        advice = f" Maybe {near} is meant." if near else ""
        yield Finding(Verdict.WARNING, f"{key} is not a setting of the bridge; it changes nothing.{advice}")
        return
    if not text:
        return
    try:
        values[key] = parse_value(declared, text)
    except ValueProblem as problem:
        # Java does not stop for it; to an address there is no other.
        values[key] = _NOBODY if key == _ADDRESS else declared.default
        then = "nobody would be asked" if key == _ADDRESS else f"{shown(declared.default)} would be used"
        yield Finding(Verdict.ERROR, f"{key} ({text}) must be {problem.expected}; {then}.")


def _without_effect(settings: Mapping[str, str], chosen: str) -> Iterator[Finding]:
    given = {key for key in KEYS if settings.get(key)}
    for key in sorted(given & {f"{PREFIX}{name}" for name in _WITHOUT_EFFECT.get(chosen, ())}):
        yield Finding(Verdict.WARNING, f"{key} changes nothing with {_CLASS}={chosen}.")
    if chosen in (PYTHON_CLASS, SHADOW_CLASS) and {_ADDRESS, f"{PREFIX}command"} <= given:
        yield Finding(Verdict.WARNING, f"{PREFIX}command changes nothing: {_ADDRESS} takes its place.")
    if chosen in (PYTHON_CLASS, SHADOW_CLASS) and _MOST in given and _FOLDER not in given:
        yield Finding(Verdict.WARNING, f"{_MOST} changes nothing: without {_FOLDER} nothing is recorded.")


def _assignment_settings(settings: Mapping[str, str], assignor: str, chosen: str) -> Iterator[Finding]:
    for key in (key for key in _SESSION_SPELLINGS[:-1] if key in settings):
        try:
            parse_value(KNOWN_KEYS[_SESSION], settings[key])
        except ValueProblem as wrong:
            yield Finding(Verdict.ERROR, f"{key} ({shown(settings[key])}) must be {wrong.expected}.")
    others = {key: value for key, value in settings.items() if not key.startswith(PREFIX) and key != _CLASS}
    if chosen in (PYTHON_CLASS, SHADOW_CLASS):
        others[_CLASS] = assignor
    try:
        config = StreamsConfig(others)
    except ConfigException as error:
        for problem in error.problems:
            key = f"{PREFIX}class" if problem.key == _CLASS else problem.key
            advice = f" {problem.advice}" if problem.advice else ""
            yield Finding(Verdict.ERROR, f"{key} ({shown(problem.value)}) must be {problem.expected}.{advice}")
        return
    if chosen in (PYTHON_CLASS, SHADOW_CLASS):
        declared = [key.name for key in config.task_assignor_class.config_keys]
        given = [f"{key}={visible(key, settings[key])}" for key in declared if key in settings]
        yield Finding(
            Verdict.FINE,
            f"{PREFIX}class={assignor}: {config.task_assignor_class.__module__}.{config.task_assignor_class.__qualname__}, "
            + (f"with {listed(given)}." if given else "with no settings of its own."),
        )


def _times(settings: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[Finding]:
    given = map(settings.get, _SESSION_SPELLINGS)
    session = next((int(value) for value in given if value and _MILLISECONDS.fullmatch(value)), _SESSION_DEFAULT_MS)
    timeout = values[f"{PREFIX}timeout.ms"]
    if timeout > session // 3:
        yield Finding(
            Verdict.WARNING,
            f"{PREFIX}timeout.ms ({timeout}) is more than a third of {_SESSION} ({session}): a rebalance waits {session // 3} ms "
            "only, since Kafka sends no heartbeats meanwhile.",
        )


def _recording(settings: Mapping[str, str], folder: str | None, most: int) -> Iterator[Finding]:
    state_dir = settings.get("state.dir", "<java.io.tmpdir>/kafka-streams")
    where = folder or f"{state_dir}/task-assignor-recordings/{settings.get('application.id', '<application.id>')}"
    existing = next((parent for parent in (Path(where), *Path(where).parents) if parent.exists()), Path())
    if folder and not (existing.is_dir() and os.access(existing, os.W_OK)):
        yield Finding(
            Verdict.ERROR, f"{PREFIX}record.dir ({where}) cannot be written: {existing} is no folder of this user's."
        )
    else:
        yield Finding(Verdict.FINE, f"States and decisions are recorded in {where}, {most / 1e6:g} MB at most.")


def _python(values: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        command = words(values[f"{PREFIX}command"])
    except ValueError:
        yield Finding(
            Verdict.ERROR,
            f"{PREFIX}command ({values[f'{PREFIX}command']}) must be words, but a quote in it does not end.",
        )
    else:
        yield from _ask(values, command)


def words(command: str) -> list[str]:
    """The words of a command as Java takes them: between blanks, which quotes keep; a backslash is a letter like others.

    Raises:
        ValueError: a quote does not end.
    """
    reading = shlex.shlex(command, posix=True)
    reading.whitespace_split, reading.commenters, reading.escape = True, "", ""
    return list(reading)


def _ask(values: Mapping[str, Any], command: list[str]) -> Iterator[Finding]:
    address = values[_ADDRESS]
    target = f"{_ADDRESS}={address}" if address else f"{PREFIX}command={shlex.join(command)}"
    try:
        found = say_hello(address or command, values[f"{PREFIX}class"], values[f"{PREFIX}timeout.ms"] / 1000)
    except HelloException as error:
        yield Finding(Verdict.ERROR, f"{target}: {error}")
        return
    yield Finding(Verdict.FINE, f"{target}: task-assignor {found.version} answers after {found.took_s:.1f} s.")
    if found.version != __version__:
        yield Finding(Verdict.WARNING, f"{target}: that is another version than the one you ask ({__version__}).")
