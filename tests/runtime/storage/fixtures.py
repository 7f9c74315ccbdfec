"""Fixtures that give a test a real object store; `tests/conftest.py` makes them known to all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runtime.storage.s3_server import S3Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for all tests of the session."""
    pytest.importorskip("obstore")
    from tests.runtime.storage.s3_server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture
def s3_folder(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Gives URLs of folders that no other test uses, while the environment says how to reach them."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return lambda: f"{s3_server.url}/folder-{next(_numbers)}"
