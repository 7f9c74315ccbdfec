"""How clients come to life: what a launcher must do, and what it hands to each client. Launching itself is elsewhere."""

from __future__ import annotations

import io
import pickle
import sys
import threading
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType
from typing import Any, ClassVar, Final, Protocol

import attrs
import cloudpickle

from task_assignor.runtime.errors import ClientException, TopologyException
from task_assignor.runtime.options import RuntimeOptions, positive
from task_assignor.runtime.storage import local_path
from task_assignor.runtime.tasks.log import Topics
from task_assignor.runtime.topics.spec import check_name
from task_assignor.runtime.topology.sub_topology import processor_name
from task_assignor.runtime.topology.topology import Topology
from task_assignor.sdk import ConfigException, HostInfo, ProcessId, StreamsConfig
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, shown

_log = logger_of(__name__)
_LARGE_BYTES: Final = 64 << 20
_LARGE_RUNS: Final[set[str]] = set()
"""Those of which it was said that much is sent to their clients."""

MOST_THREADS: Final = 10_000
"""Each is a consumer of the group, which the driver keeps in memory."""


@attrs.frozen
class ClientSpec:
    """A client that shall run.

    Args:
        name: its name; a replacement has the same.
        threads: tasks it processes at the same time, at most 10 000; its weight for the assignor. None: `num.stream.threads`.
        rack: its rack; None: that of its process's environment (TASK_ASSIGNOR_RACK), else `client.rack`, if that is set.
        tags: its tags, over those of its process's environment (TASK_ASSIGNOR_TAGS) and of the settings (`client.tag.*`).
        state_dir: where its snapshots are, a folder of no other client; None: `<run_dir>/clients/<name>`, if that is a path.
        host_info: where it answers queries; None: `application.server`, if that is set.

    Raises:
        StreamsException: something of it is not allowed.
    """

    name: str
    threads: int | None = attrs.field(default=None, validator=attrs.validators.optional(positive))
    rack: str | None = None
    tags: Mapping[str, str] = attrs.field(factory=dict)
    state_dir: str | None = None
    host_info: HostInfo | None = None
    _given: ClientSpec | None = attrs.field(default=None, init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        check_name("client", self.name)
        if self.capacity > MOST_THREADS:
            raise ConfigException(f"The threads ({self.threads}) of {self.name} must be at most {MOST_THREADS}.")
        if not (self.rack is None or isinstance(self.rack, str)):
            raise ConfigException(f"The rack ({shown(self.rack)}) of {self.name} must be a str or None.")
        if not (isinstance(self.tags, Mapping) and all(isinstance(x, str) for tag in self.tags.items() for x in tag)):
            raise ConfigException(f"The tags ({shown(self.tags)}) of {self.name} must map a str to a str.")
        if not (self.host_info is None or isinstance(self.host_info, HostInfo)):
            raise ConfigException(
                f"The host_info ({shown(self.host_info)}) of {self.name} must be a HostInfo or None. "
                "Maybe HostInfo('localhost', 8080)."
            )
        if self.state_dir is not None:
            try:
                local_path(f"state_dir of {self.name}", self.state_dir)
            except ValueError as error:
                raise ConfigException(str(error)) from None

    @property
    def capacity(self) -> int:
        """Its threads; as Kafka has it, 1 if nobody says how many."""
        return 1 if self.threads is None else self.threads

    def with_settings(self, config: StreamsConfig) -> ClientSpec:
        """The same with what the settings say of a client where it says nothing itself.

        Raises:
            ConfigException: these are no settings.
        """
        if not isinstance(config, StreamsConfig):
            raise ConfigException(f"The config must be a StreamsConfig, not of the type {type(config).__name__}.")
        found = ClientSpec(
            self.name,
            config.num_stream_threads if self.threads is None else self.threads,
            config.client_rack if self.rack is None else self.rack,
            {**config.client_tags, **self.tags},
            self.state_dir,
            config.host_info if self.host_info is None else self.host_info,
        )
        object.__setattr__(found, "_given", self.given)
        return found

    @property
    def given(self) -> ClientSpec:
        """What was said of it alone: settings are those of all clients."""
        return self if self._given is None else self._given

    def process_id(self, application_id: str) -> ProcessId:
        """The client's process id: the same whenever this client of this application comes back.

        Kafka writes a random one into the state directory; a name serves as well, and runs are repeatable.
        """
        return ProcessId(uuid.uuid5(uuid.NAMESPACE_URL, f"task-assignor:{application_id}/{self.name}"))


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
        topics: where the topics are; all clients must reach them.
        run_dir: folder of the run, a path or a URL; on storage that all clients reach.
        state_dir: folder of the client's snapshots; may be local.
        options: settings of the runtime.
        topic_ids: topic -> the id that it must have.
        columns: topic -> the columns that the run sees of it, whatever it gains meanwhile.
        epoch_ms: when the coordinator began, milliseconds since the epoch.
    """

    address: tuple[str, int]
    authkey: bytes = attrs.field(repr=False)
    spec: ClientSpec
    application_id: str
    run_id: str
    topology: Topology
    topics: Topics
    run_dir: str
    state_dir: str
    options: RuntimeOptions
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)
    columns: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    epoch_ms: int = 0


@attrs.frozen
class LaunchPlan:
    """What a launcher is asked to bring to life.

    Args:
        application_id: `application.id`.
        run_id: identity of the run folder.
        bootstraps: one per client, in the order in which the user gave them.
        is_continuous: the run goes on until it is stopped.
    """

    application_id: str
    run_id: str
    bootstraps: tuple[ClientBootstrap, ...]
    is_continuous: bool = False

    def bootstrap(self, client: str) -> ClientBootstrap:
        """The bootstrap of a client by name."""
        return next(found for found in self.bootstraps if found.spec.name == client)


@attrs.frozen
class ClientExit:
    """A client's process has ended.

    Args:
        client: its name.
        reason: how: exit code, signal, or what the engine says.
        has_left: it ended because it was told to leave, and shall not be replaced.
    """

    client: str
    reason: str
    has_left: bool = False


@attrs.frozen
class Departure:
    """A client's place is about to go away.

    Args:
        client: its name.
        reason: why.
    """

    client: str
    reason: str


def _code_of(file: str, make: Callable[..., CodeType], *arguments: object) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def _reduced(code: CodeType) -> tuple[Any, ...]:
    make, arguments = cloudpickle.CloudPickler.dispatch_table[CodeType](code)
    return _code_of, (code.co_filename, make, *arguments)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    """Code keeps the name of its file, which messages and tracebacks need; cloudpickle leaves it out from 3.1.3 on."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduced}, cloudpickle.CloudPickler.dispatch_table)


def _by_value(value: object) -> bytes:
    """As bytes for `pickle.loads`; lambdas, local classes and those of `__main__` with their code."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def pickle_bootstrap(bootstrap: ClientBootstrap) -> bytes:
    """A bootstrap as bytes for `pickle.loads` elsewhere; lambdas, local classes and those of `__main__` go by value.

    Raises:
        TopologyException: a processor or a serde cannot be sent to another process.
    """
    try:
        found = _by_value(bootstrap)
    except Exception as error:
        if _can_import_main():
            # By value it holds a lock or a file of its module, which another process can import instead.
            with suppress(Exception):
                return pickle.dumps(bootstrap)
        raise TopologyException(
            f"{_culprit(bootstrap)} cannot be sent to another process: {failure(error)}. Maybe it holds a file, a lock or a connection; "
            "a processor opens those in init(), which runs where the task runs, and a serde when it is first asked."
        ) from error
    if len(found) > _LARGE_BYTES and bootstrap.run_id not in _LARGE_RUNS:
        _LARGE_RUNS.add(bootstrap.run_id)
        _log.warning(
            "Each client is sent %d MB, most of it for %s. That takes time and memory, also where a client is replaced. Maybe a function "
            "of it has a table of its module or notebook: read such in init(), from a file, or make it a topic.",
            len(found) >> 20,
            _largest(bootstrap),
        )
    return found


def _can_import_main() -> bool:
    """Another process can import what is `__main__` here; not so in a notebook or at a prompt."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is not None or getattr(main, "__file__", None) is not None


def _users_parts(bootstrap: ClientBootstrap) -> Iterator[tuple[str, object]]:
    """What may have anything in it, with its name."""
    for sub in bootstrap.topology.sub_topologies:
        yield f"the processor {processor_name(sub.processor)} of the sub-topology {sub.name!r}", sub.processor
    for stream in bootstrap.topology.derived:
        yield f"the derived stream {stream.name!r}", stream
    yield "the topics_root, or a serde in it,", bootstrap.topics


def _culprit(bootstrap: ClientBootstrap) -> str:
    for name, part in _users_parts(bootstrap):
        try:
            _by_value(part)
        except Exception:  # noqa: BLE001 - this is the question
            return f"T{name[1:]}"
    return "The topology"


def _largest(bootstrap: ClientBootstrap) -> str:
    sizes = {name: len(_by_value(part)) for name, part in _users_parts(bootstrap)}
    return max(sizes, key=sizes.__getitem__)


class Launcher(Protocol):
    """Starts clients and ends them, those of one run after the other.

    All calls of a run come from one thread; none of them may block for long, but `stop`.
    """

    @property
    def coordinator_host(self) -> str:
        """Address of this machine at which its clients reach the coordinator."""

    def start(self, plan: LaunchPlan) -> None:
        """Start all clients of the plan.

        Raises:
            StreamsException: that is not possible.
        """

    def capacity(self) -> int | None:
        """How many clients can run at the same time now; None: all that are wanted."""

    def add(self, bootstrap: ClientBootstrap) -> None:
        """Start one client more, after `start`.

        Raises:
            StreamsException: that is not possible.
        """

    def remove(self, client: str) -> None:
        """A client shall not run any more: end its process. It is no member of the group; `exits` tells its end, also where it has no process."""

    def departing(self) -> Sequence[Departure]:
        """Clients that should leave since their places are about to go away; those found since the last call."""

    def replace(self, client: str) -> None:
        """The process of a client has ended: start another one with the same name, or leave that to the engine."""

    def exits(self) -> Sequence[ClientExit]:
        """Processes that have ended since the last call.

        Raises:
            StreamsException: the engine has given up; the run fails with it.
        """

    def stop(self, timeout_s: float) -> None:
        """All clients were told to stop: wait for them, then end those that are still there. Afterwards none lives."""


_BUSY: Final[set[int]] = set()
_lock: Final = threading.Lock()


@contextmanager
def alone_with(launcher: Launcher) -> Iterator[None]:
    """Have a launcher for one run, while it lasts: the end of a second one would end the clients of both.

    Raises:
        ClientException: another run has it.
    """
    with _lock:
        if id(launcher) in _BUSY:
            raise ClientException(
                f"The {type(launcher).__name__} of this application has the clients of another run, which goes on. Maybe make one for each "
                "of them."
            )
        _BUSY.add(id(launcher))
    try:
        yield
    finally:
        _BUSY.discard(id(launcher))
