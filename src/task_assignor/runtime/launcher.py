"""How clients come to life: what a launcher must do, and what it hands to each client. Launching itself is elsewhere."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import attrs
import cloudpickle

from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.storage import local_path
from task_assignor.runtime.stores.memory import DEFAULT_BYTES
from task_assignor.runtime.topics import check_name
from task_assignor.runtime.topology import Topology, processor_name
from task_assignor.sdk import ConfigException, HostInfo, ProcessId
from task_assignor.sdk.text import failure


def _positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise ConfigException(
            f"The {attribute.name} ({value!r}) of a {type(instance).__name__} must be an int of at least 1."
        )


def _not_negative(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 0:
        raise ConfigException(
            f"The {attribute.name} ({value!r}) of a {type(instance).__name__} must be an int of at least 0."
        )


def _compression(instance: object, _: object, value: str | None) -> None:
    if value not in (None, "lz4", "zstd"):
        raise ConfigException(
            f"The compression ({value!r}) of a {type(instance).__name__} must be None, 'lz4' or 'zstd'."
        )


@attrs.frozen
class ClientSpec:
    """A client that shall run.

    Args:
        name: its name; a replacement has the same.
        threads: tasks it processes at the same time; its weight for the assignor.
        rack: its rack, if known (`client.rack`).
        tags: its tags (`client.tag.*`).
        state_dir: where its snapshots are; None: `<run_dir>/clients/<name>`, if that is a path.
        host_info: where it answers queries, if it does.
    """

    name: str
    threads: int = attrs.field(default=1, validator=_positive)
    rack: str | None = None
    tags: Mapping[str, str] = attrs.field(factory=dict)
    state_dir: str | None = None
    host_info: HostInfo | None = None

    def __attrs_post_init__(self) -> None:
        check_name("client", self.name)
        if self.state_dir is not None:
            try:
                local_path(f"state_dir of {self.name}", self.state_dir)
            except ValueError as error:
                raise ConfigException(str(error)) from None

    def process_id(self, application_id: str) -> ProcessId:
        """The client's process id: the same whenever this client of this application comes back.

        Kafka writes a random one into the state directory; a name serves as well, and runs are repeatable.
        """
        return ProcessId(uuid.uuid5(uuid.NAMESPACE_URL, f"task-assignor:{application_id}/{self.name}"))


@attrs.frozen
class RuntimeOptions:
    """Settings of the runtime itself; those of Kafka Streams are in `StreamsConfig`.

    Args:
        max_batch_rows: a micro-batch of a task takes at most so many rows of each source partition.
        session_timeout_ms: a client that was not heard of for so long is lost.
        heartbeat_interval_ms: how often clients say that they live. A process of its own does that for each client, so
            that it depends on nothing that runs there.
        max_poll_interval_ms: a client whose processor has not returned from a batch for so long is ended, and its
            tasks are given to others (`max.poll.interval.ms`, KIP-62).
        assignor_timeout_ms: the run fails if the assignor has not decided in this time.
        stop_timeout_ms: after `request_stop` the batches in progress may take so long; then they are left undone.
        startup_timeout_ms: the run fails if not enough clients are there in this time.
        min_clients: the run begins when so many clients are there; None: all. At most as many as there are.
        rejoin_timeout_ms: a client that lost its connection tries so long to find the coordinator again.
        snapshot_changelog_bytes: a client writes a local snapshot of a task when its changelogs have grown by so much since
            the last one; 0: never for that reason. At the end it always does.
        snapshot_interval_ms: and at the latest after this time, if they have grown at all; 0: never for that reason.
        state_memory_bytes: what the stores of a client may have in memory together, but for key-value stores that are
            not `on_disk`: the rows of window stores beyond that are on disk, and it bounds the cache of stores on disk.
        assignment_retry_ms: after a `TaskAssignmentException` the rebalance is tried again after this time.
        max_attempts: the run fails if a task of a batch was lost so often together with its client.
        max_assignment_retries: after so many failures in a row the run fails.
        checkpoint_every_commits: after so many commits a checkpoint takes the place of those before.
        compression: of output and changelog files: None, "lz4" or "zstd".
        bind_host: address that the coordinator listens on; None: the one that the launcher's clients can reach.
        advertised_host: address that clients connect to; None: the same.
    """

    max_batch_rows: int = attrs.field(default=100_000, validator=_positive)
    session_timeout_ms: int = attrs.field(default=10_000, validator=_positive)
    heartbeat_interval_ms: int = attrs.field(default=500, validator=_positive)
    max_poll_interval_ms: int = attrs.field(default=300_000, validator=_positive)
    assignor_timeout_ms: int = attrs.field(default=300_000, validator=_positive)
    stop_timeout_ms: int = attrs.field(default=5_000, validator=_positive)
    startup_timeout_ms: int = attrs.field(default=60_000, validator=_positive)
    min_clients: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    rejoin_timeout_ms: int = attrs.field(default=10_000, validator=_positive)
    snapshot_changelog_bytes: int = attrs.field(default=64 << 20, validator=_not_negative)
    snapshot_interval_ms: int = attrs.field(default=60_000, validator=_not_negative)
    state_memory_bytes: int = attrs.field(default=DEFAULT_BYTES, validator=_positive)
    assignment_retry_ms: int = attrs.field(default=200, validator=_positive)
    max_attempts: int = attrs.field(default=10, validator=_positive)
    max_assignment_retries: int = attrs.field(default=20, validator=_positive)
    checkpoint_every_commits: int = attrs.field(default=256, validator=_positive)
    compression: str | None = attrs.field(default=None, validator=_compression)
    bind_host: str | None = None
    advertised_host: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigException(
                f"The heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than the session_timeout_ms "
                f"({self.session_timeout_ms}). Maybe a third of it."
            )


@attrs.frozen
class ClientBootstrap:
    """All that a client needs to know; crosses to another process or machine by pickle.

    Args:
        address: host and port of the coordinator.
        authkey: secret of the connection.
        spec: who the client is.
        application_id: `application.id`.
        run_id: identity of the run folder; snapshots of other runs are ignored.
        topology: what is computed.
        topics_root: folder of the topics; on storage that all clients reach.
        run_dir: folder of the run, a path or a URL; on storage that all clients reach.
        state_dir: folder of the client's snapshots; may be local.
        options: settings of the runtime.
        topic_ids: topic -> the id that it must have.
    """

    address: tuple[str, int]
    authkey: bytes = attrs.field(repr=False)
    spec: ClientSpec
    application_id: str
    run_id: str
    topology: Topology
    topics_root: str
    run_dir: str
    state_dir: str
    options: RuntimeOptions
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class LaunchPlan:
    """What a launcher is asked to bring to life.

    Args:
        application_id: `application.id`.
        run_id: identity of the run folder.
        bootstraps: one per client, in the order in which the user gave them.
    """

    application_id: str
    run_id: str
    bootstraps: tuple[ClientBootstrap, ...]

    def bootstrap(self, client: str) -> ClientBootstrap:
        """The bootstrap of a client by name."""
        return next(found for found in self.bootstraps if found.spec.name == client)


@attrs.frozen
class ClientExit:
    """A client's process has ended.

    Args:
        client: its name.
        reason: how: exit code, signal, or what the engine says.
    """

    client: str
    reason: str


def pickle_bootstrap(bootstrap: ClientBootstrap) -> bytes:
    """A bootstrap as bytes for `pickle.loads` elsewhere; lambdas, local classes and those of `__main__` go by value.

    Raises:
        TopologyException: a processor cannot be sent to another process.
    """
    try:
        return bytes(cloudpickle.dumps(bootstrap))
    except Exception as error:
        if _can_import_main():
            # By value it holds a lock or a file of its module, which another process can import instead.
            with suppress(Exception):
                return pickle.dumps(bootstrap)
        raise TopologyException(
            f"{_culprit(bootstrap.topology)} cannot be sent to another process: {failure(error)}. Maybe it holds a file, a "
            "lock or a connection; open those in init(), which runs where the task runs."
        ) from error


def _can_import_main() -> bool:
    """Another process can import what is `__main__` here; not so in a notebook or at a prompt."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or getattr(main, "__file__", None) is not None


def _culprit(topology: Topology) -> str:
    for sub in topology.sub_topologies:
        try:
            cloudpickle.dumps(sub.processor)
        except Exception:  # noqa: BLE001 - this is the question
            return f"The processor {processor_name(sub.processor)} of the sub-topology {sub.name!r}"
    return "The topology"


class Launcher(Protocol):
    """Starts clients and ends them. All calls come from one thread; none of them may block for long, but `stop`."""

    @property
    def coordinator_host(self) -> str:
        """Address of this machine at which its clients reach the coordinator."""

    def start(self, plan: LaunchPlan) -> None:
        """Start all clients of the plan.

        Raises:
            StreamsException: that is not possible.
        """

    def replace(self, client: str) -> None:
        """The process of a client has ended: start another one with the same name, or leave that to the engine."""

    def exits(self) -> Sequence[ClientExit]:
        """Processes that have ended since the last call.

        Raises:
            StreamsException: the engine has given up; the run fails with it.
        """

    def stop(self, timeout_s: float) -> None:
        """All clients were told to stop: wait for them, then end those that are still there. Afterwards none lives."""
