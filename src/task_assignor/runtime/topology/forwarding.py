"""Of which records the rows of forwarded outputs are made: what a context asks when rows are forwarded. No processor runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from task_assignor.runtime.arrow.frames import are_same
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.rows import Rows, to_table
from task_assignor.sdk.text import counted, shown

Int64Array: TypeAlias = npt.NDArray[np.int64]


class Forwarding:
    """The forwarded outputs of a sub-topology.

    Args:
        topics: its sources, by name.
        sources: forwarded output -> the source of whose records its rows are made.
        schemas: forwarded output -> its columns; None, or one that is not named: those of its rows.
    """

    def __init__(
        self, topics: Mapping[str, TopicSpec], sources: Mapping[str, str], schemas: Mapping[str, pa.Schema | None]
    ) -> None:
        self.sources = sources
        self._topics = topics
        self._schemas = schemas
        self._shorter: dict[tuple[str, tuple[str, ...]], pa.Schema] = {}
        """Output and columns that rows for it lack -> the others."""
        self._rows: Mapping[str, pa.Table] = {}
        self._starts: Mapping[str, int] = {}
        self._returned: list[tuple[pa.Table, str | None, Int64Array, Sequence[Mapping[str, Any]]]] = []
        """What processors of ours have returned, as `remember` was told."""

    def turn_to(self, rows: Mapping[str, pa.Table], starts: Mapping[str, int]) -> None:
        """These are processed now.

        Args:
            rows: source -> its rows.
            starts: source -> how many of its rows in the batch come before these; empty: no rows are processed.
        """
        self._rows, self._starts, self._returned = rows, starts, []

    def remember(
        self, rows: pa.Table, source: str | None, made_of: Int64Array, given: Sequence[Mapping[str, Any]]
    ) -> None:
        """A processor of ours returns a table: arguments as for `TaskContext.made`."""
        if self.sources:
            self._returned.append((rows, source, made_of, given))

    def check(self, batch: Mapping[str, pa.Table]) -> None:
        """A processor of ours, which another one may call, is given these rows.

        Raises:
            TopologyException: what it forwards would be made of others than those that are processed now.
        """
        for output, source in self.sources.items():
            there, given = self._rows.get(source), batch.get(source)
            if there is None or given is None or given is there:
                continue
            kept = self._topics[source].kept_columns
            if given.num_rows != there.num_rows or not all(
                name in given.column_names and are_same(given.column(name), there.column(name)) for name in kept
            ):
                raise TopologyException(
                    f"The rows of {source!r} of which the forwarded output {output!r} is made must be given as they come, but process_batch "
                    "was given others. Maybe leave rows out by a DerivedStream, or where each is processed."
                )

    def made(
        self, output: str, rows: Rows, made_of: npt.ArrayLike | None, standing: tuple[str, int] | None
    ) -> tuple[pa.Table, Int64Array]:
        """Rows for an output, and of which rows of its source in the batch they are made.

        Args:
            output: the output.
            rows: what is forwarded.
            made_of: of which of the rows that are processed now; None: of the record that is, or as `remember` was told.
            standing: source and row of the record that is processed now; None: not one alone.

        Raises:
            TopologyException: that is not known, or there is no such row; or a row has another key or time.
            ValueError: as `TaskContext.forward`.
        """
        source = self.sources[output]
        if made_of is None:
            for table, whose, numbers, given in self._returned:
                if table is rows and whose in (source, None):
                    return self._without_gaps(source, table, given, numbers), numbers + self._starts[source]
        given = [rows] if isinstance(rows, Mapping) else rows if isinstance(rows, (list, tuple)) else ()
        table = to_table(rows, self._schema_for(output, given))
        if made_of is None and not table.num_rows:
            return table, np.zeros(0, np.int64)
        numbers = self._numbers(output, table.num_rows, made_of, standing)
        return self._without_gaps(source, table, given, numbers), numbers + self._starts[source]

    def _schema_for(self, output: str, rows: Sequence[Mapping[str, Any]]) -> pa.Schema | None:
        """The columns of an output, without the key and the time if no row has them: they stay as they are."""
        schema = self._schemas.get(output)
        if schema is None:
            return None
        kept = self._topics[self.sources[output]].kept_columns
        lacking = tuple(name for name in kept if not any(name in row for row in rows if isinstance(row, Mapping)))
        if (output, lacking) not in self._shorter:
            self._shorter[output, lacking] = pa.schema([field for field in schema if field.name not in lacking])
        return self._shorter[output, lacking]

    def _without_gaps(
        self, source: str, table: pa.Table, rows: Sequence[Mapping[str, Any]], made_of: Int64Array
    ) -> pa.Table:
        """A table of mappings of which some lack the key or the time, without that column: it stays as it is.

        Args:
            source: of whose records they are made.
            table: the table.
            rows: the mappings; none: it was given as a table.
            made_of: (N,) of which of the rows that are processed now.

        Raises:
            TopologyException: where it is given it is another one.
        """
        for name in self._topics[source].kept_columns:
            if name in table.column_names and not all(name in row for row in rows):
                given = [place for place, row in enumerate(rows) if name in row]
                there = self._rows[source].column(name).take(pa.array(made_of[given], pa.int64()))
                if not are_same(table.column(name).take(pa.array(given, pa.int64())), there):
                    raise TopologyException(
                        f"A row that is forwarded as made of a record of {source!r} has another {name!r} than that, but keys and times stay "
                        "as they are. Maybe use a repartition topic: Repartitioned(...)."
                    )
                table = table.drop_columns([name])
        return table

    def _numbers(
        self, output: str, count: int, made_of: npt.ArrayLike | None, standing: tuple[str, int] | None
    ) -> Int64Array:
        """Of which of the rows that are processed now as many rows of an output are made."""
        source = self.sources[output]
        where = f"Rows of the forwarded output {output!r} must be made of a record of {source!r} each, but"
        if source not in self._starts:
            raise TopologyException(
                f"{where} a punctuator has no records. Maybe keep what it needs in a store, and forward rows where records are processed; "
                "or use an Output, or a repartition topic."
            )
        if made_of is None:
            topic, row = standing or ("", -1)
            if topic != source:
                raise TopologyException(
                    f"{where} the record that is processed is one of {topic!r}."
                    if topic
                    else f"{where} none is processed alone. Maybe say of which: context.forward(rows, made_of=[...])."
                )
            return np.full(count, row)
        rows, there = np.asarray(made_of), self._rows[source].num_rows
        if rows.shape != (count,) or (count and rows.dtype.kind not in "iu"):
            raise TopologyException(f"{where} for {counted(count, 'row')} made_of is {shown(made_of)}.")
        if count and not 0 <= int(rows.min()) <= int(rows.max()) < there:
            wrong = int(rows.min()) if int(rows.min()) < 0 else int(rows.max())
            raise TopologyException(f"{where} made_of has {wrong}, and the batch {counted(there, 'row')} of it.")
        return rows.astype(np.int64)
