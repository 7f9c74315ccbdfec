"""What a benchmark is: inputs, work, a goal and a peer. How it is measured is in `worker.py` and `measure.py`.

Every `bench_*.py` offers `cases(is_quick)`; the catalogue collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

Facts = Mapping[str, int | float | str]
"""What a run says besides its time: costs, moves, rates."""
Work = Callable[[], Any]
"""What is timed. It can be called again and again."""


@attrs.frozen
class Goal:
    """A yardstick.

    Args:
        seconds: the first call takes no longer.
        gigabytes: peak memory of the process stays below, inputs included.
        times_faster: so many times faster than the peer.
        exponent: over the sizes of a series, time grows no faster than size to this power.
    """

    seconds: float | None = None
    gigabytes: float | None = None
    times_faster: float | None = None
    exponent: float | None = None

    def __str__(self) -> str:
        parts = [
            "" if self.seconds is None else f"{self.seconds:g} s",
            "" if self.gigabytes is None else f"{self.gigabytes:g} GB",
            "" if self.times_faster is None else f"{self.times_faster:,g} x faster".replace(",", " "),
            "" if self.exponent is None else f"size^{self.exponent:g}",
        ]
        return ", ".join(part for part in parts if part)


@attrs.frozen
class Timed:
    """A time that the work took itself, where the whole call is not what counts (start-up, clean-up).

    Args:
        seconds: the time.
        result: what `describe` gets.
    """

    seconds: float
    result: Any = None


@attrs.frozen
class JvmPeer:
    """The same work for Kafka's own classes.

    Args:
        scenario: makes the input of the Java harness, one line of JSON.
        compare: our facts and the harness's result -> how the two answers differ; None: not compared.
    """

    scenario: Callable[[], str]
    compare: Callable[[Facts, Mapping[str, Any]], str] | None = None


def no_facts(_result: Any) -> Facts:
    """Nothing to be said."""
    return {}


@attrs.frozen
class Case:
    """One measurement.

    Args:
        name: unique, such as `sticky/6000x2 R1`; `--only` looks for a pattern in it.
        prepare: makes the inputs, and returns the work; only the latter is timed.
        describe: facts about what the work returned.
        goal: the yardstick.
        jvm: the peer in a JVM.
        recorded: key of the peer's figure in `recorded.json`.
        against: name of another case that is the peer.
        series: cases of one series differ in size only; they are shown as one line, with a fitted exponent.
        size: position in the series.
        amount: units of work in one call, and their name: shown as a rate.
        needs: packages without which it cannot run.
        limit_s: stop it after so many seconds.
        is_heavy: starts machines of its own (Spark, clients), even on a tiny size.
    """

    name: str
    prepare: Callable[[], Work]
    describe: Callable[[Any], Facts] = no_facts
    goal: Goal | None = None
    jvm: JvmPeer | None = None
    recorded: str | None = None
    against: str | None = None
    series: str | None = None
    size: int = 0
    amount: tuple[int, str] | None = None
    needs: tuple[str, ...] = ()
    limit_s: float = 600.0
    is_heavy: bool = False

    @property
    def heading(self) -> str:
        """The part of the name before the first slash."""
        return self.name.partition("/")[0]
