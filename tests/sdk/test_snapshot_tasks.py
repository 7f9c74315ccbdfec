"""Tasks of snapshots, at once and one by one."""

from __future__ import annotations

import copy
import gc
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.sdk import snapshot_tasks
from task_assignor.sdk.json_checks import Bad
from task_assignor.sdk.json_text import parse_json
from tests.budget import examples


def partition(topic: str, number: int, is_changelog: bool, racks: list[str] | None) -> dict[str, Any]:
    found = {"topic": topic, "partition": number, "isSource": not is_changelog, "isChangelog": is_changelog}
    return {**found, "rackIds": racks}


TASKS = [
    {
        "id": "1_10",
        "isStateful": True,
        "stateStoreNames": ["a", "b"],
        "endOffsetSum": 7,
        "topicPartitions": [partition("t", 10, False, ["x"]), partition("u", 10, True, None)],
    },
    {"id": "1_9", "isStateful": False, "topicPartitions": [partition("t", 9, False, ["y", "x"])]},
    {"id": "0_0", "isStateful": True, "stateStoreNames": ["b"], "topicPartitions": [], "endOffsetSum": -3},
]
TEXTS = ["", "t", "x", "1_9", "01_9", "0_0\n1_1", "n__0_0", "1_9\n", "1_x"]
NUMBERS = [0, 1, 9, -1, -2, -3, 1.0, 2**31, 2**63]
LISTS = [[], ["x"], ["x", "x"], [""], [1], [[]], [partition("t", 9, False, None)] * 2, [partition("v", 1, True, [])]]
ODD: st.SearchStrategy[Any] = st.sampled_from([None, True, {}, {"a": 1}, *TEXTS, *NUMBERS, *LISTS])


def outcome(documents: list[Any]) -> Any:
    try:
        columns, numbers = snapshot_tasks.read_tasks(copy.deepcopy(documents))
    except Bad as bad:
        return bad.path, bad.message
    found = {
        name: (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else list(value)
        for name, value in attrs.asdict(columns, recurse=False).items()
        if not name.startswith("_")
    }
    return found, numbers


def places(value: Any) -> list[tuple[Any, Any]]:
    """(object or list, key) of everything in it."""
    inner = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in inner] + [place for _, each in inner for place in places(each)]


def refused(*_: object) -> Any:
    raise Bad("One by one.")


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_at_once_they_are_what_they_are_one_by_one(data: st.DataObject) -> None:
    documents = copy.deepcopy(TASKS)
    for _ in range(data.draw(st.integers(0, 2))):
        owner, key = data.draw(st.sampled_from(places(documents)))
        if isinstance(owner, dict) and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(["isStateful", "rackIds", "stateStoreNames", "endOffsetSum", "strange"]))
        if data.draw(st.integers(0, 3)):
            owner[key] = copy.deepcopy(data.draw(ODD))
        elif isinstance(owner, dict):
            owner.pop(key, None)
    found = outcome(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_tasks, "_ids_at_once", refused)
        patch.setattr(snapshot_tasks._TaskRows, "at_once", refused)
        assert outcome(documents) == found


def test_tasks_that_are_as_they_should_be_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one half a million took most of a minute."""
    monkeypatch.setattr(snapshot_tasks, "_ids", refused)
    monkeypatch.setattr(snapshot_tasks._TaskRows, "add", refused)
    assert snapshot_tasks.read_tasks(copy.deepcopy(TASKS))[1] == {"0_0": 0, "1_9": 1, "1_10": 2}


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collection_of_garbage_is_as_it_was(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        parse_json('{"a": [1]}')
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
