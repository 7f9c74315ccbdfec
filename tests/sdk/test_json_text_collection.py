"""What reading a large document does to Python's collection of garbage."""

from __future__ import annotations

import gc

import pytest

from task_assignor.sdk.json_text import parse_json


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collection_of_garbage_is_as_it_was(is_enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        parse_json('{"a": [1]}')
        assert gc.isenabled() == is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()
