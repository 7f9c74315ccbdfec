"""What every utility's result can tell: a mapping in process-id order, costs, gap, reason."""

from __future__ import annotations

import numpy as np
import pytest

from task_assignor.sdk import (
    ApplicationStateBuilder,
    AssignedTask,
    AssignmentColumns,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    TaskAssignment,
    TaskId,
)
from task_assignor.utils.result import AssignmentResult, Skipped, SkipReason

P1, P2, HIGH = (
    ProcessId.parse(f"{first}-0000-0000-0000-000000000000") for first in ("00000001", "00000002", "f0000000")
)
T0 = TaskId(0, 0)


def columns() -> AssignmentColumns:
    builder = ApplicationStateBuilder().add_task(T0)
    for client in (P2, HIGH, P1):
        builder.add_client(client)
    return AssignmentColumns.of(builder.build().columns, np.array([2]))


def test_is_a_mapping_in_process_id_order_that_a_task_assignment_takes() -> None:
    result = AssignmentResult(KafkaStreamsAssignment.of(client) for client in (P2, P1, HIGH))

    assert list(result) == [HIGH, P1, P2]
    assert [each.process_id for each in TaskAssignment(result)] == [HIGH, P1, P2]
    assert KafkaStreamsAssignment.of(P1) == result[P1]
    assert result.columns is None


def test_keeps_the_columns_until_somebody_changes_an_assignment() -> None:
    given = columns()
    result = AssignmentResult.of_columns(given)
    assert given is result.columns

    result[P1].assign_task(AssignedTask(T0, AssignedTask.Type.STANDBY))

    assert result.columns is None


def test_gap_is_known_only_with_cost_and_bound() -> None:
    assert AssignmentResult.of_columns(columns(), cost_after=10, lower_bound=7).gap == 3
    assert AssignmentResult.of_columns(columns(), cost_after=10).gap is None


def test_repr_tells_what_happened() -> None:
    skipped = Skipped(SkipReason.CLIENT_WITHOUT_RACK, "Client x has no rack.")
    result = AssignmentResult.of_columns(
        columns(), cost_before=5, cost_after=5, lower_bound=5, skipped=skipped, shortages={T0: 2}
    )

    assert (
        repr(result)
        == "AssignmentResult(3 clients, cost 5 -> 5, lower bound 5, skipped: Client x has no rack., 2 copies missing)"
    )


def test_a_client_cannot_be_there_twice() -> None:
    with pytest.raises(StateException, match="twice"):
        AssignmentResult([KafkaStreamsAssignment.of(P1), KafkaStreamsAssignment.of(P1)])
