"""What clients are sent: processors by value, with the names of their files, and not much of it without a word."""

from __future__ import annotations

import logging
import pickle
import threading
import uuid
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    DerivedStream,
    SubTopology,
    TopicSpec,
    Topology,
    TopologyException,
    pickle_bootstrap,
)
from task_assignor.runtime.blame import line_to_blame
from tests.runtime.support import CountByKey
from tests.runtime.test_launcher import _bootstrap


def test_code_keeps_the_name_of_its_file_on_its_way_to_a_client(tmp_path: Path) -> None:
    """Else no message could tell the line of a processor: cloudpickle leaves the name out from 3.1.3 on."""
    names: dict[str, Any] = {"__name__": "app"}
    exec(compile("def make():\n    return (lambda: 1 / 0)()\n", "/somewhere/app.py", "exec"), names)
    topology = Topology([SubTopology("mine", "left", names["make"])])
    sent = pickle.loads(pickle_bootstrap(attrs.evolve(_bootstrap(tmp_path), topology=topology)))
    (sub,) = sent.topology.sub_topologies
    with pytest.raises(ZeroDivisionError) as caught:
        sub.processor()
    line = line_to_blame(caught.value.__traceback__)
    assert line is not None
    assert (line.file, line.line) == ("/somewhere/app.py", 2)


@pytest.mark.parametrize(
    ("is_derived", "said"), [(False, "Holds of the sub-topology 'large'"), (True, "derived stream 'kept'")]
)
def test_much_that_is_sent_is_told_once_with_what_it_is_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_derived: bool, said: str
) -> None:
    """Of a table of 400 MB that a function had of its notebook nothing was said but that clients are waited for."""
    much = bytes(65 << 20)

    class Holds(CountByKey):
        table = much

    spec = TopicSpec("left", 1, pa.schema([("key", pa.int64())]), ("key",))
    kept = DerivedStream("kept", spec, filter=lambda rows: rows.column(much[:0].decode() or "key"))
    large = SubTopology("large", "kept" if is_derived else "left", CountByKey if is_derived else Holds)
    topology = Topology([large, SubTopology("small", "left", CountByKey)], derived=[kept] if is_derived else [])
    bootstrap = attrs.evolve(_bootstrap(tmp_path), topology=topology, run_id=str(uuid.uuid4()))
    for _ in range(2):
        pickle_bootstrap(bootstrap)
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told.startswith("Each client is sent 65 MB, most of it for the ")
    assert said in told
    assert "small" not in told


def test_a_serde_that_cannot_be_sent_is_no_topology(tmp_path: Path) -> None:
    """It said "The topology", and that init() is where to open what it holds; a serde has none."""
    kafka = pytest.importorskip("task_assignor.kafka.topics")

    class Asks(kafka.JsonSerde):  # type: ignore[misc, name-defined]
        lock = threading.Lock()

    topics = kafka.KafkaTopics({"bootstrap.servers": "nowhere:9092"}, [kafka.KafkaTopic("left", serde=Asks())])
    with pytest.raises(
        TopologyException,
        match=r"^The topics_root, or a serde in it, cannot be sent .*lock.* a serde when it is first asked",
    ):
        pickle_bootstrap(attrs.evolve(_bootstrap(tmp_path), topics=topics))
