"""Brings this package to executors that do not have it, as a zip file that Spark hands to each of them."""

from __future__ import annotations

import shutil
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import task_assignor
from task_assignor.spark.session import is_local

_shipped: Final[set[str]] = set()
"""Ids of the Spark applications that have it: a second file of its name would be refused."""
_lock: Final = threading.Lock()


def ship_package(spark: SparkSession) -> None:
    """Send the package's modules to the executors of a session, once; those of local mode have them, if they run our own Python.

    What the package needs (the extra `runtime`) must be installed there.

    Args:
        spark: a classic session.
    """
    context = spark.sparkContext
    if is_local(spark) and _is_ours(context.pythonExec):
        return
    with _lock:
        if context.applicationId not in _shipped:
            # It goes with Spark's JVM, however this process ends.
            context.addPyFile(str(_archive(Path(context._temp_dir))))  # noqa: SLF001 (Spark has no public way to it)
            _shipped.add(context.applicationId)


def sent_function(module: str, name: str) -> Callable[[Iterable[bytes]], Any]:
    """What a Spark task does: it calls a function of this package with the one thing that it is given.

    It is made inside another function so that it travels by value: where the package, or what it needs, is missing the error then
    says so, in place of a failure to read the function itself.

    Args:
        module: the module.
        name: the function.
    """

    def run(payloads: Iterable[bytes]) -> Any:
        import importlib

        (payload,) = payloads
        try:
            function = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            import socket
            import sys

            raise ImportError(
                f"{error}, in {sys.executable} on {socket.gethostname()}, which Spark runs there. Maybe install what task-assignor[runtime] brings, "
                "or name another Python before the session is built: PYSPARK_PYTHON, or spark.pyspark.python."
            ) from None
        return function(payload)

    return run


def package_finder() -> Callable[[str, str], Any]:
    """Makes an object of a class of this package without its `__init__`, also in a process of this machine that has not been told where
    the package is. Like `sent_function` it travels by value.
    """  # noqa: D205
    place = str(Path(task_assignor.__path__[0]).parent)

    def make(module: str, name: str) -> Any:
        import importlib
        import importlib.util
        import sys

        if importlib.util.find_spec("task_assignor") is None:
            sys.path.append(place)
        found = getattr(importlib.import_module(module), name)
        return object.__new__(found)

    return make


def _is_ours(python: str) -> bool:
    """Whether that Python is of the environment of this one, under whatever name: `python3` beside `python`."""
    found = shutil.which(python)
    return found is not None and Path(found).parent.resolve() == Path(sys.executable).parent.resolve()


def _archive(folder: Path) -> Path:
    """The zip file, in a folder. Spark makes no copy: executors that come later get this very file."""
    archive = folder / f"task_assignor-{task_assignor.__version__}.zip"
    package = Path(task_assignor.__path__[0])
    # Files of some images are of 1970, which zip files do not know.
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as file:
        for module in sorted(package.rglob("*.py")):
            file.write(module, Path("task_assignor", module.relative_to(package)))
    return archive
