"""What is to be computed: sub-topologies with co-partitioned sources, stores, a processor and outputs; checked when built.

`Topology` knows no files; `bind` holds it against the topics that exist and makes tasks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs
import pyarrow as pa

from task_assignor.group import SubTopologyShape, make_tasks
from task_assignor.group.topology import number_sub_topologies
from task_assignor.runtime import processors
from task_assignor.runtime.bad_records import DEAD_LETTER_SCHEMA, DeadLetters, LeftOut, check_left_out
from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.runtime.processor import Processor
from task_assignor.runtime.stores.key_value import KeyValueStoreSpec
from task_assignor.runtime.stores.window import WindowStoreSpec
from task_assignor.runtime.topic_spec import TopicSpec, check_name
from task_assignor.sdk import StreamsException, TaskId, TaskInfo
from task_assignor.sdk.text import shown

StoreSpec = KeyValueStoreSpec | WindowStoreSpec


def _several(given: Any, *alone: type) -> tuple[Any, ...]:
    """What was given, one or several; what it should be is checked later."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, alone) else (given,)


def _to_names(names: Iterable[str]) -> tuple[str, ...]:
    return _several(names, str)


@attrs.frozen
class Output:
    """Declares an output: committed rows are read under this name.

    Args:
        name: name of the output, unique in the topology.
        schema: its columns, of those that the processor returns; None: all of them.
        format: what its files are: "arrow", or "parquet", which any engine reads; `manifest/<output>/files.txt` in the
            folder of the run names those that are committed.
    """

    name: str
    schema: pa.Schema | None = None
    format: Literal["arrow", "parquet"] = attrs.field(default="arrow", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.format not in ("arrow", "parquet"):
            raise TopologyException(
                f"The format ({shown(self.format)}) of the output {self.name!r} must be 'arrow' or 'parquet'."
            )
        if not (self.schema is None or isinstance(self.schema, pa.Schema)):
            raise TopologyException(
                f"The schema ({shown(self.schema)}) of the output {self.name!r} must be a pyarrow.Schema, or None."
            )
        try:
            check_name("output", self.name)
        except TopicException as error:
            raise TopologyException(str(error)) from None


@attrs.frozen
class Repartitioned(Output):
    """Declares an output that another sub-topology of the same topology reads as a source: a repartition topic.

    Its rows are put into partitions by a key of their own, as Kafka's partitioner does, and can be read as soon as they
    are committed. Rows that all have read are deleted, so it is read within the run only.

    Args:
        name: name of the output, and of the source; unique in the topology.
        schema: its columns; None: those that the processor says it gives (`output_schema`; the ready-made ones do).
        key: key columns; equal keys are in one partition.
        partitions: number of partitions, and so of the tasks that read it.
        timestamp: column with the time of the event, or None.
    """

    key: tuple[str, ...] = attrs.field(kw_only=True, converter=_to_names)
    partitions: int = attrs.field(kw_only=True)
    timestamp: str | None = attrs.field(default=None, kw_only=True)

    @property
    def spec(self) -> TopicSpec:
        """What it is like as a topic, for processors that ask for it.

        Raises:
            TopologyException: it has no schema, or cannot be so.
        """
        if self.schema is None:
            raise TopologyException(
                f"Of which columns the repartition topic {self.name!r} is must be known before the run. Maybe give its schema."
            )
        try:
            return TopicSpec(self.name, self.partitions, self.schema, self.key, self.timestamp)
        except TopicException as error:
            raise TopologyException(str(error)) from None


def _to_outputs(outputs: Iterable[Output | str]) -> tuple[Output, ...]:
    return tuple(Output(output) if isinstance(output, str) else output for output in _several(outputs, str, Output))


def _to_stores(stores: Iterable[StoreSpec]) -> tuple[StoreSpec, ...]:
    return _several(stores)


@attrs.frozen
class SubTopology:
    """A part of the topology whose tasks are independent of the others: task p reads partition p of all its sources.

    Args:
        name: name for people; unique in the topology.
        sources: names of its source topics; they must have equal numbers of partitions.
        processor: makes the processor of a task: a `Processor` class, or any callable without arguments. If it has a
            method `check_sources(topics: Mapping[str, TopicSpec])`, that is called before the run and may raise.
        stores: its stores.
        outputs: names, or `Output`s with a schema. May be empty.
        tables: sources to look things up in: a task reads them to their end before it reads any other source.
        topology: name of the topology it belongs to, if the application has several (Kafka's named topologies, each
            of which numbers its sub-topologies from 0); None: the one without a name.
        bad_records: what becomes of a record that cannot be processed: "stop" (the run ends with an error that names
            it), "skip" (it is left out and counted as `bad_records`), or `DeadLetters` (it is kept aside, too).
        late_records: the same for records that come too late for a processor that knows when that is (`late`).
        version: of the processor, whatever text; a run folder remembers it, and a run with another one is refused. Change it
            when what the processor computes or keeps in its stores does not fit what it did before.

    Raises:
        TopologyException: something of it is not allowed.
    """

    name: str
    sources: tuple[str, ...] = attrs.field(converter=_to_names)
    processor: Callable[[], Processor]
    stores: tuple[StoreSpec, ...] = attrs.field(default=(), converter=_to_stores)
    outputs: tuple[Output, ...] = attrs.field(default=(), converter=_to_outputs)
    tables: tuple[str, ...] = attrs.field(default=(), converter=_to_names)
    topology: str | None = None
    bad_records: LeftOut = "stop"
    late_records: LeftOut = "stop"
    version: str = ""

    def __attrs_post_init__(self) -> None:
        where = f"The sub-topology {self.name!r}"
        for name, policy in (("bad_records", self.bad_records), ("late_records", self.late_records)):
            check_left_out(where, name, policy)
        letters = [Output(name, DEAD_LETTER_SCHEMA) for name in self.dead_letters]
        object.__setattr__(self, "outputs", (*(out for out in self.outputs if out not in letters), *letters))
        if self.topology is not None:
            _check_topology_name(where, self.topology)
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise TopologyException(f"The name of a sub-topology ({self.name!r}) must be a text on one line.")
        if not isinstance(self.version, str):
            raise TopologyException(f"{where}: the version ({shown(self.version)}) must be a text, such as '2'.")
        if not self.sources:
            raise TopologyException(f"{where} needs at least one source topic.")
        strange: list[object] = [name for name in (*self.sources, *self.tables) if not isinstance(name, str)]
        strange += [output for output in self.outputs if not isinstance(output, Output)]
        if strange:
            raise TopologyException(
                f"{where} was given {shown(strange[0])}. Its sources and tables must be names, its outputs names or Output objects."
            )
        if len(set(self.sources)) != len(self.sources):
            raise TopologyException(f"{where} names a source twice: {list(self.sources)}.")
        unknown = [table for table in self.tables if table not in self.sources]
        if unknown:
            raise TopologyException(
                f"{where} has tables {unknown} that are not among its sources {list(self.sources)}."
            )
        for store in self.stores:
            if not isinstance(store, (KeyValueStoreSpec, WindowStoreSpec)):
                raise TopologyException(f"{where} has a store that is no store declaration: {store!r}.")
        if isinstance(self.processor, Processor):
            raise TopologyException(
                f"{where} was given a {type(self.processor).__name__} object as processor, but every task needs its own. "
                f"Maybe give the class: processor={type(self.processor).__name__}."
            )
        if not callable(self.processor):
            raise TopologyException(f"{where} has a processor that cannot be called: {self.processor!r}.")
        self._check_needs_no_arguments(where)
        for output in self.outputs:
            if output.format == "parquet" and isinstance(output, Repartitioned):
                raise TopologyException(
                    f"{where}: the output {output.name!r} is read by tasks, so it cannot be in Parquet."
                )
            if output.format == "parquet" and output.schema is None and not hasattr(self.processor, "output_schema"):
                raise TopologyException(
                    f"{where} has the output {output.name!r} in Parquet without its columns: whoever reads the files needs "
                    f"the same in each. Maybe declare them: Output({output.name!r}, schema, format='parquet')."
                )

    @property
    def dead_letters(self) -> tuple[str, ...]:
        """Names of the outputs for records that are left out; they are among `outputs`, at their end."""
        policies = (self.bad_records, self.late_records)
        return tuple(dict.fromkeys(policy.output for policy in policies if isinstance(policy, DeadLetters)))

    def _check_needs_no_arguments(self, where: str) -> None:
        if inspect.isclass(self.processor) and not issubclass(self.processor, Processor):
            raise TopologyException(f"{where}: the processor {self.processor.__name__} is not a subclass of Processor.")
        if inspect.isclass(self.processor) and inspect.isabstract(self.processor):
            missing = ", ".join(sorted(getattr(self.processor, "__abstractmethods__", ())))
            raise TopologyException(f"{where}: the processor {self.processor.__name__} does not define {missing}.")
        try:
            inspect.signature(self.processor).bind()
        except TypeError as error:
            raise TopologyException(
                f"{where}: the processor {processor_name(self.processor)} cannot be made without arguments ({error}). "
                "Maybe use functools.partial."
            ) from None
        except ValueError:
            pass  # no signature to be had: the first task will show


def _check_topology_name(where: str, name: str) -> None:
    try:
        check_name("topology", name)
    except TopicException as error:
        raise TopologyException(f"{where}: {error}") from None
    if "__" in name:
        # It is written `name__0_1`.
        raise TopologyException(
            f"{where}: the topology name ({name!r}) must not contain '__', which ends it in task ids."
        )


def factory_name(factory: object) -> str:
    """What makes a processor; a run folder remembers it."""
    wrapped = getattr(factory, "func", factory)
    return str(getattr(wrapped, "__qualname__", type(wrapped).__qualname__))


def is_ready_made(factory: object) -> bool:
    """It makes processors of ours."""
    return getattr(factory, "__module__", "").startswith(processors.__name__)


def processor_name(factory: object) -> str:
    """What to call a processor in messages: a ready-made one says it itself, by what its user wrote."""
    return str(getattr(factory, "shown_as", "") or factory_name(factory))


def _to_sub_topologies(sub_topologies: SubTopology | Iterable[SubTopology]) -> tuple[SubTopology, ...]:
    return _several(sub_topologies, SubTopology)


@attrs.frozen
class Topology:
    """All sub-topologies of an application. The i-th (of its named topology) has the tasks `i_0`, `i_1` and so on.

    Args:
        sub_topologies: the sub-topologies.

    Raises:
        TopologyException: names are not unique, a source topic belongs to two sub-topologies, or one reads an output of
            another that is not `Repartitioned`, or its own.
    """

    sub_topologies: tuple[SubTopology, ...] = attrs.field(converter=_to_sub_topologies)

    def __attrs_post_init__(self) -> None:
        if not self.sub_topologies:
            raise TopologyException("The topology has no sub-topologies, so there is nothing to run.")
        for sub_topology in self.sub_topologies:
            if not isinstance(sub_topology, SubTopology):
                raise TopologyException(f"A Topology is made of SubTopology objects, but was given {sub_topology!r}.")
        subs = self.sub_topologies
        _check_unique("sub-topology", ((sub.name, sub.name) for sub in subs))
        _check_unique(
            "source topic",
            ((topic, sub.name) for sub in subs for topic in sub.sources),
            "As in Kafka a topic is read by one sub-topology. Maybe merge them, or write the topic under a second name.",
        )
        _check_unique("store", ((store.name, sub.name) for sub in subs for store in sub.stores))
        _check_unique("output", ((output.name, sub.name) for sub in subs for output in sub.outputs))
        outputs = {output.name: output for sub in subs for output in sub.outputs}
        for sub in subs:
            for topic in sub.sources:
                if topic in outputs and not isinstance(outputs[topic], Repartitioned):
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads {topic!r}, which is an output of this topology without a key. "
                        f"Maybe declare it so that others can read it: Repartitioned({topic!r}, schema, key=…, partitions=…)."
                    )
        read = {topic for sub in subs for topic in sub.sources}
        unread = sorted(set(self.repartitions) - read)
        if unread:
            raise TopologyException(
                f"Nothing reads the repartition topic {unread[0]!r}, so its rows would pile up. Maybe make it an Output, or name "
                "it as a source."
            )
        self._in_order()

    def sub_topology_of(self, task: TaskId) -> SubTopology:
        """The sub-topology that a task belongs to."""
        numbers = number_sub_topologies((sub.topology, None) for sub in self.sub_topologies)
        return self.sub_topologies[numbers.index((task.topology_name, task.subtopology))]

    @property
    def sources(self) -> tuple[str, ...]:
        """All source topics that come from outside, sorted."""
        return tuple(sorted({topic for sub in self.sub_topologies for topic in sub.sources} - set(self.repartitions)))

    @property
    def repartitions(self) -> dict[str, Repartitioned]:
        """The repartition topics, by name."""
        outputs = (output for sub in self.sub_topologies for output in sub.outputs)
        return {output.name: output for output in outputs if isinstance(output, Repartitioned)}

    @property
    def writers(self) -> dict[str, tuple[str | None, int]]:
        """Repartition topic -> named topology and number of the sub-topology that writes it."""
        numbers = number_sub_topologies((sub.topology, None) for sub in self.sub_topologies)
        return {
            output.name: number
            for sub, number in zip(self.sub_topologies, numbers, strict=True)
            for output in sub.outputs
            if isinstance(output, Repartitioned)
        }

    def _in_order(self) -> list[SubTopology]:
        """The sub-topologies, those that write a repartition topic before those that read it."""
        found: list[SubTopology] = []
        missing = set(self.repartitions)
        left = list(self.sub_topologies)
        while left:
            ready = [sub for sub in left if missing.isdisjoint(sub.sources)]
            if not ready:
                raise TopologyException(
                    f"The sub-topologies {', '.join(repr(sub.name) for sub in left)} read what they write themselves, directly or "
                    "by way of each other, so they would never come to an end."
                )
            found += ready
            missing -= {output.name for sub in ready for output in sub.outputs}
            left = [sub for sub in left if sub not in ready]
        return found

    def specs(self, topics: Mapping[str, TopicSpec]) -> dict[str, TopicSpec]:
        """What all sources are like, repartition topics included.

        Args:
            topics: the source topics that come from outside, by name.

        Raises:
            TopologyException: it is not known of which columns a repartition topic is, or it cannot be so.
        """
        specs = dict(topics)
        for sub in self._in_order():
            for output in sub.outputs:
                if isinstance(output, Repartitioned):
                    specs[output.name] = attrs.evolve(output, schema=output_schema_of(sub, output, specs)).spec
        return specs

    def bind(self, application_id: str, topics: Mapping[str, TopicSpec]) -> dict[TaskId, TaskInfo]:
        """The tasks of the topology on the topics that exist.

        Args:
            application_id: `application.id`; the changelog of store s is named `<application_id>-s-changelog`.
            topics: all source topics that come from outside, by name.

        Returns:
            Task id -> `TaskInfo`, in task-id order.

        Raises:
            TopologyException: a topic is missing, sources are not co-partitioned, or a processor does not fit its topics.
        """
        for sub in self.sub_topologies:
            for topic in sub.sources:
                if topic not in topics and topic not in self.repartitions:
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads the topic {topic!r}, which does not exist. "
                        f"The topics: {', '.join(sorted(topics)) or 'none'}."
                    )
        topics = self.specs(topics)
        for sub in self.sub_topologies:
            _check_key_types(sub, topics)
            _check_zones(sub, topics)
            check = getattr(sub.processor, "check_sources", None)
            if check is not None:
                check({topic: topics[topic] for topic in sub.sources})
        partitions = {
            repartition_topic(application_id, name) if name in self.repartitions else name: spec.partitions
            for name, spec in topics.items()
        }
        racks = {name: spec.racks for name, spec in topics.items() if spec.racks is not None}
        try:
            return make_tasks(self.shapes(application_id), partitions, racks)
        except StreamsException as error:
            raise TopologyException(str(error)) from None

    def shapes(self, application_id: str) -> list[SubTopologyShape]:
        """What the leader of a group has to know of the sub-topologies.

        Args:
            application_id: `application.id`.
        """
        return [
            SubTopologyShape(
                sub.name,
                tuple(source for source in sub.sources if source not in self.repartitions),
                {
                    store.name: changelog_topic(application_id, store.name, sub.topology) if store.logged else None
                    for store in sub.stores
                },
                sub.topology,
                tuple(
                    repartition_topic(application_id, source) for source in sub.sources if source in self.repartitions
                ),
                tuple(
                    repartition_topic(application_id, output.name)
                    for output in sub.outputs
                    if isinstance(output, Repartitioned)
                ),
            )
            for sub in self.sub_topologies
        ]


