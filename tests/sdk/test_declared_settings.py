"""Settings that an assignor declares: checked like Kafka's own, and a declaration that makes no sense is refused."""

from __future__ import annotations

import collections
import enum
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from task_assignor.sdk import ConfigException, ConfigKey, StreamsConfig, TaskAssignor
from tests.sdk.own_settings import Own, problems


class Demanding(Own):
    config_keys = (ConfigKey(name="own.must", type="string", doc="What must be."),)


def test_declared_settings_are_checked_like_known_ones() -> None:
    settings = {
        "task.assignor.class": Own,
        "own.limit": 10,
        "own.flag": "yes",
        "own.modes": "a,c",
        "own.helper": "no.such.thing",
        "own.limits": 3,
    }
    found = {key: (expected, advice) for key, _, expected, advice in problems(settings)}
    assert sorted(found) == ["own.flag", "own.helper", "own.limit", "own.limits", "own.modes"]
    assert found["own.limit"][0] == "an int from 1 to 9"
    assert found["own.flag"][0] == "true or false"
    assert found["own.modes"][0] == "a list of a, b"
    assert "There is no module no.such" in found["own.helper"][1]
    assert "Maybe own.limit is meant." in found["own.limits"][1]


def test_declared_classes_are_found() -> None:
    config = StreamsConfig({"task.assignor.class": Own, "own.helper": "collections.OrderedDict"})
    assert config.values["own.helper"].__name__ == "OrderedDict"  # type: ignore[attr-defined]


def test_a_setting_that_an_assignor_requires_must_be_there() -> None:
    assert problems({"task.assignor.class": Demanding}) == [
        ("own.must", None, "set", "What must be. The assignor needs it.")
    ]
    assert StreamsConfig({"task.assignor.class": Demanding, "own.must": "x"}).values["own.must"] == "x"


class RedeclaresKafka(Own):
    config_keys = (ConfigKey(name="num.standby.replicas", type="string", default=""),)


class DeclaresNonsense(Own):
    config_keys = ("own.limit",)  # type: ignore[assignment]


class DeclaresNumber(Own):
    config_keys = 5  # type: ignore[assignment]


@pytest.mark.parametrize("wrong", [RedeclaresKafka, DeclaresNonsense, DeclaresNumber])
def test_what_an_assignor_cannot_declare(wrong: type[TaskAssignor]) -> None:
    ((key, value, _, advice),) = problems({"task.assignor.class": wrong})
    assert (key, value) == ("task.assignor.class", wrong)
    assert "config_keys" in advice


class RaisesInConfigure(Own):
    def configure(self, configs: Mapping[str, object]) -> None:
        raise ValueError("no")


class RaisesInConstructor(Own):
    def __init__(self) -> None:
        raise RuntimeError("never")


class ExitsInConfigure(Own):
    def configure(self, configs: Mapping[str, object]) -> None:
        sys.exit("bye")


class PanicsInConfigure(Own):
    def configure(self, configs: Mapping[str, object]) -> None:
        raise BaseException("out of bounds")


class RefusesSetting(Own):
    def configure(self, configs: Mapping[str, object]) -> None:
        raise ConfigException("own.x must not be y")


class UnsayableError(ConfigException):
    def __str__(self) -> str:
        raise ValueError


class RefusesWithoutWords(Own):
    def configure(self, configs: Mapping[str, object]) -> None:
        raise UnsayableError("no words")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (RefusesWithoutWords, "UnsayableError"),
        (RaisesInConfigure, "ValueError: no"),
        (RaisesInConstructor, "RuntimeError: never"),
        (ExitsInConfigure, "SystemExit: bye"),
        (PanicsInConfigure, "BaseException: out of bounds"),
        (RefusesSetting, "own.x must not be y"),
    ],
)
def test_an_assignor_that_does_not_take_the_settings_is_found_when_they_are_built(
    wrong: type[TaskAssignor], text: str
) -> None:
    ((key, value, expected, advice),) = problems({"task.assignor.class": wrong})
    assert (key, value, expected) == ("task.assignor.class", wrong, "an assignor that accepts the settings")
    assert text in advice


def test_an_assignor_that_fails_later_is_an_error_too() -> None:
    class FailsTheSecondTime(Own):
        made = 0

        def configure(self, configs: Mapping[str, object]) -> None:
            FailsTheSecondTime.made += 1
            if FailsTheSecondTime.made > 1:
                raise ValueError("once only")

    config = StreamsConfig({"task.assignor.class": FailsTheSecondTime})
    with pytest.raises(ConfigException, match="once only"):
        config.task_assignor()


