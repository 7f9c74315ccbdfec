"""Checks of what people hand over in objects: strings that are taken for lists, texts that are no ids. Columns check themselves."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from task_assignor.sdk.errors import ConfigException, StateException, StreamsException
from task_assignor.sdk.hidden import visible
from task_assignor.sdk.ids import TaskId
from task_assignor.sdk.integers import INT32_MAX, is_whole
from task_assignor.sdk.text import nearest, shown

Kind = TypeVar("Kind")
Kinds = type | None | tuple[type | None, ...]


def whole_number(
    what: str,
    value: object,
    least: int,
    most: int = INT32_MAX,
    error: type[StateException | ConfigException] = ConfigException,
) -> int:
    """The value as an int; those of numpy are ints, too.

    Args:
        what: what it is, for the error.
        value: the value.
        least: the least that is allowed.
        most: the greatest that is allowed.
        error: what to raise.

    Raises:
        ConfigException: it is none, or out of range; or `error`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise error(f"The {what} ({shown(value)}) must be an int from {least} to {most}.")
    return int(value)


def check_flag(what: str, value: object, owner: object = None, error: type[StreamsException] = StateException) -> None:
    """Raise `error` if a value is neither True nor False: the text "no" would count as true; others as for `all_of`."""
    # The owner is written only then: that takes longer than the check.
    if type(value) is not bool:
        raise error(f"The {_of(what, owner)} ({shown(value)}) must be True or False.")


def check_choice(
    what: str,
    value: object,
    choices: Sequence[str | None],
    error: type[StreamsException] = StateException,
    owner: str | None = None,
    or_else: str | None = None,
) -> None:
    """Raise `error` if a value is none of some words, whatever else it is: arrays are compared element by element.

    Args:
        what: what it is, as the start of a sentence.
        value: the value.
        choices: the words, and None if it may be left out.
        error: what to raise.
        owner: whose it is, written behind the value, such as "of a schedule".
        or_else: what else would be right, of which the caller knows that the value is none.
    """
    if (value is None or isinstance(value, str)) and value in choices:
        return
    *most, last = [*map(repr, choices), *([] if or_else is None else [or_else])]
    near = nearest(value, filter(None, choices)) if isinstance(value, str) else None
    advice = "" if near is None else f" Maybe {near!r} is meant."
    shown_as = f"{what} ({shown(value)})" if owner is None else f"{what} ({shown(value)}) {owner}"
    raise error(f"{shown_as} must be {', '.join(most)} or {last}.{advice}")


def check_kind(what: str, value: object, kinds: Kinds, error: type[StreamsException], owner: str = "") -> None:
    """Raise `error` if a value is of another kind than these. Integers of numpy are ints; true and false are none.

    Args:
        what: what it is, for the error.
        value: the value.
        kinds: what it must be; several, or None among them, if there is a choice.
        error: what to raise.
        owner: whose it is, written behind the value, such as " of the run".
    """
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if not any(_is_a(kind, value) for kind in allowed):
        expected = " or ".join("None" if kind is None else _with_article(kind.__name__) for kind in allowed)
        raise error(f"The {what} ({shown(visible(what, value))}){owner} must be {expected}.")


def check_fields(instance: object, error: type[StreamsException], **kinds: Kinds) -> None:
    """`check_kind` of some fields of a value, by their names."""
    for name, allowed in kinds.items():
        check_kind(name, getattr(instance, name), allowed, error, f" of the {type(instance).__name__}")


def _is_a(kind: type | None, value: object) -> bool:
    return value is None if kind is None else is_whole(value) if kind is int else isinstance(value, kind)


def _with_article(name: str) -> str:
    return name if name == "bytes" else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def all_of(what: str, kind: type[Kind], values: Iterable[Kind], owner: object = None) -> tuple[Kind, ...]:
    """The values as a tuple.

    Args:
        what: what they are, for the error.
        kind: what each must be.
        values: the values.
        owner: whose they are, written behind `what` in the error. To write a task id costs more than to check its values.

    Raises:
        StateException: not iterable, or one is of another kind.
    """
    if isinstance(values, str | bytes):
        # A text would be taken for its characters.
        raise StateException(
            f"The {_of(what, owner)} ({shown(values)}) must be a list of {kind.__name__}, not one text."
        )
    try:
        iterator = iter(values)
    except TypeError:
        raise StateException(f"The {_of(what, owner)} ({shown(values)}) must be a list of {kind.__name__}.") from None
    # Outside: what fails in a generator is an error of whose it is.
    found = tuple(iterator)
    # Of a million values the types are looked at in milliseconds.
    if set(map(type, found)) <= {kind}:
        return found
    for value in found:
        if not isinstance(value, kind):
            advice = " Maybe use TaskId.parse(text)." if kind is TaskId else ""
            raise StateException(
                f"The {_of(what, owner)} must be a list of {kind.__name__}, but one is {shown(value)}.{advice}"
            )
    return found


def _of(what: str, owner: object) -> str:
    return what if owner is None else f"{what} {owner}"


def strings(what: str, values: Iterable[str], owner: object = None) -> frozenset[str]:
    """The values as a set of names; `what` and `owner` as for `all_of`.

    Raises:
        StateException: not iterable, one string instead of several, or something that is no string, or an empty one.
    """
    found = all_of(what, str, values, owner)
    if not all(found):
        raise StateException(f"The {_of(what, owner)} must be a list of str that are not empty, but one is.")
    # The same object where it can be: a million tasks share a few sets.
    return values if isinstance(values, frozenset) else frozenset(found)


def string_pairs(what: str, values: Mapping[str, str]) -> dict[str, str]:
    """The values as a dict from string to string.

    Raises:
        StateException: not a mapping, or a key or value is no string.
    """
    if not isinstance(values, Mapping):
        raise StateException(f"The {what} ({shown(values)}) must be a mapping of strings to strings.")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise StateException(
                f"The {what} must be a mapping of strings to strings, but one is {shown(key)}: {shown(value)}."
            )
    return dict(values)
