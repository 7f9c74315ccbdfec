"""The jar in the package is what its source says, bit by bit."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from task_assignor.bridge import jar_path
from task_assignor.bridge.keys import JAVA_CLASSES
from tests.bridge.jar import JDK, ZLIB, build_jar, entries, jdk_release


@pytest.mark.jvm
@pytest.mark.thorough
def test_the_jar_can_be_built_again_bit_by_bit(tmp_path: Path) -> None:
    if jdk_release() != JDK:
        pytest.skip(
            f"the jar was made with JDK {JDK}; that of this machine is {jdk_release()}, which may write other bytes"
        )
    build_jar(tmp_path / "again.jar")
    assert entries(tmp_path / "again.jar") == entries(jar_path()), "Maybe: make bridge-jar"
    if zlib.ZLIB_RUNTIME_VERSION == ZLIB:
        assert (tmp_path / "again.jar").read_bytes() == jar_path().read_bytes()


def test_the_jar_is_for_java_11_and_has_the_classes_that_settings_name() -> None:
    with zipfile.ZipFile(jar_path()) as jar:
        classes = {name: jar.read(name) for name in jar.namelist() if name.endswith(".class")}
    assert {struct.unpack(">IHH", code[:8])[::2] for code in classes.values()} == {(0xCAFEBABE, 55)}
    assert {name.replace(".", "/") + ".class" for name in JAVA_CLASSES} <= set(classes)


def test_the_jar_is_small() -> None:
    assert jar_path().stat().st_size < 64 << 10
