"""What the screen says of the events of a run; here into a file, so without colours and live tables."""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    ClientLost,
    ClientProgress,
    ClientTasks,
    Rebalanced,
    RunEvent,
    RunFailed,
    RunFinished,
    SourcesGrown,
    TaskRestored,
    TaskStalled,
)
from task_assignor.screen import RunScreen, run_screen
from task_assignor.sdk import TaskId
from task_assignor.sdk.logs import show_messages

TASKS = tuple(TaskId(0, partition) for partition in range(4))


def shown(*events: RunEvent, width: int = 100) -> list[str]:
    """The lines, without the seconds in front."""
    file = io.StringIO()
    with RunScreen(Console(file=file, width=width)) as screen:
        for event in events:
            screen.show(event)
    return [re.sub(r"^ +[\d.]+ s  ", "", line) for line in file.getvalue().splitlines()]


def joined(client: str, number: int) -> ClientJoined:
    return ClientJoined(client, "p", f"{client}-{number}", f"spark task {number} (stage 1, attempt 0)", "host", 100)


def test_a_takeover_is_told_in_one_line_each_with_reason_standbys_and_rows() -> None:
    before = {"a": ClientTasks(TASKS[:2], TASKS[2:]), "b": ClientTasks(TASKS[2:], TASKS[:1])}
    after = {"a": ClientTasks(TASKS)}

    lines = shown(
        joined("a", 1),
        joined("b", 2),
        Rebalanced(1, "2 clients are there", before),
        ClientLost("b", "b-2", "connection closed"),
        Rebalanced(2, "client b lost (connection closed)", after),
        TaskRestored("a", TASKS[2], "active", 17, 0, "memory", 5, 0.1),
        TaskRestored("a", TASKS[3], "active", 1_000, 0, "changelog", 5, 0.1),
        BatchesCommitted(6, 2, {}, 10, 10, {"a": 10}, 0.1, 1_000),
        joined("b", 3),
    )

    assert lines[0] == "a joined as spark task 1, process 100"
    assert "generation 1, 2 clients are there: 4 tasks for 2 clients" in lines
    assert any(re.fullmatch(r"│ b +│ 0_2\.\.3 +│ 0_0 +│", line) for line in lines)
    restored = (
        "state restored: 1 task from a standby in memory (17 changelog rows read); "
        "1 task from the changelog alone (1,000 changelog rows read)"
    )
    assert "b is lost: connection closed" in lines
    told = "generation 2, client b lost (connection closed): 4 tasks for 1 client, 2 active tasks moved: 2 because b is lost"
    assert told in lines
    assert any(
        re.search(r"│ 0_0\.\.3 +│ +│ 0_2\.\.3 from b, which is lost; standby was here +│", line) for line in lines
    )
    assert lines[-2:] == [restored, "b is back as spark task 3, process 100"]


def test_a_client_that_stands_still_is_shown_with_what_it_is_at() -> None:
    reason = "the batch of task 0_2 has not got on for 10000 ms: its files are synced"
    assert shown(TaskStalled("a", TASKS[2], reason, 10_000)) == [f"a: {reason}"]


