"""A complete program: an assignor of one's own places a stateful join, local processes run it. See docs/tutorial.md."""

import sys
from pathlib import Path

import pyarrow as pa

from task_assignor import ApplicationState, ConfigKey, StreamsConfig, TaskAssignment, TaskAssignor
from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.runtime import StreamsApplication, Topology, WindowedJoin, read_output, write_topic
from task_assignor.validation import report_violations


class CarefulTaskAssignor(TaskAssignor):
    """Sticky, but it checks its own answer and says what it did."""

    config_keys = (ConfigKey(name="careful.announce", type="boolean", default=True, doc="Print each assignment."),)

    def configure(self, configs):
        self._announce = configs["careful.announce"]
        self._inner = StickyTaskAssignor()
        self._inner.configure(configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        assignment = self._inner.assign(application_state)
        report = report_violations(application_state, assignment)
        if self._announce:
            tasks = {str(one.process_id)[:8]: " ".join(map(str, one.tasks.values())) for one in assignment}
            print(f"{tasks}, {len(report.errors)} errors")
        return assignment


def main(folder: Path) -> None:
    # Two topics of four partitions: what was shown to a user, and what the user clicked.
    shown = pa.table({"user": [number * 7919 % 500 for number in range(10_000)], "at": range(10_000)})
    clicked = pa.table({"user": [number * 7919 % 500 for number in range(0, 10_000, 3)], "at": range(0, 10_000, 3)})
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
    result = application.run()
    pairs = read_output(folder / "run", "pairs")
    print(f"{result.rows_in} rows in, {pairs.num_rows} pairs out, batches: {result.batches}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
