"""What a run keeps of its events for those who ask at its end."""

from __future__ import annotations

from pathlib import Path

from task_assignor.runtime import Rebalanced, ResultRefused, RunStopping
from task_assignor.runtime.manifests import Manifests
from task_assignor.runtime.metrics import Metrics
from task_assignor.runtime.recorder import Recorder
from task_assignor.runtime.run_log import RunLog
from task_assignor.sdk import TaskId
from tests.runtime.simulated_storage import MemoryStorage


def test_a_run_that_goes_on_for_months_keeps_the_newest_events(tmp_path: Path) -> None:
    """Each rebalance says where all tasks are, so all of them would be hundreds of megabytes."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), [], log.document))
    for generation in range(1, 2_501):
        recorder(Rebalanced(generation, "client a joined", {}))
    recorder(ResultRefused("a", TaskId(0, 0), 3, 1, "it was ordered again"))
    recorder.close()
    log.close()
    result = recorder.result("shop", str(tmp_path), 0)
    assert [event.generation for event in result.rebalances] == list(range(1_501, 2_501))
    assert result.counts == {"Rebalanced": 2_500, "ResultRefused": 1}
    assert "2,500 rebalances, 1 late answer refused." in str(result)
    # A prompt and a notebook's cell show this, and not all the events.
    assert repr(result) == f"<RunResult of {result}>"


def test_a_result_says_that_a_changed_processor_has_seen_nothing(tmp_path: Path) -> None:
    """Who changes a cell and runs it again in the same folder finds the rows of the old one there."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), [], log.document))
    hint = "No rows were new; for a processor that was changed those of before are, in another run_dir."
    assert hint in str(recorder.result("shop", "run", 7))
    assert hint not in str(recorder.result("shop", "run", 0))
    recorder(RunStopping("enough"))
    assert hint not in str(recorder.result("shop", "run", 7))
    recorder.close()
    log.close()
