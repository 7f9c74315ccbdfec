"""`task-assignor inspect-run`: what a run folder remembers: commits, assignments, what happened, metrics, states."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from task_assignor.cli.options import json_option
from task_assignor.cli.output import FINE, survive_any_text, write_json, write_pretty
from task_assignor.sdk.ids import ranges
from task_assignor.sdk.text import counted, is_url, printable

if TYPE_CHECKING:
    from task_assignor.runtime import CommitRecord

T = TypeVar("T")

_SHOWN: Final = 20
_LONG: Final = {"task-process-total", "records-lag"}
"""Metrics with a value for each task."""
_QUIET: Final = {"Commits", "Metrics"}


def inspect_run(
    run_dir: Annotated[str, typer.Argument(metavar="DIR", help="The folder of a run, a path or a URL.")],
    as_json: Annotated[bool, json_option("run")] = False,
    log: Annotated[bool, typer.Option("--log", help="The whole log as lines of JSON, and nothing else.")] = False,
) -> None:
    """Look into the folder of a run, while it runs or later: commits, tasks, what happened and why, metrics, states.

    It only reads. Exit code 2: there is no run, or its commits cannot be read.
    """
    survive_any_text()
    from task_assignor.runtime.run_folder.layout import RunLayout, read_application
    from task_assignor.runtime.watching.run_log import read_log

    if log:
        layout, is_empty = RunLayout(run_dir), True
        for line in read_log(layout.storage):
            write_json(line)
            is_empty = False
        if is_empty:
            # Of a run that has not told anything yet, or of none?
            read_application(layout)
    else:
        found = _look(run_dir)
        if as_json:
            write_json(found)
        else:
            _show(found)
    raise typer.Exit(FINE)


def _look(run_dir: str) -> dict[str, Any]:
    """All there is to say of a run."""
    from task_assignor.runtime import CommitLog
    from task_assignor.runtime.run_folder.layout import RunLayout, read_application
    from task_assignor.runtime.watching.run_log import list_states, read_log

    layout = RunLayout(run_dir)
    known = read_application(layout)
    log = CommitLog(run_dir)
    commits, files = _sum_of(list(log.records())), log.output_files()
    # Of those in files it is known whatever history is gone.
    rows = commits["rowsByOutput"] | {
        name: sum(found.file.rows for found in files.of(name)) for name in known.outputs if not files.topic(name)
    }
    commits["rowsByOutput"] = {name: number for name, number in rows.items() if number}
    happened: list[dict[str, Any]] = []
    metrics: dict[str, Any] | None = None
    for line in read_log(layout.storage):
        if line["event"] == "Metrics":
            metrics = _given(line, "metrics", {}) or metrics
        elif line["event"] not in _QUIET:
            happened.append(line)
    return {
        "application": known.application_id,
        "runId": known.run_id,
        "runDir": layout.run_dir,
        "topicsRoot": known.topics_root,
        "topics": sorted(known.identity["topics"]),
        "outputs": {name: rows.get(name, 0) for name in sorted(known.outputs)},
        **commits,
        "happened": happened,
        "metrics": metrics,
        "states": [layout.storage.locate(name) for name in list_states(layout.storage)],
    }


def _sum_of(records: list[CommitRecord]) -> dict[str, Any]:
    outputs: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for record in records:
        for commit in record.tasks.values():
            rows[commit.client] += commit.rows_in
            outputs.update({name: file.rows for name, file in commit.outputs.items()})
    last = records[-1] if records else None
    assignment = next((record.rebalance for record in reversed(records) if record.rebalance is not None), None)
    return {
        "commits": len(records),
        "olderCommits": records[0].number if records else 0,
        "starts": 0 if last is None else last.epoch,
        "batches": sum(len(record.tasks) for record in records),
        "rowsIn": rows.total(),
        "rowsByClient": {client: rows[client] for client in sorted(rows)},
        "rowsByOutput": dict(outputs),
        "firstCommit": None if last is None else _at(records[0].committed_at_ms),
        "lastCommit": None if last is None else _at(last.committed_at_ms),
        "generation": 0 if last is None else last.generation,
        "assignment": {
            name: {"active": list(map(str, tasks.active)), "standby": list(map(str, tasks.standby))}
            for name, tasks in sorted(() if assignment is None else assignment.clients.values(), key=lambda one: one[0])
        },
    }


def _at(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _show(found: dict[str, Any]) -> None:
    about = Table.grid(padding=(0, 2))
    outputs = ", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in found["outputs"].items())
    for name, value in (
        ("application", found["application"]),
        ("topics", f"{', '.join(found['topics'])} in {found['topicsRoot']}"),
        ("outputs", outputs or "none"),
        ("read", f"{counted(found['rowsIn'], 'row')} in {counted(found['batches'], 'batch', 'batches')}"),
        ("commits", f"{counted(found['commits'], 'commit')} by {counted(found['starts'], 'start')}, {_span(found)}"),
        ("states", _states(found["states"])),
    ):
        about.add_row(Text(name, style="bold"), Text(printable(value), overflow="fold"))
    parts: list[Any] = [about]
    if found["assignment"]:
        parts.append(_assignment(found))
    if found["happened"]:
        parts.append(_happened(found["happened"]))
    if found["metrics"]:
        parts.append(_metrics(found["metrics"]))
    write_pretty(*parts)


def _span(found: dict[str, Any]) -> str:
    if not found["commits"]:
        return "none yet"
    older = found["olderCommits"]
    gone = (
        f"; of {counted(older, 'older one')} the history is gone, and what they read is not in the sums, nor what they wrote to topics"
        if older
        else ""
    )
    return f"from {found['firstCommit']} to {found['lastCommit']}{gone}"


def _states(states: list[str]) -> str:
    if not states:
        return "none"
    # `plan` reads files.
    newest = states[-1] if is_url(states[-1]) else f"task-assignor plan {shlex.quote(states[-1])}"
    return f"{len(states)}; the newest: {newest}"


def _assignment(found: dict[str, Any]) -> Table:
    from task_assignor.sdk import TaskId

    table = Table(title=f"The assignment, generation {found['generation']}", title_justify="left", header_style="bold")
    for column in ("client", "active tasks", "standby tasks"):
        table.add_column(column, overflow="fold")
    table.add_column("rows read in all", justify="right")
    for client, tasks in found["assignment"].items():
        cells = [ranges(map(TaskId.parse, tasks[role])) for role in ("active", "standby")]
        table.add_row(
            *(escape(printable(cell)) for cell in (client, *cells)), f"{found['rowsByClient'].get(client, 0):,}"
        )
    return table


def _happened(lines: list[dict[str, Any]]) -> Table:
    told = [line for line in lines if not _is_trivial(line)]
    title = "What happened" if len(told) <= _SHOWN else f"The last {_SHOWN} of {len(told):,} events (--log shows all)"
    shown = told[-_SHOWN:]
    days = {str(line.get("at", ""))[:10] for line in shown}
    day = f", {days.pop()}" if len(days) == 1 else ""
    table = Table(title=escape(printable(f"{title}{day} (UTC)")), title_justify="left", header_style="bold")
    for column in ("at", "event", "what"):
        table.add_column(column, overflow="fold")
    for line in shown:
        at = str(line.get("at", "")).removesuffix("+00:00").replace("T", " ")
        what = "\n".join(map(printable, _said(line).splitlines()))
        table.add_row(*(escape(printable(cell)) for cell in (at[11:] if day else at, str(line["event"]))), escape(what))
    return table


def _given(line: dict[str, Any], key: str, default: T) -> T:
    """A field of a line of the log; one of another kind is none: somebody may have changed the file."""
    value = line.get(key)
    return value if isinstance(value, type(default)) else default


def _is_trivial(line: dict[str, Any]) -> bool:
    """A task that had nothing to restore."""
    return line["event"] == "TaskRestored" and not line.get("rows") and not line.get("snapshotRows")


def _said(line: dict[str, Any]) -> str:
    """What a line of the log says, short."""
    parts = [str(line[key]) for key in ("client", "task") if line.get(key)]
    match line["event"]:
        case "Rebalanced":
            moves: list[Any] = _given(line, "moved", [])
            moved = sum(isinstance(move, list) and any(move[1:2]) for move in moves)
            stays = f"; kept: {line['kept']}" if line.get("kept") else ""
            parts.append(
                f"generation {line.get('generation')}: {line.get('reason')}; {counted(moved, 'task')} moved{stays}"
            )
        case "TaskRestored":
            parts.append(
                f"{line.get('role')}, {counted(_given(line, 'rows', 0), 'changelog row')}, {line.get('seconds')} s"
            )
        case "RunFinished":
            parts.append(f"{counted(_given(line, 'rowsIn', 0), 'row')} in {line.get('seconds')} s")
        case "LinesDropped":
            parts.append(f"{counted(_given(line, 'lines', 0), 'line')} before, since the log could not be written")
        case _:
            parts += [str(line[key]) for key in ("reason", "message", "attempt") if line.get(key)]
    return " ".join(parts)


def _metrics(metrics: dict[str, Any]) -> Table:
    table = Table(title="Metrics, as written last", title_justify="left", header_style="bold")
    table.add_column("metric")
    table.add_column("value", overflow="fold")
    for name, value in metrics.items():
        if isinstance(value, dict):
            if name in _LONG or not value:
                continue
            value = ", ".join(f"{label} {_amount(number)}" for label, number in value.items())
        table.add_row(escape(printable(name)), escape(printable(_amount(value))))
    return table


def _amount(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
