"""`task-assignor lead`: requests line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.lead_json import answer_lead
from task_assignor.sdk import ApplicationState, TaskAssignment
from tests.cli.conftest import Runner
from tests.vectors import FOLDER, lines_of

Written = Callable[..., Path]
ERRORS = ("missing_source_topic", "shutdown_requested")


class Inexact(StickyTaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        return TaskAssignment(super().assign(application_state).assignment, inexact={"B_GOAL", "A_GOAL"})


VECTORS = FOLDER.parent / "consumer_level" / "streams_assignor.jsonl.gz"


def test_the_recorded_requests_as_they_stand(run: Runner) -> None:
    done = run("lead", VECTORS)
    lines = lines_of("consumer_level/streams_assignor")
    assert done.code == 0
    assert [found["id"] for found in done.lines] == [line["id"] for line in lines]
    for found, line in zip(done.lines, lines, strict=True):
        response = found["response"]
        assert response["internal_topics"] == line["response"]["internal_topics"]
        assert response["subtopologies"] == line["response"]["subtopologies"]
        assert response["members"].keys() == line["response"]["members"].keys()
    same = sum(found["response"] == line["response"] for found, line in zip(done.lines, lines, strict=True))
    assert same >= 50


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"topics": {"in-0-a": "6"}}, "$.request.topics"),
    ({"topics": {"in-0-a": 10**9}}, "$.request.topics"),
    ({"members": None}, "$.request.members"),
    ({"config": {"num.standby.replicas": -1}}, "num.standby.replicas"),
    ({"config": {"num.standby.replicas": "-1"}}, "num.standby.replicas"),
    ({"config": {"task.assignor.class": "no.such.Assignor"}}, "no.such"),
    ({"members": [{"id": "m", "user_data": "00"}]}, "$.request.members[0]"),
    ({"now_ms": "soon"}, "$.request.now_ms"),
    ({"leader_process_id": "x"}, "$.request.leader_process_id"),
    # They were taken for what somebody else wrote, and left out: a request without stores, or without racks.
    ({"newlyCreated": ["*"]}, "$.request.newlyCreated: The member is not known. Maybe newly_created is meant."),
    (
        {"subtopologies": [{"sources": ["in-0-a"], "store": ["s"]}]},
        "$.request.subtopologies[0].store: The member is not known.",
    ),
    (
        {"members": [{"id": "m", "racks": "a"}]},
        "$.request.members[0].racks: The member is not known. Maybe rack is meant.",
    ),
    (
        {"members": [{"id": "m", "subscription": {"taskOffsetSums": []}}]},
        "subscription.taskOffsetSums: The member is not known.",
    ),
    ({"end_offsets_fail": "no"}, "$.request.end_offsets_fail: The value must be true or false, but is 'no'."),
]


def test_goals_that_were_perhaps_not_reached_are_named() -> None:
    vector = next(v for v in lines_of("consumer_level/streams_assignor") if v["request"]["scenario"] not in ERRORS)
    assert "inexact" not in answer_lead(JsonValue(vector["request"]))
    assert answer_lead(JsonValue(vector["request"]), lambda _: Inexact)["inexact"] == ["A_GOAL", "B_GOAL"]


@pytest.mark.parametrize(("change", "told"), BROKEN)
def test_a_wrong_request_is_one_error_and_hides_no_other(
    run: Runner, written: Written, change: dict[str, Any], told: str
) -> None:
    good = next(
        v for v in lines_of("consumer_level/streams_assignor") if "task.assignor.class" not in v["request"]["config"]
    )
    bad = {**good["request"], **change}
    done = run("lead", written("r.jsonl", {"id": 1, "request": bad}, {"id": 2, "request": good["request"]}))
    assert done.code == 1
    assert done.lines[0]["id"] == 1
    assert told in json.dumps(done.lines[0])
    assert "members" in done.lines[1]["response"]


def test_a_group_that_cannot_be_led_says_why(run: Runner, written: Written) -> None:
    request = dict(lines_of("consumer_level/streams_assignor")[1]["request"])
    request["topics"] = {**request["topics"], "app-store-1-0-changelog": 77}
    done = run("lead", written("r.jsonl", request))
    assert done.code == 1
    message = done.lines[0]["response"]["error"]["message"]
    assert "app-store-1-0-changelog" in message
    assert "77" in message