def test_every_generation_has_its_table_with_the_reason_of_every_move() -> None:
    """Those of the lost client, those of a client that is back, and those that move although both clients stay."""
    first = {"a": ClientTasks(TASKS[:1], TASKS[1:2]), "b": ClientTasks(TASKS[1:2]), "c": ClientTasks(TASKS[2:])}
    second = {"a": ClientTasks(TASKS[1:3]), "b": ClientTasks((TASKS[0], TASKS[3]))}
    third = {**second, "a": ClientTasks(TASKS[1:2]), "c": ClientTasks(TASKS[2:3])}
    joins = [joined(client, number) for number, client in enumerate("abc")]
    text = "\n".join(
        shown(
            *joins,
            Rebalanced(1, "3 clients are there", first),
            Rebalanced(2, "c lost", second),
            joins[2],
            Rebalanced(3, "c joined", third),
            width=120,
        )
    )

    assert [f"The assignment, generation {number}" in text for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert "4 active tasks moved: 2 because c is lost, 2 more that the assignor placed anew" in text
    for row in (
        "0_1 from b: the assignor placed anew; standby was here",
        "0_0 from a: the assignor placed anew; no standby was here",
        "0_2 from c, which is lost; no standby was here",
        "0_2 from a: c is back; no standby was here",
    ):
        assert row in text


def test_a_client_that_leaves_is_the_reason_of_the_moves_of_its_tasks() -> None:
    """The assignor was said to have placed them anew."""
    before = {"a": ClientTasks(TASKS[:2]), "b": ClientTasks(TASKS[2:])}
    after = {"a": ClientTasks(TASKS), "b": ClientTasks()}
    leaves = Rebalanced(2, "b leaves (SIGTERM)", after, leaving=("b",))
    text = "\n".join(shown(joined("a", 1), joined("b", 2), Rebalanced(1, "2 clients are there", before), leaves))
    assert "generation 2, b leaves (SIGTERM): 4 tasks for 2 clients, 2 active tasks moved: 2 because b leaves" in text
    assert "0_2..3 from b, which leaves; no standby was here" in text


def test_a_run_without_clients_says_that_it_waits_and_for_how_long() -> None:
    lines = shown(joined("a", 1), ClientLeft("a", "a-1", "SIGTERM", 60_000), ClientLost("b", "b-2", "gone", 1_500))
    assert lines[1:] == [
        "a has left: SIGTERM",
        "no client is there any more; the run waits for one for 1 min",
        "b is lost: gone",
        "no client is there any more; the run waits for one for 1.5 s",
    ]


def test_in_a_notebook_there_are_lines_of_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich has a document for each, in whose text there are a terminal's codes; its kernels say that they want colours."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with RunScreen() as screen:
        screen.show(Rebalanced(1, "a reason", {"a": ClientTasks(TASKS)}))
        screen.say("in red", "red")
    out = capsys.readouterr().out
    assert out.splitlines()[-1].endswith(" s  in red")
    assert "\x1b" not in out


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    file = io.StringIO()
    reason = "client b lost (connection closed), and its state has to come from somewhere else"
    RunScreen(Console(file=file, width=44, force_terminal=True, no_color=True)).say(reason)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    lines = text.splitlines()
    assert (len(lines), max(map(len, lines)) <= 44) == (3, True)
    assert " ".join(text.split()[2:]) == reason


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [_Terminal(), io.StringIO()])
def test_messages_go_above_the_table_or_to_the_file_that_standard_error_is(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO
) -> None:
    """They tore the table, which wiped some of them away; and in a file they were missing."""
    stdout = _Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    (handler,) = _handlers_made(monkeypatch)
    with RunScreen(Console(file=stdout, force_terminal=True)):
        handler.emit(logging.makeLogRecord({"msg": "a message"}))
        sys.stderr.write("a warning\n")
    is_above = stderr.isatty()
    for text in ("a message\n", "a warning\n"):
        assert (text in stdout.getvalue(), text in stderr.getvalue()) == (is_above, not is_above)


def _handlers_made(monkeypatch: pytest.MonkeyPatch) -> list[logging.Handler]:
    """What `show_messages` would have Python use, if it was not for pytest's own handlers."""
    made: list[logging.Handler] = []
    monkeypatch.setattr(logging, "basicConfig", lambda *, handlers, **_: made.extend(handlers))
    show_messages()
    return made


def test_the_lag_is_that_of_the_sources_also_before_the_first_commit() -> None:
    """It was none, for as long as the first batches took, or states were restored."""
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=100, height=50, force_terminal=True, no_color=True))

    def line() -> str:
        file.truncate(0)
        with screen:
            pass
        (found,) = (line for line in file.getvalue().splitlines() if "%" in line)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[╌━\0\r]", "", found).strip()

    assert line() == "0%"
    screen.show(Rebalanced(7, "a is there", {"a": ClientTasks(TASKS)}))
    screen.show(SourcesGrown({TASKS[0]: {"left": 1_000, "right": 10}, TASKS[1]: {"left": 20}}))
    assert line() == "0%  lag 1,030 rows  generation 7"
    screen.show(BatchesCommitted(9, 7, {}, 600, 0, {"a": 600}, 0.1, 430, lags={TASKS[0]: {"left": 400, "right": 10}}))
    assert line() == "58%  lag 430 rows  commit 9  generation 7"
    screen.show(SourcesGrown({TASKS[1]: {"left": 100}}))
    assert line() == "54%  lag 510 rows  commit 9  generation 7"


@pytest.mark.parametrize("width", [40, 100])
def test_a_narrow_table_cuts_neither_names_nor_numbers(width: int) -> None:
    """Clients of long names, or all in a narrow terminal, looked alike: `cli…`; and 123,456 like 12."""
    names = [f"shop-streams-7f9c9d8b7c-abcde-eu-west-{number}" for number in (1, 2)]
    before = {name: ClientTasks((task,)) for name, task in zip(names, TASKS, strict=False)}
    events: list[RunEvent] = [*(joined(name, 1) for name in names), Rebalanced(1, "2 clients are there", before)]
    events += [Rebalanced(2, "1 lost", {names[1]: ClientTasks(TASKS[:2])})]
    events += [ClientProgress(names[1], (), (), 0, 0, 123_456)]
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=width, force_terminal=True, no_color=True))
    with screen:
        for event in events:
            screen.show(event)
    assert "…" not in file.getvalue()


