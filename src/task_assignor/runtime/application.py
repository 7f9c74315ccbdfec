"""The library's entry point: `StreamsApplication` puts topology, settings, topics, clients and a launcher together."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import pyarrow as pa

from task_assignor.group import GroupLeader
from task_assignor.group.limits import GivenUpError, Limited
from task_assignor.runtime.errors import CommitLogException, StoreException
from task_assignor.runtime.folder_claim import FolderClaim
from task_assignor.runtime.identity import identity_of
from task_assignor.runtime.kafka_settings import options_with, warn_of_idle_settings
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.patience import NEVER
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.coordinator.topic_news import news_every_ms
from task_assignor.runtime.machines.events import RunEvent
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.options import RuntimeOptions
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.run_folder.layout import (
    RunDescription,
    RunLayout,
    read_application,
)
from task_assignor.runtime.run_folder.manifests import Manifests
from task_assignor.runtime.shells.clients import Clients, client_specs, new_specs
from task_assignor.runtime.shells.launcher import ClientBootstrap, ClientSpec, Launcher, LaunchPlan, alone_with
from task_assignor.runtime.shells.local import LocalProcessLauncher, end_if_starting
from task_assignor.runtime.shells.server import CoordinatorServer
from task_assignor.runtime.shells.signals import stopping_on_signals
from task_assignor.runtime.shells.standstill import Standstill
from task_assignor.runtime.shells.store_reading import check_store, read_store
from task_assignor.runtime.shells.watcher import Watcher
from task_assignor.runtime.storage.disk import run_dir_errors
from task_assignor.runtime.tasks.log import Log, Source, Topics
from task_assignor.runtime.tasks.offset_reset import with_reset
from task_assignor.runtime.topics.topic import FolderTopics, topics_storage
from task_assignor.runtime.topology.topology import Topology
from task_assignor.runtime.watching.metrics import Metrics
from task_assignor.runtime.watching.recorder import Recorder, RunResult
from task_assignor.runtime.watching.run_log import RunLog
from task_assignor.sdk import ConfigException, StreamsConfig, StreamsException
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import duration, shown

_log = logger_of(__name__)
Until = Literal["available_now", "stopped"] | Callable[[RunEvent], bool]
_UNTIL: Final = ("available_now", "stopped")
"""When a run ends: see `StreamsApplication.run`."""
_ARGUMENTS: Final[tuple[tuple[str, tuple[type, ...], str, str], ...]] = (
    ("topology", (Topology,), "", "a Topology, such as Topology([SubTopology(...)])"),
    ("config", (StreamsConfig,), "", "a StreamsConfig, such as StreamsConfig({'application.id': 'shop'})"),
    ("topics_root", (str, Path), "prepare", "a path, a URL or KafkaTopics"),
    ("run_dir", (str, Path), "", "a path or a URL"),
    ("launcher", (type(None),), "departing", "a launcher, such as LocalProcessLauncher(), or None"),
    ("options", (RuntimeOptions, type(None)), "", "RuntimeOptions or None"),
)
"""Argument -> its types, or what an object of any other type must have, and how to say so; else the error would be Python's own, far from here."""
_LEAVE_S, _HURRY_S = 2.0, 0.5
"""So long the processes of clients that have said goodbye may take to end; and those of a run that was interrupted."""


