"""Brings this package to executors that do not have it, as a zip file that Spark hands to each of them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import task_assignor
from task_assignor.spark.session import is_local

_SHIPPED: Final = "spark.task_assignor.shipped"


def ship_package(spark: SparkSession) -> None:
    """Send the package's modules to the executors of a session, once; those of local mode have them.

    What the package needs (the extra `runtime`) must be installed there.

    Args:
        spark: a classic session.
    """
    context = spark.sparkContext
    if is_local(spark):
        return
    if context.getLocalProperty(_SHIPPED) == context.applicationId:
        return
    # Spark has no copy of its own: executors that come later get this very file.
    folder = Path(tempfile.mkdtemp(prefix="task-assignor-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / f"task_assignor-{task_assignor.__version__}.zip"
    package = Path(task_assignor.__path__[0])
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for module in sorted(package.rglob("*.py")):
            file.write(module, Path("task_assignor", module.relative_to(package)))
    context.addPyFile(str(archive))
    context.setLocalProperty(_SHIPPED, context.applicationId)
