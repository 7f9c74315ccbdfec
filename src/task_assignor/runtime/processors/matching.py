"""Pairs of rows with equal keys and times within a window, on polars frames. What is kept for how long, the joins know.

An equi-join with a filter on the times is quickest as long as few rows share a key. With hot keys it would build all
pairs of a key, near and far, and run out of memory. Then time is cut into buckets as wide as the window, and the bucket
is made part of the key: a row meets the buckets that its window touches, at most two, and so every pair is found once.

Which of the two: the number of pairs of equal keys is the dot product of both sides' key frequencies, which is at most
the product of their 2-norms; the 2-norm of a whole is at most the sum of the norms of its parts. So a cheap number per
chunk, made once, tells in most cases that the quick way is safe. If it does not, the pairs are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

SAFE_PAIRS: Final = 4_000_000
"""So many pairs (and a few per row) may be built and filtered: some hundred megabytes."""
SAFE_PAIRS_PER_ROW: Final = 8
SMALL: Final = 100_000
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_BUCKET: Final = "__bucket"


def key_norm(frame: pl.DataFrame, keys: Sequence[str]) -> float:
    """An upper bound of the 2-norm of the key frequencies, from hashed keys: collisions only make it larger."""
    if frame.height == 0:
        return 0.0
    # With as many bins as rows, collisions make the square of the norm of distinct keys at most about twice as large.
    mask = np.uint64((1 << frame.height.bit_length()) - 1)
    places = (_hashes(frame, keys) & mask).view(np.int64)
    counts = np.bincount(places)
    return float(np.sqrt(float(counts @ counts)))


def _hashes(frame: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    columns = [frame.get_column(key) for key in keys]
    if len(columns) == 1 and columns[0].dtype.is_integer() and not columns[0].null_count():
        # Much quicker than a general one. The upper half of a product depends on all bits (Knuth).
        spread: npt.NDArray[np.uint64] = columns[0].to_numpy().astype(np.uint64) * _SPREAD
        return spread >> np.uint64(32)
    return columns[0].to_frame().hstack(columns[1:]).hash_rows(seed=0).to_numpy()


def computed(rows: pl.LazyFrame, size: int) -> pl.DataFrame:
    """The rows of a query.

    Args:
        rows: the query.
        size: how many rows it reads: of few, polars' streaming engine spends more on handing them to threads than it gains.
    """
    return rows.collect(engine="in-memory" if size <= SMALL else "streaming")


def count_pairs(few: pl.DataFrame, many: pl.DataFrame, keys: Sequence[str]) -> int:
    """How many pairs of rows have equal keys, without building them."""
    import polars as pl

    left, right = (
        frame.lazy().group_by(keys).agg(pl.len().cast(pl.Float64).alias(name))
        for frame, name in ((few, "__few"), (many, "__many"))
    )
    product = (pl.col("__few") * pl.col("__many")).sum()
    return int(computed(left.join(right, on=list(keys)).select(product), few.height + many.height).item())


def match(
    few: pl.DataFrame,
    many: pl.DataFrame,
    keys: Sequence[str],
    few_time: str,
    many_time: str,
    before: int,
    after: int,
    norms: tuple[float, float],
) -> pl.LazyFrame:
    """All pairs with equal keys and `-before <= many_time - few_time <= after`, with the columns of both sides.

    Args:
        few: the side with fewer rows, usually; the one that is copied if there are hot keys.
        many: the other side. Besides the keys no column may have the name of one of `few`.
        keys: key columns; nulls match nothing.
        few_time: time column of `few`, int64.
        many_time: time column of `many`, int64.
        before: how much older the row of `many` may be.
        after: how much newer it may be.
        norms: `key_norm` of both sides, or an upper bound of it.
    """
    import polars as pl

    safe = SAFE_PAIRS + SAFE_PAIRS_PER_ROW * (few.height + many.height)
    on = list(keys)
    if norms[0] * norms[1] <= safe or count_pairs(few, many, keys) <= safe:
        pairs = few.lazy().join(many.lazy(), on=on)
    else:
        pairs = _in_buckets(few, many, on, few_time, many_time, before, after)
    distance = pl.col(many_time) - pl.col(few_time)
    return pairs.filter((distance >= -before) & (distance <= after))


def _in_buckets(
    few: pl.DataFrame, many: pl.DataFrame, on: list[str], few_time: str, many_time: str, before: int, after: int
) -> pl.LazyFrame:
    import polars as pl

    width = max(before + after, 1)
    first, last = ((pl.col(few_time) + shift) // width for shift in (-before, after))
    # As the window is no wider than a bucket, it touches one bucket or two.
    copies = [
        few.lazy().with_columns(first.alias(_BUCKET)),
        few.lazy().filter(last != first).with_columns(last.alias(_BUCKET)),
    ]
    others = many.lazy().with_columns((pl.col(many_time) // width).alias(_BUCKET))
    return pl.concat(copies).join(others, on=[*on, _BUCKET])
