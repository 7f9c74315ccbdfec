"""What a topology of random operators must give, computed by loops over rows: in which order tasks read, and what goes where.

What each operator makes of its rows is in `plain_operators`. The runtime is asked only which columns things have (`spec_of`), and which
key is in which partition: both have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import attrs
import pyarrow as pa

from task_assignor.runtime import (
    DeadLetters,
    DerivedStream,
    Forwarded,
    Repartitioned,
    SubTopology,
    TopicSpec,
    partitions_of,
)
from tests.runtime.plain_rows import Row, array_of, canonical, ms_of, rows_of

NEVER: Final = -(2**70)
"""Older than all times."""


@attrs.frozen
class Read:
    """A row as a task reads it.

    Args:
        row: its values.
        offset: that of the topic's record which it is, or is made of.
        newest: the newest time in that partition of the topic up to this record; NEVER in a repartition topic, in which nothing is
            late: the grace of its readers is at least the disorder.
        stage: the record comes when all of the stages before is read.
    """

    row: Row
    offset: int
    newest: int
    stage: int = 0


@attrs.frozen
class Input:
    """A source of a task: one partition of a topic, or what is made of it.

    Args:
        spec: what the source is like.
        topic: the topic that it is, or is made of.
        rows: what is read.
        end: the time up to which everything has come at the end of the run: in a topic the newest time of the partition, in a
            repartition topic that of all its rows, or at least so much as is certain.
        is_repartitioned: the topic is a repartition topic.
    """

    spec: TopicSpec
    topic: str
    rows: Sequence[Read]
    end: int
    is_repartitioned: bool


@attrs.define
class Given:
    """What an operator gives in one task.

    Args:
        rows: rows of its first output.
        possible: all that may be there; None: nothing but `rows`. Where time comes by a repartition topic that windows or a join have
            written, it is not determined which of the last windows are closed at the end of a run.
        made_of: of each row, where it can be forwarded, the record that it is made of.
        more: rows of its second output.
        left_out: records that are bad or late: topic, offset (None in a repartition topic, where it is not certain) and reason; and
            the stage in which they come.
    """

    rows: list[Row] = attrs.field(factory=list)
    possible: list[Row] | None = None
    made_of: list[Read] = attrs.field(factory=list)
    more: list[Row] = attrs.field(factory=list)
    left_out: list[tuple[Row, int]] = attrs.field(factory=list)

    def leave_out(self, source: Input, read: Read, reason: str) -> None:
        """A record is bad or late."""
        offset = None if source.is_repartitioned else read.offset
        self.left_out.append(({"topic": source.topic, "offset": offset, "reason": reason}, read.stage))


@attrs.frozen
class Step:
    """One operator of a topology.

    Args:
        kind: what it is.
        declared: as the runtime is told of it.
        compute: what it gives, of its sources by name.
        last_by: columns by which the last row counts alone; None: all rows count.
        is_exact: no row is uncertain.
        behind_ms: rows that it still gives may be so much older than the newest that it has given; None: by any time.
    """

    kind: str
    declared: SubTopology | DerivedStream
    compute: Callable[[Mapping[str, Input]], Given]
    last_by: tuple[str, ...] | None = None
    is_exact: bool = True
    behind_ms: int | None = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of what it reads."""
        if isinstance(self.declared, SubTopology):
            return self.declared.sources
        parent = self.declared.source
        return (parent if isinstance(parent, str) else parent.name,)


@attrs.define
class Expected:
    """What an output must have.

    Args:
        rows: these rows.
        possible: all that it may have.
        last_by: see `Step`.
    """

    rows: list[Row]
    possible: list[Row]
    last_by: tuple[str, ...] | None = None


def in_time_order(sources: Mapping[str, Input], tables: Container[str] = ()) -> list[tuple[str, Read]]:
    """The rows of several sources as a task sees them, with the names of their sources.

    Stage by stage; tables to their end first; then by time, where a row that is older than one before it comes as soon as that one has been; of equal
    times the source that is named first; in each topic by offset.
    """
    topics = list(dict.fromkeys(source.topic for source in sources.values()))
    keyed = [
        (
            (read.stage, name not in tables, read.newest, topics.index(source.topic), read.offset, number, place),
            name,
            read,
        )
        for number, (name, source) in enumerate(sources.items())
        for place, read in enumerate(source.rows)
    ]
    return [(name, read) for _, name, read in sorted(keyed, key=lambda one: one[0])]


def key_of(columns: Iterable[str], row: Row) -> tuple[object, ...] | None:
    """The values of some columns; None: one is null."""
    values = [row[column] for column in columns]
    return None if None in values else tuple(map(canonical, values))


