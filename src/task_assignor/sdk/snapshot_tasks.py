"""The `tasks` of a snapshot: from JSON into columns and back."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

import attrs
import numpy as np

from task_assignor.sdk.columns import MISSING, NO_RACK, UNKNOWN_OFFSET_SUM, Int64Array, TaskColumns, not_stateless
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
_OF_PARTITION: Final = ("topic", "partition", "isSource", "isChangelog")
_SIMPLE_IDS: Final = re.compile(r"(?:\d{1,18}_\d{1,18}(?:\n(?!\Z)|\Z))*", re.ASCII)
_ODD: Final = (Bad, KeyError, TypeError, AttributeError)


class _Numbers(dict[Any, int]):
    """Distinct values, numbered as they come."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


def read_tasks(documents: list[Any]) -> tuple[TaskColumns, dict[str, int]]:
    """The task columns, and the number of each task by the text of its id."""
    # All of them at once takes a fraction of the time; one by one it is known where something is wrong.
    try:
        ids = _ids_at_once(documents)
    except _ODD:
        ids = _ids(documents)
    order = ids.order
    try:
        rows = _TaskRows.at_once([documents[position] for position in order])
    except _ODD:
        rows = _TaskRows()
        for position in order:
            try:
                rows.add(documents[position])
            except Bad as bad:
                raise bad.within(f".tasks[{position}]") from None
    columns = TaskColumns(
        topology=ids.topology,
        subtopology=ids.subtopology,
        partition=ids.partition,
        is_stateful=np.array(rows.is_stateful, dtype=np.bool_),
        store_set=rows.store_set,
        end_offset_sum=np.array(rows.end_offset_sum, dtype=np.int64),
        partition_offsets=rows.offsets,
        partition_topic=rows.topic,
        partition_number=rows.partition,
        partition_is_source=np.array(rows.is_source, dtype=np.bool_),
        partition_is_changelog=np.array(rows.is_changelog, dtype=np.bool_),
        partition_rack_set=rows.rack_set,
        topology_names=ids.names,
        store_sets=rows.store_sets,
        topics=rows.topics,
        rack_sets=rows.rack_sets,
    )
    return columns, {documents[position]["id"]: number for number, position in enumerate(order)}


@attrs.frozen(eq=False)
class _Ids:
    """The order of the tasks, and what their ids say in this order."""

    order: list[int]
    topology: Int64Array
    subtopology: Int64Array
    partition: Int64Array
    names: list[str]


def _ids_at_once(documents: list[Any]) -> _Ids:
    """The ids of tasks of unnamed topologies.

    Raises:
        Bad: something may be wrong, or a topology has a name.
    """
    _check_keys(documents, TASK, ("id", "isStateful", "topicPartitions"))
    text = "\n".join([document["id"] for document in documents])
    if not _SIMPLE_IDS.fullmatch(text):
        raise Bad("An id is none.")
    found = np.array(text.replace("_", "\n").split(), dtype=np.int64)
    if len(found) != 2 * len(documents) or found.max(initial=0) > INT32_MAX:
        raise Bad("An id is none.")
    subtopology, partition = found.reshape(-1, 2).T
    order = np.lexsort((partition, subtopology))
    subtopology, partition = subtopology[order], partition[order]
    if ((np.diff(subtopology) == 0) & (np.diff(partition) == 0)).any():
        raise Bad("A task is there twice.")
    return _Ids(order.tolist(), np.full(len(order), -1), subtopology, partition, [])


def _ids(documents: list[Any]) -> _Ids:
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
        if sort_keys[first] == sort_keys[second]:
            raise Bad(f"The task {ids[second]} must be there once, but is there twice.", f".tasks[{second}].id")
    names = sorted({task_id.topology_name for task_id in ids if task_id.topology_name}, key=java_string_key)
    topology = {name: number for number, name in enumerate(names)}
    rows = [(topology.get(ids[each].topology_name or "", -1), *ids[each].sort_key[1:]) for each in order]
    named, subtopology, partition = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return _Ids(order, named, subtopology, partition, names)


def _check_keys(objects: list[Any], known: frozenset[str], required: tuple[str, ...]) -> None:
    """Of few kinds of objects there are many."""
    for keys in dict.fromkeys(map(tuple, _all_of(objects, dict))):
        check_members(dict.fromkeys(keys), known, required)


def _all_of(values: list[Any], kind: type) -> list[Any]:
    """The values, if all are of this very type."""
    if not set(map(type, values)) <= {kind}:
        raise Bad("A value is of another type.")
    return values


def _numbers_of_sets(lists: list[Any], numbers: _Numbers) -> list[int]:
    """The number of each list of names, of which few differ."""
    kinds = list(map(tuple, _all_of(lists, list)))
    of_kind = {kind: numbers[frozenset(check_strings(list(kind)))] for kind in dict.fromkeys(kinds)}
    return list(map(of_kind.__getitem__, kinds))


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

    @classmethod
    def at_once(cls, tasks: list[dict[str, Any]]) -> _TaskRows:
        """The columns of all tasks, in a fraction of the time that they take one by one.

        Raises:
            Bad: something may be wrong; where it is, is known one by one.
        """
        rows = cls()
        rows.is_stateful = _all_of([task["isStateful"] for task in tasks], bool)
        rows.store_set = _numbers_of_sets([task.get("stateStoreNames", []) for task in tasks], rows.store_sets)
        sums = [task.get("endOffsetSum") for task in tasks]
        given = set(_all_of([each for each in sums if each is not None], int))
        if not all(each == UNKNOWN_OFFSET_SUM or 0 <= each <= INT64_MAX for each in given):
            raise Bad("A sum is out of range.")
        rows.end_offset_sum = [MISSING if each is None else each for each in sums]
        lists = _all_of([task["topicPartitions"] for task in tasks], list)
        rows.offsets = [0, *itertools.accumulate(map(len, lists))]
        partitions = list(itertools.chain.from_iterable(lists))
        _check_keys(partitions, PARTITION, _OF_PARTITION)
        topics = _all_of([partition["topic"] for partition in partitions], str)
        rows.topic = list(map(rows.topics.__getitem__, topics))
        rows.partition = _all_of([partition["partition"] for partition in partitions], int)
        if "" in rows.topics or not 0 <= min(rows.partition, default=0) <= max(rows.partition, default=0) <= INT32_MAX:
            raise Bad("A topic is empty, or a number out of range.")
        rows.is_source = _all_of([partition["isSource"] for partition in partitions], bool)
        rows.is_changelog = _all_of([partition["isChangelog"] for partition in partitions], bool)
        racks = [partition.get("rackIds") for partition in partitions]
        known = iter(_numbers_of_sets([each for each in racks if each is not None], rows.rack_sets))
        rows.rack_set = [NO_RACK if each is None else next(known) for each in racks]
        rows._check_tasks()
        return rows

    def _check_tasks(self) -> None:
        task = np.repeat(np.arange(len(self.is_stateful)), np.diff(self.offsets))
        has_state = np.array([bool(names) for names in self.store_sets], dtype=np.bool_)[self.store_set]
        has_state[task[np.array(self.is_changelog, dtype=np.bool_)]] = True
        pairs = np.array([task, self.topic, self.partition])
        pairs = pairs[:, np.lexsort(pairs)]
        if (has_state & ~np.array(self.is_stateful, dtype=np.bool_)).any() or (np.diff(pairs) == 0).all(axis=0).any():
            raise Bad("A task is not stateless, or has a partition twice.")

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
        partition = check_members(value, PARTITION, _OF_PARTITION)
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
