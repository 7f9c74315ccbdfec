"""How this package gets to processes of Spark that lack it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from task_assignor.spark.session import _own_module_path
from task_assignor.spark.shipping import ship_package
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
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    source = dumps(TaskAssignorSource({"topics_root": "topics", "topic": "shown"}))

    done = subprocess.run([str(bare_python), "-E", "-c", LOADS], input=source, capture_output=True, check=False)

    assert (done.stdout.decode(), done.stderr.decode()) == ("TaskAssignorSource shown\n", "")


@pytest.mark.parametrize(
    ("master", "python", "is_sent"),
    [
        ("local[2,1000]", sys.executable, False),
        ("local[2,1000]", str(Path(sys.executable).with_name("python")), False),
        ("local[2,1000]", "/bin/sh", True),
        ("local[2,1000]", "no-such-python", True),
        ("spark://host:7077", sys.executable, True),
    ],
)
def test_local_mode_is_sent_the_package_only_if_it_runs_another_python(
    tmp_path: Path, master: str, python: str, is_sent: bool
) -> None:
    sent: list[str] = []
    application = f"{master} {python} {tmp_path}"
    context = SimpleNamespace(
        master=master, pythonExec=python, applicationId=application, _temp_dir=str(tmp_path), addPyFile=sent.append
    )
    session: Any = SimpleNamespace(sparkContext=context)

    for _ in range(2):
        ship_package(session)

    assert len(sent) == is_sent


def test_workers_of_local_mode_look_into_the_zip_files_that_this_process_looks_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders alone were told, so modules of a zip file that a script had put on its path were missing there."""
    modules, absent = tmp_path / "modules.zip", tmp_path / "absent.zip"
    with zipfile.ZipFile(modules, "w") as file:
        file.writestr("zipped.py", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(modules), str(absent)])

    assert _own_module_path() == [str(tmp_path), str(modules)]
