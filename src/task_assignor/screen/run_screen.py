"""The events of a run as lines, a table of the assignment, live progress on a terminal."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

import attrs
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from task_assignor.runtime import (
    BatchesCommitted,
    ClientJoined,
    ClientLeft,
    ClientLost,
    ClientProgress,
    ClientTasks,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RunFailed,
    RunFinished,
    RunStopping,
    SourcesGrown,
    TaskRestored,
    TaskStalled,
)
from task_assignor.sdk import TaskId
from task_assignor.sdk.ids import ranges
from task_assignor.sdk.text import counted, duration, perhaps_inexact, printable, printable_lines

PIPED_WIDTH = 100
_RATE_WINDOW_S = 2.0
"""Rates are over so long, or over as long as the batches took: those of a minute all come at its end."""
_AROUND_TABLE = 7
"""Lines of the live screen that are no rows of clients: one above them, four of the table, two below."""
_NAMED = 4
"""How many clients a line names; of more it says the number."""
_ROWS = 40
"""How many clients the table of an assignment shows: a thousand would push what came before it off every screen."""
_PIPED_STEPS = 5
"""Lines about progress where there is no live table."""
_PIPED_EVERY_S = 60.0
"""At least so often, while rows are processed."""


def make_console() -> Console:
    """A console for standard output; where that is a file, a pipe or a notebook: no colours, and a width of its own."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    # In a notebook rich would make a document of each line, with a terminal's codes in its text.
    return Console(highlight=False, width=PIPED_WIDTH, no_color=True, force_jupyter=False, force_terminal=False)


