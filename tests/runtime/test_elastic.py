"""Clients that come and go while a run goes on, as processes: scale-out, scale-in, SIGTERM, racks and tags of their places."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import time
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import polars as pl
import pyarrow as pa
import pytest

from task_assignor.runtime import (
    BatchesCommitted,
    ClientException,
    ClientJoined,
    ClientLeft,
    ClientLost,
    ClientSpec,
    KeyValueStoreSpec,
    LocalProcessLauncher,
    Rebalanced,
    ResultRefused,
    RunEvent,
    RuntimeOptions,
    StreamsApplication,
    TaskRestored,
    Topology,
    write_topic,
)
from task_assignor.runtime.machines.coordinator.values import CoordinatorPhase
from task_assignor.runtime.shells.clients import Clients
from task_assignor.runtime.shells.places import rack_of, tags_of
from task_assignor.sdk import ConfigException, StreamsConfig, TaskId
from tests.runtime.assignors import PlaceNotingAssignor
from tests.runtime.support import PATIENCE_S, QUICK, Watch, application, count_topology, held_back, settings

ROWS, KEYS, PARTITIONS, BATCH_ROWS, FREE_BATCHES = 4_000, 40, 4, 50, 4
NEAR = 15
"""A lag of so many rows is one batch, not all of them."""
CHECKED = attrs.evolve(
    QUICK,
    max_batch_rows=BATCH_ROWS,
    validate_state=True,
    session_timeout_ms=60_000,
    startup_timeout_ms=600_000,
)


def _topology(mark: Path) -> Topology:
    """Running totals; the test decides when all but the first rows of each partition are counted."""
    return held_back(count_topology(), mark, FREE_BATCHES)


@pytest.fixture
def rows(tmp_path: Path) -> pa.Table:
    """The topic, as many rows in each partition."""
    keys = [pa.array([number % KEYS for number in range(ROWS)], pa.int64())]
    table = pa.table({"key": keys[0], "at": pa.array(range(ROWS)), "value": pa.array(map(str, range(ROWS)))})
    write_topic(tmp_path / "topics", "left", table, partitions=PARTITIONS, key=["key"], timestamp="at")
    return table


def _check(result: Any, rows: pa.Table) -> None:
    """The last totals are those of all rows, no batch was done twice, and each ran where it was assigned."""
    totals = pl.DataFrame(result.table("totals-out")).group_by("key").agg(pl.col("count", "sum").max()).sort("key")
    plain = (
        pl.DataFrame(rows).group_by("key").agg(pl.len().cast(pl.Int64).alias("count"), pl.col("at").sum().alias("sum"))
    )
    assert totals.equals(plain.sort("key"))
    check_owners(result)


def check_owners(result: Any) -> None:
    """Every committed batch ran where the assignment of its generation said."""
    assignments: dict[int, Mapping[str, Any]] = {}
    for record in result.commits.records():
        if record.rebalance is not None:
            assignments[record.rebalance.generation] = record.rebalance.clients
        for commit in record.tasks.values():
            client, tasks = assignments[commit.generation][commit.member_id]
            assert client == commit.client
            assert commit.task in tasks.active


def _app(root: Path, **more: Any) -> StreamsApplication:
    more.setdefault("options", CHECKED)
    return application(root, _topology(root / "mark"), **more)


def _active(event: Rebalanced, client: str) -> tuple[TaskId, ...]:
    return event.assignment[client].active if client in event.assignment else ()


def _terminate(watch: Watch, client: str) -> None:
    """Send a client SIGTERM at the first commit."""
    asked: list[int] = []

    def terminate(_: BatchesCommitted) -> None:
        if not asked:
            (pid,) = [event.pid for event in watch.of(ClientJoined) if event.client == client]
            asked.append(pid)
            os.kill(pid, signal.SIGTERM)

    watch.on(BatchesCommitted, terminate)


def test_a_client_more_takes_tasks_from_those_that_there_are(tmp_path: Path, rows: pa.Table) -> None:
    app, watch = _app(tmp_path), Watch()
    watch.on(BatchesCommitted, lambda _: app.scale(3))
    watch.on(Rebalanced, lambda event: (tmp_path / "mark").touch() if _active(event, "client-3") else None)
    result = app.run(watch)
    _check(result, rows)
    done = {commit.client for record in result.commits.records() for commit in record.tasks.values()}
    assert done == {"client-1", "client-2", "client-3"}
    last = result.rebalances[-1]
    assert last.reason == "client-3 joined"
    assert {to for _, _, to in last.moved} == {"client-3"}
    assert not watch.of(ClientLost) + watch.of(ResultRefused)
    assert [spec.name for spec in app.clients] == ["client-1", "client-2", "client-3"]


def test_clients_that_are_too_many_finish_their_batches_and_leave(tmp_path: Path, rows: pa.Table) -> None:
    app, watch = _app(tmp_path, clients=3), Watch()
    watch.on(BatchesCommitted, lambda _: app.scale(1))
    watch.on(
        Rebalanced, lambda event: (tmp_path / "mark").touch() if len(_active(event, "client-1")) == PARTITIONS else None
    )
    result = app.run(watch)
    _check(result, rows)
    assert {(event.client, event.reason) for event in watch.of(ClientLeft)} == {
        ("client-2", "scale-in"),
        ("client-3", "scale-in"),
    }
    assert not watch.of(ClientLost) + watch.of(ResultRefused)
    assert len(watch.of(ClientJoined)) == 3


def test_a_client_that_is_to_be_elsewhere_leaves_and_is_started_again(tmp_path: Path, rows: pa.Table) -> None:
    """It was as if nobody had asked."""
    app, watch = _app(tmp_path), Watch()
    watch.on(
        BatchesCommitted, lambda _: app.scale([ClientSpec("client-1"), ClientSpec("client-2", threads=2, rack="b")])
    )

    def go_on(event: Rebalanced) -> None:
        if (
            _active(event, "client-2")
            and len([told for told in watch.of(ClientJoined) if told.client == "client-2"]) == 2
        ):
            (tmp_path / "mark").touch()

    watch.on(Rebalanced, go_on)
    _check(app.run(watch), rows)
    assert [event.client for event in watch.of(ClientLeft)] == ["client-2"]
    assert not watch.of(ClientLost)
    (*_, state) = sorted((tmp_path / "run" / "states").glob("*.json"))
    assert '"b"' in state.read_text(), "the assignor knows where it is now"


def test_at_sigterm_a_client_finishes_its_batches_and_leaves(tmp_path: Path, rows: pa.Table) -> None:
    app, watch = _app(tmp_path), Watch()
    _terminate(watch, "client-2")
    watch.on(
        Rebalanced, lambda event: (tmp_path / "mark").touch() if len(_active(event, "client-1")) == PARTITIONS else None
    )
    result = app.run(watch)
    _check(result, rows)
    assert [(event.client, event.reason) for event in watch.of(ClientLeft)] == [("client-2", "SIGTERM")]
    assert not watch.of(ClientLost) + watch.of(ResultRefused)
    assert len(watch.of(ClientJoined)) == 2, "who was told to go is not started again"


@pytest.mark.parametrize("number", [1, 2])
def test_a_number_of_clients_counts_none_that_has_left(tmp_path: Path, rows: pa.Table, number: int) -> None:
    """The first ones stayed, also those that SIGTERM had ended: of two clients none was left, and the run waited for them."""
    app, watch = _app(tmp_path), Watch()
    _terminate(watch, "client-1")

    def scale(event: ClientLeft) -> None:
        if event.client == "client-1":
            gone = len(watch.of(ClientLeft) + watch.of(ClientLost))
            assert app.metrics.to_json()["alive-clients"] == len(watch.of(ClientJoined)) - gone
            app.scale(number)
        else:
            app.request_stop("a client was told to leave")

    def is_over(_: RunEvent) -> bool:
        read = sum(event.rows_in for event in watch.of(BatchesCommitted))
        return bool(watch.of(ClientLeft)) and len(watch.of(ClientJoined)) > number and read == ROWS

    watch.on(ClientLeft, scale)
    watch.on(
        Rebalanced, lambda event: (tmp_path / "mark").touch() if len(_active(event, "client-2")) == PARTITIONS else None
    )
    result = app.run(watch, until=is_over)
    assert result.stopped == "the condition of `until` is met"
    _check(result, rows)
    assert [spec.name for spec in app.clients] == ["client-2", "client-1"][:number]


def test_a_new_client_warms_up_before_it_gets_tasks(tmp_path: Path, rows: pa.Table) -> None:
    """A warm-up standby becomes active when a probing rebalance finds that it has caught up, and restores nothing then."""
    config = settings(
        task_assignor_class="tests.runtime.assignors.ProbingAssignor", acceptable_recovery_lag=0, max_warmup_replicas=4
    )
    app, watch = _app(tmp_path, config=config), Watch()
    begun: set[TaskId] = set()

    def scale_when_all_have_state(event: BatchesCommitted) -> None:
        # Who has nothing of a task that has no state yet has caught up with it.
        begun.update(event.batches)
        if len(begun) == PARTITIONS:
            app.scale(3)

    watch.on(BatchesCommitted, scale_when_all_have_state)
    watch.on(Rebalanced, lambda event: (tmp_path / "mark").touch() if _active(event, "client-3") else None)
    result = app.run(watch)
    _check(result, rows)
    (joined,) = [event for event in result.rebalances if event.reason == "client-3 joined"]
    assert joined.assignment["client-3"].active == ()
    assert joined.assignment["client-3"].standby
    assert joined.followup_deadline_ms is not None
    taken = next(event for event in result.rebalances if _active(event, "client-3"))
    assert taken.reason == "a client's follow-up deadline has passed"
    restored = [event for event in watch.of(TaskRestored) if event.client == "client-3"]
    assert {event.role for event in restored} == {"standby", "active"}
    warm = {event.task for event in restored if event.role == "standby"}
    for event in restored:
        if event.role == "active":
            assert event.task in warm
            assert event.origin == "memory"
    assert not watch.of(ClientLost) + watch.of(ResultRefused)


def test_clients_that_come_back_tell_how_far_their_stores_on_disk_are(tmp_path: Path, rows: pa.Table) -> None:
    """Without any snapshot: the assignor sees the lags that they have before a store is opened, and tasks go back."""
    pytest.importorskip("rocksdict", reason="needs the extra `rocksdb`")
    (plain,) = _topology(tmp_path / "mark").sub_topologies
    (store,) = plain.stores
    assert isinstance(store, KeyValueStoreSpec)
    topology = Topology([attrs.evolve(plain, stores=(attrs.evolve(store, on_disk=True),))])
    options = attrs.evolve(CHECKED, snapshot_changelog_bytes=0, snapshot_interval_ms=0)
    done: dict[TaskId, int] = {}

    def interrupt(event: BatchesCommitted) -> None:
        done.update(event.batches)
        if len(done) == PARTITIONS and min(done.values()) >= FREE_BATCHES - 1:
            # Who is killed while it notes where a store is has no note: all tasks wait by then, and write nothing.
            deadline = time.monotonic() + PATIENCE_S
            while len(list(tmp_path.glob("mark-*"))) < PARTITIONS:
                assert time.monotonic() < deadline, "a task does not come to where it waits"
                time.sleep(0.01)
            raise KeyboardInterrupt

    before = Watch()
    before.on(BatchesCommitted, interrupt)
    # A thread per task: beside a task that waits another one goes on, whose files the disk may have taken late.
    config = settings(task_assignor_class="tests.runtime.assignors.CrosswiseAssignor", num_stream_threads=PARTITIONS)
    with pytest.raises(KeyboardInterrupt):
        application(tmp_path, topology, config=config, options=options).run(before)
    owners = {client: of.active for client, of in before.of(Rebalanced)[-1].assignment.items()}
    (tmp_path / "mark").touch()
    again = Watch()
    config = StreamsConfig({"application.id": "test", "acceptable.recovery.lag": NEAR})
    result = application(tmp_path, topology, config=config, options=options).run(again)
    _check(result, rows)
    assert {event.client: event.restorable for event in again.of(ClientJoined)} == owners
    first = again.of(Rebalanced)[0]
    assert {client: of.active for client, of in first.assignment.items()} == owners, "each is where its state is"
    state = json.loads(max((tmp_path / "run" / "states").glob("*.json")).read_text())
    names = {str(ClientSpec(name).process_id("test")): name for name in owners}
    for client in state["clients"]:
        for task, lag in client["taskLags"].items():
            is_here = TaskId.parse(task) in owners[names[client["processId"]]]
            assert lag <= NEAR if is_here else lag > NEAR, f"{task} at {client}"
    assert {event.origin for event in again.of(TaskRestored) if event.role == "active"} == {"disk"}


def test_an_application_can_be_scaled_before_it_runs_but_not_to_nothing(tmp_path: Path, rows: pa.Table) -> None:
    app = _app(tmp_path, clients=[ClientSpec("a"), ClientSpec("client-1")])
    app.scale(4)
    with pytest.raises(ClientException, match="at least one client"):
        app.scale(-1)
    assert [spec.name for spec in app.clients] == ["a", "client-1", "client-2", "client-3"]
    for too_many in (10_001, 10**17):
        with pytest.raises(ClientException, match=rf"The clients \({too_many}\) must be at most 10000"):
            app.scale(too_many)
    app.scale([ClientSpec("b")])
    assert [spec.name for spec in app.clients] == ["b"]
    with pytest.raises(ClientException, match="at least one client"):
        app.scale(0)
    with pytest.raises(ClientException, match="two clients of the name 'b'"):
        app.scale([ClientSpec("b"), ClientSpec("b")])


# Racks and tags.


def test_racks_and_tags_come_from_settings_environment_or_host() -> None:
    options, from_host = RuntimeOptions(), RuntimeOptions(rack_from_host=True)
    here = {"TASK_ASSIGNOR_RACK": "r2", "TASK_ASSIGNOR_TAGS": "zone=a, cluster = b"}
    assert rack_of(ClientSpec("c", rack="r1"), here, from_host) == "r1"
    assert rack_of(ClientSpec("c"), here, from_host) == "r2"
    assert rack_of(ClientSpec("c"), {}, from_host) == socket.gethostname()
    assert rack_of(ClientSpec("c"), {}, options) is None
    assert tags_of(ClientSpec("c", tags={"zone": "x"}), here) == {"zone": "x", "cluster": "b"}
    assert tags_of(ClientSpec("c"), {}) == {}
    # Those of the settings are those of all clients.
    config = StreamsConfig({"client.rack": "r0", "client.tag.zone": "unknown", "client.tag.row": "1"})
    of_all, own = (
        ClientSpec("c").with_settings(config),
        ClientSpec("c", rack="r1", tags={"zone": "x"}).with_settings(config),
    )
    again = pickle.loads(pickle.dumps(own.with_settings(config)))
    assert [rack_of(spec, here, options) for spec in (of_all, own, again)] == ["r2", "r1", "r1"]
    assert rack_of(of_all, {}, from_host) == "r0"
    assert tags_of(of_all, here) == {"zone": "a", "cluster": "b", "row": "1"}
    assert tags_of(again, here) == {"zone": "x", "cluster": "b", "row": "1"}
    assert tags_of(of_all, {}) == {"zone": "unknown", "row": "1"}
    with pytest.raises(ConfigException, match=r"TASK_ASSIGNOR_TAGS .'zone'. must be of the form 'zone=a,cluster=b'"):
        tags_of(ClientSpec("c"), {"TASK_ASSIGNOR_TAGS": "zone"})
    with pytest.raises(ConfigException, match=r"TASK_ASSIGNOR_TAGS .'zone=a,zone=b'. must be .*, with each tag once"):
        tags_of(ClientSpec("c"), {"TASK_ASSIGNOR_TAGS": "zone=a,zone=b"})


def test_no_process_is_started_for_tags_that_are_none(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client was started three times, and the run ended with how often it had failed."""
    monkeypatch.setenv("TASK_ASSIGNOR_TAGS", "zone")
    launcher = LocalProcessLauncher(start_method="forkserver")
    with pytest.raises(ConfigException, match=r"^The environment variable TASK_ASSIGNOR_TAGS .'zone'. must be"):
        _app(tmp_path, clients=1, config=settings(), launcher=launcher).run()
    assert launcher.pids == {}


