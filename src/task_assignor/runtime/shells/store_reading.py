"""Reading what a store holds as it was committed: the tasks that have it are restored, as on a client, and give it as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa

from task_assignor.runtime.commits import CommitLog
from task_assignor.runtime.errors import CommitLogException, StoreException
from task_assignor.runtime.machines.client_task import Restore
from task_assignor.runtime.machines.protocol import START, Recovery
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.tasks import environment_of
from task_assignor.runtime.stores.key_value import KeyValueStore, KeyValueStoreSpec
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.sub_topology import StoreSpec
from task_assignor.runtime.task import StreamTask
from task_assignor.runtime.topology import Topology
from task_assignor.sdk import StreamsException, TaskId
from task_assignor.sdk.text import nearest, shown

_MOST_TRIES: Final = 10
"""Each fails only where a snapshot has taken the place of what was to be read meanwhile."""


def stores_of(topology: Topology) -> dict[str, StoreSpec]:
    """The stores of a topology, by name."""
    return {store.name: store for sub in topology.sub_topologies for store in sub.stores}


def check_store(topology: Topology, name: str, identity: Mapping[str, Any]) -> None:
    """See to it that a store can be read.

    Args:
        topology: what is computed.
        name: the store.
        identity: what the run was when it last began.

    Raises:
        StoreException: there is no such store, or it has no changelog.
        CommitLogException: the run had another one.
    """
    stores = stores_of(topology)
    if name not in stores:
        like = nearest(name, stores) if isinstance(name, str) else None
        raise StoreException(
            f"The application has no store {shown(name)}; its stores: {', '.join(sorted(stores)) or 'none'}."
            f"{f' Maybe {like!r} is meant.' if like else ''}"
        )
    store = stores[name]
    if not store.logged:
        raise StoreException(
            f"The store {name!r} has no changelog (logged=False), so nobody but the client that has it knows what it holds."
        )
    before = next((sub["stores"][name] for sub in identity["sub-topologies"].values() if name in sub["stores"]), None)
    has_grown = before is not None and isinstance(store, KeyValueStoreSpec) and store.has_grown_from(before)
    if before != store.fingerprint and not has_grown:
        raise CommitLogException(
            f"The store {name!r} is {store.fingerprint}, but in this run {'there was none' if before is None else f'it was {before}'}. "
            "Maybe read it with the application as it was, or run the new one first."
        )


def read_store(bootstrap: ClientBootstrap, tasks: Iterable[TaskId], name: str) -> pa.Table:
    """What a store holds, task by task, as of their last commits.

    Args:
        bootstrap: of a client that is none: with a state directory that is deleted afterwards.
        tasks: those that are wanted, of the sub-topology that has the store.
        name: the store.

    Raises:
        StreamsException: what was committed cannot be read.
    """
    commits, environment = CommitLog(bootstrap.run_dir), environment_of(bootstrap)
    recoveries, tables = commits.recoveries(), []
    for task in sorted(tasks):
        stream_task = partial(StreamTask, task, bootstrap.topology.of_task(task), environment)
        for left in reversed(range(_MOST_TRIES)):
            try:
                tables.append(_restored(stream_task(), recoveries.get(task, Recovery()), name))
                break
            except StreamsException:
                before, recoveries = recoveries, commits.recoveries()
                if not left or recoveries.get(task) == before.get(task):
                    raise
    found = [table for table in tables if table is not None]
    return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})


def _restored(task: StreamTask, recovery: Recovery, name: str) -> pa.Table | None:
    """What the store of a task holds; None: nothing, and no columns are known."""
    try:
        task.restore(Restore(START, recovery, recovery.end))
        store = task.store(name)
        if isinstance(store, KeyValueStore):
            return store.all()
        assert isinstance(store, WindowStore)
        return store.rows
    finally:
        task.close()
