"""Damage to any file of a run or a topic is harmless or is told; it never gives other rows."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    CommitLog,
    CommitLogException,
    KeyValueStore,
    LaunchPlan,
    LocalProcessLauncher,
    RuntimeOptions,
    Topic,
    Topology,
    WindowStore,
    append_topic,
    committed_files,
    read_output,
    write_topic,
)
from task_assignor.runtime.machines.client.task import Restore
from task_assignor.runtime.machines.coordinator.progress import Progress
from task_assignor.runtime.machines.protocol import START
from task_assignor.runtime.run_folder.layout import APPLICATION, RunLayout, read_application
from task_assignor.runtime.storage.content import as_document, corrupt
from task_assignor.runtime.storage.local import LocalStorage
from task_assignor.runtime.tasks.task import StreamTask, TaskEnvironment
from task_assignor.sdk import StreamsException, TaskId
from tests.budget import examples
from tests.runtime.support import (
    QUICK,
    application,
    commit_file,
    count_topology,
    description,
    in_order,
    join_topology,
    settings,
    stream,
    write_streams,
)


def _topology() -> Topology:
    return Topology([*join_topology().sub_topologies, *count_topology("more").sub_topologies])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with topics and a finished run with outputs, changelogs, snapshots of two sub-topologies."""
    root = tmp_path_factory.mktemp("finished")
    write_streams(root / "topics", rows=300, keys=20, partitions=2)
    write_topic(root / "topics", "more", stream(150, 7, seed=3), partitions=2, key=["key"], timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=60, snapshot_changelog_bytes=1, checkpoint_every_commits=6)
    application(root, _topology(), clients=1, options=options).run()
    # The changelogs of these have no snapshot after them, so they count.
    for name, seed in (("left", 4), ("right", 5), ("more", 6)):
        rows = stream(150, 7, seed=seed)
        later = rows.set_column(1, "at", pc.add(rows["at"], 600_000))
        append_topic(root / "topics", name, later)
    application(root, _topology(), clients=1, options=attrs.evolve(options, snapshot_changelog_bytes=1 << 30)).run()
    # How many batches share a commit is chance, so also how many records follow the last checkpoint: two do now.
    log = CommitLog(root / "run")
    for name in ("one", "another"):
        log.open_epoch("test", name, 0)
    return root


def _progress(log: CommitLog, topics: Mapping[str, Topic]) -> Progress:
    sources = {
        TaskId(sub, partition): of for sub, of in enumerate((("left", "right"), ("more",))) for partition in (0, 1)
    }
    checkpoint = log.checkpoint()
    return Progress.after(
        checkpoint,
        log.records_after(checkpoint),
        sources,
        {name: topic.end_offsets() for name, topic in topics.items()},
    )


def _use(root: Path) -> dict[str, pa.Table]:
    """Everything that can be read of the folder, by the ways that readers, coordinator and clients have."""
    found: dict[str, pa.Table] = {}
    topics = {name: Topic.open(root / "topics", name) for name in ("left", "right", "more")}
    for name, topic in topics.items():
        for partition, end in enumerate(topic.end_offsets()):
            found[f"{name} {partition}"] = topic.read(partition, 0, end)
    folder = application(root, _topology(), clients=1)._folder()
    with folder.alone():
        run = folder.claim({})
        log = CommitLog(root / "run")
        log.open_epoch("test", "the test", 0)
        progress = _progress(log, topics)
        found["rebalances"] = pa.table({"generation": [record.generation for record in log.rebalances()]})
        for state in (root / "run" / "clients" / "client-1", root / "nowhere"):
            environment = TaskEnvironment("test", run.run_id, root / "run", state, topics)
            for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1)):
                restored = StreamTask(task, _topology().of_task(task), environment)
                restored.restore(Restore(START, progress.recovery(task), progress.position(task)))
                for name, store in restored._state.stores.items():
                    assert isinstance(store, (KeyValueStore, WindowStore))
                    rows = store.all() if isinstance(store, KeyValueStore) else store.rows
                    assert rows is not None
                    table = in_order(rows)
                    assert table.equals(found.setdefault(f"{task} {name}", table)), "snapshot and changelog differ"
                restored.close()
        for output in ("joined", "totals-out"):
            found[output] = read_output(root / "run", output)
    return found


