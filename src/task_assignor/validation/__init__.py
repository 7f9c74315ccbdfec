"""Says whether an assignment is right (Kafka's first error, a report of every violation), and how good; it repairs nothing."""

from task_assignor.validation.kafka import validate_task_assignment
from task_assignor.validation.measures import Measures, measure
from task_assignor.validation.report import report_violations
from task_assignor.validation.violations import Severity, ValidationReport, Violation, ViolationKind

__all__ = [
    "Measures",
    "Severity",
    "ValidationReport",
    "Violation",
    "ViolationKind",
    "measure",
    "report_violations",
    "validate_task_assignment",
]
