"""How random topics grow between the runs of an application, from a seed: rows that come later, columns that are gained."""

from __future__ import annotations

import bisect
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa

from task_assignor.runtime import TopicSpec, append_topic, partitions_of
from tests.runtime.plain_rows import array_of, ms_of, rows_of
from tests.runtime.random_topics import RandomTopic

_GAINED: Final[tuple[tuple[pa.DataType, tuple[Any, ...]], ...]] = (
    (pa.float64(), (1.5, -2.0, None)),
    (pa.list_(pa.int64()), ([1], [], None)),
    (pa.struct([("q", pa.int64())]), ({"q": 3}, {"q": None}, None)),
    (pa.decimal128(9, 3), (Decimal("0.001"), None)),
    (pa.timestamp("ns", "UTC"), (5, 7, None)),
    (pa.dictionary(pa.int32(), pa.string()), ("gu", "ge", None)),
)
"""Types of columns that are gained, and their values. By none of them anything is keyed, grouped or computed."""


@attrs.frozen
class GrowingTopic:
    """A topic as it is at last, and how it came to that.

    Args:
        whole: all of it.
        stages: of each row the stage in which it comes.
        gained: a column that was not there from the beginning -> its first stage.
    """

    whole: RandomTopic
    stages: tuple[int, ...]
    gained: Mapping[str, int]

    def spec_in(self, stage: int) -> TopicSpec:
        """What it is like in a stage."""
        spec = self.whole.spec
        fields = [field for field in spec.schema if self.gained.get(field.name, 0) <= stage]
        return attrs.evolve(spec, schema=pa.schema(fields))

    def grow(self, root: Path, stage: int) -> None:
        """Write what comes in a stage."""
        names = self.spec_in(stage).schema.names
        places = [place for place, own in enumerate(self.stages) if own == stage]
        rows = self.whole.rows.select(names).take(pa.array(places, pa.int64()))
        if stage == 0:
            attrs.evolve(self.whole, spec=self.spec_in(0), rows=rows).write(root)
        elif rows.num_rows or stage in self.gained.values():
            segment_rows = self.whole.segment_rows
            append_topic(root, self.whole.spec.name, rows, segment_rows=segment_rows, add_columns=True)


def growing(seed: int, topics: Mapping[str, RandomTopic]) -> tuple[int, dict[str, GrowingTopic]]:
    """In how many stages topics come, and how each of them grows.

    What comes in a stage is newer than all that came before it, or older than something in its partition that comes with it: so it is
    read in the same order as if all had been there at once, but for tables that are read to their end first.
    """
    chance = random.Random(f"growth {seed}")
    times = [
        time for topic in topics.values() for row in rows_of(topic.rows) if (time := ms_of(row, topic.spec)) is not None
    ]
    cuts = sorted(chance.choice(times) for _ in range(chance.choice((0, 1, 2)))) if times else []
    return len(cuts) + 1, {name: _growing(chance, topic, cuts) for name, topic in topics.items()}


def _growing(chance: random.Random, topic: RandomTopic, cuts: list[int]) -> GrowingTopic:
    spec, newest, stages = topic.spec, dict[int, int](), list[int]()
    rows = rows_of(topic.rows)
    for partition, row in zip(partitions_of(topic.rows, spec.key, spec.partitions), rows, strict=True):
        if (time := ms_of(row, spec)) is not None:
            newest[partition] = max(time, newest.get(partition, time))
        stages.append(bisect.bisect_right(cuts, newest[partition]) if partition in newest else 0)
    gained, table = dict[str, int](), topic.rows
    kept = {*spec.key, spec.timestamp}
    first_stages = sorted(chance.randint(1, len(cuts)) for _ in range(chance.choice((0, 1, 1, 2)) if cuts else 0))
    for number, stage in enumerate(first_stages):
        name = f"g{number}-{spec.name}"
        type_, values = chance.choice(_GAINED)
        # A row without any value deletes its key; some do so no longer.
        is_deletion = [all(value is None for column, value in row.items() if column not in kept) for row in rows]
        column = [
            None if own < stage or (deletes and chance.random() < 0.7) else chance.choice(values)
            for own, deletes in zip(stages, is_deletion, strict=True)
        ]
        table, gained[name] = table.append_column(pa.field(name, type_), array_of(column, type_)), stage
    whole = attrs.evolve(topic, spec=attrs.evolve(spec, schema=table.schema), rows=table)
    return GrowingTopic(whole, tuple(stages), gained)
