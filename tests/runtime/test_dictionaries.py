"""Columns of dictionaries that are made of Python's values, where Arrow makes none or broken ones itself."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime.arrow.frames import exact_array

_TEXTS = pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None], pa.struct([("d", _TEXTS)])),
        ([None, {"d": None}], pa.struct([("d", _TEXTS)])),
        ([[None], []], pa.list_(pa.struct([("d", _TEXTS)]))),
        ([None, {"d": 1}], pa.struct([("d", pa.dictionary(pa.int32(), pa.int64()))])),
        (["a", "b", None, "a"], pa.dictionary(pa.int8(), pa.string(), ordered=True)),
        ([dt.datetime(2024, 1, 2, tzinfo=dt.UTC), None], pa.dictionary(pa.int8(), pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_dictionaries_are_made_of_values(values: list[Any], kind: pa.DataType) -> None:
    """In structs that were all null they had places beyond their values, and rows of a batch with no others were refused."""
    found = exact_array(values, kind)
    found.validate(full=True)
    assert (found.to_pylist(), found.type) == (values, kind)
