"""Where a Java application's assignor comes in: the jar that asks, the process that answers, the settings of both."""

from task_assignor.bridge.check import Finding, Verdict, check_properties
from task_assignor.bridge.jar import jar_path
from task_assignor.bridge.server import BridgeServer, ServeException

__all__ = ["BridgeServer", "Finding", "ServeException", "Verdict", "check_properties", "jar_path"]
