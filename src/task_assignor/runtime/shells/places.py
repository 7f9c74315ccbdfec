"""Where a client is: its rack and tags, from its settings, the environment of its process, or its host's name."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Final

from task_assignor.runtime.options import RuntimeOptions
from task_assignor.runtime.shells.launcher import ClientSpec
from task_assignor.sdk import ConfigException

RACK: Final = "TASK_ASSIGNOR_RACK"
TAGS: Final = "TASK_ASSIGNOR_TAGS"
_TAG: Final = re.compile(r"\s*([^=\s][^=]*?)\s*=\s*(.*?)\s*")


def rack_of(spec: ClientSpec, environment: Mapping[str, str], options: RuntimeOptions) -> str | None:
    """The rack of a client: what its spec says, else TASK_ASSIGNOR_RACK, else `client.rack`, else its host if that is wanted."""
    found = spec.given.rack or environment.get(RACK) or spec.rack
    return found or (socket.gethostname() if options.rack_from_host else None)


def tags_of(spec: ClientSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The tags of a client: those of `client.tag.*`, over them those of TASK_ASSIGNOR_TAGS (`zone=a,cluster=b`), then its spec's.

    The settings are those of all clients, so what its own process says comes before them: `rack.aware.assignment.tags` wants
    each tag in the settings.

    Raises:
        ConfigException: the variable is not of that form, or names a tag twice.
    """
    found = {}
    text = environment.get(TAGS, "")
    for part in text.split(",") if text.strip() else ():
        match = _TAG.fullmatch(part)
        if match is None or match[1] in found:
            raise ConfigException(
                f"The environment variable {TAGS} ({text!r}) must be of the form 'zone=a,cluster=b', with each tag once."
            )
        found[match[1]] = match[2]
    return {**spec.tags, **found, **spec.given.tags}
