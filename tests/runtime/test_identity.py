"""A run goes on only as the run that it was: whatever else it is, is told."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    CommitLogException,
    KeyValueStoreSpec,
    Output,
    Processor,
    ProcessorException,
    RecordProcessor,
    RunResult,
    RuntimeOptions,
    StreamTableJoin,
    SubTopology,
    TableChanges,
    TableJoin,
    TaskContext,
    Topic,
    Topology,
    TopologyException,
    WindowedJoin,
    WindowStoreSpec,
    append_topic,
    identity,
    output_schema,
    read_output,
    write_topic,
)
from task_assignor.runtime.identity import differences, identity_of, with_allowed_changes
from tests.runtime.support import (
    QUICK,
    CountByKey,
    application,
    change_description,
    description,
    join_topology,
    settings,
    stream,
    write_streams,
)
from tests.runtime.thread_clients import ThreadLauncher

KEY, VALUE = pa.schema([("k", pa.int64())]), pa.schema([("n", pa.int64())])


class Scaled(Processor):
    """A processor with a parameter."""

    def __init__(self, factor: object = 1.0) -> None:
        self.factor = factor

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """Nothing."""
        return None


def _scaled(factor: float) -> Callable[[], Processor]:
    return lambda: Scaled(factor)


def _class_scaled(factor: float) -> type[Scaled]:
    class Local(Scaled):
        """Knows the factor without being told."""

        def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
            """Nothing."""
            assert factor
            return super().process_batch(batch, context)

    return Local


@attrs.frozen
class Factory:
    """Makes processors with a setting."""

    limits: tuple[int, ...]

    def __call__(self) -> Processor:
        """One."""
        return Scaled()


@dataclass(frozen=True, slots=True)
class Slotted:
    """Makes processors with a setting, and has no `__dict__`."""

    factor: float

    def __call__(self) -> Processor:
        """One."""
        return Scaled(self.factor)


def _topology(**changes: Any) -> Topology:
    given = {
        "name": "sub",
        "sources": ("a", "b"),
        "processor": Scaled,
        "stores": (KeyValueStoreSpec("s", KEY, VALUE), WindowStoreSpec("w", "at")),
        "outputs": (Output("o", VALUE), "p"),
        **changes,
    }
    return Topology([SubTopology(**given)])


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Topic]:
    root = tmp_path_factory.mktemp("topics")
    rows = stream(10, 2, seed=1)
    return {name: write_topic(root, name, rows, partitions=2, key=["key"], timestamp="at") for name in "abc"}


def _outputs(topology: Topology) -> dict[str, pa.Schema | None]:
    return {output.name: output.schema for sub in topology.sub_topologies for output in sub.outputs}


def _identity(topics: Mapping[str, Topic], topology: Topology) -> dict[str, Any]:
    outputs = _outputs(topology)
    return identity_of(topology, {name: topics[name] for name in topology.sources}, outputs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sources": ("b", "a")}, ['sub-topologies, sub, sources: was ["a", "b"], is ["b", "a"]']),
        ({"tables": ("a",)}, ['sub-topologies, sub, tables: was [], is ["a"]']),
        (
            {"stores": (KeyValueStoreSpec("s", KEY, KEY.set(0, pa.field("m", pa.int64()))), WindowStoreSpec("w", "at"))},
            ["stores, s: was \"key-value(k: int64 -> n: int64)\", is \"key-value(k: int64 -> m: int64)\""],
        ),
        (
            {"stores": (KeyValueStoreSpec("s", KEY, VALUE, logged=False),)},
            ["stores, s: was", "without changelog", 'stores, w: was "window(at)", is gone'],
        ),
        ({"outputs": (Output("o", VALUE), "q")}, ["outputs, p: was null, is gone", "outputs, q: is null, was not there"]),
        ({"outputs": (Output("o", KEY), "p")}, ['outputs, o, n: was "int64", is gone']),
        ({"processor": CountByKey}, ['processor, name: was "Scaled", is "CountByKey"']),
        ({"processor": partial(Scaled, 2.5)}, ["processor, parameters, arguments: is [2.5], was not there"]),
        ({"version": "2"}, ['processor, version: is "2", was not there']),
        ({"name": "other"}, ['order of the sub-topologies: was ["sub"], is ["other"]']),
        ({"topology": "named"}, ['sub-topologies, sub, topology: is "named", was not there']),
    ],
)  # fmt: skip
def test_what_differs_is_told(topics: dict[str, Topic], change: dict[str, Any], told: list[str]) -> None:
    before = _identity(topics, _topology())
    assert differences(before, _identity(topics, _topology())) == []
    found = "; ".join(differences(before, _identity(topics, _topology(**change))))
    for part in told:
        assert part in found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(Scaled, factor=1), partial(Scaled, factor=2)),
        (_scaled(1), _scaled(2)),
        (_class_scaled(1), _class_scaled(2)),
        (partial(_class_scaled(1), 3), partial(_class_scaled(2), 3)),
        (Factory((1, 2)), Factory((1, 3))),
        (lambda f=1: Scaled(f), lambda f=2: Scaled(f)),
        (Slotted(1.0), Slotted(2.0)),
        (Factory((1, 2)).__call__, Factory((1, 3)).__call__),
        (partial(Scaled, timedelta(days=1)), partial(Scaled, timedelta(days=2))),
        (partial(Scaled, Decimal("1.5")), partial(Scaled, Decimal("2.5"))),
        (partial(Scaled, re.compile("a+")), partial(Scaled, re.compile("b+"))),
        (partial(Scaled, np.float64(1.5)), partial(Scaled, np.float64(2.5))),
        (partial(Scaled, np.int64(1)), partial(Scaled, np.int64(2))),
        (partial(Scaled, np.zeros(10_000)), partial(Scaled, np.ones(10_000))),
        (partial(Scaled, pl.col("a") > 1), partial(Scaled, pl.col("a") > 2)),
        (partial(Scaled, pl.col("a").round(1)), partial(Scaled, pl.col("a").round(2))),
        (
            partial(Scaled, pl.col("a").is_in([*range(100)])),
            partial(Scaled, pl.col("a").is_in([*range(50), -1, *range(51, 100)])),
        ),
        (partial(Scaled, pc.field("a") > 1), partial(Scaled, pc.field("a") > 2)),
        (
            partial(Scaled, pc.field("a").isin([*range(100)])),
            partial(Scaled, pc.field("a").isin([*range(50), -1, *range(51, 100)])),
        ),
        (
            partial(Scaled, pc.SetLookupOptions(pa.array([*range(100)]))),
            partial(Scaled, pc.SetLookupOptions(pa.array([*range(50), -1, *range(51, 100)]))),
        ),
        (
            partial(Scaled, pc.ScalarAggregateOptions(min_count=1)),
            partial(Scaled, pc.ScalarAggregateOptions(min_count=2)),
        ),
        (partial(Scaled, pa.table({"a": [1]})), partial(Scaled, pa.table({"a": [2]}))),
    ],
)
def test_parameters_of_processors_are_seen_wherever_they_are(
    topics: dict[str, Topic], one: Callable[[], Processor], other: Callable[[], Processor]
) -> None:
    first, second = (_identity(topics, _topology(processor=found)) for found in (one, other))
    told = differences(first, second)
    assert told
    assert all("processor, parameters" in one for one in told)
    assert differences(first, _identity(topics, _topology(processor=one))) == []


def test_what_is_not_there_any_more_is_no_parameter(topics: dict[str, Topic]) -> None:
    """It was "Cell is empty"; Python itself takes the name of an exception away when it is handled."""

    def made() -> Callable[[], Processor]:
        factor = 2.0

        def factory(own: float = 3.0) -> Processor:
            return Scaled(own or factor)  # noqa: F821 - that is it

        del factor
        return factory

    (sub,) = _identity(topics, _topology(processor=made()))["sub-topologies"].values()
    assert sub["processor"]["parameters"]["own"]["default"] == 3
    assert "factor" not in sub["processor"]["parameters"]


def _with_store(key: pa.Schema, value: pa.Schema, **more: Any) -> Topology:
    return _topology(stores=(KeyValueStoreSpec("s", key, value, **more), WindowStoreSpec("w", "at")))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("logged", [False, True])
def test_a_key_value_store_may_gain_columns(topics: dict[str, Topic], logged: bool, on_disk: bool) -> None:
    before = _identity(topics, _with_store(KEY, VALUE, logged=logged))
    topology = _with_store(
        KEY, pa.schema([*VALUE, ("m", pa.string()), ("o", pa.float64())]), logged=logged, on_disk=on_disk
    )
    now = _identity(topics, topology)
    assert differences(with_allowed_changes(before, now, topology, _outputs(topology)), now) == []


@pytest.mark.parametrize(
    ("key", "value", "logged"),
    [
        (KEY, pa.schema([("n", pa.string()), ("m", pa.string())]), True),
        (KEY, pa.schema([("m", pa.string())]), True),
        (KEY, pa.schema([]), True),
        (KEY, pa.schema([("m", pa.string()), *VALUE]), True),
        (KEY, pa.schema([*VALUE, pa.field("m", pa.string(), nullable=False)]), True),
        (KEY, pa.schema([*VALUE, pa.field("m", pa.string(), nullable=False), ("o", pa.string())]), True),
        (pa.schema([*KEY, ("m", pa.string())]), VALUE, True),
        (KEY, pa.schema([*VALUE, ("m", pa.string())]), False),
        (KEY, VALUE, False),
    ],
)
def test_whatever_else_changes_in_a_key_value_store_is_a_difference(
    topics: dict[str, Topic], key: pa.Schema, value: pa.Schema, logged: bool
) -> None:
    """Lost, retyped, before others, never null, in the key, without the changelog that had the older rows."""
    before, topology = _identity(topics, _with_store(KEY, VALUE)), _with_store(key, value, logged=logged)
    now = _identity(topics, topology)
    (told,) = differences(with_allowed_changes(before, now, topology, _outputs(topology)), now)
    assert told.startswith('sub-topologies, sub, stores, s: was "key-value(k: int64 -> n: int64)", is "key-value(')


def test_what_a_topic_gains_is_no_parameter_of_a_processor(tmp_path: Path) -> None:
    """A ready-made one knows the topics that it was made for; what it makes of a column, stores and outputs say."""

    def identity() -> tuple[Topology, dict[str, Any]]:
        topic = Topic.open(tmp_path, "t")
        count = Aggregation(source="t", aggregates={"count": Aggregate.count()})
        topology = Topology([count.sub_topology("count", Output("o", None), [topic.spec])])
        return topology, _identity({"t": topic}, topology)

    rows = stream(10, 2, seed=1)
    write_topic(tmp_path, "t", rows, partitions=2, key=["key"], timestamp="at")
    _, before = identity()
    append_topic(tmp_path, "t", rows.append_column("more", rows.column("value")), add_columns=True)
    topology, now = identity()
    assert before != now
    assert differences(with_allowed_changes(before, now, topology, {}), now) == []


@pytest.mark.parametrize("kind", [WindowedJoin, TableJoin, StreamTableJoin])
def test_no_column_of_a_join_becomes_another_one(tmp_path: Path, kind: type[Any]) -> None:
    """The left topic gains a column that the right one has: what was its `price` had its name, or the first batch failed."""
    sides = ("stream", "table") if kind is StreamTableJoin else ("left", "right")

    def identity(**settings: Any) -> tuple[Topology, dict[str, Any], dict[str, pa.Schema | None]]:
        found = {name: Topic.open(tmp_path, name) for name in sides}
        window = {"before_ms": 1, "after_ms": 1} if kind is WindowedJoin else {}
        join = kind(**dict(zip(sides, sides, strict=True)), **window, **settings)
        specs = [] if kind is WindowedJoin else [[topic.spec for topic in found.values()]]
        topology = Topology([join.sub_topology("join", Output("o"), *specs)])
        topics = {name: topic.spec for name, topic in found.items()}
        outputs = {"o": topology.sub_topologies[0].schema_of(Output("o"), topics)}
        return topology, identity_of(topology, found, outputs), outputs

    def told(before: dict[str, Any], **settings: Any) -> str:
        topology, now, outputs = identity(**settings)
        return "; ".join(differences(with_allowed_changes(before, now, topology, outputs), now))

    rows = stream(10, 2, seed=1)
    priced = rows.append_column("price", pa.array(range(10)))
    write_topic(tmp_path, sides[0], rows, partitions=2, key=["key"], timestamp="at")
    write_topic(tmp_path, sides[1], priced, partitions=2, key=["key"], timestamp="at")
    _, before, _ = identity()
    append_topic(tmp_path, sides[0], priced, add_columns=True)
    assert f'columns, price: was "price of {sides[1]}", is "price of {sides[0]}"' in told(before)
    named = {f"{sides[0]}_columns": rows.column_names}
    assert told(before, **named) == ""
    _, before, _ = identity(**named)
    assert f'columns, value: was "value of {sides[0]}", is "value of {sides[1]}"' in told(
        before, **{f"{sides[0]}_columns": ["at"]}
    )


def test_a_table_may_gain_a_column_of_the_name_of_its_changes(tmp_path: Path) -> None:
    """Whatever was given, with all columns or those that there were, the run could not go on."""

    def identity(**settings: Any) -> tuple[Topology, dict[str, Any], dict[str, pa.Schema | None]]:
        topic = Topic.open(tmp_path, "t")
        changes = TableChanges(table="t", **settings).sub_topology("c", Output("o"), topic.spec)
        topology, outputs = Topology(changes), {"o": changes.schema_of(Output("o"), {"t": topic.spec})}
        return topology, identity_of(topology, {"t": topic}, outputs), outputs

    def told(**settings: Any) -> str:
        topology, now, outputs = identity(**settings)
        return "; ".join(differences(with_allowed_changes(before, now, topology, outputs), now))

    rows = stream(10, 2, seed=1)
    write_topic(tmp_path, "t", rows, partitions=2, key=["key"], timestamp="at")
    _, before, _ = identity()
    append_topic(tmp_path, "t", rows.append_column("change", rows.column("value")), add_columns=True)
    with pytest.raises(
        TopologyException, match=r"has a column 'change', too.* the columns that the topic had: columns="
    ):
        identity()
    assert told(columns=["value"]) == ""
    assert "columns, value: " in told(columns=["at", "change"], change="other")


@pytest.mark.parametrize("expression", [pc.field("a").isin([*range(100)]), pl.col("a").is_in([*range(100)])])
def test_a_run_goes_on_whose_folder_has_the_first_and_last_values_of_an_array_only(
    topics: dict[str, Topic], expression: object
) -> None:
    """Former versions of this package wrote no checksum of all."""
    now = _identity(topics, _topology(processor=partial(Scaled, expression)))
    former = json.loads(re.sub(r"; SHA-256 of all its values[^:]*: \w+", "", json.dumps(now)))
    assert former != now
    assert differences(former, now) == []


def test_where_a_frame_differs_it_is_said_that_it_may_be_its_package(topics: dict[str, Topic]) -> None:
    """Another version of it pickles the same values in another way, and all that was told was bytes."""
    first, second = (
        _identity(topics, _topology(processor=partial(Scaled, pl.DataFrame({"a": [number]})))) for number in (1, 2)
    )
    assert "as its package pickles it" in identity.hints(differences(first, second))
    first, second = (_identity(topics, _topology(processor=partial(Scaled, number))) for number in (1, 2))
    assert "as its package pickles it" not in identity.hints(differences(first, second))


@pytest.mark.parametrize("place", [0, 100, 500, 999])
def test_of_long_values_the_message_has_where_they_differ(place: int) -> None:
    """Both were shown by the same beginning."""
    before = [*range(1_000)]
    (told,) = differences({"limits": before}, {"limits": [*before[:place], -1, *before[place + 1 :]]})
    was, now = told.removeprefix("limits: was ").split(", is ")
    assert was != now
    assert "-1" in now
    assert max(map(len, (was, now))) < 570


def test_expressions_of_another_polars_are_compared_by_their_text(topics: dict[str, Topic]) -> None:
    """Each version writes the rest in a way of its own."""
    now, other = (_identity(topics, _topology(processor=partial(Scaled, pl.col(name).round(1)))) for name in "ab")
    former = json.loads(re.sub(rf"polars {pl.__version__}: \w+", f"polars 0.1: {'0' * 64}", json.dumps(now)))
    assert former != now
    assert differences(former, now) == []
    assert differences(former, other)


def test_the_code_of_a_function_in_an_expression_is_not_compared(topics: dict[str, Topic]) -> None:
    one, other = (pl.col("a").map_batches(function) for function in (lambda found: found, lambda found: found + 1))
    first, second = (_identity(topics, _topology(processor=partial(Scaled, found))) for found in (one, other))
    assert differences(first, second) == []


def test_where_an_object_is_in_memory_is_no_difference(topics: dict[str, Topic]) -> None:
    class Plain:
        def __init__(self, numbers: list[int]) -> None:
            self.limit = {3: {2, 1}, "x": None}
            self.handlers = {(lambda: None): "of a", (object(), 2): "of b"}
            self.routes = {frozenset(numbers): "a", (1, frozenset(numbers)): "b"}
            self.lock = object()
            self.log = logging.getLogger(__name__)
            self.module = logging
            self.me = self.myself = self

        def __call__(self) -> Processor:
            return Scaled()

    # Both have one place in a set, so it has them in the order in which they came; texts have any.
    one, other = Plain([0, 8]), Plain([8, 0])
    assert str(one.routes) != str(other.routes)
    first, second = (_identity(topics, _topology(processor=found)) for found in (one, other))
    assert differences(first, second) == []


def test_values_that_are_all_linked_with_each_other_are_not_followed_on_all_ways(
    topics: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nine the identity had four megabytes, and of sixteen a run did not begin within a lifetime."""

    def linked(last: int) -> Topology:
        nodes = [SimpleNamespace(number=number) for number in [*range(8), last]]
        for node in nodes:
            node.links = list(nodes)
        return _topology(processor=partial(Scaled, nodes[0]))

    monkeypatch.setattr(identity, "_LINKS", 1_000)
    first, second = (_identity(topics, linked(last)) for last in (8, 9))
    assert len(json.dumps(first)) < 500_000
    assert first == _identity(topics, linked(8))
    assert differences(first, second)


