"""Answers JSON Lines of requests, line by line; what is wrong with one does not hide the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.output import FINDING, FINE, write_json
from task_assignor.cli.planning import error_to_json
from task_assignor.sdk import StreamsException
from task_assignor.sdk.snapshot_files import iter_documents


def answer_requests(path: str, answer: Callable[[JsonValue], dict[str, Any]]) -> int:
    """Write one line per request: its `id` and the `response`, or the `error`.

    Args:
        path: a file of requests, or of objects with a member `request`; `-`: standard input.
        answer: request -> response; one with a member `error` is a finding. It raises StreamsException for no request.

    Returns:
        The exit code: 1 if there was an error, else 0.
    """
    worst = FINE
    for document in iter_documents(path):
        name = document.value.get("id") if isinstance(document.value, dict) else None
        name = name if isinstance(name, (str, int)) and not isinstance(name, bool) else None
        try:
            if document.error is not None:
                raise document.error
            value = JsonValue(document.value)
            if isinstance(document.value, dict) and "request" in document.value:
                value = value["request"]
            response = answer(value)
        except StreamsException as error:
            worst = FINDING
            write_json(error_to_json(name, document.line, str(error)))
            continue
        if "error" in response:
            worst = FINDING
        write_json({**({} if name is None else {"id": name}), "response": response})
    return worst
