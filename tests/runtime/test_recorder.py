"""What a run keeps of its events for those who ask at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    CommitLogException,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RunStopping,
)
from task_assignor.runtime.run_folder.manifests import Manifests
from task_assignor.runtime.watching.metrics import Metrics
from task_assignor.runtime.watching.recorder import Recorder
from task_assignor.runtime.watching.run_log import RunLog, read_log
from task_assignor.sdk import TaskId
from tests.runtime.simulated_storage import MemoryStorage


def test_a_run_that_goes_on_for_months_keeps_the_newest_events(tmp_path: Path) -> None:
    """Each rebalance says where all tasks are, so all of them would be hundreds of megabytes."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), 1, [], log.document))
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


def test_a_result_tells_of_its_run_and_of_what_was_left_out(tmp_path: Path) -> None:
    """It counted the batches of all runs in the folder beside its own rows, and half of the records could be late without a word."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), 1, [], log.document))
    for commit, counters in ((8, {"late": 3, "other": 5}), (9, {"late": 1, "bad_records": 1})):
        batches = {TaskId(0, 0): commit, TaskId(0, 1): commit}
        recorder(BatchesCommitted(commit, 1, batches, 10, 2, {}, 0.1, 0, counters=counters))
    recorder.close()
    log.close()
    result = recorder.result("shop", "run", 20)
    assert (result.batches, result.batches_here, result.bad_records, result.late_records) == (20, 4, 1, 4)
    told = "20 rows read, 4 rows written in 0 ms, 1 bad record left out, 4 late records left out; 4 batches committed"
    assert told in str(result)


def test_a_result_says_that_a_changed_processor_has_seen_nothing(tmp_path: Path) -> None:
    """Who changes a cell and runs it again in the same folder finds the rows of the old one there."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), 1, [], log.document))
    hint = "No rows were new (a processor that was changed sees those of before in another run_dir only)."
    assert hint in str(recorder.result("shop", "run", 7))
    assert hint not in str(recorder.result("shop", "run", 0))
    in_kafka = str(recorder.result("shop", "run", 7, "the topics of kafka:9092"))
    assert (
        "sees those of before under another application.id only). Outputs are in the topics of kafka:9092." in in_kafka
    )
    recorder(RunStopping("enough"))
    assert hint not in str(recorder.result("shop", "run", 7))
    recorder.close()
    log.close()


def test_a_result_tells_what_was_in_kafka_already(tmp_path: Path) -> None:
    """Where the folder of the run was lost it had so many rows read and none written, without a word."""
    log = RunLog(MemoryStorage(), "shop", 1)
    recorder = Recorder(None, None, Metrics("shop"), log, Manifests(str(tmp_path), 1, [], log.document))
    tasks = TaskId(0, 0), TaskId(0, 1)
    recorder(BatchesCommitted(2, 1, dict.fromkeys(tasks, 0), 30, 2, {}, 0.1, 0, found={tasks[1]: 20}))
    recorder.close()
    log.close()
    result = recorder.result("shop", "run", 2)
    assert (result.rows_in, result.rows_out, result.batches_found, result.rows_found) == (30, 2, 1, 20)
    assert ". What was made of 20 rows of these was in Kafka already (1 batch): it is not written again" in str(result)


@pytest.mark.parametrize("error", [ValueError("no room"), CommitLogException("no room"), KeyboardInterrupt("no room")])
def test_whatever_ends_a_run_is_in_its_log_and_counted_once(tmp_path: Path, error: BaseException) -> None:
    """A listener's own error, and one that came when all rows were processed, were neither there nor in the metrics."""
    storage = MemoryStorage()
    log = RunLog(storage, "shop", 1)
    told: list[RunEvent] = []
    lines: list[str] = []
    metrics = Metrics("shop")
    recorder = Recorder(told.append, lines.append, metrics, log, Manifests(str(tmp_path), 1, [], log.document))
    with pytest.raises(type(error)), recorder.telling_failures(), recorder.telling_failures():
        raise error
    recorder.close()
    log.close()
    (failed,) = (line["message"] for line in read_log(storage) if line["event"] == "RunFailed")
    assert "no room" in failed
    assert metrics.to_json()["failed-runs-total"] == 1
    # Those who may have raised it are not asked again.
    is_ours = isinstance(error, CommitLogException)
    assert (len(told), len(lines)) == ((1, 2) if is_ours else (0, 0))
