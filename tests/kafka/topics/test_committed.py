"""What is committed with source offsets: as much of it as brokers take, also by older versions."""

from __future__ import annotations

import pytest

from task_assignor.kafka.errors import KafkaClusterException
from task_assignor.kafka.topics.committed import Committed, committed_of


@pytest.mark.parametrize(("partitions", "is_kept"), [(1, True), (300, True), (1_000, False)])
def test_where_outputs_end_is_left_out_if_brokers_would_refuse_so_much(partitions: int, is_kept: bool) -> None:
    last = Committed(
        {"in": 5}, 7, 9, {"store": (1, 2)}, {"out": 3}, {}, {"out": tuple(range(10**9, 10**9 + partitions))}
    )
    assert len(last.metadata) <= 4096
    found = committed_of("group", 0, {"in": (6, last.metadata)})
    assert found.stores == {"store": (1, 2)}
    assert found.written == (
        {("out", partition): 10**9 + partition for partition in range(partitions)} if is_kept else {}
    )


def test_what_older_versions_have_committed_is_read() -> None:
    older = '{"taskAssignor":1,"begin":{"in":0},"changelog":4,"time":null,"stores":{},"outputs":{"out":2}}'
    assert committed_of("group", 0, {"in": (2, older)}).written == {}
    with pytest.raises(KafkaClusterException, match=r"the topic in, partition 3, but this application has not done it"):
        committed_of("group", 3, {"in": (2, "")})
