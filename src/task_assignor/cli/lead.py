"""`task-assignor lead`: what the leader of a Kafka Streams group would send to its members."""

from __future__ import annotations

from typing import Annotated

import typer

from task_assignor.cli.answers import answer_requests
from task_assignor.cli.lead_json import answer_lead
from task_assignor.cli.options import input_argument
from task_assignor.cli.output import keep_stdout_for_answers, survive_any_text
from task_assignor.cli.planning import make_current_folder_importable


def lead(
    source: Annotated[str, input_argument("FILE", "Requests as JSON Lines")],
) -> None:
    """Lead Kafka Streams groups: tasks, threads, revocations, host maps and follow-ups, as every member is sent them.

    Exit code 0: every request has an answer. 1: a request is wrong, or the group cannot be led. 2: the file
    cannot be read.
    """
    keep_stdout_for_answers()
    survive_any_text()
    make_current_folder_importable()
    raise typer.Exit(answer_requests(source, answer_lead))
