"""The assertions find what they are for, and say it so that the author of an assignor can act on it."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    ConfigException,
    KafkaStreamsAssignment,
    ProcessId,
    StateException,
    StreamsConfig,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)
from task_assignor.testing import (
    Cluster,
    a_client,
    a_state,
    a_stateless_task,
    an_assignment,
    assert_balanced,
    assert_deterministic,
    assert_fair_shares,
    assert_same_in_every_process,
    assert_valid,
    random_states,
    stateful_tasks,
)
from task_assignor.testing.answers import answer_of
from task_assignor.utils import identity_assignment

STATE = a_state(["0_0", "0_1", a_stateless_task("1_0")], [a_client(1, threads=2), 2])


def test_a_flag_is_true_or_false() -> None:
    with pytest.raises(ConfigException, match=r"^The strict \('no'\) must be True or False\.$"):
        assert_valid(STATE, an_assignment(STATE), strict="no")  # type: ignore[arg-type]


def test_valid_passes_warnings_unless_it_is_strict() -> None:
    state = a_state(["0_0"], 2, num_standby_replicas=1)
    assignment = an_assignment(state, active={1: ["0_0"]})
    assert_valid(state, assignment)
    with pytest.raises(AssertionError, match=r"1 warning.*\n.*TOO_FEW_STANDBYS"):
        assert_valid(state, assignment, strict=True)


def test_valid_prints_the_report() -> None:
    with pytest.raises(AssertionError, match=r"not valid: 3 errors.*\n  error: Task 0_0 is active on no client"):
        assert_valid(STATE, an_assignment(STATE))


def test_valid_takes_the_results_of_utilities() -> None:
    state = a_state(["0_0"], [a_client(1, active=["0_0"])])
    assert_valid(state, identity_assignment(state))


@pytest.mark.parametrize("shares", [{1: ["0_0", "0_1"], 2: ["1_0"]}, {1: ["0_0", "1_0"], 2: ["0_1"]}])
def test_balanced_counts_tasks_per_thread(shares: dict[int, list[str]]) -> None:
    assert_balanced(STATE, an_assignment(STATE, active=shares), spread=0)
    assert_fair_shares(STATE, an_assignment(STATE, active=shares))


@pytest.mark.parametrize(("threads", "tasks", "spread"), [((3, 3), (7, 4), 1), ((10, 1), (7, 0), 0.7)])
def test_balanced_allows_what_is_just_allowed(threads: tuple[int, int], tasks: tuple[int, int], spread: float) -> None:
    """In floats 7/3 - 4/3 is a little more than 1."""
    clients = [a_client(number, threads=count) for number, count in enumerate(threads, 1)]
    state = a_state(stateful_tasks(0, sum(tasks)), clients)
    ids = [*state.all_tasks]
    assignment = an_assignment(state, active={1: ids[: tasks[0]], 2: ids[tasks[0] :]})
    assert_balanced(state, assignment, spread=spread)
    with pytest.raises(AssertionError, match=rf"client .*1 has {tasks[0]} \("):
        assert_balanced(state, assignment, spread=spread - 0.001)


def test_balanced_names_both_clients() -> None:
    lopsided = an_assignment(STATE, active={2: ["0_0", "0_1", "1_0"]})
    with pytest.raises(AssertionError, match=r"client .*2 has 3 \(3 per thread\), client .*1 has 0 \(0 per thread\)"):
        assert_balanced(STATE, lopsided)
    with pytest.raises(
        AssertionError, match=r"Client .*1 has 0 of 3 active tasks; its share, with 2 of 3 threads, is 2"
    ):
        assert_fair_shares(STATE, lopsided)


def test_the_message_is_a_sentence_whichever_tasks_count() -> None:
    lopsided = an_assignment(STATE, active={2: ["0_0", "0_1", "1_0"]})
    with pytest.raises(AssertionError, match=r"^The active tasks are not balanced: "):
        assert_balanced(STATE, lopsided)
    with pytest.raises(AssertionError, match="of 2 stateful active tasks; its share"):
        assert_fair_shares(STATE, lopsided, tasks="stateful")


def test_balance_takes_the_results_of_utilities() -> None:
    state = a_state(["0_0", "0_1"], [a_client(1, active=["0_0"]), a_client(2, active=["0_1"])])
    assert_balanced(state, identity_assignment(state))
    assert_fair_shares(state, identity_assignment(state))


@pytest.mark.parametrize("check", [assert_balanced, assert_fair_shares, assert_valid])
def test_what_is_no_assignment_at_all_is_said(check: Callable[..., None]) -> None:
    with pytest.raises(AssertionError, match=r"The answer \(None\) must be a TaskAssignment"):
        check(STATE, None)
    with pytest.raises(StateException, match="Maybe the arguments are swapped"):
        check(an_assignment(STATE), STATE)


@pytest.mark.parametrize("check", [assert_balanced, assert_fair_shares])
def test_a_kind_of_tasks_that_there_is_not_is_refused(check: Callable[..., None]) -> None:
    with pytest.raises(ConfigException, match=r"'statefull'\) must be 'all', .*Maybe 'stateful' is meant\."):
        check(STATE, an_assignment(STATE), tasks="statefull")


@pytest.mark.parametrize("spread", [-1, float("nan"), "1", float("inf"), pytest.param(10**400, id="huge")])
def test_a_spread_that_allows_nothing_or_everything_is_refused(spread: Any) -> None:
    with pytest.raises(ConfigException, match=r"The spread \(.*must be a number that is at least 0"):
        assert_balanced(STATE, an_assignment(STATE), spread=spread)


def test_balanced_can_look_at_some_tasks_only() -> None:
    assignment = an_assignment(STATE, active={1: ["0_0", "0_1"], 2: ["1_0"]})
    assert_balanced(STATE, assignment, tasks="stateful")
    with pytest.raises(AssertionError, match="The stateful active tasks are not balanced"):
        assert_balanced(STATE, assignment, tasks="stateful", spread=0.5)
    assert_fair_shares(STATE, assignment, tasks="stateless")


def test_fair_shares_are_rounded_down_or_up() -> None:
    state = a_state(stateful_tasks(0, 5), 2)
    assert_fair_shares(state, an_assignment(state, active={1: ["0_0", "0_1", "0_2"], 2: ["0_3", "0_4"]}))
    with pytest.raises(AssertionError, match="is 2 or 3"):
        assert_fair_shares(state, an_assignment(state, active={1: ["0_0"], 2: ["0_1", "0_2", "0_3", "0_4"]}))


@pytest.mark.parametrize(
    ("active", "has"),
    [({}, 0), ({1: ["0_0"], 2: ["0_1"]}, 1), ({1: ["0_0", "0_1", "0_2", "0_3"], 2: ["0_0"]}, 4)],
)
def test_a_share_is_one_of_the_tasks_that_there_are(active: dict[int, list[str]], has: int) -> None:
    """An assignor that gives nobody anything, or everything to everybody, gives nobody a fair share."""
    state = a_state(stateful_tasks(0, 4), 2)
    with pytest.raises(AssertionError, match=rf"Client .*1 has {has} of 4 active tasks; .*, is 2\."):
        assert_fair_shares(state, an_assignment(state, active=active))


def test_a_fair_share_that_is_whole_is_exact() -> None:
    state = a_state(stateful_tasks(0, 4), [a_client(1), a_client(2), a_client(3, threads=2)])
    assert_fair_shares(state, an_assignment(state, active={1: ["0_0"], 2: ["0_1"], 3: ["0_2", "0_3"]}))
    with pytest.raises(AssertionError, match=r"Client .*1 has 2 of 4 .*with 1 of 4 threads, is 1\."):
        assert_fair_shares(state, an_assignment(state, active={1: ["0_0", "0_1"], 2: ["0_2"], 3: ["0_3"]}))


class Modulo(TaskAssignor):
    """As it should be."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
        return deal(list(application_state.all_tasks), clients)


