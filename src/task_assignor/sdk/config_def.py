"""`ConfigKey`: how a setting is declared, ours and those of assignors, and what a value is by its declaration.

Which keys exist is in `config_keys.py`, what is done with values in `settings.py`.
"""

from __future__ import annotations

import importlib
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NoReturn, get_args

import attrs

from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.errors import ConfigException, ConfigProblem
from task_assignor.sdk.integers import INT32_MAX, INT32_MIN, INT64_MAX, plain_int
from task_assignor.sdk.text import failure, own_place, shown

ConfigType = Literal["string", "int", "long", "boolean", "list", "class"]
_TYPES: Final = get_args(ConfigType)
_NUMBERS: Final = ("int", "long")
_WITH_CHOICES: Final = ("string", "list")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_LIMITS: Final = {"int": (INT32_MIN, INT32_MAX), "long": (-INT64_MAX - 1, INT64_MAX)}


class _NoDefault:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        # The one below, in whatever process: it is compared with `is`.
        return "REQUIRED"


REQUIRED = _NoDefault()


def _tuple(values: Any) -> Any:
    # What is no list stays as it is, and is refused with the rest; a set has no order.
    return tuple(values) if isinstance(values, list | tuple) else values


@attrs.frozen(kw_only=True)
class ConfigKey:
    """A setting: its key, type, default and limits. A declaration that no value could meet is refused at once.

    Args:
        name: the key, in Kafka's dotted style.
        type: `string`, `int` (32 bits), `long` (64 bits), `boolean`, `list` (of strings) or `class`.
        default: value if the key is not given, parsed as a given one is (of texts blanks around them are dropped); None:
            not set; `REQUIRED`: must be given.
        doc: one sentence for the reference.
        minimum: least allowed number; for `int` and `long`.
        maximum: greatest allowed number; for `int` and `long`.
        choices: allowed strings; empty: any; for `string` and `list`.
        validator: takes the parsed value and returns what is expected instead (the end of the sentence "The setting
            must be ..."), or None where it is fine. Not asked about the default.

    Raises:
        ConfigException: one of these is not what it must be.
    """

    name: str
    type: ConfigType
    default: object = REQUIRED
    doc: str = ""
    minimum: int | None = attrs.field(default=None, converter=plain_int)
    maximum: int | None = attrs.field(default=None, converter=plain_int)
    choices: tuple[str, ...] = attrs.field(default=(), converter=_tuple)
    validator: Callable[[object], str | None] | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name != "".join(self.name.split()):
            raise ConfigException(
                f"The name of a ConfigKey ({shown(self.name)}) must be a string without blanks, such as my.setting."
            )
        check_choice("The type", self.type, _TYPES, ConfigException, f"of the ConfigKey {self.name}")
        if not isinstance(self.doc, str):
            self._must_be("doc", "a text")
        self._check_limits()
        if type(self.choices) is not tuple or any(not isinstance(choice, str) or not choice for choice in self.choices):
            self._must_be("choices", "a list of non-empty strings")
        # What is given is parsed: these could never be met.
        if any(choice != choice.strip() for choice in self.choices):
            self._must_be("choices", "a list of non-empty strings without blanks around them")
        if self.type == "list" and any("," in choice for choice in self.choices):
            self._must_be("choices", "a list of non-empty strings without commas")
        if self.choices and self.type not in _WITH_CHOICES:
            self._must_be("choices", f"left out for the type {self.type}: only a string or a list has them")
        if self.validator is not None and not callable(self.validator):
            self._must_be("validator", "a function, or None")
        self._parse_default()

    def _check_limits(self) -> None:
        for limit in ("minimum", "maximum"):
            value = getattr(self, limit)
            if value is not None and self.type not in _NUMBERS:
                self._must_be(limit, f"left out for the type {self.type}: only an int or a long has it")
            if value is not None and type(value) is not int:
                self._must_be(limit, "an int, or None")
        if self.type in _NUMBERS:
            low, high = limits(self)
            if low > high:
                self._must_be(
                    *("maximum", f"at least {low}") if self.minimum is None else ("minimum", f"at most {high}")
                )

    def _parse_default(self) -> None:
        if self.default is None or self.default is REQUIRED:
            return
        if self.type == "class":
            # A dotted path is looked up when settings are read: importing it here would come too early.
            if not isinstance(self.default, type | str):
                self._must_be("default", "a class, the dotted path of one, or None")
            return
        try:
            parsed = parse_type(self, self.default)
        except ValueProblem as problem:
            self._must_be("default", problem.expected)
        object.__setattr__(self, "default", parsed)

    def _must_be(self, field: str, expected: str) -> NoReturn:
        value = getattr(self, field)
        raise ConfigException(f"The {field} of the ConfigKey {self.name} ({shown(value)}) must be {expected}.")


