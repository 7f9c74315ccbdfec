"""Whole runs in an object store, with topics and results there: clients and driver are killed, the result is the same."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    CommitLog,
    CommitLogException,
    LocalProcessLauncher,
    RunEvent,
    StreamsApplication,
    Topic,
    append_topic,
    committed_files,
    committed_offsets,
    read_output,
)
from task_assignor.runtime.storage import storage_at
from task_assignor.sdk import StreamsException
from tests.runtime.support import QUICK, Watch, in_order, join_topology, plain_join, settings, stream, write_streams

pytestmark = pytest.mark.s3
OPTIONS = attrs.evolve(QUICK, max_batch_rows=20)
"""Some partition has 175 of 700 rows at least: 9 batches of one task, and so 9 commits, however many tasks share one."""


def _application(place: str) -> StreamsApplication:
    return StreamsApplication(
        join_topology(),
        settings(),
        topics_root=f"{place}/topics",
        run_dir=f"{place}/run",
        clients=2,
        # They see the credentials in the environment as it is now; a fork server has that of the first test.
        launcher=LocalProcessLauncher(start_method="spawn"),
        options=OPTIONS,
    )


class KillOneClient(Watch):
    """Kills the client that joined first -9, after the third commit."""

    def __init__(self) -> None:
        super().__init__()
        self.killed = 0

    def __call__(self, event: RunEvent) -> None:
        super().__call__(event)
        if not self.killed and len(self.of(BatchesCommitted)) == 3:
            self.killed = self.of(ClientJoined)[0].pid
            os.kill(self.killed, signal.SIGKILL)


class Die:
    """Kills its own process -9, after so many commits."""

    def __init__(self, commits: int) -> None:
        self._left = commits

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, BatchesCommitted):
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def _run_and_die(place: str, commits: int) -> None:
    _application(place).run(Die(commits))


@pytest.mark.thorough
def test_a_run_is_exact_whoever_is_killed(s3_folder: Callable[[], str]) -> None:
    place = s3_folder()
    left, right = write_streams(f"{place}/topics", rows=700, keys=40)
    driver = multiprocessing.get_context("spawn").Process(target=_run_and_die, args=(place, 4))
    driver.start()
    driver.join(300)
    assert driver.exitcode == -signal.SIGKILL
    assert 0 < read_output(f"{place}/run", "joined").num_rows < plain_join(left, right).num_rows
    watch = KillOneClient()
    result = _application(place).run(watch)
    assert watch.killed
    assert result.run_dir == f"{place}/run"
    assert in_order(plain_join(left, right)).equals(in_order(result.table("joined")))
    assert all(file.startswith(f"{place}/run/output/joined/") for file in committed_files(f"{place}/run", "joined"))
    # The topic grows, and the run goes on.
    more = stream(100, 40, seed=3)
    more = more.set_column(1, "at", pc.add(more.column("at"), 600_000))
    append_topic(f"{place}/topics", "left", more)
    assert _application(place).run().rows_in == 100
    assert Topic.open(f"{place}/topics", "left").version == 1


def test_a_coordinator_that_was_replaced_can_commit_nothing(s3_folder: Callable[[], str]) -> None:
    """There are no locks in an object store; the next number of the log is taken."""
    run = f"{s3_folder()}/run"
    old, new = CommitLog(run), CommitLog(run)
    first = old.open_epoch("app", "the old one", 0)
    second = new.open_epoch("app", "the new one", 0)
    assert second.epoch == first.epoch + 1
    with pytest.raises(CommitLogException, match=r"made by somebody else \(the new one\)"):
        old.append(msgspec.structs.replace(first, number=first.number + 1, opened_by=""))


def test_damage_in_a_bucket_is_told(s3_folder: Callable[[], str]) -> None:
    place = s3_folder()
    write_streams(f"{place}/topics", rows=100, keys=5)
    storage = storage_at("topics", f"{place}/topics")
    name = next(name for name in storage.list_below("left") if name.endswith(".arrow"))
    storage.put(name, storage.open(name).to_pybytes()[:-7])
    with pytest.raises(Exception, match=rf"topic file of left.*{place}/topics/{name}.*bytes, but"):
        _application(place).run()


def test_what_a_store_says_reaches_the_user(
    s3_folder: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommitLogException, match="There is no run in s3://"):
        read_output(f"{s3_folder()}/nowhere", "joined")
    write_streams(tmp_path / "topics", rows=100, keys=5)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for places in ({"run_dir": s3_folder()}, {"topics_root": s3_folder()}):
        given: dict[str, Any] = {"topics_root": tmp_path / "topics", "run_dir": tmp_path / "run", **places}
        with pytest.raises(
            StreamsException, match=r"(403 Forbidden|SignatureDoesNotMatch)(.|\n)*\. Maybe this process has no keys"
        ):
            StreamsApplication(join_topology(), settings(), **given).run()


def test_keys_that_are_withdrawn_during_a_run_are_told(
    s3_folder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to run again "when the disk can be written"."""
    from obstore.exceptions import PermissionDeniedError

    def refused(*_: object, **__: object) -> None:
        raise PermissionDeniedError("403")

    place = s3_folder()
    left, right = write_streams(f"{place}/topics", rows=300, keys=5)
    message = (
        r"^Commit \d+ cannot be made: .*403.*\. Maybe this process has no keys for the store, or they have expired"
    )
    with monkeypatch.context() as withdrawn:

        def watch(event: RunEvent) -> None:
            if isinstance(event, BatchesCommitted):
                withdrawn.setattr("obstore.put", refused)

        with pytest.raises(CommitLogException, match=message):
            _application(place).run(watch)
    _application(place).run()
    assert in_order(read_output(f"{place}/run", "joined")).equals(in_order(plain_join(left, right)))


def test_who_reads_a_run_that_may_not_be_listed_is_told(
    s3_folder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was what the library says, with its traceback."""
    from obstore.exceptions import PermissionDeniedError

    place = s3_folder()
    write_streams(f"{place}/topics", rows=50, keys=5)
    _application(place).run()

    def forbidden(*_: object) -> None:
        raise PermissionDeniedError("403")

    monkeypatch.setattr("obstore.list_with_delimiter", forbidden)
    for read in (
        lambda: read_output(f"{place}/run", "joined"),
        lambda: list(CommitLog(f"{place}/run").records()),
        lambda: CommitLog(f"{place}/run").last,
        lambda: committed_offsets(f"{place}/run", "left"),
    ):
        with pytest.raises(
            CommitLogException,
            match=rf"The commits in {place}/run cannot be read: .*403.*Maybe this process has no keys",
        ):
            read()
