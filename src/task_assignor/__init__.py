"""Kafka Streams task assignment (KIP-924) for Python: the public names of `sdk` at the front door; nothing is implemented here.

Importing this brings the `sdk` alone: no solver, no screen, no engine. The other rooms are imported by their own names.
"""

from task_assignor import sdk
from task_assignor.sdk import *  # noqa: F403  (the list of names is kept in one place, the sdk's own __all__)

__version__ = "0.1.0"

__all__ = ["__version__"]
__all__ += sdk.__all__
