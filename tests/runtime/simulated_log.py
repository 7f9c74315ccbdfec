"""The commit log of a simulated application: the real one, in a storage that fails."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from task_assignor.runtime.errors import CommitLogException
from task_assignor.runtime.machines.checkpoint import SavedProgress
from task_assignor.runtime.machines.coordinator.machine import Coordinator
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.coordinator.repartitions import Repartitions
from task_assignor.runtime.machines.coordinator.values import Abandoned, Finished
from task_assignor.runtime.machines.records import CommitRecord
from task_assignor.runtime.machines.topic_time import Writers
from task_assignor.runtime.run_folder.checkpoints import commit_name
from task_assignor.runtime.run_folder.commits import CommitLog
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.storage import as_document
from task_assignor.sdk import StreamsException
from tests.runtime.simulated_checks import check_commit
from tests.runtime.simulated_outputs import Merging, check_outputs
from tests.runtime.simulated_work import APPLICATION, RUN

if TYPE_CHECKING:
    from tests.runtime.simulation import World


def open_log(world: World) -> CommitLog:
    """The log, without what is real in files of outputs."""
    upkeep = Upkeep(retention_ms=500, now_ms=lambda: world.now_ms)
    log = CommitLog(RUN, upkeep, world.storage)
    log._checkpoints._compaction = Merging(world.storage, upkeep)
    return log


def new_coordinator(world: World) -> Coordinator:
    """As an application does it: open an epoch, go on from the newest checkpoint and what follows it."""
    reads = (("left", "right"), ("alone",), ("fed",))
    sources = {task: reads[task.subtopology] for task in world.tasks}
    world.work.last_ends = world.last_ends
    # What was read is there, however late somebody looks.
    for topic, reached in world.work.reached.items():
        world.ends[topic] = list(map(max, world.ends[topic], reached))
    log = open_log(world)
    opening = log.open_epoch(APPLICATION, "a coordinator", world.now_ms)
    progress = Progress.after(
        *log.opened(),
        sources,
        world.ends,
        repartitions=Repartitions(
            {"fed": world.partitions["fed"]},
            {"fed": (None, 0)},
            timed={"fed": Writers(sum(task.subtopology == 0 for task in world.tasks))},
            are_awaited=not world.is_growing,
            idle_ms=world.options.max_task_idle_ms,
            news_every_ms=300 if world.is_growing else None,
        ),
    )
    world.commits.append(opening)
    world.log = log
    assert log.last == opening.number == len(world.commits) - 1, "records were lost"
    world.permits.begin()
    return Coordinator(
        RUN,
        world.leader,
        progress,
        world.options,
        world.enough_clients,
        opening,
        world.now_ms,
        is_continuous=world.is_growing,
        needs_permits=world.permits.are_needed,
    )


def store(world: World, record: CommitRecord) -> bool:
    """Append a record to the log; False: nothing that follows is carried out."""
    dies, world.dies_at_commit = world.dies_at_commit, False
    if dies and world.random.random() < 0.5:
        # It never reached the disk, or not as a whole: what it said, nobody has heard.
        if world.random.random() < 0.5:
            document = as_document(record)
            # Also where the disk is full: that is how it is torn.
            world.storage.objects[commit_name(record.number)] = document[: world.random.randrange(len(document) - 1)]
        world.restart_coordinator(is_dead=True)
        return False
    try:
        world.log.append(record)
    except (OSError, StreamsException) as error:
        world.tell(Abandoned(world.now_ms))
        world.finished.append(Finished(CommitLogException(str(error))))
        return False
    take(world, record)
    if dies:
        world.restart_coordinator()
    return not dies


def take(world: World, record: CommitRecord) -> None:
    """A record counts."""
    if record.rebalance is not None:
        assert record.rebalance.generation not in {found.generation for found in world.rebalances}
        world.rebalances.append(record.rebalance)
    check_commit(world, record)
    world.markers.take(record)
    world.commits.append(record)


def write_checkpoint(world: World, log: CommitLog, number: int, state: SavedProgress) -> None:
    """As the server does it."""
    # It saves time and space later, nothing more.
    with suppress(OSError, StreamsException):
        log.write_checkpoint(number, state)
    if not world.storage.damaged:
        check_outputs(world.storage, world.committed, world.markers.held)
