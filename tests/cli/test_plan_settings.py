"""`task-assignor plan`: settings of assignors, at the prompt and in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Runner
from tests.sdk.documents import document

Written = Callable[..., Path]


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        ("must.preserve.active.task.assignment=true", "is one of sticky, not of task_assignor.builtin_assignors."),
        ("must.preserve.active.task.asignment=true", "is not known, and task_assignor.builtin_assignors."),
        ("poll.ms=1", "is one of Kafka's that has no part in assignment, and task_assignor."),
        ("client.rack=x", "changes nothing in a state, whose clients have their own racks, tags and threads; it is"),
        ("client.tag.zone=x", "changes nothing in a state, whose clients have their own racks, tags and threads;"),
        ("application.id=x", "changes nothing in a state, whose clients have their own racks, tags and threads;"),
    ],
)
def test_settings_that_change_nothing_are_said(run: Runner, written: Written, arguments: str, warning: str) -> None:
    path = written("x.json", document())
    done = run("plan", path, "--json", "--set", arguments)
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith(f"Warning: The setting {arguments.partition('=')[0]} {warning}")
    assert done.out == run("plan", path, "--json").out


def test_two_ways_to_name_the_assignor_are_one_too_many(run: Runner, written: Written) -> None:
    arguments = ("--json", "-a", "sticky", "--set", "internal.task.assignor.class=fallback-prior")
    done = run("plan", written("x.json", document()), *arguments)
    assert done.err == (
        "Warning: The setting internal.task.assignor.class is not looked at, since the assignor is given.\n"
    )


def test_settings_are_read_from_the_file_of_an_application(run: Runner, written: Written) -> None:
    """Its settings for clients and brokers are no matter of a plan; those at the prompt come before those in the file."""
    path = written("x.json", document())
    text = """
        application.id = orders
        bootstrap.servers = kafka:9092
        sasl.jaas.config = PlainLoginModule required password="it";
        num.stream.threads = 4
        num.standby.replicas = 0
        task.assignor.class = org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor
    """
    file = written("app.properties", text)
    done = run("plan", path, "--json", "--config", file)
    given = ("-a", "sticky", "--set", "num.standby.replicas=0")
    assert (done.code, done.err, done.out) == (0, "", run("plan", path, "--json", *given).out)
    done = run("plan", path, "--json", "-c", file, "--set", "num.standby.replicas=1", "-a", "high-availability")
    given = ("-a", "high-availability", "--set", "num.standby.replicas=1")
    assert (done.code, done.err, done.out) == (0, "", run("plan", path, "--json", *given).out)


def test_what_is_wrong_in_a_file_of_settings_is_named_with_its_line(run: Runner, written: Written) -> None:
    path = written("x.json", document())
    file = written("app.properties", "num.standby.replicas = many\n")
    assert f"Error: {file}:1: The setting num.standby.replicas" in run("plan", path, "--config", file).err
    file = written("tags.properties", "\nrack.aware.assignment.tags = nowhere\n")
    done = run("plan", path, "--config", file)
    assert (done.code, f"{file}:2: The setting rack.aware" in done.err) == (2, True)
    file = written("other.properties", "min.cost.model = a.b\ntask.assignor.class = sticky\n")
    assert "Warning: The setting min.cost.model is one of min-cost" in run("plan", path, "--config", file).err
    assert run("plan", path, "--config", "nowhere.properties").err.startswith("Error: The settings file nowhere.prop")


@pytest.mark.parametrize("option", ["--set", "--config"])
def test_no_secret_is_shown(run: Runner, written: Written, option: str) -> None:
    path = written("x.json", document())
    wrong = ("num.standby.replicas.password=hunter2", "my.api.key=hunter2", "num.standby.replicas=x")
    file = written("app.properties", "\n".join(wrong))
    arguments = ("--config", file) if option == "--config" else [part for one in wrong for part in ("--set", one)]
    done = run("plan", path, "--json", *arguments)
    assert (done.code, "hunter2" in done.out + done.err) == (2, False)
    done = run("plan", path, "--set", "a.password=hunter2", "--set", "a.password=hunter3")
    assert (done.code, "hunter" in done.err, "[hidden]" in done.err) == (2, False, True)


LEAKS = """
from task_assignor import ConfigKey, TaskAssignmentException, TaskAssignor

class Leaks(TaskAssignor):
    config_keys = (ConfigKey(name="own.password", type="string"), ConfigKey(name="own.how", type="string"))

    def configure(self, configs):
        self.how, self.password = configs["own.how"], configs["own.password"]
        if self.how == "configure":
            raise ValueError(f"no login with {self.password}")

    def assign(self, state):
        if self.how == "answer":
            return self.password
        raise {"fail": ValueError, "give up": TaskAssignmentException}[self.how](f"no login with {self.password}")
"""


@pytest.mark.parametrize("option", ["--set", "--config"])
@pytest.mark.parametrize("how", ["configure", "fail", "give up", "answer"])
def test_no_secret_is_shown_of_what_an_assignor_says(
    run: Runner, written: Written, tmp_path: Path, how: str, option: str
) -> None:
    path = written("x.json", document())
    (tmp_path / "leaks.py").write_text(LEAKS, encoding="utf-8")
    settings = ("own.password=hunter2", f"own.how={how}")
    file = written("app.properties", "\n".join(settings))
    arguments = ("--config", file) if option == "--config" else [part for one in settings for part in ("--set", one)]
    command = ("plan", path, "-a", "leaks.Leaks", "--traceback", *arguments)
    done = run(*command, shows_traceback=how != "answer")
    assert (done.code, "hunter2" in done.out + done.err, "[hidden]" in done.err) == (2, False, True)


def test_settings_that_count_are_taken_without_a_word(run: Runner, written: Written) -> None:
    path = written("x.json", document())
    settings = ["num.standby.replicas=0", "must.preserve.active.task.assignment=true", "task.assignor.class=sticky"]
    done = run("plan", path, "--json", *(part for setting in settings for part in ("--set", setting)))
    assert (done.code, done.err) == (0, "")
