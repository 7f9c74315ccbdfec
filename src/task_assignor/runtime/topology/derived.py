"""Streams and tables made of a source row by row, within the task that reads it: `DerivedStream` and `DerivedTable`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
from pyarrow.compute import Expression

from task_assignor.runtime.arrow.frames import are_same, in_own_memory, no_rows, not_a_table, own, taken
from task_assignor.runtime.arrow.keys import keeps_key
from task_assignor.runtime.arrow.merging import Int64Array
from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.runtime.topics.spec import TopicSpec, check_name
from task_assignor.runtime.topics.writing import fit_to_schema
from task_assignor.runtime.topology.sub_topology import Repartitioned
from task_assignor.sdk.text import counted, shown

Predicate: TypeAlias = Callable[[pa.Table], Any] | Expression
"""Gives of each row of a table whether it is kept: booleans, as pyarrow or numpy have them; null: it is not. Or an expression of Arrow."""
Known: TypeAlias = dict[int, tuple[Int64Array, pa.Table] | None]
"""`id` of a derived stream -> the places of the rows of its topic that it keeps, and what becomes of them; None: not known yet."""
_PLACE: Final = own("place")


def _comparable(given: object) -> object:
    """Expressions themselves make another expression of `==`."""
    return str(given) if isinstance(given, Expression) else given


@attrs.frozen
class DerivedStream:
    """A source whose rows are filtered, or have other values, before a processor sees them (Kafka's `filter` and `mapValues`).

    Sub-topologies name it as a source; the tasks that read its topic make it, so nothing is written in between. It has the keys
    and times of its topic. Rows that are left out count for the order of records, and for what is late or closed: the times
    of a partition are those of its topic.

    Args:
        name: name as a source; unique in the topology, and not that of a topic.
        source: what it is made of: a topic by name or as it is, a repartition topic, or another derived stream.
        filter: which rows are kept; None: all.
        map_values: of the rows that are kept, the rows with their new values, as many and in the same order; None: as they are.
            Key and timestamp may be left out: they stay as they are. It is given many rows or few, so what it makes of a row may
            depend on that row alone; a table without rows only to see its columns, if there is no schema.
        schema: columns after `map_values`; None: those that it gives for a table without rows.

    Raises:
        TopologyException: an argument is not allowed.
    """

    name: str
    source: str | TopicSpec | Repartitioned | DerivedStream
    filter: Predicate | None = attrs.field(default=None, kw_only=True, eq=_comparable)
    map_values: Callable[[pa.Table], pa.Table] | None = attrs.field(default=None, kw_only=True)
    schema: pa.Schema | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        try:
            check_name("derived stream", self.name)
        except TopicException as error:
            raise TopologyException(str(error)) from None
        where = f"The {self._kind} {self.name!r}"
        if not isinstance(self.source, (str, TopicSpec, Repartitioned, DerivedStream)):
            raise TopologyException(
                f"{where} was given {shown(self.source)} as its source. It must be the name of a topic, its spec, a repartition "
                "topic or a derived stream."
            )
        if self.name in self._names_above():
            raise TopologyException(f"{where} has the name of what it is made of. Maybe give it another one.")
        if self.filter is None and self.map_values is None:
            raise TopologyException(
                f"{where} is its source as it is. Maybe give filter=, map_values=, or read the source."
            )
        for what, given in (("filter", self.filter), ("map_values", self.map_values)):
            if not (given is None or callable(given) or (what == "filter" and isinstance(given, Expression))):
                raise TopologyException(f"{where}: {what} ({shown(given)}) must be a function of a pyarrow.Table.")
        if not (self.schema is None or isinstance(self.schema, pa.Schema)):
            raise TopologyException(f"{where}: the schema ({shown(self.schema)}) must be a pyarrow.Schema, or None.")
        if self.schema is not None and self.map_values is None:
            raise TopologyException(
                f"{where} has the columns of its source. Maybe leave the schema out, or give map_values=."
            )
        if self.schema is not None:
            self._check_names("schema", self.schema)

    @property
    def _kind(self) -> str:
        return "derived stream"

    def _names_above(self) -> list[str]:
        parent = self.source
        return [self.root, *(one.name for one in (parent.lineage if isinstance(parent, DerivedStream) else ()))]

    @property
    def lineage(self) -> tuple[DerivedStream, ...]:
        """The derived streams that it is made of, the first first, itself last."""
        return (*(self.source.lineage if isinstance(self.source, DerivedStream) else ()), self)

    @property
    def root(self) -> str:
        """Name of the topic that it is made of."""
        if isinstance(self.source, DerivedStream):
            return self.source.root
        return self.source if isinstance(self.source, str) else self.source.name

    @property
    def spec(self) -> TopicSpec:
        """What it is like as a topic, for processors that ask for it.

        Raises:
            TopologyException: its source was given by name only, or the source has no such columns.
        """
        first = self.lineage[0].source
        if isinstance(first, str):
            raise TopologyException(
                f"What the {self._kind} {self.name!r} is like is known if its source is. Maybe give it as source=topic.spec, not as "
                f"the name {first!r}."
            )
        assert not isinstance(first, DerivedStream)
        return self.spec_of(first.spec if isinstance(first, Repartitioned) else first)

    def spec_of(self, topic: TopicSpec) -> TopicSpec:
        """What it is like if its topic is so.

        Raises:
            TopologyException: `map_values` does not fit it.
        """
        return self.specs_of(topic)[-1]

    def specs_of(self, topic: TopicSpec, known: dict[int, TopicSpec] | None = None) -> tuple[TopicSpec, ...]:
        """What its topic is like, and then each of `lineage`.

        Args:
            topic: its topic.
            known: `id` of a derived stream -> what it is like, as far as it is known; it is added to.

        Raises:
            TopologyException: `map_values` does not fit it.
        """
        known = {} if known is None else known
        specs = [topic]
        for one in self.lineage:
            if id(one) not in known:
                known[id(one)] = one._after(specs[-1])  # noqa: SLF001 - of its own kind
            specs.append(known[id(one)])
        return tuple(specs)

    def rows_of(
        self, rows: pa.Table, specs: tuple[TopicSpec, ...], known: Known | None = None
    ) -> tuple[Int64Array, pa.Table]:
        """What becomes of rows of its topic.

        Args:
            rows: the rows.
            specs: `specs_of` the topic.
            known: what has become of the same rows in streams that are asked for more than once, as far as it is known; it is added to.

        Returns:
            (N,) the places of the rows that are kept, and the N rows.

        Raises:
            Exception: whatever the functions raise.
            TopologyException: what they give are not as many rows, have other keys, or do not fit the schema.
        """
        known = {} if known is None else known
        places: Int64Array = np.arange(rows.num_rows)
        for one, before, after in zip(self.lineage, specs[:-1], specs[1:], strict=True):
            found = known.get(id(one))
            if found is None:
                kept, made = one._step(rows, before, after)  # noqa: SLF001
                found = places[kept], made
                if id(one) in known:
                    known[id(one)] = found
            places, rows = found
        return places, rows

    def _after(self, topic: TopicSpec) -> TopicSpec:
        """What it is like if its source is so."""
        if isinstance(self.filter, Expression):
            try:
                no_rows(topic.schema).filter(self.filter)
            except pa.ArrowException as error:
                raise TopologyException(
                    f"The filter of the {self._kind} {self.name!r} does not fit the columns {topic.schema.names} of {topic.name!r}: {error}"
                ) from None
        if self.map_values is None:
            return attrs.evolve(topic, name=self.name, schema=self._nullable(topic.schema, topic.kept_columns))
        schema = self.schema
        if schema is None:
            try:
                schema = self._mapped(no_rows(topic.schema)).schema
            except TopologyException:
                raise
            except Exception as error:
                raise TopologyException(
                    f"Which columns the {self._kind} {self.name!r} has is not known: its map_values raises {type(error).__name__} for a "
                    f"table without rows ({error}). Maybe give schema=."
                ) from error
        kept = topic.kept_columns
        untyped = [field.name for field in schema if pa.types.is_null(field.type) and field.name not in kept]
        if self.schema is None and untyped:
            raise TopologyException(
                f"Which columns the {self._kind} {self.name!r} has is not known: for a table without rows its map_values gives {untyped} "
                "without a type. Maybe give schema=."
            )
        made = topic.with_columns(self.name, schema)
        return attrs.evolve(made, schema=self._nullable(made.schema, kept))

    def _nullable(self, schema: pa.Schema, kept: tuple[str, ...]) -> pa.Schema:  # noqa: ARG002 - what a table needs
        return schema

    def _step(self, rows: pa.Table, before: TopicSpec, after: TopicSpec) -> tuple[Int64Array, pa.Table]:
        """The rows of its source that are kept, as they are then."""
        kept = self._kept(rows)
        return kept, self._values(rows if len(kept) == rows.num_rows else taken(rows, pa.array(kept)), before, after)

    def _kept(self, rows: pa.Table) -> Int64Array:
        if self.filter is None or not rows.num_rows:
            return np.arange(rows.num_rows)
        if isinstance(self.filter, Expression):
            numbered = rows.append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
            return numbered.filter(self.filter).column(_PLACE).to_numpy()  # type: ignore[no-any-return]
        given = self.filter(rows)
        what = f"The filter of the {self._kind} {self.name!r} must give booleans, one for each row, but gave "
        try:
            mask = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
        except Exception as error:
            advice = " Maybe give it as it is: filter=expression." if isinstance(given, Expression) else ""
            raise TopologyException(f"{what}{shown(given)}.{advice}") from error
        if not pa.types.is_boolean(mask.type) and not (pa.types.is_null(mask.type) or len(mask) == 0):
            raise TopologyException(f"{what}{mask.type}.")
        self._check_count("filter", len(mask), rows)
        return np.flatnonzero(mask.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False))

    def _values(self, rows: pa.Table, before: TopicSpec, after: TopicSpec) -> pa.Table:
        if self.map_values is None:
            return rows
        if not rows.num_rows:
            return no_rows(after.schema)
        made = self._mapped(rows)
        self._check_count("map_values", made.num_rows, rows)
        return in_own_memory(with_kept_columns(made, rows, before, after, f"the {self._kind} {self.name!r}"))

    def _mapped(self, rows: pa.Table) -> pa.Table:
        assert self.map_values is not None
        made = self.map_values(rows)
        if not isinstance(made, pa.Table):
            raise TopologyException(not_a_table(f"the {self._kind} {self.name!r}, as its map_values gives them,", made))
        self._check_names("map_values", made.schema)
        return made

    def _check_names(self, what: str, schema: pa.Schema) -> None:
        if len(set(schema.names)) != len(schema.names):
            raise TopologyException(
                f"The {what} of the {self._kind} {self.name!r} has a column name twice: {schema.names}."
            )

    def _check_count(self, what: str, count: int, rows: pa.Table) -> None:
        if count != rows.num_rows:
            raise TopologyException(
                f"The {what} of the {self._kind} {self.name!r} must give one for each row, but gave {count} for "
                f"{counted(rows.num_rows, 'row')}."
            )


@attrs.frozen
class DerivedTable(DerivedStream):
    """The same for a table, a topic of which each key's newest row counts: a row that the filter leaves out deletes its key.

    So no older value stays (Kafka's `filter` and `mapValues` of a `KTable`). A row that deletes its key already is not given
    to the functions.

    Args:
        name: name as a source; unique in the topology, and not that of a topic.
        source: what it is made of: a topic by name or as it is, a repartition topic, or another derived table.
        filter: which rows are kept; None: all.
        map_values: of the rows that are kept, the rows with their new values, as for `DerivedStream`.
        schema: columns after `map_values`; None: those that it gives for a table without rows.

    Raises:
        TopologyException: an argument is not allowed.
    """

    @property
    def _kind(self) -> str:
        return "derived table"

    def _after(self, topic: TopicSpec) -> TopicSpec:
        after = super()._after(topic)
        if set(after.schema.names) <= set(after.kept_columns):
            raise TopologyException(
                f"The derived table {self.name!r} has no columns besides key and timestamp, so nothing could say that a key is gone. Maybe "
                "map_values=, which gives it one."
            )
        return after

    def _nullable(self, schema: pa.Schema, kept: tuple[str, ...]) -> pa.Schema:
        return pa.schema([field if field.name in kept else field.with_nullable(True) for field in schema])

    def _step(self, rows: pa.Table, before: TopicSpec, after: TopicSpec) -> tuple[Int64Array, pa.Table]:
        """All rows, those that are not kept without values."""
        there = np.flatnonzero(keeps_key(rows, before.key, before.beside_values))
        given = rows if len(there) == rows.num_rows else taken(rows, pa.array(there))
        kept = self._kept(given)
        values = self._values(given if len(kept) == given.num_rows else taken(given, pa.array(kept)), before, after)
        every: Int64Array = np.arange(rows.num_rows)
        if values.num_rows == rows.num_rows:
            return every, pa.table(values.columns, schema=after.schema)
        at = np.zeros(rows.num_rows, np.int64)
        at[there[kept]] = np.arange(len(kept))
        gone = np.ones(rows.num_rows, bool)
        gone[there[kept]] = False
        found = taken(values, pa.array(at, mask=gone))
        columns = [
            rows.column(name) if name in before.kept_columns else found.column(name) for name in after.schema.names
        ]
        return every, pa.table(columns, schema=after.schema)


def with_kept_columns(made: pa.Table, rows: pa.Table, before: TopicSpec, after: TopicSpec, what: str) -> pa.Table:
    """Rows as their spec says, with the keys and times of those that they are made of.

    Args:
        made: (N,) the rows, with or without key and timestamp.
        rows: (N,) those of the source that they are made of.
        before: what the source is like.
        after: what they are like.
        what: what they are, for messages.

    Raises:
        TopologyException: they have other keys or times.
        TopicException: they do not fit the schema.
    """
    if len(set(made.column_names)) != len(made.column_names):
        raise TopicException(f"The rows for {what} have a column twice: {made.column_names}.")
    for name in before.kept_columns:
        column, field = rows.column(name), rows.schema.field(name)
        if name not in made.column_names:
            made = made.append_column(field, column)
        elif are_same(made.column(name), column):
            made = made.set_column(made.column_names.index(name), field, column)
        else:
            raise TopologyException(
                f"What makes {what} has changed the column {name!r}, but keys and times stay as they are. Maybe use a repartition topic: "
                "Repartitioned(...)."
            )
    return fit_to_schema(made, after.schema, what)