def changelog_topic(application_id: str, store: str, topology: str | None = None) -> str:
    """Kafka's name for the changelog of a store."""
    return "-".join(part for part in (application_id, topology, store, "changelog") if part is not None)


def repartition_topic(application_id: str, name: str) -> str:
    """Kafka's name for a repartition topic, as assignors see it."""
    return f"{application_id}-{name}-repartition"


def output_schema_of(sub: SubTopology, output: Output, topics: Mapping[str, TopicSpec]) -> pa.Schema | None:
    """The columns of an output; None: those of the rows that come.

    Args:
        sub: the sub-topology that gives it.
        output: the output.
        topics: the sources of the sub-topology, by name.

    Raises:
        TopologyException: the processor does not fit its sources.
    """
    # A ready-made processor knows its columns from those of its topics.
    derive: Callable[[Mapping[str, TopicSpec]], pa.Schema] | None = getattr(sub.processor, "output_schema", None)
    check = getattr(sub.processor, "check_sources", None)
    if output.schema is not None or derive is None or check is None:
        return output.schema
    sources = {name: topics[name] for name in sub.sources}
    check(sources)
    return derive(sources)


def _check_unique(what: str, named: Iterable[tuple[str, str]], advice: str = "Maybe rename one.") -> None:
    seen: dict[str, str] = {}
    for name, place in named:
        if name in seen:
            raise TopologyException(
                f"The {what} {name!r} is there twice, in the sub-topologies {seen[name]!r} and {place!r}. {advice}"
            )
        seen[name] = place


