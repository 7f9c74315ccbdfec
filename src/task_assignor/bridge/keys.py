"""The settings of the bridge: what a Java application may say in `python.task.assignor.*`, and the classes that read it."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from task_assignor.sdk import ConfigKey
from task_assignor.sdk.ids import MOST_PORT

PREFIX: Final = "python.task.assignor."
UNIX: Final = "unix:"
"""What the address of a Unix socket begins with."""
PYTHON_CLASS: Final = "taskassignor.PythonTaskAssignor"
SHADOW_CLASS: Final = "taskassignor.ShadowTaskAssignor"
RECORDING_CLASS: Final = "taskassignor.RecordingTaskAssignor"
JAVA_CLASSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        PYTHON_CLASS: "Python decides.",
        SHADOW_CLASS: "Java decides as it does without the bridge; Python is asked too, and the differences are logged.",
        RECORDING_CLASS: "Java decides as it does without the bridge; states and decisions are recorded. No Python is started.",
    }
)
"""Values of `task.assignor.class` in the Java application, and what each does."""


_HOST_AND_PORT: Final = re.compile(r"(.*):([0-9]{1,5})")
# Numbers that begin with 0 are octal for some and decimal for others.
_DECIMALS: Final = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){0,3}")


def host_and_port(address: str) -> tuple[str, int] | None:
    """The two of `host:port` or `[host]:port`; None: it is neither.

    Examples:
        >>> host_and_port("127.0.0.1:7777"), host_and_port("[::1]:80"), host_and_port("localhost:65536")
        (('127.0.0.1', 7777), ('::1', 80), None)
    """
    found = _HOST_AND_PORT.fullmatch(address)
    return None if found is None or int(found[2]) > MOST_PORT else (found[1].strip("[]"), int(found[2]))


def _address_problem(value: object) -> str | None:
    text = str(value)
    if text.startswith(UNIX):
        # Each process has a working directory of its own.
        return None if text.startswith(f"{UNIX}/") else "unix:/path or host:port"
    found = host_and_port(text)
    if found is None or not found[1]:
        return "unix:/path or host:port"
    return (
        None
        if is_loopback(found[0])
        else "an address of this host, such as 127.0.0.1:7777: the bridge has no passwords"
    )


def is_loopback(host: str) -> bool:
    """Whether only this host can reach the address, as Java reads it: `127.1` is one, too.

    Examples:
        >>> [is_loopback(host) for host in ("127.0.0.1", "127.1", "::1", "LocalHost", "10.1", "127.0.0.256", "0177.1")]
        [True, True, True, True, False, False, False]
    """
    with contextlib.suppress(OSError):
        host = socket.inet_ntoa(socket.inet_aton(host)) if _DECIMALS.fullmatch(host) else host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


KEYS: Final[Mapping[str, ConfigKey]] = MappingProxyType(
    {
        key.name: key
        for key in (
            ConfigKey(
                name=f"{PREFIX}address",
                type="string",
                default=None,
                validator=_address_problem,
                doc="Where `task-assignor bridge serve --listen` is: `host:port` of this host, or `unix:/path`; in place of a command.",
            ),
            ConfigKey(
                name=f"{PREFIX}class",
                type="string",
                default="sticky",
                doc="The assignor in Python: a name that `task-assignor assignors` lists, or a dotted path.",
            ),
            ConfigKey(
                name=f"{PREFIX}command",
                type="string",
                default="task-assignor bridge serve",
                doc="What starts Python; blanks separate words, quotes keep them together.",
            ),
            ConfigKey(
                name=f"{PREFIX}java.class",
                type="string",
                default=None,
                doc="The `TaskAssignor` in Java that decides in shadow mode and while recording; not set: Kafka's default one.",
            ),
            ConfigKey(
                name=f"{PREFIX}on.failure",
                type="string",
                default="keep",
                choices=("keep", "exception"),
                doc="Without a valid answer: keep the assignment and ask again, or stop the application.",
            ),
            ConfigKey(
                name=f"{PREFIX}record.dir",
                type="string",
                default=None,
                doc="Folder for the states and decisions of every rebalance; not set: they are not recorded "
                "(`RecordingTaskAssignor`: in `task-assignor-recordings` under `state.dir`).",
            ),
            ConfigKey(
                name=f"{PREFIX}record.max.bytes",
                type="long",
                default=100_000_000,
                minimum=1_000,
                doc="What the recorded files may take together; the oldest are deleted.",
            ),
            ConfigKey(
                name=f"{PREFIX}retry.ms",
                type="int",
                default=60_000,
                minimum=1_000,
                doc="Milliseconds until the group asks again after a failure; doubled after each further one, to 16 times as long at most.",
            ),
            ConfigKey(
                name=f"{PREFIX}timeout.ms",
                type="int",
                default=10_000,
                minimum=1,
                doc="Milliseconds that a rebalance waits for Python, its start included; at most a third of `session.timeout.ms`.",
            ),
        )
    }
)
"""Key -> its declaration."""
