"""How long it takes to make a state from columns or from a snapshot, and to write a snapshot."""

from __future__ import annotations

import json
from functools import partial

from benchmarks.bench_growth import running_state, state_from_columns
from benchmarks.case import Case, Goal, Work
from task_assignor.sdk import state_from_json, state_to_json

LARGE = (1_000_000, 10_000)
DOCUMENT = (100_000, 1_000)


def cases(is_quick: bool = False) -> list[Case]:
    """The largest state that we plan for; the snapshot of a group that is large today."""
    large, document = ((1_000, 10), (500, 5)) if is_quick else (LARGE, DOCUMENT)
    columns_name, document_name = (f"state/{tasks}x{clients}" for tasks, clients in (LARGE, DOCUMENT))
    return [
        Case(
            name=f"{columns_name} from columns",
            prepare=partial(state_from_columns, *large),
            goal=Goal(seconds=5, gigabytes=3),
        ),
        Case(
            name=f"{document_name} from a snapshot",
            prepare=partial(_reading, *document),
            describe=lambda _: {"previous tasks and lags": "2 per task"},
        ),
        Case(
            name=f"{document_name} to a snapshot",
            prepare=partial(_writing, *document),
            describe=lambda text: {"MB": round(len(text) / 1e6, 1)},
        ),
    ]


def _reading(tasks: int, clients: int) -> Work:
    text = json.dumps(state_to_json(running_state(tasks, clients)), separators=(",", ":")).encode()
    return lambda: state_from_json(text)


def _writing(tasks: int, clients: int) -> Work:
    state = running_state(tasks, clients)
    return lambda: json.dumps(state_to_json(state), separators=(",", ":"))
