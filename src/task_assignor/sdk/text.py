"""Words for messages: a value shown briefly and safely, the nearest of some names, what is inexact. No errors are raised here."""

from __future__ import annotations

import difflib
import re
import reprlib
import sys
from collections.abc import Collection, Iterable
from types import FrameType
from typing import Any

from task_assignor.sdk.hidden import visible

_LONGEST = 80
_LIBRARIES = sys.stdlib_module_names | {"attr", "numpy", __name__.partition(".")[0]}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
NAME_RULE = "1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'"
"""What `is_name` asks for, as the end of a sentence."""


def is_url(text: str) -> bool:
    """Whether a text that should be a path is a URL: taken as a path, `s3://bucket/x` is a local folder named `s3:`.

    Examples:
        >>> is_url("s3://bucket/x"), is_url("file:/x"), is_url("/data/x"), is_url("a:b")
        (True, True, False, False)
    """
    return _URL.match(text) is not None


def is_name(value: object) -> bool:
    """Whether Kafka's rule for names of topics allows it (`org.apache.kafka.common.internals.Topic`).

    Such a name is a file name too: it cannot lead out of the folder that it is put in.

    Examples:
        >>> is_name("orders.v2"), is_name("../up"), is_name(".."), is_name("")
        (True, False, False, False)
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and value not in (".", "..")


def perhaps_inexact(codes: Iterable[str]) -> str:
    """What is said of the `inexact` goals of an assignment, in logs and on screens.

    Examples:
        >>> perhaps_inexact({"STANDBY_TAGS", "STANDBY_STATE"})
        'Perhaps not reached exactly: STANDBY_STATE, STANDBY_TAGS.'
    """
    return f"Perhaps not reached exactly: {', '.join(sorted(map(str, codes)))}."


class _Brief(reprlib.Repr):
    """`repr` that stays short for long, deep and huge values, and never fails."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _LONGEST

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print integers of more than 4300 digits.
        return super().repr_int(x, level) if x.bit_length() < 1024 else f"an integer of {x.bit_length()} bits"

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        # Settings may be given where something is wanted that is made of them.
        texts = {
            key: visible(key, value) for key, value in x.items() if isinstance(key, str) and isinstance(value, str)
        }
        return super().repr_dict(x | texts, level)

    def repr_instance(self, x: object, level: int) -> str:
        # The `__repr__` of somebody else's object may raise what it likes.
        try:
            return super().repr_instance(x, level)
        except BaseException:  # noqa: BLE001
            return f"<{type(x).__name__}>"


_BRIEF = _Brief()


def shown(value: object) -> str:
    """`value` as it appears in an error message: its `repr`, shortened."""
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return _BRIEF.repr(value)


def printable(text: str, keep: str = "") -> str:
    r"""A text from outside as it may be shown: a terminal must not take it for commands.

    Args:
        text: the text.
        keep: characters that stay as they are.

    Examples:
        >>> print(printable("a\x1b[31m"))
        a\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, which may be indented by tabs."""
    return printable(text, keep="\n\t")


def failure(error: BaseException) -> str:
    r"""Type and text of somebody else's error on one line, without a full stop; of one without a text only the type.

    Examples:
        >>> failure(KeyError("oops")), failure(ValueError("two\nlines")), failure(MemoryError())
        ("KeyError: 'oops'", 'ValueError: two lines', 'MemoryError')
    """
    text = " ".join(_text_of(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure_at(error: BaseException) -> str:
    """The same with the place in the code that was called, if there is one; where all of it is of libraries, the innermost."""
    return failure(error) + (own_place(error) or _innermost_place(error, frozenset()))


def own_place(error: BaseException) -> str:
    """The innermost place that is of no library, in brackets, below who caught the error; "": there is none.

    Who gives this package, numpy or Python something wrong looks for the line that does, not for the check that sees it.
    """
    return _innermost_place(error, _LIBRARIES)


def _innermost_place(error: BaseException, left_out: Collection[str]) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
        module = str(trace.tb_frame.f_globals.get("__name__", "attr"))  # what attrs generates is of no module
        if module.partition(".")[0] not in left_out:
            place = f" ({place_in(trace.tb_frame, trace.tb_lineno)})"
    return place


def place_in(frame: FrameType, line: int) -> str:
    """A place in somebody else's code: its function and the line."""
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}, line {line}"


def place_of_thread(ident: int | None) -> str:
    """The place that a thread is at now, past the waiting itself; "": there is no such thread, or it runs no Python."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 (there is no other way to see it)
    # Who waits for an event or another thread is what is of interest.
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        frame = frame.f_back
    return "" if frame is None else place_in(frame, frame.f_lineno)


def said(error: BaseException) -> str:
    """The text of an error that somebody else may have made; of one without a text its type.

    Examples:
        >>> said(ValueError("no rack yet.")), said(MemoryError())
        ('no rack yet.', 'MemoryError')
    """
    return _text_of(error) or type(error).__name__


def with_notes(error: BaseException) -> str:
    """The text of an error, and below it its notes: one has the traceback of another process, a client's.

    Examples:
        >>> error = ValueError("it failed")
        >>> error.add_note("The traceback on client-1: ...")
        >>> print(with_notes(error))
        it failed
        The traceback on client-1: ...
    """
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (its `__str__` may raise what it likes)
        return ""


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that looks most like `word`, whatever its case and separators; None if none looks like it.

    Args:
        word: what somebody wrote.
        names: what they may have meant.
        cutoff: how alike they must be, from 0 to 1 (`difflib.SequenceMatcher.ratio`).
    """
    plain = {_plain(name): name for name in sorted(names, reverse=True)}
    found = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def _plain(word: str) -> str:
    return word.casefold().replace("_", ".").replace("-", ".")


def counted(number: int, word: str, plural: str | None = None) -> str:
    """A number of things, as part of a sentence.

    Args:
        number: how many.
        word: what one of them is called.
        plural: what several are called; None: `word` and an s.

    Examples:
        >>> counted(1, "task"), counted(2_000, "task"), counted(0, "batch", "batches")
        ('1 task', '2,000 tasks', '0 batches')
    """
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def duration(milliseconds: int) -> str:
    """A time in the largest unit of which it has at least one, rounded to a tenth.

    Examples:
        >>> duration(600_000), duration(5_400_000), duration(1_500), duration(20)
        ('10 min', '1.5 h', '1.5 s', '20 ms')
    """
    for unit, factor in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= factor:
            return f"{milliseconds / factor:,.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds} ms"


def named(kind: str, name: str) -> str:
    """A thing by its name, as part of a sentence; a name that says itself what it is need not be introduced.

    Examples:
        >>> named("client", "client-3"), named("client", "left")
        ('client-3', 'client left')
    """
    return name if name.startswith(kind) else f"{kind} {name}"


def listed(names: Iterable[str]) -> str:
    """The names, sorted, as part of a sentence."""
    return ", ".join(sorted(names)) or "none"


def camel_case(name: str) -> str:
    """A name of Python as JSON writes it.

    Examples:
        >>> camel_case("max_warmup_replicas")
        'maxWarmupReplicas'
    """
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
