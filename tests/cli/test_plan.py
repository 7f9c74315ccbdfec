"""`task-assignor plan`: answers, settings, bad input, exit codes."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from task_assignor.sdk import StreamsConfig, assignment_from_json, assignment_to_json, state_from_json, state_to_json
from task_assignor.testing import a_client, a_state, stateful_tasks
from tests.cli.conftest import Runner
from tests.processes import PYTHON
from tests.sdk.documents import changed, document
from tests.vectors import FOLDER, vectors

Written = Callable[..., Path]

OWN = """
import sys
print("imported")
from task_assignor.sdk import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignmentException, TaskAssignor

def everything_on_the_first(state):
    first, *others = state.columns.clients.process_ids
    tasks = [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in state.all_tasks]
    return [KafkaStreamsAssignment.of(first, tasks)] + [KafkaStreamsAssignment.of(other) for other in others]

class Mine(TaskAssignor):
    def configure(self, configs):
        self.mode = configs.get("my.mode", "good")
        if self.mode == "raises early":
            raise ValueError("too early")
        print("configured")

    def assign(self, state):
        print("asked")
        if self.mode == "exits":
            sys.exit(5)
        if self.mode == "raises":
            return {}["key"]
        if self.mode == "raises lines":
            raise ValueError("one\\n  two")
        if self.mode == "raises nothing":
            raise MemoryError
        if self.mode == "gives up":
            raise TaskAssignmentException("not now")
        if self.mode == "nothing":
            return None
        if self.mode == "panics":
            raise BaseException("out of bounds")
        if self.mode == "says nothing":
            raise Unsayable
        if self.mode == "misuses":
            return AssignedTask("0_0", AssignedTask.Type.ACTIVE)
        answer = everything_on_the_first(state)
        return TaskAssignment(answer[:-1] if self.mode == "forgets" else answer)

class Unsayable(TaskAssignmentException):
    def __str__(self):
        raise ValueError("no words")
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[str]:
    """A dotted path to an assignor in the current folder."""
    path = list(sys.path)
    name = f"own_assignor_{random.Random(str(tmp_path)).randrange(10**9)}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    yield f"{name}.Mine"
    sys.path[:] = path
    sys.modules.pop(name, None)


def expected(value: dict[str, Any], assignor: str, **settings: object) -> list[dict[str, Any]]:
    state = state_from_json(value)
    config = StreamsConfig.of_state(state, {"task.assignor.class": assignor, **settings})
    return assignment_to_json(config.task_assignor().assign(state))


