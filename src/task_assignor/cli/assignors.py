"""`task-assignor assignors`: which assignors there are, and which settings they take."""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Annotated, Any

import attrs
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from task_assignor.cli.options import json_option
from task_assignor.cli.output import (
    FINDING,
    FINE,
    keep_stdout_for_answers,
    others_code,
    survive_any_text,
    write_json,
    write_pretty,
)
from task_assignor.sdk import ConfigException, find_assignor_class
from task_assignor.sdk.assignor_classes import registrations
from task_assignor.sdk.text import printable, printable_lines


@attrs.frozen
class _Listed:
    """One registered assignor."""

    name: str
    path: str
    package: str
    doc: str = ""
    settings: tuple[str, ...] = ()
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"name": self.name, "class": self.path, "package": self.package}
        if self.error:
            return {**answer, "error": self.error}
        return {**answer, "doc": self.doc, "settings": list(self.settings)}

    def to_text(self) -> Text:
        lines = [self._line(f"CANNOT BE USED. {self.error}", style="red") if self.error else self._line(self.doc)]
        if self.settings:
            lines.append(self._line(f"settings: {', '.join(self.settings)}"))
        lines.append(self._line(f"{self.path} ({self.package})", style="dim"))
        return Text("\n").join(lines)

    @staticmethod
    def _line(text: str, style: str = "") -> Text:
        return Text(printable_lines(text), style=style)


def assignors(as_json: Annotated[bool, json_option("assignor")] = False) -> None:
    """List the registered assignors.

    Exit code 0: all can be used. 1: one cannot, for instance because two packages register its name.
    """
    keep_stdout_for_answers()
    survive_any_text()
    found = [_look_at(name, points) for name, points in registrations().items()]
    if as_json:
        for listed in found:
            write_json(listed.to_json())
    else:
        table = Table(header_style="bold", show_lines=True)
        table.add_column("name", no_wrap=True)
        table.add_column("what it does", overflow="fold")
        for listed in found:
            table.add_row(escape(printable(listed.name)), listed.to_text())
        write_pretty(table)
    raise typer.Exit(FINDING if any(listed.error for listed in found) else FINE)


def _look_at(name: str, points: list[importlib.metadata.EntryPoint]) -> _Listed:
    path = ", ".join(point.value for point in points)
    package = ", ".join(f"{point.dist.name} {point.dist.version}" for point in points if point.dist is not None)
    try:
        with others_code():
            found = find_assignor_class(name)
    except ConfigException as error:
        told = (f"It must be {problem.expected}. {problem.advice}" for problem in error.problems)
        return _Listed(name, path, package, error=" ".join(told))
    # `inspect.getdoc` would take that of a base class.
    doc = inspect.cleandoc(found.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    keys = sorted(key.name for key in found.config_keys)
    return _Listed(name, path, package, doc, tuple(keys))
