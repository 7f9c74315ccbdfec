"""The programs and commands of the pages on groups do what the pages say, on a real broker."""

from __future__ import annotations

import asyncio
import doctest
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from task_assignor import ProcessId, StreamsConfig
from task_assignor.cli.app import app
from task_assignor.group import SubTopologyShape
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, make_topics, wait_until

kafka = pytest.importorskip("kafka")
pytest.importorskip("aiokafka")
room = pytest.importorskip("task_assignor.kafka")

pytestmark = pytest.mark.kafka
DOCS = Path(__file__).parents[2] / "docs"
TOPICS = ["clicks", "impressions"]
PARTITIONS = 4


def names_of(page: str) -> dict[str, Any]:
    """What the programs of a page define, one after the other."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in (DOCS / page).read_text(encoding="utf-8").split("```python\n")[1:]:
        exec(compile(block.partition("```")[0], page, "exec"), names)
    return names


@pytest.fixture(scope="module")
def servers(kafka_cluster: KafkaCluster) -> str:
    make_topics(kafka_cluster.bootstrap_servers, *TOPICS, partitions=PARTITIONS)
    return kafka_cluster.bootstrap_servers


@pytest.fixture
def page(unique: Unique) -> dict[str, Any]:
    """The names of the page, with a group of its own for each test."""
    names: dict[str, Any] = {"__name__": "page"}
    text = (DOCS / "host-in-a-consumer-group.md").read_text(encoding="utf-8").replace("payments", unique("payments"))
    for block in text.split("```python\n")[1:]:
        exec(compile(block.partition("```")[0], "host-in-a-consumer-group.md", "exec"), names)
    return names


def share(consumers: list[Any], partitions: int) -> list[int]:
    """Poll until all partitions are with somebody, and everybody has some; how many each has."""

    def is_settled() -> bool:
        for consumer in consumers:
            consumer.poll(50)
        sizes = [len(consumer.assignment()) for consumer in consumers]
        return sum(sizes) == partitions and min(sizes) > 0

    wait_until(is_settled, "the consumers share")
    return [len(consumer.assignment()) for consumer in consumers]


def commit(consumers: list[Any]) -> None:
    """Commit what each has read; while a rebalance goes on nobody can, so poll and try again, as the client advises."""

    def is_committed() -> bool:
        for consumer in consumers:
            consumer.poll(50)
        try:
            for consumer in consumers:
                consumer.commit()
        except (kafka.errors.RebalanceInProgressError, kafka.errors.CommitFailedError):
            return False
        return True

    wait_until(is_committed, "the offsets are committed")


def test_consumers_are_hosted_and_looked_into(servers: str, page: dict[str, Any], tmp_path: Path) -> None:
    consumers = [page["open_consumer"](servers) for _ in range(2)]
    assert share(consumers, 2 * PARTITIONS) == [PARTITIONS, PARTITIONS]
    group = consumers[0].config["group_id"]
    commit(consumers)
    # docs/look-into-a-group.md
    assert names_of("look-into-a-group.md")["lag_of"](group, {"bootstrap.servers": servers}) == 0
    run = CliRunner()
    listed = run.invoke(app, ["inspect", "--bootstrap-server", servers])
    assert group in listed.stdout
    properties = tmp_path / "client.properties"
    properties.write_text(f"bootstrap.servers={servers}\n")
    shown = run.invoke(app, ["inspect", "--config", str(properties), "--group", group, "--json"])
    assert shown.exit_code == 0, shown.output
    assert "clicks" in json.dumps(json.loads(shown.stdout))
    state = tmp_path / "group.json"
    written = run.invoke(app, ["snapshot", "--bootstrap-server", servers, "--group", group, "-o", str(state)])
    assert written.exit_code == 0, written.output
    for more in ([], ["--assignor", "cooperative-sticky"]):
        assert run.invoke(app, ["plan", str(state), *more]).exit_code == 0
    for consumer in consumers:
        consumer.close()


def test_tasks_are_given_to_consumers(servers: str, page: dict[str, Any]) -> None:
    clients = [page["open_client"](servers, ProcessId.parse(f"00000000-0000-0000-0000-00000000000{n}")) for n in (1, 2)]
    # A task has a partition of both topics.
    assert share(clients, 2 * PARTITIONS) == [PARTITIONS, PARTITIONS]
    for client in clients:
        numbers = [sorted(each.partition for each in client.assignment() if each.topic == topic) for topic in TOPICS]
        assert numbers[0] == numbers[1]
        client.close()


def test_the_rounds_of_a_change_of_assignors_are_accepted(servers: str, page: dict[str, Any], unique: Unique) -> None:
    for plugins in (page["first_round"], page["second_round"]):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers, group_id=unique("rolling"), partition_assignment_strategy=plugins
        )
        for plugin in plugins:
            plugin.attach(consumer)
        consumer.subscribe(TOPICS)
        assert share([consumer], 2 * PARTITIONS) == [2 * PARTITIONS]
        consumer.close()


def test_a_consumer_of_aiokafka_is_hosted(servers: str, page: dict[str, Any]) -> None:
    async def partitions() -> int:
        consumer = await page["open_async_consumer"](servers)
        try:
            while len(consumer.assignment()) < PARTITIONS:
                await asyncio.sleep(0.02)
            return len(consumer.assignment())
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(partitions(), 90)) == PARTITIONS


@pytest.mark.parametrize("owner", [name for name in room.__all__ if "+SKIP" in (getattr(room, name).__doc__ or "")])
def test_examples_that_need_a_broker_are_right(servers: str, unique: Unique, owner: str) -> None:
    """Without one they are passed over, see `tests/conftest.py`."""
    described = getattr(room, owner)
    names = {
        **vars(room),
        "KafkaConsumer": partial(kafka.KafkaConsumer, bootstrap_servers=servers),
        "config": StreamsConfig({"application.id": unique("leads"), "bootstrap.servers": servers}),
        "shapes": [SubTopologyShape("join", ("clicks", "impressions"))],
    }
    text = (
        described.__doc__.replace("localhost:9092", servers)
        .replace("# doctest: +SKIP", "")
        .replace(".wait()", ".wait(0.1)")
    )
    examples = doctest.DocTestParser().get_doctest(text, names, owner, None, None)
    outcome = doctest.DocTestRunner().run(examples)
    assert outcome.failed == 0
    assert outcome.attempted > 0