def _counting(root: Path) -> set[str]:
    """The files of outputs and of the history that readers read, and the changelogs that a client without any state reads."""
    run = root / "run"
    log = CommitLog(run)
    progress = _progress(log, {name: Topic.open(root / "topics", name) for name in ("left", "right", "more")})
    found = {file for output in ("joined", "totals-out") for file in committed_files(run, output)}
    found.update(str(run / name) for name in log.checkpoint().history)
    for task in progress.tasks:
        for change in progress.recovery(task).unsaved:
            found.update(str(run / file.path) for file in change.changelogs.values())
    return found


def _outcome(root: Path) -> dict[str, pa.Table] | StreamsException:
    try:
        return _use(root)
    except StreamsException as error:
        return error


@contextmanager
def _copy(finished: Path, root: Path) -> Iterator[Path]:
    shutil.copytree(finished, root / "copy")
    yield root / "copy"
    shutil.rmtree(root / "copy")


def _damage(path: Path, chance: random.Random) -> str:
    whole = path.read_bytes()
    place = chance.randrange(len(whole))
    match chance.choice(["flip", "flip", "flip", "cut", "zeros", "delete"]):
        case "flip":
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
            return f"a bit of byte {place} is flipped"
        case "cut":
            path.write_bytes(whole[:place])
            return f"it is cut off at {place}"
        case "zeros":
            path.write_bytes(whole[:place] + bytes(len(whole) - place))
            return "nothing" if not any(whole[place:]) else f"it is zero from {place} on"
        case _:
            path.unlink()
            return "it is deleted"


