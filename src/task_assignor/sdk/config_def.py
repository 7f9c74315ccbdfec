"""`ConfigKey`: how a setting is declared, ours and those of assignors. What is done with them is in `settings.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn, get_args

import attrs

from task_assignor.sdk.checks import plain_int
from task_assignor.sdk.config_values import ValueProblem, limits, parse_type
from task_assignor.sdk.errors import ConfigException
from task_assignor.sdk.text import nearest, shown

ConfigType = Literal["string", "int", "long", "boolean", "list", "class"]
_TYPES: Final = get_args(ConfigType)
_NUMBERS: Final = ("int", "long")
_WITH_CHOICES: Final = ("string", "list")


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
        if self.type not in _TYPES:
            near = nearest(str(self.type), _TYPES)
            self._must_be("type", f"one of {', '.join(_TYPES)}", f"Maybe {near} is meant." if near else "")
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

    def _must_be(self, field: str, expected: str, advice: str = "") -> NoReturn:
        value = getattr(self, field)
        raise ConfigException(
            f"The {field} of the ConfigKey {self.name} ({shown(value)}) must be {expected}. {advice}".rstrip()
        )
