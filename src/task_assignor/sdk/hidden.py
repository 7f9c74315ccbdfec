"""Which settings are secret, and how they are shown: `[hidden]`, as Kafka shows those of type password. They are read elsewhere."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_SECRET_WORDS: Final = frozenset(
    {"password", "passwords", "passwd", "passphrase", "pwd", "secret", "secrets", "apikey"}
)
# `ssl.keystore.key`, `delegation.token`; but not `default.key.serde`, `sasl.oauthbearer.token.endpoint.url`.
_SECRET_ENDS: Final = frozenset({"key", "token", "credential", "credentials"})
_SECRET_KEYS: Final = (
    "sasl.jaas.config",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "auth.user.info",
)
"""Of type password in Kafka, the last one in its schema registry's clients, although their names do not say so; also
behind a prefix such as `main.consumer.`."""
# What a misspelt `sasl.jaas.config` holds, or an address with a password in it.
_SECRET_VALUE: Final = re.compile(r"(?:password|secret)\s*=\s*[\"']?([^\"';]*)|://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)
_FLAG: Final = re.compile(r"\s*(?:true|false)\s*", re.IGNORECASE)
# Such as the `id` of `sort.key`, which is in many a word.
_SHORT_WORD: Final = re.compile(r"\w{1,7}")


class _Hidden:
    def __repr__(self) -> str:
        return "[hidden]"

    def __reduce__(self) -> str:
        return "HIDDEN"


HIDDEN: Final = _Hidden()
"""Stands for the value of a secret setting wherever it may be seen."""


def is_secret(key: str, value: object = None) -> bool:
    """Whether a setting is one of Kafka's of type password, or looks like a secret by its name or its value. A flag is none.

    Examples:
        >>> [is_secret(key) for key in ("main.consumer.ssl.key.password", "my.apiKey", "default.key.serde")]
        [True, True, False]
        >>> is_secret("sasl.jass.config", 'PlainLoginModule required username="me" password="it";')
        True
    """
    if isinstance(value, bool) or (isinstance(value, str) and _FLAG.fullmatch(value)):
        return False
    words = [word.lower() for word in _WORD.findall(key)]
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or (len(words) > 1 and words[-1] in _SECRET_ENDS)
        or key.endswith(_SECRET_KEYS)
        or (isinstance(value, str) and _SECRET_VALUE.search(value) is not None)
    )


def visible(key: str, value: object) -> object:
    """The value of a setting as it may be seen: itself, or `HIDDEN`."""
    return HIDDEN if value is not None and is_secret(key, value) else value


def without_secrets(text: str, settings: Mapping[Any, object]) -> str:
    r"""A text of somebody else's code about these settings, with `[hidden]` in place of secret values; short ones as whole words.

    Examples:
        >>> without_secrets("bad key: KEY 1 END", {"my.key": "KEY\n1\nEND\n"})
        'bad key: [hidden]'
        >>> without_secrets("no user me/it", {"sasl.jaas.config": 'PlainLoginModule required username="me" password="it";'})
        'no user me/[hidden]'
    """
    secrets = {
        form
        for key, value in settings.items()
        if visible(str(key), value) is HIDDEN
        for secret in (str(value), *_inside(str(value)))
        for form in _forms(secret)
    }
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        # In what is quoted the letter before it may be that of a line's end.
        pattern = rf"(?:\b|(?<=\\[nrt])){secret}\b" if _SHORT_WORD.fullmatch(secret) else re.escape(secret)
        text = re.sub(pattern, repr(HIDDEN), text)
    return text


def _inside(value: str) -> Iterator[str]:
    """The passwords in the value of a setting that has more than these in it."""
    return (secret for found in _SECRET_VALUE.finditer(value) for secret in found.groups() if secret)


def _forms(secret: str) -> tuple[str, ...]:
    """How a text may have it: as it is, quoted (as `KeyError` does), and on one line without a full stop (as `failure` does)."""
    return secret.strip(), repr(secret)[1:-1], " ".join(secret.split()).rstrip(".")


class HiddenError(Exception):
    """Stands for an error of somebody else's code that says secrets, and says its traceback without them."""


def cause_without_secrets(error: BaseException, settings: Mapping[Any, object]) -> BaseException:
    """What an error of ours may have as its cause, whose traceback is shown wherever that of ours is: the error, if it says no secrets."""
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 (it looks at objects of somebody else's)
        return error
    safe = without_secrets(trace, settings)
    return error if safe == trace else HiddenError(safe.rstrip())


class HidingSettings(Mapping[str, Any]):
    """Settings that can be read, but not changed, and whose `repr` shows no secrets.

    Args:
        settings: key -> value; copied.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, key: str) -> Any:
        return self._settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._settings, **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self._settings}

    def __repr__(self) -> str:
        return repr({key: visible(key, value) for key, value in self._settings.items()})
