"""Where we differ from the JVM on purpose: one list, each entry with its reason and the test that pins it.

A comparison that finds a difference asks `explanations`: where nothing explains it, it is a bug. An entry that explains
nothing any more is noticed too (`tests/utils/test_deviations.py`, `tests/jvm`). The same list in words, for users:
docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

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
        applies: whether a vector's input is such that our answer may differ.
        reason: why we differ.
        pinned_by: the test that says what we do instead, as pytest names it.
        only_in_jvm: no vector needs it; the comparison with the living JVM does.
    """

    name: str
    operations: tuple[str, ...]
    explains: tuple[Difference, ...]
    applies: Callable[[Vector], bool] = attrs.field(repr=False)
    reason: str
    pinned_by: str
    only_in_jvm: bool = False


def _no_standbys_wanted_with_tags(vector: Vector) -> bool:
    configs = vector.json["state"]["configs"]
    return bool(configs["rackAwareAssignmentTags"]) and configs["numStandbyReplicas"] == 0


def _has_standbys(vector: Vector) -> bool:
    return any(placement["standbyTasks"] for placement in vector.json["assignment"])


def _has_overrides_for_missing_costs(vector: Vector) -> bool:
    configs, params = vector.json["state"]["configs"], vector.json["params"]
    pairs = (
        (configs["rackAwareTrafficCost"], params.get("trafficCost")),
        (configs["rackAwareNonOverlapCost"], params.get("nonOverlapCost")),
    )
    return any(configured is None and override is not None for configured, override in pairs)


def _has_unknown_racks(vector: Vector) -> bool:
    return any(each["rackIds"] is None for task in vector.json["state"]["tasks"] for each in task["topicPartitions"])


def _has_empty_racks(vector: Vector) -> bool:
    return any(each["rackIds"] == [] for task in vector.json["state"]["tasks"] for each in task["topicPartitions"])


def _selects_tasks(vector: Vector) -> bool:
    return vector.json["params"].get("tasks") is not None


def _selects_an_unplaced_task(vector: Vector) -> bool:
    tasks = vector.json["params"].get("tasks")
    if tasks in ("stateful", "stateless"):
        stateful = tasks == "stateful"
        tasks = [task["id"] for task in vector.json["state"]["tasks"] if task["isStateful"] is stateful]
    placed = {task for placement in vector.json["assignment"] for task in placement["activeTasks"]}
    return not set(tasks or ()) <= placed


def _has_tags(vector: Vector) -> bool:
    return bool(vector.json["state"]["configs"]["rackAwareAssignmentTags"])


def _balances_subtopologies(vector: Vector) -> bool:
    return bool(vector.json["state"]["configs"]["rackAwareAssignmentStrategy"] == "balance_subtopology")


def _balances_no_subtopologies(vector: Vector) -> bool:
    return not _balances_subtopologies(vector)


def _balances_several_topologies(vector: Vector) -> bool:
    names = {task["id"].rpartition("__")[0] for task in vector.json["state"]["tasks"]}
    return _balances_subtopologies(vector) and len(names) > 1


def _some_share_a_bucket(vector: Vector) -> bool:
    """Whether the order in which the tasks are put into Kafka's set can be seen in its order."""
    tasks = vector.state.columns.tasks
    stateful = np.flatnonzero(tasks.has_changelog)
    forwards = stateful[hash_map_order(tasks, stateful)]
    backwards = stateful[::-1][hash_map_order(tasks, stateful[::-1])]
    return not np.array_equal(forwards, backwards)


def _has_usable_racks(vector: Vector) -> bool:
    return bool(vector.expected["rackAware"])


