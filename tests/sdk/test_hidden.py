"""Passwords and what looks like one: hidden wherever settings are shown, there for who asks for them."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.sdk import ApplicationState, ConfigException, ConfigKey, StreamsConfig, TaskAssignment, TaskAssignor
from task_assignor.sdk.hidden import cause_without_secrets, without_secrets
from task_assignor.sdk.text import failure, shown


class Keeping(TaskAssignor):
    """One that keeps what it was given."""

    def __init__(self) -> None:
        self.configs: Mapping[str, object] = {}

    def configure(self, configs: Mapping[str, object]) -> None:
        self.configs = configs

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment([])


class Telling(Keeping):
    """One that says what it was given, and refuses it."""

    config_keys = (ConfigKey(name="own.password", type="string", default="", validator=lambda value: f"not {value}"),)

    def configure(self, configs: Mapping[str, object]) -> None:
        raise ValueError(f"cannot use {configs!r} with {configs['sasl.jaas.config']}")


SECRETS = {
    "sasl.jaas.config": "hunter2-0",
    "main.consumer.ssl.key.password": "hunter2-1",
    "ssl.keystore.key": "hunter2-2",
    "ssl.truststore.certificates": "hunter2-3",
    "my.secret": "hunter2-4",
    "service.apiKey": "hunter2-5",
    "auth_token": "hunter2-6",
    "sasl.jass.config": 'Module required username="me" password="hunter2-7";',
    "registry.url": "https://me:hunter2-8@registry:8081",
    "schema.registry.basic.auth.user.info": "me:hunter2-9",
}


def test_secrets_are_hidden_wherever_settings_are_shown() -> None:
    """By name as Kafka's of type password, by what the name says, and by what the value looks like."""
    config = StreamsConfig({**SECRETS, "task.assignor.class": Keeping, "default.key.serde": "shown"})
    assert (dict(config.originals) | SECRETS, config.originals["my.secret"]) == (dict(config.originals), "hunter2-4")
    assigned = config.task_assignor()
    assert isinstance(assigned, Keeping)
    assert assigned.configs["my.secret"] == "hunter2-4"
    for value in (
        config,
        config.originals,
        config.values,
        assigned.configs,
        copy.copy(config),
        pickle.loads(pickle.dumps(config)),
    ):
        for text in (repr(value), str(value), f"{value}"):
            assert "hunter2" not in text
    assert repr(config).count("[hidden]") == len(SECRETS)
    assert "'default.key.serde': 'shown'" in repr(config)


@pytest.mark.parametrize("wrong", [{"num.standby.replica.password": 1}, {"own.password": "hunter2-9"}, {}])
def test_no_error_shows_a_secret(wrong: dict[str, object]) -> None:
    """Not even one that somebody else's code makes of them."""
    settings = {**SECRETS, "task.assignor.class": Telling, "num.standby.replicas": -1 if wrong else 1, **wrong}
    with pytest.raises(ConfigException) as caught:
        StreamsConfig(settings)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in repr(caught.value)
    assert "hunter2" not in repr(caught.value.problems)
    with pytest.raises(ConfigException) as caught:
        StreamsConfig(list(SECRETS.items()))  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", SECRETS)
def test_settings_in_place_of_something_else_show_no_secret(key: str) -> None:
    """Given where a StreamsConfig or a Cluster is wanted, they were in the error as they are, passwords and all."""
    text = shown([{key: SECRETS[key], "linger.ms": "5"}])
    assert ("hunter2" in text, f"'{key}': [hidden]" in text, "'linger.ms': '5'" in text) == (False, True, True)
    # Of a topic that is called so.
    assert shown({key: [0, 1]}) == f"{{'{key}': [0, 1]}}"


def test_a_broken_escape_in_a_secret_does_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("my.password = \\uhunt\n", encoding="utf-8")
    with pytest.raises(ConfigException, match=r"four hexadecimal digits, but \[hidden\] comes"):
        StreamsConfig.from_properties(path)


@pytest.mark.parametrize(
    "secret", ["hunter2", " hunter2 ", "hunter2.", "hun\\'ter2", "-----BEGIN-----\nhunter2\nline\n"]
)
def test_a_secret_is_hidden_however_an_error_has_it(secret: str) -> None:
    """Errors of other people's code are shown on one line, and some quote what they say."""
    for error in (ValueError(secret), ValueError(f"with {secret}"), KeyError(secret), ValueError(f"{[secret]}")):
        assert "ter2" not in without_secrets(failure(error), {"my.key": secret})


@pytest.mark.parametrize("value", ["id", "a", "user_id"])
def test_a_short_secret_is_hidden_as_a_word(value: str) -> None:
    """That of a `sort.key` was taken out of all words: a traceback could not be read any more."""
    text = f"Traceback: {value}, key={value}, {f'one{chr(10)}{value}'!r}; valid idle {value}s, my{value}"
    assert without_secrets(text, {"sort.key": value}) == (
        f"Traceback: [hidden], key=[hidden], 'one\\n[hidden]'; valid idle {value}s, my{value}"
    )


def test_a_flag_is_no_secret() -> None:
    """Of another setting it was said that it must be [hidden] or false."""
    settings = {"task.assignor.class": StickyTaskAssignor, "must.preserve.active.task.assignment": "x"}
    for value in ("true", True):
        with pytest.raises(ConfigException, match=r"must be true or false\.$"):
            StreamsConfig({**settings, "group.by.key": value})
    assert repr(StreamsConfig({"group.by.key": "true"})) == "StreamsConfig({'group.by.key': 'true'})"


def test_a_traceback_with_a_secret_is_kept_without_it() -> None:
    """Who raises `from` what an assignor raised shows all of that."""
    with pytest.raises(ValueError, match="no idea") as caught:
        raise ValueError("no idea") from KeyError("hunter2")
    assert cause_without_secrets(caught.value, {"my.secret": "another"}) is caught.value
    told = str(cause_without_secrets(caught.value, {"my.secret": "hunter2"}))
    assert "KeyError: '[hidden]'" in told
    assert "ValueError: no idea" in told
    assert "test_hidden.py" in told
    assert "'hunter2'" not in told
