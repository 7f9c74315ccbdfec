"""On what it was measured: processor, memory, versions, and whether others use the machine too."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "ortools", "attrs", "pyarrow", "polars", "pyspark")


def describe_machine() -> dict[str, str]:
    """Lines for the head of the table."""
    facts = {
        "machine": f"{_processor()}, {cores()} cores, {_memory()}, {platform.system()} {platform.release()}",
        "versions": ", ".join(
            [f"task-assignor {_version('task-assignor')}", f"Python {platform.python_version()}"]
            + [f"{name} {_version(name)}" for name in PACKAGES if _version(name)]
        ),
        "java": _java(),
    }
    if busy := busy_note():
        facts["note"] = busy
    return facts


def cores() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def used_by_tree(pid: int) -> float:
    """Processor seconds of a process and of all below it that live.

    Raises:
        OSError: the process itself has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    for task in list(Path(f"/proc/{pid}/task").iterdir()):
        # Threads and processes may end while they are looked at.
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                with suppress(OSError):
                    used += used_by_tree(int(child))
    return used


def busy_note() -> str | None:
    """A sentence, if others use the machine at the moment."""
    load = os.getloadavg()[0]
    if load < 0.5 * cores():
        return None
    return f"the machine is busy (load {load:.1f} on {cores()} cores): times are too long, on both sides"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return "memory unknown"
    return f"{size / 2**30:.0f} GB"


def _java() -> str:
    if shutil.which("java") is None:
        return "none"
    try:
        done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "does not run"
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[1 if len(lines) > 1 else 0] if lines else "unknown"
