"""Says whether an assignment is right: Kafka's first error, and a report of every violation; it repairs nothing."""

from task_assignor.validation.kafka import validate_task_assignment
from task_assignor.validation.report import report_violations
from task_assignor.validation.violations import Severity, ValidationReport, Violation, ViolationKind

__all__ = [
    "Severity",
    "ValidationReport",
    "Violation",
    "ViolationKind",
    "report_violations",
    "validate_task_assignment",
]