def test_one_state_has_one_answer_with_its_id(run: Runner, written: Written) -> None:
    done = run("plan", written("x.json", document()), "--assignor", "sticky", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.lines == [{"id": "small", "assignment": expected(document(), "sticky")}]


def test_a_state_without_an_id_has_an_answer_without(run: Runner, written: Written) -> None:
    value = document()
    del value["id"]
    (answer,) = run("plan", written("x.json", value), "--assignor", "sticky", "--json").lines
    assert list(answer) == ["assignment"]


@pytest.mark.parametrize(
    ("assignor", "group"),
    [
        ("high-availability", "ha"),
        ("sticky", "sticky"),
        ("fallback-prior", "fallback_prior"),
        ("stream-join", "sticky"),
    ],
)
def test_scenarios_of_the_vectors_are_states(run: Runner, written: Written, assignor: str, group: str) -> None:
    some = vectors(group)[:20]
    path = written("x.jsonl", "".join(f"{json.dumps(vector.json)}\n" for vector in some))
    done = run("plan", path, "-a", assignor, "--json")
    assert done.code == 0
    assert [answer["id"] for answer in done.lines] == [vector.id for vector in some]
    for vector, answer in zip(some, done.lines, strict=True):
        assert expected(dict(vector.json["state"]), assignor) == answer["assignment"]


def test_recorded_scenarios_as_they_stand_have_the_answers_of_the_jvm(run: Runner) -> None:
    done = run("plan", FOLDER / "ha.jsonl.gz", "--json")
    assert done.code == 0
    for vector, answer in zip(vectors("ha"), done.lines, strict=True):
        deadlines = [client.pop("followupRebalanceDeadlineMs", None) for client in answer["assignment"]]
        assert answer["id"] == vector.id
        assert vector.expected["assignment"] == answer["assignment"], vector.id
        assert vector.expected["probingRebalanceNeeded"] == any(deadlines), vector.id


def test_high_availability_is_the_default(run: Runner, written: Written) -> None:
    path = written("x.json", document())
    assert run("plan", path, "--json") == run("plan", path, "--json", "--assignor", "high-availability")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_standard_input_is_a_state_or_many(run: Runner, compressed: bool, indent: int | None) -> None:
    text = json.dumps(document(), indent=indent).encode()
    done = run("plan", "-", "-a", "sticky", "--json", stdin=gzip.compress(text) if compressed else text)
    assert [(done.code, answer["id"]) for answer in done.lines] == [(0, "small")]
    many = b"\n".join([json.dumps(document()).encode()] * 3)
    done = run("plan", "-", "-a", "sticky", "--json", stdin=gzip.compress(many) if compressed else many)
    assert (done.code, len(done.lines)) == (0, 3)


def test_a_bad_line_has_an_error_as_its_answer_and_the_others_theirs(run: Runner, written: Written) -> None:
    wrong = {**changed(("clients", 1, "numProcessingThreads"), 0), "id": "wrong"}
    path = written("x.jsonl", document(), wrong, "{", document())
    done = run("plan", path, "--assignor", "sticky", "--json")
    assert (done.code, done.err) == (2, "")
    first, second, third, fourth = done.lines
    assert first == fourth == {"id": "small", "assignment": expected(document(), "sticky")}
    assert list(second) == ["id", "error"]
    assert second["error"].startswith("$.clients[1].numProcessingThreads: The value must be")
    assert list(third) == ["error"]
    assert third["error"].startswith("line 3: $: The text is not JSON")


def test_without_json_a_bad_line_is_an_error_with_file_and_line(run: Runner, written: Written) -> None:
    path = written("x.jsonl", document(), "{", document())
    done = run("plan", path, "--assignor", "sticky")
    assert done.code == 2
    assert done.err == f"Error: {path}, line 2: $: The text is not JSON: column 2: {done.err.rpartition(': ')[2]}"
    assert done.out.count("3 tasks on 2 clients") == 2


def test_people_see_a_table(run: Runner, written: Written) -> None:
    value = {**changed(("configs", "rackAwareAssignmentTags"), []), "id": "[red]me"}
    done = run("plan", written("x.json", value), "--assignor", "sticky")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("[red]me\n")
    for text in (
        "client",
        "rack",
        "threads",
        "active",
        "standby",
        "moves",
        "80000000",
        "00000000",
        "r1",
        "0_0",
        "orders__1_0",
    ):
        assert text in done.out, text
    assert "3 tasks on 2 clients: 3 active (2 started, 0 moved), 2 standbys." in done.out


def with_lags(standbys: int) -> dict[str, Any]:
    """Two stateful tasks whose state one client has, and another that has nothing."""
    topic = {"topic": "c", "isSource": False, "isChangelog": True}
    return {
        "configs": {"numStandbyReplicas": standbys},
        "tasks": [
            {
                "id": f"0_{number}",
                "isStateful": True,
                "endOffsetSum": 50_000,
                "topicPartitions": [{**topic, "partition": number}],
            }
            for number in range(2)
        ],
        "clients": [
            {
                "processId": f"00000000-0000-0000-0000-00000000000{number}",
                "numProcessingThreads": 1,
                "previousActiveTasks": ["0_0", "0_1"] if number == 1 else [],
                "taskLags": {"0_0": -2, "0_1": -2} if number == 1 else {},
            }
            for number in (1, 2)
        ],
    }


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002", ["..00000001", "..00000002"]),
        ("0a000000-0000-0000-0000-000000000000", "0b000000-0000-0000-0000-000000000000", ["0a000000", "0b000000"]),
        ("00000000-0000-0001-0000-000000000000", "00000000-0000-0002-0000-000000000000", ["00000000-"]),
    ],
)
def test_the_table_fits_in_80_columns_whatever_the_ids(
    run: Runner, written: Written, monkeypatch: pytest.MonkeyPatch, first: str, second: str, names: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    value = with_lags(1)
    value["clients"][0].update(processId=first, rackId="a-rack-with-a-name-that-is-far-too-long-for-a-table")
    value["clients"][1].update(processId=second)
    out = run("plan", written("x.json", value), "-a", "sticky").out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    headings = ["client", "rack", "threads", "active", "standby", "moves"]
    assert headings == [cell.strip() for cell in out.splitlines()[1].strip("┃").split("┃")]
    for text in (*names, "1: 0_0", "1: 0_1", "+0 -1", "+1 -0"):
        assert f"│ {text}" in out, text


def test_a_terminal_too_narrow_for_the_table_loses_nothing(
    run: Runner, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wraps the lines of the table, whose width is what the table needs, and no more than 72."""
    value = with_lags(1)
    value["clients"][0]["rackId"] = "a-rack-with-a-name-that-is-far-too-long-for-a-table"
    path = written("x.json", value)
    monkeypatch.setenv("COLUMNS", "72")
    wide = run("plan", path, "-a", "sticky").out
    monkeypatch.setenv("COLUMNS", "40")
    assert run("plan", path, "-a", "sticky").out == wide


def test_a_state_without_clients_has_a_table_without_rows(run: Runner, written: Written) -> None:
    done = run("plan", written("x.json", {"tasks": [], "clients": []}), "-a", "sticky")
    assert (done.code, done.err) == (0, "")
    assert "0 tasks on 0 clients" in done.out


def test_the_summary_counts_warm_ups_apart_and_says_when_to_rebalance(run: Runner, written: Written) -> None:
    out = run("plan", written("x.json", with_lags(0))).out
    assert "2 active (0 started, 0 moved), 0 standbys, 1 warm-up. Another rebalance in 10 min.\n" in out


def test_warnings_are_counted_with_the_command_that_shows_them(run: Runner, written: Written, own: str) -> None:
    path = written("x y.json", with_lags(1))
    assert "warning" not in run("plan", path, "-a", "sticky").out
    done = run("plan", path, "-a", own)
    assert done.code == 0
    hint = f"task-assignor plan ... --json | task-assignor validate '{path}' -"
    assert f"\n2 warnings (TOO_FEW_STANDBYS), shown by: {hint}\n" in done.out
    assert "validate STATE -" in run("plan", "-", "-a", own, stdin=path.read_bytes()).out
    overridden = run("plan", path, "-a", own, "--set", "num.standby.replicas=1").out
    assert "2 warnings (TOO_FEW_STANDBYS).\n" in overridden


def test_settings_are_put_over_those_of_the_state(run: Runner, written: Written) -> None:
    path = written("x.json", document())
    none, one = (
        run("plan", path, "-a", "sticky", "--json", "--set", f"num.standby.replicas={number}").lines[0]["assignment"]
        for number in (0, 1)
    )
    assert [sum(len(client["standbyTasks"]) for client in answer) for answer in (none, one)] == [0, 2]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--set", "num.standby.replicas=x"], ["num.standby.replicas ('x') must be an int"]),
        (["--set", "num.standby.replicas"], ["Error: What follows --set ('num.standby.replicas') must be KEY=VALUE"]),
        (
            ["-a", "stream-join", "--set", "stream.join.groups=a;b"],
            ["Error: The setting stream.join.groups ('a;b') must be sub-topology numbers, with commas within"],
        ),
        (
            ["-a", "stream-join", "--set", "stream.join.groups=1;1"],
            ["Error: The setting stream.join.groups ('1;1') must be groups that name sub-topology 1 once.\n"],
        ),
        (["--set", "sasl.password:tiger"], ["Error: What follows --set ([hidden]) must be KEY=VALUE"]),
        (["--set", "=1"], ["('=1') must be KEY=VALUE"]),
        (["--set", "a=1", "--set", "a=2"], ["The setting a ('2') must be given once"]),
        (
            ["-a", "sticky", "--set", "task.assignor.class=sticky"],
            ["given once. It is 'sticky' already with --assignor"],
        ),
        (["--set", "num.standby.replica=1"], ["Maybe num.standby.replicas is meant"]),
        (["--assignor", "stiky"], ["Maybe sticky is meant", "Registered are: fallback-prior, high-availability"]),
        (
            ["--assignor", "tests.sdk.own_settings.Asks"],
            [
                "'what.is.not' (tests.sdk.own_settings.Asks.configure, line ",
                "). Maybe it asks for a setting that is not given",
            ],
        ),
        (["--assignor", "no_such_module.Assignor"], ["There is no module no_such_module"]),
        (["--assignor", "builtins.dict"], ["must be a subclass of"]),
        (
            ["--assignor", "x", "--set", "max.warmup.replicas=0"],
            ["2 settings are wrong", "max.warmup.replicas ('0')", "task.assignor.class ('x')"],
        ),
    ],
)
def test_wrong_settings_are_one_error_before_any_state_is_read(
    run: Runner, arguments: list[str], messages: list[str]
) -> None:
    done = run("plan", "missing.json", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    # Where the name is of no task assignor it may be meant for groups.
    is_none = any(what in done.err for what in ("stiky", "no_such_module", "builtins.dict", "class ('x')"))
    assert ("For consumer groups there are: cooperative-sticky, " in done.err) == is_none
    assert [True] * len(messages) == [message in done.err for message in messages], done.err


def test_a_rack_tag_must_be_a_tag_of_the_states_clients(run: Runner, written: Written) -> None:
    path = written("x.json", document())
    assert run("plan", path, "-a", "sticky", "--set", "rack.aware.assignment.tags=zone").code == 0
    done = run("plan", path, "-a", "sticky", "--set", "rack.aware.assignment.tags=cluster")
    assert (done.code, "No client has the tag cluster" in done.err) == (2, True)


def test_an_assignor_in_the_current_folder_is_found_and_gets_its_settings(
    run: Runner, written: Written, own: str
) -> None:
    path = written("x.json", document())
    (answer,) = run("plan", path, "--assignor", own, "--json").lines
    assert [len(client["activeTasks"]) for client in answer["assignment"]] == [3, 0]


def test_what_an_assignor_prints_is_no_part_of_the_answers(run: Runner, written: Written, own: str) -> None:
    done = run("plan", written("x.json", document()), "--assignor", own, "--json")
    assert (done.code, len(done.lines)) == (0, 1)
    assert {"imported", "configured", "asked"} == set(done.err.split())


LOUD = """
import ctypes, os, subprocess
from task_assignor.builtin_assignors import StickyTaskAssignor

class Loud(StickyTaskAssignor):
    def assign(self, state):
        os.write(1, b"written\\n")
        ctypes.CDLL(None).puts(b"buffered")
        subprocess.run(["echo", "echoed"], check=True)
        return super().assign(state)
"""


@pytest.mark.parametrize("command", [["plan", "x.json", "-a", "loud.Loud"], ["compare", "x.json", "loud.Loud"]])
def test_what_libraries_and_programs_write_is_no_part_of_the_answers(
    tmp_path: Path, written: Written, command: list[str]
) -> None:
    """A library in C may write what it has buffered when the process ends."""
    written("x.json", document())
    (tmp_path / "loud.py").write_text(LOUD, encoding="utf-8")
    # An older typer imports what a newer click would rather not have imported.
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning:typer"]
    command = [sys.executable, *warnings, "-m", "task_assignor", *command, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["id"] == "small"
    assert {"written", "buffered", "echoed"} == set(done.stderr.split())


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("raises", "failed with KeyError: 'key' (OWN.Mine.assign, line 23)"),
        ("raises lines", "failed with ValueError: one two (OWN.Mine.assign, line 25)"),
        ("raises nothing", "failed with MemoryError (OWN.Mine.assign, line 27)"),
        ("exits", "failed with SystemExit: 5 (OWN.Mine.assign, line 21)"),
        ("panics", "failed with BaseException: out of bounds (OWN.Mine.assign, line 33)"),
        ("misuses", "failed with StateException: The id of an AssignedTask ('0_0') must be a TaskId. Maybe use "),
        ("misuses", "TaskId.parse(text) (OWN.Mine.assign, line 37)"),
        ("gives up", "Mine gave up: not now"),
        ("says nothing", "Mine gave up: Unsayable"),
        ("nothing", "TaskAssignment"),
    ],
)
def test_an_assignor_that_fails_is_an_error_of_that_state(
    run: Runner, written: Written, own: str, mode: str, message: str
) -> None:
    path = written("x.jsonl", document(), document())
    done = run("plan", path, "--assignor", own, "--set", f"my.mode={mode}", "--json")
    assert done.code == 2
    assert [list(answer) for answer in done.lines] == [["id", "error"]] * 2
    assert message.replace("OWN", own.removesuffix(".Mine")) in done.lines[0]["error"]


@pytest.mark.parametrize(
    ("mode", "line"), [("raises", 'return {}["key"]'), ("raises early", 'raise ValueError("too early")')]
)
def test_the_traceback_of_a_failing_assignor_is_shown_on_request(
    run: Runner, written: Written, own: str, mode: str, line: str
) -> None:
    command = ("plan", written("x.json", document()), "-a", own, "--set", f"my.mode={mode}", "--json")
    short, long = run(*command), run(*command, "--traceback", shows_traceback=True)
    assert (short.code, long.code, short.out) == (2, 2, long.out)
    assert "Traceback (most recent call last):\n" in long.err
    assert line in long.err
    assert "planning.py" not in long.err


def test_a_plan_that_is_not_valid_is_a_finding(run: Runner, written: Written, own: str) -> None:
    done = run("plan", written("x.json", document()), "--assignor", own, "--set", "my.mode=forgets", "--json")
    assert done.code == 1
    assert [len(answer["assignment"]) for answer in done.lines] == [1]
    assert "The assignment is not valid" in done.err
    assert "Kafka says MISSING_PROCESS_ID" in done.err


@pytest.mark.parametrize("name", ["x", "x.json", "x.jsonl", "x.gz"])
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_noise_is_one_error(run: Runner, written: Written, name: str, arguments: list[str]) -> None:
    done = run("plan", written(name, random.Random(3).randbytes(1_000_000)), "-a", "sticky", *arguments)
    assert done.code == 2
    assert len((done.out + done.err).splitlines()) == 1
    assert "must be UTF-8" in done.out + done.err


def test_files_that_cannot_be_read_are_one_error(run: Runner, tmp_path: Path, written: Written) -> None:
    for path, message in (
        ("missing.json", "missing.json cannot be read: No such file or directory."),
        (tmp_path, "Is a directory"),
        (written("empty.json", b""), "is empty"),
        (written("cut.gz", gzip.compress(b"{}")[:-4]), "cannot be read"),
    ):
        done = run("plan", path, "-a", "sticky")
        assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert message in done.err


def test_wrong_use_is_bad_input(run: Runner) -> None:
    for arguments in (["plan"], ["plan", "x", "--no-such-option"], ["no-such-command"], ["plan", "x", "y"]):
        assert run(*arguments).code == 2


def test_names_that_a_terminal_cannot_show_are_no_crash(written: Written) -> None:
    value = changed(("clients", 0, "rackId"), "\ud800\u2028\x1b[31m")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-m", "task_assignor", "plan", written("x.json", value), "-a", "sticky"],
        capture_output=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\ud800\u2028\x1b[31m" in done.stdout


def test_who_reads_only_the_first_line_ends_the_command_quietly(written: Written) -> None:
    path = written("x.jsonl", *[document()] * 3_000)
    command = [sys.executable, "-m", "task_assignor", "plan", str(path), "-a", "sticky", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == "small"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=600) == 141


def test_who_has_enough_of_the_help_is_not_told_of_a_finding() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "task_assignor", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        ("<&-", "standard input cannot be read: it is closed."),
        (">&-", "Standard output cannot be written: it is closed."),
        ("> /dev/full", "Standard output cannot be written: No space left on device."),
    ],
)
@pytest.mark.parametrize("arguments", ["", "--json"])
def test_streams_that_are_closed_or_full_are_one_error(
    written: Written, redirection: str, message: str, arguments: str
) -> None:
    path = "-" if "<" in redirection else written("x.json", document())
    done = subprocess.run(
        f"{PYTHON} -m task_assignor plan {path} -a sticky {arguments} {redirection}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {message}\n")


def test_an_error_that_nobody_can_read_is_an_exit_code(tmp_path: Path) -> None:
    for redirection in ("2>&-", "2>/dev/full"):
        command = f"{PYTHON} -m task_assignor plan missing.json -a sticky {redirection}"
        assert subprocess.run(command, shell=True, cwd=tmp_path, check=False).returncode == 2


@pytest.mark.parametrize("arguments", ["--help", "plan --help", "--version"])
def test_help_for_a_full_disk_is_one_error(arguments: str) -> None:
    command = f"{PYTHON} -m task_assignor {arguments} > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"Error: (The|Standard) output cannot be written: No space left on device.\n", done.stderr)


@pytest.mark.parametrize("arguments", ["--help", "plan -h"])
def test_help_for_a_closed_output_is_one_error(arguments: str) -> None:
    """It ended with 0, as if somebody had read it."""
    command = f"{PYTHON} -m task_assignor {arguments} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "Error: Standard output cannot be written: it is closed.\n")


def test_the_command_line_does_not_import_spark() -> None:
    code = (
        "import sys, task_assignor.cli\n"
        "print(sorted({'pyspark', 'pandas', 'polars', 'pyarrow', 'ortools', 'hypothesis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_current_folder_that_was_deleted_does_no_harm(written: Written, tmp_path: Path) -> None:
    path = written("x.json", document())
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {PYTHON} -m task_assignor plan {path} -a sticky --json"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_goals_that_were_perhaps_not_reached_are_named(run: Runner, written: Written) -> None:
    """Three tag keys and two standbys: what holders have in common no single flow can say."""
    keys = ("rack", "zone", "host")
    clients = [
        a_client(number + 1, tags={key: str(number % (2 + place)) for place, key in enumerate(keys)})
        for number in range(6)
    ]
    state = a_state(stateful_tasks(0, 12), clients, num_standby_replicas=2, rack_aware_assignment_tags=keys)
    path = written("x.json", state_to_json(state))

    (answer,) = run("plan", path, "-a", "sticky", "--json").lines
    assert answer["inexact"] == ["STANDBY_STATE", "STANDBY_TAGS"]
    assert assignment_from_json(answer).inexact == set(answer["inexact"])
    shown = run("plan", path, "-a", "sticky").out
    assert "Perhaps not reached exactly: STANDBY_STATE, STANDBY_TAGS." in shown
    assert "Perhaps" not in run("plan", path, "-a", "sticky", "--set", "num.standby.replicas=1").out
