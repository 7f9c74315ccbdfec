"""What an application says of a topic of Kafka: columns, key, time, serde. Nothing connects here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs
import pyarrow as pa

from task_assignor.kafka.topics.headers import HeadedTopicSpec, check_headers
from task_assignor.kafka.topics.serdes import JsonSerde, Serde, SerializationException
from task_assignor.runtime.errors import TopicException
from task_assignor.runtime.topics.spec import TopicSpec, check_key, check_name, names_of
from task_assignor.sdk.checks import check_choice
from task_assignor.sdk.text import shown


@attrs.frozen
class KafkaTopic:
    """A topic of Kafka, as the application reads it or writes to it.

    Args:
        name: its name; as the target of an output that of the output.
        schema: columns of its rows. A source needs it; of a topic that is only written it is not looked at: rows have the columns
            of their `Output`.
        key: key columns. Records are written with their bytes as key, by Kafka's serializers, and to the partition that
            Kafka's default partitioner gives them; without any, without a key to the partition of the task.
        timestamp: column with the time of the event: a timestamp, or an integer of milliseconds; None: it has none. A
            record is written with it as its timestamp.
        serde: makes rows of values and values of rows.
        key_in: "value": the key columns are read from the value like others; "key": from the record's key. A record without
            a value (a tombstone) then is a row that has nothing but its key, and the time of the record where that is read; and
            a row of which nothing but nulls would be in the value is written as one.
        timestamp_in: "value": the timestamp column is read from the value like others; "record": it is the record's time.
        key_serde: makes records' keys of the key columns, and with `key_in="key"` the key columns of records' keys; None: they are
            in the bytes of Kafka's own serializers. A row whose key columns are all null is a record without a key.
        headers: column that is not in the value: the headers of the record, a list of structs of `key` (a text) and `value`
            (bytes, or null), in their order. Null: it has none; an empty list is written so, too. None: headers are neither read
            nor written.

    Raises:
        TopicException: something of it is not allowed.
    """

    name: str
    schema: pa.Schema | None = None
    key: tuple[str, ...] = attrs.field(default=(), converter=names_of)
    timestamp: str | None = None
    serde: Serde = attrs.field(factory=JsonSerde)
    key_in: Literal["value", "key"] = "value"
    timestamp_in: Literal["value", "record"] = "value"
    key_serde: Serde | None = None
    headers: str | None = None

    def __attrs_post_init__(self) -> None:
        check_name("topic", self.name)
        check_key(self.name, self.key, self.timestamp)
        self._check_headers()
        for name, serde in (("serde", self.serde), ("key_serde", self.key_serde)):
            is_given = serde is not None or name == "serde"
            if is_given and (isinstance(serde, type) or not hasattr(serde, "deserialize")):
                raise TopicException(
                    f"The {name} ({shown(serde)}) of topic {self.name} must be a Serde, such as JsonSerde()."
                )
        check_choice("The key_in", self.key_in, ("value", "key"), TopicException, f"of topic {self.name}")
        check_choice(
            "The timestamp_in", self.timestamp_in, ("value", "record"), TopicException, f"of topic {self.name}"
        )
        if self.key_in == "key" and not self.key:
            raise TopicException(
                f"With key_in='key' the topic {self.name} needs key columns: nothing is in the record's key. Maybe add key=…."
            )
        if self.key_serde is not None and not self.key:
            raise TopicException(
                f"With a key_serde the topic {self.name} needs key columns: without any, records have no key. Maybe add key=…."
            )
        if self.timestamp_in == "record" and self.timestamp is None:
            raise TopicException(
                f"With timestamp_in='record' the topic {self.name} needs a timestamp column: nothing takes the record's time. "
                "Maybe add timestamp=…."
            )
        if self.schema is not None:
            # Its rules are those of every topic.
            self.check(self.spec(self.schema).schema)

    def _check_headers(self) -> None:
        if self.headers is None:
            return
        if not isinstance(self.headers, str):
            raise TopicException(
                f"The headers ({shown(self.headers)}) of topic {self.name} must be the name of a column."
            )
        if self.headers in (*self.key, self.timestamp):
            raise TopicException(
                f"The column {self.headers!r} of topic {self.name} cannot be its headers and key or timestamp, too."
            )
        if self.schema is not None:
            if self.headers not in self.schema.names:
                raise TopicException(
                    f"Topic {self.name} has no column {self.headers!r} for headers. Its columns are {self.schema.names}."
                )
            check_headers(f"topic {self.name}", self.headers, self.schema.field(self.headers).type)

    def spec(
        self,
        schema: pa.Schema,
        name: str | None = None,
        partitions: int = 1,
        racks: Sequence[frozenset[str] | None] | None = None,
    ) -> TopicSpec:
        """What it is like for who reads it, maybe under another name."""
        given = (self.name if name is None else name, partitions, schema, self.key, self.timestamp, racks)
        return TopicSpec(*given) if self.headers is None else HeadedTopicSpec(*given, headers=self.headers)

    def check(self, schema: pa.Schema) -> None:
        """Hold columns of rows against what the serdes can read and write.

        Raises:
            TopicException: one of them cannot.
        """
        try:
            self.serde.check(self.in_value(schema))
            if self.key_serde is not None:
                self.key_serde.check(self.in_key(schema))
        except SerializationException as error:
            raise TopicException(f"The topic {self.name}: {error}") from None

    def in_key(self, schema: pa.Schema) -> pa.Schema:
        """Those of the columns that are in the key of a record."""
        return pa.schema([schema.field(name) for name in self.key])

    def in_value(self, schema: pa.Schema) -> pa.Schema:
        """Those of the columns that are in the value of a record."""
        beside = {
            *(self.key if self.key_in == "key" else ()),
            *([self.timestamp] if self.is_timed_by_record else []),
            self.headers,
        }
        return pa.schema([field for field in schema if field.name not in beside])

    @property
    def is_timed_by_record(self) -> bool:
        """The timestamp column is the time of the record."""
        return self.timestamp is not None and self.timestamp_in == "record"
