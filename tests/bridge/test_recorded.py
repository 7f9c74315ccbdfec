"""What a group with racks decided in Java, recorded by the bridge, is what we decide, ties of traffic included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"


def test_by_least_traffic_we_decide_as_java_did() -> None:
    """Two clients, then three; several placements cost the same, of which Kafka's flow finds one."""
    files = [str(RECORDED / name) for name in ("racks-states.jsonl", "racks-decisions.jsonl")]
    command = [sys.executable, "-m", "task_assignor", "compare", *files, "high-availability", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["differ"] for line in lines if line.get("id")] == [False, False]
