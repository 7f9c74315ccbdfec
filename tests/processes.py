"""Whether a process of this machine is there."""

from __future__ import annotations

import os
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended (a zombie has)."""
    try:
        os.kill(pid, 0)
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
