"""Where a Java application's assignor comes in: the jar that asks, the process that answers, the settings of both."""

from task_assignor.bridge.check import Finding, Verdict, check_properties
from task_assignor.bridge.jar import jar_path
from task_assignor.bridge.keys import JAVA_CLASSES, KEYS
from task_assignor.bridge.server import BridgeServer, ServeException
from task_assignor.bridge.wire import WireException
from task_assignor.bridge.worker import Worker, serve

__all__ = [
    "JAVA_CLASSES",
    "KEYS",
    "BridgeServer",
    "Finding",
    "ServeException",
    "Verdict",
    "WireException",
    "Worker",
    "check_properties",
    "jar_path",
    "serve",
]
