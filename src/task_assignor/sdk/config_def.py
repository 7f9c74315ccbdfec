"""`ConfigKey`: how a setting is declared, ours and those of assignors. What is done with them is in `settings.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs

ConfigType = Literal["string", "int", "long", "boolean", "list", "class"]


class _NoDefault:
    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        # The one below, in whatever process: it is compared with `is`.
        return "REQUIRED"


REQUIRED = _NoDefault()


@attrs.frozen(kw_only=True)
class ConfigKey:
    """A setting: its key, type, default and limits.

    Args:
        name: the key, in Kafka's dotted style.
        type: `string`, `int` (32 bits), `long` (64 bits), `boolean`, `list` (of strings) or `class`.
        default: value if the key is not given; None: not set; `REQUIRED`: must be given.
        doc: one sentence for the reference.
        minimum: least allowed number.
        maximum: greatest allowed number.
        choices: allowed strings; empty: any.
        validator: takes the parsed value and returns what is wrong with it (a sentence of what is expected), or None.
    """

    name: str
    type: ConfigType
    default: object = REQUIRED
    doc: str = ""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    validator: Callable[[object], str | None] | None = None
