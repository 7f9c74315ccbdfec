"""The Java side of the bridge, on fresh random states: nothing is lost on the way, and its own decisions are what they should be."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from task_assignor.bridge import wire
from task_assignor.sdk import ApplicationState, Role, TaskAssignment, assignment_from_json, state_from_json
from task_assignor.sdk.assignment import TaskType
from task_assignor.testing import assert_valid, random_states
from tests.budget import examples
from tests.jvm.jvm import Jvm, question_state

pytestmark = pytest.mark.jvm


def states() -> Iterator[ApplicationState]:
    for state in random_states(7, examples(60)):
        ids = [*state.columns.tasks.task_ids(), *(task for _, _, task in state.columns.previous.vanished)]
        # Kafka can sort tasks only if all have a topology, or none.
        if len({task.topology_name is None for task in ids}) <= 1 and state.columns.lags.is_computed.all():
            yield state


def told(state: ApplicationState) -> dict[str, Any]:
    """What Java knows of a state: all lags, but not from which sums they came, and no generations."""
    document = question_state(state)
    for task in document["tasks"]:
        task.pop("endOffsetSum", None)
        task["topicPartitions"].sort(key=lambda one: (one["topic"], one["partition"]))
    for client in document["clients"]:
        client.pop("generation", None)
    document.pop("id", None)
    document.pop("nowMs", None)
    return document


def test_a_state_comes_over_the_wire_as_it_was(jvm: Jvm) -> None:
    for state in states():
        answer = jvm.ask("bridge_message", state)
        assert answer.exception is None, answer.message
        request = wire.read_message(base64.b64decode(answer.value["base64"]))
        assert isinstance(request, wire.Request)
        assert told(request.state) == told(state)


def test_a_recorded_state_is_a_snapshot_of_the_state(jvm: Jvm) -> None:
    for state in states():
        answer = jvm.ask("bridge_snapshot", state)
        assert answer.exception is None, answer.message
        document = json.loads(answer.value["text"])
        assert document["id"] == "recorded"
        assert told(state_from_json(document)) == told(state)


def test_java_decides_without_the_bridge_as_with_it(jvm: Jvm) -> None:
    """Kafka's default assignor called by the bridge, and called as the comparison calls it."""
    for state in states():
        mine, kafkas = (jvm.ask(operation, state) for operation in ("bridge_java", "ha"))
        assert mine.exception is None, mine.message
        assert mine.value["assignment"] == kafkas.value["assignment"]


def test_without_python_everything_stays_and_nothing_is_left_out(jvm: Jvm) -> None:
    for state in states():
        if not len(state.columns.clients):
            continue
        answer = jvm.ask("bridge_keep", state)
        assert answer.exception is None, answer.message
        kept: TaskAssignment = assignment_from_json(answer.value["assignment"])
        assert_valid(state, kept)
        before_client, before_task = state.columns.previous.pairs(Role.ACTIVE)
        before = set(zip(before_client.tolist(), before_task.tolist(), strict=True))
        owned = {task for _, task in before}
        standbys = [task.id for one in kept for task in one.tasks.values() if task.type is TaskType.STANDBY]
        assert max(map(standbys.count, standbys), default=0) <= state.assignment_configs.num_standby_replicas
        for one in kept:
            client = state.columns.clients.find(one.process_id)
            for task in one.tasks.values():
                number = state.columns.tasks.find(task.id)
                if task.type is TaskType.ACTIVE and number in owned:
                    assert (client, number) in before
