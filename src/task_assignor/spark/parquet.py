"""DataFrames that are nothing but Parquet files: read by Arrow at once, five times faster than through the JVM's rows.

Anything that could mean more than the bytes of the files - a filter, an option, folders with partition values, other types,
old calendars, remote storage - is left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.sql import DataFrame

from task_assignor.spark.jobs import even_shares
from task_assignor.spark.shuffle import Shuffle, Shuffled

MOST_FILES: Final = 1_000
"""The driver reads the index of every file; of very many files Spark shall take care."""
_READ_ROWS: Final = 30_000
"""Rows that are read at once: however wide they are, the shuffle counts their bytes."""
_SAME_IN_BOTH: Final = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
_OLD_CALENDAR: Final = b"org.apache.spark.legacyDateTime"


@attrs.frozen
class RowGroup:
    """A part of a Parquet file.

    Args:
        path: the file.
        number: number of the row group in it.
        rows: its rows.
    """

    path: str
    number: int
    rows: int


def parquet_row_groups(frame: DataFrame, schema: pa.Schema) -> list[RowGroup] | None:
    """What to read instead of the DataFrame, in the order of the files' names; None: Spark must be asked.

    Args:
        frame: any DataFrame.
        schema: its columns as Arrow knows them.
    """
    try:
        uris = _scanned(frame)
        if uris is None:
            return None
        paths = sorted(path for uri in uris if (path := _local_path(uri)) is not None)
        if len(paths) < len(uris) or len(paths) > MOST_FILES:
            return None
        found: list[RowGroup] = []
        for path in paths:
            with pq.ParquetFile(path, memory_map=True) as file:
                if _OLD_CALENDAR in (file.metadata.metadata or {}) or not _same_columns(file.schema_arrow, schema):
                    return None
                found += (
                    RowGroup(path, number, file.metadata.row_group(number).num_rows)
                    for number in range(file.metadata.num_row_groups)
                )
    except (Py4JError, OSError, pa.ArrowException):
        # Whatever is unusual about the plan or the files, Spark knows it or says it better.
        return None
    return found


def _scanned(frame: DataFrame) -> list[str] | None:
    """The files that a DataFrame is nothing but the rows of, each as often as Spark reads it; None: it is more, or less."""
    if frame.sparkSession.conf.get("spark.sql.parquet.datetimeRebaseModeInRead") != "CORRECTED":
        # It shifts old times, or refuses them, where a file does not say who has written it.
        return None
    if any(field.metadata for field in frame.schema) or frame.storageLevel.useMemory or frame.storageLevel.useDisk:
        return None
    plan: Any = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 (there is no public way to a plan)
    if _class(plan) == "Project":
        columns = plan.projectList()
        if any(_class(columns.apply(number)) != "AttributeReference" for number in range(columns.size())):
            return None
        plan = plan.child()
    if _class(plan) != "LogicalRelation" or _class(plan.relation()) != "HadoopFsRelation":
        return None
    relation = plan.relation()
    is_plain = (
        _class(relation.fileFormat()) == "ParquetFileFormat"
        and relation.partitionSchema().size() == 0
        and set(_keys(relation.options())) <= {"path", "paths"}
    )
    # Not those of the DataFrame: a file that was named twice, whose rows come twice, is there once.
    return list(relation.location().inputFiles()) if is_plain else None


def _class(java_object: Any) -> str:
    return str(java_object.getClass().getSimpleName())


def _keys(scala_map: Any) -> list[str]:
    iterator, found = scala_map.keysIterator(), []
    while iterator.hasNext():
        found.append(str(iterator.next()))
    return found


def _local_path(uri: str) -> str | None:
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None


def _same_columns(file: pa.Schema, wanted: pa.Schema) -> bool:
    return all(
        name in file.names
        and _plain(file.field(name).type) == wanted.field(name).type
        and any(is_same(wanted.field(name).type) for is_same in _SAME_IN_BOTH)
        for name in wanted.names
    )


def _plain(data_type: pa.DataType) -> pa.DataType:
    """The type without what concerns memory only; the shuffle casts to it."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_large_string(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(data_type) else data_type


def shuffle_row_groups(frame: DataFrame, groups: Sequence[RowGroup], shuffle: Shuffle) -> list[Shuffled]:
    """Sort the rows of Parquet files into topic partitions; the order of the row groups is kept."""
    context = frame.sparkSession.sparkContext
    shares = even_shares(groups, context.defaultParallelism, lambda group: group.rows)

    def write(shares: Iterable[list[RowGroup]]) -> Iterable[Shuffled]:
        task: Any = TaskContext.get()
        for share in shares:
            name = f"{task.partitionId():06d}-{task.taskAttemptId()}"
            yield shuffle.write(name, _read(share, shuffle.schema))

    return context.parallelize(shares, max(len(shares), 1)).mapPartitions(write).collect()


def _read(groups: Iterable[RowGroup], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for group in groups:
        with pq.ParquetFile(Path(group.path), memory_map=True) as file:
            for batch in file.iter_batches(
                batch_size=_READ_ROWS, row_groups=[group.number], columns=schema.names, use_threads=False
            ):
                yield batch.select(schema.names)
