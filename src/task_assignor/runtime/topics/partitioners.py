"""Whether the topics that meet in a task were partitioned in the same way, as far as their rows tell. Nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from task_assignor.runtime.arrow.dictionaries import in_one_piece
from task_assignor.runtime.arrow.keys import partitions_of
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.sdk.once import name_once

_ROWS: Final = 1_000
"""So many of a batch are looked at."""
_KEYS: Final = 10
"""So many different ones say it: that all of them are in one of two partitions by chance happens once in a thousand times."""
_LOOKS: Final = 20
"""After so many batches without that many keys nobody looks any more."""
_WARNING: Final = (
    "The keys of these topics are not in the partitions where Kafka's default partitioner puts them, but those of a topic that meets them "
    "in a task are. So equal keys do not meet, and results lack what they would give. Maybe write them again with that partitioner "
    "(confluent-kafka: partitioner=murmur2_random), or, as where keys are in a format of their own (key_serde), let a sub-topology write them "
    "to a repartition topic, and read that; topics"
)


class Partitioners:
    """What one task has seen of its sources.

    Args:
        partition: the partition of all of them that it reads.
        specs: what they are like.
    """

    def __init__(self, partition: int, specs: Mapping[str, TopicSpec]) -> None:
        self._partition = partition
        partitioned = {name: spec for name, spec in specs.items() if spec.key and spec.partitions > 1}
        # Of one topic alone it is enough that equal keys are in one partition.
        self._looks = dict.fromkeys(partitioned, _LOOKS) if len(partitioned) > 1 else {}
        """Source -> how often it may still be looked at."""
        self._specs = partitioned
        self._agrees: dict[str, bool] = {}
        """Source -> its keys are where Kafka's default partitioner puts them."""

    def look(self, rows: Mapping[str, pa.Table]) -> None:
        """Look at the rows of a batch; that some topics are partitioned otherwise than others is logged, once in the life of the process.

        Args:
            rows: source -> its rows.
        """
        for name in [name for name in self._looks if rows[name].num_rows]:
            spec = self._specs[name]
            # Arrow has no groups of dictionaries that differ, as those of several files do, and takes names that begin with a dot for paths.
            some = in_one_piece(rows[name].slice(0, _ROWS).select(list(spec.key)))
            some = some.rename_columns([str(place) for place in range(some.num_columns)]).drop_null()
            keys = some.group_by(some.column_names).aggregate([])
            self._looks[name] -= 1
            if keys.num_rows >= _KEYS:
                found = partitions_of(keys, some.column_names, spec.partitions)
                self._agrees[name] = bool((found == self._partition).all())
            if name in self._agrees or not self._looks[name]:
                del self._looks[name]
            if {*self._agrees.values()} == {True, False}:
                name_once((topic for topic, agrees in self._agrees.items() if not agrees), _WARNING)