def _check(finished: Path, tmp_path: Path, rounds: int, seed: int, caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    caplog.set_level(logging.WARNING)
    chance = random.Random(seed)
    expected = _use(finished)
    by_folder: dict[str, list[Path]] = {}
    counting = _counting(finished)
    for path in sorted(finished.rglob("*")):
        if path.is_file() and path.stat().st_size:
            parts = path.relative_to(finished).parts
            if parts[:2] in (("run", "log"), ("run", "states")):
                continue  # for people alone: nothing is computed of them
            kind = "/".join(parts[:2]) if parts[0] == "run" else parts[0]
            # How many of the outputs' files are merged by now is chance, and how many changelogs are in snapshots.
            if kind in ("run/output", "run/changelog", "run/history") and str(path) not in counting:
                kind += " that nobody reads"
            by_folder.setdefault(kind, []).append(path)
    assert {
        "topics",
        "run/commits",
        "run/output",
        "run/changelog",
        "run/clients",
        "run/checkpoints",
        "run/history",
        "run/snapshots",
    } <= set(by_folder)
    told = dict.fromkeys(by_folder, 0)
    last_record = commit_file(finished / "run", CommitLog(finished / "run").last)
    for number in range(rounds):
        kind = sorted(by_folder)[number % len(by_folder)]
        original = chance.choice(by_folder[kind])
        with _copy(finished, tmp_path) as root:
            parts = original.relative_to(finished).parts
            damaged = root.joinpath(*parts)
            what = f"{damaged}: {_damage(damaged, chance)}"
            caplog.clear()
            found = _outcome(root)
            if isinstance(found, StreamsException):
                error = found
                told[kind] += 1
                assert kind not in ("run/clients", "run/snapshots"), f"{what}: one can be done without, but {error}"
                names = {damaged.name, damaged.parent.name} | ({f"{parts[1]!r}"} if kind == "topics" else set())
                assert any(name in str(error) for name in names), f"{what}: {error} does not name it"
                continue
            if original == last_record:
                # Its batch was never acknowledged, and is done anew.
                assert "cut off while it was being written" in caplog.text or not damaged.exists(), what
                continue
            for name, table in expected.items():
                assert table.equals(found[name]), f"{what}: {name} differs and nobody says so"
    return told


def test_any_damage_is_harmless_or_told(finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = _check(finished, tmp_path, rounds=examples(45), seed=1, caplog=caplog)
    for kind in ("topics", "run/history", "run/output", "run/changelog"):
        assert told[kind] > 0, kind


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_of_thousands_of_damages_is_harmless_or_told(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    _check(finished, tmp_path, rounds=2_000, seed=seed, caplog=caplog)


class Elsewhere(LocalProcessLauncher):
    """Its clients see another folder under the name of the run's."""

    def start(self, plan: LaunchPlan) -> None:
        bootstraps = [attrs.evolve(found, run_dir=f"{found.run_dir}-of-{found.spec.name}") for found in plan.bootstraps]
        super().start(attrs.evolve(plan, bootstraps=tuple(bootstraps)))


def test_a_run_folder_that_is_not_shared_is_an_error(tmp_path: Path) -> None:
    """It ended "ok", and no row existed."""
    write_streams(tmp_path / "topics", rows=200, keys=10)
    app = application(tmp_path, join_topology(), clients=2, launcher=Elsewhere(start_method="forkserver"))
    with pytest.raises(CommitLogException) as caught:
        app.run()
    for part in (
        "Batch 0 of task ",
        "the client 'client-",
        "sees nothing there",
        "run_dir must be on storage that",
    ):
        assert part in str(caught.value)
    assert not any(record.tasks for record in CommitLog(tmp_path / "run").records())


def test_a_run_goes_on_after_a_torn_commit_record(tmp_path: Path) -> None:
    write_streams(tmp_path / "topics", rows=200, keys=10, partitions=2)
    app = application(tmp_path, join_topology(), clients=1)
    app.run()
    expected = in_order(read_output(tmp_path / "run", "joined"))
    *_, record = CommitLog(tmp_path / "run").records()
    assert record.tasks, "the last record is one of batches"
    last = commit_file(tmp_path / "run", record.number)
    last.write_bytes(last.read_bytes()[:-100])
    result = application(tmp_path, join_topology(), clients=1).run()
    assert result.rows_in > 0, "they are done anew"
    assert in_order(result.table("joined")).equals(expected)
    assert (tmp_path / "run" / "commits" / "torn" / f"{record.number:012d}.json").exists()


def test_a_commit_record_that_is_torn_after_a_checkpoint_of_it_is_of_no_use_to_anybody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was set aside as one that nobody had been told of; then it was missing, in this run and in all others."""
    write_streams(tmp_path / "topics", rows=200, keys=10, partitions=2)
    options = RuntimeOptions(checkpoint_every_commits=1)
    application(tmp_path, join_topology(), clients=1, options=options).run()
    expected = in_order(read_output(tmp_path / "run", "joined"))
    log = CommitLog(tmp_path / "run")
    records = list(log.records())
    assert log.checkpoint().number == records[-1].number
    last = commit_file(tmp_path / "run", records[-1].number)
    last.write_bytes(last.read_bytes()[:-100])
    for _ in range(2):
        result = application(tmp_path, join_topology(), clients=1, options=options).run()
        assert in_order(result.table("joined")).equals(expected)
    assert result.rows_in == 0
    assert list(CommitLog(tmp_path / "run").records())[: len(records)] == records
    assert not caplog.records


def test_a_damaged_topic_is_an_error_before_anything_starts(finished: Path, tmp_path: Path) -> None:
    """A topic partition without its only file gave 234 of 1 000 rows."""
    with _copy(finished, tmp_path) as root:
        path = min((root / "topics" / "more" / "0").iterdir())
        path.unlink()
        shutil.rmtree(root / "run")
        with pytest.raises(
            StreamsException, match=rf"topic file of more, partition 0, offset \d+ .*{path.name} \(it is missing"
        ):
            application(root, _topology(), clients=1).run()


def test_the_description_of_a_run_is_of_its_version(finished: Path, tmp_path: Path) -> None:
    with _copy(finished, tmp_path) as root:
        layout = RunLayout(root / "run")
        layout.storage.put(APPLICATION, b'{"formatVersion":1,"applicationId":"test","outputs":{}}\n')
        with pytest.raises(CommitLogException, match=r"application\.json"):
            read_application(layout)


def test_files_in_each_others_place_are_told_or_not_used(finished: Path, tmp_path: Path) -> None:
    """Their checksums are right, but they are other files."""
    expected = _use(finished)
    with _copy(finished, tmp_path) as root:
        log = CommitLog(root / "run")
        last = log.last
        shutil.copy(commit_file(root / "run", last), commit_file(root / "run", last - 1))
        with pytest.raises(
            CommitLogException, match=rf"record {last - 1} cannot be read: .*it is the record of commit {last}"
        ):
            _use(root)
    with _copy(finished, tmp_path) as root:
        shutil.copy(description(root / "topics", "left", 1), description(root / "topics", "right", 1))
        with pytest.raises(StreamsException, match=r"topic 'right' cannot be read: .*it describes the topic 'left'"):
            _use(root)
    with _copy(finished, tmp_path) as root:
        state = root / "run" / "clients" / "client-1" / "test"
        shutil.rmtree(state / "0_0")
        shutil.copytree(state / "0_1", state / "0_0")
        found = _use(root)
        assert all(table.equals(found[name]) for name, table in expected.items())
    with _copy(finished, tmp_path) as root:
        one, other = map(Path, sorted(committed_files(root / "run", "joined"))[:2])
        shutil.copy(one, other)
        with pytest.raises(StreamsException, match=rf"output file of joined.*{other.name}"):
            _use(root)


@pytest.mark.parametrize("lost", ["application.json", "application.json/~object"])
def test_commits_without_the_description_of_their_run_are_nobodys(finished: Path, tmp_path: Path, lost: str) -> None:
    """Another window, another application: whatever came next went on with them."""
    with _copy(finished, tmp_path) as root:
        path = root / "run" / lost
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        other = application(root, _topology(), clients=1, config=settings(application_id="another"))
        with pytest.raises(
            CommitLogException, match=r"nothing says what run they are of: .*application\.json is missing"
        ):
            other.run()


def test_a_checkpoint_without_its_commit_is_told(finished: Path, tmp_path: Path) -> None:
    """It was told as a second coordinator."""
    with _copy(finished, tmp_path) as root:
        shutil.rmtree(root / "run" / "commits")
        with pytest.raises(CommitLogException, match=r"a checkpoint of commit \d+, but not the commit: .* is missing"):
            application(root, _topology(), clients=1).run()


@pytest.mark.parametrize(
    ("pattern", "which", "told"),
    [
        # Who is not root is told of the folder: whether there is a run in it cannot be seen.
        ("run/application.json", 0, r"(The description of the run|The run folder)"),
        ("run/checkpoints/*.json", -1, "The checkpoint"),
        ("run/commits/*.json", -1, r"The commit record \d+"),
        ("run/commits/*.json", -2, r"The commit record \d+"),
        ("run/history/*", None, "A file of the history"),
        ("topics/left/versions/*.json", -1, "The description of topic 'left'"),
    ],
)
def test_a_document_that_this_user_may_not_read_is_not_called_damaged(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, which: int | None, told: str
) -> None:
    """To restore or to delete it was the advice, and a checkpoint was passed over as damaged."""
    root = tmp_path / "root"
    shutil.copytree(finished, root)
    places = sorted(root.glob(pattern))
    # Which of the history are still read depends on when they were merged.
    hidden = places if which is None else [places[which]]
    for place in hidden:
        place.chmod(0)
    opened = LocalStorage.open

    def may_read(self: LocalStorage, name: str, start: int = 0, end: int | None = None) -> pa.Buffer:
        # Root may read all files.
        if (file := Path(self.locate(name))).exists() and not file.stat().st_mode & 0o400:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return opened(self, name, start, end)

    monkeypatch.setattr(LocalStorage, "open", may_read)
    error = _outcome(root)
    for place in hidden:
        place.chmod(0o700)
    assert isinstance(error, StreamsException)
    advice = r"Maybe let this user read (it\.|and write it, or use another run_dir\.)"
    assert re.fullmatch(rf"{told}( \S+)? cannot be (read|used).*Permission denied.*{advice}", str(error))
    assert any(str(place) in str(error) for place in hidden)


@pytest.mark.parametrize(
    ("pattern", "which", "told"),
    [
        ("run/application.json", 0, "The description of the run"),
        ("run/checkpoints/*.json", -1, "The checkpoint"),
        ("run/commits/*.json", -1, r"The commit record \d+"),
        ("run/commits/*.json", -2, r"The commit record \d+"),
        ("topics/left/versions/*.json", -1, "The description of topic 'left'"),
    ],
)
def test_a_document_of_a_newer_version_is_not_called_damaged(
    finished: Path, tmp_path: Path, pattern: str, which: int, told: str
) -> None:
    """To restore or to delete it was the advice, and a checkpoint was passed over as damaged."""
    root = tmp_path / "root"
    shutil.copytree(finished, root)
    place = sorted(root.glob(pattern))[which]
    file = place / "~object" if place.is_dir() else place
    document = json.loads(file.read_bytes())
    del document["checksum"]
    file.write_bytes(as_document({**document, "formatVersion": 99}))
    error = _outcome(root)
    assert isinstance(error, StreamsException)
    advice = r"formatVersion 99 is not .*; a newer task-assignor wrote it\)\. Upgrade task-assignor, and leave the file as it is\."
    assert re.fullmatch(rf"{told}.* cannot be read.*{advice}", str(error))


def test_a_file_that_this_user_may_not_read_is_not_called_damaged() -> None:
    """It was said to be cut off, changed or deleted. Root may read all files, so it is not tried with one."""
    error = corrupt("t/0/a.arrow", "topic", "t", 0, 5, OSError(errno.EACCES, "Permission denied"))
    assert str(error) == (
        "The topic file of t, partition 0, offset 5 cannot be read: t/0/a.arrow ([Errno 13] Permission denied). Maybe let this user "
        "read it. Else restore the file from a copy, or write the topic again."
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_file_that_the_disk_does_not_give_is_not_called_damaged(number: int) -> None:
    """It was said to be cut off, changed or deleted, and a new run_dir was the advice."""
    error = corrupt("run/a.arrow", "changelog", "t", 0, 5, OSError(number, os.strerror(number)))
    assert "Maybe the disk fails, or its server is away: run it again when the file can be read. Else restore" in str(
        error
    )


_SHORT_OF = """
import resource, sys
import pyarrow as pa
from task_assignor.runtime import CorruptLogException
from task_assignor.runtime.storage.content import as_arrow, open_arrow
from task_assignor.runtime.storage.local import LocalStorage

storage = LocalStorage(sys.argv[1])
data, seal = as_arrow(pa.table({"x": pa.nulls(1 << 24, pa.int8()).fill_null(0)}))
storage.put("large.arrow", data)
limit = getattr(resource, sys.argv[2])
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
now = {resource.RLIMIT_AS: mapped, resource.RLIMIT_NOFILE: 3}[limit]
resource.setrlimit(limit, (now, resource.getrlimit(limit)[1]))
try:
    open_arrow(storage, "large.arrow", seal, "topic", "t", 0, 0)
except CorruptLogException as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much is mapped")
@pytest.mark.parametrize(
    ("limit", "reason"), [("RLIMIT_AS", "Cannot allocate memory"), ("RLIMIT_NOFILE", "Too many open files")]
)
def test_a_file_for_which_there_is_no_memory_or_descriptor_is_not_called_damaged(
    tmp_path: Path, limit: str, reason: str
) -> None:
    """It was said to be cut off, changed or deleted, too."""
    command = [sys.executable, "-c", _SHORT_OF, str(tmp_path), limit]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert re.search(
        rf"cannot be read: .*{reason}.*\). Nothing says that it is damaged: maybe allow for more memory", done.stdout
    )