def _check_key_types(sub: SubTopology, topics: Mapping[str, TopicSpec]) -> None:
    first, *others = sub.sources
    for other in others:
        one, two = topics[first], topics[other]
        if one.key_types != two.key_types:
            raise TopologyException(
                f"The sources of the sub-topology {sub.name!r} are not co-partitioned: equal keys of {first!r} "
                f"({', '.join(one.key)}: {', '.join(one.key_types)}) and {other!r} ({', '.join(two.key)}: "
                f"{', '.join(two.key_types)}) have different bytes, so they would meet in different partitions. "
                "Maybe write one topic again with the key cast to the type of the other."
            )


def _check_zones(sub: SubTopology, topics: Mapping[str, TopicSpec]) -> None:
    """Times that meet - those of the records, and those in keys - have all a time zone or none has."""
    specs = [topics[name] for name in sub.sources]
    groups = [
        [(spec, spec.timestamp) for spec in specs if spec.timestamp is not None],
        *(
            [(spec, column) for spec, column in zip(specs, columns, strict=True)]
            for columns in zip(*(spec.key for spec in specs), strict=False)
        ),
    ]
    for group in groups:
        kinds = [(spec.name, column, spec.schema.field(column).type) for spec, column in group]
        found = {kind.tz is None: (topic, column, kind) for topic, column, kind in kinds if pa.types.is_timestamp(kind)}
        if len(found) == 2:
            (naive, column, kind), (zoned, other, zone) = found[True], found[False]
            raise TopologyException(
                f"The sources of the sub-topology {sub.name!r} cannot be compared: the column {column!r} of {naive!r} "
                f"has no time zone ({kind}), but {other!r} of {zoned!r} has one ({zone}). Maybe write {naive!r} again with "
                "its zone: pyarrow.compute.assume_timezone."
            )
