"""Where we differ from the JVM on purpose: one list, each entry with its reason and the test that pins it.

A comparison with recorded answers asks `deviation_of(vector)`; what it names is compared by the pinning test instead.
The same list in words, for users: docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from tests.vectors import Vector


@attrs.frozen
class Deviation:
    """One difference.

    Args:
        name: heading in docs/deviations.md.
        operations: operations of the vectors that it concerns.
        applies: whether a vector's input is such that our answer may differ.
        reason: why we differ.
        pinned_by: the test that says what we do instead, as pytest names it.
    """

    name: str
    operations: tuple[str, ...]
    applies: Callable[[Vector], bool] = attrs.field(repr=False)
    reason: str
    pinned_by: str


def _no_standbys_wanted_with_tags(vector: Vector) -> bool:
    configs = vector.json["state"]["configs"]
    return bool(configs["rackAwareAssignmentTags"]) and configs["numStandbyReplicas"] == 0


def _has_standbys(vector: Vector) -> bool:
    return any(placement["standbyTasks"] for placement in vector.json["assignment"])


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        name="No standbys wanted means no standbys",
        operations=("default_standby",),
        applies=_no_standbys_wanted_with_tags,
        reason="With client tags Kafka places one standby per task although num.standby.replicas is 0.",
        pinned_by="tests/utils/test_standby.py::test_zero_standbys_with_tags_means_none",
    ),
    Deviation(
        name="Standbys that are there count",
        operations=("default_standby",),
        applies=_has_standbys,
        reason="Kafka adds num.standby.replicas standbys to those that are there; called twice it places twice as many.",
        pinned_by="tests/utils/test_standby.py::test_standbys_that_are_there_count",
    ),
)


def deviation_of(vector: Vector) -> Deviation | None:
    """The first deviation that concerns the vector, or None: then our answer must be Kafka's."""
    operation = vector.json["operation"]
    for deviation in DEVIATIONS:
        if operation in deviation.operations and deviation.applies(vector):
            return deviation
    return None
