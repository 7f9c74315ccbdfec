"""Snapshot documents for the tests: a small one with everything in it, and the places in it."""

from __future__ import annotations

import copy
from typing import Any

FIRST, SECOND = "80000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"

_DOCUMENT: dict[str, Any] = {
    "formatVersion": 1,
    "id": "small",
    "nowMs": 1_700_000_000_000,
    "configs": {
        "acceptableRecoveryLag": 9_223_372_036_854_775_807,
        "maxWarmupReplicas": 3,
        "numStandbyReplicas": 1,
        "probingRebalanceIntervalMs": 60_000,
        "rackAwareAssignmentTags": ["zone"],
        "rackAwareTrafficCost": 10,
        "rackAwareNonOverlapCost": None,
        "rackAwareAssignmentStrategy": "min_traffic",
    },
    "tasks": [
        {
            "id": "0_0",
            "isStateful": True,
            "stateStoreNames": ["a", "b"],
            "topicPartitions": [
                {"topic": "in", "partition": 0, "isSource": True, "isChangelog": False, "rackIds": ["r1", "r2"]},
                {"topic": "changelog", "partition": 0, "isSource": False, "isChangelog": True, "rackIds": None},
            ],
        },
        {
            "id": "0_1",
            "isStateful": True,
            "stateStoreNames": ["a"],
            "topicPartitions": [
                {"topic": "in", "partition": 1, "isSource": True, "isChangelog": True, "rackIds": []},
            ],
            "endOffsetSum": 500,
        },
        {
            "id": "orders__1_0",
            "isStateful": False,
            "stateStoreNames": [],
            "topicPartitions": [
                {"topic": "orders", "partition": 0, "isSource": True, "isChangelog": False, "rackIds": None}
            ],
        },
    ],
    "clients": [
        {
            "processId": FIRST,
            "numProcessingThreads": 2,
            "consumers": {"m1": ["0_0"], "m2": []},
            "hostInfo": {"host": "example", "port": 8080},
            "rackId": "r1",
            "clientTags": {"zone": "z1"},
            "previousActiveTasks": ["0_0", "7_7"],
            "previousStandbyTasks": ["0_1"],
            "taskLags": {"0_0": -2, "0_1": 3},
            "generation": 4,
        },
        {
            "processId": SECOND,
            "numProcessingThreads": 1,
            "consumers": {"m3": ["0_1", "7_7"]},
            "hostInfo": None,
            "rackId": None,
            "clientTags": {},
            "previousActiveTasks": [],
            "previousStandbyTasks": ["0_0"],
            "taskLags": {"0_0": -3},
        },
    ],
}

Place = tuple[str | int, ...]


def document() -> dict[str, Any]:
    """A fresh copy: all members, sorted as `state_to_json` sorts them."""
    return copy.deepcopy(_DOCUMENT)


def changed(place: Place, value: Any) -> dict[str, Any]:
    """The document with another value at a place."""
    whole = document()
    inner: Any = whole
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return whole


def without(place: Place) -> dict[str, Any]:
    """The document without a member."""
    whole = document()
    inner: Any = whole
    for part in place[:-1]:
        inner = inner[part]
    del inner[place[-1]]
    return whole


def places(value: Any, start: Place = ()) -> list[Place]:
    """All places of a document, outer ones first."""
    found: list[Place] = [] if not start else [start]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*start, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            found += places(inner, (*start, number))
    return found


def normal(state: dict[str, Any]) -> dict[str, Any]:
    """A document of a state as `state_to_json` writes it: sorted, and with the members that it always writes."""
    whole = {"formatVersion": 1, "nowMs": 0, **state}
    whole["tasks"] = [
        {
            **task,
            "stateStoreNames": sorted(task["stateStoreNames"]),
            "topicPartitions": [
                {**partition, "rackIds": partition["rackIds"] and sorted(partition["rackIds"])}
                for partition in task["topicPartitions"]
            ],
        }
        for task in sorted(state["tasks"], key=lambda task: task["id"])
    ]
    whole["clients"] = [
        {
            **client,
            **{name: sorted(client[name]) for name in ("previousActiveTasks", "previousStandbyTasks")},
            "consumers": {name: sorted(tasks) for name, tasks in client["consumers"].items()},
        }
        for client in sorted(state["clients"], key=lambda client: client["processId"])
    ]
    return whole
