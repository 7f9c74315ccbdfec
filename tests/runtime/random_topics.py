"""Random topics, from a seed: keys, times and values of many types, with nulls, deletions, and times that are out of order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime import TopicSpec, partitions_of, write_topic
from tests.runtime.plain_rows import Row, array_of, ms_of, rows_of

_STRINGS: Final = (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.large_string())
_TEXTS: Final = ("", "a", "b", "ä€", "x" * 3000, "a\x00b", "A", "c", "d", "e")
_KEYS: Final[tuple[tuple[tuple[pa.DataType | None, tuple[Any, ...]], ...], ...]] = (
    ((None, _TEXTS),),
    ((pa.int64(), (0, 1, -1, 2**63 - 1, -(2**63), 5, 6, 7, 8, 9)),),
    ((pa.int8(), (0, 1, -1, 127, -128, 5, 6, 7, 8, 9)),),
    ((pa.binary(), (b"", b"\x00", b"\xff", b"ab", b"abc", b"\x00\x00", b"q", b"r", b"s", b"t")),),
    ((pa.bool_(), (False, True) * 5),),
    ((pa.date32(), (0, -1, 1, 20_000, -20_000, 3, 4, 5, 6, 7)),),
    # The clock in Berlin was put back between two of them, which have the same time of day there.
    (
        (
            pa.timestamp("us", "Europe/Berlin"),
            (0, -1, 1, 999, 1000, 10**15, -(10**15), 1_540_692_000_000_000, 1_540_695_600_000_000, 5),
        ),
    ),
    ((None, (*_TEXTS[:3] * 3, "e")), (pa.int64(), (0, 0, 0, 1, 1, 1, 2, 2, 2, 3))),
)
"""Kinds of keys: of each of their columns the type (None: one of texts) and the values of ten keys."""
_VALUES: Final[dict[str, tuple[pa.DataType, tuple[Any, ...]]]] = {
    "v": (pa.int64(), (0, 1, -1, 2, 3, 7, 100)),
    "d": (pa.decimal128(12, 2), tuple(map(Decimal, ("0.00", "-1.50", "0.10", "9999999999.99", "3.33")))),
    "f": (pa.float64(), (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, -2.25)),
    "s": (pa.string(), ("", "x", "y" * 3000, "z\n", "ü")),
    "n": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
        ({"a": 1, "b": ["p"]}, {"a": None, "b": []}, {"a": 2, "b": None}),
    ),
    "c": (pa.dictionary(pa.int32(), pa.string()), ("red", "green", "")),
    "z": (pa.timestamp("us", "America/New_York"), (0, -1, 1_541_309_400_000_000, 1_541_313_000_000_000, 2**55)),
    "u": (pa.uint32(), (0, 1, 2**32 - 1)),
}
"""Column -> its type, and its values."""
_NO_TIMES: Final = (2**61, -(2**63), 2**63 - 1)
"""So far from now that they count as none."""


@attrs.frozen
class RandomTopic:
    """A topic and its rows.

    Args:
        spec: what it is like.
        rows: its rows, in the order in which they come.
        segment_rows: so many are in a file.
    """

    spec: TopicSpec
    rows: pa.Table
    segment_rows: int

    @property
    def disorder_ms(self) -> int:
        """By how much a row is older than one before it in its partition, at most."""
        worst = 0
        newest: dict[int, int] = {}
        for partition, row in zip(
            partitions_of(self.rows, self.spec.key, self.spec.partitions), rows_of(self.rows), strict=True
        ):
            if (time := ms_of(row, self.spec)) is not None:
                newest[partition] = max(time, newest.get(partition, time))
                worst = max(worst, newest[partition] - time)
        return worst

    def write(self, root: Path) -> None:
        """Write it."""
        spec = self.spec
        more: dict[str, Any] = {"key": list(spec.key), "timestamp": spec.timestamp, "segment_rows": self.segment_rows}
        write_topic(root, spec.name, self.rows, partitions=spec.partitions, **more)


def random_topics(chance: random.Random) -> dict[str, RandomTopic]:
    """Two to five topics that can be read together: with keys of the same types and the same number of partitions."""
    partitions, key = chance.choice((1, 2, 3, 4)), chance.randrange(8)
    base, zone = chance.choice((0, -5_000, 1_700_000_000_000)), chance.choice((None, "UTC", "Europe/Berlin"))
    names = [f"t{number}" for number in range(chance.randint(2, 5))]
    return {name: _random_topic(chance, name, partitions, key, base, zone) for name in names}


def _time_type(chance: random.Random, base: int, zone: str | None) -> pa.DataType:
    kinds = [pa.int64(), *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns"))]
    return chance.choice([*kinds, pa.int32()] if abs(base) < 10**6 else kinds)


def _native_time(chance: random.Random, time_ms: int, kind: pa.DataType) -> int:
    """A time as a number of the column's type, which may have finer parts."""
    unit = kind.unit if pa.types.is_timestamp(kind) else "ms"
    if unit == "s":
        return time_ms // 1000
    per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}[unit]
    return time_ms * per_ms + chance.choice((0, 0, per_ms // 2, per_ms - 1))


def _random_topic(
    chance: random.Random, name: str, partitions: int, kind: int, base: int, zone: str | None
) -> RandomTopic:
    texts, key_name = chance.choice(_STRINGS), chance.choice(("k", "k", f"k_{name}"))
    keys = {f"{key_name}{place or ''}": (type_ or texts, values) for place, (type_, values) in enumerate(_KEYS[kind])}
    at = {"at": _time_type(chance, base, zone)} if chance.random() < 0.9 else {}
    values = {column: _VALUES[column] for column in chance.sample(sorted(_VALUES), chance.randint(1, 6))}
    fields = [pa.field(column, type_) for column, (type_, _) in (keys | values).items()]
    fields += [pa.field("id", pa.int64()), *(pa.field(*one) for one in at.items())]
    chance.shuffle(fields)
    keys_of = {column: some for column, (_, some) in keys.items()}
    # Each topic has ids of its own.
    rows = _random_rows(chance, keys_of, at.get("at"), [*values], base, itertools.count(int(name[1:]), 5))
    columns = [array_of([row[field.name] for row in rows], field.type) for field in fields]
    spec = TopicSpec(name, partitions, pa.schema(fields), tuple(keys), *at)
    return RandomTopic(spec, pa.table(columns, schema=spec.schema), chance.choice((1, 3, 10, 1000)))


def _random_rows(
    chance: random.Random,
    keys: Mapping[str, Sequence[Any]],
    at: pa.DataType | None,
    values: Sequence[str],
    base: int,
    ids: Iterator[int],
) -> list[Row]:
    """Some rows; in those that delete their key all values are null."""
    # Seconds are coarse: what is out of order or apart there is so by seconds.
    scale = 1000 if at is not None and pa.types.is_timestamp(at) and at.unit == "s" else 1
    used = chance.sample(range(10), chance.choice((1, 3, 6, 10)))
    # Of keys in other partitions the times may be far apart.
    disorder, apart = chance.choice((0, 0, 5, 30)) * scale, chance.choice((0, 0, 300)) * scale
    no_key, no_time, no_value, deleted = (chance.choice((0, share)) for share in (0.1, 0.1, 0.2, 0.15))
    time, rows = base, list[Row]()
    for _ in range(chance.choice((0, 1, 5, 20, 20, 40, 40))):
        time += chance.choice((0, 0, 1, 2, 5, 17, chance.choice((50, 200)))) * scale
        number = chance.choice(used)
        row = {column: None if chance.random() < no_key else some[number] for column, some in keys.items()}
        if at is not None:
            own = time + apart * (number % 3) - (chance.randint(0, disorder) if chance.random() < 0.3 else 0)
            none = chance.choice((None, *_NO_TIMES)) if at == pa.int64() else None
            row["at"] = none if chance.random() < no_time else _native_time(chance, own, at)
        is_deleted = chance.random() < deleted
        row["id"] = None if is_deleted else next(ids)
        for column in values:
            is_null = is_deleted or chance.random() < no_value
            row[column] = None if is_null else chance.choice(_VALUES[column][1])
        rows.append(row)
    return rows