def _always(vector: Vector) -> bool:
    return True


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        name="No standbys wanted means no standbys",
        operations=("default_standby",),
        explains=(Difference.OTHER,),
        applies=_no_standbys_wanted_with_tags,
        reason="With client tags Kafka places one standby per task although num.standby.replicas is 0.",
        pinned_by="tests/kafka_order/test_default_standbys.py::test_zero_standbys_with_tags_means_none",
    ),
    Deviation(
        name="Standbys that are there count",
        operations=("default_standby",),
        explains=(Difference.OTHER,),
        applies=_has_standbys,
        reason="Kafka adds num.standby.replicas standbys to those that are there; called twice it places twice as many.",
        pinned_by="tests/kafka_order/test_default_standbys.py::test_standbys_that_are_there_count",
    ),
    Deviation(
        name="The order of tasks in one bucket",
        operations=("default_standby",),
        explains=(Difference.OTHER,),
        applies=_some_share_a_bucket,
        reason="Where ids share a bucket of Kafka's hash set, their order depends on how it was filled.",
        pinned_by="tests/kafka_order/test_java_order.py::test_task_ids_iterate_by_bucket",
    ),
    Deviation(
        name="Another optimum of equal cost",
        operations=("ha",),
        explains=(Difference.OTHER,),
        applies=_has_usable_racks,
        reason="Of several placements of equal cost and equal numbers of tasks ours may be another one.",
        pinned_by="tests/builtin_assignors/test_high_availability.py::test_each_round_by_racks_replayed",
    ),
    Deviation(
        name="Overrides count as configured",
        operations=("optimize_active", "optimize_standby"),
        explains=(Difference.CHEAPER, Difference.DEARER),
        applies=_has_overrides_for_missing_costs,
        reason="Kafka looks at the configured costs only, and changes nothing if one is missing, overridden or not.",
        pinned_by="tests/utils/test_rack_aware.py::test_overrides_count_as_configured",
    ),
    Deviation(
        name="Only partitions that count need known racks",
        operations=("optimize_active", "optimize_standby"),
        explains=(Difference.CHEAPER, Difference.DEARER),
        applies=_has_unknown_racks,
        reason="Kafka changes nothing if the racks of any partition of any task are unknown, selected or not.",
        pinned_by="tests/utils/test_rack_aware.py::test_only_partitions_that_count_need_known_racks",
        only_in_jvm=True,
    ),
    Deviation(
        name="No rack at all is known too",
        operations=("optimize_active", "optimize_standby"),
        explains=(Difference.CHEAPER, Difference.DEARER),
        applies=_has_empty_racks,
        reason="Kafka takes an empty set of racks for an unknown one, and changes nothing.",
        pinned_by="tests/utils/test_rack_aware.py::test_a_partition_in_no_rack_crosses_from_everywhere",
        only_in_jvm=True,
    ),
    Deviation(
        name="An active task does not overwrite its standby",
        operations=("optimize_active",),
        explains=(Difference.STANDBYS_LOST,),
        applies=_has_standbys,
        reason="Where an active task meets its standby, Kafka drops the standby; ours changes the roles of the two clients.",
        pinned_by="tests/utils/test_rack_aware.py::test_an_active_task_that_meets_its_standby_changes_roles_with_it",
    ),
    Deviation(
        name="A selected task that nobody has is no error",
        operations=("optimize_active",),
        explains=(Difference.THROWN,),
        applies=_selects_an_unplaced_task,
        reason="Where a selected task is active nowhere, Kafka throws; ours optimises the others.",
        pinned_by="tests/utils/test_rack_aware.py::test_a_selected_task_that_nobody_has_stays_without_owner",
        only_in_jvm=True,
    ),
    Deviation(
        name="Only selected standbys move",
        operations=("optimize_standby",),
        explains=(Difference.THROWN, Difference.DEARER),
        applies=_selects_tasks,
        reason="Kafka moves standbys of other tasks too, or throws, depending on the strategy.",
        pinned_by="tests/utils/test_rack_aware.py::test_selection_applies_to_standbys_too",
    ),
    Deviation(
        name="Tag diversity is kept",
        operations=("optimize_standby",),
        explains=(Difference.DEARER,),
        applies=_has_tags,
        reason="Kafka's public optimiser compares the tags of a client with themselves, so every move is allowed.",
        pinned_by="tests/utils/test_rack_aware.py::test_standbys_stay_where_a_swap_would_cost_diversity",
    ),
    Deviation(
        name="Both strategies treat standbys alike",
        operations=("optimize_standby",),
        explains=(Difference.CHEAPER,),
        applies=_balances_subtopologies,
        reason="Kafka's public optimiser evens out sub-topologies between two clients at a time; its internal one does not.",
        pinned_by="tests/utils/test_rack_aware.py::test_both_strategies_treat_standbys_alike",
    ),
    Deviation(
        name="Standbys are placed by a flow",
        operations=("optimize_standby",),
        explains=(Difference.CHEAPER,),
        applies=_balances_no_subtopologies,
        reason="Kafka searches locally, so it can cost more, and its answer depends on the order of the clients.",
        pinned_by="tests/utils/test_rack_aware.py::test_standbys_never_cost_more_than_the_jvms",
    ),
    Deviation(
        name="Sub-topologies of named topologies are groups of their own",
        operations=("optimize_active",),
        explains=(Difference.CHEAPER, Difference.DEARER),
        applies=_balances_several_topologies,
        reason="Kafka groups tasks by the number of their sub-topology, whatever the topology.",
        pinned_by="tests/utils/test_rack_aware.py::test_sub_topologies_of_named_topologies_are_groups_of_their_own",
        only_in_jvm=True,
    ),
    Deviation(
        name="Goals instead of steps",
        operations=("sticky", "legacy_sticky", "fallback_prior"),
        explains=(Difference.OTHER,),
        applies=_always,
        reason="Kafka follows greedy steps in hash-map order; ours states goals, reaches them, and is compared by them.",
        pinned_by="tests/builtin_assignors/test_sticky.py::test_no_recorded_run_of_the_jvm_is_better",
    ),
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
