"""The program of the page on Kafka topics does what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime.arrow.keys import partitions_of
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import make_topics
from tests.kafka.topics.records import rows_of, write_records

PAGE = Path(__file__).parents[3] / "docs" / "kafka-topics.md"
pytestmark = pytest.mark.kafka


def test_the_program_of_the_page_runs(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").split("```python\n", 1)[1].partition("```")[0]
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(text, str(PAGE), "exec"), names)
    servers = kafka_cluster.bootstrap_servers
    make_topics(servers, "orders", "visits", "orders-after-visits", partitions=4)
    minutes = pa.array([number * 60_000 for number in range(20)], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    customers = pa.array([number % 5 for number in range(20)], pa.int64())
    orders = pa.table({"customer": customers, "at": minutes, "amount": [float(n) for n in range(20)]})
    visits = pa.table({"customer": customers, "at": minutes, "page": [f"/{n}" for n in range(20)]})
    assert len(set(partitions_of(orders, ["customer"], 4).tolist())) > 1
    write_records(servers, "orders", orders, key="customer")
    write_records(servers, "visits", visits, key="customer")
    result = names["make_application"](servers, str(tmp_path / "run")).run()
    # Each customer has one of each every five minutes, so an order comes at most ten minutes after three visits.
    expected = sum(min(number // 5, 2) + 1 for number in range(20))
    assert result.rows_out == expected
    rows = rows_of(servers, "orders-after-visits")
    assert len(rows) == expected
    assert {"customer", "at", "amount", "page"} <= rows[0].keys()
