"""Reads what Kafka Streams prints of a topology (`Topology#describe`): topics and stores per sub-topology."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from task_assignor.group import SubTopologyShape
from task_assignor.kafka.errors import GroupStateException
from task_assignor.sdk.text import listed, shown

_SUBTOPOLOGY: Final = re.compile(r"Sub-topology: (\d+)(.*)")
_SOURCE: Final = re.compile(r"Source: +(.+) \(topics: (.*)\)$")
_SINK: Final = re.compile(r"Sink: +.+ \(topic: (.*)\)$")
_STORES: Final = re.compile(r"Processor: +.+ \(stores: \[(.*)\]\)$")
# Of repartitioning, and of foreign-key joins.
_INTERNAL: Final = re.compile(r"-repartition$|subscription-(registration|response)\b.*-topic$", re.IGNORECASE)


@attrs.frozen
class DescribedSubTopology:
    """A sub-topology that makes tasks.

    Args:
        number: its number, the first part of its task ids.
        sources: its source topics; those that Streams makes itself without the `application.id-` in front.
        stores: the names of its stores.
        sinks: the topics that it writes, likewise.
    """

    number: int
    sources: tuple[str, ...]
    stores: tuple[str, ...]
    sinks: tuple[str, ...] = ()


def parse_topology(text: str) -> list[DescribedSubTopology]:
    """The sub-topologies of a description, by number; sub-topologies of global stores make no tasks and are left out.

    Raises:
        GroupStateException: the text is no description, or two that differ; a source reads topics by a pattern, or a
            sub-topology reads none.
    """
    if not isinstance(text, str):
        raise _no_description(text)
    parts: list[tuple[int, tuple[list[str], list[str], list[str]]]] = []
    current: tuple[list[str], list[str], list[str]] | None = None
    for line in map(str.strip, text.splitlines()):
        if match := _SUBTOPOLOGY.search(line):
            current = ([], [], [])
            if "global" not in match[2]:
                parts.append((int(match[1]), current))
        elif current is not None and (match := _SOURCE.match(line)):
            current[0].extend(_names(match[2], match[1]))
        elif current is not None and (match := _STORES.match(line)):
            current[1].extend(name.strip() for name in match[1].split(",") if name.strip())
        elif current is not None and (match := _SINK.match(line)):
            current[2].append(match[1].strip())
    if not parts:
        raise _no_description(text.strip())
    found = dict(parts)
    # A program may print the same twice.
    for number, part in parts:
        if part != found[number]:
            raise GroupStateException(
                f"The topology must be described once, but there are two descriptions of sub-topology {number}. Maybe one is older, or "
                "they are of named topologies, which cannot be read."
            )
    without = [str(number) for number, (sources, _, _) in sorted(found.items()) if not sources]
    if without:
        raise GroupStateException(
            f"The topology must say which topics each sub-topology reads, but says none for {listed(without)}. Maybe it is cut off."
        )
    return [
        DescribedSubTopology(number, *(tuple(dict.fromkeys(names)) for names in lists))
        for number, lists in sorted(found.items())
    ]


def shapes_of_topology(
    text: str, application_id: str, changelogs: Mapping[str, str | None] | None = None
) -> list[SubTopologyShape]:
    """The sub-topologies of a description, with the topics as they are called in the cluster.

    A topic that the application reads and writes itself, and whose name ends as Kafka Streams ends those that it makes, is
    taken for a repartition topic (or the like of a foreign-key join).

    Args:
        text: what `Topology#describe` prints.
        application_id: it begins the names of topics that Kafka Streams makes.
        changelogs: store -> its changelog where it is not `application_id-store-changelog`: a source topic that serves as
            one (`topology.optimization`), or None for a store that is not logged; the description does not tell.

    Raises:
        GroupStateException: the text is no description, a source reads topics by a pattern, a store is not there, the
            changelogs are no mapping, or the application id is no name.
    """
    if not (isinstance(application_id, str) and application_id):
        raise GroupStateException(
            f"The application_id ({shown(application_id)}) must be the name that begins those of the application's own topics. "
            "Maybe use config.application_id."
        )
    if not (changelogs is None or isinstance(changelogs, Mapping)):
        raise GroupStateException(
            f"The changelogs ({shown(changelogs)}) must be a mapping from stores to topics, or to None, such as "
            "{'cache-store': None}."
        )
    described = parse_topology(text)
    written = {topic for found in described for topic in found.sinks}
    internal = {topic for found in described for topic in found.sources if topic in written and _INTERNAL.search(topic)}
    known = {store for found in described for store in found.stores}
    strange = [store if isinstance(store, str) else shown(store) for store in changelogs or {} if store not in known]
    if strange:
        raise GroupStateException(
            f"The changelogs ({listed(strange)}) must be of stores of the topology; it has {listed(known)}."
        )

    def full(topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{application_id}-{topic}" for topic in topics if topic in internal)

    return [
        SubTopologyShape(
            str(found.number),
            tuple(topic for topic in found.sources if topic not in internal),
            {store: f"{application_id}-{store}-changelog" for store in found.stores}
            | {store: topic for store, topic in (changelogs or {}).items() if store in found.stores},
            None,
            full(found.sources),
            full(found.sinks),
            found.number,
        )
        for found in described
    ]


def _no_description(given: object) -> GroupStateException:
    return GroupStateException(
        f"The topology ({shown(given)}) must be what Kafka Streams prints for System.out.println(topology.describe()), with lines "
        "such as `Sub-topology: 0`."
    )


def _names(text: str, source: str) -> list[str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise GroupStateException(
            f"The source {source} reads all topics that match {text!r}. Maybe write their names instead: (topics: [a, b])."
        )
    return [name.strip() for name in text[1:-1].split(",") if name.strip()]
