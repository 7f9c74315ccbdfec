"""Which columns of its sources the result of a join has, and under which names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import array_of, decoded
from task_assignor.runtime.arrow.frames import no_rows, to_frame
from task_assignor.runtime.errors import StoreException, TopologyException
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.sub_topology import several
from task_assignor.sdk.text import shown

if TYPE_CHECKING:
    import polars as pl

_UNITS: Final = ("s", "ms", "us", "ns")
_NO_NAME: Final = re.compile(r"|\*|\^.*\$|.*\x00.*|\x1f.*", re.DOTALL)
"""What polars has no columns of, takes for all columns or for those that match; and those of ours (`frames.own`)."""


def to_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names as they were given: several, one, or None for all.

    Raises:
        TopologyException: they are no list of names.
    """
    if columns is None or isinstance(columns, str):
        return None if columns is None else (columns,)
    names = tuple(columns) if isinstance(columns, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise TopologyException(f"The columns ({shown(columns)}) must be a list of names, or None: all of them.")
    return names


def plain(field: pa.Field) -> pa.Field:
    """The field without dictionary encoding, whose codes differ from file to file, and without metadata."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)


def as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column in that type. Of polars maps are lists of pairs, which Arrow 18 cannot cast to maps, JSON is kept as larger texts,
    which Arrow takes for another type of that name, and what is in a struct may be null, which Arrow refuses where the struct is.
    """  # noqa: D205
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return as_type(decoded(column), kind)
    if isinstance(column.type, pa.BaseExtensionType):
        return as_type(column.cast(column.type.storage_type), kind)
    if isinstance(kind, pa.BaseExtensionType):
        return as_type(column, kind.storage_type).cast(kind)
    try:
        return column.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.chunked_array([array_of(_with_maps(column.to_pylist(), pa.list_(kind)), kind)])


def _with_maps(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_with_maps(one["key"], kind.key_type), _with_maps(one["value"], kind.item_type)) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _with_maps(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_with_maps(one, kind.value_type) for one in value]
    return value


def from_frame(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """The columns of a schema out of a frame of polars, in their types."""
    table = frame.select(schema.names).to_arrow()
    return pa.table([as_type(table.column(field.name), field.type) for field in schema], schema=schema)


def check_computable(where: str, fields: Iterable[pa.Field]) -> None:
    """Raise TopologyException if nothing can be computed of columns of such types or names."""
    for field in fields:
        if _NO_NAME.fullmatch(field.name):
            raise TopologyException(
                f"{where} cannot have a column {field.name!r}: polars, which computes with it, knows no such name, or takes it for "
                "a pattern. Maybe rename it."
            )
        try:
            to_frame(no_rows(pa.schema([plain(field)])))
        except TypeError as error:
            raise TopologyException(
                f"{where} cannot have {field.name!r} as {field.type}: {error}. Maybe cast it to another type."
            ) from None


@contextmanager
def stores_of(where: str) -> Iterator[None]:
    """Where stores are declared: what they cannot be, the topology cannot.

    Raises:
        TopologyException: columns of a key have types without an order, say, or a name is taken.
    """
    try:
        yield
    except StoreException as error:
        raise TopologyException(f"{where}: {error}") from None


@attrs.frozen
class SourceColumns:
    """What a result takes of one source.

    Args:
        topic: the source.
        key: its key columns.
        key_fields: names and types that these have in the result.
        values: value column -> its name in the result.
        value_fields: names and types that these have in the result.
    """

    topic: str
    key: tuple[str, ...]
    key_fields: tuple[pa.Field, ...]
    values: Mapping[str, str]
    value_fields: tuple[pa.Field, ...]

    def keys(self, rows: pa.Table) -> pa.Table:
        """The key columns of some rows, as in the result."""
        columns = [
            as_type(rows.column(name), field.type) for name, field in zip(self.key, self.key_fields, strict=True)
        ]
        return pa.table(columns, schema=pa.schema(self.key_fields))

    def value_rows(self, rows: pa.Table) -> pa.Table:
        """The value columns of some rows, as in the result."""
        named = zip(self.values, self.value_fields, strict=True)
        columns = [as_type(rows.column(name), field.type) for name, field in named]
        return pa.table(columns, schema=pa.schema(self.value_fields))

    def without(self, value: str | None) -> SourceColumns:
        """The same, but for one value column, if it is one."""
        kept = {name: named for name, named in self.values.items() if name != value}
        fields = (field for name, field in zip(self.values, self.value_fields, strict=True) if name in kept)
        return attrs.evolve(self, values=kept, value_fields=tuple(fields))


def columns_of_source(where: str, spec: TopicSpec, columns: tuple[str, ...] | None) -> SourceColumns:
    """The key columns of one source, then others, under their names.

    Args:
        where: what is computed, for messages.
        spec: the source.
        columns: its columns besides the keys; None: all.

    Raises:
        TopologyException: a column is not there.
    """
    values = _values(where, spec, columns)
    return _source(spec, tuple(plain(spec.schema.field(name)) for name in spec.key), values, values)


def result_columns(
    where: str,
    left: TopicSpec,
    right: TopicSpec,
    left_columns: tuple[str, ...] | None,
    right_columns: tuple[str, ...] | None,
    suffix: str,
) -> tuple[SourceColumns, SourceColumns]:
    """The key columns under their left names, then the other left columns, then the other right ones.

    Keys are times of the finer of two units: those of the other one can be written so, and are equal or not.

    Args:
        where: what is joined, for messages.
        left: the left source.
        right: the right source.
        left_columns: columns of the left besides the keys; None: all.
        right_columns: the same for the right.
        suffix: added to the name of a right column that the left side has too.

    Raises:
        TopologyException: the keys have not as many columns, a column is not there, or a name is there twice.
    """
    if len(left.key) != len(right.key):
        raise TopologyException(
            f"{where} is by their keys, but that of {left.name!r} is {list(left.key)} and that of {right.name!r} {list(right.key)}. Maybe write "
            "one topic again with another key."
        )
    key_fields = tuple(
        _key_field(plain(left.schema.field(one)), plain(right.schema.field(other)))
        for one, other in zip(left.key, right.key, strict=True)
    )
    left_values, right_values = _values(where, left, left_columns), _values(where, right, right_columns)
    taken = {*left.key, *left_values}
    right_names = [value + suffix if value in taken else value for value in right_values]
    names = [*left.key, *left_values, *right_names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyException(f"{where} has result columns twice: {twice}. Maybe another suffix than {suffix!r}.")
    return (
        _source(left, key_fields, left_values, left_values),
        _source(right, key_fields, right_values, right_names),
    )


def origins(*sides: SourceColumns) -> dict[str, str]:
    """Result column -> source and column that it is taken from; keys are those of the first."""
    taken = {key: (sides[0].topic, key) for key in sides[0].key}
    taken |= {name: (side.topic, value) for side in sides for value, name in side.values.items()}
    return {name: f"{value} of {topic}" for name, (topic, value) in taken.items()}


def _key_field(left: pa.Field, right: pa.Field) -> pa.Field:
    if not (pa.types.is_timestamp(left.type) and pa.types.is_timestamp(right.type)):
        return left
    unit = max(left.type.unit, right.type.unit, key=_UNITS.index)
    return pa.field(left.name, pa.timestamp(unit, left.type.tz))


def _source(
    spec: TopicSpec, key_fields: tuple[pa.Field, ...], values: Sequence[str], names: Sequence[str]
) -> SourceColumns:
    fields = [plain(spec.schema.field(value)).with_name(name) for value, name in zip(values, names, strict=True)]
    return SourceColumns(spec.name, spec.key, key_fields, dict(zip(values, names, strict=True)), tuple(fields))


def _values(where: str, spec: TopicSpec, columns: tuple[str, ...] | None) -> list[str]:
    if columns is None:
        columns = tuple(spec.schema.names)
    known = {*spec.schema.names}
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise TopologyException(
            f"{where}: the topic {spec.name!r} has no columns {unknown}; it has {spec.schema.names}."
        )
    return [column for column in dict.fromkeys(columns) if column not in spec.key]


def specs_of(where: str, names: Sequence[str], topics: Iterable[TopicSpec] | TopicSpec) -> dict[str, TopicSpec]:
    """The specs of the sources by name; one may stand for itself.

    Raises:
        TopologyException: one is missing.
    """
    given = several(topics, TopicSpec)
    strange = [spec for spec in given if not isinstance(spec, TopicSpec)]
    if strange:
        raise TopologyException(
            f"{where}: the topics must be TopicSpec objects, but one is of the type {type(strange[0]).__name__}. Maybe "
            "topics=[Topic.open(root, name).spec, ...], of Kafka KafkaTopics.open(name).spec, of a derived stream its spec."
        )
    found = {spec.name: spec for spec in given}
    missing = [name for name in names if name not in found]
    if missing:
        raise TopologyException(
            f"{where} needs to know the columns of {missing}; given were {sorted(found)}. "
            "Maybe topics=[Topic.open(root, name).spec, ...], of Kafka KafkaTopics.open(name).spec, of a derived stream its spec."
        )
    # Where its replicas are is no part of what is computed.
    return {name: attrs.evolve(found[name], racks=None) for name in names}


def check_same_columns(where: str, planned: Mapping[str, TopicSpec], topics: Mapping[str, TopicSpec]) -> None:
    """Raise TopologyException if the topics are not as they were when the stores were made."""
    for name, spec in planned.items():
        found = topics[name]
        if (spec.schema, spec.key, spec.timestamp) != (found.schema, found.key, found.timestamp):
            raise TopologyException(
                f"{where} was made for a topic {name!r} with the columns {_shape(spec)}, but it has {_shape(found)}."
            )


def _shape(spec: TopicSpec) -> str:
    columns = ", ".join(f"{field.name}: {field.type}" for field in spec.schema)
    return f"{columns} (key {', '.join(spec.key)}; time {spec.timestamp})"
