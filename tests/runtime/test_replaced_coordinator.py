"""A coordinator that was replaced goes on to write its checkpoints: it takes nothing from who has replaced it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from task_assignor.runtime import CommitLog, CommitLogException, committed_files, read_output
from task_assignor.runtime.machines.checkpoint import Checkpoint, SavedProgress
from task_assignor.runtime.run_folder.checkpoints import commit_name
from task_assignor.runtime.run_folder.compaction import Upkeep
from task_assignor.runtime.storage import Data, LocalStorage
from tests.runtime.test_commits import Folder, _rows


class _Slow(LocalStorage):
    """Others do something before what is put if absent is there; of what is deleted some is there a while longer."""

    sleeps: Callable[[], None] | None = None
    first: frozenset[str] = frozenset()

    def put_if_absent(self, name: str, data: Data) -> None:
        sleeps, self.sleeps = self.sleeps, None
        if sleeps is not None:
            sleeps()
        super().put_if_absent(name, data)

    def delete(self, names: Iterable[str]) -> None:
        super().delete(name for name in names if name in self.first or not self.first)


@pytest.mark.parametrize("late", [1, 2])
def test_checkpoints_of_a_replaced_coordinator_do_not_delete_what_its_successor_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """Two of them, while the successor wrote its first one: what the first had merged and the second deleted was named in that."""
    folder = Folder(tmp_path)
    size = folder.file(0, 0, 0, _rows(0)).seal.size
    upkeep = Upkeep(merged_bytes=5 * size // 2, retention_ms=0)
    asleep = CommitLog(folder.root, upkeep)
    asleep.open_epoch("app", "the first", 0)
    asleep.append(folder.record(1, {0: folder.file(0, 1, 1, _rows(1))}))
    asleep.write_checkpoint(1, SavedProgress())
    asleep.append(folder.record(2, {0: folder.file(0, 2, 1, _rows(2))}))
    for number in (3, 4):
        asleep.append(folder.record(number, {}))
    successor = CommitLog(folder.root, upkeep)
    successor.open_epoch("app", "the second", 0)
    successor.append(folder.record(6, {0: folder.file(0, 6, 1, _rows(6))}, epoch=2))
    newest = successor._checkpoints.newest

    def wakes() -> Checkpoint:
        found = newest()
        monkeypatch.undo()
        for number in (3, 4)[:late]:
            asleep.write_checkpoint(number, SavedProgress())
        return found

    monkeypatch.setattr(successor._checkpoints, "newest", wakes)
    successor.write_checkpoint(6, SavedProgress())
    assert read_output(folder.root, "out").column("x").to_pylist() == [1, 2, 6]
    assert [record.number for record in CommitLog(folder.root).records()] == list(range(7))
    for number in range(7, 12):
        successor.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}, epoch=2))
        successor.write_checkpoint(number, SavedProgress())
    assert read_output(folder.root, "out").column("x").to_pylist() == [1, 2, *range(6, 12)]
    assert [record.number for record in CommitLog(folder.root).records()] == list(range(12))
    assert len(folder.layout.storage.list("replaced")) <= 1
    assert len(list((folder.root / "checkpoints").iterdir())) == 2


def test_what_a_replaced_coordinator_has_merged_stays_for_who_has_listed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint counted until that of its successor was there, which knew nothing of it: its files went with the next one."""
    folder, now_ms, listed = Folder(tmp_path), 0, list[str]()
    upkeep = Upkeep(retention_ms=1_000, now_ms=lambda: now_ms)
    asleep, successor = CommitLog(folder.root, upkeep), CommitLog(folder.root, upkeep)
    asleep.open_epoch("app", "the first", 0)
    for number in (1, 2):
        asleep.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
    successor.open_epoch("app", "the second", 0)
    newest = successor._checkpoints.newest

    def wakes() -> Checkpoint:
        found = newest()
        monkeypatch.undo()
        asleep.write_checkpoint(2, SavedProgress())
        listed.extend(committed_files(folder.root, "out"))
        return found

    monkeypatch.setattr(successor._checkpoints, "newest", wakes)
    for number in range(4, 12):
        now_ms += 1_000 * (number > 8)
        successor.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}, epoch=2))
        successor.write_checkpoint(number, SavedProgress())
        assert now_ms or all(Path(file).exists() for file in listed), f"gone with checkpoint {number}"
    assert len(listed) == 2
    assert not any(Path(file).exists() for file in listed)
    assert read_output(folder.root, "out").column("x").to_pylist() == [1, 2, *range(4, 12)]


@pytest.mark.parametrize("begins", [0, 3])
def test_who_slept_until_the_number_of_its_epoch_was_free_again_has_not_begun(tmp_path: Path, begins: int) -> None:
    """It took the number for its own, also those that followed, and told of commits that do not count."""
    folder = Folder(tmp_path)
    other = CommitLog(folder.root, storage=_Slow(folder.root))
    for number in range(begins):
        other.append(folder.record(number, {}))

    def commits() -> None:
        storage = other._storage
        assert isinstance(storage, _Slow)
        for number in range(begins, begins + 9):
            other.append(folder.record(number, {0: folder.file(0, number, 1, _rows(number))}))
        for number in (begins + 4, begins + 8):
            other.write_checkpoint(number, SavedProgress())
            # An object store deletes in any order.
            storage.first = frozenset([commit_name(begins)])

    slow = _Slow(folder.root)
    slow.sleeps = commits
    asleep = CommitLog(folder.root, storage=slow)
    with pytest.raises(
        CommitLogException, match=r"Commit \d begins no epoch: .* A second coordinator runs on the same"
    ):
        asleep.open_epoch("app", "asleep", 0)
    assert not (folder.root / commit_name(begins)).exists()
    assert read_output(folder.root, "out").column("x").to_pylist() == list(range(begins, begins + 9))
    assert CommitLog(folder.root).open_epoch("app", "me", 0).number == begins + 9
