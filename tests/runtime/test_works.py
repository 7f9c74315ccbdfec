"""What a client tells of its works is what is new, and the coordinator knows all of them by it."""

from __future__ import annotations

import random

from task_assignor.runtime.machines.client.works import SHARE, Works
from task_assignor.runtime.machines.coordinator.members import Member
from task_assignor.runtime.machines.protocol import Hello, Running, Work
from task_assignor.sdk import ProcessId, TaskId

TASKS = [TaskId(0, partition) for partition in range(50)]
KINDS = ("restore", "snapshot", "close", "delete", SHARE)


def _member() -> Member:
    hello = Hello("c", "pid", "run", 1, None, {}, None, "attempt", "host", 1, {})
    return Member("c-1", 1, hello, 0, ProcessId.parse("00000000-0000-0000-0000-000000000001"))


def _hear(member: Member, told: Running | None) -> None:
    if told is not None:
        member.take_running(told.works, told.ended, 0)


def test_a_work_that_begins_is_told_without_those_that_run() -> None:
    """All of them each time were most of what a client with fifty tasks did, and of what its coordinator did."""
    works = Works()
    for number, task in enumerate(TASKS, 1):
        works.begin("process", task)
        assert works.news() == Running({number: Work("process", task)})
    works.end("process", TASKS[7])
    assert works.news() == Running({}, (8,))
    assert works.news() is None


def test_what_the_coordinator_believes_to_run_is_what_runs() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        works, member, running = Works(), _member(), dict[tuple[str, TaskId], int]()
        for _ in range(60):
            task, kind = chance.choice(TASKS[:3]), chance.choice(KINDS)
            match chance.choice(("begin", "process", "end", "answer", "get on", "leave")):
                case "begin" if (kind, task) not in running:
                    works.begin(kind, task)
                    running[kind, task] = 0
                case "process" if ("process", task) not in running and ("sync", task) not in running:
                    works.begin("process", task)
                    running["process", task] = 0
                case "end" if ("process", task) in running:
                    works.await_disk(task)
                    running["sync", task] = running.pop(("process", task)) + 1
                case "end":
                    works.end(kind, task)
                    running.pop((kind, task), None)
                case "answer" if ("sync", task) in running:
                    member.take_answer(task)
                    works.answer(task)
                    del running["sync", task]
                case "get on" if (kind, task) in running:
                    running[kind, task] += 1
                    works.get_on({(kind, task): (running[kind, task], "")})
                case "leave" if chance.random() < 0.1:
                    works.leave()
                    member = _member()
                    running = {key: steps for key, steps in running.items() if key[0] != "sync"}
            _hear(member, works.news())
            found = sorted((one.work.kind, one.work.task) for one in member.running.values())
            assert found == sorted(("process" if what == "sync" else what, which) for what, which in running), seed
        works.get_on({})
        _hear(member, works.news())
        assert sorted(one.work.steps for one in member.running.values()) == sorted(running.values())
