"""What can be wrong with an assignment: kinds, severities, one violation, and the report that lists them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from task_assignor.sdk import AssignmentError, ProcessId, TaskId


class Severity(enum.Enum):
    """How bad a violation is.

    Attributes:
        ERROR: the assignment must not be used.
        WARNING: it can be used, but is not what the settings ask for.
        INFO: worth knowing; usually meant.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ViolationKind(enum.Enum):
    """What is wrong. In reports the kinds come in this order; those that Kafka knows have Kafka's names.

    Attributes:
        NOT_A_TASK_ASSIGNMENT: the assignor did not return a `TaskAssignment`.
        UNKNOWN_TASK_ID: a task of the answer is not in the state. Kafka's.
        ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: a task is active in more than one place; one violation for each owner too
            many. Kafka's.
        INVALID_STANDBY_TASK: a task without state is a standby somewhere. Kafka's.
        MISSING_PROCESS_ID: a client of the state is not in the answer; one without tasks must be there too. Kafka's.
        UNKNOWN_PROCESS_ID: a client of the answer is not in the state. Kafka's.
        DUPLICATE_PROCESS_ID: a client is in the answer more than once. Kafka lets it pass and keeps the last one only.
        TASK_WITHOUT_ACTIVE: no client of the state has the task as active. Kafka lets it pass, and nobody reads its
            partitions.
        ACTIVE_AND_STANDBY_ON_ONE_CLIENT: a client has a task in both roles.
        STANDBY_ASSIGNED_MULTIPLE_TIMES: a client has the same standby more than once.
        STANDBY_WITHOUT_ACTIVE: a task has standbys but is active nowhere. A warning.
        STANDBY_WITHOUT_CHANGELOG: a standby of a task that has stores but no changelog: there is nothing from which it
            could be kept up to date. A warning.
        TOO_FEW_STANDBYS: fewer standbys than `num.standby.replicas`, although more clients could take one. A warning.
        TOO_MANY_STANDBYS: more standbys than `num.standby.replicas`. An INFO as long as `max.warmup.replicas` covers the
            surplus of all tasks (they can be warm-ups), else a warning.

    All others are errors.
    """

    NOT_A_TASK_ASSIGNMENT = "NOT_A_TASK_ASSIGNMENT"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    DUPLICATE_PROCESS_ID = "DUPLICATE_PROCESS_ID"
    TASK_WITHOUT_ACTIVE = "TASK_WITHOUT_ACTIVE"
    ACTIVE_AND_STANDBY_ON_ONE_CLIENT = "ACTIVE_AND_STANDBY_ON_ONE_CLIENT"
    STANDBY_ASSIGNED_MULTIPLE_TIMES = "STANDBY_ASSIGNED_MULTIPLE_TIMES"
    STANDBY_WITHOUT_ACTIVE = "STANDBY_WITHOUT_ACTIVE"
    STANDBY_WITHOUT_CHANGELOG = "STANDBY_WITHOUT_CHANGELOG"
    TOO_FEW_STANDBYS = "TOO_FEW_STANDBYS"
    TOO_MANY_STANDBYS = "TOO_MANY_STANDBYS"


@attrs.frozen
class Violation:
    """One thing that is wrong.

    Args:
        kind: what it is.
        severity: how bad it is.
        task: the task concerned, if it is one.
        process_id: the client concerned, if it is one.
        message: a sentence for people.
    """

    kind: ViolationKind
    severity: Severity
    task: TaskId | None
    process_id: ProcessId | None
    message: str

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.message} [{self.kind.value}]"


@attrs.frozen
class ValidationReport:
    """Every violation of an assignment, worst first, then in the order of `ViolationKind`, task and client.

    Args:
        violations: all of them.
        kafka_error: what Kafka's validation says; None if it could not even be asked.
    """

    violations: tuple[Violation, ...]
    kafka_error: AssignmentError | None

    @property
    def is_valid(self) -> bool:
        """There is no error (there may be warnings)."""
        return not any(violation.severity is Severity.ERROR for violation in self.violations)

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations because of which the assignment must not be used."""
        return self.of_severity(Severity.ERROR)

    @property
    def warnings(self) -> tuple[Violation, ...]:
        """The violations with which the assignment can be used."""
        return self.of_severity(Severity.WARNING)

    def of_severity(self, severity: Severity) -> tuple[Violation, ...]:
        """The violations of one severity."""
        return tuple(violation for violation in self.violations if violation.severity is severity)

    @property
    def counts(self) -> Mapping[ViolationKind, int]:
        """Number of violations of each kind that occurs, in the order of the kinds."""
        counts = Counter(violation.kind for violation in self.violations)
        return MappingProxyType({kind: counts[kind] for kind in ViolationKind if counts[kind]})

    def to_text(self, limit: int = 20) -> str:
        """The report for people: a headline, then a line per violation.

        Args:
            limit: at most so many violations of each kind; the rest is only counted.
        """
        lines = [self._headline()]
        shown: Counter[tuple[Severity, ViolationKind]] = Counter()
        for violation in self.violations:
            key = (violation.severity, violation.kind)
            shown[key] += 1
            if shown[key] <= limit:
                lines.append(f"  {violation}")
        lines += [
            f"  {severity.value}: {count - limit} more of these [{kind.value}]"
            for (severity, kind), count in shown.items()
            if count > limit
        ]
        return "\n".join(lines)

    def _headline(self) -> str:
        found = [
            f"{count} {severity.value if count == 1 or severity is Severity.INFO else severity.value + 's'}"
            for severity in Severity
            if (count := len(self.of_severity(severity)))
        ]
        kafka = "Kafka cannot read it" if self.kafka_error is None else f"Kafka says {self.kafka_error.value}"
        return f"The assignment is {'valid' if self.is_valid else 'not valid'}: {', '.join(found) or 'no findings'}. {kafka}."

    def __str__(self) -> str:
        return self.to_text()