def test_a_validator_of_a_key_is_asked_and_may_fail() -> None:
    def even(value: object) -> str | None:
        return None if isinstance(value, int) and value % 2 == 0 else "an even int"

    class Silent(Exception):
        def __repr__(self) -> str:
            raise NotImplementedError

    def fails_with(error: BaseException) -> Callable[[object], str | None]:
        def broken(value: object) -> str | None:
            raise error

        return broken

    class WithValidators(Own):
        config_keys = (
            ConfigKey(name="own.even", type="int", default=0, validator=even),
            ConfigKey(name="own.broken", type="int", default=0, validator=fails_with(ZeroDivisionError("oops"))),
            ConfigKey(name="own.ends", type="int", default=0, validator=fails_with(SystemExit(0))),
            ConfigKey(name="own.silent", type="int", default=0, validator=fails_with(Silent())),
        )

    given = {"own.even": 3, "own.broken": 1, "own.ends": 1, "own.silent": 1}
    found = problems({"task.assignor.class": WithValidators, **given})
    failed = "what its validator accepts, but that failed with"
    assert [(key, expected) for key, _, expected, _ in found] == [
        ("own.broken", f"{failed} ZeroDivisionError: oops"),
        ("own.ends", f"{failed} SystemExit: 0"),
        ("own.even", "an even int"),
        ("own.silent", f"{failed} Silent"),
    ]


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ({"name": 3}, "The name of a ConfigKey (3) must be a string without blanks, such as my.setting."),
        ({"name": "my setting"}, "must be a string without blanks"),
        ({"type": "integer"}, "The type ('integer') of the ConfigKey a must be 'string', 'int', 'long'"),
        ({"type": "Long"}, "Maybe 'long' is meant."),
        ({"doc": None}, "The doc of the ConfigKey a (None) must be a text."),
        ({"minimum": "1"}, "The minimum of the ConfigKey a ('1') must be an int, or None."),
        ({"maximum": True}, "The maximum of the ConfigKey a (True) must be an int, or None."),
        ({"minimum": 5, "maximum": 3}, "The minimum of the ConfigKey a (5) must be at most 3."),
        ({"minimum": 2**31}, "The minimum of the ConfigKey a (2147483648) must be at most 2147483647."),
        ({"maximum": -(2**40)}, "must be at least -2147483648."),
        ({"type": "string", "minimum": 1}, "must be left out for the type string: only an int or a long has it."),
        ({"choices": ("a",)}, "must be left out for the type int: only a string or a list has them."),
        ({"type": "string", "choices": 5}, "The choices of the ConfigKey a (5) must be a list of non-empty strings."),
        ({"type": "string", "choices": "ab"}, "must be a list of non-empty strings."),
        ({"type": "string", "choices": [1]}, "must be a list of non-empty strings."),
        ({"type": "string", "choices": {"a", "b"}}, "must be a list of non-empty strings."),
        ({"type": "string", "choices": ["a "]}, "must be a list of non-empty strings without blanks around them."),
        ({"type": "list", "choices": ["a,b"]}, "must be a list of non-empty strings without commas."),
        ({"validator": "even"}, "The validator of the ConfigKey a ('even') must be a function, or None."),
        ({"default": "x"}, "The default of the ConfigKey a ('x') must be an int from -2147483648 to 2147483647."),
        ({"default": 0, "minimum": 1}, "The default of the ConfigKey a (0) must be an int from 1 to 2147483647."),
        ({"type": "boolean", "default": "yes"}, "must be true or false."),
        ({"type": "string", "choices": ("a", "b"), "default": "c"}, "must be one of a, b."),
        ({"type": "class", "default": 3}, "must be a class, the dotted path of one, or None."),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_at_once(declaration: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException) as caught:
        ConfigKey(**{"name": "a", "type": "int"} | declaration)
    assert message in str(caught.value)


def test_a_default_is_parsed_like_a_value() -> None:
    assert ConfigKey(name="a", type="int", default="5").default == 5
    assert ConfigKey(name="a", type="list", default="x, y").default == ("x", "y")
    assert ConfigKey(name="a", type="class", default="no.such.Class").default == "no.such.Class"
    assert ConfigKey(name="a", type="string", choices=["x"], default=None).choices == ("x",)


def test_a_validator_that_answers_yes_or_no_is_found() -> None:
    class AnswersNo(Own):
        config_keys = (ConfigKey(name="own.odd", type="int", default=1, validator=lambda value: False),)  # type: ignore[arg-type,return-value]

    ((key, _, expected, advice),) = problems({"task.assignor.class": AnswersNo, "own.odd": 3})
    assert (key, expected) == ("own.odd", "what its validator accepts")
    assert advice == "Its validator must return None or what is expected, as a text, but returned False."


def test_a_subclass_may_declare_an_inherited_key_anew() -> None:
    class Other(Own):
        config_keys = (*Own.config_keys, ConfigKey(name="own.limit", type="int", default=7))

    assert StreamsConfig({"task.assignor.class": Other}).values["own.limit"] == 7


def test_a_class_given_as_default_is_looked_up_like_a_given_one() -> None:
    class Later(Own):
        config_keys = (ConfigKey(name="own.helper", type="class", default="collections.OrderedDict"),)

    class Never(Own):
        config_keys = (ConfigKey(name="own.helper", type="class", default="no.such.Class"),)

    assert StreamsConfig({"task.assignor.class": Later}).values["own.helper"] is collections.OrderedDict
    ((key, value, expected, advice),) = problems({"task.assignor.class": Never})
    assert (key, value, expected) == ("own.helper", "no.such.Class", "a class, or the dotted path of one")
    assert "no module" in advice


class Level(enum.IntEnum):
    LOW = 1


def test_integers_of_other_kinds_are_limits_too() -> None:
    key = ConfigKey(name="a", type="int", default=np.int64(3), minimum=Level.LOW, maximum=np.int32(5))
    assert (key.minimum, key.maximum, key.default) == (1, 5, 3)
    assert all(type(number) is int for number in (key.minimum, key.maximum, key.default))


def test_a_kind_of_config_key_may_have_a_constructor_of_its_own() -> None:
    class IntKey(ConfigKey):
        def __init__(self, name: str, default: int = 0) -> None:
            super().__init__(name=name, type="int", default=default)

    assert IntKey("a.b", 3).default == 3
