"""What the benchmarks of the runtime wrap and leave out is there: they name it by text, which no check of types reads."""

from __future__ import annotations

import os
from importlib import import_module

from benchmarks import parts
from task_assignor.runtime.run_folder.compaction import Compaction


def test_every_function_that_is_measured_is_there() -> None:
    for places in parts._FUNCTIONS.values():
        for place in places:
            module, _, path = place.partition(":")
            found = import_module(f"{parts._RUNTIME}.{module}")
            for name in path.split("."):
                found = getattr(found, name)
            assert callable(found)


def test_what_is_left_out_is_left_out_and_there_again() -> None:
    merge, fsync = Compaction.merge, os.fsync
    with parts.leaving_out("checksums,fsync,merging"):
        assert Compaction.merge is not merge
        assert os.fsync is not fsync
        assert os.environ[parts.WITHOUT] == "checksums,fsync,merging"
    assert Compaction.merge is merge
    assert os.fsync is fsync
