"""Random operators on what there is so far, each beside its plain computation; what of them the runtime refuses is drawn anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    DeadLetters,
    DerivedStream,
    DerivedTable,
    Forwarded,
    KeyValueStoreSpec,
    Output,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamTableJoin,
    SubTopology,
    TableAggregation,
    TableChanges,
    TableJoin,
    TimeWindows,
    TopicSpec,
    Topology,
    TopologyException,
    WindowedAggregation,
    WindowedJoin,
)
from tests.runtime import plain_operators as plain
from tests.runtime import random_processors as own
from tests.runtime.plain_streams import Step
from tests.runtime.random_growth import GrowingTopic, growing
from tests.runtime.random_topics import random_topics

_REFUSALS: Final = (
    *(
        "is a table for some of the sub-topologies",
        "read together in different orders",
        "read what they write themselves",
    ),
    *(
        "are not co-partitioned",
        "is by their keys, but that of",
        "gives no columns besides its key",
        "has result columns twice",
        "which stays as it is",
    ),
)
"""What the runtime may say of operators that do not fit to each other."""
_COMPUTED: Final = {"count": ["id"], "sum": [*"vdu"], "mean": ["v"], "min": ["id", *"sz"], "max": ["id", "at", *"dsc"]}
"""Aggregate -> of which columns. Sums of floats depend on the order of addition."""
_KEY_TYPES: Final = (pa.int64(), pa.int32(), pa.string(), pa.binary(), pa.bool_(), pa.date32())


class NothingFitsError(Exception):
    """Of what there is nothing can be given to an operator."""


@attrs.frozen
class Source:
    """Something that can be read.

    Args:
        spec: what it is like.
        disorder_ms: by how much its rows may be older than others before them.
        is_in_order: it is no repartition topic: these have the rows of different tasks in any order.
        is_table: it can be read as a table.
        is_exact: its time at the end of a run is known for certain; not so if windows or a join have written it.
        derived: it is this derived stream.
    """

    spec: TopicSpec
    disorder_ms: int = 0
    is_in_order: bool = True
    is_table: bool = False
    is_exact: bool = True
    derived: DerivedStream | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    @property
    def has_ids(self) -> bool:
        """It has ids as values."""
        return "id" in self.spec.schema.names and "id" not in self.spec.key


@attrs.frozen
class Addition:
    """What an operator adds to a topology."""

    steps: Sequence[Step]
    source: Source | None = None


@attrs.define
class RandomTopology:
    """A topology of random operators, and the topics that it reads.

    Args:
        seed: decides everything.
        stage: the topology is that of this stage, in which topics may lack columns; None: of the last one.
    """

    seed: int
    stage: int | None = None
    stages: int = attrs.field(init=False)
    topics: Mapping[str, GrowingTopic] = attrs.field(init=False)
    steps: list[Step] = attrs.field(factory=list, init=False)
    sources: dict[str, Source] = attrs.field(factory=dict, init=False)
    chance: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.stages, self.topics = growing(self.seed, random_topics(self.chance))
        self.stage = self.stages - 1 if self.stage is None else self.stage
        self.sources = {
            name: Source(self.specs[name], topic.whole.disorder_ms, is_table=True)
            for name, topic in self.topics.items()
        }
        wanted = self.chance.randint(3, 9)
        for number in range(10 * wanted):
            if len(self.steps) >= wanted:
                break
            self._add(self.chance.choice(_OPERATORS), f"n{number}")
        self.steps += self._taps(self.steps)

    def _add(self, draw: Callable[[RandomTopology, str], Addition], name: str) -> None:
        try:
            found = draw(self, name)
            steps = [*self.steps, *found.steps]
            taps = [] if found.source is None else [_tap(found.source)]
            topology_of([*steps, *taps, *self._taps(steps)]).bind("random", self.specs)
        except NothingFitsError:
            return
        except TopologyException as error:
            if any(known in str(error) for known in _REFUSALS):
                return
            raise
        self.steps = steps
        if found.source is not None:
            self.sources[found.source.name] = found.source

    def _taps(self, steps: Iterable[Step]) -> list[Step]:
        """Somebody must read what is made of topics."""
        read = {name for step in steps if isinstance(step.declared, SubTopology) for name in step.sources}
        return [_tap(source) for name, source in self.sources.items() if name not in read | set(self.topics)]

    @property
    def specs(self) -> dict[str, TopicSpec]:
        """Of the topics that are read."""
        assert self.stage is not None
        return {name: topic.spec_in(self.stage) for name, topic in self.topics.items()}

    @property
    def is_certain(self) -> bool:
        """The order of what is read is known as far as it counts, also if it comes in stages."""
        for step in self.steps:
            read = [self.sources[name] for name in step.sources]
            if step.kind in ("stream-table join", "forwarded join") and not read[0].is_in_order:
                return False
            if ("window" in step.kind or step.kind == "sessions") and not all(source.is_exact for source in read):
                return False
        return True

    @property
    def kinds(self) -> set[str]:
        """Which operators it has."""
        return {step.kind for step in self.steps}

    def pick(self, fits: Callable[[Source], bool] = lambda source: True, other: Source | None = None) -> Source:
        """One of the sources, but not a certain one.

        Raises:
            NothingFitsError: there is none.
        """
        found = [source for source in self.sources.values() if fits(source) and source is not other]
        if not found:
            raise NothingFitsError
        return self.chance.choice(found)

    def left_out(self, name: str, *sources: Source) -> Any:
        """What becomes of records that are left out; it may be something else in each stage where it is known which comes when."""
        policies = ("skip", DeadLetters(f"dead-{name}"))
        first = self.chance.choice(policies)
        is_known = all(source.is_in_order for source in sources)
        return random.Random(f"{name} {self.seed} {self.stage}").choice(policies) if self.stage and is_known else first

    def some_columns(self, source: Source) -> tuple[str, ...] | None:
        """Columns for a join."""
        if self.chance.random() < 0.6:
            return None
        gained = {column for topic in self.topics.values() for column in topic.gained}
        columns = [column for column in source.spec.schema.names if column not in {*source.spec.key, *gained}]
        return tuple(self.chance.sample(columns, self.chance.randint(0, len(columns))))

    def grace_ms(self, source: Source, least: int = 0) -> int:
        """Some rows are late with it, but never where it would not be certain which: in no repartition topic."""
        disorder = source.disorder_ms
        if not source.is_in_order:
            return disorder
        return max(least, self.chance.choice((disorder, disorder, 0, disorder // 2, disorder + 10)))


def topology_of(steps: Iterable[Step]) -> Topology:
    """As the runtime is told of it."""
    declared = [step.declared for step in steps]
    parts = [one for one in declared if isinstance(one, SubTopology)]
    return Topology(parts, derived=[one for one in declared if isinstance(one, DerivedStream)])


def _tap(source: Source) -> Step:
    output = Output(f"all-{source.name}", source.spec.schema)
    return Step("tap", SubTopology(f"tap-{source.name}", source.name, own.All, outputs=[output]), own.read_all)


def _is_timed(source: Source) -> bool:
    return source.spec.timestamp is not None


def _is_table(source: Source) -> bool:
    return source.is_table


def _output(draw: RandomTopology, name: str) -> Output:
    return Output(f"out-{name}", format=draw.chance.choice(("arrow", "parquet")))


def _repartitioned(
    draw: RandomTopology, name: str, operator: Any, sources: Sequence[Source], keys: Sequence[str], times: Sequence[str]
) -> tuple[SubTopology, Source]:
    """What a ready-made operator gives, as a repartition topic: by one of these keys (none: any), with one of these times."""
    topics = {source.name: source.spec for source in sources}
    output = Output(f"r-{name}")
    schema = operator.sub_topology(name, output, topics=topics.values()).schema_of(output, topics)
    keys = [key for key in keys or schema.names if key in schema.names and schema.field(key).type in _KEY_TYPES]
    times = [time for time in times if time in schema.names]
    if not keys or not times:
        raise NothingFitsError
    key, time, partitions = draw.chance.choice(keys), draw.chance.choice(times), draw.chance.choice((1, 2, 3))
    output = Repartitioned(f"r-{name}", key=key, partitions=partitions, timestamp=time)
    sub = operator.sub_topology(name, output, topics=topics.values())
    return sub, Source(sub.spec_of(output.name, topics), is_in_order=False, is_exact=False)


# Ready-made operators.


def _windowed_join(draw: RandomTopology, name: str) -> Addition:
    left, chance = draw.pick(_is_timed), draw.chance
    right = draw.pick(_is_timed, left)
    how = chance.choice(("inner", "left", "outer"))
    join = WindowedJoin(
        left=left.name,
        right=right.name,
        before_ms=chance.choice((0, 1, 20, 100, -3, 300)),
        after_ms=chance.choice((3, 5, 20, 100, 2**61)),
        how=how,
        left_grace_ms=None if how == "inner" and chance.random() < 0.2 else draw.grace_ms(left),
        right_grace_ms=draw.grace_ms(right),
        late_records=draw.left_out(f"late-{name}", left, right),
        bad_records=draw.left_out(name, left, right),
        late_limit_ms=None,
        left_columns=draw.some_columns(left),
        right_columns=draw.some_columns(right),
    )
    specs, compute = [left.spec, right.spec], partial(plain.windowed_join, join)
    is_certain = left.is_in_order and right.is_in_order and join.left_grace_ms is not None
    if is_certain and chance.random() < 0.35:
        sub, made = _repartitioned(draw, name, join, [left, right], (), ("at", "at_right"))
        graces = [join.left_grace_ms or 0, join.right_grace_ms or 0]
        behind_ms = max(graces) + abs(join.before_ms) + abs(join.after_ms)
        return Addition([Step("windowed join", sub, compute, behind_ms=behind_ms)], made)
    sub = join.sub_topology(name, _output(draw, name), topics=specs)
    return Addition([Step("windowed join", sub, compute, is_exact=left.is_exact and right.is_exact)])


def _stream_table_join(draw: RandomTopology, name: str) -> Addition:
    stream, chance = draw.pick(), draw.chance
    table = draw.pick(_is_table, stream)
    join = StreamTableJoin(
        stream=stream.name,
        table=table.name,
        how=chance.choice(("inner", "left")),
        table_first=chance.random() < 0.3,
        bad_records=draw.left_out(name, stream, table),
        stream_columns=draw.some_columns(stream),
        table_columns=draw.some_columns(table),
    )
    if not stream.is_in_order and not join.table_first:
        raise NothingFitsError
    specs = [stream.spec, table.spec]
    if chance.random() < 0.4:
        sub = join.sub_topology(name, Forwarded(f"f-{name}"), topics=specs)
        made = attrs.evolve(stream, spec=sub.spec_of(f"f-{name}", specs), is_table=False, derived=None)
        return Addition([Step("forwarded join", sub, partial(plain.forwarded_join, join))], made)
    sub = join.sub_topology(name, _output(draw, name), topics=specs)
    return Addition([Step("stream-table join", sub, partial(plain.stream_table_join, join))])


def _table_join(draw: RandomTopology, name: str) -> Addition:
    left = draw.pick(_is_table)
    right = draw.pick(_is_table, left)
    join = TableJoin(
        left=left.name,
        right=right.name,
        how=draw.chance.choice(("inner", "left", "outer")),
        bad_records=draw.left_out(name, left, right),
        left_columns=draw.some_columns(left),
        right_columns=draw.some_columns(right),
    )
    sub = join.sub_topology(name, _output(draw, name), topics=[left.spec, right.spec])
    return Addition([Step("table join", sub, partial(plain.table_join, join))])


def _chained(before: list[int], row: Mapping[str, Any]) -> list[int]:
    return [*before, -1 if row["id"] is None else row["id"]]


def _aggregates(
    draw: RandomTopology, source: Source, by: Sequence[str] | None, has_folds: bool
) -> dict[str, Aggregate]:
    """Some that fit; no fold where the order is not certain."""
    chance, grouped = draw.chance, by or source.spec.key
    fitting = {"rows": Aggregate.count()} | {
        f"{kind}_{column}": getattr(Aggregate, kind)(column)
        for kind, columns in _COMPUTED.items()
        for column in columns
        if column in source.spec.schema.names and column not in grouped
    }
    if not (names := sorted(set(fitting).difference(grouped))):
        raise NothingFitsError
    some = {name: fitting[name] for name in chance.sample(names, min(chance.randint(1, 5), len(names)))}
    if has_folds and source.is_in_order and source.has_ids and chance.random() < 0.5:
        some["fold"] = Aggregate.fold(_chained, [], pa.list_(pa.int64()))
    return some


def _by(draw: RandomTopology, source: Source) -> tuple[str, ...] | None:
    if draw.chance.random() < 0.6:
        return None
    more = [column for column in "cdfsuvz" if column in source.spec.schema.names and column not in source.spec.key]
    return (*source.spec.key, *draw.chance.sample(more, draw.chance.randint(0, min(2, len(more)))))


def _aggregation(draw: RandomTopology, name: str) -> Addition:
    source = draw.pick()
    by = _by(draw, source)
    aggregates = _aggregates(draw, source, by, has_folds=True)
    what = Aggregation(source=source.name, aggregates=aggregates, by=by, bad_records=draw.left_out(name, source))
    sub = what.sub_topology(name, _output(draw, name), topics=source.spec)
    return Addition([Step("aggregation", sub, partial(plain.aggregation, what), by or source.spec.key)])


def _windowed_aggregation(draw: RandomTopology, name: str) -> Addition:
    source, chance = draw.pick(lambda found: _is_timed(found) and "window_start" not in found.spec.key), draw.chance
    length = chance.choice((1, 10, 50, 333))
    advance = max(1, length * chance.choice((1, 2)) // 3)
    kind, windows = chance.choice(
        (
            ("tumbling windows", TimeWindows(length)),
            ("hopping windows", TimeWindows(length, advance)),
            ("sliding windows", SlidingWindows(length - 1)),
            ("sessions", SessionWindows(length - 1)),
        )
    )
    # What a sliding window has of late rows is not defined here.
    grace = draw.grace_ms(source, source.disorder_ms if kind == "sliding windows" else 0)
    by = _by(draw, source)
    what = WindowedAggregation(
        source=source.name,
        windows=windows,
        aggregates=_aggregates(draw, source, by, has_folds=isinstance(windows, TimeWindows)),
        by=by,
        grace_ms=grace,
        late_records=draw.left_out(f"late-{name}", source),
        bad_records=draw.left_out(name, source),
        late_limit_ms=None,
    )
    compute = partial(plain.windowed_aggregation, what)
    if source.is_in_order and chance.random() < 0.3:
        keys, times = ("rows", "count_id", "window_start"), ("window_start", "window_end")
        sub, made = _repartitioned(draw, name, what, [source], keys, times)
        # A session that goes on may have begun long before others that are over.
        behind_ms = None if (kind, made.spec.timestamp) == ("sessions", "window_start") else 0
        return Addition([Step(kind, sub, compute, behind_ms=behind_ms)], made)
    sub = what.sub_topology(name, _output(draw, name), topics=source.spec)
    return Addition([Step(kind, sub, compute, is_exact=source.is_exact)])


def _groups_of_a_table(draw: RandomTopology, name: str) -> Addition:
    table = draw.pick(lambda source: source.is_table and "v" in source.spec.schema.names)
    changes = TableChanges(table=table.name, bad_records=draw.left_out(name, table))
    output = Repartitioned(f"r-{name}", key="v", partitions=draw.chance.choice((1, 2, 3)))
    sub = changes.sub_topology(name, output, topics=table.spec)
    moved = Source(sub.spec_of(output.name, table.spec), is_in_order=False)
    aggregates = {
        shown: one
        for shown, one in _aggregates(draw, moved, None, has_folds=False).items()
        if one.kind in ("count", "sum", "mean") and one.column != table.spec.timestamp
    }
    if not aggregates:
        raise NothingFitsError
    what = TableAggregation(
        source=output.name, aggregates=aggregates, bad_records=draw.left_out(f"{name}-groups", moved)
    )
    groups = what.sub_topology(f"{name}-groups", _output(draw, name), topics=moved.spec)
    steps = [
        Step("table changes", sub, partial(plain.table_changes, changes)),
        Step("table aggregation", groups, partial(plain.table_aggregation, what), ("v",)),
    ]
    return Addition(steps, moved)


# What users write.


def _derived(draw: RandomTopology, name: str) -> Addition:
    is_table, chance = draw.chance.random() < 0.4, draw.chance
    source = draw.pick(lambda found: found.has_ids and (found.is_table or not is_table))
    filters: list[tuple[Any, Callable[[int], bool] | None]] = [
        (None, None),
        (own.odd, lambda number: number % 2 == 1),
        (pc.field("id") > 20, lambda number: number > 20),
    ]
    given, keeps = chance.choice(filters[1:] if is_table else filters)
    is_mapped = keeps is None or chance.random() < 0.5
    made = (DerivedTable if is_table else DerivedStream)(
        f"d-{name}", source.derived or source.spec, filter=given, map_values=own.negated if is_mapped else None
    )
    compute = partial(own.derive, keeps, is_mapped, is_table)
    kind = "derived table" if is_table else "derived stream"
    spec = made.spec_of(draw.sources[made.root].spec)
    return Addition([Step(kind, made, compute)], attrs.evolve(source, spec=spec, is_table=is_table, derived=made))


def _forwarded(draw: RandomTopology, name: str) -> Addition:
    source, is_several = draw.pick(lambda found: found.has_ids), draw.chance.random() < 0.5
    kept = [field for field in source.spec.schema if field.name in (*source.spec.key, source.spec.timestamp)]
    output = Forwarded(f"f-{name}", pa.schema([*kept, pa.field("id", pa.int64())]))
    sub = SubTopology(name, source.name, own.Several if is_several else own.Some, outputs=[output])
    spec = sub.spec_of(output.name, source.spec)
    made = attrs.evolve(source, spec=spec, is_table=False, derived=None)
    return Addition([Step("forwarded", sub, partial(own.forward, is_several))], made)


def _rekeyed(draw: RandomTopology, name: str) -> Addition:
    source = draw.pick(lambda found: found.has_ids and "k2" not in found.spec.schema.names)
    time = source.spec.timestamp if draw.chance.random() < 0.85 else None
    schema = pa.schema([pa.field("k2", pa.string()), *source.spec.schema])
    output = Repartitioned(f"r-{name}", schema, key="k2", partitions=draw.chance.choice((1, 2, 3)), timestamp=time)
    more = [Output(f"ids-{name}", own.IDS)] if draw.chance.random() < 0.3 else []
    sub = SubTopology(name, source.name, own.Rekeyed, outputs=[output, *more])
    made = attrs.evolve(source, spec=output.spec, is_in_order=False, is_table=False, derived=None)
    return Addition([Step("rekeyed", sub, own.rekey)], made)


def _sources_in_order(draw: RandomTopology) -> list[Source]:
    fitting = [source for source in draw.sources.values() if source.is_in_order and "id" in source.spec.schema.names]
    return draw.chance.sample(fitting, min(draw.chance.choice((1, 1, 2, 3)), len(fitting)))


def _told(draw: RandomTopology, name: str) -> Addition:
    sources, chance = _sources_in_order(draw), draw.chance
    tables = [source.name for source in sources[1:] if source.is_table and chance.random() < 0.4]
    key, value = pa.schema([("key", pa.string())]), pa.schema([("count", pa.int64())])
    counts = KeyValueStoreSpec(f"{name}-counts", key, value)
    recent = KeyValueStoreSpec(f"{name}-recent", key.append(own.IDS.field("id")), value)
    names, keys = [source.name for source in sources], {source.name: source.spec.key for source in sources}
    outputs = [Output(f"out-{name}", own.TOLD)]
    processor, left_out = partial(own.Told, name, keys), draw.left_out(name, *sources)
    sub = SubTopology(name, names, processor, [counts, recent], outputs, tables=tables, bad_records=left_out)
    return Addition([Step("own, by record", sub, partial(own.tell, tables))])


def _placed(draw: RandomTopology, name: str) -> Addition:
    sources = _sources_in_order(draw)
    names = [source.name for source in sources]
    key, value = pa.schema([("key", pa.string())]), pa.schema([("count", pa.int64())])
    store = KeyValueStoreSpec(f"{name}-numbers", key, value)
    outputs = [Output(f"out-{name}", own.PLACES), Output(f"even-{name}", own.PLACES)]
    sub = SubTopology(
        name, names, partial(own.Places, name), [store], outputs, bad_records=draw.left_out(name, *sources)
    )
    return Addition([Step("own, by batch", sub, own.place)])


_OPERATORS: Final[tuple[Callable[[RandomTopology, str], Addition], ...]] = (
    *(_windowed_join, _windowed_join, _stream_table_join, _stream_table_join, _stream_table_join, _table_join),
    *(_aggregation, _windowed_aggregation, _windowed_aggregation, _windowed_aggregation, _groups_of_a_table),
    *(_derived, _derived, _forwarded, _rekeyed, _rekeyed, _rekeyed, _told, _told, _placed),
)
KINDS: Final = frozenset(
    {
        *("windowed join", "stream-table join", "forwarded join", "table join", "table changes", "table aggregation"),
        *("aggregation", "tumbling windows", "hopping windows", "sliding windows", "sessions"),
        *("derived stream", "derived table", "forwarded", "rekeyed", "tap"),
        *("own, by record", "own, by batch"),
    }
)
"""All that there is."""
