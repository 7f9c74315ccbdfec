"""Where a program runs in a container: what is scarce or missing there is named, in an error of ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from task_assignor.runtime import ClientException, LocalProcessLauncher
from tests.runtime.test_launcher import _bootstrap


@pytest.mark.parametrize(("place", "name"), [(os, "pipe"), (LocalProcessLauncher, "_started")])
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "Maybe allow for more memory and mappings .* or more open files"),
        (errno.EAGAIN, r"Maybe allow for more processes \(ulimit -u\)"),
        (errno.ENOENT, "Maybe .* set TMPDIR to a folder that can be written"),
    ],
)
def test_what_keeps_a_process_from_its_start_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, number: int, advice: str
) -> None:
    """It was Python's own error, of no file and no client: too many are open, a limit of processes, no place for the fork server's socket."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    launcher = LocalProcessLauncher()
    monkeypatch.setattr(place, name, refuse)
    with pytest.raises(ClientException, match=rf"process of c cannot be started: .*{os.strerror(number)}\. {advice}"):
        launcher.add(_bootstrap(tmp_path))
    assert launcher.pids == {}
