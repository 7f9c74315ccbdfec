"""What the fork server of `LocalProcessLauncher` imports, and nobody else: users' own workers that it forks hear Ctrl-C.

It is started with SIGINT blocked, which all that it forks inherits. Clients ignore the signal before they unblock it.
"""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import util


def _hear_ctrl_c(_key: object) -> None:
    if not hasattr(multiprocessing.current_process(), "unblocks_itself"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


util.register_after_fork(_hear_ctrl_c, _hear_ctrl_c)
