"""All cases, in the order of the table."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

import attrs

from benchmarks.case import Case

MODULES = (
    "bench_kafka",
    "bench_columns",
    "bench_consumers",
    "bench_state",
    "bench_stores",
    "bench_growth",
    "bench_bridge",
    "bench_runtime_join",
    "bench_runtime_batches",
    "bench_runtime_continuous",
    "bench_runtime_kafka",
    "bench_spark_join",
)


def all_cases(is_quick: bool = False) -> tuple[Case, ...]:
    """Every case.

    Args:
        is_quick: tiny sizes, which show only that everything runs.
    """
    cases: list[Case] = []
    for module in MODULES:
        cases += importlib.import_module(f"benchmarks.{module}").cases(is_quick)
    check_names(cases)
    # A yardstick says nothing of a tiny size.
    return tuple(attrs.evolve(case, goal=None) if is_quick else case for case in cases)


def check_names(cases: Iterable[Case]) -> None:
    """Raise `ValueError` if two cases have one name, or a peer is no case."""
    names: set[str] = set()
    for case in cases:
        if case.name in names:
            raise ValueError(f"The benchmark {case.name} is there twice.")
        names.add(case.name)
    for case in cases:
        if case.against is not None and case.against not in names:
            raise ValueError(f"The peer of {case.name}, {case.against}, is no benchmark.")


def find_case(name: str, is_quick: bool = False) -> Case:
    """The case of that name.

    Raises:
        SystemExit: there is none.
    """
    for case in all_cases(is_quick):
        if case.name == name:
            return case
    raise SystemExit(f"There is no benchmark {name!r}. Maybe see --list.")
