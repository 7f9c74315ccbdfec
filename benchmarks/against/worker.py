"""What runs in the other checkout too: states out of a file, answers and processor time into another one.

Only names that every version of the package has are used here.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path
from typing import Any

from task_assignor import builtin_assignors
from task_assignor.sdk import ApplicationState, AssignmentConfigs, Role, TaskAssignor


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The placement of one state, and the processor seconds of the fastest of its calls."""
    state = ApplicationState(question["columns"], AssignmentConfigs(**question["configs"]))
    fastest = float("inf")
    for _ in range(question["calls"]):
        assignor: TaskAssignor = getattr(builtin_assignors, question["assignor"])()
        assignor.configure(question["settings"])
        start = time.process_time()
        found = assignor.assign(state).columns
        fastest = min(fastest, time.process_time() - start)
    assert found is not None
    standby_client, standby_task = found.pairs(Role.STANDBY)
    return {
        "owner": found.active_owner(),
        "standby_task": standby_task,
        "standby_client": standby_client,
        "seconds": fastest,
    }


def main(questions: Path, answers: Path) -> None:
    """Answer all questions of a file."""
    with questions.open("rb") as source, answers.open("wb") as target:
        while True:
            try:
                question = pickle.load(source)
            except EOFError:
                return
            pickle.dump(answer(question), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
