"""Reading what a store holds as it was committed: the tasks that have it are restored, as on a client, and give it as a table."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import pyarrow as pa

from task_assignor.runtime.errors import CommitLogException, ProcessorStateException, StoreException
from task_assignor.runtime.identity import differences, tasks_of
from task_assignor.runtime.machines.client.task import Restore
from task_assignor.runtime.machines.protocol import START, Recovery
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.shells.launcher import ClientBootstrap
from task_assignor.runtime.shells.tasks import environment_of
from task_assignor.runtime.storage.disk import disk_errors
from task_assignor.runtime.stores.key_value import KeyValueStore, KeyValueStoreSpec
from task_assignor.runtime.stores.window import WindowStore
from task_assignor.runtime.tasks.task import StreamTask
from task_assignor.runtime.topology.sub_topology import StoreSpec
from task_assignor.runtime.topology.topology import ProcessorTopology, Topology
from task_assignor.sdk import StreamsException, TaskId
from task_assignor.sdk.text import nearest, shown

_OTHERWISE: Final = "Maybe read it with the application as it was, or run the new one first."
_PREFIX: Final = "task-assignor-reader-"
_LOCK: Final = "lock"
_MOST_TRIES: Final = 10
"""Each fails only where a snapshot has taken the place of what was to be read meanwhile."""


def stores_of(topology: Topology) -> dict[str, StoreSpec]:
    """The stores of a topology, by name."""
    return {store.name: store for sub in topology.sub_topologies for store in sub.stores}


def check_store(topology: Topology, name: str, identity: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """See to it that a store can be read.

    Args:
        topology: what is computed.
        name: the store.
        identity: what the run was when it last began.
        now: what it is.

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
            f"{_OTHERWISE}"
        )
    if changed := differences(tasks_of(identity), tasks_of(now)):
        raise CommitLogException(
            f"The store {name!r} cannot be read, since this run had other tasks. What differs - {'; '.join(changed)}. {_OTHERWISE}"
        )


def read_store(bootstrap: Callable[[str], ClientBootstrap], tasks: Iterable[TaskId], name: str) -> pa.Table:
    """What a store holds, task by task, as of their last commits.

    Args:
        bootstrap: state directory -> the bootstrap of a client that is none.
        tasks: those that are wanted, of the sub-topology that has the store.
        name: the store.

    Raises:
        StreamsException: what was committed cannot be read, or there is no room for it.
    """
    with (
        disk_errors(
            ProcessorStateException,
            f"The store {name!r} cannot be restored in the folder for temporary files",
            "Maybe set TMPDIR to a folder with room for the tasks that are read.",
        ),
        _folder() as folder,
    ):
        tables = [*_tables(bootstrap(folder), tasks, name)]
    found = [table for table in tables if table is not None]
    return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})


@contextmanager
def _folder() -> Iterator[str]:
    """A temporary folder; those of readers that were killed go, too: whose lock nobody holds."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        # Who looks for them may be another user.
        with suppress(OSError), left.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, Path(folder, f"new-{_LOCK}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Only under this name it is looked for, so nobody finds it without its lock.
        Path(folder, f"new-{_LOCK}").rename(Path(folder, _LOCK))
        yield folder


def _tables(bootstrap: ClientBootstrap, tasks: Iterable[TaskId], name: str) -> Iterator[pa.Table | None]:
    """What the store of each task holds; None: nothing, and no columns are known."""
    commits, environment = CommitLog(bootstrap.run_dir), environment_of(bootstrap)
    recoveries = commits.recoveries()
    for task in sorted(tasks):
        stream_task = partial(StreamTask, task, _with_only(bootstrap.topology.of_task(task), name), environment)
        for left in reversed(range(_MOST_TRIES)):
            try:
                yield _restored(stream_task, recoveries.get(task, Recovery()), name)
                break
            except StreamsException as error:
                if isinstance(error, OSError):
                    raise
                before, recoveries = recoveries, commits.recoveries()
                if not left or recoveries.get(task) == before.get(task):
                    raise
        # There need not be room for all at the same time.
        shutil.rmtree(environment.state(task), ignore_errors=True)


def _with_only(topology: ProcessorTopology, name: str) -> ProcessorTopology:
    """A task that has this store alone: the others may be large, or damaged."""
    nodes = (
        attrs.evolve(node, stores=[store for store in node.stores if store.name == name]) for node in topology.nodes
    )
    return attrs.evolve(topology, nodes=tuple(nodes))


def _restored(stream_task: Callable[[], StreamTask], recovery: Recovery, name: str) -> pa.Table | None:
    """What the store of a task holds; None: nothing, and no columns are known."""
    try:
        task = stream_task()
    except ProcessorStateException as error:
        # It advises to set a folder that is not the one.
        raise (error.__cause__ or error) from None
    changes = [
        msgspec.structs.replace(
            change, changelogs={store: file for store, file in change.changelogs.items() if store == name}
        )
        for change in recovery.changes
    ]
    only = Recovery(recovery.start, recovery.snapshots, changes)
    try:
        task.restore(Restore(START, only, only.end))
        store = task.store(name)
        if isinstance(store, KeyValueStore):
            return store.all()
        assert isinstance(store, WindowStore)
        return store.rows
    finally:
        task.close()
