"""`task-assignor validate`: whether an assignment is right for a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import attrs
import typer

from task_assignor.cli.options import State, json_option
from task_assignor.cli.output import (
    BAD_INPUT,
    FINDING,
    FINE,
    place_of,
    survive_any_text,
    write_error,
    write_json,
    write_line,
)
from task_assignor.cli.planning import error_to_json
from task_assignor.cli.recorded import RecordedAnswers
from task_assignor.sdk import SnapshotException, iter_states
from task_assignor.sdk.text import printable
from task_assignor.validation import ValidationReport, report_violations


def validate(
    state: State,
    assignment: Annotated[
        str,
        typer.Argument(metavar="ASSIGNMENT", help="A list of placements, or the answers of `plan --json`, in order."),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as findings too.")] = False,
    as_json: Annotated[bool, json_option("state")] = False,
) -> None:
    """Say everything that is wrong with an assignment.

    Exit code 0: nothing; 1: something; 2: the input is bad.
    """
    survive_any_text()
    if state == assignment == "-":
        raise SnapshotException("Standard input can be the state or the assignment, not both.")
    worst = FINE
    for verdict in _verdicts(state, assignment):
        worst = max(worst, verdict.exit_code(strict))
        label = verdict.label(state)
        if as_json:
            write_json(verdict.to_json())
        elif verdict.report is None:
            write_error(f"{label}{verdict.error}")
        else:
            write_line(f"{label if verdict.line else ''}{verdict.report}")
    raise typer.Exit(worst)


@attrs.frozen
class _Verdict:
    """What is to say about one state and its assignment."""

    line: int
    id: str | int | None
    report: ValidationReport | None = None
    error: str = ""

    def exit_code(self, strict: bool) -> int:
        if self.report is None:
            return BAD_INPUT
        return FINDING if self.report.errors or (strict and self.report.warnings) else FINE

    def label(self, file: str) -> str:
        name = "" if self.id is None else f" ({printable(str(self.id))})"
        return f"{place_of(file, self.line)}{name}: "

    def to_json(self) -> dict[str, Any]:
        if self.report is None:
            return error_to_json(self.id, self.line, self.error)
        answer: dict[str, Any] = {} if self.id is None else {"id": self.id}
        kafka = self.report.kafka_error
        return {
            **answer,
            "valid": self.report.is_valid,
            "kafkaError": None if kafka is None else kafka.value,
            "violations": [
                {
                    "kind": violation.kind.value,
                    "severity": violation.severity.value,
                    "task": None if violation.task is None else str(violation.task),
                    "processId": None if violation.process_id is None else str(violation.process_id),
                    "message": violation.message,
                }
                for violation in self.report.violations
            ],
        }


def _verdicts(state_path: str, assignment_path: str) -> Iterator[_Verdict]:
    answers = RecordedAnswers(assignment_path, state_path)
    for record in iter_states(state_path):
        document = answers.advance()
        try:
            if record.state is None:
                raise record.error or SnapshotException("There is no state.")
            report = report_violations(record.state, answers.read(document, record))
        except SnapshotException as error:
            yield _Verdict(record.line, record.id, None, str(error))
        else:
            yield _Verdict(record.line, record.id, report)
    answers.expect_end()
