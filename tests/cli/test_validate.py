"""`task-assignor validate`: verdicts, pairs of files, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from task_assignor.validation import report_violations
from tests.cli.conftest import Runner
from tests.sdk.documents import FIRST, SECOND, document
from tests.vectors import FOLDER, vectors

Written = Callable[..., Path]
GOOD = [
    {"processId": FIRST, "activeTasks": ["0_0", "orders__1_0"], "standbyTasks": ["0_1"]},
    {"processId": SECOND, "activeTasks": ["0_1"], "standbyTasks": ["0_0"]},
]
FEW = [{**GOOD[0], "standbyTasks": []}, GOOD[1]]
WRONG = [GOOD[0], {**GOOD[1], "activeTasks": ["0_0"], "standbyTasks": []}]


def test_a_right_assignment_is_fine(run: Runner, written: Written) -> None:
    done = run("validate", written("s.json", document()), written("a.json", GOOD))
    assert (done.code, done.err) == (0, "")
    assert "The assignment is valid" in done.out


def test_a_wrong_assignment_is_a_finding_with_every_violation(run: Runner, written: Written) -> None:
    done = run("validate", written("s.json", document()), written("a.json", WRONG))
    assert (done.code, done.err) == (1, "")
    for text in ("Kafka says ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES", "TASK_WITHOUT_ACTIVE", "0_1"):
        assert text in done.out


def test_warnings_are_findings_only_if_asked_for(run: Runner, written: Written) -> None:
    state, assignment = written("s.json", document()), written("a.json", FEW)
    assert [run("validate", state, assignment, *more).code for more in ([], ["--strict"])] == [0, 1]


def test_a_program_gets_one_line_per_state(run: Runner, written: Written) -> None:
    states = written("s.jsonl", document(), {**document(), "id": 7}, {**document(), "id": 8})
    done = run(
        "validate", states, written("a.jsonl", GOOD, {"id": 7, "assignment": WRONG}, {"id": 8, "error": "no"}), "--json"
    )
    assert done.code == 2
    good, wrong, error = done.lines
    assert good == {"id": "small", "valid": True, "kafkaError": "NONE", "violations": []}
    assert (wrong["id"], wrong["valid"]) == (7, False)
    assert {
        "kind": "TASK_WITHOUT_ACTIVE",
        "severity": "error",
        "task": "0_1",
        "processId": None,
    }.items() <= wrong["violations"][1].items()
    assert (error["id"], "There is no assignment, but the error: no" in error["error"]) == (8, True)


def test_the_recorded_verdicts_of_kafka(run: Runner) -> None:
    path = FOLDER / "validate.jsonl.gz"
    done = run("validate", path, path, "--json")
    assert done.code == 2
    for vector, answer in zip(vectors("validate"), done.lines, strict=True):
        assert answer["id"] == vector.id
        if vector.throws:
            assert "cannot be active and standby on one client" in answer["error"]
        else:
            assert answer["kafkaError"] in (vector.json.get("errorsSeen") or [vector.expected["error"]])
            report = report_violations(vector.state, vector.assignment)
            assert [violation.message for violation in report.violations] == [
                one["message"] for one in answer["violations"]
            ]


def test_answers_of_plan_are_assignments(run: Runner, written: Written) -> None:
    path = written("s.jsonl", document(), {**document(), "id": "other"})
    plan = run("plan", path, "-a", "sticky", "--json")
    done = run("validate", path, "-", "--json", stdin=plan.out.encode())
    assert done.code == 0
    assert [answer["id"] for answer in done.lines] == ["small", "other"]


def test_bad_input_is_one_error_that_says_which_file(run: Runner, written: Written) -> None:
    state, assignment = written("s.json", document()), written("a.json", GOOD)
    both: list[tuple[Any, Any, str]] = [
        ("missing.json", assignment, "missing.json cannot be read"),
        (state, "missing.json", "missing.json cannot be read"),
        (state, written("b.json", "["), "b.json, line 1: $: The text is not JSON"),
        (written("t.json", "["), assignment, "t.json, line 1: $: The text is not JSON"),
        (state, written("c.json", [{}]), "c.json, line 1: $[0]: The member processId is missing"),
        (
            state,
            written("d.json", {"id": "x", "assignment": []}),
            "$.id: The value must be 'small', the id of the state",
        ),
        (state, written("e.jsonl", GOOD, GOOD), "has more assignments than"),
        (written("t.jsonl", document(), document()), assignment, "has more states than"),
        ("-", "-", "not both"),
    ]
    for one, two, message in both:
        done = run("validate", one, two)
        assert (done.code, message in done.err) == (2, True), done.err
        assert len(done.err.splitlines()) == 1


def test_documents_of_many_lines_are_read(run: Runner, written: Written) -> None:
    state = written("s.json", json.dumps(document(), indent=1))
    assert run("validate", state, written("a.json", json.dumps(GOOD, indent=1))).code == 0
