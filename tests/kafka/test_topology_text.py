"""What Kafka Streams prints of a topology is read back."""

from __future__ import annotations

import pytest

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
        described(0, ("clicks", "impressions", "more.impressions"), ("this-store", "other-store")),
        described(2, ("again-repartition",), ()),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be what Kafka Streams prints"),
        ('{"clients": []}', "must be what Kafka Streams prints"),
        ("Sub-topology: 0\n Source: S (topics: click.*)\n", "reads all topics that match 'click.*'"),
    ],
)
def test_what_is_no_description_is_refused(text: str, said: str) -> None:
    with pytest.raises(kafka_room.GroupStateException, match=r"topology|topics") as caught:
        kafka_room.parse_topology(text)
    assert said in str(caught.value)
