"""Which line an error is blamed on: the user's, whatever library it came out of."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime.blame import line_to_blame


def divide() -> None:
    pc.divide(100, pa.array([0]))  # the line


def draw() -> None:
    np.random.default_rng(1).choice([], 1)  # the line


@pytest.mark.parametrize("mistake", [divide, draw])
def test_an_error_out_of_a_compiled_library_is_blamed_on_the_line_that_called_it(mistake: FunctionType) -> None:
    """These tell frames in files such as pyarrow/error.pxi, which are nowhere."""
    with pytest.raises(ValueError, match=r"divide by zero|cannot be empty") as caught:
        mistake()
    line = line_to_blame(caught.value.__traceback__)
    assert line is not None
    assert (line.file, line.function) == (__file__, mistake.__name__)
    assert line.code.endswith("# the line")
