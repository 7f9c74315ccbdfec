"""What must hold in a simulated application: for every commit, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from task_assignor.runtime.machines.records import CommitRecord
from tests.runtime.simulated_outputs import check_outputs

if TYPE_CHECKING:
    from tests.runtime.simulation import World

ROWS_PER_BATCH = 10


def check_commit(world: World, record: CommitRecord) -> None:
    """No row of a commit is lost or there twice, and its tasks ran where they were assigned."""
    assert record.number == len(world.commits), "commits are made one after the other, each once"
    for snapshot in record.snapshots.values():
        assert world.work.shared.has_files_of(snapshot), "a snapshot lacks a file"
    for task, commit in record.tasks.items():
        before = world.committed.get(task, ())
        assert commit.batch == len(before), "a task's batches are committed one after the other, each once"
        this = (commit.batch, commit.generation)
        assert (task, *this) in world.work.durable, f"{task}: a power failure may take the files of a commit away"
        assert world.work.files[task, commit.batch, commit.generation] == (*before, this), f"{task}: a state is wrong"
        world.committed[task] = (*before, this)
        owners = next(found for found in world.rebalances if found.generation == commit.generation).clients
        name, tasks = owners[commit.member_id]
        assert (name, task in tasks.active) == (commit.client, True), f"{task} was not assigned to {commit.client}"
        world.work.fed.commit(commit)
        for topic, (start, end) in commit.offsets.items():
            done = sum(
                span[1] - span[0]
                for found in world.commits
                if task in found.tasks
                for name, span in found.tasks[task].offsets.items()
                if name == topic
            )
            assert start == done, f"{task}: rows of {topic} are lost or there twice"
            assert end - start <= ROWS_PER_BATCH


def check_everything_is_done(world: World) -> None:
    """All rows of all sources are in committed batches, and readers of outputs see these."""
    world.storage.mend()
    check_outputs(world.storage, world.committed)
    read: dict[tuple[str, int], int] = {}
    for record in world.commits:
        for task, commit in record.tasks.items():
            for topic, (_, end) in commit.offsets.items():
                read[topic, task.partition] = end
    for topic, ends in {**world.last_ends, "fed": [len(rows) for rows in world.work.fed.rows]}.items():
        for partition, end in enumerate(ends):
            assert read.get((topic, partition), 0) == end