def test_a_changed_run_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A changed window, another output, a topic written anew, more partitions: all gave wrong rows."""
    root = tmp_path / "topics"
    write_streams(root, rows=200, keys=10)
    application(tmp_path, join_topology(), clients=1).run()

    def refused(topology: Topology, *parts: str) -> None:
        with pytest.raises(CommitLogException) as caught:
            application(tmp_path, topology, clients=1).run()
        for part in (*parts, "cannot go on", "Maybe use another run_dir"):
            assert part in str(caught.value)

    def join(output: str = "joined", **window: Any) -> Topology:
        given = {"before_ms": 20_000, "after_ms": 40_000, **window}
        return Topology([WindowedJoin(left="left", right="right", **given).sub_topology("join", output)])

    refused(join(after_ms=50_000), "processor, parameters, join, after_ms: was 40000, is 50000")
    refused(join(left_grace_ms=None), "join, left_grace_ms: was 0, is null")
    refused(join(output="others"), "outputs, joined: is gone", "outputs, others: was not there")
    shutil.copytree(root / "left", root / "copy")
    paths = [description(root, name) for name in ("left", "right")]
    wholes = [path.read_bytes() for path in paths]
    before = Topic.open(root, "left")
    for name, path in zip(("left", "right"), paths, strict=True):
        change_description(
            path,
            partitions=5,
            files=[*Topic.open(root, name).now.document().files, []],
        )
    refused(join(), "topics, left, partitions: was 4, is 5", "topics, right, partitions: was 4, is 5")
    for path, whole in zip(paths, wholes, strict=True):
        path.write_bytes(whole)
    shutil.rmtree(root / "left")
    write_topic(root, "left", stream(200, 10, seed=1), partitions=4, key=["key"], timestamp="at")
    refused(join(), f'topics, left, id: was "{before.topic_id}", is "')
    shutil.rmtree(root / "left")
    (root / "copy").rename(root / "left")
    assert application(tmp_path, join(), clients=1).run().rows_in == 0


class _Mistaken(RecordProcessor):
    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> None:
        context.key_value_store("last").put(record["key"], {"value": 1})
        raise ZeroDivisionError


class _Mended(RecordProcessor):
    def process(self, topic: str, record: Mapping[str, Any], context: TaskContext) -> list[Mapping[str, Any]]:
        context.key_value_store("last").put(str(record["key"]), {"value": record["at"]})
        return [record]


@pytest.mark.parametrize("on_disk", [False, True])
def test_before_anything_is_committed_a_run_becomes_another_one(tmp_path: Path, on_disk: bool) -> None:
    """Who mends what the first record has shown was told that what was committed does not fit, and to take another folder."""
    write_streams(tmp_path / "topics", rows=20, keys=3)
    value, config = pa.schema({"value": pa.int64()}), settings(state_dir=str(tmp_path / "state"))

    def run(processor: type[RecordProcessor], key: pa.DataType, output: str) -> RunResult:
        store = KeyValueStoreSpec("last", pa.schema({"key": key}), value, on_disk=on_disk)
        topology = Topology(SubTopology("all", "left", processor, [store], [output]))
        return application(tmp_path, topology, config=config, clients=1, launcher=ThreadLauncher()).run()

    for _ in range(2):
        with pytest.raises(ProcessorException, match="ZeroDivisionError"):
            run(_Mistaken, pa.int64(), "first")
    assert run(_Mended, pa.string(), "second").table("second").num_rows == 20
    with pytest.raises(CommitLogException, match="has no output 'first'; its outputs: second"):
        read_output(tmp_path / "run", "first")
    with pytest.raises(CommitLogException, match="outputs, third: is null, was not there"):
        run(_Mended, pa.string(), "third")


def test_a_topic_that_is_written_anew_during_a_run_is_noticed(tmp_path: Path) -> None:
    topic = write_topic(tmp_path, "t", stream(10, 2, seed=1), partitions=2, key=["key"])
    assert Topic.open(tmp_path, "t", topic.topic_id).topic_id == topic.topic_id
    with pytest.raises(Exception, match="it was written anew while it was being read"):
        Topic.open(tmp_path, "t", "6bf5a1ff-f7a7-4d5d-9b0b-6d1d8d5a6a3e")


class GivesNulls(Processor):
    """Gives values of rows, null where they are late."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table | None:
        """The values."""
        (rows,) = batch.values()
        times, values = rows["at"].to_pylist(), rows["value"]
        given = [value if at < 600_000 else None for at, value in zip(times, values.to_pylist(), strict=True)]
        return pa.table({"value": pa.array(given, values.type)})


