"""`task-assignor compare`: assignors and recorded answers beside each other."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from task_assignor.sdk import state_from_json
from task_assignor.testing import a_client, a_state, a_stateless_task, an_assignment
from task_assignor.validation import measure
from task_assignor.validation.measures import HIGHER_IS_BETTER
from tests.cli.conftest import Runner
from tests.sdk.documents import FIRST, SECOND, document

Written = Callable[..., Path]
GOOD = [
    {"processId": FIRST, "activeTasks": ["0_0", "orders__1_0"], "standbyTasks": ["0_1"]},
    {"processId": SECOND, "activeTasks": ["0_1"], "standbyTasks": ["0_0"]},
]
WRONG = [GOOD[0], {**GOOD[1], "activeTasks": [], "standbyTasks": []}]


def test_an_assignor_and_its_recorded_answer_measure_the_same(run: Runner, written: Written) -> None:
    state = written("s.json", document())
    answers = written("a.jsonl", *run("plan", state, "-a", "sticky", "--json").lines)
    done = run("compare", state, "sticky", answers, "--json")
    assert (done.code, done.err) == (0, "")
    (line,) = done.lines
    first, second = line["measures"]
    assert (first.pop("name"), second.pop("name")) == ("sticky", str(answers))
    assert first == second
    assert line["differ"] is False
    assert list(first) == list(HIGHER_IS_BETTER)


def test_recorded_answers_are_measured_with_the_settings_of_the_others(run: Runner, written: Written) -> None:
    state = written("s.json", document())
    more = ("--set", "num.standby.replicas=0")
    answers = written("a.jsonl", *run("plan", state, "-a", "sticky", *more, "--json").lines)
    (line,) = run("compare", state, "sticky", answers, *more, "--json").lines
    first, second = ({**one, "name": ""} for one in line["measures"])
    assert first == second
    assert first["standbys_missing"] == 0
    (line,) = run("compare", state, answers, "--json").lines
    assert line["measures"][0]["standbys_missing"] > 0
    wrong = run("compare", state, answers, "--set", "num.standby.replicas=x")
    assert wrong.code == 2
    assert "num.standby.replicas" in wrong.err


def test_settings_that_change_nothing_in_recorded_answers_are_said(run: Runner, written: Written) -> None:
    state = written("s.json", document())
    answers = written("a.jsonl", *run("plan", state, "-a", "sticky", "--json").lines)
    options = ("--set", "num.standby.replica=0", "--set", "num.standby.replicas=0")
    done = run("compare", state, answers, *options)
    assert done.code == 0
    assert done.err == "Warning: The setting num.standby.replica changes nothing in recorded answers.\n"


def test_many_states_give_sums_the_worst_and_where_they_differ(run: Runner, written: Written) -> None:
    state = written("s.jsonl", {**document(), "id": "calm"}, {**document(), "id": "storm"})
    one, other = written("one.jsonl", GOOD, GOOD), written("other.jsonl", GOOD, WRONG)
    done = run("compare", state, one, other, "--json")
    assert done.code == 1
    calm, storm, total = done.lines
    assert [calm["differ"], storm["differ"]] == [False, True]
    assert total["differing"] == ["storm"]
    assert total["states"] == 2
    assert [of["errors"] for of in total["sums"]] == [0, storm["measures"][1]["errors"]]
    assert total["worst"][1]["errors"] == {"value": storm["measures"][1]["errors"], "state": "storm"}
    shown = run("compare", state, one, other)
    assert "All 2 states" in shown.out
    assert "They differ on 1 state: storm." in shown.out
    assert "(storm)" in shown.out.splitlines()[-1]


def test_a_state_without_an_answer_is_said_and_not_summed(run: Runner, written: Written) -> None:
    state = written("s.jsonl", {**document(), "id": 1}, {**document(), "id": 2})
    answers = written("a.jsonl", {"id": 1, "assignment": GOOD}, {"id": 2, "error": "gave up"})
    done = run("compare", state, "sticky", answers, "--json")
    assert done.code == 2
    assert "gave up" in done.lines[1]["measures"][1]["error"]
    assert done.lines[2]["sums"][0]["standbys"] == done.lines[0]["measures"][0]["standbys"]
    assert (done.lines[2]["states"], done.lines[2]["summed"]) == (2, 1)
    shown = run("compare", state, "sticky", answers)
    assert "gave up" in shown.err
    assert shown.out.splitlines()[0] == "1 of 2 states"


def test_where_there_are_no_sums_there_is_no_table_of_noughts(run: Runner, written: Written) -> None:
    """One that failed on all states had no errors, and made the others have none: all was 0, of all states."""
    state = written("s.jsonl", document(), document())
    done = run("compare", state, "sticky", written("a.jsonl", {"error": "gave up"}, {"error": "gave up"}))
    assert (done.code, done.out) == (2, "")
    assert done.err.count("gave up") == 2


def test_answers_must_be_as_many_as_the_states(run: Runner, written: Written) -> None:
    state = written("s.jsonl", document(), document())
    for name, answers, text in (
        ("few.jsonl", [GOOD], "has more states than"),
        ("many.jsonl", [GOOD] * 3, "has more assignments than"),
    ):
        done = run("compare", state, written(name, *answers))
        assert done.code == 2
        assert text in done.err


def test_states_among_the_answers_are_told_so_in_a_line(run: Runner, written: Written) -> None:
    """Each had an error about its id for each state, and a table without a number below."""
    first = written("first.jsonl", *({**document(), "id": one} for one in (1, 2)))
    second = written("second.jsonl", *({**document(), "id": one} for one in (3, 4)))
    done = run("compare", first, second, "sticky")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert f"{second}, line 1 is a state, where an answer to one of {first} is expected. Maybe put all states" in line
    assert "is a state, where an answer" in run("validate", first, second).err


def test_answers_in_place_of_states_are_told_so(run: Runner, written: Written) -> None:
    """It was advised to write one state per line."""
    state = written("s.json", document())
    for answers in (written("list.json", GOOD), written("answers.jsonl", {"id": 1, "assignment": GOOD})):
        done = run("compare", answers, "sticky")
        assert done.code == 2
        assert "The value is an assignment, where a state is expected. Maybe the file of states is meant." in done.err
        assert "is a state, where an answer" in run("compare", answers, state).err


def test_where_nothing_was_measured_there_is_no_table(run: Runner, written: Written) -> None:
    done = run("compare", written("s.json", document()), written("no.jsonl", "no JSON"))
    assert (done.code, done.out) == (2, "")
    assert "The text is not JSON" in done.err


def test_an_unknown_assignor_and_standard_input_twice_are_refused(run: Runner, written: Written) -> None:
    state = written("s.json", document())
    assert "stiky" in run("compare", state, "stiky").err
    assert "cannot be read" in run("compare", state, "no/such/decisions.jsonl").err
    assert "must be a TaskAssignor class" in run("compare", state, "x" * 300).err
    assert "once only" in run("compare", "-", "-").err


def test_racks_may_be_as_many_as_clients() -> None:
    """Where each host is a rack, no table of racks and sets of racks has room: that of 100,000 partitions would take gigabytes."""
    many = 1_500
    state = a_state(
        [a_stateless_task(f"0_{number}", racks=[f"r{number}", f"r{(number + 1) % many}"]) for number in range(many)],
        [a_client(number + 1, rack=f"r{number}") for number in range(many)],
    )
    answers = [
        an_assignment(state, {(number + away) % many + 1: [f"0_{number}"] for number in range(many)})
        for away in range(3)
    ]
    tracemalloc.start()
    try:
        assert [measure(state, one).cross_rack_cost for one in answers] == [0, 0, many]
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_measures_are_what_they_say() -> None:
    from task_assignor.sdk import assignment_from_json

    partitions = [
        {"topic": "in", "partition": 0, "isSource": True, "isChangelog": False, "rackIds": ["a"]},
        {"topic": "log", "partition": 0, "isSource": False, "isChangelog": True, "rackIds": ["b"]},
    ]
    client = {"numProcessingThreads": 2, "taskLags": {}, "clientTags": {"zone": "z"}}
    state = state_from_json(
        {
            "configs": {"numStandbyReplicas": 1, "rackAwareTrafficCost": 10, "rackAwareAssignmentTags": ["zone"]},
            "tasks": [
                {"id": f"0_{number}", "isStateful": True, "endOffsetSum": 100, "topicPartitions": partitions}
                for number in range(3)
            ],
            "clients": [
                {**client, "processId": FIRST, "rackId": "a", "previousActiveTasks": ["0_0"], "taskLags": {"0_0": -2}},
                {
                    **client,
                    "processId": SECOND,
                    "rackId": "b",
                    "previousStandbyTasks": ["0_0"],
                    "taskLags": {"0_0": 7, "0_2": -3},
                },
            ],
        }
    )
    answer = assignment_from_json(
        [
            {"processId": FIRST, "activeTasks": ["0_1"], "standbyTasks": ["0_0"], "followupRebalanceDeadlineMs": 5},
            {"processId": SECOND, "activeTasks": ["0_0", "0_2"], "standbyTasks": []},
        ]
    )
    found = measure(state, answer)
    assert found.moved == 1  # 0_0; the others were nowhere
    assert found.standbys_moved == 0  # it was there before, as active
    assert found.lag_to_restore == 7 + 100
    assert found.standby_lag == 0
    assert found.lag_unknown == 1
    assert found.active_spread == 0.5
    assert found.spread == 0
    assert (found.standbys, found.standbys_missing) == (1, 2)
    assert found.tag_values == 1  # both holders of 0_0 are in zone z
    assert found.cross_rack_cost == 10 * (2 + 1)  # two sources read from b, one changelog from a
    assert found.errors == 0
    assert found.warnings == 2
    assert found.followups == 1


def test_json_is_one_line_per_state(run: Runner, written: Written) -> None:
    done = run("compare", written("s.jsonl", {"tasks": 1}), "sticky", "--json")
    assert done.code == 2
    assert json.loads(done.out)["error"]
