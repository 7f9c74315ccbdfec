"""`KafkaTopics`: the topics of an application that are in Kafka, for `StreamsApplication` in place of their folder."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal

import attrs
import pyarrow as pa
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from task_assignor.group import GroupException, plan_topics
from task_assignor.kafka.client_settings import BOOTSTRAP_SERVERS, UNDERSTOOD, ClientSettings
from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.committed import (
    Ends,
    RecordsLostException,
    check_kept,
    check_sources,
    end_transactions,
    hidden,
    last_commits,
    needed_ends,
    topic_of,
    warn_of_more_partitions,
)
from task_assignor.kafka.topics.connection import Connection
from task_assignor.kafka.topics.creation import check_group, check_names, check_settings, create_internal_topics
from task_assignor.kafka.topics.declaration import KafkaTopic
from task_assignor.kafka.topics.log import KafkaLog
from task_assignor.kafka.topics.membership import Membership
from task_assignor.kafka.topics.offsets import committed_offsets, high_watermarks
from task_assignor.kafka.topics.output_records import check_columns
from task_assignor.kafka.topics.reader import RecordReader
from task_assignor.kafka.topics.resetting import LeftInKafka, delete_left, has_group
from task_assignor.kafka.topics.rights import INTERNAL, OUTPUT, SOURCE, check_rights
from task_assignor.kafka.topics.serdes import RowSerde
from task_assignor.kafka.topics.transactions import KafkaResults
from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.options import positive
from task_assignor.runtime.stores.window import WindowStoreSpec
from task_assignor.runtime.topology.topology import Topology, changelog_topic
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.once import name_once
from task_assignor.sdk.text import counted, listed, shown

_log = logger_of(__name__)
DEFAULT_TIMEOUT_MS: Final = 60_000
_MARKERS_S: Final = 3.0
"""So long may it take until readers see what was committed, before a word is said."""
_LOOK_S: Final = 0.1
_HIDDEN_S: Final = 1.0
_UNKNOWN_TOPIC: Final = 3


def _to_settings(given: ClientSettings | Mapping[str, object]) -> ClientSettings:
    found = given if isinstance(given, ClientSettings) else ClientSettings.of(given)
    found.for_confluent_kafka()  # names what it does not take
    if not isinstance(given, ClientSettings):
        name_once({str(key) for key in given} - {*UNDERSTOOD}, "KafkaTopics makes no use of these settings")
    return found


def _by_name(given: Iterable[KafkaTopic]) -> tuple[KafkaTopic, ...]:
    topics: tuple[Any, ...] = tuple(given) if isinstance(given, Iterable) else (given,)
    strange = [topic for topic in topics if not isinstance(topic, KafkaTopic)]
    if strange:
        raise TopicException(f"The topics of KafkaTopics must be KafkaTopic objects, but one is {shown(strange[0])}.")
    names = [topic.name for topic in topics]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopicException(f"The topic {twice[0]} is declared twice.")
    return topics


@attrs.define
class _Clients:
    """What a process has connected."""

    process: int
    connection: Connection
    reader: RecordReader


@attrs.frozen
class KafkaTopics:
    """Topics of Kafka, for `StreamsApplication(…, topics_root=KafkaTopics(…))`.

    Tasks read what is committed (`isolation.level=read_committed`), by confluent-kafka in the process of their client. If the
    topology's outputs are among the topics (a topic has the name of its output), results go there, too: each batch of a task
    is one transaction with its output, its changelogs and its source offsets (group `application.id`). Then repartition topics are
    topics, too (`<application.id>-<name>-repartition`). Otherwise all of it goes into the folder of the run.

    Args:
        settings: how to reach the cluster, in the keys of Kafka's Java clients: `bootstrap.servers`, and those of TLS and
            SASL that `ClientSettings` knows. Others are named in the log: how records are read and written is not theirs to
            say (`acks=all`, `compression.type=lz4`, `isolation.level=read_committed`).
        topics: the topics that the application reads and writes.
        timeout_ms: when brokers have not answered for so long, the run ends with an error that says so, also as it begins: they
            may be on their way. That they are waited for is in the log after 5 s.

    Raises:
        ConfigException: a setting or the timeout is wrong.
        TopicException: a topic is declared twice, or is none.
    """

    settings: ClientSettings = attrs.field(converter=_to_settings)
    topics: tuple[KafkaTopic, ...] = attrs.field(converter=_by_name)
    timeout_ms: int = attrs.field(default=DEFAULT_TIMEOUT_MS, validator=positive)
    _connected: list[_Clients] = attrs.field(factory=list, init=False, repr=False, eq=False)
    _ids: dict[str, str] = attrs.field(factory=dict, init=False, repr=False, eq=False)
    """The ids of the topics that are written, as they were when the run began."""

    def __getstate__(self) -> dict[str, Any]:
        # Connections belong to a process.
        return {name: getattr(self, name) for name in ("settings", "topics", "timeout_ms")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_connected": [], "_ids": {}}.items():
            object.__setattr__(self, name, value)

    @property
    def address(self) -> str:
        """The brokers."""
        return f"{BOOTSTRAP_SERVERS}={','.join(self.settings.bootstrap_servers)}"

    @property
    def poll_interval_ms(self) -> int:
        """25: each look is a small request to each topic's brokers, fewer than those of a consumer."""
        return 25

    def declared(self, name: str) -> KafkaTopic | None:
        """What was said of a topic; None: nothing."""
        return next((topic for topic in self.topics if isinstance(name, str) and topic.name == name), None)

    def open(
        self,
        name: str,
        expected_id: str | None = None,
        columns: Collection[str] | None = None,  # noqa: ARG002 (its columns are those that were declared)
    ) -> KafkaLog:
        """The topic of that name.

        Raises:
            TopicException: it is not declared with columns, does not exist, or is another one than expected.
            KafkaClusterException: the cluster does not answer, or refuses.
        """
        topic = self.declared(name)
        if topic is None or topic.schema is None:
            known = [each.name for each in self.topics if each.schema is not None]
            raise TopicException(
                f"The topic {name!r} is read, but KafkaTopics does not say of which columns its rows are (it does of "
                f"{listed(known) if known else 'none'}). Maybe add KafkaTopic({name!r}, schema=…)."
            )
        return self._log(name, topic, topic.schema, expected_id)

    def open_repartition(
        self, application_id: str, topology: Topology, name: str, expected_id: str | None = None
    ) -> KafkaLog | None:
        """A repartition topic, where outputs are topics; its rows are not waited for for long, if an open transaction hides them.

        Who has to end that transaction may be another task of the client that waits.

        Raises:
            TopicException: it does not exist, or is another one than expected.
            KafkaClusterException: the cluster does not answer, or refuses.
        """
        topic = self._repartitions(application_id, topology).get(name)
        if topic is None:
            return None
        assert topic.schema is not None
        return self._log(name, topic, topic.schema, expected_id, wait_s=_HIDDEN_S, is_own=True)

    def _log(
        self,
        name: str,
        topic: KafkaTopic,
        schema: pa.Schema,
        expected_id: str | None,
        wait_s: float | None = None,
        *,
        is_own: bool = False,
    ) -> KafkaLog:
        clients = self._clients()
        if is_own and expected_id is None:
            # It was just created, and one broker after the other hears of that.
            found = self._describe(clients.connection, topic.name, SOURCE, if_absent="wait")
        else:
            found = self._described_as(clients.connection, topic.name, expected_id)
        topic_id = _uuid_of(found.topic_id)
        clients.connection.topics.add(topic.name)
        racks = [_racks(partition) for partition in found.partitions]
        known = racks if any(rack is not None for rack in racks) else None
        spec = topic.spec(schema, name, len(found.partitions), known)
        return KafkaLog(
            topic,
            spec,
            topic_id,
            clients.connection,
            clients.reader,
            lambda partitions: self._described_as(clients.connection, topic.name, topic_id, partitions),
            wait_s,
            is_own=is_own,
        )

    def _repartitions(self, application_id: str, topology: Topology) -> dict[str, KafkaTopic]:
        """Repartition topic -> how it is written and read, if results go into topics."""
        if not topology.repartitions or not self._outputs(topology):
            return {}
        declared = {name: topic for name in topology.sources if (topic := self.declared(name)) is not None}
        specs = topology.specs(
            {name: topic.spec(topic.schema) for name, topic in declared.items() if topic.schema is not None}
        )
        return {
            name: KafkaTopic(
                topic_of(application_id, topology, name),
                specs[name].schema,
                specs[name].key,
                specs[name].timestamp,
                RowSerde(),
            )
            for name in topology.repartitions
        }

    def _described_as(
        self, connection: Connection, name: str, expected_id: str | None, partitions: int | None = None
    ) -> Any:
        """What Kafka says of a topic that should have this id and so many partitions.

        Raises:
            TopicException: it has not, or does not exist.
        """
        found = self._describe(connection, name, SOURCE, if_absent="fail" if expected_id is None else "none")
        if found is None:
            raise TopicException(
                f"The topic {name!r} does not exist in {self.address} any more: somebody has deleted it, and with it all that was not "
                "read yet. Maybe create it anew, and run the application under another application.id with a new run_dir."
            )
        topic_id = _uuid_of(found.topic_id)
        if expected_id not in (None, topic_id):
            raise TopicException(
                f"The topic {name!r} in {self.address} has the id {topic_id}, not {expected_id}: it was deleted and created "
                "anew while it was being read. Maybe run the application again with a new run_dir."
            )
        if partitions not in (None, len(found.partitions)):
            raise TopicException(
                f"The topic {name!r} in {self.address} has {counted(len(found.partitions), 'partition')}, and had {partitions} when the run "
                "began: somebody has added some. Keys are in other partitions from then on, so state that belongs to them would "
                "be missed. Maybe copy the records to a new topic, and run the application with that, another application.id "
                "and a new run_dir."
            )
        return found

    def prepare(
        self,
        application_id: str,
        topology: Topology,
        tasks: Collection[TaskId],
        clients: Callable[[], Collection[str]] = tuple,
        *,
        is_new: bool = False,
    ) -> None:
        """See to it that the topics of outputs, changelogs and repartitions are there; the internal ones are created if need be.

        Raises:
            TopicException: an output is not declared though others are, its topic does not exist, an internal topic has another
                number of partitions than it must, or other settings, or a repartition topic has records of a former life.
            KafkaClusterException: the cluster does not answer, or refuses; the group has members; or a topic has lost what was
                committed.
        """
        if not self._outputs(topology):
            self._warn_of_unused(topology)
            return
        for output in (output for sub in topology.sub_topologies for output in sub.written):
            if output.schema is not None and (topic := self.declared(output.name)) is not None:
                check_columns(topic, output.schema)
                topic.check(output.schema)
        connection = self._clients().connection
        check_group(connection, application_id)
        sources, outputs = dict.fromkeys(topology.sources, SOURCE), dict.fromkeys(self._outputs(topology), OUTPUT)
        partitions = {
            name: len(self._describe(connection, name, rights).partitions)
            for name, rights in (*sources.items(), *outputs.items())
        }
        # What is written and read between sub-topologies has as many partitions as was declared.
        between = {
            topic_of(application_id, topology, name): output.partitions
            for name, output in topology.repartitions.items()
        }
        shapes = [
            attrs.evolve(
                shape,
                sources=(*shape.sources, *shape.repartition_sources),
                repartition_sources=(),
                repartition_sinks=(),
            )
            for shape in topology.shapes(application_id)
        ]
        changelogs = {topic for shape in shapes for topic in shape.changelog_topics}
        check_names(sorted({*changelogs, *between}))
        existing = {
            name: len(found.partitions)
            for name in sorted({*changelogs, *between})
            if (found := self._describe(connection, name, INTERNAL, if_absent="none")) is not None
        }
        for name, count in between.items():
            if existing.get(name, count) != count:
                raise TopicException(
                    f"The repartition topic {name!r} has {counted(existing[name], 'partition')}, but {count} are declared. Maybe reset the "
                    "application (task-assignor reset), and run it with a new run_dir."
                )
        try:
            plan = plan_topics(shapes, partitions | between | existing)
        except GroupException as error:
            raise TopicException(str(error)) from None
        create = {**plan.create, **{name: count for name, count in between.items() if name not in existing}}
        purged = {*between} | {
            changelog_topic(application_id, store.name, sub.topology)
            for sub in topology.sub_topologies
            for store in sub.stores
            if isinstance(store, WindowStoreSpec)
        }
        check_settings(connection, sorted(existing), purged)
        create_internal_topics(connection, create, purged)
        for name in create:
            self._describe(connection, name, INTERNAL, if_absent="wait")
        end_transactions(connection, application_id, topology, tasks, existing, clients)
        if is_new:
            check_sources(connection, application_id, topology, tasks)
            last = last_commits(connection, application_id, topology, tasks)
            known = {(task.topology_name, task.subtopology) for task in last}
            unknown = [name for name, writer in topology.writers.items() if writer not in known]
            found = {topic_of(application_id, topology, name) for name in unknown} & existing.keys()
            _check_is_empty(connection, {name: between[name] for name in found})
        for name in (*outputs, *changelogs, *between):
            self._ids.pop(name, None)
            # One broker after the other hears of those that were just created.
            self._partitions_of(connection, name, if_absent="wait" if name in create else "fail")
        self._check_kept(connection, application_id, topology, tasks)

    def committed_offsets(
        self, application_id: str, topology: Topology, partitions: Mapping[str, int]
    ) -> dict[tuple[str, int], int]:
        """What the application's group has committed of its sources, if results go into topics.

        Raises:
            KafkaClusterException: the cluster does not answer, or refuses.
        """
        if not self._outputs(topology):
            return {}
        places = [(name, partition) for name, count in partitions.items() for partition in range(count)]
        found = committed_offsets(self._clients().connection, application_id, places)
        return {place: offset for place, (offset, _) in found.items()}

    def reset(self, application_id: str, topology: Topology, *, is_dry: bool = False) -> tuple[str, ...]:
        """Delete the internal topics of an application, and the offsets of its group, so that it begins anew. Outputs stay.

        Args:
            application_id: `application.id`.
            topology: what is computed: topics of what it once had and has no more are not found.
            is_dry: nothing is deleted.

        Returns:
            What is, or would be; nothing, if results go into files.

        Raises:
            KafkaClusterException: the group has members, or the cluster does not answer, or refuses.
        """
        if not self._outputs(topology):
            return ()
        connection = self._clients().connection
        shapes = topology.shapes(application_id)
        names = {topic for shape in shapes for topic in shape.changelog_topics}
        names |= {topic_of(application_id, topology, name) for name in topology.repartitions}
        left = LeftInKafka(
            tuple(name for name in sorted(names) if self._describe(connection, name, if_absent="none") is not None),
            application_id if has_group(connection, application_id) else "",
        )
        if not is_dry:
            delete_left(connection, left)
        return left.told

    def permits(self, application_id: str, topology: Topology) -> Membership | None:
        """The membership in the application's group, if results go into topics."""
        if not self._outputs(topology):
            return None
        between = [topic_of(application_id, topology, name) for name in topology.repartitions]
        return Membership(self._clients().connection, application_id, sorted({*topology.sources, *between}))

    def check_results(self, application_id: str, topology: Topology, tasks: Collection[TaskId]) -> None:
        """See to it that the topics of outputs and changelogs still have what was committed.

        Where no broker answers a warning is logged: the next run looks again before it begins. So it is where readers cannot
        see all of it yet.

        Raises:
            RecordsLostException: they have not, or are others by now.
            TopicException: a topic does not exist any more.
        """
        if not self._outputs(topology):
            return
        connection = self._clients().connection
        try:
            needed = self._check_kept(connection, application_id, topology, tasks)
            # Kafka writes the end of a transaction after it has said that it is committed.
            patient_until = time.monotonic() + _MARKERS_S
            while (found := hidden(connection, needed)) and time.monotonic() < patient_until:
                time.sleep(_LOOK_S)
        except RecordsLostException:
            raise
        except KafkaClusterException as error:
            _log.warning("It cannot be seen whether Kafka still has what was committed; the next run will: %s", error)
        else:
            if found:
                _log.warning(
                    "What was committed cannot be read yet in %s: a transaction is open there that began before it. Brokers end "
                    "those that take longer than their transaction.timeout.ms; if it stays, kafka-transactions.sh find-hanging "
                    "names it.",
                    listed(found),
                )

    def _check_kept(
        self, connection: Connection, application_id: str, topology: Topology, tasks: Collection[TaskId]
    ) -> Ends:
        last = last_commits(connection, application_id, topology, tasks)
        needed = needed_ends(application_id, topology, last)
        partitions_of = partial(self._partitions_of, connection)
        check_kept(connection, needed, partitions_of)
        warn_of_more_partitions(last.values(), lambda name: partitions_of(topic_of(application_id, topology, name)))
        return needed

    def _partitions_of(self, connection: Connection, name: str, *, if_absent: Literal["fail", "wait"] = "fail") -> int:
        """How many partitions a topic has that is written.

        Raises:
            RecordsLostException: it is another one than when the run began.
        """
        found = self._describe(connection, name, if_absent=if_absent)
        now = _uuid_of(found.topic_id)
        if (before := self._ids.setdefault(name, now)) != now:
            raise RecordsLostException(
                f"The topic {name} was deleted and created anew while the run went on: its id is {now}, and was {before}. What the "
                "application has written is not whole any more; to make it again, run it under another application.id with a new "
                "run_dir."
            )
        return len(found.partitions)

    def has_results(self, topology: Topology) -> bool:
        """Whether results go into topics, since the outputs are declared."""
        return bool(self._outputs(topology))

    def results(self, application_id: str, topology: Topology, who: str) -> KafkaResults | None:
        """Where results go: into topics, if the outputs are declared; None: into the folder of the run."""
        outputs = self._outputs(topology)
        if not outputs:
            return None
        clients = self._clients()
        between = self._repartitions(application_id, topology)
        # Nobody reads those that somebody adds while the run goes on.
        declared = {topic.name: topology.repartitions[name].partitions for name, topic in between.items()}
        return KafkaResults(
            application_id,
            outputs,
            # Rows have their times in them. Brokers refuse records of the future, and begin new files where times are far apart.
            {name: attrs.evolve(topic, timestamp=None) for name, topic in between.items()},
            lambda name: declared.get(name) or len(self._describe(clients.connection, name).partitions),
            clients.connection,
            clients.reader,
            who,
        )

    def _warn_of_unused(self, topology: Topology) -> None:
        """Outputs go into files; somebody may have thought that they go into a topic."""
        unused = [topic.name for topic in self.topics if topic.name not in topology.sources]
        written = {output.name for sub in topology.sub_topologies for output in sub.written}
        outputs = sorted(written - {*topology.repartitions})
        if unused and outputs:
            _log.warning(
                "The outputs (%s) go into files, since KafkaTopics has none of these names. What it has and nothing reads or writes: %s.",
                listed(outputs),
                listed(unused),
            )

    def _outputs(self, topology: Topology) -> dict[str, KafkaTopic]:
        """Output -> its topic; none, if none is declared."""
        names = [
            output.name
            for sub in topology.sub_topologies
            for output in sub.written
            if output.name not in topology.repartitions
        ]
        found = {name: topic for name in names if (topic := self.declared(name)) is not None}
        others = [name for name in names if name not in found]
        between = [*topology.repartitions, *(name for sub in topology.sub_topologies for name in sub.forwarded)]
        for name in between:
            if self.declared(name) is not None:
                kind = "a repartition topic" if name in topology.repartitions else "Forwarded"
                raise TopicException(
                    f"The output {name!r} is {kind}, so nothing is written to the topic of Kafka of that name, nor read from it. Maybe leave "
                    f"out KafkaTopic({name!r}), make it an Output, or rename it."
                )
        if found and others:
            raise TopicException(
                f"The outputs {listed(list(found))} are topics of Kafka, but KafkaTopics says nothing of {listed(others)}. What a "
                "task makes of a batch becomes visible in one transaction, so all outputs must be topics, or none. Maybe add "
                f"KafkaTopic({others[0]!r})."
            )
        return found

    def _clients(self) -> _Clients:
        if not self._connected or self._connected[0].process != os.getpid():
            connection = Connection(self.settings, self.timeout_ms)
            self._connected[:] = [_Clients(os.getpid(), connection, RecordReader(connection, "task-assignor"))]
        return self._connected[0]

    def _describe(
        self,
        connection: Connection,
        name: str,
        rights: Collection[AclOperation] = (),
        *,
        if_absent: Literal["fail", "none", "wait"] = "fail",
    ) -> Any:
        """What Kafka says of a topic, which the user must be allowed so much with; None: it does not exist, and need not."""

        def ask(timeout: float) -> Any:
            asked = {"include_authorized_operations": True, "request_timeout": timeout}
            try:
                found = connection.admin.describe_topics(TopicCollection([name]), **asked)[name].result(timeout)
            except KafkaException as error:
                if error.args[0].code() == _UNKNOWN_TOPIC and if_absent != "wait":
                    if if_absent == "none":
                        return None
                    raise TopicException(
                        f"The topic {name!r} does not exist in {self.address}. Maybe create it first, or correct its name."
                    ) from None
                raise
            check_rights("topic", name, found.authorized_operations, rights)
            return found

        return connection.ask(f"describe the topic {name}", ask)


def _check_is_empty(connection: Connection, repartitions: Mapping[str, int]) -> None:
    """Nobody knows any more what was made of which records: what is in these repartition topics would be counted once more.

    Args:
        connection: the process's connection.
        repartitions: topic -> number of its partitions.

    Raises:
        TopicException: one has records.
    """
    for name, count in sorted(repartitions.items()):
        if any(high_watermarks(connection, name, range(count))):
            raise TopicException(
                f"The repartition topic {name!r} has records of a former life: neither the group's offsets nor a run folder say what was "
                "made of which. Maybe reset the application (task-assignor reset), or choose another application.id."
            )


def _uuid_of(found: Any) -> str:
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    mask = (1 << 64) - 1
    return str(uuid.UUID(int=(high & mask) << 64 | low & mask))


def _racks(partition: Any) -> frozenset[str] | None:
    racks = [replica.rack for replica in partition.replicas]
    return frozenset(racks) if racks and all(rack is not None for rack in racks) else None