def deal(tasks: list[TaskId], clients: list[ProcessId]) -> TaskAssignment:
    return TaskAssignment(
        KafkaStreamsAssignment.of(
            client, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task in tasks[number :: len(clients)]]
        )
        for number, client in enumerate(clients)
    )


class Remembers(TaskAssignor):
    """Wrong if one instance is used twice, and forbidden even so: every rebalance has a fresh one."""

    def __init__(self) -> None:
        self._calls = itertools.count()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
        turn = next(self._calls) % len(clients)
        return deal(list(application_state.all_tasks), clients[turn:] + clients[:turn])


class OrderOfStrings(TaskAssignor):
    """Depends on the order of a set of strings, and so on PYTHONHASHSEED."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = {str(client): client for client in application_state.kafka_streams_states(compute_task_lags=False)}
        return deal(list(application_state.all_tasks), [clients[text] for text in set(clients)])


class ReturnsNothing(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return None  # type: ignore[return-value]


def test_deterministic_returns_the_answer() -> None:
    assert_valid(STATE, assert_deterministic(Modulo, STATE))


def test_deterministic_notices_what_an_instance_remembers() -> None:
    assert_deterministic(Remembers, STATE)
    with pytest.raises(AssertionError, match=r"same state a second time gave another answer\. The first difference"):
        assert_deterministic(Remembers(), STATE)


def test_deterministic_notices_an_order_that_is_not_of_the_state() -> None:
    class OrderOfConstruction(TaskAssignor):
        calls = itertools.count()

        def assign(self, application_state: ApplicationState) -> TaskAssignment:
            clients = sorted(application_state.kafka_streams_states(compute_task_lags=False))
            return deal(list(application_state.all_tasks), clients if next(self.calls) < 2 else clients[::-1])

    with pytest.raises(AssertionError, match=r"put together in another order \(shuffled\(state, 0\)\)"):
        assert_deterministic(OrderOfConstruction, STATE)


def test_deterministic_notices_goals_that_are_not_always_the_same() -> None:
    class Unsure(TaskAssignor):
        calls = itertools.count()

        def assign(self, application_state: ApplicationState) -> TaskAssignment:
            return TaskAssignment(Modulo().assign(application_state), inexact=[f"GOAL_{next(self.calls)}"])

    with pytest.raises(AssertionError, match=r"second time gave another answer.*\n.*GOAL_0.*\nbecame\n.*GOAL_1"):
        assert_deterministic(Unsure, STATE)


def test_deterministic_notices_an_answer_that_is_none() -> None:
    with pytest.raises(
        AssertionError, match=r"ReturnsNothing answered wrongly.*\n.*\(None\) must be a TaskAssignment.*lacks a return"
    ):
        assert_deterministic(ReturnsNothing, STATE)


class AssignsNothing(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return an_assignment(application_state)


class ReturnsADict(Modulo):
    """What production refuses, although `assert_valid` takes such mappings from utilities."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return {each.process_id: each for each in super().assign(application_state)}  # type: ignore[return-value]


