"""What `bridge check` says of settings is what Java makes of them."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path

import pytest

from task_assignor.bridge import BridgeServer, ServeException, Verdict, check_properties
from task_assignor.bridge.check import words


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ("task-assignor bridge serve", ["task-assignor", "bridge", "serve"]),
        ("  '/opt/my env/python' -m \"task_assignor\" ", ["/opt/my env/python", "-m", "task_assignor"]),
        ("a'b c'd '' #e", ["ab cd", "", "#e"]),
        (r"/opt/my\ env/python C:\x", [r"/opt/my" + "\\", "env/python", r"C:\x"]),
        (r'"a\"', ["a\\"]),
    ],
)
def test_a_command_has_the_words_that_java_takes(command: str, taken: list[str]) -> None:
    """`Settings.words` of the jar: a backslash is nothing special."""
    assert words(command) == taken


def test_a_quote_that_does_not_end_is_said(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.command=it's task-assignor\n"
    )
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert error.message == (
        "python.task.assignor.command (it's task-assignor) must be words, but a quote in it does not end."
    )


@pytest.mark.parametrize(("first", "errors"), [("", 1), ("# of ours\n", 0)])
def test_a_setting_after_a_byte_order_mark_is_said_to_be_lost(tmp_path: Path, first: str, errors: int) -> None:
    """Java takes the mark for a part of the key; "Python decides" was said of such a file."""
    file = tmp_path / "app.properties"
    file.write_text(f"{first}task.assignor.class=taskassignor.RecordingTaskAssignor\n", encoding="utf-8-sig")
    told = [one.message for one in check_properties(file) if one.verdict is Verdict.ERROR]
    assert [
        "task.assignor.class is not seen by Java: the file begins with a byte order mark" in one for one in told
    ] == [True] * errors


@pytest.mark.parametrize("host", ["127.1", "2130706433", "LOCALHOST"])
def test_addresses_of_this_host_are_those_that_java_takes(tmp_path: Path, host: str) -> None:
    """It was said that they are of another host, while Java asked there."""
    file = tmp_path / "app.properties"
    file.write_text(f"task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.address={host}:9\n")
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert f"{host}:9: nobody answers" in error.message


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_a_server_is_found_at_the_address_that_it_says(tmp_path: Path, address: str) -> None:
    file = tmp_path / "app.properties"
    try:
        server = BridgeServer(address)
    except ServeException as error:
        pytest.skip(f"this machine has no such address: {error}")
    with server:
        said = server.address
        threading.Thread(target=server.run, daemon=True).start()
        file.write_text(
            "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.timeout.ms=60000\n"
            f"python.task.assignor.address={said}\n"
        )
        found = list(check_properties(file))
    assert not [one.message for one in found if one.verdict is Verdict.ERROR]
    assert any(f"{said}: task-assignor" in one.message for one in found)


@pytest.mark.parametrize("prefix", ["", "consumer.", "main.consumer."])
def test_digits_that_are_no_number_are_said(tmp_path: Path, prefix: str) -> None:
    """With a prefix, too: Kafka's consumer does not start with it."""
    file = tmp_path / "app.properties"
    file.write_text(f"task.assignor.class=taskassignor.RecordingTaskAssignor\n{prefix}session.timeout.ms=4²\n")
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert error.message == f"{prefix}session.timeout.ms ('4²') must be an int from 1 to 2147483647."