def test_the_assignor_sees_the_rack_and_tags_of_a_clients_environment(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASK_ASSIGNOR_RACK", "r7")
    monkeypatch.setenv("TASK_ASSIGNOR_TAGS", "zone=north")
    (tmp_path / "mark").touch()
    seen = PlaceNotingAssignor.seen
    seen.clear()
    config = settings(
        task_assignor_class="tests.runtime.assignors.PlaceNotingAssignor",
        # It wants the tag in the settings, whose value was that of all clients then.
        rack_aware_assignment_tags="zone",
        client_tag_zone="unknown",
    )
    launcher = LocalProcessLauncher(start_method="spawn")
    _app(tmp_path, clients=1, config=config, launcher=launcher).run()
    assert seen == [("r7", {"zone": "north"})]


def test_a_client_that_has_no_process_can_be_had_again() -> None:
    """As one that was lost and is not replaced: its end was waited for, for ever, and `scale` started no other one."""
    specs, started = {name: ClientSpec(name) for name in ("a", "b")}, list[str]()

    class Launcher(LocalProcessLauncher):
        def add(self, bootstrap: Any) -> None:
            started.append(bootstrap)

    coordinator: Any = SimpleNamespace(phase=CoordinatorPhase.RUNNING)
    server: Any = None
    bootstrap: Any = attrgetter("name")
    wanted = dict(specs)
    clients = Clients(Launcher(), server, lambda: [*wanted.values()], bootstrap, None, print)
    del wanted["b"]
    clients.look_after(coordinator)
    assert started == []
    wanted["b"] = specs["b"]
    clients.look_after(coordinator)
    assert started == ["b"]
