"""What changed in a key-value store since a state was kept, and what is there with it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from operator import itemgetter

import attrs

from task_assignor.runtime.stores.rows import Change, Rows, bring_in, some_of


@attrs.define(eq=False)
class Recent:
    """Changes of the rows that are kept. Whoever asks for something again and again does not go through all of them each time.

    Attributes:
        rows: key -> its new bytes; None: it is removed. No key is ever taken away.
        readers: so many look at rows, and go on to see what was there when they began: who changes some takes a `copy`.
    """

    rows: dict[bytes, Change] = attrs.field(factory=dict)
    readers: int = 0
    _removed: set[bytes] = attrs.field(factory=set)
    _order: list[bytes] = attrs.field(factory=list)
    """The keys in their order, so far as somebody has asked for some of them."""
    _looked_up: int = 0
    """Of so many keys it is known whether they are kept,"""
    _kept: int = 0
    """and so many of these are."""
    _gaps: Mapping[bool, tuple[bytes, bytes | None]] = {False: (b"", b""), True: (b"", b"")}
    """Whether it was found against the order -> from the first key on and before the other one (None: to the last) nothing is
    there: so rows that are removed are passed once."""

    def copy(self) -> Recent:
        """The same, with no readers."""
        return attrs.evolve(
            self, rows=self.rows.copy(), readers=0, removed=self._removed.copy(), order=self._order.copy()
        )

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Set the bytes of rows."""
        self.rows.update(rows)
        if self._removed:
            self._removed.difference_update(rows)
        for reverse, (start, stop) in self._gaps.items():
            if start != stop and (inside := [key for key in rows if start <= key and (stop is None or key < stop)]):
                self._set_gap(reverse, *((max(inside) + b"\0", stop) if reverse else (start, min(inside))))

    def remove(self, keys: Collection[bytes]) -> None:
        """Remove rows."""
        self.rows.update(dict.fromkeys(keys))
        self._removed.update(keys)

    def count(self, kept: Rows) -> int:
        """How many rows are there."""
        new = self._newest(len(self.rows) - self._looked_up)
        self._kept += len(new) - kept.get_many(new).count(None)
        self._looked_up += len(new)
        return len(kept) - self._kept + len(self.rows) - len(self._removed)

    def all(self, kept: Rows) -> Iterator[tuple[bytes, bytes]]:
        """What is there in the order of the keys."""
        rows = self.rows.copy()
        return _merged(kept.items(), rows, iter(sorted(rows)), reverse=False)

    def between(self, kept: Rows, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """What is there with keys from `first` on and before `end` (None: to the last) in the order of their keys, or against it."""
        first, end = self._beside_gap(first, end, reverse)
        if end is not None and end <= first:
            return
        bring_in(self._order, self._newest(len(self.rows) - len(self._order)))
        keys = some_of(self._order, first, end, reverse=reverse)
        found = _merged(kept.between(first, end, reverse=reverse), self.rows, keys, reverse=reverse)
        self.readers += 1
        try:
            row = next(found, None)
            self._widen_gap(first, end, row and row[0], reverse)
            if row is not None:
                yield row
                yield from found
        finally:
            self.readers -= 1

    def _newest(self, count: int) -> list[bytes]:
        return list(islice(reversed(self.rows), count))

    def _beside_gap(self, first: bytes, end: bytes | None, reverse: bool) -> tuple[bytes, bytes | None]:
        """The bounds without what is in the gap."""
        start, stop = self._gaps[reverse]
        if reverse:
            is_in_it = stop is None if end is None else start < end and (stop is None or end <= stop)
            return (first, start) if is_in_it else (first, end)
        if start <= first and (stop is None or first < stop):
            return (first, first) if stop is None else (stop, end)
        return first, end

    def _widen_gap(self, first: bytes, end: bytes | None, found: bytes | None, reverse: bool) -> None:
        """Of what is between the bounds this key comes first; None: there is none."""
        start, stop = self._gaps[reverse]
        if reverse:
            self._set_gap(reverse, first if found is None else found + b"\0", stop if end == start else end)
        else:
            self._set_gap(reverse, start if stop == first else first, end if found is None else found)

    def _set_gap(self, reverse: bool, start: bytes, stop: bytes | None) -> None:
        self._gaps = {**self._gaps, reverse: (start, stop)}


def _merged(
    kept: Iterator[tuple[bytes, bytes]], changes: Mapping[bytes, Change], keys: Iterator[bytes], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Rows with changes, of which some keys are given in the same order."""
    if not changes:
        return kept
    left = (row for row in kept if row[0] not in changes)
    new = ((key, value) for key in keys if (value := changes[key]) is not None)
    return heapq.merge(left, new, key=itemgetter(0), reverse=reverse)
