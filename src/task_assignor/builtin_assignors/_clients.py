"""What every assignor asks first: is there anybody to take the tasks?"""

from __future__ import annotations

from task_assignor.sdk import StateColumns, TaskAssignmentException
from task_assignor.sdk.text import counted


def check_clients(columns: StateColumns) -> None:
    """An empty answer would lose the tasks without a word.

    Raises:
        TaskAssignmentException: there are tasks but no clients.
    """
    if len(columns.tasks) and not len(columns.clients):
        raise TaskAssignmentException(
            f"The state has {counted(len(columns.tasks), 'task')}, but no clients to assign them to. A rebalance has at "
            "least one; maybe the state was written before a client joined."
        )
