"""What people see of a run while it runs: lines and a live table, on a terminal, in a file, in a notebook. It decides nothing."""

from task_assignor.screen.run_screen import RunScreen, make_console

__all__ = ["RunScreen", "make_console"]
