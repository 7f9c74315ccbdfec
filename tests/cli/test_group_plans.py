"""`task-assignor plan` with consumer groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Runner
from tests.sdk.documents import document
from tests.vectors import FOLDER, lines_of

Written = Callable[..., Path]
GROUPS = FOLDER.parent / "consumer_level"
GROUP: dict[str, Any] = {"topics": {"t": 4}, "members": [{"id": "a", "topics": ["t"]}, {"id": "b", "topics": ["t"]}]}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative_sticky"])
@pytest.mark.parametrize("said", [True, False])
def test_the_recorded_groups_as_they_stand(run: Runner, name: str, said: bool) -> None:
    option = ("--assignor", name.replace("_", "-")) if said else ()
    done = run("plan", GROUPS / f"{name}.jsonl.gz", *option, "--json")
    lines = lines_of(f"consumer_level/{name}")
    assert (done.code, done.err) == (0, "")
    assert [found["id"] for found in done.lines] == [line["id"] for line in lines]
    exact = 0
    for found, line in zip(done.lines, lines, strict=True):
        if line["exact"] and line.get("path", "equal") == "equal" and (name == "range" or "racks" not in line):
            assert found["assignment"] == line["assignment"]
            exact += 1
            metrics = line["metrics"]
            same = {"partitions", "assigned", "min", "max", "kept", "moved", "previously_owned"}
            assert {key: found["metrics"][key] for key in same} == {key: metrics[key] for key in same}
            assert found["metrics"]["withheld"] == metrics["partitions"] - metrics["assigned"]
    assert exact >= 60


def test_stream_join_and_copartitioned_say_what_they_add(run: Runner, written: Written) -> None:
    path = written("g.json", GROUP)
    (join,) = run("plan", path, "-a", "stream-join", "--json").lines
    assert (join["assignment"], join["epoch"]) == ({"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}, 1)
    (tables,) = run("plan", path, "-a", "copartitioned", "--json").lines
    assert tables["standby"] == {"a": {"t": [1, 3]}, "b": {"t": [0, 2]}}
    (alone,) = run("plan", path, "-a", "copartitioned", "--set", "num.standby.replicas=0", "--json").lines
    assert alone["standby"] == {"a": {}, "b": {}}
    claims = {"owned": {"t": [1, 2]}, "generation": 4, "standby": {"t": [0]}}
    claiming = {**GROUP, "members": [{**GROUP["members"][0], "claims": claims}, GROUP["members"][1]]}
    for name in ("stream-join", "copartitioned", "sticky"):
        (kept,) = run("plan", written("c.json", claiming), "-a", name, "--json").lines
        assert kept["assignment"]["a"] == {"t": [1, 2]}


@pytest.mark.parametrize("assignor", ["range", "sticky"])
@pytest.mark.parametrize("where", ["owned", "claims"])
def test_a_partition_that_no_protocol_can_name_is_said_with_its_path(
    run: Runner, written: Written, assignor: str, where: str
) -> None:
    """Of claims it was said without a place, or they were taken; what was owned was taken."""
    owned = {"t": [0, 2**40]}
    member = {"id": "a", "topics": ["t"], where: owned if where == "owned" else {"owned": owned}}
    done = run("plan", written("g.json", {**GROUP, "members": [member]}), "-a", assignor, "--json")
    path = f"$.members[0].{'' if where == 'owned' else 'claims.'}owned.t[1]"
    said = f"line 1: {path}: The value must be an integer from -2147483648 to 2147483647, but is {2**40}."
    assert (done.code, done.lines) == (1, [{"error": said}])


def test_a_claim_that_nobody_reads_is_said(run: Runner, written: Written) -> None:
    """The member was taken for one that claims nothing, and its partitions moved."""
    member = {"id": "a", "topics": ["t"], "claims": {"own": {"t": [0]}, "generation": 4}}
    done = run("plan", written("g.json", {**GROUP, "members": [member]}), "-a", "sticky", "--json")
    said = "line 1: $.members[0].claims.own: The member is not known. Maybe owned is meant."
    assert (done.code, done.lines) == (1, [{"error": said}])


def test_a_state_and_a_group_in_one_file(run: Runner, written: Written) -> None:
    path = written("both.jsonl", document(), {**GROUP, "id": 3})
    done = run("plan", path, "--assignor", "sticky", "--json")
    assert done.code == 0
    assert isinstance(done.lines[0]["assignment"], list)
    assert done.lines[1]["assignor"] == "sticky"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"topics": {"t": -1}}, "-1"),
        ({"topics": {"t": "4"}}, "$.topics.t"),
        ({"topics": []}, "$.topics"),
        ({"members": [{"id": "a"}]}, "$.members[0].topics"),
        ({"members": [{"topics": ["t"]}]}, "$.members[0].id"),
        ({"members": [{"id": "a", "topics": ["t"], "ownd": {}}]}, "owned is meant"),
        ({"members": [{"id": "a", "topics": ["t"], "user_data": "xy"}]}, "hexadecimal"),
        ({"members": [*GROUP["members"], *GROUP["members"]]}, "twice"),
        ({"racks": {"t": [["r"]]}}, "racks of 1"),
        ({"rakcs": {}}, "racks is meant"),
        ({"topics": {"t": 10**8}}, "at most 50000000"),
    ],
)
def test_a_wrong_group_is_one_error_and_hides_no_other(
    run: Runner, written: Written, change: dict[str, Any], told: str
) -> None:
    path = written("g.jsonl", {**GROUP, **change, "id": "bad"}, {**GROUP, "id": "good"})
    done = run("plan", path, "--assignor", "sticky", "--json")
    assert done.code == 1
    assert done.lines[0]["id"] == "bad"
    assert told in done.lines[0]["error"]
    assert done.lines[1]["assignment"]
    shown = run("plan", path, "--assignor", "sticky")
    assert shown.code == 1
    assert told in shown.err
    assert "4 partitions" in shown.out


def test_names_that_are_none(run: Runner, written: Written) -> None:
    group, state = written("g.json", GROUP), written("s.json", document())
    without = run("plan", group, "--json")
    assert without.code == 1
    assert "cooperative-sticky" in without.lines[0]["error"]
    assert run("plan", group, "--assignor", "min-cost", "--json").code == 1
    for_state = run("plan", state, "--assignor", "range")
    assert for_state.code == 2
    assert "must be a consumer group" in for_state.err
    assert (
        "consumer groups there are: cooperative-sticky, copartitioned"
        in run("plan", group, "--assignor", "no-such").err
    )


@pytest.mark.parametrize("standbys", ["-1", "1.5", "1_0", "\u0661", "3000000000"])
def test_a_number_of_standbys_that_is_none_is_said(run: Runner, written: Written, standbys: str) -> None:
    group, setting = written("g.json", GROUP), f"num.standby.replicas={standbys}"
    done = run("plan", group, "--assignor", "copartitioned", "--set", setting, "--json")
    assert done.code == 1
    (line,) = done.lines
    told = f"The setting num.standby.replicas ({standbys!r}) must be an int from 0 to 2147483647."
    assert line["error"] == f"line 1: {told}"


def test_whatever_is_no_group_is_one_error_where_only_groups_can_be_meant(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([json.dumps(GROUP), "not json", json.dumps(document()), json.dumps(GROUP)]) + "\n")
    done = run("plan", str(path), "--assignor", "range", "--json")
    assert done.code == 2
    assert [list(line)[-1] for line in done.lines] == ["metrics", "error", "error", "metrics"]
    assert "is not JSON" in done.lines[1]["error"]
    assert "must be a consumer group" in done.lines[2]["error"]


def test_settings_that_change_nothing_and_topics_that_are_not_there_are_told(run: Runner, written: Written) -> None:
    path = written("g.json", {**GROUP, "members": [{"id": "a", "topics": ["t", "gone"]}]})
    done = run("plan", path, "--assignor", "range", "--set", "client.rack=x")
    assert "client.rack changes nothing in a consumer group" in done.err
    assert "gone is subscribed to, but is not among the topics." in done.out


def test_settings_of_an_application_count_for_groups_too(run: Runner, written: Written, tmp_path: Path) -> None:
    path, settings = written("g.json", GROUP), tmp_path / "app.properties"
    for standbys, copies in (("0", 0), ("1", 4)):
        settings.write_text(f"num.standby.replicas={standbys}\n")
        (answer,) = run("plan", path, "-a", "copartitioned", "--config", str(settings), "--json").lines
        assert sum(len(numbers) for found in answer["standby"].values() for numbers in found.values()) == copies


def test_settings_that_change_nothing_in_a_group_are_said_whoever_has_the_name(run: Runner, written: Written) -> None:
    """`sticky` is a task assignor, too, for which they matter: nothing was said."""
    groups = written("g.jsonl", GROUP, GROUP)
    done = run("plan", groups, "--assignor", "sticky", "--set", "num.standby.replicas=1")
    assert done.code == 0
    assert done.err == "Warning: The setting num.standby.replicas changes nothing in a consumer group.\n"


@pytest.mark.parametrize(("kind", "is_used"), [("copartitioned", True), ("cooperative_sticky", False)])
def test_settings_that_change_nothing_are_said_where_the_group_names_its_assignor(
    run: Runner, written: Written, kind: str, is_used: bool
) -> None:
    """Of any group without --assignor standbys were taken for settings of it."""
    done = run("plan", written("g.json", {**GROUP, "kind": kind}), "--set", "num.standby.replicas=1")
    assert done.code == 0
    assert ("num.standby.replicas changes nothing in a consumer group" in done.err) is not is_used


def test_standard_input_and_strange_names(run: Runner) -> None:
    group = {"topics": {"t\x1b[31m": 1}, "members": [{"id": "m\x07", "topics": ["t\x1b[31m"]}]}
    done = run("plan", "-", "--assignor", "range", stdin=json.dumps(group).encode())
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "\x07" not in done.out
