"""What is computed of a group of rows: count, sum, smallest, largest, mean, or what a function makes of them one by one.

All but the function are made of parts: what is known of a group is a row of *state columns*, and the state of two parts of
the group gives the state of both. So each batch adds a part, and parts are put together when somebody asks. The function
needs its records in order: its state is one value, and a later part replaces the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import attrs
import numpy as np
import pyarrow as pa

from task_assignor.runtime.arrow.frames import exact_array, own, to_frame, to_records
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.processors.columns import as_type, check_computable, plain
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.text import failure, shown

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["count", "sum", "min", "max", "mean", "fold"]
Fold = Callable[[Any, Mapping[str, Any]], Any]
_TAKEN_BACK: Final = ("count", "sum", "mean", "fold")
"""Kinds of which a row can be taken away again."""
_WITHOUT_COLUMN: Final = ("count", "fold")
_OVERFLOW: Final = 2.0**62
_DIGITS: Final = 38
"""Those of a decimal128."""
ROWS = "__rows"
"""State column with the number of rows of a group."""


@attrs.frozen
class Aggregate:
    """What is computed of the rows of a group. Made by `count`, `sum`, `min`, `max`, `mean`, `fold`.

    Args:
        kind: which of these.
        column: of which column; None: of the rows.
        function: for "fold": from the value so far and a record to the next value.
        initial: for "fold": the value of no records.
        type: for "fold": type of the value.

    Raises:
        TopologyException: one of these is something else.
    """

    kind: Kind
    column: str | None = None
    function: Fold | None = None
    initial: Any = None
    type: pa.DataType | None = None

    def __attrs_post_init__(self) -> None:
        check_choice("The kind", self.kind, get_args(Kind), TopologyException, "of an Aggregate")
        where = f"Aggregate.{self.kind}()"
        if not (isinstance(self.column, str) or (self.column is None and self.kind in _WITHOUT_COLUMN)):
            raise TopologyException(f"{where}: the column ({shown(self.column)}) must be the name of one.")
        if self.kind == "fold":
            if not callable(self.function):
                raise TopologyException(
                    f"{where}: the function ({shown(self.function)}) must be callable: from the value so far and a record to the next value."
                )
            try:
                pa.field("value", self.type)
            except (TypeError, ValueError):
                raise TopologyException(
                    f"{where}: the type ({shown(self.type)}) must be a pyarrow.DataType, such as pyarrow.int64()."
                ) from None

    @classmethod
    def count(cls, column: str | None = None) -> Aggregate:
        """The number of rows; with a column of those that have a value in it."""
        return cls("count", column)

    @classmethod
    def sum(cls, column: str) -> Aggregate:
        """The sum of a column of numbers; null if there are none. Sums of floats depend on the order of addition, and so in
        their last digits on where batches were cut and when a task moved; those of integers and decimals (with as many digits
        behind the point, and 38 altogether) do not, and one that does not fit is an error (of a window also what one batch adds to it).
        """  # noqa: D205
        return cls("sum", column)

    @classmethod
    def min(cls, column: str) -> Aggregate:
        """The smallest value; null if there is none."""
        return cls("min", column)

    @classmethod
    def max(cls, column: str) -> Aggregate:
        """The largest value; null if there is none."""
        return cls("max", column)

    @classmethod
    def mean(cls, column: str) -> Aggregate:
        """The sum, as `sum` has it, by the number of values, as a float; null if there are none."""
        return cls("mean", column)

    @classmethod
    def fold(cls, function: Fold, initial: object, type: pa.DataType) -> Aggregate:
        """What a function makes of the records one by one, in the order of their offsets, whatever their times (Kafka's `Aggregator`). Slow.

        Args:
            function: from the value so far and a record (column -> value) to the next value, which depends on nothing
                else. What it raises ends the run. In a `TableAggregation` the record says whether it comes or goes (Kafka's adder and subtractor).
            initial: the value of no records, of which each group is given a copy.
            type: type of the value; one that it cannot hold as it is (1.5 as an integer) is an error. After the initial one the
                function is given what Arrow makes of what it has returned, such as a list for a tuple, whether there was a
                batch between or not.
        """
        return cls("fold", None, function, initial, type)


def to_aggregates(aggregates: Mapping[str, Aggregate]) -> Mapping[str, Aggregate]:
    """What was given, as it is now: whoever adds to it for the next aggregation does not mean this one.

    Raises:
        TopologyException: it is no mapping from names to these.
    """
    if not isinstance(aggregates, Mapping):
        raise TopologyException(
            f"The aggregates ({shown(aggregates)}) must be a mapping from names in the result to what is computed, such as "
            "{'rows': Aggregate.count()}."
        )
    for name, found in aggregates.items():
        if not isinstance(name, str):
            raise TopologyException(f"The name ({shown(name)}) of an aggregate must be a string.")
        if not isinstance(found, Aggregate):
            raise TopologyException(
                f"The aggregate {name!r} ({shown(found)}) must be made by Aggregate.count(), .sum(column), and so on."
            )
    return dict(aggregates)


def _beside(name: str) -> str:
    """What a column is called that stands beside those of users, and is named after one of them: no other one of ours has such a name."""
    return own(own(name))


def _sum_of(name: str, found: Aggregate) -> str:
    """State column with the sum of an aggregate."""
    return f"{name}__sum" if found.kind == "mean" else name


class Group:
    """The aggregates of groups of rows, on polars frames.

    Args:
        spec: the source.
        aggregates: name in the result -> what is computed.
        where: what it is for, for messages.
        change: column of 1 and -1: the row is added, or one like it is taken away again; None: all are added.

    Raises:
        TopologyException: a column is missing, or has a type that does not allow it; or what was taken away cannot be told from
            an aggregate.
    """

    def __init__(
        self, spec: TopicSpec, aggregates: Mapping[str, Aggregate], where: str, change: str | None = None
    ) -> None:
        self._aggregates = dict(aggregates)
        self._spec = spec
        self._where = where
        self._change = change
        columns = {change, *(found.column for found in aggregates.values())}
        self.needed = sorted(column for column in columns if column is not None)
        """Columns of the source that are read."""
        for column in self.needed:
            if column not in spec.schema.names:
                raise TopologyException(
                    f"{where}: the topic {spec.name!r} has no column {column!r}; it has {spec.schema.names}."
                )
        if change is not None:
            self._check_change(change)
        check_computable(where, [spec.schema.field(column) for column in self.needed])
        self.fields = [pa.field(name, self._type(name, found)) for name, found in aggregates.items()]
        """Columns of the result."""
        self.folds = {name: found for name, found in aggregates.items() if found.kind == "fold"}
        check_computable(where, self.fields)
        self._beyond = {
            name: (f"{name}__inf", f"{name}__minus_inf")
            for name, found in aggregates.items()
            if change is not None and found.kind in ("sum", "mean") and self._is_of_floats(found)
        }
        """State columns with how many values of a sum are no numbers to add: infinite, or NaN, which counts as both."""
        self._exact_sums = {
            _sum_of(name, found): self._sum_type(found)
            for name, found in aggregates.items()
            if found.kind in ("sum", "mean") and not self._is_of_floats(found)
        }
        """State columns with sums of whole numbers or decimals, which go round where they do not fit, and their types."""
        self.state_fields = self._state_fields()
        """Columns of a state: the number of rows, and of each aggregate what its parts are put together from."""

    def _check_change(self, change: str) -> None:
        kind = self._spec.schema.field(change).type
        if not pa.types.is_signed_integer(kind):
            raise TopologyException(
                f"{self._where}: the column {change!r} of 1 and -1 must be of whole numbers, not {kind}."
            )
        if any(found.column == change for found in self._aggregates.values()):
            raise TopologyException(
                f"{self._where}: {change!r} says whether a row comes or goes, so nothing can be computed of it."
            )
        strange = {name: found.kind for name, found in self._aggregates.items() if found.kind not in _TAKEN_BACK}
        if strange:
            raise TopologyException(
                f"{self._where} takes rows away again, which only {', '.join(_TAKEN_BACK)} can follow: a group does not know its second "
                f"smallest value. Not these: {', '.join(f'{name!r} ({kind})' for name, kind in strange.items())}."
            )

    def _count_of(self, name: str, found: Aggregate) -> str | None:
        """State column with the number of values of a sum; None: it needs none."""
        is_counted = found.kind == "mean" or (found.kind == "sum" and self._change is not None)
        return f"{name}__count" if is_counted else None

    def _is_of_floats(self, found: Aggregate) -> bool:
        assert found.column is not None
        return bool(pa.types.is_floating(plain(self._spec.schema.field(found.column)).type))

    def _type(self, name: str, found: Aggregate) -> pa.DataType:
        if found.kind == "count":
            return pa.int64()
        if found.kind == "fold":
            assert found.type is not None
            return found.type
        assert found.column is not None
        kind = plain(self._spec.schema.field(found.column)).type
        if found.kind in ("min", "max"):
            # Of extension types polars gives null, without a word.
            if pa.types.is_nested(kind) or pa.types.is_null(kind) or isinstance(kind, pa.BaseExtensionType):
                raise TopologyException(f"{self._where}: {name!r} needs values with an order, not {kind}.")
            return kind
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)):
            raise TopologyException(
                f"{self._where}: {name!r} needs a column of numbers, but {found.column!r} is {kind}."
            )
        return pa.float64() if found.kind == "mean" else self._sum_type(found)

    def _sum_type(self, found: Aggregate) -> pa.DataType:
        kind = plain(self._spec.schema.field(found.column)).type
        if pa.types.is_decimal128(kind):
            return pa.decimal128(_DIGITS, kind.scale)
        return pa.float64() if pa.types.is_floating(kind) else pa.int64()

    def _state_fields(self) -> list[pa.Field]:
        fields = [pa.field(ROWS, pa.int64())]
        for field, found in zip(self.fields, self._aggregates.values(), strict=True):
            if found.kind == "mean":
                fields.append(pa.field(_sum_of(field.name, found), self._sum_type(found)))
            else:
                fields.append(field)
            if (count := self._count_of(field.name, found)) is not None:
                fields.append(pa.field(count, pa.int64()))
        # At the end, as they came later: a store may gain columns there.
        return [*fields, *(pa.field(name, pa.int64()) for beyond in self._beyond.values() for name in beyond)]

    def frame(self, rows: pa.Table, by: Sequence[str]) -> pl.DataFrame:
        """What `parts` needs of some rows: what makes a group, and apart from it, under names of ours, what is computed with."""
        names = {**{name: name for name in by}, **{_beside(name): name for name in self.needed}}
        columns = [as_type(rows.column(name), plain(rows.schema.field(name)).type) for name in names.values()]
        return to_frame(pa.table(columns, names=list(names)))

    def parts(self, rows: pl.DataFrame, by: Sequence[str], more: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """A state for each group of rows (`frame`), and more of them. That of a function is missing: `fold` adds it.

        Raises:
            OverflowError: a sum does not fit into 64 bits, or 38 digits.
        """
        return self._checked(self.unchecked_parts(rows, by, more))

    def unchecked_parts(self, rows: pl.DataFrame, by: Sequence[str], more: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """As `parts`, but with sums that need not fit alone: beside them is about what they are, and `put_together` checks the whole."""
        import polars as pl

        made = [*more, self._number(None).alias(ROWS)]
        for name, found in self._aggregates.items():
            column = pl.col(_beside(found.column)) if found.column is not None else None
            if found.kind == "count":
                made.append(self._number(column).alias(name))
            elif found.kind in ("sum", "mean"):
                assert column is not None
                assert found.column is not None
                state = _sum_of(name, found)
                terms = column
                beyond = self._beyond.get(name)
                if beyond is not None and not isfinite(rows.get_column(_beside(found.column)).sum()):
                    # Once added, such a one could not be taken away again.
                    terms = pl.when(column.is_finite()).then(column)
                    for limit, state_of_it in zip((float("inf"), -float("inf")), beyond, strict=True):
                        is_it = column.is_nan() | (column == limit)
                        made.append(self._number(pl.when(is_it).then(1)).alias(state_of_it))
                elif beyond is not None:
                    made += [pl.lit(0, pl.Int64).alias(state_of_it) for state_of_it in beyond]
                made += self._sum(terms, state, None if self._change is None else pl.col(_beside(self._change)))
                if (count := self._count_of(name, found)) is not None:
                    made.append(self._number(column).alias(count))
            elif found.kind != "fold":
                assert column is not None
                made.append((column.min() if found.kind == "min" else column.max()).alias(name))
        return rows.group_by(by, maintain_order=True).agg(made)

    def _number(self, column: pl.Expr | None) -> pl.Expr:
        """How many rows there are, or such with a value; those that are taken away counted off."""
        import polars as pl

        if self._change is None:
            return (pl.len() if column is None else column.count()).cast(pl.Int64)
        change = pl.col(_beside(self._change)).cast(pl.Int64)
        return (change if column is None else change.filter(column.is_not_null())).sum()

    def put_together(self, states: pl.DataFrame, by: Sequence[str], more: Sequence[pl.Expr] = ()) -> pl.DataFrame:
        """One state for each group of states, which may be `unchecked_parts`; of functions the last.

        Raises:
            OverflowError: a sum does not fit into 64 bits, or 38 digits.
        """
        import polars as pl

        made = [*more, pl.col(ROWS).sum()]
        for name, found in self._aggregates.items():
            if found.kind == "count":
                made.append(pl.col(name).sum())
            elif found.kind in ("sum", "mean"):
                state = _sum_of(name, found)
                value, *about = self._sum(pl.col(state), state)
                if about and _beside(state) in states.columns:
                    about = [pl.coalesce(_beside(state), pl.col(state).cast(pl.Float64)).sum().alias(_beside(state))]
                made += [value, *about]
                if (count := self._count_of(name, found)) is not None:
                    made.append(pl.col(count).sum())
                made += [pl.col(beyond).sum() for beyond in self._beyond.get(name, ())]
            elif found.kind == "fold":
                made.append(pl.col(name).last())
            else:
                made.append(pl.col(name).min() if found.kind == "min" else pl.col(name).max())
        whole = self._checked(states.group_by(by, maintain_order=True).agg(made))
        if self._change is None:
            return whole
        # Of floats there may be a rest when all values have been taken away.
        counted = {_sum_of(name, one): self._count_of(name, one) for name, one in self._aggregates.items()}
        return whole.with_columns(
            pl.when(pl.col(count) != 0).then(pl.col(state)).alias(state) for state, count in counted.items() if count
        )

    def _sum(self, column: pl.Expr, name: str, change: pl.Expr | None = None) -> list[pl.Expr]:
        """The sum, null of nothing; and beside an exact one about what it must be, to see whether it went round."""
        import polars as pl

        kind = self._exact_sums.get(name, pa.float64())
        decimal = pl.Decimal(_DIGITS, kind.scale) if pa.types.is_decimal(kind) else None
        exact = decimal or (pl.Int64 if name in self._exact_sums else pl.Float64)
        # A number without a sign that is too large goes round here, as a sum does.
        terms, about = column.cast(exact, wrap_numerical=True), column.cast(pl.Float64)
        if change is not None:
            signed = (
                terms * change.cast(exact) if decimal is None else pl.when(change < 0).then(-terms).otherwise(terms)
            )
            terms, about = signed, about * change.cast(pl.Float64)
        value = pl.when(column.count() > 0).then(terms.sum()).alias(name)
        return [value, about.sum().alias(_beside(name))] if name in self._exact_sums else [value]

    def _checked(self, states: pl.DataFrame) -> pl.DataFrame:
        for name, kind in self._exact_sums.items():
            about = states.get_column(_beside(name)).to_numpy()
            if pa.types.is_decimal(kind):
                limit, room = 10.0 ** (_DIGITS - kind.scale), f"{_DIGITS} digits"
                wrong = np.abs(about) >= limit
                # The largest that fit are as floats as large as the limit. So far beyond it 128 bits do not go round yet.
                for row in np.flatnonzero(wrong & (np.abs(about) < 1.5 * limit)).tolist():
                    value = states.get_column(name)[row]
                    wrong[row] = value is None or value.copy_abs() >= Decimal(10) ** (_DIGITS - kind.scale)
            else:
                values = states.get_column(name).fill_null(0).to_numpy().astype(np.float64)
                wrong, room = np.abs(values - about) > _OVERFLOW, "64 bits"
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                ours = {field.name for field in self.state_fields}
                by = [column for column in states.columns if column not in ours and not column.startswith(own(""))]
                group = states.select(by).row(row, named=True)
                whose = {_sum_of(one, found): one for one, found in self._aggregates.items()}[name]
                raise OverflowError(f"{self._where}: the sum for {whose!r} does not fit into {room}: {group}")
        return states.drop([_beside(name) for name in self._exact_sums])

    def fold(
        self, states: pl.DataFrame, before: pl.DataFrame, rows: pa.Table, group: np.ndarray[Any, Any]
    ) -> pl.DataFrame:
        """The states with those of functions.

        Args:
            states: (G,) of `parts`.
            before: (G,) the functions' values so far; null where a group is new.
            rows: the records, in order, with all columns.
            group: (N,) to which of the states each belongs.
        """
        if not self.folds:
            return states
        columns = []
        for name, found in self.folds.items():
            assert found.function is not None
            is_new = before.get_column(ROWS).is_null().to_list()
            kind = plain(pa.field(name, found.type)).type
            old = as_type(before.select(name).to_arrow().column(name), kind).to_pylist()
            # A function may change what it is given, in its own: no other group and no other function sees that.
            values = [deepcopy(found.initial) if new else value for new, value in zip(is_new, old, strict=True)]
            left = before.get_column(ROWS).fill_null(0).to_list()
            for number, record in zip(group.tolist(), to_records(rows), strict=True):
                values[number] = self._as_stored(found.function(values[number], record), name, kind)
                left[number] += 1 if self._change is None else record[self._change]
                if not left[number]:
                    # The next batch would find nothing, either.
                    values[number] = deepcopy(found.initial)
            table = pa.table({name: exact_array(values, kind)})
            columns.append(to_frame(table).get_column(name))
        return states.with_columns(columns)

    def _as_stored(self, value: object, name: str, kind: pa.DataType) -> Any:
        """What a store would give back: where batches are cut must make no difference."""
        try:
            return exact_array([value], kind)[0].as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{self._where}: {shown(value)} for {name!r} is not of type {kind}: {failure(error)}"
            ) from error

    def results(self, states: pl.DataFrame) -> pl.DataFrame:
        """What the states say."""
        import polars as pl

        for name, beyond in self._beyond.items():
            if any(states.get_column(state).max() for state in beyond):
                inf, minus_inf = (pl.col(state) > 0 for state in beyond)
                limits = ((inf & minus_inf, float("nan")), (inf, float("inf")), (minus_inf, -float("inf")))
                limit = pl.coalesce(pl.when(is_it).then(value) for is_it, value in limits)
                state = _sum_of(name, self._aggregates[name])
                states = states.with_columns(pl.coalesce(limit, state).alias(state))
        means = [name for name, found in self._aggregates.items() if found.kind == "mean"]
        return states.with_columns(
            pl.when(pl.col(f"{name}__count") > 0)
            .then(pl.col(f"{name}__sum").cast(pl.Float64) / pl.col(f"{name}__count"))
            .alias(name)
            for name in means
        )