class RunScreen:
    """Shows the events of a run. Used as a context manager around it; in a file or a notebook there are lines only.

    Args:
        console: where to; None: standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = make_console() if console is None else console
        self._begin = time.monotonic()
        self._attempts: dict[str, str] = {}
        self._present: set[str] = set()
        self._assignment: dict[str, ClientTasks] = {}
        self._generation = 0
        self._processed = 0
        self._lags: dict[TaskId, Mapping[str, int]] = {}
        self._remaining = self._commit = -1
        """-1: they are not known yet."""
        self._recent: deque[tuple[float, BatchesCommitted]] = deque()
        self._recent_since = self._begin
        """From when on these have all rows that were committed."""
        self._restored_rows: Counter[str] = Counter()
        self._standby_lag: dict[str, int] = {}
        self._takeover: list[TaskRestored] = []
        self._restores = _Restores()
        self._next_step = 1
        self._told = self._begin
        self._live = Live(
            console=console,
            refresh_per_second=4,
            transient=True,
            # What goes to a file shall go on to do so.
            redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
            get_renderable=self._progress,
        )

    def __enter__(self) -> Self:
        self._begin = self._recent_since = time.monotonic()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """One line, with the seconds since the run began in front; a terminal that is too narrow wraps it between words."""
        seconds = Text(f"{time.monotonic() - self._begin:6.1f} s", style="dim")
        line = Text(printable_lines(text), style=style)
        if self._console.is_terminal:
            row = Table.grid(padding=(0, 2, 0, 0))
            row.add_column(no_wrap=True)
            row.add_column(overflow="fold")
            row.add_row(seconds, line)
            self._console.print(row)
        else:
            # Who reads a file looks for lines.
            self._console.print(seconds.append("  ").append(line), soft_wrap=True)

    def show(self, event: RunEvent) -> None:
        """Show an event. Give this method to `StreamsApplication.run`, or call it from what you give."""
        match event:
            case ClientJoined():
                self._joined(event)
            case ClientLost():
                self._gone(event, "is lost", "red")
            case ClientLeft():
                self._gone(event, "has left")
            case Rebalanced():
                self._rebalanced(event)
            case TaskRestored():
                self._restored(event)
            case BatchesCommitted():
                self._committed(event)
            case SourcesGrown():
                self._lags.update(event.lags)
                self._remaining = sum(sum(lags.values()) for lags in self._lags.values())
            case ClientProgress():
                self._standby_lag[event.client] = event.standby_lag
            case ResultRefused():
                self.say(f"refused a late answer for task {event.task}, batch {event.batch}: {event.reason}", "yellow")
            case TaskStalled():
                self.say(f"{event.client}: {event.reason}", "yellow")
            case RunStopping():
                self.say(
                    f"{event.reason}: the batches in progress are finished and committed, then the run ends", "yellow"
                )
            case RunFinished():
                self.say(
                    f"finished: {counted(event.rows_in, 'row')} in, {counted(event.rows_out, 'row')} out, "
                    f"{event.rows_in / max(event.seconds, 1e-3):,.0f} rows/s",
                    "green",
                )
            case RunFailed():
                # The error that ends the run says why, to whoever has called it.
                self.say("failed; the error says why", "red")

    def _joined(self, event: ClientJoined) -> None:
        again = event.client in self._attempts
        attempt = _short(event.attempt)
        runs_as = f"process {event.pid}" if attempt == f"pid {event.pid}" else f"{attempt}, process {event.pid}"
        self._present.add(event.client)
        self._attempts[event.client] = event.attempt
        self._restored_rows[event.client] = 0
        kept = f"; its folder has state of {counted(len(event.restorable), 'task')}" if event.restorable else ""
        self.say(f"{event.client} {'is back' if again else 'joined'} as {runs_as}{kept}")

    def _gone(self, event: ClientLost | ClientLeft, what: str, style: str = "") -> None:
        self._present.discard(event.client)
        self.say(f"{event.client} {what}: {event.reason}", style)
        if event.waits_ms:
            self.say(f"no client is there any more; the run waits for one for {duration(event.waits_ms)}", "yellow")

    def _rebalanced(self, event: Rebalanced) -> None:
        if event.kept:
            self.say(f"generation {event.generation} stays, {event.reason}: {event.kept}", "yellow")
            return
        former = self._assignment
        moves = _moves(former, event.assignment, self._attempts, event.leaving)
        self._assignment = dict(event.assignment)
        self._generation = event.generation
        self._takeover = []
        if not former:
            # Before, nobody could process anything.
            self._recent_since = time.monotonic()
        total = sum(len(tasks.active) for tasks in event.assignment.values())
        of_all = f"{counted(total, 'task')} for {counted(len(event.assignment), 'client')}"
        moved = f", {_summary(moves)}" if former else ""
        self.say(f"generation {event.generation}, {event.reason}: {of_all}{moved}", "bold")
        if event.inexact:
            self.say(perhaps_inexact(event.inexact))
        self._console.print(self._assignment_table(moves))
        self._restores.begin(event, time.monotonic())
        if self._restores.left:
            self.say(f"to restore: {self._restores.describe(time.monotonic())}")
        if event.followup_deadline_ms is not None:
            self.say(_followup_line(event.followup_deadline_ms, event.assignment))

    def _restored(self, event: TaskRestored) -> None:
        self._restores.end(event, time.monotonic())
        self._restored_rows[event.client] += event.rows + event.snapshot_rows
        has_state = event.rows or event.snapshot_rows or event.origin != "changelog"
        if event.role == "active" and event.batch >= 0 and has_state:
            self._takeover.append(event)

    def _committed(self, event: BatchesCommitted) -> None:
        now = time.monotonic()
        if self._takeover:
            self.say(_takeover_line(self._takeover))
            self._takeover = []
        self._commit = event.commit
        self._processed += event.rows_in
        self._lags.update(event.lags)
        self._remaining = event.remaining
        self._recent.append((now, event))
        window = max(_RATE_WINDOW_S, *(recent.seconds for _, recent in self._recent))
        while self._recent[0][0] < now - window:
            self._recent_since = self._recent.popleft()[0]
        # Whoever had nothing to do for long begins anew.
        self._recent_since = max(self._recent_since, self._recent[0][0] - window)
        total = max(self._processed + self._remaining, 1)
        is_due = self._processed * _PIPED_STEPS >= self._next_step * total or now - self._told >= _PIPED_EVERY_S
        if not self._console.is_terminal and event.rows_in and is_due:
            self._told = now
            self._next_step = self._processed * _PIPED_STEPS // total + 1
            rates = self._rates(now)
            self.say(
                f"{self._processed / total:4.0%} of the rows, commit {event.commit}: "
                f"{_thousands(sum(rates.values()))} rows/s ({_rates_line(rates)})"
            )

    def _rates(self, now: float) -> dict[str, float]:
        """Client -> rows per second, lately."""
        seconds = max(now - self._recent_since, 0.25)
        rows: Counter[str] = Counter()
        for _, recent in self._recent:
            rows.update(recent.rows_by_client)
        return {client: rows[client] / seconds for client in self._attempts}

    def _assignment_table(self, moves: Sequence[_Move]) -> Table:
        """The clients and their tasks; of many clients those to which tasks came, and as many others as there is room for."""
        came: dict[str, list[str]] = {}
        for move in moves:
            if move.source:
                came.setdefault(move.target, []).append(str(move))
        clients = sorted(self._assignment, key=lambda client: (client not in came, client))[:_ROWS]
        left = len(self._assignment) - len(clients)
        more = f"and {counted(left, 'client')} more; `task-assignor inspect-run` shows all" if left else None
        table = Table(
            title=f"The assignment, generation {self._generation}",
            caption=more,
            title_justify="left",
            caption_justify="left",
            show_lines=True,
        )
        for column in ("client", "active tasks", "standby tasks", *(("came here from, and why",) if came else ())):
            table.add_column(column, overflow="fold")
        for client in sorted(clients):
            tasks = self._assignment[client]
            row = [f"{client}\n{_short(self._attempts.get(client, ''))}", ranges(tasks.active), ranges(tasks.standby)]
            row += ["\n".join(came.get(client, ["-"]))] if came else []
            table.add_row(*(Text(printable_lines(cell)) for cell in row))
        return table

    def _progress(self) -> Group:
        """A line about all, and a table of the clients; the line is no title, which a narrow table would break."""
        total = self._processed + self._remaining if self._remaining >= 0 else 0
        share = self._processed / total if total else 0.0
        bar = "━" * round(share * 30)
        line = Text(f"{bar:╌<30} {share:4.0%}")
        line.append(f"  lag {self._remaining:,} rows" if self._remaining >= 0 else "")
        line.append(f"  commit {self._commit}" if self._commit >= 0 else "")
        line.append(f"  generation {self._generation}" if self._generation else "")
        table = Table()
        # A terminal that is too narrow shall cut neither names, which begin alike, nor numbers.
        table.add_column("client", overflow="fold")
        for column in ("active", "standby", "rows/s", "restored rows", "standby lag"):
            table.add_column(column, justify="right", overflow="fold")
        rates = self._rates(time.monotonic())
        clients = sorted(self._attempts)
        # What does not fit would be cut anyway, after all of it was drawn: of thousands that is all that Python does then.
        shown = clients[: max(self._console.height - _AROUND_TABLE, 1)]
        for client in shown:
            tasks = self._assignment.get(client, ClientTasks())
            here = client in self._present
            table.add_row(
                Text(printable(client)),
                str(len(tasks.active)) if here else "gone",
                str(len(tasks.standby)) if here else "",
                f"{rates.get(client, 0.0):,.0f}" if here else "",
                f"{self._restored_rows[client]:,}" if here else "",
                f"{self._standby_lag.get(client, 0):,}" if here else "",
                style="" if here else "red",
            )
        below = [f"and {counted(len(clients) - len(shown), 'client')} more"] if len(shown) < len(clients) else []
        below += [f"restoring {self._restores.describe(time.monotonic())}"] if self._restores.left else []
        return Group(line, table, *map(Text, below))


@attrs.define
class _Restores:
    """What is still to be restored, and how long that will take as far as finished restores tell."""

    left: dict[TaskId, tuple[str, int]] = attrs.field(factory=dict)
    """Task -> its client, and the changelog rows that it has yet to read."""
    begun: float = 0.0
    done: dict[str, tuple[int, float]] = attrs.field(factory=dict)
    """Client -> rows that it has read since then, of snapshots too, and when it was done with the last task."""
    tasks: int = 0
    """Tasks that have been restored, so far as there was something to be read, and in all of them:"""
    rows: int = 0
    snapshot_rows: int = 0
    seconds: float = 0.0

    def begin(self, event: Rebalanced, now: float) -> None:
        owners = {task: client for client, tasks in event.assignment.items() for task in tasks.active}
        self.left = {task: (owners[task], rows) for task, rows in event.restoring.items()}
        self.begun, self.done = now, {}

    def end(self, event: TaskRestored, now: float) -> None:
        rows = event.rows + event.snapshot_rows
        if rows:
            self.tasks += 1
            self.rows += rows
            self.snapshot_rows += event.snapshot_rows
            self.seconds += event.seconds
        if event.role == "active":
            self.left.pop(event.task, None)
            before, last = self.done.get(event.client, (0, self.begun))
            self.done[event.client] = (before + rows, now if rows else last)

    def describe(self, now: float) -> str:
        rows = sum(rows for _, rows in self.left.values())
        what = f"{counted(len(self.left), 'task')}, {counted(rows, 'changelog row')}"
        if not self.seconds:
            return what
        to_read: dict[str, float] = dict.fromkeys((client for client, _ in self.left.values()), 0.0)
        for client, changes in self.left.values():
            # Nobody knows how many rows its snapshot has; those of tasks that are done are most like it.
            to_read[client] += changes + self.snapshot_rows / self.tasks
        return f"{what}, about {max(self._left_s(client, rows, now) for client, rows in to_read.items()):.1f} s"

    def _left_s(self, client: str, rows: float, now: float) -> float:
        """As quick as it was until now, with several threads maybe; before its first task, as others were with one."""
        done, last = self.done.get(client, (0, self.begun))
        row_s = (last - self.begun) / done if done else self.seconds / self.rows
        return max(rows * row_s - (now - last), 0.0)


@attrs.frozen
class _Move:
    """Tasks that come to be active on a client together: from one place, for one reason.

    Args:
        source: who had them; "": nobody.
        target: who gets them.
        because: what of the group's change made them move, as far as it can be seen from outside; "": nothing.
        state: where their state is.
        tasks: the tasks.
    """

    source: str
    target: str
    because: str
    state: str
    tasks: tuple[TaskId, ...]

    def __str__(self) -> str:
        why = f": {self.because or 'the assignor placed anew'}"
        if self.because.startswith(self.source):
            why = f", which{self.because.removeprefix(self.source)}"
        return f"{ranges(self.tasks)} from {self.source}{why}; {self.state}"


def _moves(
    before: Mapping[str, ClientTasks],
    after: Mapping[str, ClientTasks],
    known: Iterable[str],
    leaving: Iterable[str],
) -> tuple[_Move, ...]:
    """What moves between two assignments, by source, target and reason; `known` are the clients seen so far."""
    former = {task: client for client, tasks in before.items() for task in tasks.active}
    found: dict[tuple[str, str, str, str], list[TaskId]] = {}
    for target, tasks in after.items():
        had = before.get(target, ClientTasks())
        for task in tasks.active:
            source = former.get(task, "")
            if source == target:
                continue
            because = ""
            if source and source not in after:
                because = f"{source} is lost"
            elif source in leaving:
                because = f"{source} leaves"
            elif target not in before:
                because = f"{target} {'is back' if target in known else 'is new'}"
            state = "standby was here" if task in had.standby else "no standby was here"
            found.setdefault((source, target, because, state), []).append(task)
    return tuple(_Move(*key, tuple(tasks)) for key, tasks in sorted(found.items()))


def _followup_line(deadline_ms: int, assignment: Mapping[str, ClientTasks]) -> str:
    """When there is another rebalance, and who has to wait for it."""
    idle = sorted(client for client, tasks in assignment.items() if not tasks.active)
    seconds = max(0.0, deadline_ms / 1000 - time.time())
    who = ", ".join(idle) if len(idle) <= _NAMED else counted(len(idle), "client")
    waiting = f"; until then no active task is at {who}" if idle else ""
    return f"the assignor is to be asked again in {seconds:.0f} s{waiting}"


def _summary(moves: Iterable[_Move]) -> str:
    """How many active tasks move, apart for each reason."""
    counts = Counter(move.because for move in moves if move.source for _ in move.tasks)
    if not counts:
        return "none moves"
    others = counts.pop("", 0)
    parts = [f"{number} because {because}" for because, number in sorted(counts.items())]
    parts += [f"{others} {'more ' if parts else ''}that the assignor placed anew"] if others else []
    return f"{counted(counts.total() + others, 'active task')} moved: {', '.join(parts)}"


def _rates_line(rates: Mapping[str, float]) -> str:
    """Rows per second of every client; of many clients the least and the most."""
    if len(rates) > _NAMED:
        least, most = min(rates.values()), max(rates.values())
        return f"{counted(len(rates), 'client')}, each {_thousands(least)} to {_thousands(most)}"
    return ", ".join(f"{client} {_thousands(rate)}" for client, rate in sorted(rates.items()))


def _thousands(rate: float) -> str:
    """Rows per second in thousands, if there are as many."""
    return f"{rate / 1000:,.0f}k" if rate >= 1000 else f"{rate:.0f}"


def _short(attempt: str) -> str:
    """What executes a client, without the details in brackets."""
    return attempt.split(" (", maxsplit=1)[0]


def _takeover_line(restored: list[TaskRestored]) -> str:
    """How the state of tasks with a new owner was brought up to date, and what had to be read for it."""
    parts = []
    for origin, told in (
        ("memory", "from a standby in memory"),
        ("disk", "from a store on disk"),
        ("snapshot", "from a local snapshot"),
        ("shared", "from a snapshot in the run folder"),
        ("changelog", "from the changelog alone"),
    ):
        found = [one for one in restored if one.origin == origin]
        if found:
            rows = sum(one.rows for one in found)
            parts.append(f"{counted(len(found), 'task')} {told} ({counted(rows, 'changelog row')} read)")
    return "state restored: " + "; ".join(parts)
