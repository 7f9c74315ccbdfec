"""How `make test` deals its tests out to its worker processes."""

from __future__ import annotations

import re

import pytest


def test_all_that_needs_spark_or_a_jvm_has_its_one_worker(request: pytest.FixtureRequest) -> None:
    """The groups came too late for xdist, so that every worker started a Spark and a JVM of its own."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("there is one worker, or it is not --dist loadgroup")
    assert [
        item.nodeid
        for item in request.session.items
        for group in ("jvm", "spark")
        if item.get_closest_marker(group) and not re.search(rf"@{group}(_\w+)?$", item.nodeid)
    ] == []
