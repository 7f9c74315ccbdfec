"""Tasks, and lists of tasks, as numbers while an `ApplicationStateBuilder` collects them. Nothing is checked here.

A task id is two small integers from the moment it comes in: hashing a million of them over and over is what would cost most.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk.arrays import Int64Array, csr_rows
from task_assignor.sdk.columns import NO_RACK, TaskColumns
from task_assignor.sdk.ids import TaskId, java_string_key
from task_assignor.sdk.state import TaskTopicPartition

Key = TypeVar("Key")
Group = tuple[str | None, int]
# A key of a task: the rank of its group, then so many bits for its partition.
_BITS: Final = 32
_PARTITION: Final = (1 << _BITS) - 1


class Numbers(dict[Key, int]):
    """Distinct values, numbered as they are asked for."""

    def __missing__(self, value: Key) -> int:
        number = self[value] = len(self)
        return number


class TaskLists:
    """Lists of task ids: rows (group, partition), list by list.

    Args:
        groups: numbers of the groups (topology, sub-topology), shared by all that one builder collects.
    """

    def __init__(self, groups: Numbers[Group]) -> None:
        self._groups = groups
        self._group = array("i")
        self._partition = array("i")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, tasks: Collection[TaskId]) -> None:
        """One more list."""
        groups = self._groups
        self._group.fromlist([groups[task.topology_name, task.subtopology] for task in tasks])
        self._partition.fromlist([task.partition for task in tasks])
        self._ends.append(len(self._group))

    def of_row(self) -> Int64Array:
        """(N,) the number of the list that a row is in."""
        ends = np.concatenate([[0], np.array(self._ends, dtype=np.int64)])
        return np.repeat(np.arange(len(self)), np.diff(ends))

    def keys(self, order: GroupOrder) -> Int64Array:
        """(N,) keys of the tasks in the rows."""
        return order.keys(np.array(self._group), np.array(self._partition))


class GroupOrder:
    """The groups in the order of their tasks' ids, and tasks as keys that sort as the ids do.

    Args:
        groups: numbers of the groups.
    """

    def __init__(self, groups: Numbers[Group]) -> None:
        names = sorted({name for name, _ in groups if name is not None}, key=java_string_key)
        self.topology_names: Sequence[str] = names
        numbers: dict[str | None, int] = {name: number for number, name in enumerate(names)}
        numbers[None] = -1
        ordered = sorted((numbers[name], subtopology, number) for (name, subtopology), number in groups.items())
        self._topology = np.array([topology for topology, _, _ in ordered], dtype=np.int32)
        self._subtopology = np.array([subtopology for _, subtopology, _ in ordered], dtype=np.int32)
        self._rank = np.empty(len(ordered), dtype=np.int64)
        self._rank[[number for _, _, number in ordered]] = np.arange(len(ordered))

    def __len__(self) -> int:
        return len(self._rank)

    def keys(self, group: npt.NDArray[np.int32], partition: npt.NDArray[np.int32]) -> Int64Array:
        """(N,) keys of tasks by the numbers of their groups and partitions."""
        keys: Int64Array = self._rank[group] << _BITS | partition
        return keys

    def parts(self, keys: Int64Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Topology, sub-topology and partition of the keys, each (N,)."""
        ranks = keys >> _BITS
        return self._topology[ranks], self._subtopology[ranks], (keys & _PARTITION).astype(np.int32)

    def task_ids(self, keys: Int64Array) -> list[TaskId]:
        """The ids of the keys."""
        names = [*self.topology_names, None]
        parts = zip(*(part.tolist() for part in self.parts(keys)), strict=True)
        return [TaskId(subtopology, partition, names[topology]) for topology, subtopology, partition in parts]


