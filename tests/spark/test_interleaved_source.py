"""Spark's source while others change what it reads, in orders that seeds decide: thousands of them with TASK_ASSIGNOR_EXAMPLES."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.spark.interleaved_source import SparkRunWorld, SparkTopicWorld


@pytest.mark.parametrize("world", [SparkRunWorld, SparkTopicWorld])
@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_queries_and_streams_read_each_row_once(world: type[SparkRunWorld | SparkTopicWorld], seed: int) -> None:
    """Of runs that commit, merge and delete, and of topics that grow and lose rows, also when a batch is done once more."""
    world(seed).run()
