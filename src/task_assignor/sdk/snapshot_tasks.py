"""The `tasks` of a snapshot: from JSON into columns and back."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from task_assignor.sdk.columns import MISSING, NO_RACK, UNKNOWN_OFFSET_SUM, TaskColumns, not_stateless
from task_assignor.sdk.ids import TaskId, java_string_key
from task_assignor.sdk.integers import INT32_MAX, INT64_MAX
from task_assignor.sdk.json_checks import (
    Bad,
    check_bool,
    check_distinct,
    check_integer,
    check_list,
    check_members,
    check_string,
    check_strings,
    parse_task_id,
    wrong,
)

TASK: Final = frozenset({"id", "isStateful", "stateStoreNames", "topicPartitions", "endOffsetSum"})
PARTITION: Final = frozenset({"topic", "partition", "isSource", "isChangelog", "rackIds"})


class _Numbers(dict[Any, int]):
    """Distinct values, numbered as they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


def read_tasks(documents: list[Any]) -> tuple[TaskColumns, dict[str, int]]:
    """The task columns, and the number of each task by the text of its id."""
    ids: list[TaskId] = []
    for position, document in enumerate(documents):
        try:
            ids.append(
                parse_task_id(check_members(document, TASK, ("id", "isStateful", "topicPartitions"))["id"], ".id")
            )
        except Bad as bad:
            raise bad.within(f".tasks[{position}]") from None
    sort_keys = [task_id.sort_key for task_id in ids]
    order = sorted(range(len(ids)), key=sort_keys.__getitem__)
    for first, second in itertools.pairwise(order):
        if ids[first] == ids[second]:
            raise Bad(f"The task {ids[second]} must be there once, but is there twice.", f".tasks[{second}].id")
    names = sorted({task_id.topology_name for task_id in ids if task_id.topology_name}, key=java_string_key)
    topology = {name: number for number, name in enumerate(names)}
    rows = _TaskRows()
    for position in order:
        try:
            rows.add(documents[position])
        except Bad as bad:
            raise bad.within(f".tasks[{position}]") from None
    ordered = [ids[position] for position in order]
    columns = TaskColumns(
        topology=[-1 if task.topology_name is None else topology[task.topology_name] for task in ordered],
        subtopology=[task.subtopology for task in ordered],
        partition=[task.partition for task in ordered],
        is_stateful=np.array(rows.is_stateful, dtype=np.bool_),
        store_set=rows.store_set,
        end_offset_sum=np.array(rows.end_offset_sum, dtype=np.int64),
        partition_offsets=rows.offsets,
        partition_topic=rows.topic,
        partition_number=rows.partition,
        partition_is_source=np.array(rows.is_source, dtype=np.bool_),
        partition_is_changelog=np.array(rows.is_changelog, dtype=np.bool_),
        partition_rack_set=rows.rack_set,
        topology_names=names,
        store_sets=rows.store_sets,
        topics=rows.topics,
        rack_sets=rows.rack_sets,
    )
    return columns, {documents[position]["id"]: number for number, position in enumerate(order)}


class _TaskRows:
    """Columns of tasks while they are filled, task by task in the order of their ids."""

    def __init__(self) -> None:
        self.is_stateful: list[bool] = []
        self.store_set: list[int] = []
        self.end_offset_sum: list[int] = []
        self.offsets: list[int] = [0]
        self.topic: list[int] = []
        self.partition: list[int] = []
        self.is_source: list[bool] = []
        self.is_changelog: list[bool] = []
        self.rack_set: list[int] = []
        self.store_sets = _Numbers()
        self.topics = _Numbers()
        self.rack_sets = _Numbers()

    def add(self, task: dict[str, Any]) -> None:
        self.is_stateful.append(check_bool(task["isStateful"], ".isStateful"))
        stores = check_strings(task.get("stateStoreNames", []), ".stateStoreNames")
        self.store_set.append(self.store_sets[frozenset(stores)])
        sums = task.get("endOffsetSum")
        if sums is None:
            sums = MISSING
        elif type(sums) is not int or not (sums == UNKNOWN_OFFSET_SUM or 0 <= sums <= INT64_MAX):
            raise wrong(sums, f"an integer from 0 to {INT64_MAX}, or {UNKNOWN_OFFSET_SUM}", ".endOffsetSum")
        self.end_offset_sum.append(sums)
        partitions = check_list(task["topicPartitions"], ".topicPartitions")
        for position, partition in enumerate(partitions):
            try:
                self._add_partition(partition)
            except Bad as bad:
                raise bad.within(f".topicPartitions[{position}]") from None
        start = self.offsets[-1]
        self.offsets.append(len(self.topic))
        if not self.is_stateful[-1] and (stores or any(self.is_changelog[start:])):
            raise Bad(f"The task {task['id']} {not_stateless(bool(stores))}", ".isStateful")
        if len(partitions) > 1:
            pairs = list(zip(self.topic[start:], self.partition[start:], strict=True))
            if len(set(pairs)) < len(pairs):
                shown_as = [f"{partition['topic']}-{partition['partition']}" for partition in partitions]
                check_distinct(pairs, shown_as, ".topicPartitions")

    def _add_partition(self, value: Any) -> None:
        partition = check_members(value, PARTITION, ("topic", "partition", "isSource", "isChangelog"))
        self.topic.append(self.topics[check_string(partition["topic"], ".topic")])
        self.partition.append(check_integer(partition["partition"], 0, INT32_MAX, ".partition"))
        self.is_source.append(check_bool(partition["isSource"], ".isSource"))
        self.is_changelog.append(check_bool(partition["isChangelog"], ".isChangelog"))
        racks = partition.get("rackIds")
        self.rack_set.append(NO_RACK if racks is None else self.rack_sets[frozenset(check_strings(racks, ".rackIds"))])


def write_tasks(tasks: TaskColumns, ids: list[str]) -> list[dict[str, Any]]:
    """The `tasks` of a document; `ids` are the texts of the task ids, in order."""
    stores = [sorted(names) for names in tasks.store_sets]
    racks = [sorted(names) for names in tasks.rack_sets]
    partitions = [
        {
            "topic": tasks.topics[topic],
            "partition": number,
            "isSource": is_source,
            "isChangelog": is_changelog,
            "rackIds": None if rack_set == NO_RACK else list(racks[rack_set]),
        }
        for topic, number, is_source, is_changelog, rack_set in zip(
            tasks.partition_topic.tolist(),
            tasks.partition_number.tolist(),
            tasks.partition_is_source.tolist(),
            tasks.partition_is_changelog.tolist(),
            tasks.partition_rack_set.tolist(),
            strict=True,
        )
    ]
    starts = tasks.partition_offsets.tolist()
    return [
        {
            "id": task_id,
            "isStateful": is_stateful,
            "stateStoreNames": list(stores[store_set]),
            "topicPartitions": partitions[start:stop],
            **({} if end_offset_sum == MISSING else {"endOffsetSum": end_offset_sum}),
        }
        for task_id, is_stateful, store_set, start, stop, end_offset_sum in zip(
            ids,
            tasks.is_stateful.tolist(),
            tasks.store_set.tolist(),
            starts,
            starts[1:],
            tasks.end_offset_sum.tolist(),
            strict=False,
        )
    ]
