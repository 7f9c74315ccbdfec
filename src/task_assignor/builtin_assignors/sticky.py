"""`StickyTaskAssignor`: tasks stay where they are as far as an even load allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from task_assignor.sdk import ApplicationState, ConfigKey, TaskAssignment, TaskAssignor
from task_assignor.sdk.config_def import given_value
from task_assignor.utils import place_actives, place_standbys

MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT = "must.preserve.active.task.assignment"

_MUST_PRESERVE: Final = ConfigKey(
    name=MUST_PRESERVE_ACTIVE_TASK_ASSIGNMENT,
    type="boolean",
    default=False,
    doc="Sticky assignor: never move an active task from a client that still runs, even if loads get uneven.",
)


class StickyTaskAssignor(TaskAssignor):
    """Keeps tasks where they are, within even shares.

    Its goals, in this order:

    1. every client has floor or ceil of its thread-weighted share of the active tasks;
    2. fewest tasks move away from their previous active owner (of several claims the newest generation counts);
    3. loads are even: the sum over the clients of tasks² / threads is least, of stateful tasks, then of all;
    4. tasks that move go where their state is; of several such clients to those with less lag (that as few as possible
       have still less, added up over the tasks);
    5. all standbys are placed;
    6. the total load (active and standby) per thread is even, within floor and ceil of the shares as far as the active tasks
       allow (active tasks are exchanged for it where no earlier goal suffers: a local search);
    7. with `rack.aware.assignment.tags`: a task and its standbys are on clients with as many different tag values as
       these loads allow (KIP-708);
    8. standbys stay where their state is.

    With `must.preserve.active.task.assignment` goal 2 comes before goal 1.

    With a rack-aware strategy and both costs set (KIP-925) and all racks known, goal 2 becomes: least trafficCost x
    cross-rack partitions + nonOverlapCost x moved tasks, with goal 1 kept. (Stickiness that beats the shares beats
    racks too.) For standbys goal 8 becomes: least trafficCost x cross-rack partitions of their changelogs +
    nonOverlapCost x standbys where no state was.

    Goals 1 to 4 are reached exactly; but where hundreds of thousands of tasks had several active owners each, or have
    state on several clients each, every such task looks at one of them at a time (goal 2 is exact all the same, without
    racks); and where tasks have replicas in so many different racks that there are more than 400 000 pairs of such tasks
    and racks, racks are chosen first and then clients, after which goal 1 alone is exact. `TaskAssignment.inexact` says
    when that was so, and names goal 6 (`STANDBY_LOADS`) unless it is proven that no loads could be more even.

    The counterpart of Kafka's public `StickyTaskAssignor`, which follows the same idea with greedy rules. Generations are
    those of KIP-341, Generation Marker; Kafka's does not see them.
    """

    config_keys = (_MUST_PRESERVE,)

    def __init__(self) -> None:
        self._must_preserve = False

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `must.preserve.active.task.assignment`."""
        self._must_preserve = bool(given_value(_MUST_PRESERVE, configs))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the goals.

        Raises:
            TaskAssignmentException: there are tasks but no clients.
        """
        actives = place_actives(application_state, must_preserve=self._must_preserve)
        return TaskAssignment(place_standbys(application_state, actives))
