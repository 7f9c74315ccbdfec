"""From `ApplicationState` to `TaskAssignment`: the modules that decide are those of the walk in the architecture page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from task_assignor.builtin_assignors import FallbackPriorTaskAssignor, StickyTaskAssignor
from task_assignor.sdk import TaskAssignor
from task_assignor.testing import a_client, a_state, stateful_tasks

PACKAGE = "task_assignor."
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
ROOMS = {"builtin_assignors", "utils", "engine", "kafka_order"}
# What is handed from room to room: values, questions, answers. They decide nothing.
VALUES = {"engine.items", "engine.actives.problem", "engine.copies.goals", "utils.result"}


def doors_of(assignor: TaskAssignor) -> list[str]:
    """The modules whose functions were called from another room while the assignor decided, in order."""
    state = a_state(
        stateful_tasks(0, 12),
        [a_client(1, active=["0_0", "0_1", "0_2"]), a_client(2, active=["0_3"]), 3],
        num_standby_replicas=1,
    )
    doors: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        room, made = module.removeprefix(PACKAGE).split(".")[0], frame.f_code.co_filename.startswith("<")
        if event != "call" or not module.startswith(PACKAGE) or room not in ROOMS or made:
            return
        caller = frame.f_back
        while caller is not None and not caller.f_globals.get("__name__", "").startswith(PACKAGE):
            caller = caller.f_back
        from_room = "" if caller is None else caller.f_globals["__name__"].removeprefix(PACKAGE).split(".")[0]
        name = module.removeprefix(PACKAGE)
        if from_room != room and name not in VALUES and name not in doors:
            doors.append(name)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        assignor.assign(state)
    finally:
        sys.setprofile(before)
    return doors


def test_the_walk_is_that_of_the_architecture_page_and_six_modules_long() -> None:
    text = PAGE.read_text(encoding="utf-8")
    walk = text[text.index("### A walk") :].split("\n## ")[0]
    said = [name.replace("/", ".") for name in re.findall(r"^\d\. `([\w/]+)\.py`", walk, re.MULTILINE)]

    assert doors_of(StickyTaskAssignor()) == said
    assert len(said) <= 6


@pytest.mark.parametrize("assignor", [FallbackPriorTaskAssignor])
def test_others_go_the_same_way(assignor: type[TaskAssignor]) -> None:
    """One more utility asks for the probing rebalance."""
    sticky = doors_of(StickyTaskAssignor())
    assert doors_of(assignor()) == ["builtin_assignors.fallback_prior", *sticky[1:], "utils.refiner"]
