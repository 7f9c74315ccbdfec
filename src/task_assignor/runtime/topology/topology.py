"""What is to be computed: sub-topologies and the tasks that they make; checked when built.

`Topology` knows no files; `bind` holds it against the topics that exist and makes tasks. What a task computes is a
`ProcessorTopology`: a sub-topology, or several that read a topic together.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs
import pyarrow as pa

from task_assignor.group import SubTopologyShape, make_tasks
from task_assignor.group.topology import number_sub_topologies
from task_assignor.runtime.errors import TopologyException
from task_assignor.runtime.machines.topic_time import Writers
from task_assignor.runtime.topics.spec import TopicSpec
from task_assignor.runtime.topology.derived import DerivedStream, DerivedTable
from task_assignor.runtime.topology.sub_topology import (
    Forwarded,
    Output,
    Repartitioned,
    StoreSpec,
    SubTopology,
    has_windows,
    is_ready_made,
    knows_what_comes,
    processor_name,
    several,
)
from task_assignor.sdk import StreamsException, TaskId, TaskInfo
from task_assignor.sdk.text import shown


def _tables_of(sub: SubTopology) -> tuple[str, ...]:
    """The sources that a ready-made processor has as tables; a processor of a user's may have anything of that name."""
    return getattr(sub.processor, "tables", ()) if is_ready_made(sub.processor) else ()


