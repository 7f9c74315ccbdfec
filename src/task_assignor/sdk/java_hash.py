"""Hash codes and buckets of Java's `HashMap`, where what Kafka says first hangs on its order. Whose keys are sorted by them is not known here."""

from __future__ import annotations

from task_assignor.sdk.ids import TaskId, java_string_key

_INT32 = 0xFFFFFFFF


def bucket_count(entries: int) -> int:
    """Buckets of a `java.util.HashMap` or `HashSet` after so many entries were put into an empty one."""
    buckets = 16
    while 3 * buckets < 4 * entries:
        buckets *= 2
    return buckets


def string_hash(text: str) -> int:
    """`java.lang.String.hashCode`, as an unsigned number."""
    units = java_string_key(text)
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + 256 * high + low) & _INT32
    return hashed


def task_id_hash(task_id: TaskId) -> int:
    """What a `HashMap` makes of the hash code of Kafka's `TaskId`; its last bits are the bucket."""
    name = 0 if task_id.topology_name is None else string_hash(task_id.topology_name)
    hashed = (31 * (31 * (31 + task_id.subtopology) + task_id.partition) + name) & _INT32
    return hashed ^ (hashed >> 16)
