"""Reads what Kafka Streams prints of a topology (`Topology#describe`): source topics and stores per sub-topology."""

from __future__ import annotations

import re
from typing import Final

import attrs

from task_assignor.kafka.errors import GroupStateException
from task_assignor.sdk.text import shown

_SUBTOPOLOGY: Final = re.compile(r"Sub-topology: (\d+)(.*)")
_SOURCE: Final = re.compile(r"Source: +(\S+) \(topics: (.*)\)$")
_STORES: Final = re.compile(r"Processor: +\S+ \(stores: \[(.*)\]\)$")


@attrs.frozen
class DescribedSubTopology:
    """A sub-topology that makes tasks.

    Args:
        number: its number, the first part of its task ids.
        sources: its source topics; those that Streams makes itself without the `application.id-` in front.
        stores: the names of its stores.
    """

    number: int
    sources: tuple[str, ...]
    stores: tuple[str, ...]


def parse_topology(text: str) -> list[DescribedSubTopology]:
    """The sub-topologies of a description, by number; sub-topologies of global stores make no tasks and are left out.

    Raises:
        GroupStateException: the text is no description, or a source reads topics by a pattern.
    """
    found: dict[int, tuple[list[str], list[str]]] = {}
    current: tuple[list[str], list[str]] | None = None
    for line in map(str.strip, text.splitlines()):
        if match := _SUBTOPOLOGY.search(line):
            current = ([], [])
            if "global" not in match[2]:
                found[int(match[1])] = current
        elif current is not None and (match := _SOURCE.match(line)):
            current[0].extend(_names(match[2], match[1]))
        elif current is not None and (match := _STORES.match(line)):
            current[1].extend(name.strip() for name in match[1].split(",") if name.strip())
    if not found:
        raise GroupStateException(
            f"The topology ({shown(text.strip())}) must be what Kafka Streams prints for "
            "System.out.println(topology.describe()), with lines such as `Sub-topology: 0`."
        )
    return [
        DescribedSubTopology(number, tuple(dict.fromkeys(sources)), tuple(dict.fromkeys(stores)))
        for number, (sources, stores) in sorted(found.items())
    ]


def _names(text: str, source: str) -> list[str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise GroupStateException(
            f"The source {source} reads all topics that match {text!r}. Maybe write their names instead: (topics: [a, b])."
        )
    return [name.strip() for name in text[1:-1].split(",") if name.strip()]