@attrs.frozen
class ProcessorTopology:
    """What the tasks of one number compute: a sub-topology, or several that read a topic together (Kafka's name for it).

    Args:
        nodes: the sub-topologies, in the order of their declaration.
        derived: the derived streams of the topology, by name.

    Raises:
        TopologyException: these cannot be computed by one task.
    """

    nodes: tuple[SubTopology, ...]
    derived: Mapping[str, DerivedStream]
    parents: Mapping[str, str] = attrs.field(init=False, repr=False)
    """Derived stream or forwarded output -> the source that it is made of."""
    sources: tuple[str, ...] = attrs.field(init=False)
    """Names of its source topics; of records with equal times those of the first come first."""

    @parents.default
    def _parents(self) -> dict[str, str]:
        return parents_of(self.nodes, self.derived)

    @sources.default
    def _sources(self) -> tuple[str, ...]:
        # The order of each node that goes by it, as far as possible the first that is named first.
        named = [self.topics_of(node.sources) for node in self.nodes]
        topics = list(dict.fromkeys(itertools.chain.from_iterable(named)))
        places = {topic: place for place, topic in enumerate(topics)}
        after: dict[str, list[str]] = {topic: [] for topic in topics}
        waits = dict.fromkeys(topics, 0)
        for order, node in zip(named, self.nodes, strict=True):
            if not (is_ready_made(node.processor) and getattr(node.processor, "takes_any_order", False)):
                for topic, follower in itertools.pairwise(order):
                    after[topic].append(follower)
                    waits[follower] += 1
        ready = [place for place, topic in enumerate(topics) if not waits[topic]]
        found: list[str] = []
        while ready:
            found.append(topics[heapq.heappop(ready)])
            for follower in after[found[-1]]:
                waits[follower] -= 1
                if not waits[follower]:
                    heapq.heappush(ready, places[follower])
        if len(found) < len(topics):
            left = [topic for topic in topics if waits[topic]]
            raise TopologyException(
                f"The sub-topologies {self.name} name the topics {left} that they read together in different orders, but of "
                "records with equal times a task sees those of the first one first. Maybe name them in one order, or write one "
                "under a second name."
            )
        return tuple(found)

    def __attrs_post_init__(self) -> None:
        for node in self.nodes:
            first = self.nodes[0]
            where = (
                f"The sub-topologies {first.name!r} and {node.name!r} read a topic together, directly or by way of others, so their "
                "tasks are the same, but"
            )
            if node.topology != first.topology:
                raise TopologyException(
                    f"{where} one belongs to the topology {shown(first.topology)} and the other to {shown(node.topology)}. "
                    "Maybe write the topic under a second name."
                )
            either = sorted({*node.sources} - {*node.tables})
            either = [topic for topic in self.topics_of(either) if topic in self.tables]
            if either:
                raise TopologyException(
                    f"The topic {either[0]!r} is a table for some of the sub-topologies {self.name}, and none for {node.name!r}. A "
                    "task reads its tables to their end first. Maybe name it among the tables of all, or of none (table_first= of a join)."
                )

    def topics_of(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The topics that sources are, or are derived from, each once."""
        return tuple(dict.fromkeys(root_of(source, self.parents) for source in sources))

    @property
    def name(self) -> str:
        """For people."""
        return ", ".join(node.name for node in self.nodes)

    @property
    def processors_name(self) -> str:
        """What to call one of its processors in messages, if it is not known which."""
        return " or ".join(dict.fromkeys(processor_name(node.processor) for node in self.nodes))

    @property
    def topology(self) -> str | None:
        """Name of the topology that it belongs to."""
        return self.nodes[0].topology

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of those that are read to their end first."""
        return self.topics_of(table for node in self.nodes for table in node.tables)

    @property
    def read_as_tables(self) -> tuple[str, ...]:
        """Names of those of which each key's latest row counts: these, and what ready-made processors have as tables."""
        return self.topics_of(table for node in self.nodes for table in (*node.tables, *_tables_of(node)))

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores of all."""
        return tuple(store for node in self.nodes for store in node.stores)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs of all that are written."""
        return tuple(output for node in self.nodes for output in node.written)

    @property
    def repartitions(self) -> dict[str, Repartitioned]:
        """The repartition topics among them, by name."""
        return {output.name: output for output in self.outputs if isinstance(output, Repartitioned)}


def parents_of(nodes: Iterable[SubTopology], derived: Mapping[str, DerivedStream]) -> dict[str, str]:
    """Derived stream or forwarded output -> the source that it is made of: a topic, or another one of these."""
    forwarded = {name: source for node in nodes for name, source in node.forwarded.items()}
    return {name: one.root for name, one in derived.items()} | forwarded


def root_of(source: str, parents: Mapping[str, str]) -> str:
    """The topic that a source is, or is made of."""
    while source in parents:
        source = parents[source]
    return source


def _in_order_of_forwarding(
    nodes: Iterable[SubTopology], derived: Mapping[str, DerivedStream]
) -> tuple[SubTopology, ...]:
    """Those that forward rows before those that read them, else as they come."""
    left, order = list(nodes), []
    missing = {name for node in left for name in node.forwarded}
    while left:
        node = next((one for one in left if missing.isdisjoint(_read_by(one, derived))), None)
        if node is None:
            raise TopologyException(
                f"The sub-topologies {', '.join(repr(one.name) for one in left)} read what they forward themselves, directly or by way of "
                "each other, so none could be the first."
            )
        left.remove(node)
        order.append(node)
        missing -= set(node.forwarded)
    return tuple(order)


def _read_by(node: SubTopology, derived: Mapping[str, DerivedStream]) -> list[str]:
    """Topics and forwarded outputs that it reads, directly or as a derived stream."""
    return [derived[source].root if source in derived else source for source in node.sources]


def _to_processor_topologies(
    sub_topologies: tuple[SubTopology, ...], derived: Mapping[str, DerivedStream]
) -> tuple[ProcessorTopology, ...]:
    """Those that read a topic together, directly or by way of others, in the order of the first of each."""
    groups: list[list[SubTopology]] = []
    # Before anything is followed up to its topic: there may be a circle.
    order = _in_order_of_forwarding(sub_topologies, derived)
    parents = parents_of(sub_topologies, derived)
    roots = {sub.name: {root_of(source, parents) for source in sub.sources} for sub in sub_topologies}
    for sub in sub_topologies:
        meets = [group for group in groups if any(roots[sub.name] & roots[node.name] for node in group)]
        groups = [group for group in groups if group not in meets[1:]]
        if meets:
            meets[0] += [node for group in meets[1:] for node in group]
            meets[0].append(sub)
        else:
            groups.append([sub])
    return tuple(ProcessorTopology(tuple(sorted(group, key=order.index)), derived) for group in groups)


def _to_sub_topologies(sub_topologies: SubTopology | Iterable[SubTopology]) -> tuple[SubTopology, ...]:
    return several(sub_topologies, SubTopology)


def _to_derived(derived: DerivedStream | Iterable[DerivedStream]) -> tuple[DerivedStream, ...]:
    return several(derived, DerivedStream)


@attrs.frozen
class Topology:
    """All sub-topologies of an application. The i-th (of its named topology) has the tasks `i_0`, `i_1` and so on.

    Those that read a topic together count as one: as in Kafka, a task reads its partition for all of them.

    Args:
        sub_topologies: the sub-topologies.
        derived: the derived streams and tables that they read.

    Raises:
        TopologyException: names are not unique, one reads an output of another that is not `Repartitioned`, or its own,
            or such that read a topic together cannot be computed by one task.
    """

    sub_topologies: tuple[SubTopology, ...] = attrs.field(converter=_to_sub_topologies)
    derived: tuple[DerivedStream, ...] = attrs.field(default=(), converter=_to_derived, kw_only=True)
    processor_topologies: tuple[ProcessorTopology, ...] = attrs.field(init=False, repr=False, eq=False)
    """What the tasks compute, in the order of their numbers."""

    def __attrs_post_init__(self) -> None:
        if not self.sub_topologies:
            raise TopologyException("The topology has no sub-topologies, so there is nothing to run.")
        given: tuple[object, ...] = self.sub_topologies
        for sub_topology in given:
            if not isinstance(sub_topology, SubTopology):
                advice = " Maybe derived=[...] for it." if isinstance(sub_topology, DerivedStream) else ""
                raise TopologyException(
                    f"A Topology is made of SubTopology objects, but was given {shown(sub_topology)}.{advice}"
                )
        subs = self.sub_topologies
        _check_unique("sub-topology", ((sub.name, sub.name) for sub in subs))
        _check_unique("store", ((store.name, sub.name) for sub in subs for store in sub.stores))
        _check_unique("output", ((output.name, sub.name) for sub in subs for output in sub.outputs))
        self._check_derived()
        self._check_changes()
        derived = self.derived_streams
        outputs = {output.name: output for sub in subs for output in sub.outputs}
        for sub in subs:
            for topic in _read_by(sub, derived):
                if topic in outputs and not isinstance(outputs[topic], (Repartitioned, Forwarded)):
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads {topic!r}, which is an output of this topology without a key. "
                        f"Maybe declare it so that others can read it: Repartitioned({topic!r}, schema, key=…, partitions=…), or in the same "
                        f"tasks: Forwarded({topic!r}, schema)."
                    )
        object.__setattr__(self, "processor_topologies", _to_processor_topologies(subs, derived))
        read = {topic for sub in subs for topic in _read_by(sub, derived)}
        for name, output in outputs.items():
            if isinstance(output, Repartitioned) and name not in read:
                raise TopologyException(
                    f"Nothing reads the repartition topic {name!r}, so its rows would pile up. Maybe make it an Output, or name "
                    "it as a source."
                )
            if isinstance(output, Forwarded) and name not in read:
                raise TopologyException(
                    f"Nothing reads the forwarded output {name!r}, so its rows would be lost. Maybe make it an Output, or name it as a source."
                )
        self._in_order()

    def _check_derived(self) -> None:
        for one in self.derived:
            if not isinstance(one, DerivedStream):
                raise TopologyException(
                    f"The derived streams of a Topology are DerivedStream or DerivedTable objects, but it was given {shown(one)}. Maybe "
                    "derived=[stream]: the object itself, not its name."
                )
        found = self.derived_streams
        forwarded = {name for sub in self.sub_topologies for name in sub.forwarded}
        taken = {
            **{output.name: "an output" for sub in self.sub_topologies for output in sub.outputs},
            **{one.root: "a topic that is read" for one in self.derived if one.root not in forwarded},
        }
        names = [one.name for one in self.derived]
        for place, name in enumerate(names):
            other = "another one" if name in names[:place] else taken.get(name)
            if other is not None:
                raise TopologyException(
                    f"The derived stream {name!r} has the name of {other}. Maybe rename it, or give it itself, not its name, as the "
                    "source of what is made of it."
                )
        read = {source for sub in self.sub_topologies for source in sub.sources}
        for name in names:
            if name not in read:
                raise TopologyException(
                    f"Nothing reads the derived stream {name!r}. Maybe name it as a source, or leave it out."
                )
        for sub in self.sub_topologies:
            tables = _tables_of(sub)
            for name in (*sub.tables, *tables):
                if name in forwarded or (name in found and found[name].root in forwarded):
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads {name!r} as a table, but what is forwarded is a stream: an older value of a key "
                        "would stay where nothing is made of a newer record. Maybe use a repartition topic."
                    )
            for name in tables:
                steps = found[name].lineage if name in found else ()
                if any(not isinstance(step, DerivedTable) for step in steps):
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads the derived stream {name!r} as a table, but an older value of a key would "
                        f"stay where a newer one is left out. Maybe make it a DerivedTable({name!r}, ...)."
                    )

    def _check_changes(self) -> None:
        """What a row of a table has brought to its group is taken away again when it goes, if it still says the same."""
        found = self.derived_streams
        makers = {output.name: sub.processor for sub in self.sub_topologies for output in sub.outputs}
        for sub in self.sub_topologies:
            follows = getattr(sub.processor, "follows", ()) if is_ready_made(sub.processor) else ()
            for name in sub.sources if follows else ():
                steps = found[name].lineage if name in found else ()
                if any(step.map_values is not None for step in steps):
                    continue  # It may have another column of that name.
                maker = makers.get(found[name].root if name in found else name)
                for column in getattr(maker, "of_update", ()) if is_ready_made(maker) else ():
                    if column in follows:
                        raise TopologyException(
                            f"The sub-topology {sub.name!r} groups by {column!r} of {name!r} or computes with it, but that is the time of the "
                            "update: a row that goes has another one than when it came. Maybe write the table with a second column of the time."
                        )

    @cached_property
    def derived_streams(self) -> dict[str, DerivedStream]:
        """The derived streams and tables, by name."""
        return {one.name: one for one in self.derived}

    def of_task(self, task: TaskId) -> ProcessorTopology:
        """What a task computes."""
        return self._by_number[task.topology_name, task.subtopology]

    @cached_property
    def _by_number(self) -> dict[tuple[str | None, int], ProcessorTopology]:
        """Named topology and number -> what its tasks compute. Asked for each task, of which there are many where these are."""
        numbers = number_sub_topologies((found.topology, None) for found in self.processor_topologies)
        return dict(zip(numbers, self.processor_topologies, strict=True))

    @property
    def sources(self) -> tuple[str, ...]:
        """All source topics that come from outside, sorted."""
        read = {topic for found in self.processor_topologies for topic in found.sources}
        return tuple(sorted(read - set(self.repartitions)))

    @cached_property
    def repartitions(self) -> dict[str, Repartitioned]:
        """The repartition topics, by name."""
        outputs = (output for sub in self.sub_topologies for output in sub.outputs)
        return {output.name: output for output in outputs if isinstance(output, Repartitioned)}

    @cached_property
    def writers(self) -> dict[str, tuple[str | None, int]]:
        """Repartition topic -> named topology and number of the sub-topology that writes it."""
        return {
            output.name: number
            for number, found in self._by_number.items()
            for output in found.outputs
            if isinstance(output, Repartitioned)
        }

    def timed(self, topics: Mapping[str, TopicSpec], tasks: Iterable[TaskId]) -> dict[str, Writers]:
        """Repartition topic of which somebody asks how far all have come who write it -> what is known of these.

        Its rows have times, as have those that they are made of; and it is read by windows, or by who writes what windows read.

        Args:
            topics: the source topics that are no repartition topics, by name.
            tasks: all tasks.
        """
        counts = Counter((task.topology_name, task.subtopology) for task in tasks)
        timed = {name for name, spec in topics.items() if spec.timestamp is not None}
        order, writers = self._in_order(), dict[str, Writers]()
        for found in order:
            read = {*found.sources}.difference(found.tables).intersection([*timed, *writers])
            for node in found.nodes if read else ():
                is_in_order = read.isdisjoint(writers)
                for output in node.outputs:
                    if isinstance(output, Repartitioned) and output.timestamp is not None:
                        count = counts[self.writers[output.name]]
                        writers[output.name] = Writers(count, knows_what_comes(node.processor), is_in_order)
        asked: set[str] = set()
        for found in reversed(order):
            ask = any(has_windows(node.processor) for node in found.nodes)
            if ask or asked.intersection(output.name for output in found.outputs):
                asked.update(found.sources)
        return {name: known for name, known in writers.items() if name in asked}

    def _in_order(self) -> list[ProcessorTopology]:
        """What tasks compute, those that write a repartition topic before those that read it."""
        order: list[ProcessorTopology] = []
        missing = set(self.repartitions)
        left = list(self.processor_topologies)
        while left:
            ready = [found for found in left if missing.isdisjoint(found.sources)]
            if not ready:
                names = [node.name for found in left for node in found.nodes]
                together = "; ".join(found.name for found in left if len(found.nodes) > 1)
                raise TopologyException(
                    f"The sub-topologies {', '.join(map(repr, names))} read what they write themselves, directly or "
                    "by way of each other, so they would never come to an end."
                    + (
                        f" Those that read a topic together ({together}) are one. Maybe write that topic under a second name for "
                        "one of them."
                        if together
                        else ""
                    )
                )
            order += ready
            left = [found for found in left if not missing.isdisjoint(found.sources)]
            missing -= {output.name for found in ready for output in found.outputs}
        return order

    def specs(self, topics: Mapping[str, TopicSpec]) -> dict[str, TopicSpec]:
        """What all sources are like, repartition topics and derived streams included.

        Args:
            topics: the source topics that come from outside, by name.

        Raises:
            TopologyException: it is not known of which columns a repartition topic or derived stream is, or it cannot be so.
        """
        specs, derived, known = dict(topics), self.derived_streams, dict[int, TopicSpec]()
        for sub in (node for found in self._in_order() for node in found.nodes):
            for source in sub.sources:
                if (one := derived.get(source)) is not None:
                    specs[source] = one.specs_of(specs[one.root], known)[-1]
            for output in sub.outputs:
                if isinstance(output, (Repartitioned, Forwarded)):
                    specs[output.name] = sub.spec_of(output.name, specs)
        return specs

    def bind(self, application_id: str, topics: Mapping[str, TopicSpec]) -> dict[TaskId, TaskInfo]:
        """The tasks of the topology on the topics that exist.

        Args:
            application_id: `application.id`; the changelog of store s is named `<application_id>-s-changelog`.
            topics: all source topics that come from outside, by name.

        Returns:
            Task id -> `TaskInfo`, in task-id order.

        Raises:
            TopologyException: a topic is missing, sources are not co-partitioned, or a processor does not fit its topics.
        """
        parents = parents_of(self.sub_topologies, self.derived_streams)
        for sub in self.sub_topologies:
            for topic in (root_of(source, parents) for source in sub.sources):
                if topic not in topics and topic not in self.repartitions:
                    raise TopologyException(
                        f"The sub-topology {sub.name!r} reads the topic {topic!r}, which does not exist. "
                        f"The topics: {', '.join(sorted(topics)) or 'none'}."
                    )
        topics = self.specs(topics)
        for found in self.processor_topologies:
            _check_key_types(found, topics)
            _check_zones(found, topics)
        for sub in self.sub_topologies:
            check = getattr(sub.processor, "check_sources", None)
            if check is not None:
                check({topic: topics[topic] for topic in sub.sources})
        partitions = {
            repartition_topic(application_id, name) if name in self.repartitions else name: spec.partitions
            for name, spec in topics.items()
            if name not in parents
        }
        racks = {name: spec.racks for name, spec in topics.items() if spec.racks is not None}
        try:
            return make_tasks(self.shapes(application_id), partitions, racks)
        except StreamsException as error:
            raise TopologyException(str(error)) from None

    def shapes(self, application_id: str) -> list[SubTopologyShape]:
        """What the leader of a group has to know of the sub-topologies.

        Args:
            application_id: `application.id`.
        """
        return [
            SubTopologyShape(
                found.name,
                tuple(source for source in found.sources if source not in self.repartitions),
                {
                    store.name: changelog_topic(application_id, store.name, found.topology) if store.logged else None
                    for store in found.stores
                },
                found.topology,
                tuple(
                    repartition_topic(application_id, source) for source in found.sources if source in self.repartitions
                ),
                tuple(
                    repartition_topic(application_id, output.name)
                    for output in found.outputs
                    if isinstance(output, Repartitioned)
                ),
            )
            for found in self.processor_topologies
        ]


