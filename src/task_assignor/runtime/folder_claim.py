"""A run takes its folder: nobody else has it, and what was committed there fits what the application is now."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import deepcopy

import msgspec
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import not_in_arrow
from task_assignor.runtime.errors import CommitLogException, TopologyException
from task_assignor.runtime.identity import (
    IN_TOPICS,
    PLACE,
    columns_of,
    differences,
    hints,
    identity_of,
    with_allowed_changes,
)
from task_assignor.runtime.run_folder.commits import CommitLog, known_type
from task_assignor.runtime.run_folder.layout import (
    APPLICATION,
    LOCK,
    RunDescription,
    RunLayout,
    check_is_new,
    read_application,
)
from task_assignor.runtime.run_folder.outputs import output_schema
from task_assignor.runtime.storage import as_document, not_in_parquet
from task_assignor.runtime.storage.disk import run_dir_errors
from task_assignor.runtime.tasks.log import Log, Source, Topics, refresh_all
from task_assignor.runtime.tasks.offset_reset import first_offsets
from task_assignor.runtime.topics.topic import FolderTopics
from task_assignor.runtime.topology.topology import Topology
from task_assignor.sdk import ConfigException, StreamsException
from task_assignor.sdk.text import is_url


class FolderClaim:
    """What an application is, for who takes the folder of its run.

    Args:
        application_id: `application.id`.
        layout: the folder.
        topology: what is computed.
        topics_at: where its topics are.
        topics: its source topics, by name.
        reset: `auto.offset.reset`.
    """

    def __init__(
        self,
        application_id: str,
        layout: RunLayout,
        topology: Topology,
        topics_at: Topics,
        topics: Mapping[str, Source],
        reset: str | None = None,
    ) -> None:
        self._application_id = application_id
        self._layout = layout
        self._topology = topology
        self._topics_at = topics_at
        self._topics = topics
        self._reset = reset

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else can use the folder meanwhile.

        Raises:
            CommitLogException: somebody else uses it, or it cannot be one.
            ConfigException: it is the folder of the topics, or in that of one of them.
        """
        folder = self._layout.run_dir
        places = (self._layout.storage.address, self._topics_at.address)
        run, root = (place if is_url(place) else os.path.realpath(place) for place in places)
        within = [name for name in self._topics if f"{run}/".startswith(f"{root}/{name}/")]
        if (run == root or within) and not self._layout.storage.is_there(APPLICATION):
            problem = (
                f"in that of the topic {within[0]!r}, with which the run would be deleted"
                if within
                else "the folder of the topics, which would go when the run is deleted"
            )
            raise ConfigException(f"The run_dir ({folder}) is {problem}. Maybe a folder beside it.")
        with ExitStack() as held:
            with self._disk_errors():
                try:
                    held.enter_context(self._layout.storage.hold(LOCK))
                except BlockingIOError:
                    raise CommitLogException(
                        f"Another coordinator{self._opened_by()} runs on {folder}. Maybe wait for it, or use another run_dir."
                    ) from None
            yield

    def claim(self, between: Mapping[str, Log]) -> RunDescription:
        """The run of the folder, for who is alone with it.

        Args:
            between: its repartition topics that are not in the folder, by name.

        Raises:
            CommitLogException: it is another application's, or what was committed does not fit any more.
            StreamsException: it cannot be used for what the application is.
        """
        with self._disk_errors():
            return self._claim(between)

    def _disk_errors(self) -> AbstractContextManager[None]:
        return run_dir_errors(f"The run folder {self._layout.run_dir} cannot be used")

    def _opened_by(self) -> str:
        """Who has the folder, for a message."""
        with suppress(StreamsException):
            found = [record.opened_by for record in CommitLog(self._layout.run_dir).records() if record.opened_by]
            return f" ({found[-1]})" if found else ""
        return ""

    def _claim(self, between: Mapping[str, Log]) -> RunDescription:
        storage = self._layout.storage
        outputs = self._output_schemas()
        identity = identity_of(self._topology, self._topics, outputs, between, in_topics=self._has_results)
        description = RunDescription(
            self._application_id,
            str(uuid.uuid4()),
            identity,
            self._topics_at.address,
            {},
        )
        committed = {name: schema for name, schema in outputs.items() if name not in self._topology.repartitions}
        if not storage.is_there(APPLICATION):
            check_is_new(self._layout)
            new = self._beginning(description, committed)
            with suppress(FileExistsError):
                storage.put_if_absent(APPLICATION, as_document(new))
                return new
        found = read_application(self._layout)
        if found.application_id != self._application_id:
            raise CommitLogException(
                f"The folder {self._layout.run_dir} belongs to the application {found.application_id!r}, not to "
                f"{self._application_id!r}. Maybe use another run_dir."
            )
        before = self._with_place(self._with_columns(found, committed))
        changed = differences(with_allowed_changes(before.identity, identity, self._topology, outputs), identity)
        if changed and self._nothing_is_committed():
            new = self._beginning(description, committed, found)
            storage.put(APPLICATION, as_document(new))
            return new
        if changed:
            raise CommitLogException(
                f"The run in {self._layout.run_dir} cannot go on, since what was committed does not fit any more. "
                f"What differs - {'; '.join(changed)}.{hints(changed)} Maybe use another run_dir, which computes everything anew "
                "(where outputs are topics of Kafka, with another application.id), or go back to what it was."
            )
        self._check_letters(found)
        # Of runs that were killed as they began.
        storage.delete_unfinished([APPLICATION])
        # Runs that began with topics of Kafka did not note it once.
        starts = found.starts or self._starts(None)
        now = msgspec.structs.replace(description, run_id=found.run_id, outputs=before.outputs)
        now = now.with_outputs(committed).with_beginning(starts, found.reset)
        if now != found:
            storage.put(APPLICATION, as_document(now))
        return now

    def _with_columns(self, run: RunDescription, outputs: Mapping[str, pa.Schema | None]) -> RunDescription:
        """The run with the columns that outputs have got which were not declared, and are now: it goes on if these fit."""
        undeclared = [
            name for name, schema in outputs.items() if schema is not None and run.outputs.get(name, "") is None
        ]
        if not undeclared:
            return run
        log = CommitLog(self._layout.run_dir)
        columns, files = log.columns(), log.output_files()
        identity = deepcopy(run.identity)
        for sub in identity["sub-topologies"].values():
            for name in sub["outputs"].keys() & set(undeclared):
                now = columns_of(outputs[name] or pa.schema([]))
                before = columns.get(name) or now
                sub["outputs"][name] = {
                    column: known_type(kind, now.get(column, kind)) or kind for column, kind in before.items()
                }
        given = {name: None if files.topic(name) else output_schema(self._layout.run_dir, name) for name in undeclared}
        return msgspec.structs.replace(run.with_outputs(given), identity=identity)

    def _beginning(
        self, run: RunDescription, outputs: Mapping[str, pa.Schema | None], before: RunDescription | None = None
    ) -> RunDescription:
        starts, reset = self._starts(self._reset), self._reset or ""
        if before is not None:
            # What has come since it began is not passed over because its processor could do nothing with it.
            reset = reset or before.reset
            for name in starts.keys() & before.starts.keys():
                if before.identity["topics"][name]["id"] == self._topics[name].topic_id:
                    starts[name] = tuple(map(min, starts[name], before.starts[name]))
        return run.with_outputs(outputs).with_beginning(starts, reset)

    def _nothing_is_committed(self) -> bool:
        """Whether the run has not got to its first batch, as one whose processor raises at once, and nobody else can have it."""
        if is_url(self._layout.storage.address) or not isinstance(self._topics_at, FolderTopics):
            return False
        with suppress(CommitLogException):  # whoever opens the log says what is wrong
            log = CommitLog(self._layout.run_dir)
            return log.checkpoint().number < 0 and not any(one.tasks or one.markers for one in log.records())
        return False

    def _check_letters(self, run: RunDescription) -> None:
        """An output for records that are left out may come back, but with the same tasks: its files are named by partition and batch.

        Raises:
            CommitLogException: it has rows of other tasks, or they cannot be looked up.
        """
        before = run.identity["sub-topologies"]
        back = [
            (name, sub)
            for sub in self._topology.sub_topologies
            for name in sub.dead_letters
            if name in run.outputs and name not in before[sub.name]["outputs"]
        ]
        if not back:
            return
        log = CommitLog(self._layout.run_dir)
        log.columns()  # sets a torn record aside
        files = log.output_files()
        for name, sub in back:
            for found in map(self._topology.of_task, {file.task for file in files.of(name)}):
                if sub not in found.nodes:
                    raise CommitLogException(
                        f"The run in {self._layout.run_dir} cannot go on with the output {name!r} for records that {sub.name!r} leaves "
                        f"out: it has records that tasks of {found.name!r} have left out. Maybe give it another name."
                    )

    @property
    def _has_results(self) -> bool:
        return self._topics_at.has_results(self._topology)

    def _with_place(self, run: RunDescription) -> RunDescription:
        """The run with the place of its outputs, if that is Kafka, which former versions of this package did not write down."""
        if not self._has_results or PLACE in run.identity:
            return run
        with suppress(CommitLogException):  # whoever reads the commits next says so, or does without a torn one
            files = CommitLog(self._layout.run_dir).output_files()
            if any(file for name in run.outputs if not files.topic(name) for file in files.of(name)):
                return run
        return msgspec.structs.replace(run, identity={**run.identity, PLACE: IN_TOPICS})

    def _starts(self, reset: str | None) -> dict[str, tuple[int, ...]]:
        """Where a new run begins: what is deleted of that before it is read is missed, though no batch says where its task was."""
        refresh_all(self._topics.values())
        tables = {name for found in self._topology.processor_topologies for name in found.read_as_tables}
        now_ms = round(time.time() * 1_000)
        starts = {
            name: first_offsets(topic, None if name in tables else reset, now_ms)
            for name, topic in self._topics.items()
        }
        # It may have processed something, though its folder does not know: what has come since is not passed over.
        counts = {name: topic.spec.partitions for name, topic in self._topics.items()}
        known = self._topics_at.committed_offsets(self._application_id, self._topology, counts)
        return {
            name: tuple(min(offset, known.get((name, partition), offset)) for partition, offset in enumerate(found))
            for name, found in starts.items()
        }

    def _output_schemas(self) -> dict[str, pa.Schema | None]:
        """Output -> its columns; None: those of the rows that come."""
        specs = self._topology.specs({name: topic.spec for name, topic in self._topics.items()})
        found: dict[str, pa.Schema | None] = {}
        for sub in self._topology.sub_topologies:
            for output in sub.written:
                schema = found[output.name] = sub.schema_of(output, specs)
                of_files = not_in_parquet if output.format == "parquet" else not_in_arrow
                wrong = None if schema is None else of_files(schema)
                if wrong:
                    raise TopologyException(
                        f"The output {output.name!r} cannot be in {output.format.title()}, which does not have its column {wrong}. Maybe "
                        "give it in another type."
                    )
                address = self._layout.storage.address
                if output.format == "parquet" and address.splitlines() != [address]:
                    raise CommitLogException(
                        f"The run folder {address!r} cannot have the output {output.name!r} in Parquet: the list of its files has a path a "
                        "line, and this one has the end of a line in it. Maybe use another run_dir."
                    )
        return found