class StreamsApplication:
    """An application: it processes the topics exactly once, to their present ends or as they grow, and can be run again to go on.

    Running it again on the same folder continues after the last committed batch, whatever happened to the run before.

    Args:
        topology: what is computed.
        config: settings in Kafka's keys; `application.id` is needed, `task.assignor.class` decides who places the tasks.
        topics_root: folder of the topics, a path or a URL (`s3://bucket/folder`); or `KafkaTopics`, for topics of Kafka.
        run_dir: folder of the run, a path or a URL: commit log, outputs, changelogs. All clients must reach it. Clients
            without a state directory have theirs in it; if it is a URL, below the folder for temporary files.
        clients: how many clients (at most 10 000), or which. Clients given by number are `client-1`, `client-2` and so on. What
            a client does not say itself - threads, rack, tags, host - the settings say.
        launcher: brings the clients to life; None: processes on this machine.
        options: settings of the runtime itself.

    Raises:
        StreamsException: topology and topics do not fit, settings are missing, or clients are given twice.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        topics_root: str | Path | Topics,
        run_dir: str | Path,
        clients: int | Sequence[ClientSpec] = 2,
        launcher: Launcher | None = None,
        options: RuntimeOptions | None = None,
    ) -> None:
        self._given: dict[str, Any] = {
            "topology": topology,
            "config": config,
            "topics_root": topics_root,
            "run_dir": run_dir,
            "clients": clients,
            "launcher": launcher,
            "options": options,
        }
        self._check_types()
        self._topology = topology
        self._config = config
        self._topics_at: Topics = (
            FolderTopics(topics_storage(topics_root).address) if isinstance(topics_root, (str, Path)) else topics_root
        )
        self._layout = RunLayout(run_dir)
        self._options = options_with(config, options or RuntimeOptions())
        warn_of_idle_settings(config)
        self._launcher: Launcher = LocalProcessLauncher() if launcher is None else launcher
        self._application_id = config.application_id
        self._metrics = Metrics(self._application_id)
        self._clients, self._gone = self._specs(clients), set[str]()
        """Clients that have left by themselves in this run."""
        if (self._options.min_clients or 0) > len(self._clients):
            wanted = f"The min_clients ({self._options.min_clients}) of the RuntimeOptions"
            raise ConfigException(f"{wanted} must be at most the number of clients, which is {len(self._clients)}.")
        self._topics = {name: self._opened(name) for name in topology.sources}
        self._tasks = topology.bind(self._application_id, {name: found.spec for name, found in self._topics.items()})
        self._between: dict[str, Log] = {}
        """Repartition topics that are not in the folder of the run."""
        self._server: CoordinatorServer | None = None
        self._has_begun = False
        """`run` was called, and has not come back."""
        self._early_stop: str | None = None
        """Why the run is to end, as said before it had a server."""
        # A signal handler may come in between, in the same thread.
        self._telling = threading.RLock()

    def _check_types(self) -> None:
        for name, types, ability, expected in _ARGUMENTS:
            given = self._given[name]
            is_able = ability and not isinstance(given, type) and hasattr(given, ability)
            if not isinstance(given, types) and not is_able:
                # Not its value: settings hold passwords.
                raise ConfigException(
                    f"The {name} of a StreamsApplication must be {expected}, not of the type {type(given).__name__}."
                )

    @property
    def clients(self) -> tuple[ClientSpec, ...]:
        """The clients that shall run: those that were asked for, without those that have left by themselves."""
        return tuple(spec for spec in self._clients if spec.name not in self._gone)

    def scale(self, clients: int | Sequence[ClientSpec]) -> None:
        """Have other clients from now on: new ones are started, others leave after their batches. From any thread.

        Args:
            clients: how many, or which, of those that there are and new ones. Of a number, the first ones stay, and new
                ones are `client-1`, `client-2` and so on, whatever names are free. One of a known name that has other
                threads, or is elsewhere, takes the place of the one that there is, when that has left.

        Raises:
            ClientException: none, too many, two of one name or, on one machine, of one state directory.
        """
        if type(clients) is int:
            names = {spec.name for spec in self.clients}
            clients = [
                *self.clients[: max(clients, 0)],
                *new_specs(clients - len(names), names),
            ]
        self._clients = self._specs(clients)
        self._gone.clear()

    def _specs(self, clients: int | Sequence[ClientSpec]) -> tuple[ClientSpec, ...]:
        return client_specs(clients, self._config, are_together=isinstance(self._launcher, LocalProcessLauncher))

    @property
    def config(self) -> StreamsConfig:
        """The settings."""
        return self._config

    @property
    def metrics(self) -> Metrics:
        """What its runs, made with this object, have come to: counts since it was made, and how things are now."""
        return self._metrics

    def evolve(self, **changes: Any) -> StreamsApplication:
        """The same application with other arguments of the constructor, by name; this one stays as it is.

        Raises:
            TypeError: the constructor has no such argument.
            StreamsException: as for the constructor.
        """
        return type(self)(**{**self._given, **changes})

    def request_stop(self, reason: str = "stop was requested") -> bool:
        """End the run after the batches that are being processed. May be called from any thread, the callback, a signal handler.

        Returns:
            Whether there is a run to be ended, be it that it still opens its folder and its topics.

        Raises:
            ConfigException: the reason is no text.
        """
        if not isinstance(reason, str):
            raise ConfigException(f"The reason ({shown(reason)}) of a stop must be a text.")
        with self._telling:
            if self._server is not None:
                self._server.request_stop(reason)
            elif self._has_begun:
                self._early_stop = self._early_stop or reason
            return self._has_begun or self._server is not None

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """While it lasts, it may be said that the run is to end."""
        self._early_stop, self._has_begun = None, True
        try:
            yield
        finally:
            self._has_begun = False

    def request_marker(self, name: str) -> bool:
        """Have a commit by which everything is done that is in the sources now: a cut over all tasks, and no task waits for it.

        When it is there `MarkerReached` tells it, else `MarkerRefused` why it is not; `read_output(run_dir, output, name)`
        reads an output as it was then. In a run to the present ends of the topics, they are what it is to reach. May be
        called from any thread, and from the callback.

        Args:
            name: its name, any text that UTF-8 can write; no other marker of the run may have it. The newest 32 are kept.

        Returns:
            Whether there is a run.

        Raises:
            ConfigException: it is no name.
        """
        # Half a surrogate pair is written down as its escape, under which nobody would ask for it.
        if not isinstance(name, str) or not name.strip() or name != name.encode(errors="ignore").decode():
            raise ConfigException(f"The name of a marker ({shown(name)}) must be a text of UTF-8 that is not empty.")
        server = self._server
        return server is not None and server.request_marker(name)

    def reset(self, *, is_dry: bool = False) -> tuple[str, ...]:
        """Delete what it has in Kafka besides its outputs, so that it begins anew there: internal topics, and its group's offsets.

        It takes another `run_dir`, too; where outputs are files that alone, and nothing is deleted. Gives what is; where `is_dry`,
        what would be.

        Raises:
            StreamsException: it runs, or brokers do not answer, or refuse.
        """
        return self._topics_at.reset(self._application_id, self._topology, is_dry=is_dry)

    def read_store(self, name: str, partitions: int | Iterable[int] | None = None) -> pa.Table:
        """What a store holds, as of the last commits of its tasks. Also while a run goes on, in this process or elsewhere.

        A key-value store gives a row for each key, task by task, in the order of the keys; a window store the rows that it has
        not forgotten. Each task is restored for it, as on a client that takes it over, in the folder for temporary files; so a
        store of many tasks takes a while, and must fit into memory as a table.

        Args:
            name: the store.
            partitions: of which tasks, or task; None: of all; none: no rows. Where a key is `partitions_of` says.

        Returns:
            Its columns; of a window store into which nothing came there are none.

        Raises:
            StreamsException: there is no such run, store or partition, the store has no changelog or was another one when the
                run last began, or what was committed cannot be read.
        """
        run = read_application(self._layout)
        if run.application_id != self._application_id:
            raise CommitLogException(
                f"The folder {self._layout.run_dir} belongs to the application {run.application_id!r}, not to {self._application_id!r}."
            )
        outputs = {output.name: None for sub in self._topology.sub_topologies for output in sub.written}
        check_store(self._topology, name, run.identity, identity_of(self._topology, self._topics, outputs))
        tasks = {
            task.partition: task
            for task in self._tasks
            if name in [store.name for store in self._topology.of_task(task).stores]
        }
        wanted = [*tasks] if partitions is None else [*partitions] if isinstance(partitions, Iterable) else [partitions]
        if unknown := [partition for partition in wanted if partition not in list(tasks)]:
            raise StoreException(
                f"The store {name!r} has no partition {shown(unknown[0])}: it has {len(tasks)}, from 0 to {len(tasks) - 1}."
            )

        def reader(folder: str) -> ClientBootstrap:
            found = self._bootstrap(ClientSpec("reader", state_dir=folder), run.run_id, 0, b"", 0)
            # Connected anew, as by a client: others may read the same changelog in this process, from elsewhere in it.
            return attrs.evolve(found, topics=copy(self._topics_at))

        # Of no task there are no rows, but the columns of any.
        found = read_store(reader, {tasks[partition] for partition in wanted} or {next(iter(tasks.values()))}, name)
        return found if wanted else found.slice(0, 0)

    def run(
        self,
        on_event: Callable[[RunEvent], None] | None = None,
        *,
        until: Until = "available_now",
        on_line: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Process the rows that the topics have.

        In the main thread, SIGTERM and Ctrl-C end a run like `request_stop`: the batches that are being processed are
        finished and committed (`stop_timeout_ms` is the limit), and the result is returned. A second signal ends it at
        once, by KeyboardInterrupt. Either way the next run goes on after the last committed batch.

        Args:
            on_event: told of everything that happens, in the calling thread; it should be quick. What it raises ends the run.
            until: when it ends. "available_now": when all rows are processed that the topics had when it began.
                "stopped": when somebody stops it; rows that come while it runs are processed as they come. A function of
                events: the same, and the run is stopped after the first event of which it is true.
            on_line: the same as lines of JSON, for programs: an object with `at`, `event` and what it says; commits are
                gathered, a line a second.

        Returns:
            What came of it.

        Raises:
            StreamsException: a processor failed, a file cannot be read, the assignor's answer cannot be used, clients
                do not come, another application owns the folder. What was committed before stays, no client is left.
        """
        if not callable(until):
            check_choice("The until", until, _UNTIL, ConfigException, "of a run", "a function of its events")
        listeners: dict[str, object] = {"on_event": on_event, "on_line": on_line}
        for name, told in listeners.items():
            if told is not None and not callable(told):
                advice = f" Maybe run(until={told!r})." if isinstance(told, str) and told in _UNTIL else ""
                raise ConfigException(f"The {name} ({shown(told)}) of a run must be a function, or None.{advice}")
        end_if_starting()
        is_continuous = until != "available_now"
        opened = f"its folder, {self._layout.run_dir}, and its topics, {self._topics_at.address}, which it opens"
        with self._stoppable(), Standstill("The run") as waits, ExitStack() as held:
            with waits.during(opened), self._metrics.counting_failure():
                folder = self._folder()
                # Before anything is done to topics: somebody else's run may write them.
                held.enter_context(folder.alone())
                is_new = not self._layout.has_commits()
                self._topics_at.prepare(
                    self._application_id, self._topology, self._tasks, self._client_names, is_new=is_new
                )
                self._between = {
                    name: found
                    for name in self._topology.repartitions
                    if (found := self._topics_at.open_repartition(self._application_id, self._topology, name))
                    is not None
                }
                run = folder.claim(self._between)
                commits, opening, progress = self._open(run, is_continuous=is_continuous)
            with closing(RunLog(self._layout.storage, self._application_id, opening.epoch)) as log:
                recorder = Recorder(
                    self._told(on_event, until), on_line, self._metrics, log, self._manifests(log, opening.epoch)
                )
                with closing(recorder), recorder.telling_failures(), alone_with(self._launcher):
                    self._run(run.run_id, commits, opening, progress, recorder, log, waits, is_continuous=is_continuous)
                    with waits.during("its topics, which it looks at once more"):
                        self._look_once_more(progress, recorder.stopped, is_continuous=is_continuous)
            is_elsewhere = self._topics_at.has_results(self._topology)
            at = f"the topics of {self._topics_at.address}" if is_elsewhere else ""
            return recorder.result(self._application_id, self._layout.run_dir, progress.batches, at)

    def _look_once_more(self, progress: Progress, stopped: str, *, is_continuous: bool) -> None:
        """See, when all is over, that topics still have what was read and committed."""

        def look() -> None:
            if not is_continuous:
                # Nobody has watched whether one is another topic by now, whose rows have the same offsets.
                for name, topic in self._topics.items():
                    topic.check(progress.offsets(name), progress.seals(name))
                    topic.tell_of_hidden()
            self._topics_at.check_results(self._application_id, self._topology, self._tasks)

        if not stopped:
            look()
            return
        # Whoever stops a run because brokers are away does not want to wait for them.
        limit_ms = self._options.stop_timeout_ms
        try:
            Limited(look, "look once more").answer(limit_ms / 1000)
        except GivenUpError:
            _log.warning(
                "The run was stopped (%s), and %s did not say within %s whether all is still there that was read and committed: the next "
                "run looks before it begins. Batches that could not be committed are done then.",
                stopped,
                self._topics_at.address,
                duration(limit_ms),
            )

    def _open(self, run: RunDescription, *, is_continuous: bool) -> tuple[CommitLog, CommitRecord, Progress]:
        """The commit log with the first commit of this run, and how far the tasks are by now."""
        # Nobody has written them anew since the topology was held against them.
        self._topics = {
            name: self._opened(name, topic.topic_id, topic.spec.schema.names) for name, topic in self._topics.items()
        }
        given = self._options
        upkeep = Upkeep(given.compression, retention_ms=given.output_retention_ms, history_bytes=given.history_bytes)
        commits = CommitLog(self._layout.run_dir, upkeep)
        with run_dir_errors("The commit log cannot be opened"):
            here = f"process {os.getpid()} on {socket.gethostname()}"
            opening = commits.open_epoch(self._application_id, here, round(time.time() * 1000))
        starts = {name: topic.start_offsets() for name, topic in {**self._topics, **self._between}.items()}
        # A topic that was put back from an older copy may begin earlier: nothing is passed over.
        ends = {name: topic.end_offsets() for name, topic in self._topics.items()}
        most = ends if run.reset else starts
        starts = {name: [*map(min, run.starts.get(name, at), most.get(name, at))] for name, at in starts.items()}
        sources = {task: self._topology.of_task(task).sources for task in self._tasks}
        tables = {table for found in self._topology.processor_topologies for table in found.tables}
        # They are complete as soon as who writes them has read everything; in a run that goes on that is never so.
        repartitions = Repartitions(
            {
                name: output.partitions
                for name, output in self._topology.repartitions.items()
                if name not in self._between
            },
            self._topology.writers,
            {name: found.end_offsets() for name, found in self._between.items()},
            self._topology.timed({name: topic.spec for name, topic in self._topics.items()}, self._tasks),
            are_awaited=not is_continuous and self._options.max_task_idle_ms != NEVER,
            idle_ms=self._options.max_task_idle_ms if is_continuous else 0,
            news_every_ms=news_every_ms(len(self._tasks)) if is_continuous else None,
        )
        checkpoint, records = commits.opened()
        progress = Progress.after(checkpoint, records, sources, ends, tables, starts, repartitions)
        for name, topic in self._topics.items():
            topic.check(progress.offsets(name), progress.seals(name))
        return commits, opening, progress

    def _client_names(self) -> set[str]:
        """Those of now and of former runs, as far as the folder says them."""
        names = {spec.name for spec in self._clients}
        with suppress(CommitLogException):  # whoever opens the log says so
            for rebalance in CommitLog(self._layout.run_dir).rebalances():
                names.update(name for name, _ in rebalance.clients.values())
        return names

    def _manifests(self, log: RunLog, epoch: int) -> Manifests:
        outputs = [output for sub in self._topology.sub_topologies for output in sub.written]
        names = [output.name for output in outputs if output.format == "parquet"]
        return Manifests(self._layout.run_dir, epoch, names, log.document)

    def _told(self, on_event: Callable[[RunEvent], None] | None, until: Until) -> Callable[[RunEvent], None] | None:
        """Who is told of events, the condition under which the run ends included."""
        if not callable(until):
            return on_event
        is_met = until

        def tell(event: RunEvent) -> None:
            if on_event is not None:
                on_event(event)
            if is_met(event):
                self.request_stop("the condition of `until` is met")

        return tell

    def _run(
        self,
        run_id: str,
        commits: CommitLog,
        opening: CommitRecord,
        progress: Progress,
        recorder: Recorder,
        log: RunLog,
        waits: Standstill,
        *,
        is_continuous: bool,
    ) -> None:
        authkey = secrets.token_bytes(32)
        with self._telling:
            server = self._server = CoordinatorServer(self._bind_host, authkey, waits, self._options.bind_port)
            if self._early_stop is not None:
                server.request_stop(self._early_stop)
        self._gone.clear()
        error: StreamsException | None = None
        is_done = False
        with stopping_on_signals(server.request_stop):
            try:
                leader = GroupLeader(
                    self._config.task_assignor,
                    self._config.assignment_configs,
                    self._tasks,
                    self._config.task_assignor_class.__qualname__,
                    log.state,
                )
                bootstrap = partial(
                    self._bootstrap,
                    run_id=run_id,
                    port=server.port,
                    authkey=authkey,
                    epoch_ms=opening.committed_at_ms,
                )
                clients = Clients(
                    self._launcher,
                    server,
                    lambda: self.clients,
                    bootstrap,
                    self._options.min_clients,
                    self._gone.add,
                )
                permits = self._topics_at.permits(self._application_id, self._topology)
                coordinator = Coordinator(
                    run_id,
                    leader,
                    progress,
                    self._options,
                    clients.expected,
                    opening,
                    server.clock.now_ms(),
                    {task: self._topology.of_task(task).processors_name for task in self._tasks},
                    is_continuous=is_continuous,
                    needs_permits=permits is not None,
                )

                def announce(event: RunEvent) -> None:
                    clients.watch(event)
                    recorder(event)

                def poll() -> None:
                    recorder.poll()
                    clients.look_after(coordinator)

                bootstraps = tuple(bootstrap(spec) for spec in self._clients)
                with waits.during("the launcher of its clients"):
                    self._launcher.start(LaunchPlan(self._application_id, run_id, bootstraps, is_continuous))
                error = server.run(
                    coordinator,
                    leader,
                    commits,
                    announce,
                    poll,
                    recorder.committed,
                    recorder.checkpointed,
                    self._watcher() if is_continuous else None,
                    permits,
                )
                clients.end_absent()
                is_done = True
            finally:
                # Closing the connections tells clients that were not told otherwise.
                server.close()
                self._server = None
                with waits.during("the end of its clients"):
                    self._launcher.stop(_LEAVE_S if is_done else _HURRY_S)
        if error is not None:
            raise error

    def _opened(self, name: str, *known: Any) -> Source:
        return with_reset(self._topics_at.open(name, *known), self._options.auto_offset_reset)

    def _folder(self) -> FolderClaim:
        reset = self._options.auto_offset_reset
        return FolderClaim(self._application_id, self._layout, self._topology, self._topics_at, self._topics, reset)

    def _watcher(self) -> Watcher:
        options = self._options
        interval_ms = options.source_poll_interval_ms or self._topics_at.poll_interval_ms
        return Watcher(self._topics, interval_ms / 1000, options.session_timeout_ms / 1000)

    @property
    def _bind_host(self) -> str:
        return self._options.bind_host or self._launcher.coordinator_host

    def _state_dir(self, client: str, run_id: str) -> str:
        root = str(self._config.values["state.dir"])
        return str(Path(root) / client if root else self._layout.client(client, run_id))

    def _bootstrap(self, spec: ClientSpec, run_id: str, port: int, authkey: bytes, epoch_ms: int) -> ClientBootstrap:
        return ClientBootstrap(
            (self._options.advertised_host or self._bind_host, port),
            authkey,
            spec,
            self._application_id,
            run_id,
            self._topology,
            self._topics_at,
            self._layout.run_dir,
            # As seen from here: an executor of Spark works in a folder of its own, which goes with it.
            str(Path(spec.state_dir or self._state_dir(spec.name, run_id)).absolute()),
            self._options,
            {name: topic.topic_id for name, topic in {**self._topics, **self._between}.items()},
            {name: topic.spec.schema.names for name, topic in self._topics.items()},
            epoch_ms,
        )