@pytest.mark.parametrize(
    "ask",
    [
        assert_deterministic,
        lambda assignor, state: assert_valid(state, assignor),
        lambda assignor, state: assert_valid(state, assignor()),
        lambda assignor, state: assert_balanced(state, assignor),
        lambda assignor, state: assert_fair_shares(state, assignor),
        lambda assignor, state: assert_same_in_every_process(assignor, [state]),
        lambda assignor, _: Cluster(["0_0"], 1).rebalance(assignor),
    ],
)
def test_whoever_asks_an_assignor_takes_nothing_but_a_task_assignment(ask: Callable[..., object]) -> None:
    with pytest.raises(AssertionError, match=r"must be a TaskAssignment\. Maybe wrap it: TaskAssignment\(\.\.\.\)"):
        ask(ReturnsADict, STATE)


def test_a_class_an_instance_and_a_maker_are_asked() -> None:
    for assignor in (Modulo, Modulo(), StreamsConfig({"task.assignor.class": Modulo}).task_assignor):
        assert_valid(STATE, assignor)
        assert_balanced(STATE, assignor, tasks="stateful")
        assert_fair_shares(a_state(["0_0", "0_1"], 2), assignor)
    with pytest.raises(AssertionError, match="TASK_WITHOUT_ACTIVE"):
        assert_valid(STATE, AssignsNothing)


def test_what_is_no_assignor_is_refused() -> None:
    wrong: Any = "sticky"
    with pytest.raises(ConfigException, match=r"'sticky'\) must be a TaskAssignor.*StreamsConfig\(.*'sticky'\}\)"):
        assert_deterministic(wrong, STATE)
    made: Any = lambda: 5  # noqa: E731
    with pytest.raises(ConfigException, match=r"what makes one, but it made 5\."):
        answer_of(made, STATE)


