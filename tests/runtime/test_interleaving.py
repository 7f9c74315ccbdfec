"""Processes that use the same files, in orders that seeds decide: thousands of them with TASK_ASSIGNOR_EXAMPLES."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.runtime.interleaved_topics import interleave_topics


@given(st.integers(0, 2**32))
@settings(max_examples=examples(15))
def test_whoever_changes_a_topic_at_the_same_time_loses_no_row(seed: int) -> None:
    """Many append, create, delete rows and read, one operation of the storage after the other; some sleep long, some die."""
    interleave_topics(seed)
