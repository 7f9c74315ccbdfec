"""Where the jar of the bridge is. Its source is in `java/` of the source distribution; `make bridge-jar` builds it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

JAR_NAME: Final = "task-assignor-bridge.jar"


def jar_path() -> Path:
    """The jar that belongs on the class path of the Java application."""
    return Path(__file__).parent / JAR_NAME
