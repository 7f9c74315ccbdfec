"""Spark's source while others change what it reads, in orders that seeds decide: thousands of them with TASK_ASSIGNOR_EXAMPLES."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.spark.interleaved_source import SparkRemadeWorld, SparkRunWorld, SparkTopicWorld


@pytest.mark.parametrize("world", [SparkRunWorld, SparkTopicWorld, SparkRemadeWorld])
@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_queries_and_streams_read_each_row_once(
    world: type[SparkRunWorld | SparkTopicWorld | SparkRemadeWorld], seed: int
) -> None:
    """Of runs that commit, merge and delete, and of topics that grow, lose rows and are written anew, also when a batch is done again."""
    world(seed).run()
