"""`task-assignor inspect` and `snapshot`, as far as no broker is needed: what is wrong with how it is to be reached."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from task_assignor.group.wire import SubscriptionInfo
from task_assignor.sdk import ProcessId, TaskId
from tests.cli.conftest import Runner

pytest.importorskip("task_assignor.kafka")


@pytest.mark.parametrize("command", [["inspect"], ["snapshot", "--group", "g"]])
@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        (
            "",
            [],
            "Where is the cluster? Give --bootstrap-server HOST:PORT, or --config FILE with the setting bootstrap",
        ),
        (
            "bootstrap.server=a:1",
            [],
            "The setting bootstrap.server ('a:1') must be a key that is understood. Maybe boot",
        ),
        ("security.protocl=SSL", ["--bootstrap-server", "a:1"], "Maybe security.protocol is meant."),
        ("bootstrap.servers=a", [], "The setting bootstrap.servers ('a') must be a list of host:port"),
        ("bootstrap.servers=a:1", ["--timeout-ms", "0"], "--timeout-ms"),
        ("bootstrap.servers=a:1", ["--timeout-ms", "99999999999999"], "--timeout-ms"),
    ],
)
def test_what_is_wrong_with_the_settings_is_said(
    run: Runner, tmp_path: Path, command: list[str], settings: str, options: list[str], said: str
) -> None:
    (tmp_path / "client.properties").write_text(settings)
    done = run(*command, "--config", "client.properties", *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_what_members_say_is_no_command_for_a_terminal() -> None:
    from task_assignor.cli.inspect import _row
    from task_assignor.kafka import GroupMember

    named = {TaskId(0, 1, "a\x1b[31m"): -2, TaskId(0, 2, "[red]b"): -2}
    told = SubscriptionInfo(ProcessId(uuid.UUID(int=1)), named)
    member = GroupMember("m\x1b[31m", None, "c", "h", None, None, told)
    _, had, *_ = _row(member, {}, True)
    assert had == r"\[red]b__0_2 a\x1b[31m__0_1"