def test_of_many_clients_those_are_shown_for_whom_there_is_room() -> None:
    """All were drawn four times a second and then cut: of thousands that left no time for the run."""
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=100, height=20, force_terminal=True, no_color=True))
    for number in range(14):
        screen.show(joined(f"client-{number:02}", 1))
        if number == 12:
            file.truncate(0)
            with screen:
                pass
            assert "client-12" in file.getvalue()
            assert "more" not in file.getvalue()
    file.truncate(0)
    with screen:
        pass
    assert "client-12" in file.getvalue()
    assert "client-13" not in file.getvalue()
    assert "and 1 client more" in file.getvalue()


def test_of_a_thousand_clients_a_rebalance_and_the_rates_are_told_in_short() -> None:
    """All of them were drawn at each rebalance, and all their rates in one line each minute."""
    names = [f"client-{number:03}" for number in range(1_000)]
    before = {name: ClientTasks((TaskId(0, number),)) for number, name in enumerate(names)}
    after = {name: before[name] for name in names[:-1]}
    after[names[-2]] = ClientTasks((TaskId(0, 998), TaskId(0, 999)))
    rates = dict.fromkeys(names[1:], 10) | {names[0]: 2_000}

    lines = shown(
        *(joined(name, 1) for name in names),
        Rebalanced(1, "1,000 clients are there", before),
        Rebalanced(2, "client-999 lost", after),
        BatchesCommitted(0, 2, {}, 11_990, 10, rates, 0.1, 0),
    )

    tables = lines[1_000:]
    assert len([line for line in tables if "client-0" in line]) == 40 + 39
    assert any("0_999 from client-999" in line for line in tables), "to whom tasks came is shown"
    assert [line.split(";")[0] for line in tables if "more" in line] == [f"and {n} clients more" for n in (960, 959)]
    assert lines[-1] == "100% of the rows, commit 0: 48k rows/s (1,000 clients, each 40 to 8k)"


def test_an_assignment_that_is_kept_and_a_failure_are_said() -> None:
    lines = shown(
        Rebalanced(1, "a reason", {"a": ClientTasks(TASKS)}, kept="the assignor asked for a retry"),
        RunFailed("this is why"),
    )

    assert lines == ["generation 1 stays, a reason: the assignor asked for a retry", "failed; the error says why"]


def test_goals_that_were_perhaps_not_reached_are_said() -> None:
    event = Rebalanced(1, "a reason", {"a": ClientTasks(TASKS)}, inexact=("STANDBY_TAGS",))

    assert "Perhaps not reached exactly: STANDBY_TAGS." in shown(event)


def test_progress_is_a_line_per_fifth_of_the_rows() -> None:
    lines = shown(joined("a", 1), *(BatchesCommitted(n, 1, {}, 10, 10, {"a": 10}, 0.1, 90 - 10 * n) for n in range(10)))

    assert [line.split(":")[0] for line in lines[1:]] == [
        f" {share}% of the rows, commit {batch}" for share, batch in ((20, 1), (40, 3), (60, 5), (80, 7))
    ] + ["100% of the rows, commit 9"]


def test_in_a_file_there_is_a_line_a_minute_while_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that went on said nothing more once it had read what was there when it began."""
    clock = [0.0]
    monkeypatch.setattr(run_screen, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=100))
    screen.show(joined("a", 1))
    for number, rows in ((0, 100), (1, 1), (2, 1), (3, 0), (4, 1)):
        screen.show(BatchesCommitted(number, 1, {}, rows, 1, {"a": rows}, 0.1, 0))
        clock[0] += 40
    assert "100% of the rows, commit 2: 0 rows/s (a 0)" in file.getvalue(), "a row in the last two seconds"
    commits = re.findall(r"(\d+\.\d) s  100% of the rows, commit (\d)", file.getvalue())
    assert commits == [("0.0", "0"), ("80.0", "2"), ("160.0", "4")]


def test_rates_are_told_over_the_time_that_batches_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed every ten seconds was told as that of a quarter of a second."""
    clock = [0.0]
    monkeypatch.setattr(run_screen, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=100))
    screen.show(joined("a", 1))
    screen.show(joined("b", 2))
    clock[0] = 5
    screen.show(Rebalanced(1, "2 clients are there", {"a": ClientTasks(TASKS[:2]), "b": ClientTasks(TASKS[2:])}))
    for number in range(5):
        # They are ordered a bit before the commit of those before them is told.
        clock[0] += 9.99
        rows = {"a": 10_000, "b": 10_000}
        screen.show(BatchesCommitted(number, 1, {}, 20_000, 1, rows, 10.0, 80_000 - 20_000 * number))
    clock[0] += 600
    screen.show(BatchesCommitted(5, 1, {}, 10_000, 1, {"a": 10_000}, 0.1, 0))
    told = re.findall(r"commit \d: (.*)", file.getvalue())
    assert told == [*["2k rows/s (a 1k, b 1k)"] * 5, "1k rows/s (a 1k, b 0)"]


