"""What a topic is like: its name, partitions, columns, key. Where its rows are is in `topic`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import not_in_arrow
from task_assignor.runtime.arrow.keys import key_type_name
from task_assignor.runtime.errors import TopicException, TopologyException
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.text import NAME_RULE, counted, is_name, shown

MAX_PARTITIONS: Final = 10_000_000
"""With more the memory for their offsets may be gone before a task has begun."""


def check_name(what: str, name: object) -> None:
    """Kafka's rule for names of topics; ours for stores and outputs too, since they become folders.

    Raises:
        TopicException: the name is not allowed.
    """
    if not is_name(name):
        raise TopicException(f"The {what} name ({shown(name)}) must have {NAME_RULE}.")


def check_source(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    """A validator: the name of a topic to read.

    Raises:
        TopologyException: it cannot be one.
    """
    if not is_name(value):
        raise TopologyException(
            f"The {attribute.name} ({shown(value)}) of the {type(instance).__name__} must be the name of a topic: {NAME_RULE}."
        )


def check_partitions(topic: str, partitions: object) -> None:
    """Raise TopicException if no topic can have so many partitions."""
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise TopicException(
            f"The partitions ({shown(partitions)}) of topic {topic} must be an int of at least 1, and at most {MAX_PARTITIONS}."
        )


def check_key(topic: str, key: Sequence[str], timestamp: str | None) -> None:
    """Key and timestamp are names; no key column is named twice: it would be hashed twice, maybe in the place of another one.

    Raises:
        TopicException: that is not so.
    """
    for column in (*key, *([] if timestamp is None else [timestamp])):
        if not isinstance(column, str):
            raise TopicException(f"A key or timestamp column of topic {topic} must be a name, not {shown(column)}.")
    if any(column in key[:place] for place, column in enumerate(key)):
        raise TopicException(f"The key of topic {topic} names a column twice: {list(key)}.")


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Names that were given as several, or as one text."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _rack_sets(racks: Sequence[Iterable[str] | None] | None) -> tuple[frozenset[str] | None, ...] | None:
    """Racks per partition as a spec has them."""
    if racks is None:
        return None
    if not isinstance(racks, Iterable):
        raise TopicException(
            f"The racks ({shown(racks)}) must be a list that has, for each partition, several texts, or None."
        )
    # A text is no list of letters.
    each = [racks] if isinstance(racks, str) else racks
    return tuple(None if found is None else frozenset(names_of(found)) for found in each)


@attrs.frozen
class TopicSpec:
    """What a topic is like.

    Args:
        name: its name.
        partitions: number of partitions, 1 to 10 000 000.
        schema: columns of its rows.
        key: key columns; equal keys are in one partition (see `keys`).
        timestamp: column with the time of the event: a timestamp, of which whole milliseconds count, or a signed integer of these; None: it
            has none.
        racks: racks that hold a replica, per partition (one, several, or None: unknown); None: unknown for all.

    Raises:
        TopicException: something of it is not allowed.
    """

    name: str
    partitions: int
    schema: pa.Schema
    key: tuple[str, ...] = attrs.field(converter=names_of)
    timestamp: str | None = None
    racks: tuple[frozenset[str] | None, ...] | None = attrs.field(default=None, converter=_rack_sets)

    def __attrs_post_init__(self) -> None:
        check_name("topic", self.name)
        check_partitions(self.name, self.partitions)
        if not isinstance(self.schema, pa.Schema):
            raise TopicException(f"The schema ({shown(self.schema)}) of topic {self.name} must be a pyarrow.Schema.")
        if len(set(self.schema.names)) != len(self.schema.names):
            raise TopicException(f"Topic {self.name} has a column name twice: {self.schema.names}.")
        if not self.key:
            raise TopicException(
                f"Topic {self.name} needs at least one key column. Its columns are {self.schema.names}."
            )
        check_key(self.name, self.key, self.timestamp)
        for column in (*self.key, *([] if self.timestamp is None else [self.timestamp])):
            if column not in self.schema.names:
                raise TopicException(
                    f"Topic {self.name} has no column {column!r}. Its columns are {self.schema.names}."
                )
        for field in self.schema:
            kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
            try:
                # Arrow 18 makes arrays out of Python's values for some dictionaries only.
                none = pa.nulls(0, kind) if pa.types.is_dictionary(kind) else pa.array([], kind)
                none.take(pa.array([], pa.int64()))
            except pa.ArrowException:
                raise TopicException(
                    f"The column {field.name!r} of topic {self.name} has type {field.type}, of which Arrow cannot take single rows. "
                    "Maybe cast it to another one, such as string."
                ) from None
        if unread := not_in_arrow(self.schema):
            raise TopicException(
                f"Topic {self.name} cannot have the column {unread}: Arrow does not read from files what it writes of it. Maybe cast "
                "it to another one, such as the type of its values."
            )
        for column in self.key:
            try:
                key_type_name(self.schema.field(column).type)
            except TopicException as error:
                raise TopicException(f"The key column {column!r} of topic {self.name}: {error}") from None
        if self.timestamp is not None:
            kind = self.schema.field(self.timestamp).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_signed_integer(kind)):
                raise TopicException(
                    f"The timestamp column {self.timestamp!r} of topic {self.name} has type {kind}; "
                    "it must be a timestamp or a signed integer (int64, as a rule) of milliseconds since the epoch."
                )
        strange = [
            rack for found in self.racks or () if found is not None for rack in found if not isinstance(rack, str)
        ]
        if strange:
            raise TopicException(f"A rack of topic {self.name} must be a text, not {shown(strange[0])}.")
        if self.racks is not None and len(self.racks) != self.partitions:
            raise TopicException(
                f"Topic {self.name} has {counted(self.partitions, 'partition')}, but racks for {len(self.racks)} were given."
            )

    @property
    def key_types(self) -> tuple[str, ...]:
        """How the key columns are serialised; equal in topics whose equal keys share a partition number."""
        return tuple(key_type_name(self.schema.field(column).type) for column in self.key)

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """Key and timestamp: they stay as they are in rows that are made of its own within a task."""
        return tuple(dict.fromkeys((*self.key, *([] if self.timestamp is None else [self.timestamp]))))

    @property
    def beside_values(self) -> tuple[str, ...]:
        """Columns that are no values: of a row of a table that has nothing else its key is gone."""
        return () if self.timestamp is None else (self.timestamp,)

    def columns_named(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Names of columns, as they were given: several, or one.

        Raises:
            TopicException: it has no such columns.
        """
        names, known = names_of(columns), {*self.schema.names}
        strange = [name for name in names if not isinstance(name, str) or name not in known]
        if strange:
            raise TopicException(f"Topic {self.name} has no columns {shown(strange)}; it has {self.schema.names}.")
        return names

    def with_columns(self, name: str, schema: pa.Schema) -> TopicSpec:
        """What rows that are made of its own within a task are like: key and timestamp as they are, and other columns.

        Args:
            name: their name as a source.
            schema: their columns; those that stay may be left out.

        Raises:
            TopicException: what is given is no schema, or no name.
        """
        check_kind("schema", schema, pa.Schema, TopicException, f" of what is made of topic {self.name}")
        fields = {field.name: field for field in (*(self.schema.field(kept) for kept in self.kept_columns), *schema)}
        # Whatever type was made of them.
        fields |= {kept: self.schema.field(kept) for kept in self.kept_columns}
        return attrs.evolve(self, name=name, schema=pa.schema(list(fields.values())))