def test_nobody_is_asked_in_place_of_an_address_that_is_none(tmp_path: Path) -> None:
    """Java has no other one: it was said that none would be used, and that the command answers."""
    file = tmp_path / "app.properties"
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.address=10.0.0.1:7777\n"
        "python.task.assignor.command=does-not-exist\n"
    )
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert error.message == (
        "python.task.assignor.address (10.0.0.1:7777) must be an address of this host, such as 127.0.0.1:7777: the bridge has no "
        "passwords; nobody would be asked."
    )


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("Python", ["java.class=x.Y"], ["java.class changes nothing with task.assignor.class="]),
        ("Python", ["record.max.bytes=5000"], ["record.max.bytes changes nothing: without "]),
        ("Python", ["record.max.bytes=5000", "record.dir=records"], []),
        ("Shadow", ["java.class=x.Y", "retry.ms=5000", "timeout.ms=44000"], []),
        (
            "Shadow",
            ["address=10.0.0.1:1", "command=x"],
            ["command changes nothing: python.task.assignor.address takes"],
        ),
        ("Recording", ["java.class=x.Y", "retry.ms=5000", "record.max.bytes=5000"], []),
        ("Recording", ["timeout.ms=44000"], ["timeout.ms changes nothing with task.assignor.class="]),
        ("Recording", ["class=sticky", "address="], ["class changes nothing with task.assignor.class="]),
    ],
)
def test_settings_that_the_chosen_class_does_not_read_are_said(
    tmp_path: Path, name: str, given: list[str], said: list[str]
) -> None:
    file = tmp_path / "app.properties"
    lines = [f"task.assignor.class=taskassignor.{name}TaskAssignor", *(f"python.task.assignor.{one}" for one in given)]
    if name != "Recording" and "command=x" not in given:
        lines.append("python.task.assignor.command=does-not-exist")
    file.write_text("\n".join(lines))
    warned = [one.message for one in check_properties(file) if one.verdict is Verdict.WARNING]
    assert len(warned) == len(said)
    assert all(text.startswith(f"python.task.assignor.{start}") for text, start in zip(warned, said, strict=True))


def test_secrets_among_the_settings_of_an_assignor_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "app.properties"
    (tmp_path / "with_secrets.py").write_text(
        "from task_assignor.builtin_assignors import StickyTaskAssignor\n"
        "from task_assignor.sdk import ConfigKey\n"
        "class Asks(StickyTaskAssignor):\n"
        "    config_keys = tuple(ConfigKey(name=name, type='string', default='') for name in ('asks.password', 'asks.user'))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.class=with_secrets.Asks\n"
        "python.task.assignor.command=does-not-exist\nasks.password=hunter2\nasks.user=me\n"
    )
    (said,) = (one.message for one in check_properties(file) if "with_secrets.Asks, with" in one.message)
    assert said.endswith(" with asks.password=[hidden], asks.user=me.")


def test_a_wrapper_that_does_not_answer_is_waited_for_no_longer_than_its_time(tmp_path: Path) -> None:
    """What it had started kept standard output open: the check came back when that ended, if ever."""
    file = tmp_path / "app.properties"
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.timeout.ms=200\n"
        "python.task.assignor.command=sh -c 'sleep 100; true'\n"
    )
    began = time.monotonic()
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert "no answer within 0.2 s" in error.message
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "sys.exit('No module named x')",
            ["it ended with exit code 1 without", "On standard error it says: No module named x"],
        ),
        (
            "print('Activating x')",
            ["its answer begins with b'Activating x", "Its standard output is for answers only."],
        ),
        # As an error of the bridge begins: all that was said was that a message is cut short.
        (
            r"sys.stdout.buffer.write(bytes.fromhex('000000020561'))",
            [r"its answer begins with b'\x00\x00\x00\x02\x05a'"],
        ),
    ],
)
def test_why_a_command_does_not_answer_is_said(tmp_path: Path, program: str, said: list[str]) -> None:
    """Whatever it was, it was said that there was perhaps no answer in time; what the command itself said was thrown away."""
    command = shlex.join([sys.executable, "-c", f"import sys; {program}"])
    file = tmp_path / "app.properties"
    file.write_text(
        "task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.timeout.ms=60000\n"
        f"python.task.assignor.command={command}\n"
    )
    (error,) = (one for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert [part for part in said if part not in error.message] == []


@pytest.mark.parametrize(
    ("script", "rights", "said"),
    [
        ("#!/bin/sh\n", 0o644, "cannot be started: Permission denied. Maybe give the full path of an executable file"),
        ("#!/no/such/python\n", 0o755, "cannot be started: No such file or directory. Maybe what its first line names"),
        # Java runs it by the shell.
        ("echo there >&2; exit 3\n", 0o755, "it ended with exit code 3 without an answer"),
    ],
)
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, script: str, rights: int, said: str) -> None:
    program = tmp_path / "serve"
    program.write_text(script)
    program.chmod(rights)
    file = tmp_path / "app.properties"
    file.write_text(
        f"task.assignor.class=taskassignor.PythonTaskAssignor\npython.task.assignor.command={program}\n"
        "python.task.assignor.timeout.ms=60000\n"
    )
    (error,) = (one.message for one in check_properties(file) if one.verdict is Verdict.ERROR)
    assert f"command={program}: " in error
    assert said in error
