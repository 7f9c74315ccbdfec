"""What Kafka Streams prints of a topology is read back."""

from __future__ import annotations

import pytest

from task_assignor.group import GroupException, SubTopologyShape, make_tasks, plan_topics

kafka_room = pytest.importorskip("task_assignor.kafka")

DESCRIPTION = """Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [clicks])
      --> KSTREAM-WINDOWED-0000000002
    Source: KSTREAM-SOURCE-0000000001 (topics: [impressions, more.impressions])
      --> KSTREAM-WINDOWED-0000000003
    Processor: KSTREAM-WINDOWED-0000000002 (stores: [this-store])
      --> KSTREAM-JOINTHIS-0000000004
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-JOINTHIS-0000000004 (stores: [other-store, this-store])
      --> KSTREAM-SINK-0000000007
    Processor: KSTREAM-MAP-0000000006 (stores: [])
      --> none
    Sink: KSTREAM-SINK-0000000007 (topic: again-repartition)
      <-- KSTREAM-MAP-0000000006

  Sub-topology: 1 for global store (will not generate tasks)
    Source: GLOBAL (topics: [settings])
      --> none
   Sub-topology: 2
    Source: KSTREAM-SOURCE-0000000008 (topics: [again-repartition])
      --> none
"""


def test_sources_and_stores_of_each_sub_topology_that_makes_tasks() -> None:
    described = kafka_room.DescribedSubTopology
    assert kafka_room.parse_topology(DESCRIPTION) == [
        described(
            0, ("clicks", "impressions", "more.impressions"), ("this-store", "other-store"), ("again-repartition",)
        ),
        described(2, ("again-repartition",), ()),
    ]


def test_nodes_may_have_blanks_in_their_names() -> None:
    """As the Processor API allows; their topics and stores were passed over, and tasks with state taken for such without."""
    (found,) = kafka_room.parse_topology(
        "Topologies:\n   Sub-topology: 0\n"
        "    Source: my source (topics: []) (topics: [clicks])\n      --> my proc\n"
        "    Processor: my proc (stores: [counts])\n      --> my sink\n      <-- my source (topics: [])\n"
        "    Sink: my sink (topic: out)\n      <-- my proc\n"
    )
    assert (found.sources, found.stores, found.sinks) == (("clicks",), ("counts",), ("out",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be what Kafka Streams prints"),
        ('{"clients": []}', "must be what Kafka Streams prints"),
        (DESCRIPTION.encode(), "must be what Kafka Streams prints"),
        ("Sub-topology: 0\n Source: S (topics: click.*)\n", "reads all topics that match 'click.*'"),
        # It was `max() arg is an empty sequence` where the state of a group was made of it.
        (DESCRIPTION[: DESCRIPTION.rindex("    Source")], "says none for 2. Maybe it is cut off."),
        # The last one counted, with what the one before had more.
        (
            DESCRIPTION + DESCRIPTION.replace("[clicks", "[taps"),
            "two descriptions of sub-topology 0. Maybe one is older",
        ),
    ],
)
def test_what_is_no_description_is_refused(text: str | bytes, said: str) -> None:
    with pytest.raises(kafka_room.GroupStateException, match=r"topology|topics") as caught:
        kafka_room.parse_topology(text)
    assert said in str(caught.value)
    with pytest.raises(kafka_room.GroupStateException, match=r"topology|topics"):
        kafka_room.shapes_of_topology(text, "app")


def test_what_a_program_prints_twice_is_read_once() -> None:
    assert kafka_room.parse_topology(DESCRIPTION * 2) == kafka_room.parse_topology(DESCRIPTION)


def test_topics_that_streams_makes_have_their_full_names_and_numbers_are_those_of_the_description() -> None:
    shapes = kafka_room.shapes_of_topology(DESCRIPTION, "app", {"this-store": None})
    assert shapes == [
        SubTopologyShape(
            "0",
            ("clicks", "impressions", "more.impressions"),
            {"this-store": None, "other-store": "app-other-store-changelog"},
            repartition_sinks=("app-again-repartition",),
            number=0,
        ),
        SubTopologyShape("2", (), repartition_sources=("app-again-repartition",), number=2),
    ]
    counts = dict.fromkeys(["clicks", "impressions", "more.impressions"], 2)
    plan = plan_topics(shapes, counts)
    assert plan.create == {"app-again-repartition": 2, "app-other-store-changelog": 2}
    assert list(map(str, make_tasks(shapes, plan.partitions))) == ["0_0", "0_1", "2_0", "2_1"]


def test_topics_of_foreign_key_joins_and_of_users() -> None:
    internal = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic"
    text = f"""Sub-topology: 0
    Source: A (topics: [mine, {internal}])
    Sink: B (topic: mine)
    Sink: C (topic: {internal})
    Sink: D (topic: elsewhere-repartition)
"""
    (shape,) = kafka_room.shapes_of_topology(text, "app")
    assert (shape.sources, shape.repartition_sources) == (("mine",), (f"app-{internal}",))
    assert shape.repartition_sinks == (f"app-{internal}",)


def test_a_changelog_of_a_store_that_is_not_there_is_refused() -> None:
    with pytest.raises(kafka_room.GroupStateException, match=r"\(that-store\) must be of stores of the topology"):
        kafka_room.shapes_of_topology(DESCRIPTION, "app", {"that-store": None})
    with pytest.raises(kafka_room.GroupStateException, match=r"\(1, that-store\) must be of stores of the topology"):
        kafka_room.shapes_of_topology(DESCRIPTION, "app", {"that-store": None, 1: None})
    with pytest.raises(
        kafka_room.GroupStateException, match=r"\['this-store'\]\) must be a mapping from stores to topics"
    ):
        kafka_room.shapes_of_topology(DESCRIPTION, "app", ["this-store"])


def test_no_two_sub_topologies_have_one_number() -> None:
    shapes = [SubTopologyShape("a", ("t",), number=1), SubTopologyShape("b", ("t",), number=1)]
    with pytest.raises(GroupException, match="Two sub-topologies have the number 1; the second is 'b'"):
        make_tasks(shapes, {"t": 1})


@pytest.mark.parametrize("name", [None, "", 7])
def test_an_application_id_that_is_no_name_is_said(name: object) -> None:
    """A task plug-in created the topic `None-this-store-changelog`."""
    with pytest.raises(kafka_room.GroupStateException, match=r"The application_id \(.*\) must be the name that begins"):
        kafka_room.shapes_of_topology(DESCRIPTION, name)
