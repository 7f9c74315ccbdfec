"""An assignor at work, in a thread of its own: the coordinator goes on meanwhile, and can give it up."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable

from task_assignor.group import AssignmentRejectedException, GroupLeader, GroupRebalance
from task_assignor.runtime.coordinator_values import AskAssignor
from task_assignor.sdk import StreamsException
from task_assignor.sdk.text import failure

_log = logging.getLogger(__name__)


class _GivenUp(BaseException):
    """Raised inside an assignor that nobody waits for any more."""


class Deciding:
    """One question to the group's leader.

    Args:
        leader: asks the assignor.
        question: what it is asked.
        answer: called with what comes of it, from another thread; never after `give_up`.
    """

    def __init__(
        self,
        leader: GroupLeader,
        question: AskAssignor,
        answer: Callable[[GroupRebalance | StreamsException], None],
    ) -> None:
        self._leader = leader
        self._question = question
        self._answer = answer
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="assignor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            outcome = self._decide()
            with self._lock:
                if not self._is_over:
                    self._is_over = True
                    self._answer(outcome)
        except _GivenUp:
            _log.info("The assignor %s was given up.", self._leader.assignor_name)

    def _decide(self) -> GroupRebalance | StreamsException:
        question = self._question
        try:
            return self._leader.rebalance(question.clients, question.end_offset_sums, question.now_ms)
        except StreamsException as error:
            if isinstance(error.__cause__, _GivenUp):
                raise error.__cause__ from None
            return error
        except _GivenUp:
            raise
        except BaseException as error:  # noqa: BLE001 - it travels to the application
            rejection = AssignmentRejectedException(
                f"The assignor {self._leader.assignor_name} failed with {failure(error)}"
            )
            rejection.__cause__ = error
            return rejection

    def give_up(self) -> None:
        """Nobody wants the answer any more: end the thread, if what runs in it lets itself be ended."""
        with self._lock:
            if self._is_over or self._thread.ident is None:
                return
            self._is_over = True
            # What is in a call of another language sees it when that returns; as a daemon it is in nobody's way.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(_GivenUp))
