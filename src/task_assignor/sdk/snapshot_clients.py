"""The `clients` of a snapshot with their previous tasks and lags: from JSON into columns and back."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import numpy as np

from task_assignor.sdk.columns import (
    LATEST_OFFSET,
    MISSING,
    NO_RACK,
    UNKNOWN_OFFSET_SUM,
    ClientColumns,
    LagColumns,
    PreviousColumns,
    Role,
    StateColumns,
    TaskColumns,
)
from task_assignor.sdk.ids import HostInfo, ProcessId, TaskId
from task_assignor.sdk.integers import INT32_MAX, INT64_MAX
from task_assignor.sdk.json_checks import (
    Bad,
    check_distinct,
    check_integer,
    check_list,
    check_members,
    check_string,
    parse_process_id,
    parse_task_id,
    wrong,
)
from task_assignor.sdk.json_text import member_path

CLIENT: Final = frozenset(
    {
        "processId",
        "numProcessingThreads",
        "consumers",
        "hostInfo",
        "rackId",
        "clientTags",
        "previousActiveTasks",
        "previousStandbyTasks",
        "taskLags",
        "generation",
    }
)
HOST: Final = frozenset({"host", "port"})


class ClientReader:
    """The columns of clients, previous tasks and lags, filled client by client in the order of their process ids."""

    def __init__(self, documents: list[Any], tasks: TaskColumns, numbers: dict[str, int]) -> None:
        self._tasks = tasks
        self._numbers = numbers
        self._needs_lag = tasks.has_changelog & (tasks.end_offset_sum == MISSING)
        self._pairs: list[tuple[int, Role, np.ndarray[Any, Any]]] = []
        self._consumer_pairs: list[tuple[int, np.ndarray[Any, Any]]] = []
        self._vanished: list[tuple[int, Role, TaskId]] = []
        self._vanished_of_consumer: list[tuple[int, TaskId]] = []
        self._consumers: list[tuple[str, ...]] = []
        self._consumer_count = 0
        self._lag_tasks: list[np.ndarray[Any, Any]] = []
        self._lags: list[np.ndarray[Any, Any]] = []
        self._is_computed: list[bool] = []
        ids = self._process_ids(documents)
        order = sorted(range(len(ids)), key=lambda position: ids[position].signed_halves)
        for number, position in enumerate(order):
            try:
                self._add(number, ids[position], documents[position])
            except Bad as bad:
                raise bad.within(f".clients[{position}]") from None
        ordered = [documents[position] for position in order]
        self.columns = _client_columns([ids[position] for position in order], ordered, self._consumers)
        self.previous = self._previous_columns()
        self.lags = self._lag_columns()

    @staticmethod
    def _process_ids(documents: list[Any]) -> list[ProcessId]:
        ids: dict[ProcessId, int] = {}
        for position, document in enumerate(documents):
            try:
                client = check_members(document, CLIENT, ("processId", "numProcessingThreads"))
                process_id = parse_process_id(client["processId"], ".processId")
                if ids.setdefault(process_id, position) != position:
                    raise Bad(f"The client {process_id} must be there once, but is there twice.", ".processId")
            except Bad as bad:
                raise bad.within(f".clients[{position}]") from None
        return list(ids)

    def _add(self, number: int, process_id: ProcessId, client: dict[str, Any]) -> None:
        _check_client(client)
        for role, name in ((Role.ACTIVE, "previousActiveTasks"), (Role.STANDBY, "previousStandbyTasks")):
            present, gone = self._task_numbers(client.get(name, []), f".{name}")
            self._pairs.append((number, role, present))
            self._vanished += [(number, role, task_id) for task_id in gone]
        consumers = client.get("consumers", {})
        if not isinstance(consumers, dict):
            raise wrong(consumers, "an object of member ids", ".consumers")
        self._consumers.append(tuple(sorted(consumers)))
        for consumer in self._consumers[-1]:
            path = member_path(".consumers", consumer)
            present, gone = self._task_numbers(consumers[consumer], path)
            self._consumer_pairs.append((self._consumer_count, present))
            self._vanished_of_consumer += [(self._consumer_count, task_id) for task_id in gone]
            self._consumer_count += 1
        self._add_lags(process_id, client.get("taskLags"))

    def _task_numbers(self, value: Any, path: str) -> tuple[np.ndarray[Any, Any], list[TaskId]]:
        """Sorted numbers of the tasks in a list, and those that no longer exist."""
        texts = check_list(value, path)
        try:
            found = [self._numbers[text] for text in texts]
        except (KeyError, TypeError):
            ids = [parse_task_id(text, f"{path}[{position}]") for position, text in enumerate(texts)]
            check_distinct(ids, texts, path)
            rows = [self._tasks.find(task_id) for task_id in ids]
            found = [row for row in rows if row >= 0]
            return np.sort(np.array(found, dtype=np.int32)), sorted(
                task_id for task_id, row in zip(ids, rows, strict=True) if row < 0
            )
        check_distinct(found, texts, path)
        return np.sort(np.array(found, dtype=np.int32)), []

    def _add_lags(self, process_id: ProcessId, lags: Any) -> None:
        self._is_computed.append(lags is not None)
        if lags is None:
            self._lag_tasks.append(np.zeros(0, dtype=np.int32))
            self._lags.append(np.zeros(0, dtype=np.int64))
            return
        if not isinstance(lags, dict):
            raise wrong(lags, "an object of task ids and lags, or null", ".taskLags")
        try:
            tasks = np.fromiter(map(self._numbers.__getitem__, lags), np.int32, len(lags))
            distinct = True
        except KeyError:
            tasks, distinct = self._lag_task_numbers(lags), False
        values = _lag_values(lags)
        order = np.argsort(tasks, kind="stable")
        tasks = tasks[order]
        if not distinct and (np.diff(tasks) == 0).any():
            task_id = self._tasks.task_id(int(tasks[int(np.flatnonzero(np.diff(tasks) == 0)[0])]))
            raise Bad(f"The lag of task {task_id} must be there once, but is there twice.", ".taskLags")
        short = self._needs_lag.copy()
        short[tasks] = False
        if short.any():
            task_id = self._tasks.task_id(int(np.argmax(short)))
            raise Bad(
                f"The lag of task {task_id} on client {process_id} is missing, and the task has no endOffsetSum to stand "
                "for it. Give the lag, or the endOffsetSum of the task.",
                ".taskLags",
            )
        self._lag_tasks.append(tasks)
        self._lags.append(values[order])

    def _lag_task_numbers(self, lags: dict[str, Any]) -> np.ndarray[Any, Any]:
        found = []
        for text in lags:
            path = member_path(".taskLags", str(text))
            row = self._tasks.find(parse_task_id(text, path))
            if row < 0:
                raise Bad(f"There is no task {text} in tasks, so there cannot be a lag of it.", path)
            found.append(row)
        return np.array(found, dtype=np.int32)

    def _previous_columns(self) -> PreviousColumns:
        client, role, task, consumer, consumer_task = [], [], [], [], []
        for number, kind_of_task, tasks in self._pairs:
            client.append(np.full(len(tasks), number, dtype=np.int32))
            role.append(np.full(len(tasks), kind_of_task, dtype=np.int8))
            task.append(tasks)
        for number, tasks in self._consumer_pairs:
            consumer.append(np.full(len(tasks), number, dtype=np.int32))
            consumer_task.append(tasks)
        return PreviousColumns(
            client=_joined(client, np.int32),
            role=_joined(role, np.int8),
            task=_joined(task, np.int32),
            consumer=_joined(consumer, np.int32),
            consumer_task=_joined(consumer_task, np.int32),
            vanished=self._vanished,
            vanished_of_consumer=self._vanished_of_consumer,
        )

    def _lag_columns(self) -> LagColumns:
        counts = [len(tasks) for tasks in self._lag_tasks]
        return LagColumns(
            client=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            task=_joined(self._lag_tasks, np.int32),
            lag=_joined(self._lags, np.int64),
            is_computed=np.array(self._is_computed, dtype=np.bool_),
        )


def _joined(parts: list[np.ndarray[Any, Any]], dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *parts])


def _lag_values(lags: dict[str, Any]) -> np.ndarray[Any, Any]:
    values = list(lags.values())
    if set(map(type, values)) <= {int}:
        try:
            column = np.array(values, dtype=np.int64)
        except OverflowError:
            pass
        else:
            if not ((column < 0) & (column != LATEST_OFFSET) & (column != UNKNOWN_OFFSET_SUM)).any():
                return column
    for text, value in lags.items():
        if type(value) is int and value in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM):
            continue
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            expected = f"an integer from 0 to {INT64_MAX}, or -2 (an active running task), or -3 (unknown)"
            raise wrong(value, expected, member_path(".taskLags", text))
    raise AssertionError("one of the lags is wrong")


def _check_client(client: dict[str, Any]) -> None:
    check_integer(client["numProcessingThreads"], 1, INT32_MAX, ".numProcessingThreads")
    rack = client.get("rackId")
    if rack is not None and (not isinstance(rack, str) or not rack):
        raise wrong(rack, "a string that is not empty, or null", ".rackId")
    if client.get("generation") is not None:
        check_integer(client["generation"], 0, INT64_MAX, ".generation")
    tags = client.get("clientTags", {})
    if not isinstance(tags, dict):
        raise wrong(tags, "an object of tags", ".clientTags")
    for tag, value in tags.items():
        if not isinstance(value, str):
            raise wrong(value, "a string", member_path(".clientTags", tag))
    if client.get("hostInfo") is not None:
        host = check_members(client["hostInfo"], HOST, ("host", "port"), ".hostInfo")
        check_string(host["host"], ".hostInfo.host")
        check_integer(host["port"], 0, INT32_MAX, ".hostInfo.port")


def _client_columns(
    ids: list[ProcessId], clients: list[dict[str, Any]], consumers: list[tuple[str, ...]]
) -> ClientColumns:
    racks = sorted({client["rackId"] for client in clients if client.get("rackId") is not None})
    rack_number = {rack: number for number, rack in enumerate(racks)}
    hosts = [client.get("hostInfo") for client in clients]
    generations = [client.get("generation") for client in clients]
    return ClientColumns(
        process_ids=ids,
        num_processing_threads=[client["numProcessingThreads"] for client in clients],
        rack=[NO_RACK if client.get("rackId") is None else rack_number[client["rackId"]] for client in clients],
        racks=racks,
        client_tags=[MappingProxyType(dict(sorted(client.get("clientTags", {}).items()))) for client in clients],
        host_infos=[None if host is None else HostInfo(host["host"], host["port"]) for host in hosts],
        consumers=consumers,
        generation=[MISSING if generation is None else generation for generation in generations],
    )


def write_clients(columns: StateColumns, ids: list[str]) -> list[dict[str, Any]]:
    """The `clients` of a document; `ids` are the texts of the task ids, in order."""
    clients, previous, lags = columns.clients, columns.previous, columns.lags
    vanished: dict[tuple[int, Role], list[TaskId]] = {}
    for client, role, task_id in previous.vanished:
        vanished.setdefault((client, role), []).append(task_id)
    of_consumer: list[list[TaskId | int]] = [[] for _ in columns.consumer_client]
    for consumer, task in zip(previous.consumer.tolist(), previous.consumer_task.tolist(), strict=True):
        of_consumer[consumer].append(task)
    for consumer, task_id in previous.vanished_of_consumer:
        of_consumer[consumer].append(task_id)

    def texts(tasks: list[int], gone: list[TaskId]) -> list[str]:
        if not gone:
            return [ids[task] for task in tasks]
        return [str(task_id) for task_id in sorted([*columns.tasks.task_ids(tasks), *gone])]

    documents = []
    consumer = 0
    for number, process_id in enumerate(clients.process_ids):
        consumers = {}
        for name in clients.consumers[number]:
            tasks = of_consumer[consumer]
            gone = [task for task in tasks if isinstance(task, TaskId)]
            consumers[name] = texts([task for task in tasks if not isinstance(task, TaskId)], gone)
            consumer += 1
        start, stop = int(columns.lag_offsets[number]), int(columns.lag_offsets[number + 1])
        pairs = zip(lags.task[start:stop].tolist(), lags.lag[start:stop].tolist(), strict=True)
        host, rack = clients.host_infos[number], int(clients.rack[number])
        generation = int(clients.generation[number])
        documents.append(
            {
                "processId": str(process_id),
                "numProcessingThreads": int(clients.num_processing_threads[number]),
                "consumers": consumers,
                "hostInfo": None if host is None else {"host": host.host, "port": host.port},
                "rackId": None if rack == NO_RACK else clients.racks[rack],
                "clientTags": dict(sorted(clients.client_tags[number].items())),
                **{
                    name: texts(columns.previous_tasks(number, role).tolist(), vanished.get((number, role), []))
                    for role, name in ((Role.ACTIVE, "previousActiveTasks"), (Role.STANDBY, "previousStandbyTasks"))
                },
                "taskLags": {ids[task]: lag for task, lag in pairs} if lags.is_computed[number] else None,
                **({} if generation == MISSING else {"generation": generation}),
            }
        )
    return documents
