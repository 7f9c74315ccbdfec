"""What forks Spark's Python workers in a session of `spark_session()` on this machine: they begin with what clients need.

Spark runs it in place of `pyspark.daemon` (`spark.python.daemon.module`), which has each worker import everything anew, and
pyspark from a zip file without compiled code. It is in no room: importing `spark` imports pyspark, and that comes after the
order of the path.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path


def prefer_installed() -> None:
    """Take pyspark and py4j from where they are installed, if Spark's zip files come from there, too."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    if (home / "__init__.py").is_file():
        # A stable sort: what is no zip file of Spark's keeps its order, and so do they.
        sys.path.sort(key=lambda entry: Path(entry).parent == home / "python" / "lib")


def main() -> None:
    """Import, then fork for as long as Spark asks for workers."""
    prefer_installed()
    # Who forks must have no other thread. pyarrow's allocator would start one when it is imported; NumPy's does not, since
    # Spark sets OMP_NUM_THREADS; polars is not imported.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    from task_assignor.runtime.shells.local import FORKED

    for module in (*FORKED, "task_assignor.spark", "pyspark.worker"):
        with suppress(ImportError):  # whoever needs it says so
            importlib.import_module(module)
    # Workers look for garbage after each task, and share the memory with each other as long as nobody writes to it.
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