def test_a_column_of_an_output_may_be_null_from_now_on(tmp_path: Path) -> None:
    """Nobody could read the output any more, and the checkpoint that merged its files ended with a bare ValueError."""
    rows = stream(100, 5, seed=1)
    write_topic(tmp_path / "topics", "left", rows, partitions=1, key=["key"], timestamp="at")
    options = attrs.evolve(QUICK, max_batch_rows=20, checkpoint_every_commits=2)

    def run(*, nullable: bool) -> pa.Table:
        schema = pa.schema([pa.field("value", pa.string(), nullable=nullable)])
        topology = Topology([SubTopology("sub", "left", GivesNulls, [], [Output("out", schema)])])
        application(tmp_path, topology, clients=1, options=options).run()
        found = read_output(tmp_path / "run", "out")
        assert found.schema == output_schema(tmp_path / "run", "out")
        return found

    assert not run(nullable=False).schema.field("value").nullable
    append_topic(tmp_path / "topics", "left", rows.set_column(1, "at", pc.add(rows["at"], 600_000)))
    found = run(nullable=True)
    assert (found.num_rows, found["value"].null_count) == (200, 100)
    assert run(nullable=False).schema.field("value").nullable, "older rows are null there"


class Turns(Processor):
    """Gives texts as another type from the fifth row on, and nothing else than nulls before."""

    def process_batch(self, batch: Mapping[str, pa.Table], context: TaskContext) -> pa.Table:
        """The rows."""
        is_late = context.offsets["t"][0] >= 4
        name = pa.array(["x"] * batch["t"].num_rows, pa.string() if is_late else pa.large_string())
        return pa.table({"name": name, "more": pa.array([1 if is_late else None] * len(name))})


def test_an_output_may_be_declared_as_it_has_become(tmp_path: Path) -> None:
    """The message of a batch that gave another type says so; it was refused with `was null`."""
    write_topic(tmp_path / "topics", "t", stream(8, 2, seed=1), partitions=1, key=["key"], timestamp="at")

    def run(*columns: pa.Field) -> RunResult:
        output = Output("o", pa.schema(columns)) if columns else "o"
        topology = Topology([SubTopology("s", "t", Turns, outputs=[output])])
        return application(tmp_path, topology, clients=1, options=RuntimeOptions(max_batch_rows=2)).run()

    with pytest.raises(ProcessorException, match=r"Maybe declare them as they were: Output\('o', schema\)"):
        run()
    more = pa.field("more", pa.int64())
    with pytest.raises(CommitLogException, match='outputs, o, name: was "large_string", is "string"'):
        run(pa.field("name", pa.string()), more)
    declared = pa.field("name", pa.large_string(), nullable=False), more
    assert run(*declared).rows_in == 4
    assert read_output(tmp_path / "run", "o").column("more").to_pylist() == [None] * 4 + [1] * 4
