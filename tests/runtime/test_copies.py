"""Run folders that are copied, moved and put back from copies: a run goes on from what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    ClientSpec,
    CommitLogException,
    RuntimeOptions,
    TopicException,
    append_topic,
    read_output,
    write_topic,
)
from tests.runtime.support import application, count_topology, settings, stream


def _rows(number: int) -> pa.Table:
    rows = stream(100, 3, seed=number)
    return rows.set_column(1, "at", pc.add(rows["at"], number * 600_000))


def test_states_of_after_the_copy_are_not_used(tmp_path: Path) -> None:
    """Topics and run were put back from a copy, not what clients have elsewhere: it had batches of the same numbers, and counted."""
    config = settings(state_dir=str(tmp_path / "state"))

    def run(root: Path, number: int, client: str) -> dict[int, int]:
        rows = _rows(number)
        if number:
            append_topic(root / "topics", "left", rows)
        else:
            write_topic(root / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
        application(root, count_topology(), clients=[ClientSpec(client)], config=config).run()
        found = read_output(root / "run", "totals-out").to_pydict()
        return dict(zip(found["key"], found["count"], strict=True))

    root = tmp_path / "now"
    run(root, 0, "one")
    shutil.copytree(root, tmp_path / "copy")
    run(root, 1, "one")
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "copy", root)
    run(root, 2, "another")
    counted = run(root, 3, "one")
    expected = pa.concat_tables([_rows(number) for number in (0, 2, 3)]).group_by("key").aggregate([("at", "count")])
    assert counted == dict(zip(*expected.to_pydict().values(), strict=True))


def test_topics_that_are_older_than_the_run_are_told(tmp_path: Path) -> None:
    """It advised to use another run folder, whatever had happened."""
    write_topic(tmp_path / "topics", "left", _rows(0), partitions=1, key=["key"], timestamp="at")
    shutil.copytree(tmp_path / "topics", tmp_path / "copy")
    append_topic(tmp_path / "topics", "left", _rows(1))
    application(tmp_path, count_topology(), clients=1).run()
    shutil.rmtree(tmp_path / "topics")
    (tmp_path / "copy").rename(tmp_path / "topics")
    with pytest.raises(
        CommitLogException, match=r"offsets 0 to 200 of topic left.* Maybe the topic was put back from an"
    ):
        application(tmp_path, count_topology(), clients=1).run()


@pytest.mark.parametrize("checkpoint_every_commits", [1, 256])
def test_rows_in_the_place_of_lost_ones_are_told(tmp_path: Path, checkpoint_every_commits: int) -> None:
    """The topic was put back from an older copy and appended to: of the new rows as many as were lost were passed over."""
    topics, run = tmp_path / "topics", tmp_path / "run"
    options = RuntimeOptions(checkpoint_every_commits=checkpoint_every_commits)

    def count() -> dict[int, int]:
        application(tmp_path, count_topology(), clients=1, options=options).run()
        found = read_output(run, "totals-out").to_pydict()
        return dict(zip(found["key"], found["count"], strict=True))

    write_topic(topics, "left", _rows(0), partitions=1, key=["key"], timestamp="at")
    shutil.copytree(topics, tmp_path / "copy")
    append_topic(topics, "left", _rows(1))
    counted = count()
    shutil.rmtree(topics)
    shutil.copytree(tmp_path / "copy", topics)
    append_topic(topics, "left", _rows(1))
    assert count() == counted, "the lost rows are there again"
    shutil.rmtree(topics)
    (tmp_path / "copy").rename(topics)
    append_topic(topics, "left", _rows(2))
    append_topic(topics, "left", _rows(3))
    with pytest.raises(
        TopicException, match=r"Topic left, partition 0: other rows are before offset 200 .* passed over"
    ):
        count()
    shutil.rmtree(run)
    expected = pa.concat_tables([_rows(number) for number in (0, 2, 3)]).group_by("key").aggregate([("at", "count")])
    assert count() == dict(zip(*expected.to_pydict().values(), strict=True))
