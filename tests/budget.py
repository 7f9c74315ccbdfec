"""How many random examples a property test may spend; the Hypothesis profiles themselves are in `tests/conftest.py`."""

from __future__ import annotations

import os


def requested_examples() -> int | None:
    """The number in TASK_ASSIGNOR_EXAMPLES, or None where it is not set."""
    text = os.environ.get("TASK_ASSIGNOR_EXAMPLES", "")
    return int(text) if text else None


def examples(usual: int) -> int:
    """Examples for a property that needs its own number: `usual`, unless the environment asks for another.

    Use as `@settings(max_examples=examples(1_000))`; a plain number there would also cap the long run.
    """
    requested = requested_examples()
    return usual if requested is None else requested
