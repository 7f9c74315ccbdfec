"""A Python assignor decides for real Kafka Streams applications."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from task_assignor.bridge.keys import PREFIX, RECORDING_CLASS, SHADOW_CLASS
from tests.bridge.faulty import FAULTS
from tests.bridge.streams import Instance, StreamsGroup, python_decides
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, wait_until
from tests.processes import alive

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("streams")]


def test_python_leads_three_instances_and_the_next_leader_starts_its_own_when_the_leader_is_killed(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    with StreamsGroup(kafka_cluster, unique("three"), tmp_path, java, settings=python_decides()) as group:
        leader = group.start("i1")
        wait_until(lambda: leader.state == "RUNNING", "the first instance runs")
        group.start("i2")
        group.start("i3")
        group.wait_until_settled()
        group.feed(300)
        group.expect_all_rows_once()
        # What an instance says comes through a pipe of its own, maybe later than what others do.
        wait_until(lambda: leader.all("sticky placed 6 tasks and 6 standbys on 3 clients"), "the leader says so")
        assert [len(one.active) for one in group.running()] == [2, 2, 2]
        python = leader.children()
        assert python
        leader.kill()
        group.wait_until_settled()
        group.feed(300)
        group.expect_all_rows_once()
        said = "sticky placed 6 tasks and 6 standbys on 2 clients"
        wait_until(lambda: [one for one in group.running() if one.all(said)], "the next leader says so")
        wait_until(lambda: not any(alive(pid) for pid in python), "the Python of the killed JVM ends")
        group.expect_no_thread_lost()


def test_no_fault_of_python_hurts_the_group_and_each_is_over_when_python_is_well_again(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    flag = tmp_path / "fault"
    settings = python_decides(sys.executable, "-m", "tests.bridge.faulty", str(flag), timeout_ms=8_000, retry_ms=1_000)
    with StreamsGroup(kafka_cluster, unique("faults"), tmp_path, java, settings=settings) as group:
        leader, other = group.start("i1"), group.start("i2")
        group.wait_until_settled()
        group.feed(12)
        group.expect_all_rows_once()

        def lines(pattern: str) -> int:
            return sum(len(one.all(pattern)) for one in (leader, other))

        def is_more(pattern: str, before: int) -> bool:
            return lines(pattern) > before

        for number, (fault, said) in enumerate(FAULTS.items()):
            noticed = f"No assignment [(].*({said})"
            before, placed = lines(noticed), lines("sticky placed")
            flag.write_text(fault)
            other.tell("remove" if number % 2 else "add")
            wait_until(partial(is_more, noticed, before), f"Java notices: {fault}")
            group.feed(12)
            group.wait_until_settled()
            flag.unlink()
            wait_until(partial(is_more, "sticky placed", placed), f"the group asks again after: {fault}")
            group.wait_until_settled()
        group.expect_all_rows_once()
        group.expect_no_thread_lost()
        metrics = [one.metrics() for one in (leader, other)]
        assert sum(one.get("Failed", 0) for one in metrics) >= len(FAULTS)
        assert len(leader.children()) + len(other.children()) <= 2


def test_without_any_python_the_first_assignment_is_not_empty(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    settings = python_decides("there-is-no-such-program", retry_ms=1_000)
    with StreamsGroup(kafka_cluster, unique("nobody"), tmp_path, java, standbys=0, settings=settings) as group:
        first = group.start("i1")
        group.wait_until_settled()
        assert first.all("No assignment .*there-is-no-such-program.*6 without owner")
        second = group.start("i2")
        group.wait_until_settled()
        first.stop()
        group.wait_until_settled()
        assert len(second.active) == 6
        group.feed(60)
        group.expect_all_rows_once()
        group.expect_no_thread_lost()


def test_whoever_wants_it_has_the_application_stopped(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    settings = python_decides("there-is-no-such-program", on_failure="exception")
    with StreamsGroup(kafka_cluster, unique("stops"), tmp_path, java, settings=settings) as group:
        only = group.start("i1")
        wait_until(lambda: only.state == "ERROR", "the application stops")
        assert only.all("THREAD DIED.*TaskAssignmentException")


def test_rolling_from_java_to_shadow_to_python_and_back(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    records = {name: {f"{PREFIX}record.dir": tmp_path / name} for name in ("recorded", "python")}
    stages: list[tuple[str, dict[str, object]]] = [
        ("java", {}),
        ("recording", {"task.assignor.class": RECORDING_CLASS, **records["recorded"]}),
        ("shadow", {**python_decides(), "task.assignor.class": SHADOW_CLASS}),
        ("python", {**python_decides(), **records["python"]}),
        ("back", {}),
    ]
    with StreamsGroup(kafka_cluster, unique("rolling"), tmp_path, java) as group:
        seen: dict[str, list[Instance]] = {}
        for stage, settings in stages:
            for name in ("i1", "i2", "i3"):
                old = group.instances.get(name)
                if old is not None:
                    old.stop()
                    group.feed(12)
                seen.setdefault(stage, []).append(group.start(name, settings))
                if len(group.running()) == 3:
                    group.wait_until_settled()
            group.feed(12)
            group.expect_all_rows_once()
            # Whoever leads in the end leads with these settings: one more rebalance shows it.
            seen[stage][0].tell("add")
            group.wait_until_settled()
            if stage in ("shadow", "python"):
                said = {
                    "shadow": "Shadow: Java and sticky (agree|differ)[.] Java / Python: moved",
                    "python": "sticky placed 6 tasks",
                }
                wait_until(lambda: [one for one in seen[stage] if one.all(said[stage])], f"{stage} is said")  # noqa: B023
        group.expect_all_rows_once()
        for instances in seen.values():
            assert [line for one in instances for line in one.all("THREAD DIED")] == []
    assert differing(tmp_path / "recorded", "high-availability") == []
    # While Python was only starting the assignment was kept, which is recorded, too.
    kept = sum(len(one.all("No assignment")) for one in seen["python"])
    assert len(differing(tmp_path / "python", "sticky")) <= kept


def differing(folder: Path, assignor: str) -> list[str]:
    """Ids of the states of which our assignor of the name decides other than what was recorded, after all are taken as they stand."""
    states, decisions = str(folder / "states.jsonl"), str(folder / "decisions.jsonl")
    for command in (["validate", states, decisions], ["plan", states, "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "task_assignor", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, "-m", "task_assignor", "compare", states, decisions, assignor, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    return [line["id"] for line in lines if line.get("differ")]