def test_one_of_a_thing_is_not_said_as_several() -> None:
    assert shown(RunFinished(1, 1, 2_000, 1.0)) == ["finished: 1 row in, 2,000 rows out, 1 rows/s"]


def test_what_is_to_be_restored_is_told_with_the_time_that_is_left() -> None:
    tasks = {"a": ClientTasks(TASKS)}
    restoring = Rebalanced(2, "b lost", tasks, restoring={TASKS[2]: 1_000, TASKS[3]: 3_000})
    lines = shown(joined("a", 1), restoring)
    assert "to restore: 2 tasks, 4,000 changelog rows" in lines

    done = TaskRestored("a", TASKS[0], "active", 500, 0, "changelog", 5, 3_600.0)
    lines = shown(joined("a", 1), done, restoring)
    (told,) = (line for line in lines if line.startswith("to restore"))
    # 7.2 s a row; the screen has needed less than a minute until here.
    assert 28_740 <= float(told.removeprefix("to restore: 2 tasks, 4,000 changelog rows, about ").split()[0]) <= 28_800


@pytest.mark.parametrize(("threads", "snapshot_rows"), [(1, 0), (4, 0), (1, 99_000)])
def test_the_time_that_is_left_of_restores_falls_as_it_passes(
    monkeypatch: pytest.MonkeyPatch, threads: int, snapshot_rows: int
) -> None:
    """The time of those that were done was taken off twice: none was left when half of them were. And of snapshots nothing was known."""
    clock = [0.0]
    monkeypatch.setattr(run_screen, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))
    tasks = tuple(TaskId(0, partition) for partition in range(12))
    file = io.StringIO()
    screen = RunScreen(Console(file=file, width=100, height=50, force_terminal=True, no_color=True))
    screen.show(joined("a", 1))
    screen.show(Rebalanced(1, "a is there", {"a": ClientTasks(tasks)}, restoring=dict.fromkeys(tasks, 1_000)))
    # Few changes do not take less time where most of the state is in a snapshot.
    rows = 1 if snapshot_rows else 1_000
    for done, task in enumerate(tasks[:-1], 1):
        clock[0] = 10.0 * -(-done // threads)
        screen.show(TaskRestored("a", task, "active", rows, snapshot_rows, "changelog", 5, 10.0))
        clock[0] += 4.0
        file.truncate(0)
        with screen:
            pass
        if done % threads == 0:
            left_s = 10.0 * 12 / threads - clock[0]
            left = f"{12 - done} task{'s' if done < 11 else ''}, {12_000 - done * 1_000:,} changelog rows"
            told = re.findall(f"restoring {left}, about (.*) s", file.getvalue())
            assert float(told[0]) == pytest.approx(left_s, rel=0.02)


def test_who_waits_for_the_next_rebalance_is_named() -> None:
    given = {"a": ClientTasks(TASKS), **{name: ClientTasks() for name in "cb"}}
    soon = round(time.time() * 1000) + 60_000
    lines = shown(Rebalanced(1, "c joined", given, followup_deadline_ms=soon))
    (told,) = (line for line in lines if line.endswith(" s; until then no active task is at b, c"))
    # Time goes on until it is told.
    assert 30 <= int(told.removeprefix("the assignor is to be asked again in ").split()[0]) <= 60
    many = {"a": ClientTasks(TASKS), **{str(number): ClientTasks() for number in range(5)}}
    assert "the assignor is to be asked again in 0 s; until then no active task is at 5 clients" in shown(
        Rebalanced(1, "c joined", many, followup_deadline_ms=0)
    )
    assert not [line for line in shown(Rebalanced(1, "c joined", given)) if "asked again" in line]


def test_names_of_clients_are_neither_markup_nor_commands() -> None:
    name = "[bold]a[/]\x1b[31m"
    lines = shown(joined(name, 1), Rebalanced(1, f"{name} is there", {name: ClientTasks(TASKS)}))
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert text.count(r"[bold]a[/]\x1b[31m") == 3
