"""How measurements look on the screen and in a JSON file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.case import Case
from benchmarks.jvm import JvmRun, recorded_source
from benchmarks.measure import PROCESSES, SHORT_S, Growth, Measurement, growths, least_cpu_s, peer_of, verdict

WIDTH = 200
"""Columns where the output is no terminal."""
NOTHING = "-"


def print_cases(console: Console, cases: Iterable[Case]) -> None:
    """The names, with the yardsticks."""
    table = Table(box=None, pad_edge=False)
    table.add_column("name")
    table.add_column("yardstick")
    for case in cases:
        table.add_row(case.name, "" if case.goal is None else str(case.goal))
    console.print(table)


def print_table(console: Console, measured: Sequence[Measurement], machine: Mapping[str, str]) -> None:
    """The whole report."""
    for key, value in machine.items():
        console.print(f"{key}: {value}", highlight=False)
    console.print()
    plain = [one for one in measured if one.case.series is None]
    others = {one.case.name: one for one in measured}
    for heading in dict.fromkeys(one.case.heading for one in plain):
        _print_section(console, heading, [one for one in plain if one.case.heading == heading], others)
    series = growths(measured)
    if series:
        _print_growth(console, series)
    _print_notes(console, measured, others)


def _print_section(
    console: Console, heading: str, measured: Sequence[Measurement], others: Mapping[str, Measurement]
) -> None:
    has_rate = any(one.case.amount is not None for one in measured)
    has_peer = any(peer_of(one, others) is not None or one.jvm is not None for one in measured)
    table = Table(title=heading, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("what", no_wrap=True)
    for column in ("first call", "again", "memory"):
        table.add_column(column, justify="right")
    if has_rate:
        table.add_column("rate", justify="right")
    if has_peer:
        for column in ("peer now", "again", "recorded", "x faster"):
            table.add_column(column, justify="right")
    table.add_column("yardstick")
    table.add_column("met")
    table.add_column("remarks")
    for one in measured:
        cells = [one.case.name.partition("/")[2], *_our_times(one), _memory(one)]
        if has_rate:
            cells.append(_rate(one))
        if has_peer:
            cells += [*_peer_times(one, others), _ratio(one, others)]
        cells += ["" if one.case.goal is None else str(one.case.goal), _met(verdict(one, others)), _remarks(one)]
        table.add_row(*cells)
    console.print(table)
    console.print()


def _our_times(one: Measurement) -> tuple[str, str]:
    if one.first_s is None:
        return one.problem or NOTHING, NOTHING
    return duration(one.first_s), NOTHING if one.again_s is None else duration(one.again_s)


def _memory(one: Measurement) -> str:
    return NOTHING if one.run is None else memory(one.run.peak_bytes)


def _rate(one: Measurement) -> str:
    if one.case.amount is None or one.first_s is None:
        return NOTHING
    amount, name = one.case.amount
    return f"{amount / one.first_s / 1e6:.3g} M {name}/s"


def _peer_times(one: Measurement, others: Mapping[str, Measurement]) -> tuple[str, str, str]:
    if one.case.against is not None:
        other = others.get(one.case.against)
        if other is None or other.first_s is None:
            return NOTHING, NOTHING, NOTHING
        return duration(other.first_s), NOTHING if other.again_s is None else duration(other.again_s), NOTHING
    now, again = _jvm_times(one.jvm)
    before, _ = _jvm_times(one.recorded)
    return now, again, before


def _jvm_times(run: JvmRun | None) -> tuple[str, str]:
    if run is None:
        return NOTHING, NOTHING
    if run.longer_than is not None:
        return f">{run.longer_than:g} s", NOTHING
    if not run.seconds:
        return run.problem or NOTHING, NOTHING
    return duration(run.seconds[0]), duration(statistics.median(run.seconds[1:])) if run.seconds[1:] else NOTHING


def _ratio(one: Measurement, others: Mapping[str, Measurement]) -> str:
    peer = peer_of(one, others)
    if peer is None or one.first_s is None:
        return NOTHING
    seconds, is_limit = peer
    ratio = seconds / one.first_s
    return (">" if is_limit else "") + (f"{ratio:,.0f}".replace(",", " ") if ratio >= 10 else f"{ratio:.1f}")


def _met(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "[bold red]NO[/]"


def _remarks(one: Measurement) -> str:
    # Where another case is the peer, the JVM's time has no column.
    beside = ""
    if one.case.against is not None and one.jvm is not None:
        now, again = _jvm_times(one.jvm)
        beside = f"JVM {now}, again {again}; "
    if one.remark:
        return beside + one.remark
    facts = {} if one.run is None else {key: value for key, value in one.run.facts.items() if key != "decisions"}
    return beside + ", ".join(f"{key} {value}" for key, value in facts.items())


def _print_growth(console: Console, series: Sequence[Growth]) -> None:
    sizes = sorted({one.case.size for growth in series for one in growth.measured})
    table = Table(title="growth", box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("processor time, by number of tasks", no_wrap=True)
    for size in sizes:
        table.add_column(f"{size:,}".replace(",", " "), justify="right")
    for column in ("time ~ size^", "last decade", "memory at most"):
        table.add_column(column, justify="right")
    table.add_column("yardstick")
    table.add_column("met")
    for growth in series:
        by_size = {one.case.size: one for one in growth.measured}
        cells = [growth.name]
        for size in sizes:
            one = by_size.get(size)
            run = None if one is None else one.run
            cells.append(
                (NOTHING if one is None else one.problem or NOTHING) if run is None else duration(least_cpu_s(run))
            )
        cells += [NOTHING if value is None else f"{value:.2f}" for value in (growth.exponent, growth.last_exponent)]
        cells.append(memory(max((one.run.peak_bytes for one in growth.measured if one.run is not None), default=0)))
        goal = growth.measured[0].case.goal
        table.add_row(*cells, "" if goal is None else str(goal), _met(growth.is_met))
    console.print(table)
    console.print()


def _print_notes(console: Console, measured: Sequence[Measurement], others: Mapping[str, Measurement]) -> None:
    notes = [
        "A figure of ours: the call alone, in a process of its own; the first call includes what is imported only then.",
        f"A first call shorter than {SHORT_S:g} s: the median of {PROCESSES} processes.",
        "Memory: the most that process ever had, inputs included.",
        f"Peer now: the same call of Kafka's code in a JVM of its own. {recorded_source()}.",
        "Processor time: of the fastest call; it is the same on a busy machine.",
        "x faster: first call against first call, measured now if possible.",
    ]
    missed = [one.case.name for one in measured if verdict(one, others) is False]
    missed += [f"growth of {growth.name}" for growth in growths(measured) if growth.is_met is False]
    notes.append(f"Yardsticks missed: {'; '.join(missed)}." if missed else "No yardstick missed.")
    for note in notes:
        console.print(note, highlight=False)


def duration(seconds: float) -> str:
    """A time in three digits."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else "1 s"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"


def memory(size: float) -> str:
    """Bytes as MB or GB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def as_json(measured: Sequence[Measurement], machine: Mapping[str, str]) -> dict[str, Any]:
    """Everything that was measured, for programs."""
    others = {one.case.name: one for one in measured}
    rows = []
    for one in measured:
        peer = peer_of(one, others)
        rows.append(
            {
                "name": one.case.name,
                "run": None if one.run is None else attrs.asdict(one.run),
                "firstCalls": list(one.first_calls),
                "problem": one.problem,
                "jvm": None if one.jvm is None else attrs.asdict(one.jvm),
                "recorded": None if one.recorded is None else attrs.asdict(one.recorded),
                "timesFaster": None if peer is None or one.first_s is None else peer[0] / one.first_s,
                "yardstick": None if one.case.goal is None else str(one.case.goal),
                "met": verdict(one, others),
                "remark": one.remark,
            }
        )
    series = [
        {"name": one.name, "exponent": one.exponent, "lastDecade": one.last_exponent, "met": one.is_met}
        for one in growths(measured)
    ]
    return {"machine": dict(machine), "cases": rows, "growth": series}
