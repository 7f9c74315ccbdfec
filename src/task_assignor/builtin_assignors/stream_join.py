"""`StreamJoinTaskAssignor`: equal partitions of sub-topologies that are joined share a client (KIP-315 on tasks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from task_assignor.sdk import (
    ApplicationState,
    ConfigException,
    ConfigKey,
    ConfigProblem,
    StateColumns,
    TaskAssignment,
    TaskAssignor,
)
from task_assignor.sdk.config_def import given_value
from task_assignor.utils import check_has_clients, place_joined_actives, place_standbys

STREAM_JOIN_GROUPS: Final = "stream.join.groups"
MOST_DIGITS: Final = 10


def parse_join_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """The groups of sub-topologies that the setting `stream.join.groups` names.

    Args:
        text: sub-topology numbers; commas within a group, semicolons between groups: `0,1;2`.

    Raises:
        ConfigException: not of that form, or a sub-topology is named twice.

    Examples:
        >>> parse_join_groups("0,1; 2")
        ((0, 1), (2,))
    """
    groups: list[tuple[int, ...]] = []
    for part in text.split(";"):
        names = [name.strip() for name in part.split(",")]
        if not all(name.isascii() and name.isdigit() and len(name) <= MOST_DIGITS for name in names):
            raise _wrong_groups(
                text, "sub-topology numbers, with commas within a group and semicolons between groups, such as 0,1;2"
            )
        groups.append(tuple(int(name) for name in names))
    seen: set[int] = set()
    for number in (number for group in groups for number in group):
        if number in seen:
            raise _wrong_groups(text, f"groups that name sub-topology {number} once")
        seen.add(number)
    return tuple(groups)


def _wrong_groups(text: str, expected: str) -> ConfigException:
    return ConfigException.of([ConfigProblem(STREAM_JOIN_GROUPS, text, expected)])


def _check(value: object) -> str | None:
    try:
        parse_join_groups(str(value))
    except ConfigException as error:
        return error.problems[0].expected
    return None


_GROUPS: Final = ConfigKey(
    name=STREAM_JOIN_GROUPS,
    type="string",
    default=None,
    doc="Stream join assignor: sub-topologies that are joined, such as 0,1;2. "
    "Default: those with equal numbers of partitions.",
    validator=_check,
)


class StreamJoinTaskAssignor(TaskAssignor):
    """Keeps what is joined together: equal partitions of a join group's sub-topologies run on one client.

    Its goals, in this order:

    1. tasks of a join group with the same partition are on one client, and so are their standbys;
    2. of every join group, every client has floor or ceil of its thread-weighted share of the partitions;
    3. the clients' total loads (tasks per thread) are even: newcomers get their fair share, also where groups have fewer
       partitions than there are clients;
    4. fewest partitions move; of several claims the newest generation counts, then the one with more stateful tasks,
       then with more tasks;
    5. in each group, partitions with stateful tasks are spread evenly;
    6. partitions that move go where their state is: of most tasks, then least behind;
    7. standbys: all are placed, loads are even, with `rack.aware.assignment.tags` over as many tag values as that
       allows.

    All groups with equally many tasks per partition are decided together, and all these goals are reached exactly; those
    with most tasks come first, and are not looked at again (`TaskAssignment.inexact` names the goals that another choice for
    them might reach better). Where the partitions of a group have different numbers of tasks, their mean counts. With more than 30 000 pairs of a group and a client, who has the ceil of which group is decided before
    goals 5 and 6, and a partition with several equal claims counts as one client's there; with more than 500 000 pairs, what
    no claim and no state decides is dealt out group by group.

    The join groups come from the setting `stream.join.groups` (`0,1;2`; a sub-topology that it does not name is a group
    of its own). By default sub-topologies with equal numbers of partitions form a group (Faust's rule).

    KIP-315 (Assignment Strategy) leaves partitions out that not all topics have. A task must have an owner, so here they
    are placed too.
    """

    config_keys = (_GROUPS,)

    def __init__(self) -> None:
        self._groups: tuple[tuple[int, ...], ...] | None = None

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take `stream.join.groups`."""
        text = given_value(_GROUPS, configs)
        self._groups = None if text is None else parse_join_groups(str(text))

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks; see the class for the goals.

        Raises:
            ConfigException: `stream.join.groups` names a sub-topology that the application does not have.
            TaskAssignmentException: there are tasks but no clients.
        """
        check_has_clients(application_state)
        tasks = application_state.columns.tasks
        join_group = _join_group_of(application_state.columns, self._groups)[tasks.group]
        actives = place_joined_actives(application_state, join_group)
        together = join_group * (int(tasks.partition.max(initial=0)) + 1) + tasks.partition
        return TaskAssignment(place_standbys(application_state, actives, together=together, use_racks=False))


def _join_group_of(columns: StateColumns, groups: tuple[tuple[int, ...], ...] | None) -> npt.NDArray[np.int64]:
    """(G,) number of the join group of every (topology, sub-topology)."""
    tasks = columns.tasks
    first = tasks.group_offsets[:-1]
    topology, subtopology = tasks.topology[first].astype(np.int64), tasks.subtopology[first].astype(np.int64)
    if groups is None:
        size = np.diff(tasks.group_offsets)
        return np.unique(np.stack([topology, size], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    known = set(subtopology.tolist())
    for number in (number for group in groups for number in group):
        if number not in known:
            raise ConfigException(
                f"The {STREAM_JOIN_GROUPS} name sub-topology {number}, but the application has only "
                f"{', '.join(map(str, sorted(known))) or 'none'}."
            )
    group_of = {number: -1 - index for index, group in enumerate(groups) for number in group}
    joined = np.array([group_of.get(number, number) for number in subtopology.tolist()], dtype=np.int64)
    return np.unique(np.stack([topology, joined], axis=1).reshape(-1, 2), axis=0, return_inverse=True)[1].reshape(-1)