class ValueProblem(Exception):
    """A value is not what its key expects; the caller adds key and value.

    Args:
        expected: what it must be, as the end of the sentence "The setting ... must be".
        advice: what to do, in whole sentences; may be empty.
    """

    def __init__(self, expected: str, advice: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.advice = advice


def expectation(key: ConfigKey) -> str:
    """What the values of `key` must be, as the end of a sentence: for errors and for the reference."""
    if key.type in _LIMITS:
        low, high = limits(key)
        kind = "an int" if key.type == "int" else "a long int"
        return f"{kind} from {low} to {high}"
    if key.choices:
        choices = ", ".join(key.choices)
        return f"a list of {choices}" if key.type == "list" else f"one of {choices}"
    return {
        "string": "a string",
        "boolean": "true or false",
        "list": "a list of non-empty strings, or one string with commas between them",
        "class": "a class, or the dotted path of one",
    }[key.type]


def limits(key: ConfigKey) -> tuple[int, int]:
    """The least and the greatest number that an `int` or `long` key takes."""
    low, high = _LIMITS[key.type]
    return (
        low if key.minimum is None else max(low, key.minimum),
        high if key.maximum is None else min(high, key.maximum),
    )


def parse_value(key: ConfigKey, value: object) -> object:
    """The value as the type that `key` declares; texts (from files) are parsed as Kafka parses them.

    Raises:
        ValueProblem: it cannot be one, or is out of range.
    """
    parsed = parse_type(key, value)
    if key.validator is not None:
        try:
            expected: object = key.validator(parsed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the code of a validator is somebody else's, and may end the program
            raise ValueProblem(f"what its validator accepts, but that failed with {failure(error)}") from error
        if expected is not None and not isinstance(expected, str):
            advice = f"Its validator must return None or what is expected, as a text, but returned {shown(expected)}."
            raise ValueProblem("what its validator accepts", advice)
        if expected is not None:
            raise ValueProblem(expected)
    return parsed


def given_value(key: ConfigKey, configs: Mapping[str, object]) -> object:
    """The value of a setting in what `configure` is given: parsed, as an assignor that asks another one gets it as text.

    Raises:
        ConfigException: it is not what `key` declares, or there are no settings.
    """
    if not isinstance(configs, Mapping):
        raise ConfigException(
            f"The configs ({shown(configs)}) must be a mapping from keys to values. Maybe {{}}, for the defaults."
        )
    value = configs.get(key.name)
    if value is None:
        return key.default
    try:
        return parse_value(key, value)
    except ValueProblem as problem:
        raise ConfigException.of([ConfigProblem(key.name, value, problem.expected, problem.advice)]) from problem


def parse_type(key: ConfigKey, value: object) -> object:
    """As `parse_value`, without asking the validator."""
    return _PARSERS[key.type](key, value.strip() if isinstance(value, str) else value)


def _parse_integer(key: ConfigKey, value: object) -> int:
    number: int | None = None
    if isinstance(value, str):
        number = int(value) if _INTEGER.fullmatch(value) else None
    elif isinstance(value, (int, numbers.Integral)) and value is not True and value is not False:
        number = int(value)
    low, high = limits(key)
    if number is None or not low <= number <= high:
        raise ValueProblem(expectation(key))
    return number


def _parse_string(key: ConfigKey, value: object) -> str:
    if not isinstance(value, str) or (key.choices and value not in key.choices):
        raise ValueProblem(expectation(key))
    return value


def _parse_boolean(key: ConfigKey, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueProblem(expectation(key))


def _parse_list(key: ConfigKey, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        items: tuple[object, ...] = tuple(item.strip() for item in value.split(",")) if value else ()
    elif isinstance(value, (list, tuple)):
        items = tuple(value)
    else:
        raise ValueProblem(expectation(key))
    words = tuple(item for item in items if isinstance(item, str) and item)
    if len(words) != len(items) or (key.choices and not set(words) <= set(key.choices)):
        raise ValueProblem(expectation(key))
    return words


def _parse_class(key: ConfigKey, value: object) -> type:
    if isinstance(value, str):
        value = find_attribute(value)
    if not isinstance(value, type):
        raise ValueProblem(expectation(key))
    return value


def find_attribute(path: str) -> object:
    """What `package.module.Name` or `package.module:Name` names.

    Raises:
        ValueProblem: there is no such module or name, or importing the module fails.
    """
    expected = "a class, or the dotted path of one"
    module_path, colon, _ = path.partition(":")
    parts = path.replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueProblem(expected, "A dotted path has the form package.module.ClassName.")
    # a.b.C.D may be class D inside class C of module a.b: the longest prefix that is a module decides.
    splits = [len(module_path.split("."))] if colon else range(len(parts) - 1, 0, -1)
    for split in splits:
        name = ".".join(parts[:split])
        try:
            found: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                continue
            raise _import_failure(name, error) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a module runs whatever code it likes
            raise _import_failure(name, error) from error
        for position, attribute in enumerate(parts[split:], split):
            where = ".".join(parts[:position])
            try:
                found = getattr(found, attribute)
            except AttributeError:
                raise ValueProblem(expected, f"{where} was imported, but has no {attribute}.") from None
            except (Exception, SystemExit) as error:  # a module may import what is in it when somebody asks (PEP 562)
                raise _import_failure(f"{where}.{attribute}", error) from error
        return found
    module = module_path if colon else ".".join(parts[:-1])
    raise ValueProblem(expected, f"There is no module {module}; maybe it is not installed, or not on sys.path.")


def _import_failure(module: str, error: BaseException) -> ValueProblem:
    told = f"Importing {module} failed with {failure(error)}{own_place(error)}."
    return ValueProblem("a class that can be imported", told)


_PARSERS: Final = {
    "string": _parse_string,
    "int": _parse_integer,
    "long": _parse_integer,
    "boolean": _parse_boolean,
    "list": _parse_list,
    "class": _parse_class,
}
