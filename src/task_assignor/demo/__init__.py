"""The example that `task-assignor demo` runs: flights and weather joined on Spark, a client killed on the way, the result compared."""

from task_assignor.demo.program import run_demo

__all__ = ["run_demo"]
