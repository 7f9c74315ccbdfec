"""`task-assignor compare`: several assignors, or answers recorded before, measured on the same states."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Protocol

import attrs
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from task_assignor.cli.options import Settings, State, json_option
from task_assignor.cli.output import (
    BAD_INPUT,
    FINDING,
    FINE,
    keep_stdout_for_answers,
    place_of,
    survive_any_text,
    write_error,
    write_json,
    write_line,
    write_pretty,
    write_to_stderr,
)
from task_assignor.cli.planning import Planner, error_to_json, parse_settings
from task_assignor.cli.recorded import RecordedAnswers
from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    SnapshotException,
    StateRecord,
    StreamsConfig,
    TaskAssignment,
    iter_states,
)
from task_assignor.sdk.config_keys import STATE_KEYS
from task_assignor.sdk.text import counted, printable
from task_assignor.validation import Measures, measure
from task_assignor.validation.measures import is_better

_NAMES = [field.name for field in attrs.fields(Measures)]


def compare(
    state: State,
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="A B ...",
            help="Names of assignors, dotted paths, or files of recorded answers (as `plan --json` has them).",
        ),
    ],
    settings: Settings = None,
    as_json: Annotated[bool, json_option("state", ", and one with the sums")] = False,
) -> None:
    """Measure assignors beside each other: moves, lag to restore, balance, standbys, racks, violations.

    Of one state all measures are shown; of many the sums, the worst of each, and where they differ.

    Exit code 0: all answers are valid. 1: one is not. 2: there is no answer to a state, or the input is bad.
    """
    keep_stdout_for_answers()
    survive_any_text()
    if candidates.count("-") + (state == "-") > 1:
        raise SnapshotException("Standard input can be read once only: as the state, or as one of the answers.")
    columns = [_candidate(name, state, settings or []) for name in candidates]
    totals = _Totals(candidates)
    if not any(isinstance(column, _Assignor) for column in columns):
        for key in sorted(parse_settings(settings or [], None).keys() - STATE_KEYS.keys()):
            write_to_stderr(f"Warning: The setting {printable(key)} changes nothing in recorded answers.\n")
    worst, only = FINE, None
    for record in iter_states(state):
        answers = [column.answer(record) for column in columns]
        row = _Row.of(record, answers)
        worst = max(worst, row.exit_code)
        totals.add(row)
        if as_json:
            write_json(row.to_json(candidates))
        else:
            _show_errors(row, state, candidates)
            only = row
    for column in columns:
        column.close()
    if totals.count == 1:
        if not as_json and only is not None and any(only.measures):
            write_pretty(
                Text(only.label(state), style="bold"), _table(candidates, [_values(one) for one in only.measures])
            )
    elif as_json:
        write_json(totals.to_json())
    elif totals.summed:
        title = (
            f"All {totals.count} states"
            if totals.summed == totals.count
            else f"{totals.summed} of {totals.count} states"
        )
        write_pretty(Text(title, style="bold"), _table(candidates, totals.sums))
        for line in totals.lines():
            write_line(line)
    raise typer.Exit(worst)


@attrs.frozen
class _Answer:
    """What one candidate says to one state; without an assignment there is an error."""

    state: ApplicationState | None = None
    assignment: TaskAssignment | None = None
    error: str = ""


class _Candidate(Protocol):
    def answer(self, record: StateRecord) -> _Answer: ...

    def close(self) -> None: ...


class _Assignor:
    """An assignor that is asked."""

    def __init__(self, name: str, settings: Sequence[str]) -> None:
        self._planner = Planner(parse_settings(settings, name))
        for sentence in self._planner.unused:
            write_to_stderr(f"Warning: {printable(sentence)}\n")

    def answer(self, record: StateRecord) -> _Answer:
        plan = self._planner.plan(record)
        return _Answer(plan.state, plan.assignment, plan.error)

    def close(self) -> None:
        pass


class _Recorded:
    """Answers that were given before; measured with the settings of the others, or the measures would not be of one kind."""

    def __init__(self, path: str, state_path: str, settings: Sequence[str]) -> None:
        self._answers = RecordedAnswers(path, state_path)
        given = parse_settings(settings, None)
        self._settings = {key: value for key, value in given.items() if key in STATE_KEYS}

    def answer(self, record: StateRecord) -> _Answer:
        document = self._answers.advance()
        if record.state is None:
            return _Answer(error=str(record.error))
        try:
            configs = StreamsConfig.of_state(record.state, self._settings).assignment_configs
            state = ApplicationState(record.state.columns, configs, record.state.now_ms)
            return _Answer(state, self._answers.read(document, record))
        except (ConfigException, SnapshotException) as error:
            return _Answer(record.state, error=str(error))

    def close(self) -> None:
        self._answers.expect_end()


def _candidate(name: str, state_path: str, settings: Sequence[str]) -> _Candidate:
    # A path of Python has no slash, and a name of an assignor is hardly that of a file here.
    is_file = name == "-" or os.sep in name or name.endswith((".json", ".jsonl", ".gz"))
    is_file = is_file or os.path.isfile(name)  # noqa: PTH113  (raises where there can be no such name)
    return _Recorded(name, state_path, settings) if is_file else _Assignor(name, settings)


@attrs.frozen
class _Row:
    """One state with the measures of all candidates; None where there is no answer."""

    record: StateRecord
    measures: list[Measures | None]
    errors: list[str]
    differ: bool

    @classmethod
    def of(cls, record: StateRecord, answers: Sequence[_Answer]) -> _Row:
        measures = [
            None if one.assignment is None or one.state is None else measure(one.state, one.assignment)
            for one in answers
        ]
        placed = [_placed(one.assignment) for one in answers if one.assignment is not None]
        return cls(record, measures, [one.error for one in answers], any(one != placed[0] for one in placed[1:]))

    @property
    def exit_code(self) -> int:
        if any(one is None for one in self.measures):
            return BAD_INPUT
        return FINDING if any(one is not None and one.errors for one in self.measures) else FINE

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        if self.record.state is None:
            return error_to_json(self.record.id, self.record.line, str(self.record.error))
        answer: dict[str, Any] = {"line": self.record.line} if self.record.id is None else {"id": self.record.id}
        return {
            **answer,
            "differ": self.differ,
            "measures": [
                {"name": name, "error": error} if one is None else {"name": name, **one.values()}
                for name, one, error in zip(names, self.measures, self.errors, strict=True)
            ],
        }

    def label(self, path: str) -> str:
        if self.record.id is not None:
            return printable(str(self.record.id))
        return place_of(path, self.record.line)


def _placed(assignment: TaskAssignment) -> dict[Any, Any]:
    return {one.process_id: dict(one.tasks) for one in assignment}


class _Totals:
    """Sums over all states, where each candidate is worst, and where they differ."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.count = self.summed = 0
        self.differing: list[str] = []
        self.sums: list[dict[str, float]] = [dict.fromkeys(_NAMES, 0) for _ in names]
        self._worst: list[dict[str, tuple[float, str]]] = [{} for _ in names]

    def add(self, row: _Row) -> None:
        self.count += 1
        label = row.label("line") if row.record.id is not None else f"line {row.record.line}"
        if row.differ:
            self.differing.append(label)
        # What one candidate has no answer to is not summed for the others: the sums would not be of the same states.
        if any(one is None for one in row.measures):
            return
        self.summed += 1
        for sums, worst, one in zip(self.sums, self._worst, row.measures, strict=True):
            assert one is not None
            for name, value in one.values().items():
                sums[name] += value
                if name not in worst or is_better(name, worst[name][0], value):
                    worst[name] = (value, label)

    def to_json(self) -> dict[str, Any]:
        return {
            "states": self.count,
            "summed": self.summed,
            "differing": self.differing,
            "sums": [{"name": name, **sums} for name, sums in zip(self.names, self.sums, strict=True)],
            "worst": [
                {"name": name, **{key: {"value": value, "state": state} for key, (value, state) in worst.items()}}
                for name, worst in zip(self.names, self._worst, strict=True)
            ],
        }

    def lines(self) -> Iterator[str]:
        shown = ", ".join(self.differing[:5]) + (", ..." if len(self.differing) > 5 else "")
        yield f"They differ on {counted(len(self.differing), 'state')}{f': {shown}' if shown else ''}."
        for name, worst in zip(self.names, self._worst, strict=True):
            # Sums hide the one rebalance that hurts.
            found = [
                (key, *worst[key]) for key in ("moved", "lag_to_restore", "errors") if key in worst and worst[key][0]
            ]
            if found:
                parts = (f"{key} {_shown(value)} ({state})" for key, value, state in found)
                yield f"Worst of {printable(name)}: {', '.join(parts)}."


def _show_errors(row: _Row, path: str, names: Sequence[str]) -> None:
    label = row.label(path)
    if row.record.state is None:
        write_error(f"{label}: {row.record.error}")
        return
    for name, error in zip(names, row.errors, strict=True):
        if error:
            write_error(f"{label}: {printable(name)}: {error}")


def _values(measures: Measures | None) -> dict[str, float] | None:
    return None if measures is None else measures.values()


def _table(names: Sequence[str], values: Sequence[Mapping[str, float] | None]) -> Table:
    table = Table(header_style="bold")
    table.add_column("measure", no_wrap=True)
    for name in names:
        table.add_column(escape(printable(name)), justify="right", overflow="fold")
    for key in _NAMES:
        of_key = [None if one is None else one[key] for one in values]
        table.add_row(key, *(_cell(key, of_key, number) for number in range(len(names))))
    return table


def _cell(key: str, values: Sequence[float | None], number: int) -> Text:
    value = values[number]
    if value is None:
        return Text("-")
    others = [one for one in values if one is not None]
    best = any(is_better(key, value, one) for one in others) and not any(is_better(key, one, value) for one in others)
    return Text(_shown(value), style="green" if best else "")


def _shown(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
