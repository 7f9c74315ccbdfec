"""Processes that use the same files, in orders that seeds decide: thousands of them with TASK_ASSIGNOR_EXAMPLES."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.budget import examples
from tests.runtime.interleaved_remade import RemadeWorld
from tests.runtime.interleaved_repartitions import RepartitionWorld
from tests.runtime.interleaved_runs import RunWorld
from tests.runtime.interleaved_topics import TopicWorld


@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_whoever_changes_a_topic_at_the_same_time_loses_no_row(seed: int) -> None:
    """Many append, create, delete rows and read, one operation of the storage after the other; some sleep long, some die."""
    TopicWorld(seed).run()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(15))
def test_a_topic_that_is_written_anew_is_not_mixed_up_with_the_one_before(seed: int) -> None:
    """Its folder is deleted while others append, delete rows and read: the new topic keeps its rows, and has no others."""
    RemadeWorld(seed).run()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(15))
def test_coordinators_that_replace_each_other_lose_no_commit(seed: int) -> None:
    """They commit, write checkpoints and merge, also when they were replaced; all who read meanwhile find what counts."""
    RunWorld(seed).run()


@given(st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_what_tasks_write_for_each_other_is_read_once(seed: int) -> None:
    """Also while coordinators replace each other; what is to be read is there, and what was read goes."""
    RepartitionWorld(seed).run()