@pytest.mark.parametrize("shuffles", [-3, 1.5, True])
def test_a_number_of_shuffles_that_is_none_is_refused(shuffles: Any) -> None:
    with pytest.raises(ConfigException, match=r"The shuffles \(.*must be an int from 0"):
        assert_deterministic(Modulo, STATE, shuffles=shuffles)


def test_processes_with_other_hashes_agree_on_a_proper_assignor() -> None:
    assert_same_in_every_process(Modulo, random_states(1, 20))


def test_processes_with_other_hashes_disagree_on_the_order_of_a_set() -> None:
    states = [a_state(stateful_tasks(0, 10), 10)]
    with pytest.raises(AssertionError, match=r"PYTHONHASHSEED=[12], for state number 0, gave another answer"):
        assert_same_in_every_process(OrderOfStrings, states, hash_seeds=[1, 2])


class GoalOfStrings(Modulo):
    """Says something else where strings have other hashes."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        first = next(iter({f"GOAL_{number}" for number in range(50)}))
        return TaskAssignment(super().assign(application_state), inexact=[first])


def test_processes_with_other_hashes_disagree_on_what_is_inexact() -> None:
    with pytest.raises(
        AssertionError, match=r"PYTHONHASHSEED=[12], for state number 0, gave another answer.*\n.*inexact"
    ):
        assert_same_in_every_process(GoalOfStrings, [STATE], hash_seeds=[1, 2])


class OnlyElsewhere(Modulo):
    """Fails or never ends where the hash seed says so; here all is well."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        if os.environ.get("PYTHONHASHSEED") == "77":
            raise ArithmeticError("no luck")
        if os.environ.get("PYTHONHASHSEED") == "78":
            time.sleep(60)
        if os.environ.get("PYTHONHASHSEED") == "79":
            os._exit(0)
        if os.environ.get("PYTHONHASHSEED") == "80":
            os.kill(os.getpid(), signal.SIGKILL)
        print("assigning")  # noqa: T201
        os.write(1, b"as a library in C does, in Latin-1: \xe9\n")
        return super().assign(application_state)


def test_a_process_that_fails_is_shown_without_noise() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_in_every_process(OnlyElsewhere, [STATE], hash_seeds=[77])
    first, second, *_, last = str(caught.value).splitlines()
    assert re.fullmatch(r"The process with PYTHONHASHSEED=77 for .*OnlyElsewhere failed:", first)
    assert second.startswith("Traceback")
    assert last == "ArithmeticError: no luck"


@pytest.mark.parametrize(("seed", "ended"), [(79, "with exit code 0"), (80, "by signal 9")])
def test_a_process_that_ends_without_an_answer_has_failed(seed: int, ended: str) -> None:
    """Nothing was said of how: who is killed says nothing."""
    with pytest.raises(
        AssertionError, match=rf"for .*OnlyElsewhere failed:\n(.*\n)*It ended {ended}, without an answer"
    ):
        assert_same_in_every_process(OnlyElsewhere, [STATE], hash_seeds=[seed])


def test_a_process_that_does_not_end_is_named() -> None:
    with pytest.raises(AssertionError, match=r"PYTHONHASHSEED=78 for .*OnlyElsewhere was not done after 3 seconds"):
        assert_same_in_every_process(OnlyElsewhere, [STATE], hash_seeds=[78], timeout_seconds=3)


def test_an_assignor_may_print() -> None:
    assert_same_in_every_process(OnlyElsewhere, [STATE], hash_seeds=[1])


def test_a_class_that_other_processes_cannot_find_is_refused() -> None:
    class Sick(Modulo):
        """In a function."""

    with pytest.raises(ConfigException, match=r"Sick must be at the top level of a module, so that another process"):
        assert_same_in_every_process(Sick, [STATE])
    hidden = type("Hidden", (Modulo,), {"__module__": __name__, "__qualname__": "Hidden"})
    with pytest.raises(AssertionError, match=r"failed:\n.*Hidden must be at the top level of a module[^\n]*\n$"):
        assert_same_in_every_process(hidden, [STATE])


