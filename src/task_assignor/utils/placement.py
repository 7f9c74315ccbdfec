"""`Placement`: an assignment as columns, one owner per task and pairs of standbys. Where it comes from is decided elsewhere."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.sdk import MISSING, AssignmentColumns, StateColumns, StateException, TaskId
from task_assignor.sdk.arrays import order_by
from task_assignor.sdk.checks import whole_number
from task_assignor.sdk.columns import (
    Int32Array,
    Int64Array,
    check_columns,
    check_length,
    check_range,
    int32_column,
    int64_column,
)


@attrs.frozen(eq=False)
class Placement:
    """An assignment in which every task has at most one active owner. A value; make it with `of`.

    Args:
        state: columns of the state that the numbers refer to.
        active_owner: (T,) client number; -1: nobody.
        standby_task: (S,) task numbers of the standbys, pairs sorted by task, then client.
        standby_client: (S,) their client numbers.
        deadline_ms: (C,) follow-up rebalance deadlines, milliseconds since the epoch; `MISSING`: none.

    Raises:
        StateException: the state is not `StateColumns`, columns of the wrong length or kind, or numbers out of range.
    """

    state: StateColumns = attrs.field(repr=False)
    active_owner: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_task: Int32Array = attrs.field(converter=int32_column, repr=False)
    standby_client: Int32Array = attrs.field(converter=int32_column, repr=False)
    deadline_ms: Int64Array = attrs.field(converter=int64_column, repr=False)

    def __attrs_post_init__(self) -> None:
        check_columns(self.state)
        tasks, clients = len(self.state.tasks), len(self.state.clients)
        check_length(self, "active_owner", tasks)
        check_length(self, "standby_client", len(self.standby_task))
        check_length(self, "deadline_ms", clients)
        check_range("active_owner", self.active_owner, -1, clients)
        check_range("standby_task", self.standby_task, 0, tasks)
        check_range("standby_client", self.standby_client, 0, clients)

    @classmethod
    def of(
        cls,
        state: StateColumns,
        active_owner: npt.ArrayLike,
        standby_task: npt.ArrayLike = (),
        standby_client: npt.ArrayLike = (),
        deadline_ms: npt.ArrayLike | None = None,
    ) -> Placement:
        """A placement from anything array-like; pairs in any order, without deadlines there are none.

        Raises:
            StateException: the state is not `StateColumns`, columns of the wrong length or kind, or numbers out of range.

        Examples:
            >>> from task_assignor.sdk import ApplicationStateBuilder
            >>> Placement.of(ApplicationStateBuilder().build().columns, []).active_owner.tolist()
            []
        """
        check_columns(state)
        task, client = int32_column(standby_task), int32_column(standby_client)
        if len(task) != len(client):
            raise StateException(
                f"The columns standby_task and standby_client must be of one length, but have {len(task)} and "
                f"{len(client)} rows."
            )
        keys = task * np.int64(len(state.clients) + 1) + client
        if (keys[1:] <= keys[:-1]).any():
            order = order_by(keys)
            task, client = task[order], client[order]
        deadlines = np.full(len(state.clients), MISSING) if deadline_ms is None else deadline_ms
        return cls(state, active_owner, task, client, deadlines)

    def with_owners(self, active_owner: Int32Array) -> Placement:
        """The same with other active owners, whose tasks are not their standbys any more.

        A standby where its task goes is taken over by the former owner. Of a task that had none it becomes the active task.
        """
        task, client = self.standby_task, self.standby_client
        former = self.active_owner[task]
        meets = (active_owner[task] == client) & (former != client)
        client = np.where(meets, former, client)
        stays = client >= 0
        return Placement.of(self.state, active_owner, task[stays], client[stays], self.deadline_ms)

    def counts(self) -> Int64Array:
        """(C,) active and standby tasks of each client."""
        clients = len(self.state.clients)
        counts = np.bincount(self.active_owner[self.active_owner >= 0], minlength=clients)
        counts += np.bincount(self.standby_client, minlength=clients)
        return counts

    def shortages(self, replicas: int) -> dict[TaskId, int]:
        """Tasks that have a changelog and fewer standbys than `replicas` -> how many they lack.

        Raises:
            ConfigException: that is no number of standbys.
        """
        whole_number("replicas", replicas, 0)
        tasks = self.state.tasks
        missing = np.where(tasks.has_changelog, replicas, 0) - np.bincount(self.standby_task, minlength=len(tasks))
        short = np.flatnonzero(missing > 0)
        return dict(zip(tasks.task_ids(short.tolist()), missing[short].tolist(), strict=True))

    def columns(self) -> AssignmentColumns:
        """The same as columns of an assignment."""
        return AssignmentColumns.of(
            self.state, self.active_owner, self.standby_task, self.standby_client, self.deadline_ms
        )
