"""What people type and see; everything it shows is worked out in the other rooms."""

from task_assignor.cli.app import main

__all__ = ["main"]
