"""The one JVM that all comparisons ask."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.jvm.jvm import Jvm, JvmBuildError


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """Kafka's classes; skipped where they cannot be built, unless TASK_ASSIGNOR_REQUIRE_JVM says that they must."""
    try:
        running = Jvm()
    except JvmBuildError as error:
        if os.environ.get("TASK_ASSIGNOR_REQUIRE_JVM", "") not in ("", "0"):
            raise
        pytest.skip(f"the comparison with the JVM could not be built: {error}")
    yield running
    running.close()