class TaskTable:
    """The tasks that were added, column by column.

    Args:
        groups: numbers of the groups (topology, sub-topology), shared by all that one builder collects.
    """

    def __init__(self, groups: Numbers[Group]) -> None:
        self._groups = groups
        # Partitions by group: neighbours lie close together in a set of small integers, not so in a set of ids.
        self._known: defaultdict[int, set[int]] = defaultdict(set)
        self._group = array("i")
        self._partition = array("i")
        self._is_stateful = array("b")
        self._store_set = array("i")
        self._end_offset_sum = array("q")
        self._ends = array("q")
        self._topic = array("i")
        self._number = array("i")
        self._is_source = array("b")
        self._is_changelog = array("b")
        self._rack_set = array("i")
        self._store_sets: Numbers[frozenset[str]] = Numbers()
        self._topics: Numbers[str] = Numbers()
        self._rack_sets: Numbers[frozenset[str]] = Numbers()

    def __contains__(self, task_id: TaskId) -> bool:
        group = self._groups.get((task_id.topology_name, task_id.subtopology), -1)
        return group in self._known and task_id.partition in self._known[group]

    def add(
        self,
        task_id: TaskId,
        is_stateful: bool,
        store_names: frozenset[str],
        partitions: Iterable[TaskTopicPartition],
        end_offset_sum: int,
    ) -> None:
        """One more task, which is not there yet."""
        group = self._groups[task_id.topology_name, task_id.subtopology]
        self._known[group].add(task_id.partition)
        self._group.append(group)
        self._partition.append(task_id.partition)
        self._is_stateful.append(is_stateful)
        self._store_set.append(self._store_sets[store_names])
        self._end_offset_sum.append(end_offset_sum)
        for one in partitions:
            self._topic.append(self._topics[one.topic_partition.topic])
            self._number.append(one.topic_partition.partition)
            self._is_source.append(one.is_source)
            self._is_changelog.append(one.is_changelog)
            self._rack_set.append(NO_RACK if one.rack_ids is None else self._rack_sets[one.rack_ids])
        self._ends.append(len(self._topic))

    def build(self, order: GroupOrder) -> BuiltTasks:
        """The columns, in the order of the task ids."""
        keys = order.keys(np.array(self._group), np.array(self._partition))
        tasks = np.argsort(keys)
        keys = keys[tasks]
        topology, subtopology, partition = order.parts(keys)
        # Lists of tasks may name topologies that have no task.
        used = np.flatnonzero(np.bincount(topology[topology >= 0], minlength=len(order.topology_names)))
        offsets = np.concatenate([[0], np.array(self._ends, dtype=np.int64)])
        rows = csr_rows(offsets, tasks)
        store_set, store_sets = _renumbered(np.array(self._store_set)[tasks], self._store_sets)
        topic, topics = _renumbered(np.array(self._topic)[rows], self._topics)
        rack_set, rack_sets = _renumbered(np.array(self._rack_set)[rows], self._rack_sets)
        columns = TaskColumns(
            topology=np.where(topology < 0, -1, np.searchsorted(used, topology)),
            subtopology=subtopology,
            partition=partition,
            is_stateful=np.array(self._is_stateful, dtype=np.bool_)[tasks],
            store_set=store_set,
            end_offset_sum=np.array(self._end_offset_sum, dtype=np.int64)[tasks],
            partition_offsets=np.concatenate([[0], np.cumsum(np.diff(offsets)[tasks])]),
            partition_topic=topic,
            partition_number=np.array(self._number)[rows],
            partition_is_source=np.array(self._is_source, dtype=np.bool_)[rows],
            partition_is_changelog=np.array(self._is_changelog, dtype=np.bool_)[rows],
            partition_rack_set=rack_set,
            topology_names=[order.topology_names[number] for number in used.tolist()],
            store_sets=store_sets,
            topics=topics,
            rack_sets=rack_sets,
        )
        return BuiltTasks(columns, keys, np.searchsorted(keys, np.arange(len(order)) << _BITS))


@attrs.frozen(eq=False)
class BuiltTasks:
    """The columns of the tasks, and how tasks are found in them by their keys.

    Args:
        columns: the columns.
        keys: (T,) keys of the tasks, ascending.
        starts: (G,) the first row of every group, also of those without tasks.
    """

    columns: TaskColumns
    keys: Int64Array
    starts: Int64Array

    def find(self, keys: Int64Array) -> Int64Array:
        """(N,) numbers of the tasks with the given keys; -1: no such task."""
        last = len(self.keys) - 1
        if last < 0:
            return np.full(len(keys), -1)
        # Partitions of a sub-topology are nearly always 0, 1, 2, ...: look there first.
        rows: Int64Array = np.minimum(self.starts[keys >> _BITS] + (keys & _PARTITION), last)
        others = np.flatnonzero(self.keys[rows] != keys)
        if len(others):
            wanted = keys[others]
            found = np.minimum(np.searchsorted(self.keys, wanted), last)
            rows[others] = np.where(self.keys[found] == wanted, found, -1)
        return rows


def _renumbered(codes: npt.NDArray[np.int32], names: Numbers[Key]) -> tuple[npt.NDArray[np.int32], list[Key]]:
    """Codes and names by first appearance, -1 as it is: the order in which tasks were added must not show."""
    rows = np.flatnonzero(codes >= 0)[::-1]
    first = np.zeros(len(names), dtype=np.int64)
    # Of several rows the last that is written counts: the first one.
    first[codes[rows]] = rows
    order = np.argsort(first)
    ranks = np.full(len(names) + 1, -1, dtype=np.int32)
    ranks[order] = np.arange(len(names))
    listed = list(names)
    return ranks[codes], [listed[number] for number in order.tolist()]