@attrs.frozen
class Rows:
    """What a topic has.

    Args:
        spec: what it is like.
        rows: its rows.
        stages: of each row the stage in which it comes; none: all come in the first.
    """

    spec: TopicSpec
    rows: pa.Table
    stages: Sequence[int] = ()


def compute(stages: Sequence[Sequence[Step]], topics: Mapping[str, Rows]) -> dict[str, Expected]:
    """What each output must have.

    Args:
        stages: the topology as it is in each stage: what becomes of records that are left out is told by the stage in which they come, all
            else by the last one. Steps come after those that they read.
        topics: the topics that it reads.
    """
    streams = {
        name: _read(topic.spec, rows_of(topic.rows), False, stages=topic.stages) for name, topic in topics.items()
    }
    dead_letters = [_dead_letters(steps) for steps in stages]
    expected: dict[str, Expected] = {}
    for step in stages[-1]:
        inputs = [streams[name] for name in step.sources]
        tasks = [dict(zip(step.sources, parts, strict=True)) for parts in zip(*inputs, strict=True)]
        given = [step.compute(task) for task in tasks]
        if isinstance(step.declared, DerivedStream):
            spec = step.declared.spec_of(streams[step.declared.root][0].spec)
            streams[spec.name] = _made_of(spec, inputs[0], given)
            continue
        own = step.declared.name
        for name in {name for found in dead_letters for (sub, _), name in found.items() if sub == own and name}:
            letters = [
                {**row, "partition": partition}
                for partition, one in enumerate(given)
                for row, stage in one.left_out
                if dead_letters[stage][own, row["reason"]] == name
            ]
            expected[name] = Expected(letters, letters)
        first, *others = (output for output in step.declared.outputs if output.name not in step.declared.dead_letters)
        for other in others:
            more = [row for one in given for row in one.more]
            expected[other.name] = Expected(more, more)
        rows = [row for one in given for row in one.rows]
        specs = {name: parts[0].spec for name, parts in streams.items()}
        if isinstance(first, Repartitioned):
            streams[first.name] = _read(step.declared.spec_of(first.name, specs), rows, True, step.behind_ms)
        elif isinstance(first, Forwarded):
            parent = streams[step.declared.forwarded[first.name]]
            streams[first.name] = _made_of(step.declared.spec_of(first.name, specs), parent, given)
        else:
            possible = [row for one in given for row in (one.rows if one.possible is None else one.possible)]
            expected[first.name] = Expected(rows, rows if step.is_exact else possible, step.last_by)
    return expected


def _dead_letters(steps: Iterable[Step]) -> dict[tuple[str, str], str | None]:
    """(sub-topology, reason) -> the output that has the records which it leaves out; None: none has."""
    declared = [step.declared for step in steps if isinstance(step.declared, SubTopology)]
    return {
        (sub.name, reason): policy.output if isinstance(policy, DeadLetters) else None
        for sub in declared
        for reason, policy in (("bad", sub.bad_records), ("late", sub.late_records))
    }


def _read(
    spec: TopicSpec,
    rows: Sequence[Row],
    is_repartitioned: bool,
    behind_ms: int | None = 0,
    stages: Sequence[int] = (),
) -> list[Input]:
    """Rows of a topic, in its partitions."""
    keys = pa.table(
        [array_of([row[key] for row in rows], spec.schema.field(key).type) for key in spec.key], names=list(spec.key)
    )
    partitions: list[list[tuple[Row, int]]] = [[] for _ in range(spec.partitions)]
    places = partitions_of(keys, spec.key, spec.partitions)
    for row, partition, stage in zip(rows, places, stages or [0] * len(rows), strict=True):
        partitions[partition].append((row, stage))
    last = max((time for row in rows if (time := ms_of(row, spec)) is not None), default=NEVER)
    # Windows and joins say what still comes of them, and that alone counts, also at the end of a run.
    last = NEVER if behind_ms is None else last - behind_ms
    inputs = []
    for own in partitions:
        newest, reads = NEVER, list[Read]()
        for offset, (row, stage) in enumerate(own):
            time = ms_of(row, spec)
            newest = newest if time is None or is_repartitioned else max(newest, time)
            reads.append(Read(row, offset, newest, stage))
        inputs.append(Input(spec, spec.name, reads, last if is_repartitioned else newest, is_repartitioned))
    return inputs


def _made_of(spec: TopicSpec, parents: Sequence[Input], given: Sequence[Given]) -> list[Input]:
    """Rows that have the places of those which they are made of: whatever is left out, the times are those of the topic."""
    return [
        attrs.evolve(
            parent,
            spec=spec,
            rows=[attrs.evolve(read, row=row) for read, row in zip(one.made_of, one.rows, strict=True)],
        )
        for parent, one in zip(parents, given, strict=True)
    ]
