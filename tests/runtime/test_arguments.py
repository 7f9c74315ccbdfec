"""What an application is given: clients, options and arguments that cannot be are refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from task_assignor.runtime import (
    ClientException,
    ClientSpec,
    LocalProcessLauncher,
    RuntimeOptions,
    TopicException,
    append_topic,
    write_topic,
)
from task_assignor.sdk import ConfigException
from tests.runtime.support import application, join_topology, write_streams


def test_a_client_keeps_its_process_id() -> None:
    spec = ClientSpec("c")
    assert spec.process_id("app") == ClientSpec("c", threads=2).process_id("app")
    assert len({spec.process_id("app"), spec.process_id("other"), ClientSpec("d").process_id("app")}) == 3


def test_threads_that_no_machine_has_are_refused() -> None:
    """Each is a consumer of the group: the driver's memory was full before the first batch."""
    with pytest.raises(ConfigException, match=r"The threads \(2147483647\) of c must be at most 10000"):
        ClientSpec("c", 2**31 - 1)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (0, "at least one client"),
        (10**17, r"The clients \(100000000000000000\) must be at most 10000"),
        ([ClientSpec("a"), ClientSpec("a")], "two clients of the name 'a'"),
        ([ClientSpec("a", state_dir="one"), ClientSpec("b", state_dir="./one/")], "'a' and 'b' have one state_dir"),
        (True, r"The clients \(True\) must be an int, or a list of ClientSpec objects"),
        (["client-1"], r"The clients \(\['client-1'\]\) must be an int, or a list of ClientSpec objects"),
    ],
)
def test_clients_that_cannot_be_are_refused(tmp_path: Path, clients: Any, message: str) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)
    with pytest.raises(ClientException, match=message):
        application(tmp_path, join_topology(), clients=clients)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"topology": join_topology().sub_topologies[0]},
            "topology .* a Topology, .*, not of the type SubTopology",
        ),
        ({"config": {"sasl.jaas.config": "s3cret"}}, r"config .* a StreamsConfig, .*, not of the type dict\.$"),
        ({"topics_root": 3}, "topics_root .* a path, a URL or KafkaTopics, not of the type int"),
        ({"run_dir": None}, "run_dir .* a path or a URL, not of the type NoneType"),
        ({"launcher": "processes"}, "launcher .* a launcher, .* not of the type str"),
        ({"launcher": LocalProcessLauncher}, "launcher .* a launcher, .* not of the type type"),
        ({"options": {}}, "options .* RuntimeOptions or None, not of the type dict"),
    ],
)
def test_arguments_of_another_type_are_named(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    """Python told of them far from here; of options that are empty not at all."""
    write_streams(tmp_path / "topics", rows=100, keys=10)
    right = application(tmp_path, join_topology())
    with pytest.raises(ConfigException, match=f"^The {message}") as caught:
        right.evolve(**given)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"on_event": "stopped"},
            r"on_event \('stopped'\) of a run must be a function, or None. Maybe run\(until='stopped'\).",
        ),
        ({"on_line": 3}, r"on_line \(3\) of a run must be a function, or None\.$"),
    ],
)
def test_listeners_that_cannot_be_called_are_refused_before_anything_starts(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    write_streams(tmp_path / "topics", rows=100, keys=10)
    with pytest.raises(ConfigException, match=f"^The {message}"):
        application(tmp_path, join_topology()).run(**given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_rows": 0}, "max_batch_rows .0. of a RuntimeOptions must be an int of at least 1"),
        (
            {"snapshot_changelog_bytes": -1},
            "snapshot_changelog_bytes .-1. of a RuntimeOptions must be an int of at least 0",
        ),
        (
            {"max_task_idle_ms": -2},
            r"max_task_idle_ms \(-2\) of .* must be an int of at least 0, or -1: do not wait\.$",
        ),
        # RocksDB said that it is "too big to convert", in the middle of a run.
        (
            {"state_memory_bytes": 2**70},
            f"state_memory_bytes .{2**70}. of a RuntimeOptions must be an int of at most {2**63 - 1}",
        ),
        ({"max_task_idle_ms": 2**63}, f"must be an int of at most {2**63 - 1}"),
        # The thread that looks for new rows died of an OverflowError, and the run went on without it.
        ({"source_poll_interval_ms": 2**31}, f"must be an int of at most {2**31 - 1}"),
        ({"heartbeat_interval_ms": 2**31}, f"must be an int of at most {2**31 - 1}"),
        ({"compression": "gzip"}, "compression .'gzip'. of a RuntimeOptions must be None, 'lz4' or 'zstd'"),
        ({"rack_from_host": "false"}, "rack_from_host .'false'. of a RuntimeOptions must be True or False"),
        ({"bind_host": 80}, "bind_host .80. of a RuntimeOptions must be the name or address of a host, or None"),
        ({"bind_port": 65_535}, "bind_port .65535. of a RuntimeOptions must be an int of at most 65534"),
        ({"heartbeat_interval_ms": 9, "session_timeout_ms": 9}, "must be less than the session_timeout_ms"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        RuntimeOptions(**options)


def test_choices_are_true_or_false(tmp_path: Path) -> None:
    """The text "no" counted as true: what was to be kept in order was sorted, and what was to be refused was added."""
    no: Any = "no"
    with pytest.raises(ConfigException, match=r"The replace_lost \('no'\) must be True or False"):
        LocalProcessLauncher(replace_lost=no)
    rows = pa.table({"k": [1]})
    with pytest.raises(TopicException, match=r"The sort_by_timestamp \('no'\) must be True or False"):
        write_topic(tmp_path, "t", rows, partitions=1, key=["k"], sort_by_timestamp=no)
    write_topic(tmp_path, "t", rows, partitions=1, key=["k"])
    for name in ("sort_by_timestamp", "add_columns"):
        with pytest.raises(TopicException, match=rf"The {name} \('no'\) must be True or False"):
            append_topic(tmp_path, "t", rows, **{name: no})


def test_names_of_clients_are_names_of_folders() -> None:
    with pytest.raises(TopicException, match="The client name"):
        ClientSpec("a/b")
    with pytest.raises(ConfigException, match=r"threads .0. of a ClientSpec"):
        ClientSpec("a", threads=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rack": 1}, r"The rack \(1\) of a must be a str or None"),
        ({"tags": {"zone": 1}}, r"The tags \({'zone': 1}\) of a must map a str to a str"),
        ({"tags": "zone=a"}, r"The tags \('zone=a'\) of a must map"),
        ({"host_info": "localhost:80"}, r"The host_info \('localhost:80'\) of a must be a HostInfo or None"),
    ],
)
def test_what_a_client_says_of_itself_is_checked(given: dict[str, Any], message: str) -> None:
    """Who said hello with others was not understood, and the run waited for it in vain."""
    with pytest.raises(ConfigException, match=message):
        ClientSpec("a", **given)
