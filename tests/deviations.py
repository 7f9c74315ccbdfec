"""Where we differ from the JVM on purpose: the table `deviations.toml`, read and asked; what its conditions mean is said here.

A comparison that finds a difference asks `explanations`: where nothing explains it, it is a bug. An entry that explains
nothing any more is noticed too (`tests/utils/test_deviations.py`, `tests/jvm`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

from task_assignor.kafka_order.java_order import hash_map_order
from tests.vectors import Vector


class Difference(Enum):
    """How our answer differs from Kafka's."""

    OTHER = "other tasks on some client"
    THROWN = "Kafka throws"
    CHEAPER = "the objective is less than in some run of Kafka's"
    DEARER = "the objective is more than in some run of Kafka's"
    STANDBYS_LOST = "Kafka's answer has fewer standbys than were given"


@attrs.frozen
class Deviation:
    """One difference.

    Args:
        name: heading in docs/deviations.md.
        operations: operations of the vectors that it concerns.
        explains: the kinds of difference.
        when: what must hold of a vector's input for our answer to differ: one of `CONDITIONS`.
        reason: why we differ.
        pinned_by: the test that says what we do instead, as pytest names it.
        only_in_jvm: no vector needs it; the comparison with the living JVM does.
    """

    name: str
    operations: tuple[str, ...] = attrs.field(converter=tuple)
    explains: tuple[Difference, ...]
    when: str
    reason: str
    pinned_by: str
    only_in_jvm: bool = False

    def applies(self, vector: Vector) -> bool:
        """Whether the vector's input is such that our answer may differ."""
        return CONDITIONS[self.when](vector)


def _configs(vector: Vector) -> Mapping[str, Any]:
    configs: Mapping[str, Any] = vector.json["state"]["configs"]
    return configs


def _has_tags(vector: Vector) -> bool:
    return bool(_configs(vector)["rackAwareAssignmentTags"])


def _balances_subtopologies(vector: Vector) -> bool:
    return bool(_configs(vector)["rackAwareAssignmentStrategy"] == "balance_subtopology")


def _overrides_a_missing_cost(vector: Vector) -> bool:
    params = vector.json["params"]
    pairs = (("rackAwareTrafficCost", "trafficCost"), ("rackAwareNonOverlapCost", "nonOverlapCost"))
    return any(_configs(vector)[cost] is None and params.get(override) is not None for cost, override in pairs)


def _has_racks(vector: Vector, racks: object) -> bool:
    return any(each["rackIds"] == racks for task in vector.json["state"]["tasks"] for each in task["topicPartitions"])


def _selects_an_unplaced_task(vector: Vector) -> bool:
    tasks = vector.json["params"].get("tasks")
    if tasks in ("stateful", "stateless"):
        stateful = tasks == "stateful"
        tasks = [task["id"] for task in vector.json["state"]["tasks"] if task["isStateful"] is stateful]
    placed = {task for placement in vector.json["assignment"] for task in placement["activeTasks"]}
    return not set(tasks or ()) <= placed


def _names_of_topologies(vector: Vector) -> set[str]:
    return {task["id"].rpartition("__")[0] for task in vector.json["state"]["tasks"]}


def _some_share_a_bucket(vector: Vector) -> bool:
    """Whether the order in which the tasks are put into Kafka's set can be seen in its order."""
    tasks = vector.state.columns.tasks
    stateful = np.flatnonzero(tasks.has_changelog)
    forwards = stateful[hash_map_order(tasks, stateful)]
    backwards = stateful[::-1][hash_map_order(tasks, stateful[::-1])]
    return not np.array_equal(forwards, backwards)


CONDITIONS: Final[Mapping[str, Callable[[Vector], bool]]] = {
    "always": lambda vector: True,
    "tags are set": _has_tags,
    "tags are set and no standbys are wanted": lambda vector: (
        _has_tags(vector) and _configs(vector)["numStandbyReplicas"] == 0
    ),
    "standbys are given": lambda vector: any(placed["standbyTasks"] for placed in vector.json["assignment"]),
    "task ids share a bucket": _some_share_a_bucket,
    "racks are usable": lambda vector: bool(vector.expected["rackAware"]),
    "racks of a partition are unknown": lambda vector: _has_racks(vector, None),
    "a partition is in no rack": lambda vector: _has_racks(vector, []),
    "a cost is overridden that is not configured": _overrides_a_missing_cost,
    "tasks are selected": lambda vector: vector.json["params"].get("tasks") is not None,
    "a selected task is active nowhere": _selects_an_unplaced_task,
    "sub-topologies are balanced": _balances_subtopologies,
    "sub-topologies are not balanced": lambda vector: not _balances_subtopologies(vector),
    "sub-topologies of several topologies are balanced": lambda vector: (
        _balances_subtopologies(vector) and len(_names_of_topologies(vector)) > 1
    ),
}
"""What the column `when` of the table may say of a vector's input."""


def _read(row: Mapping[str, Any]) -> Deviation:
    deviation = Deviation(**{**row, "explains": tuple(Difference[name] for name in row["explains"])})
    if deviation.when not in CONDITIONS:
        raise ValueError(f"{deviation.name}: there is no condition {deviation.when!r}")
    return deviation


DEVIATIONS: Final = tuple(
    _read(row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["deviation"]
)


def explanations(vector: Vector, difference: Difference) -> list[Deviation]:
    """The deviations that explain such a difference; none: it is a bug."""
    return [
        deviation
        for deviation in DEVIATIONS
        if vector.json["operation"] in deviation.operations
        and difference in deviation.explains
        and deviation.applies(vector)
    ]
