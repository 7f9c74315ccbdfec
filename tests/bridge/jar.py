"""Builds the jar of the bridge, the same bytes wherever it is built with the same release of the JDK."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from task_assignor.bridge import jar_path
from tests.kafka.jars import JVM_OPTIONS, KafkaUnavailableError, class_path, run_tool

SOURCES: Final = Path(__file__).parents[2] / "java" / "taskassignor"
JAVA_RELEASE: Final = "11"
JDK: Final = 17
"""The release of the JDK whose compiler made the jar in the package; others may write other bytes."""
ZLIB: Final = "1.2.13"
"""The release of the library that compressed it; others may compress better or worse."""
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)


def jdk_release() -> int:
    """The release of the JDK on this machine.

    Raises:
        KafkaUnavailableError: there is none.
    """
    if shutil.which("javac") is None:
        raise KafkaUnavailableError(
            "needs a JDK: install one (Debian: openjdk-17-jdk-headless) and put javac on the PATH"
        )
    found = re.search(r"javac (\d+)", run_tool(["javac", "-version"]))
    assert found
    return int(found[1])


def compile_java(sources: list[Path], target: Path, libraries: str) -> None:
    """Compile Java files for Java 11.

    Raises:
        ToolError: the compiler finds something wrong.
        KafkaUnavailableError: there is no compiler.
    """
    jdk_release()
    options = ["-nowarn", "-Xlint:-options", "-g:source,lines", "-proc:none", "--release", JAVA_RELEASE]
    short = [f"-J{option}" for option in JVM_OPTIONS]
    run_tool(["javac", *short, *options, "-cp", libraries, "-d", str(target), *map(str, sorted(sources))])


def build_jar(path: Path, version: str | None = None) -> None:
    """Build the jar.

    Args:
        path: file to write.
        version: release of Kafka to compile against; None: that of the tests.

    Raises:
        KafkaUnavailableError: no JDK, or no jars of Kafka.
    """
    with tempfile.TemporaryDirectory() as folder:
        compile_java(list(SOURCES.glob("*.java")), Path(folder), class_path(version))
        # No dates, and in order.
        # A JVM that runs with the old one must not find another in its place.
        unfinished = path.with_suffix(".unfinished")
        with zipfile.ZipFile(unfinished, "w") as jar:
            _write(jar, "META-INF/MANIFEST.MF", b"Manifest-Version: 1.0\r\n\r\n")
            for file in sorted(Path(folder).rglob("*.class")):
                _write(jar, file.relative_to(folder).as_posix(), file.read_bytes())
        unfinished.replace(path)


def _write(jar: zipfile.ZipFile, name: str, content: bytes) -> None:
    jar.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED, 9)


def entries(path: Path) -> list[tuple[str, tuple[int, ...], int, bytes]]:
    """All that is in a jar, in its order: names, dates, rights and bytes; how well they are compressed is not part of it."""
    with zipfile.ZipFile(path) as jar:
        return [(one.filename, one.date_time, one.external_attr, jar.read(one)) for one in jar.infolist()]


if __name__ == "__main__":
    try:
        build_jar(jar_path())
    except KafkaUnavailableError as error:
        sys.exit(f"The jar of the bridge {error}.")
