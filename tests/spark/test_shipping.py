"""How this package gets to processes of Spark that lack it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyspark import cloudpickle

from task_assignor.spark.source import TaskAssignorSource
from tests.spark.cluster import bare_python

__all__ = ["bare_python"]
pytestmark = pytest.mark.spark

LOADS = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(type(source).__name__, source.options["topic"])
"""


def test_the_source_of_a_stream_finds_the_package_where_nobody_has_sent_it(bare_python: Path) -> None:
    """Spark plans streams in such a process, in the driver; it has batches planned where files that were sent are found."""
    source = cloudpickle.dumps(TaskAssignorSource({"topics_root": "topics", "topic": "shown"}))

    done = subprocess.run([str(bare_python), "-E", "-c", LOADS], input=source, capture_output=True, check=False)

    assert (done.stdout.decode(), done.stderr.decode()) == ("TaskAssignorSource shown\n", "")
