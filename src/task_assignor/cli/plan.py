"""`task-assignor plan`: what an assignor would do with given states."""

from __future__ import annotations

import shlex
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from task_assignor.cli.group_plans import GroupPlanner, consumer_assignors, is_group, show_error, show_group
from task_assignor.cli.options import Settings, file_option, input_argument, json_option
from task_assignor.cli.output import (
    BAD_INPUT,
    FINE,
    keep_stdout_for_answers,
    others_code,
    place_of,
    survive_any_text,
    write_error,
    write_json,
    write_line,
    write_pretty,
    write_to_stderr,
)
from task_assignor.cli.planning import ASSIGNOR_KEY, Plan, Planner, parse_settings, read_settings
from task_assignor.cli.tables import PlanView
from task_assignor.sdk import ConfigException, find_assignor_class, iter_states
from task_assignor.sdk.hidden import without_secrets
from task_assignor.sdk.snapshot_files import STANDARD_INPUT
from task_assignor.sdk.text import counted, perhaps_inexact, printable


def plan(
    state: Annotated[str, input_argument("STATE", "A snapshot or a consumer group, or many as JSON Lines")],
    assignor: Annotated[
        str | None,
        typer.Option("--assignor", "-a", metavar="NAME", help="A name that `assignors` lists, or a dotted path."),
    ] = None,
    settings: Settings = None,
    config: Annotated[
        Path | None,
        file_option("--config", "-c", what="Settings in a .properties file, over the snapshot's and under --set."),
    ] = None,
    as_json: Annotated[bool, json_option("state")] = False,
    with_traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an assignor failed, on standard error.")
    ] = False,
) -> None:
    """Show what an assignor would do with a state, or with the members and topics of a plain consumer group.

    Exit code 0: every state has a valid plan. 1: a plan is not valid, or a group has none. 2: a state has no plan,
    because the input is bad or the assignor failed.
    """
    keep_stdout_for_answers()
    survive_any_text()
    given = parse_settings(settings or [], assignor)
    groups = GroupPlanner(given, config)
    try:
        # What is the name of no task assignor can only be meant for groups.
        planner = Planner({} if groups.is_only_for_groups else given, config)
    except ConfigException as error:
        if with_traceback and error.__cause__ is not None:
            trace = "".join(traceback.format_exception(error.__cause__))
            in_file = {} if config is None else read_settings(config)[0]
            write_to_stderr(without_secrets(trace, {**in_file, **given}))
        # An assignor that does not take its settings is the one that was meant.
        if any(problem.key == ASSIGNOR_KEY and not _is_assignor(problem.value) for problem in error.problems):
            raise ConfigException(f"{error} For consumer groups there are: {consumer_assignors()}.") from error
        raise
    warned = groups.unused if groups.is_only_for_groups else planner.unused
    _warn(warned)
    worst = FINE
    for record in iter_states(state):
        if is_group(record.document):
            # What matters to task assignors may not matter here.
            unused = [sentence for sentence in groups.unused_in(record.document) if sentence not in warned]
            _warn(unused)
            warned = [*warned, *unused]
            worst = max(worst, show_group(groups, record, as_json=as_json, file=state))
            continue
        if groups.is_only_for_groups:
            show_error(record, groups.why_no_group(record), as_json=as_json, file=state)
            worst = max(worst, BAD_INPUT)
            continue
        found = planner.plan(record)
        worst = max(worst, found.exit_code)
        where = place_of(state, record.line)
        if with_traceback and found.traceback:
            write_to_stderr(found.traceback)
        if as_json:
            write_json(found.to_json(record))
        elif found.state is None or found.assignment is None:
            write_error(f"{where}: {found.error}")
        else:
            title = [] if record.id is None else [Text(printable(str(record.id)), style="bold")]
            view = PlanView(found.state, found.assignment)
            write_pretty(*title, view.table(), view.summary())
            if found.assignment.inexact:
                write_line(printable(perhaps_inexact(found.assignment.inexact)))
            for line in _warnings(found, state, has_settings=bool(settings or config)):
                write_line(printable(line))
        if found.report is not None and not found.report.is_valid:
            write_error(f"{where}: {found.report}")
    raise typer.Exit(worst)


def _is_assignor(name: object) -> bool:
    """Whether it names a task assignor."""
    try:
        with others_code():
            find_assignor_class(name)
    except ConfigException:
        return False
    return True


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        write_to_stderr(f"Warning: {printable(sentence)}\n")


def _warnings(found: Plan, state: str, *, has_settings: bool) -> list[str]:
    """One line if the plan has warnings; where to see them, if `validate` would find the same."""
    if found.report is None or not found.report.is_valid or not found.report.warnings:
        return []
    counts = Counter(violation.kind.value for violation in found.report.warnings)
    line = f"{counted(counts.total(), 'warning')} ({', '.join(counts)})"
    if has_settings:
        # What is validated is the answer to the state as it is in the file.
        return [f"{line}."]
    name = "STATE" if state == STANDARD_INPUT else shlex.quote(state)
    return [f"{line}, shown by: task-assignor plan ... --json | task-assignor validate {name} -"]