def test_where_nothing_would_be_compared_or_asked_is_refused() -> None:
    wrong: Any = "sticky"
    with pytest.raises(ConfigException, match=r"'sticky'\) must be a class derived from TaskAssignor"):
        assert_same_in_every_process(wrong, [STATE])
    with pytest.raises(ConfigException, match="no states, so nothing would be compared"):
        assert_same_in_every_process(Modulo, [])
    with pytest.raises(ConfigException, match="no hash_seeds, so nothing would be compared"):
        assert_same_in_every_process(Modulo, [STATE], hash_seeds=[])
    with pytest.raises(ConfigException, match=r"The hash seed \(-1\) must be an int from 0 to 4294967295"):
        assert_same_in_every_process(Modulo, [STATE], hash_seeds=[-1])


SCRIPT = """
from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.testing import a_state, assert_same_in_every_process

class Mine(StickyTaskAssignor):
    pass

"""
CALL = "assert_same_in_every_process(Mine, [a_state(['0_0'], 2)])\n"


def run_script(path: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, *command], cwd=path.parent, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("command", [["my_script.py"], ["-m", "my_script"]])
def test_a_class_of_a_script_is_found(tmp_path: Path, command: list[str]) -> None:
    done = run_script(tmp_path / "my_script.py", f"{SCRIPT}if __name__ == '__main__':\n    {CALL}", *command)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_class_is_found_in_its_own_file_and_whatever_is_in_sys_path(tmp_path: Path) -> None:
    """Python looks at texts alone there, and a folder before the others may have a module of the same name."""
    script = f"""
import sys
from pathlib import Path
import taken
assert "first" not in sys.path
sys.path[:0] = ["first", Path("anywhere")]
Mine = taken.Mine
{SCRIPT.partition("class ")[0]}
if __name__ == '__main__':
    {CALL}"""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "taken.py").write_text("raise SystemExit('another module')")
    (tmp_path / "taken.py").write_text(SCRIPT)
    done = run_script(tmp_path / "my_script.py", script, "my_script.py")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_that_would_start_itself_again_is_told(tmp_path: Path) -> None:
    done = run_script(tmp_path / "my_script.py", SCRIPT + CALL, "my_script.py")
    assert re.search(r"PYTHONHASHSEED=0 for .*Mine failed:\nThe module of .* behind if __name__ ==", done.stderr)


def test_a_class_that_was_typed_in_is_refused(tmp_path: Path) -> None:
    done = run_script(tmp_path / "unused.py", "", "-c", SCRIPT + CALL)
    assert "Mine must be at the top level of a module" in done.stderr


@pytest.mark.parametrize("spread", [np.int64(1), np.float64(1.0), Fraction(1), 1])
def test_a_spread_is_any_number(spread: Any) -> None:
    assert_balanced(STATE, Modulo, spread=spread)
    with pytest.raises(AssertionError, match="allowed is a difference of 1 per thread"):
        assert_balanced(STATE, an_assignment(STATE, active={2: list(STATE.all_tasks)}), spread=spread)
    for wrong in (True, "1", -1, float("nan"), None):
        with pytest.raises(ConfigException, match="must be a number that is at least 0"):
            assert_balanced(STATE, Modulo, spread=wrong)  # type: ignore[arg-type]


def test_only_states_are_asked_about() -> None:
    for ask in (lambda: assert_valid(3, Modulo), lambda: assert_deterministic(Modulo, 3)):  # type: ignore[arg-type]
        with pytest.raises(StateException, match=r"The state \(3\) must be an ApplicationState"):
            ask()


@pytest.mark.parametrize("seconds", [1e7, 1e300])
def test_a_time_for_processes_may_be_longer_than_any_can_be_waited_for(seconds: float) -> None:
    """`subprocess` failed with OverflowError, after the process was started."""
    assert_same_in_every_process(Modulo, [STATE], hash_seeds=[0], timeout_seconds=seconds)


@pytest.mark.parametrize("seconds", ["x", None, float("nan"), -1, True])
def test_a_time_for_processes_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(
        ConfigException, match=r"The timeout_seconds \(.*\) must be a number that is at least 0, and finite"
    ):
        assert_same_in_every_process(Modulo, [STATE], timeout_seconds=seconds)


def test_settings_that_json_cannot_carry_are_named_without_secrets() -> None:
    with pytest.raises(ConfigException, match=r"'my\.password': \[hidden\]") as caught:
        assert_same_in_every_process(Modulo, [STATE], settings={"my.password": "s3cr3t", "x": object()})
    assert "s3cr3t" not in str(caught.value)
