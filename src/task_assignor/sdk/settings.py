"""`StreamsConfig`: the settings of an application in Kafka's own keys, checked as a whole when they are built."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

import attrs

from task_assignor.sdk.assignor import TaskAssignor
from task_assignor.sdk.assignor_classes import DEFAULT_ASSIGNOR, assignors_with, load_assignor_class
from task_assignor.sdk.config_def import REQUIRED, ConfigKey, ValueProblem, parse_value
from task_assignor.sdk.config_keys import (
    CLIENT_TAG_PREFIX,
    INTERNAL_TASK_ASSIGNOR_CLASS,
    KNOWN_KEYS,
    MAX_CLIENT_TAG_KEY_LENGTH,
    MAX_CLIENT_TAG_VALUE_LENGTH,
    MAX_CLIENT_TAGS,
    OTHER_KAFKA_KEYS,
    RACK_AWARE_ASSIGNMENT_TAGS,
    STATE_KEYS,
    TASK_ASSIGNOR_CLASS,
    parse_host_info,
)
from task_assignor.sdk.configs import AssignmentConfigs
from task_assignor.sdk.errors import ConfigException, ConfigProblem, StreamsException
from task_assignor.sdk.hidden import HidingSettings, cause_without_secrets, without_secrets
from task_assignor.sdk.ids import HostInfo
from task_assignor.sdk.once import name_once
from task_assignor.sdk.properties import read_properties
from task_assignor.sdk.state import ApplicationState
from task_assignor.sdk.text import failure_at, listed, nearest, own_place, said, shown

# Alike enough to be a slip of the hand: `num.standby.replica` is, `client.id` for `client.rack` is not.
_SLIP: Final = 0.85


class StreamsConfig:
    """The settings of an application, by Kafka's keys.

    Everything is checked here, and one error lists all that is wrong: types and ranges, the class in
    `task.assignor.class` and the settings that it declares, rack tags without their `client.tag`, and keys that look
    like a misspelt known one. Other unknown keys are handed to the assignor's `configure` as they are; one that another
    registered assignor declares is named in the log, since it most likely does nothing. `values` has all
    known keys with their defaults. Passwords and what looks like one are `[hidden]` wherever settings are shown; only who
    asks for the value of such a key sees it.

    To see whether the assignor takes them it is made and configured once, right here: its code has all the time that it
    takes. Only in rebalances there is a limit, such as `assignor_timeout_ms` of `RuntimeOptions`.

    Args:
        settings: key -> value. Values may be texts, as in files; they are then parsed.
        where: key -> where it comes from, for errors, such as `app.properties:7`.

    Raises:
        ConfigException: something is wrong; `problems` has it item by item.

    Examples:
        >>> config = StreamsConfig({"num.standby.replicas": "1", "client.tag.zone": "a"})
        >>> config.assignment_configs.num_standby_replicas, dict(config.client_tags)
        (1, {'zone': 'a'})
        >>> StreamsConfig({"num.standby.replica": 1})
        Traceback (most recent call last):
        ...
        task_assignor.sdk.errors.ConfigException: The setting num.standby.replica (1) must be ...
    """

    _originals: Mapping[str, object]
    _values: Mapping[str, object]
    _client_tags: Mapping[str, str]
    _for_assignor: Mapping[str, object]
    _assignor_class: type[TaskAssignor]
    _assignment_configs: AssignmentConfigs

    def __init__(self, settings: Mapping[str, object], where: Mapping[str, str] | None = None) -> None:
        reading = _Reading(settings, where, None)
        reading.name_settings_of_others()
        vars(self).update(reading.results())

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """The settings in a `.properties` file, read as Java reads it, in UTF-8.

        Raises:
            ConfigException: the file is not one, or something is wrong; with file and line.
        """
        entries = read_properties(path)
        where = {entry.key: f"{path}:{entry.line}" for entry in entries}
        return cls({entry.key: entry.value for entry in entries}, where)

    @classmethod
    def of_state(
        cls,
        state: ApplicationState,
        overrides: Mapping[str, object] | None = None,
        where: Mapping[str, str] | None = None,
    ) -> Self:
        """The settings that a state carries, with others put over them: to try another assignor or another value.

        Settings of other assignors are not named in the log, since states are there to try one after the other.
        A rack tag must be a tag of some client of the state (or be in the state's settings already), in place of
        a `client.tag` of these settings.

        Args:
            state: its `assignment_configs` are the start.
            overrides: key -> value, as for the constructor.
            where: key -> where it comes from, for errors, such as `app.properties:7`.

        Raises:
            ConfigException: something is wrong, or the state is none.
        """
        if not isinstance(state, ApplicationState):
            raise ConfigException(
                f"The state ({shown(state)}) must be an ApplicationState. Maybe use read_state(path)."
            )
        if overrides is not None:
            _check_mapping(overrides)
        given = {key: getattr(state.assignment_configs, name) for key, name in STATE_KEYS.items()}
        settings = {**given, **(overrides or {})}
        tags = set(state.assignment_configs.rack_aware_assignment_tags)
        for client_tags in state.columns.clients.client_tags:
            tags.update(client_tags)
        return cls._of(_Reading(settings, where, frozenset(tags)))

    @classmethod
    def _of(cls, reading: _Reading) -> Self:
        config = cls.__new__(cls)
        vars(config).update(reading.results())
        return config

    @property
    def originals(self) -> Mapping[str, object]:
        """All settings as they were given."""
        return self._originals

    @property
    def values(self) -> Mapping[str, object]:
        """All known settings and those that the assignor declares, parsed, with defaults; sorted by key."""
        return self._values

    @property
    def assignment_configs(self) -> AssignmentConfigs:
        """What an assignor sees of them."""
        return self._assignment_configs

    @property
    def application_id(self) -> str:
        """`application.id`.

        Raises:
            ConfigException: it is not set. Only what runs an application needs it.
        """
        value = self._values["application.id"]
        if not isinstance(value, str):
            problem = ConfigProblem("application.id", None, "set to the name of the application")
            raise ConfigException.of([problem])
        return value

    @property
    def client_tags(self) -> Mapping[str, str]:
        """`client.tag.*`: tag -> value, sorted."""
        return self._client_tags

    @property
    def client_rack(self) -> str | None:
        """`client.rack`; None if it is not set."""
        return str(self._values["client.rack"]) or None

    @property
    def host_info(self) -> HostInfo | None:
        """`application.server`; None if it is not set."""
        return parse_host_info(str(self._values["application.server"]))

    @property
    def num_stream_threads(self) -> int:
        """`num.stream.threads`."""
        return _int(self._values["num.stream.threads"])

    @property
    def task_assignor_class(self) -> type[TaskAssignor]:
        """The class in `task.assignor.class`, or the default."""
        return self._assignor_class

    def task_assignor(self) -> TaskAssignor:
        """A fresh assignor, configured with these settings: one per rebalance, as in Kafka.

        Raises:
            ConfigException: its constructor or `configure` fails.
        """
        try:
            return _configured(self._assignor_class, self._for_assignor)
        except ValueProblem as problem:
            advice = without_secrets(problem.advice, self._originals)
            raise ConfigException.of(
                [ConfigProblem(TASK_ASSIGNOR_CLASS, self._assignor_class, problem.expected, advice)]
            ) from cause_without_secrets(problem, self._originals)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StreamsConfig):
            return NotImplemented
        return (self._values, self._for_assignor, self._assignor_class) == (
            other._values,
            other._for_assignor,
            other._assignor_class,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StreamsConfig({self._originals!r})"


class _Reading:
    """One pass over settings: what they mean, and everything that is wrong with them."""

    def __init__(
        self, settings: Mapping[str, object], where: Mapping[str, str] | None, tags: frozenset[str] | None
    ) -> None:
        if not isinstance(where, Mapping | None):
            raise ConfigException(
                f"The where ({shown(where)}) of settings must be a mapping from keys to places, or None."
            )
        self.settings = settings
        self._where = {} if where is None else where
        self._problems: list[ConfigProblem] = []
        self._cause: BaseException | None = None
        self.client_tags: dict[str, str] = {}
        self._read_keys()
        parsed = self._read_known()
        assignor_class = self._read_assignor(parsed)
        declared = {} if assignor_class is None else self._declared_keys(assignor_class)
        own = self._read_declared(declared)
        self._read_client_tags()
        self._check_unknown(declared)
        self._check_rack_tags(parsed, tags)
        self.values = dict(sorted({**{name: key.default for name, key in KNOWN_KEYS.items()}, **parsed, **own}.items()))
        self.for_assignor = {**settings, **parsed, **own}
        if assignor_class is not None and not self._problems:
            self._try(assignor_class)
        if self._problems:
            raise ConfigException.of(sorted(self._problems, key=lambda problem: problem.key)) from self._cause
        assert assignor_class is not None
        self.assignor_class = assignor_class
        self.values[TASK_ASSIGNOR_CLASS] = assignor_class
        configs: dict[str, Any] = {name: self.values[key] for key, name in STATE_KEYS.items()}
        self.assignment_configs = AssignmentConfigs(**configs)

    def results(self) -> dict[str, object]:
        """The attributes of a `StreamsConfig`."""
        return {
            "_originals": HidingSettings(self.settings),
            "_values": HidingSettings(self.values),
            "_client_tags": HidingSettings(self.client_tags),
            "_for_assignor": HidingSettings(self.for_assignor),
            "_assignor_class": self.assignor_class,
            "_assignment_configs": self.assignment_configs,
        }

    def name_settings_of_others(self) -> None:
        """Name those that the assignor does not declare, but another one does."""
        known = {*self.values, *OTHER_KAFKA_KEYS, *(CLIENT_TAG_PREFIX + tag for tag in self.client_tags)}
        for key in sorted(self.settings.keys() - known):
            names = assignors_with(key)
            if names:
                name = f"{self.assignor_class.__module__}.{self.assignor_class.__qualname__}"
                name_once(
                    [key], f"{name} does not declare this setting of {listed(names)}, so it most likely does nothing"
                )

    def _problem(self, key: str, expected: str, advice: str = "", value: object = None) -> None:
        given = self.settings.get(key, value)
        self._add(ConfigProblem(key, given, expected, advice, self._where.get(key, "")))

    def _add(self, problem: ConfigProblem) -> None:
        # What an assignor or a validator says may hold any of the settings.
        expected, advice = (without_secrets(text, self.settings) for text in (problem.expected, problem.advice))
        self._problems.append(attrs.evolve(problem, expected=expected, advice=advice))

    def _value_problem(self, key: str, problem: ValueProblem, value: object = None) -> None:
        self._problem(key, problem.expected, problem.advice, value)
        # Where somebody else's code failed, its traceback is worth keeping.
        if self._cause is None and problem.__cause__ is not None:
            self._cause = cause_without_secrets(problem.__cause__, self.settings)

    def _read_keys(self) -> None:
        _check_mapping(self.settings)
        for key in self.settings:
            if not isinstance(key, str):
                raise ConfigException(
                    f"The key of a setting ({shown(key)}) must be a string, such as num.standby.replicas."
                )

    def _read_known(self) -> dict[str, object]:
        parsed: dict[str, object] = {}
        for name, key in KNOWN_KEYS.items():
            # Classes are looked up where assignors are known, see _read_assignor.
            if name in self.settings and key.type != "class":
                self._read_value(key, parsed)
        return parsed

    def _read_value(self, key: ConfigKey, parsed: dict[str, object]) -> None:
        value = self.settings[key.name]
        if value is None and key.default is None:
            parsed[key.name] = None
            return
        try:
            parsed[key.name] = parse_value(key, value)
        except ValueProblem as problem:
            self._value_problem(key.name, problem)

    def _read_assignor(self, parsed: dict[str, object]) -> type[TaskAssignor] | None:
        keys = (TASK_ASSIGNOR_CLASS, INTERNAL_TASK_ASSIGNOR_CLASS)
        # The first one counts; a second that names no assignor is an error too, since somebody means something by it.
        found = {
            key: self._load_assignor(key, self.settings[key]) for key in keys if self.settings.get(key) is not None
        }
        parsed.update(found)
        return next(iter(found.values())) if found else self._load_assignor(TASK_ASSIGNOR_CLASS, DEFAULT_ASSIGNOR)

    def _load_assignor(self, key: str, value: object) -> type[TaskAssignor] | None:
        try:
            return load_assignor_class(value)
        except ValueProblem as problem:
            self._value_problem(key, problem, value)
            return None

    def _declared_keys(self, assignor_class: type[TaskAssignor]) -> dict[str, ConfigKey]:
        declared: dict[str, ConfigKey] = {}
        for key in assignor_class.config_keys:
            if key.name in KNOWN_KEYS or key.name.startswith(CLIENT_TAG_PREFIX):
                advice = f"{shown(assignor_class)}.config_keys declares {key.name}."
                self._problem(
                    TASK_ASSIGNOR_CLASS, "a class that declares only settings that Kafka does not have", advice
                )
            else:
                # The last one counts: a subclass may declare an inherited key anew, with another default.
                declared[key.name] = key
        return declared

    def _read_declared(self, declared: Mapping[str, ConfigKey]) -> dict[str, object]:
        own: dict[str, object] = {}
        for name, key in declared.items():
            if name in self.settings:
                self._read_value(key, own)
            elif key.default is REQUIRED:
                self._problem(name, "set", f"{key.doc} The assignor needs it.".strip())
            elif key.type == "class" and isinstance(key.default, str):
                try:
                    own[name] = parse_value(key, key.default)
                except ValueProblem as problem:
                    self._value_problem(name, problem, key.default)
            else:
                own[name] = key.default
        return own

    def _read_client_tags(self) -> None:
        tags = sorted(key for key in self.settings if key.startswith(CLIENT_TAG_PREFIX))
        for key in tags:
            tag = key.removeprefix(CLIENT_TAG_PREFIX)
            value = self.settings[key]
            if not 1 <= len(tag) <= MAX_CLIENT_TAG_KEY_LENGTH:
                self._problem(key, f"a key with 1 to {MAX_CLIENT_TAG_KEY_LENGTH} characters after {CLIENT_TAG_PREFIX}")
            if not isinstance(value, str) or not 1 <= len(value.strip()) <= MAX_CLIENT_TAG_VALUE_LENGTH:
                self._problem(key, f"a string of 1 to {MAX_CLIENT_TAG_VALUE_LENGTH} characters")
            else:
                self.client_tags[tag] = value.strip()
        if len(tags) > MAX_CLIENT_TAGS:
            self._problem(
                tags[MAX_CLIENT_TAGS], f"one of at most {MAX_CLIENT_TAGS} client tags", f"There are {len(tags)}."
            )

    def _check_unknown(self, declared: Mapping[str, ConfigKey]) -> None:
        names = [*KNOWN_KEYS, *declared]
        for key in self.settings:
            if key in KNOWN_KEYS or key in declared or key in OTHER_KAFKA_KEYS or key.startswith(CLIENT_TAG_PREFIX):
                continue
            near = nearest(key, names, _SLIP) or self._near_client_tag(key)
            if near is not None:
                self._problem(
                    key,
                    "a key that is known or that the assignor declares",
                    f"Maybe {near} is meant. (An assignor declares settings of its own in config_keys.)",
                )

    @staticmethod
    def _near_client_tag(key: str) -> str | None:
        head, dot, tag = key.rpartition(".")
        if key == CLIENT_TAG_PREFIX.rstrip("."):
            return f"{CLIENT_TAG_PREFIX}<name>"
        if dot and nearest(f"{head}.", [CLIENT_TAG_PREFIX], _SLIP):
            return f"{CLIENT_TAG_PREFIX}{tag}"
        return None

    def _check_rack_tags(self, parsed: Mapping[str, object], tags: frozenset[str] | None) -> None:
        known = tags if tags is not None else frozenset(self.client_tags)
        missing = [tag for tag in _strings(parsed.get(RACK_AWARE_ASSIGNMENT_TAGS, ())) if tag not in known]
        if not missing:
            return
        if tags is None:
            advice = f"There is no {listed(CLIENT_TAG_PREFIX + _printable(tag) for tag in missing)}. Set it, or leave the tag out."
            self._problem(RACK_AWARE_ASSIGNMENT_TAGS, "a list of tags that are set as client.tag.* too", advice)
        else:
            advice = f"No client has the tag {listed(map(_printable, missing))}; tags of clients are: {listed(known)}."
            self._problem(RACK_AWARE_ASSIGNMENT_TAGS, "a list of tags that clients of the state have", advice)

    def _try(self, assignor_class: type[TaskAssignor]) -> None:
        key = INTERNAL_TASK_ASSIGNOR_CLASS if self.settings.get(TASK_ASSIGNOR_CLASS) is None else TASK_ASSIGNOR_CLASS
        key = key if self.settings.get(key) is not None else TASK_ASSIGNOR_CLASS
        try:
            _configured(assignor_class, HidingSettings(self.for_assignor))
        except ConfigException as error:
            if not error.problems:
                self._problem(key, "an assignor that accepts the settings", said(error), value=assignor_class)
            for problem in error.problems:
                self._add(problem)
        except ValueProblem as failed:
            self._value_problem(key, failed, assignor_class)


def _configured(assignor_class: type[TaskAssignor], settings: Mapping[str, object]) -> TaskAssignor:
    try:
        assignor = assignor_class()
        assignor.configure(settings)
    except ConfigException:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of an assignor is somebody else's
        gave_up = isinstance(error, StreamsException) and not own_place(error)
        text = said(error) if gave_up else failure_at(error)
        if isinstance(error, KeyError):
            text += ". Maybe it asks for a setting that is not given: ConfigKey(name=..., default=...) in config_keys fills it in."
        raise ValueProblem(
            "an assignor that accepts the settings", f"Making and configuring it failed with {text}"
        ) from error
    return assignor


def _printable(name: str) -> str:
    return name if name.isprintable() and len(name) <= 2 * MAX_CLIENT_TAG_KEY_LENGTH else shown(name)


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, Iterable) else ()


def _check_mapping(settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise ConfigException(
            f"The settings ({shown(type(settings))}) must be a mapping from keys to values. "
            "Maybe use StreamsConfig.from_properties(path)."
        )