def changelog_topic(application_id: str, store: str, topology: str | None = None) -> str:
    """Kafka's name for the changelog of a store."""
    return "-".join(part for part in (application_id, topology, store, "changelog") if part is not None)


def repartition_topic(application_id: str, name: str) -> str:
    """Kafka's name for a repartition topic, as assignors see it."""
    return f"{application_id}-{name}-repartition"


def _check_unique(what: str, named: Iterable[tuple[str, str]], advice: str = "Maybe rename one.") -> None:
    seen: dict[str, str] = {}
    for name, place in named:
        if name in seen:
            where = f", in the sub-topologies {seen[name]!r} and {place!r}"
            if seen[name] == place:
                # A sub-topology is its own place.
                where = "" if name == place else f", in the sub-topology {place!r}"
            raise TopologyException(f"The {what} {name!r} is there twice{where}. {advice}")
        seen[name] = place


def _check_key_types(found: ProcessorTopology, topics: Mapping[str, TopicSpec]) -> None:
    first, *others = found.sources
    for other in others:
        one, two = topics[first], topics[other]
        if one.key_types != two.key_types:
            raise TopologyException(
                f"The sources of the sub-topology {found.name!r} are not co-partitioned: equal keys of {first!r} "
                f"({', '.join(one.key)}: {', '.join(one.key_types)}) and {other!r} ({', '.join(two.key)}: "
                f"{', '.join(two.key_types)}) have different bytes, so they would meet in different partitions. "
                "Maybe write one topic again with the key cast to the type of the other."
            )


def _check_zones(found: ProcessorTopology, topics: Mapping[str, TopicSpec]) -> None:
    """Times that meet - those of the records, and those in keys - have all a time zone or none has."""
    specs = [topics[name] for name in found.sources]
    groups = [
        [(spec, spec.timestamp) for spec in specs if spec.timestamp is not None],
        *(
            [(spec, column) for spec, column in zip(specs, columns, strict=True)]
            for columns in zip(*(spec.key for spec in specs), strict=False)
        ),
    ]
    for group in groups:
        kinds = [(spec.name, column, spec.schema.field(column).type) for spec, column in group]
        times = {kind.tz is None: (topic, column, kind) for topic, column, kind in kinds if pa.types.is_timestamp(kind)}
        if len(times) == 2:
            (naive, column, kind), (zoned, other, zone) = times[True], times[False]
            raise TopologyException(
                f"The sources of the sub-topology {found.name!r} cannot be compared: the column {column!r} of {naive!r} "
                f"has no time zone ({kind}), but {other!r} of {zoned!r} has one ({zone}). Maybe write {naive!r} again with "
                "its zone: pyarrow.compute.assume_timezone."
            )
