"""Answers that were recorded, one after the other beside the states they belong to."""

from __future__ import annotations

from task_assignor.cli.output import place_of
from task_assignor.sdk import SnapshotException, StateRecord, TaskAssignment
from task_assignor.sdk.snapshot_assignment import assignment_of_value
from task_assignor.sdk.snapshot_files import JsonDocument, iter_documents


class RecordedAnswers:
    """The answers in a file, in the order of the states: what `plan --json` prints, the recorder writes, or scenarios.

    Args:
        path: the file; `-`: standard input.
        state_path: the file of the states, for messages.
    """

    def __init__(self, path: str, state_path: str) -> None:
        self._path = path
        self._state_path = state_path
        self._documents = iter_documents(path)
        self._count = 0

    def advance(self) -> JsonDocument:
        """What is there for the next state.

        Raises:
            SnapshotException: there is nothing left, or it is no answer but a state.
        """
        document = next(self._documents, None)
        if document is None:
            raise SnapshotException(
                f"{self._state_path} has more states than {self._path} has assignments ({self._count})."
            )
        if isinstance(document.value, dict) and "tasks" in document.value and "assignment" not in document.value:
            raise SnapshotException(
                f"{place_of(self._path, document.line)} is a state, where an answer to one of {self._state_path} is expected. Maybe put all states "
                "into one file, one a line; answers are what `plan --json` writes."
            )
        self._count += 1
        return document

    def expect_end(self) -> None:
        """See that all answers were taken.

        Raises:
            SnapshotException: there are more.
        """
        if next(self._documents, None) is not None:
            raise SnapshotException(
                f"{self._path} has more assignments than {self._state_path} has states ({self._count})."
            )

    def read(self, document: JsonDocument, record: StateRecord) -> TaskAssignment:
        """The answer to a state in what `advance` gave.

        Raises:
            SnapshotException: it is wrong, or for another state.
        """
        place = f"the assignment in {place_of(self._path, document.line)}"
        try:
            if document.error is not None:
                raise document.error
            value = document.value
            if isinstance(value, dict):
                if record.id is not None and value.get("id", record.id) != record.id:
                    raise SnapshotException(
                        f"$.id: The value must be {record.id!r}, the id of the state, but is {value['id']!r}."
                    )
                if "error" in value and "assignment" not in value:
                    raise SnapshotException(f"There is no assignment, but the error: {value['error']}")
                if "state" in value and "assignment" in value:
                    # A scenario: what else it says plays no part.
                    value = value["assignment"]
            return assignment_of_value(value)
        except SnapshotException as error:
            raise SnapshotException(f"{place}: {error}", error.path) from error
