"""What changed in a key-value store since a state was kept, and what is there with it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Final

import attrs

from task_assignor.runtime.stores.rows import Change, Rows, bring_in, some_of

_CHANGES_AT_ONCE: Final = 1 << 10


class Moment:
    """Changes as they are now, for somebody who reads them one by one: whoever makes others says so before.

    Args:
        changes: the changes, in the dictionary in which others are made.
        order: their keys in their order; keys of later ones may come in.
    """

    def __init__(self, changes: Mapping[bytes, Change], order: list[bytes]) -> None:
        self._changes = changes
        self._order = order
        self._were: dict[bytes, Change | bool] = {}
        """Keys that were changed since, and what they had; False: they were none of the changes."""

    def note(self, keys: Iterable[bytes]) -> None:
        """These keys are going to be changed."""
        for key in keys:
            self._were.setdefault(key, self._changes.get(key, False))

    def _at(self, key: bytes) -> Change | bool:
        return self._were[key] if key in self._were else self._changes.get(key, False)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._at(key) is not False

    def between(self, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, Change]]:
        """Those with keys from `first` on and before `end` (None: to the last) in the order of the keys, or against it."""
        count = 1
        while keys := list(islice(some_of(self._order, first, end, reverse=reverse), count)):
            for key in keys:
                if (found := self._at(key)) is not False:
                    yield key, found  # type: ignore[misc]  # nor is it True
            first, end = (first, keys[-1]) if reverse else (keys[-1] + b"\0", end)
            count = min(2 * count, _CHANGES_AT_ONCE)


@attrs.define(eq=False)
class Recent:
    """Changes of the rows that are kept. Whoever asks for something again and again does not go through all of them each time.

    Attributes:
        rows: key -> its new bytes; None: it is removed. No key is ever taken away.
    """

    rows: dict[bytes, Change] = attrs.field(factory=dict)
    _readers: dict[int, Moment] = attrs.field(factory=dict)
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

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Set the bytes of rows."""
        self._note(rows)
        self.rows.update(rows)
        if self._removed:
            self._removed.difference_update(rows)
        for reverse, (start, stop) in self._gaps.items():
            if start != stop and (inside := [key for key in rows if start <= key and (stop is None or key < stop)]):
                self._set_gap(reverse, *((max(inside) + b"\0", stop) if reverse else (start, min(inside))))

    def remove(self, keys: Collection[bytes]) -> None:
        """Remove rows."""
        self._note(keys)
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
        changes = dict(sorted(self.rows.items()))
        return _merged(kept.items(), changes, changes.items(), reverse=False)

    def between(self, kept: Rows, first: bytes, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """What is there with keys from `first` on and before `end` (None: to the last) in the order of their keys, or against it."""
        first, end = self._beside_gap(first, end, reverse)
        if end is not None and end <= first:
            return
        bring_in(self._order, self._newest(len(self.rows) - len(self._order)))
        now = Moment(self.rows, self._order)
        self._readers[id(now)] = now
        try:
            found = kept.between(first, end, reverse=reverse)
            if self.rows:
                found = _merged(found, now, now.between(first, end, reverse=reverse), reverse=reverse)
            row = next(found, None)
            self._widen_gap(first, end, row and row[0], reverse)
            if row is not None:
                yield row
                yield from found
        finally:
            del self._readers[id(now)]

    def _note(self, keys: Collection[bytes]) -> None:
        for reader in self._readers.values():
            reader.note(keys)

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
    kept: Iterator[tuple[bytes, bytes]],
    changed: Container[bytes],
    changes: Iterable[tuple[bytes, Change]],
    *,
    reverse: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Rows with changes in the same order."""
    left = (row for row in kept if row[0] not in changed)
    new = ((key, value) for key, value in changes if value is not None)
    return heapq.merge(left, new, key=itemgetter(0), reverse=reverse)
