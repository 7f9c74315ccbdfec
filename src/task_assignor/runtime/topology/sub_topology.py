"""What users declare of a topology: `SubTopology` with its outputs, checked when made. How they make tasks is `topology`'s."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Protocol

import attrs
import pyarrow as pa

from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.runtime.stores.key_value import KeyValueStoreSpec
from task_assignor.runtime.stores.window import WindowStoreSpec
from task_assignor.runtime.topics.spec import TopicSpec, check_key, check_name, check_partitions, check_source
from task_assignor.runtime.topology.bad_records import DEAD_LETTER_SCHEMA, DeadLetters, LeftOut, check_left_out
from task_assignor.runtime.topology.processor import Processor
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.text import shown

READY_MADE: Final = "task_assignor.runtime.processors"
"""The room of the processors that are ours."""

StoreSpec = KeyValueStoreSpec | WindowStoreSpec


def several(given: Any, *alone: type) -> tuple[Any, ...]:
    """What was given, one or several; what it should be is checked later."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, alone) else (given,)


def _to_names(names: Iterable[str]) -> tuple[str, ...]:
    return several(names, str)


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
        check_choice(
            "The format", self.format, ("arrow", "parquet"), TopologyException, f"of the output {shown(self.name)}"
        )
        if not (self.schema is None or isinstance(self.schema, pa.Schema)):
            raise TopologyException(
                f"The schema ({shown(self.schema)}) of the output {self.name!r} must be a pyarrow.Schema, or None."
            )
        if self.schema is not None and len(set(self.schema.names)) != len(self.schema.names):
            raise TopologyException(
                f"The schema of the output {self.name!r} has a column name twice: {self.schema.names}."
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

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        try:
            check_partitions(self.name, self.partitions)
            check_key(self.name, self.key, self.timestamp)
        except TopicException as error:
            raise TopologyException(str(error)) from None

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


@attrs.frozen
class Forwarded(Output):
    """Declares an output that other sub-topologies read as a source within the same tasks: nothing is written (Kafka's `forward` to a child).

    Each of its rows is made of a record of one source, and has its key, its time and its place among all records. So what
    reads it sees the order, and what is late or closed, as if it read that source; and the tasks that read it are those that
    read that source. A `StreamTableJoin` can forward what it makes of the rows of its stream; a `RecordProcessor` what it
    returns or forwards for each record; a `Processor` what it forwards with `made_of`.

    Args:
        name: name of the output, and of the source; unique in the topology.
        schema: its columns; None: those that the processor says it gives (`output_schema`; the ready-made ones do). Key and
            timestamp of the source may be left out: they stay as they are.
        source: the source of whose records the rows are made; None: the stream of a `StreamTableJoin`, the only source of another
            sub-topology.
    """

    source: str | None = attrs.field(default=None, kw_only=True, validator=attrs.validators.optional(check_source))


def _to_outputs(outputs: Output | Iterable[Output | str]) -> tuple[Output, ...]:
    return tuple(Output(output) if isinstance(output, str) else output for output in several(outputs, str, Output))


def _to_stores(stores: StoreSpec | Iterable[StoreSpec]) -> tuple[StoreSpec, ...]:
    return several(stores)


@attrs.frozen
class SubTopology:
    """A part of the topology whose tasks are independent of the others: task p reads partition p of all its sources.

    As in Kafka, those that read a topic together are computed by the same tasks, side by side: each of their processors
    sees its own sources, stores and outputs only.

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
        bad_records: what becomes of a record that cannot be read or processed: "stop" (the run ends with an error that names
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
            raise TopologyException(f"The name of a sub-topology ({shown(self.name)}) must be a text on one line.")
        if not isinstance(self.version, str):
            raise TopologyException(f"{where}: the version ({shown(self.version)}) must be a text, such as '2'.")
        if not self.sources:
            raise TopologyException(f"{where} needs at least one source topic.")
        strange: list[object] = [name for name in (*self.sources, *self.tables) if not isinstance(name, str)]
        strange += [output for output in self.outputs if not isinstance(output, Output)]
        if strange:
            named = getattr(strange[0], "name", None)
            advice = f" Maybe its name, {named!r}." if isinstance(named, str) else ""
            raise TopologyException(
                f"{where} was given {shown(strange[0])}. Its sources and tables must be names, its outputs names or Output objects.{advice}"
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
                raise TopologyException(f"{where} has a store that is no store declaration: {shown(store)}.")
        if isinstance(self.processor, Processor):
            raise TopologyException(
                f"{where} was given a {type(self.processor).__name__} object as processor, but every task needs its own. "
                f"Maybe give the class: processor={type(self.processor).__name__}."
            )
        if not callable(self.processor):
            raise TopologyException(f"{where} has a processor that cannot be called: {shown(self.processor)}.")
        self._check_needs_no_arguments(where)
        _ = self.forwarded
        for output in self.outputs:
            if output.format == "parquet" and isinstance(output, (Repartitioned, Forwarded)):
                raise TopologyException(
                    f"{where}: the output {output.name!r} is read by tasks, so it cannot be in Parquet."
                )
            if output.format == "parquet" and output.schema is None and not hasattr(self.processor, "output_schema"):
                raise TopologyException(
                    f"{where} has the output {output.name!r} in Parquet without its columns: whoever reads the files needs "
                    f"the same in each. Maybe declare them: Output({output.name!r}, schema, format='parquet')."
                )

    @property
    def forwarded(self) -> dict[str, str]:
        """Forwarded output -> the source of whose records its rows are made."""
        return {output.name: self._forwards(output) for output in self.outputs if isinstance(output, Forwarded)}

    @property
    def written(self) -> tuple[Output, ...]:
        """Those of the outputs that are written: all but forwarded ones."""
        return tuple(output for output in self.outputs if not isinstance(output, Forwarded))

    def _forwards(self, output: Forwarded) -> str:
        where = f"The sub-topology {self.name!r} cannot forward {output.name!r}:"
        maker = self.processor
        while isinstance(maker, functools.partial):
            maker = maker.func
        stream: str | None = None
        if is_ready_made(maker):
            stream = getattr(maker, "stream", None)
            if stream is None:
                raise TopologyException(
                    f"{where} what a {processor_name(maker)} gives is not made of one record of a stream each. Maybe use a repartition "
                    f"topic: Repartitioned({output.name!r}, ...)."
                )
        allowed = tuple(found for found in self.sources if found not in self.tables) if stream is None else (stream,)
        if not allowed:
            raise TopologyException(
                f"{where} all its sources are tables, and what is forwarded is made of records of a stream. Maybe use a repartition topic: "
                f"Repartitioned({output.name!r}, ...)."
            )
        source = output.source if output.source is not None else stream
        if source is None and len(self.sources) == 1:
            (source,) = self.sources
        if source is None:
            raise TopologyException(
                f"{where} it has several sources. Maybe say of whose records the rows are made: "
                f"Forwarded({output.name!r}, source={allowed[-1]!r})."
            )
        if source not in allowed:
            raise TopologyException(
                f"{where} its source {shown(source)} is none of {', '.join(map(repr, allowed))}, of whose records the rows can be made."
            )
        return source

    def spec_of(self, output: str, topics: Mapping[str, TopicSpec] | Iterable[TopicSpec] | TopicSpec) -> TopicSpec:
        """What one of its outputs is like as a source of others, for processors that ask for it.

        Args:
            output: name of the output.
            topics: what its sources are like; by name, or they.

        Raises:
            TopologyException: no other sub-topology can read it, or its columns are not known before the run, or do not fit.
        """
        given = topics.values() if isinstance(topics, Mapping) else several(topics, TopicSpec)
        if not all(isinstance(spec, TopicSpec) for spec in given):
            raise TopologyException(
                f"The topics ({shown(topics)}) must be TopicSpec objects, such as Topic.open(root, name).spec."
            )
        specs = dict(topics) if isinstance(topics, Mapping) else {spec.name: spec for spec in given}
        found = next((one for one in self.outputs if isinstance(output, str) and one.name == output), None)
        if not isinstance(found, (Repartitioned, Forwarded)):
            raise TopologyException(
                f"The sub-topology {self.name!r} has no output {shown(output)} that is Forwarded or Repartitioned, so nothing can read it."
            )
        origins: Callable[[Mapping[str, TopicSpec]], dict[str, str]] | None = (
            getattr(self.processor, "origins", None) if is_ready_made(self.processor) else None
        )
        needed = self.sources if found.schema is None or origins is not None else ()
        for name in (*needed, *([self.forwarded[output]] if isinstance(found, Forwarded) else [])):
            if name not in specs:
                raise TopologyException(
                    f"What the source {name!r} is like must be given to know what the output {output!r} of {self.name!r} is like."
                )
        schema = self.schema_of(found, specs)
        if isinstance(found, Repartitioned):
            return attrs.evolve(found, schema=schema).spec
        source = self.forwarded[output]
        if schema is None:
            raise TopologyException(
                f"Of which columns the forwarded output {output!r} is must be known before the run. Maybe give its schema."
            )
        made_of = origins({name: specs[name] for name in self.sources}) if origins is not None else {}
        for name in specs[source].kept_columns:
            if name in schema.names and made_of.get(name, "") not in ("", f"{name} of {source}"):
                raise TopologyException(
                    f"The column {name!r} of the forwarded output {output!r} would be {made_of[name]!r}, but it is the key or the timestamp "
                    f"of {source!r}, which stays as it is. Maybe take that, too: then the other one gets the suffix."
                )
        return specs[source].with_columns(output, schema)

    def schema_of(self, output: Output, topics: Mapping[str, TopicSpec]) -> pa.Schema | None:
        """The columns of an output; None: those of the rows that come.

        Args:
            output: the output.
            topics: its sources, by name.

        Raises:
            TopologyException: the processor does not fit its sources.
        """
        # A ready-made processor knows its columns from those of its topics.
        derive: Callable[[Mapping[str, TopicSpec]], pa.Schema] | None = getattr(self.processor, "output_schema", None)
        check = getattr(self.processor, "check_sources", None)
        if output.schema is not None or derive is None or check is None:
            return output.schema
        sources = {name: topics[name] for name in self.sources}
        check(sources)
        return derive(sources)

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
    return getattr(factory, "__module__", "").startswith(READY_MADE)


class Windows(Protocol):
    """A ready-made processor whose rows come out by windows of time, and may be behind what it has read."""

    def to_come(self, column: str) -> int | None:
        """No row that still comes out is older than this in that column, ms; None: it is not known."""


def has_windows(factory: object) -> bool:
    """It makes processors of ours that go by windows of time: `Windows`."""
    return is_ready_made(factory) and hasattr(factory, "knows_what_comes")


def knows_what_comes(factory: object) -> bool:
    """It makes such as know at any time how old the rows may be that still come out."""
    return has_windows(factory) and bool(getattr(factory, "knows_what_comes", False))


def gathers(factory: object) -> Mapping[str, Callable[[pa.Table], pa.Table]]:
    """Window stores of which ready-made processors add to what is there -> what makes fewer rows of some that came after each other."""
    found: Mapping[str, Callable[[pa.Table], pa.Table]] = getattr(factory, "gathers", {})
    return found if is_ready_made(factory) else {}


def processor_name(factory: object) -> str:
    """What to call a processor in messages: a ready-made one says it itself, by what its user wrote."""
    return str(getattr(factory, "shown_as", "") or factory_name(factory))
