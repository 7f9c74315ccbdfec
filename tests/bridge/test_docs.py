"""Follows docs/bridge.md, step by step, with a real application on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from task_assignor.bridge import jar_path
from task_assignor.bridge.keys import KEYS
from task_assignor.sdk.properties import parse_properties
from tests.bridge.streams import ROOT, StreamsGroup
from tests.kafka.broker import KafkaCluster
from tests.kafka.fixtures import Unique, wait_until

TEXT = (ROOT / "docs" / "bridge.md").read_text(encoding="utf-8")
SAID = {
    "2. Record a Java application": "",
    "3. Let Python look on": r"Shadow: Java and sticky (agree|differ)\. Java / Python: moved \d+ / \d+, .*lag_to_restore",
    "4. Let Python decide": r"sticky placed 12 tasks and 12 standbys on 2 clients in \d+ ms\.",
}
"""Step -> what the log of a leader then has."""


def step(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[tuple[str, str]]:
    """Command and what it prints, of all console blocks."""
    parts = [part for block in blocks(text, "console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_table_of_settings_is_complete() -> None:
    for name, key in KEYS.items():
        assert f"| `{name}` | {'' if key.default is None else f'`{key.default}`'} | {key.doc} |" in TEXT


def test_the_jar_is_where_the_first_step_says(tmp_path: Path) -> None:
    (_, _), (command, output) = commands(step("1. Install, and put the jar on the class path"))
    assert run(command, tmp_path).strip() == str(jar_path())
    assert str(jar_path()).endswith(output.strip().removeprefix("..."))


@pytest.mark.kafka
@pytest.mark.xdist_group("bridge")
def test_the_steps_do_what_they_say(kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str) -> None:
    name = unique("docs")
    settings = {"timeout.ms": 60_000, "retry.ms": 1_000}
    prefixed = {f"python.task.assignor.{key}": value for key, value in settings.items()}
    with StreamsGroup(
        kafka_cluster, name, tmp_path, java, tasks=12, settings=prefixed, current_folder=tmp_path
    ) as group:
        for heading, said in SAID.items():
            text = step(heading)
            (block,) = blocks(text, "properties")
            own = {entry.key: entry.value for entry in parse_properties(block)}
            lines = [f"bootstrap.servers={kafka_cluster.bootstrap_servers}", f"application.id={name}", block]
            (tmp_path / "app.properties").write_text("\n".join(lines))
            for instance in ("i1", "i2"):
                if instance in group.instances:
                    group.instances[instance].stop()
                    group.feed(12)
                group.start(instance, own)
                if len(group.running()) == 2:
                    group.wait_until_settled()
            group.feed(12)
            group.expect_all_rows_once()
            group.instances["i1"].tell("add")
            if said:
                wait_until(lambda said=said: [1 for one in group.running() if one.all(said)], said)  # type: ignore[misc]
            else:
                wait_until((tmp_path / "recordings" / "decisions.jsonl").exists, "something is recorded")
            group.wait_until_settled()
            for command, output in commands(text):
                printed = run(command, tmp_path)
                assert output.splitlines() == printed.splitlines()[: len(output.splitlines())]
        group.expect_all_rows_once()
        group.expect_no_thread_lost()


@pytest.mark.kafka
@pytest.mark.xdist_group("bridge")
def test_one_python_serves_an_application_by_its_address(
    kafka_cluster: KafkaCluster, unique: Unique, tmp_path: Path, java: str
) -> None:
    ((command, _),) = commands(step("One Python for many applications"))
    words = command.replace("/run/", f"{tmp_path}/").split()
    server = subprocess.Popen([sys.executable, "-m", "task_assignor", *words[1:]], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        key, _, address = server.stdout.readline().strip().partition("=")
        settings = {"task.assignor.class": "taskassignor.PythonTaskAssignor", key: address}
        with StreamsGroup(kafka_cluster, unique("served"), tmp_path, java, settings=settings) as group:
            only = group.start("i1")
            group.wait_until_settled()
            wait_until(lambda: only.all("sticky placed 6 tasks"), "Python decides")
            assert only.children() == []
    finally:
        server.terminate()
        assert server.wait(60) == 0
