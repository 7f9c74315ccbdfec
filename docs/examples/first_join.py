"""A complete program: an assignor of one's own places a stateful join, local processes run it. See docs/tutorial.md."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from task_assignor import StreamsConfig, TaskAssignor
from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.runtime import (
    ClientJoined,
    RunEvent,
    StreamsApplication,
    Topology,
    WindowedJoin,
    read_output,
    write_topic,
)
from task_assignor.validation import report_violations


class CarefulTaskAssignor(TaskAssignor):
    """Sticky, but it checks its own answer and says what it did."""

    def configure(self, configs):
        self._inner = StickyTaskAssignor()
        self._inner.configure(configs)

    def assign(self, application_state):
        assignment = self._inner.assign(application_state)
        for client in assignment:
            print(client.process_id, *client.tasks.values())
        print(report_violations(application_state, assignment))
        return assignment


def say_pid(event: RunEvent) -> None:
    """Say which process a client is, so that it can be killed."""
    if isinstance(event, ClientJoined):
        print(f"{event.client} is process {event.pid}", flush=True)


def main(folder: Path, rows: int) -> None:
    if folder.exists():
        sys.exit(f"There already is {folder}. Take another folder.")
    # Two topics of four partitions: what was shown to a user, and what the user clicked. Times are milliseconds.
    at = np.arange(rows)
    shown = pa.table({"user": at * 7919 % 500, "at": at})
    clicked = shown.take(at[::3])
    for name, table in (("shown", shown), ("clicked", clicked)):
        write_topic(folder / "topics", name, table, partitions=4, key=["user"], timestamp="at", sort_by_timestamp=True)

    # Equal users, clicked at most 50 ms after shown.
    join = WindowedJoin(left="shown", right="clicked", before_ms=0, after_ms=50)
    settings = {"application.id": "ads", "num.standby.replicas": 1, "task.assignor.class": CarefulTaskAssignor}
    application = StreamsApplication(
        Topology([join.sub_topology("ads", output="pairs")]),
        StreamsConfig(settings),
        topics_root=folder / "topics",
        run_dir=folder / "run",
        clients=2,
    )
    result = application.run(on_event=say_pid)
    pairs = read_output(folder / "run", "pairs")
    print(f"{result.rows_in} rows in, {pairs.num_rows} pairs out, batches: {result.batches}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put topics and results; it must not be there yet")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of the topic shown (default: %(default)s)")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.rows)
