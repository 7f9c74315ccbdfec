"""Values of another kind, in all rooms: they are named at once, with what is expected, by the room's own error."""

# Nearly all that is given here is of a wrong type on purpose.
# mypy: disable-error-code="arg-type, dict-item, list-item"

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from task_assignor.builtin_assignors import StickyTaskAssignor as Sticky
from task_assignor.group import (
    GroupClient,
    GroupConsumer,
    GroupException,
    GroupLeader,
    StreamsLeader,
    StreamsMember,
    spread_over_consumers,
    tell_error,
)
from task_assignor.group.consumers import Claim, ConsumerMember, split_numbers
from task_assignor.group.wire import SubscriptionInfo, encode_subscription_info
from task_assignor.kafka import ClientSettings
from task_assignor.kafka.topics import JsonSerde, KafkaTopic, SerializationException
from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    ClientException,
    ClientSpec,
    Forwarded,
    LocalProcessLauncher,
    Metrics,
    Output,
    Repartitioned,
    RuntimeOptions,
    StreamsApplication,
    StreamTableJoin,
    SubTopology,
    TableChanges,
    TableJoin,
    TaskContext,
    Topic,
    TopicBuilder,
    TopicException,
    TopicSpec,
    TopologyException,
    WindowedJoin,
    metrics_to_opentelemetry,
    murmur2,
    partitions_of,
    run_client,
    write_topic,
)
from task_assignor.runtime.shells.clients import client_specs
from task_assignor.sdk import (
    ApplicationStateBuilder,
    Assignment,
    AssignmentConfigs,
    ConfigException,
    ConfigKey,
    ProcessId,
    StateException,
    StreamsConfig,
    Subscription,
    TaskId,
    TaskIdFormatException,
)
from task_assignor.spark import JavaNotFoundError, find_java
from task_assignor.testing import TaskSpec, a_client, a_state, assert_balanced, random_assignment, stateful_tasks
from task_assignor.utils import (
    Placement,
    RackAwareOptimizationParams,
    optimize_actives,
    place_actives,
    rack_problem,
    rack_rows,
)

STATE = a_state(stateful_tasks(0, 2), 2)
WINDOW: dict[str, Any] = {"left": "l", "right": "r", "before_ms": 0, "after_ms": 0}
PLACED = Placement.of(STATE.columns, [0, 1])
ROWS = {"rows": Aggregate.count()}
TABLE = pa.table({"k": [1, 2, 3]})
KEYS = TABLE.schema
TASK = TaskId(0, 0)
CONFIGS = AssignmentConfigs()
PID = ProcessId(uuid.UUID(int=1))
SENT = Subscription((), encode_subscription_info(SubscriptionInfo(PID)))

CASES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda word: WindowedJoin(**WINDOW, how=word), TopologyException, "'inner', 'left' or 'outer'"),
    (lambda word: StreamTableJoin(stream="s", table="t", how=word), TopologyException, "'inner' or 'left'"),
    (lambda word: TableJoin(left="l", right="r", how=word), TopologyException, "'inner', 'left' or 'outer'"),
    (lambda word: WindowedJoin(**WINDOW, late_records=word), TopologyException, "'stop', 'skip' or DeadLetters"),
    (lambda word: Aggregation(source="s", aggregates=ROWS, bad_records=word), TopologyException, "'stop', 'skip' or "),
    (lambda word: SubTopology("s", "t", object, bad_records=word), TopologyException, "'stop', 'skip' or DeadLetters"),
    (lambda word: Output("out", format=word), TopologyException, "'arrow' or 'parquet'"),
    (Aggregate, TopologyException, "'count', 'sum', 'min', 'max', 'mean' or 'fold'"),
    (
        lambda word: TaskContext.schedule(_CONTEXT, 1, word, print),
        TopologyException,
        "'stream_time' or 'wall_clock_time'",
    ),
    (
        lambda word: StreamsApplication.run(_APPLICATION, until=word),
        ConfigException,
        "'available_now', 'stopped' or a ",
    ),
    (lambda word: LocalProcessLauncher(start_method=word), ConfigException, "'spawn' or 'forkserver'"),
    (lambda word: RuntimeOptions(compression=word), ConfigException, "None, 'lz4' or 'zstd'"),
    (lambda word: KafkaTopic("t", key_in=word), TopicException, "'value' or 'key'"),
    (lambda word: KafkaTopic("t", timestamp_in=word), TopicException, "'value' or 'record'"),
    (
        lambda word: ConfigKey(name="my.key", type=word),
        ConfigException,
        "'string', 'int', 'long', 'boolean', 'list' or 'class'",
    ),
    (
        lambda word: RackAwareOptimizationParams(STATE, word),
        StateException,
        "'all', 'stateful', 'stateless' or 'given'",
    ),
    (lambda word: rack_rows(STATE.columns, np.array([0]), word), StateException, "'source', 'changelog' or 'all'"),
    (lambda word: assert_balanced(STATE, place_actives(STATE), tasks=word), ConfigException, "'all', 'stateful' or "),
]


def ranked(partitions: Any) -> object:
    """The strategy is none: whatever was given for partitions was not looked at."""
    return optimize_actives(STATE, place_actives(STATE), traffic_cost=1, non_overlap_cost=1, partitions=partitions)


_CONTEXT: Any = SimpleNamespace()
_APPLICATION: Any = SimpleNamespace()


@pytest.mark.parametrize(
    "given",
    ["nothing like it", 5, True, np.array(["inner", "left"]), pd.Series(["stop", "skip"]), pd.NA, ["all"], {}],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize(("call", "error", "expected"), CASES, ids=[expected for _, _, expected in CASES])
def test_one_word_of_some(call: Callable[[Any], object], error: type[Exception], expected: str, given: object) -> None:
    """Of arrays numpy said that their truth is ambiguous, of lists Python that they cannot be hashed."""
    with pytest.raises(error, match=rf"(?s) \(.*\)( of .*)? must be {expected}"):
        call(given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: WindowedJoin(**WINDOW, how="Outer"), "Maybe 'outer' is meant."),
        (lambda: Output("out", format="parket"), "Maybe 'parquet' is meant."),
        (lambda: RuntimeOptions(compression="lz"), "Maybe 'lz4' is meant."),
    ],
)
def test_the_nearest_word_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_words_of_numpy_are_words() -> None:
    assert StreamTableJoin(stream="s", table="t", how=np.str_("left")).how == "left"
    assert Output("out", pa.schema([]), format=np.str_("parquet")).format == "parquet"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Aggregate.sum(None), r"^Aggregate.sum\(\): the column \(None\) must be the name of one\.$"),
        (lambda: Aggregate.count(["k"]), r"^Aggregate.count\(\): the column \(\['k'\]\) must be the name of one"),
        (lambda: Aggregate.fold("x", 0, pa.int64()), r"fold\(\): the function \('x'\) must be callable"),
        (lambda: Aggregate.fold(max, 0, "int"), r"fold\(\): the type \('int'\) must be a pyarrow.DataType, such as"),
        (lambda: Aggregate("fold"), r"fold\(\): the function \(None\) must be callable"),
        (
            lambda: WindowedJoin(**WINDOW | {"left": None}),
            r"^The left \(None\) of the WindowedJoin must be the name of a ",
        ),
        (lambda: StreamTableJoin(stream="s", table=5), r"^The table \(5\) of the StreamTableJoin must be the name of"),
        (
            lambda: TableJoin(left="a/b", right="r"),
            r"^The left \('a/b'\) of the TableJoin must be the name of a topic: 1 ",
        ),
        (lambda: Aggregation(source=["s"], aggregates=ROWS), r"^The source \(\['s'\]\) of the Aggregation must be the"),
        (lambda: TableChanges(table=np.zeros(2)), r"^The table \(array.*\) of the TableChanges must be the name"),
        (lambda: Forwarded("f", source=5), r"^The source \(5\) of the Forwarded must be the name of a topic"),
    ],
)
def test_what_a_processor_cannot_do_with_is_named_when_it_is_made(call: Callable[[], object], message: str) -> None:
    """It was found when the sub-topology was made, or in a client in the midst of a run."""
    with pytest.raises(TopologyException, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: Subscription(user_data="x"),
            StateException,
            r"^The user_data \('x'\) of the Subscription must be bytes or",
        ),
        (
            lambda: Subscription(generation_id=True),
            StateException,
            r"^The generation_id \(True\) of the Subscription must be",
        ),
        (
            lambda: Subscription(rack_id=5),
            StateException,
            r"^The rack_id \(5\) of the Subscription must be a str or None\.$",
        ),
        (
            lambda: Assignment((), [1]),
            StateException,
            r"^The user_data \(\[1\]\) of the Assignment must be bytes or None",
        ),
        (lambda: TaskId(0, 0, np.array(["a", "b"])), TaskIdFormatException, r"^The topology_name of a TaskId \(array"),
        (lambda: TaskId(0, 0, 0), TaskIdFormatException, r"^The topology_name of a TaskId \(0\) must be a str or None"),
        (
            lambda: AssignmentConfigs(rack_aware_assignment_strategy=np.array(["none", "none"])),
            ConfigException,
            r"^The rack_aware_assignment_strategy \(array.*\) must be one of none",
        ),
        (
            lambda: TaskSpec(task_id="0_0"),
            StateException,
            r"^The task_id \('0_0'\) of the TaskSpec must be a TaskId\.$",
        ),
        (
            lambda: TaskSpec(task_id=TASK, is_stateful="no"),
            StateException,
            r"^The is_stateful \('no'\) of the TaskSpec",
        ),
        (lambda: a_client(1, rack=5), StateException, r"^The rack_id \(5\) of the ClientSpec must be a str or None"),
        (
            lambda: a_client(1, tags="zone"),
            StateException,
            r"^The client_tags \('zone'\) of the ClientSpec must be a Map",
        ),
        (lambda: random_assignment(STATE, "x"), ConfigException, r"^The seed \('x'\) must be an int"),
        (
            lambda: GroupClient(PID, [GroupConsumer("m")], rack_id=5),
            GroupException,
            r"^The rack_id \(5\) of the GroupClient",
        ),
        (lambda: Claim(["t"]), GroupException, r"^The owned \(\['t'\]\) of the Claim must be a Mapping\.$"),
        (lambda: StreamsMember.of(5, SENT), GroupException, r"^The member_id \(5\) of the StreamsMember must be a str"),
        (
            lambda: StreamsLeader(Sticky, None, []),
            GroupException,
            r"^The configs \(None\) must be AssignmentConfigs\. Maybe",
        ),
        (
            lambda: StreamsLeader(Sticky, CONFIGS, [], 5),
            GroupException,
            r"^The fallback_factory \(5\) must make an assignor",
        ),
        (
            lambda: GroupLeader(Sticky, CONFIGS, {}, on_state=5),
            GroupException,
            r"^The on_state \(5\) must be a function, or",
        ),
        (
            lambda: ClientSettings(("h:1",), request_timeout_ms="5"),
            ConfigException,
            r"^The request_timeout_ms \('5'\) of ",
        ),
        (
            lambda: ClientSettings(("h:1",), password=b"s3cret"),
            ConfigException,
            r"^The password \(\[hidden\]\) of the Cl",
        ),
        (
            lambda: KafkaTopic("t", key=5),
            TopicException,
            r"^A key or timestamp column of topic t must be a name, not 5\.",
        ),
        (
            lambda: Repartitioned("r", key="k", partitions="2"),
            TopologyException,
            r"^The partitions \('2'\) of topic r must",
        ),
        (lambda: Repartitioned("r", key=[5], partitions=2), TopologyException, "topic r must be a name, not 5"),
        (
            lambda: Repartitioned("r", key="k", partitions=2, timestamp=np.zeros(2)),
            TopologyException,
            "A key or timestamp column of topic r must be a name, not array",
        ),
        (
            lambda: Aggregation(source="s", aggregates={"rows": "count"}),
            TopologyException,
            r"^The aggregate 'rows' \(.*\) must be made by Aggregate.count\(\)",
        ),
        (
            lambda: Aggregation(source="s", aggregates=ROWS).sub_topology("a", "out", None),
            TopologyException,
            "the topics must be TopicSpec objects, but one is of the type NoneType",
        ),
        (
            lambda: TopicSpec("t", 1, KEYS, "k", racks=5),
            TopicException,
            r"^The racks \(5\) must be a list that has, for each",
        ),
        (lambda: TopicSpec("t", 1, KEYS, "k", np.zeros(2)), TopicException, "topic t must be a name, not array"),
        (
            lambda: partitions_of(None, ["k"], 2),
            TopicException,
            r"^The table \(None\) must be a pyarrow.Table or RecordB",
        ),
        (
            lambda: partitions_of(TABLE, ["k"], 0),
            TopicException,
            r"^The partitions \(0\) must be an int from 1 to 2147483647",
        ),
        (lambda: partitions_of(TABLE, 5, 2), TopicException, r"^The key \(5\) must be a list of names of columns"),
        (
            lambda: TopicSpec("t", 1, KEYS, "k").with_columns("u", "k"),
            TopicException,
            r"^The schema \('k'\) of what is ",
        ),
        (
            lambda: TopicBuilder.create("/nowhere", "t"),
            TopicException,
            r"^The spec \('t'\) of a new topic must be a Topic",
        ),
        (
            lambda: murmur2("k"),
            TopicException,
            r"^The key \('k'\) to hash must be bytes or a bytearray or a memoryview\.$",
        ),
        (lambda: JsonSerde().check("k"), SerializationException, r"^The schema \('k'\) must be a Schema\.$"),
        (lambda: JsonSerde().deserialize([], "k"), SerializationException, r"^The schema \('k'\) must be a Schema\.$"),
        (lambda: JsonSerde().serialize([]), SerializationException, r"^The rows \(\[\]\) must be a Table\.$"),
        (
            lambda: run_client(None, "1"),
            ClientException,
            r"^The bootstrap \(None\) of a client must be a ClientBootstrap",
        ),
        (lambda: find_java(["JAVA_HOME"]), JavaNotFoundError, r"^The environ \(\['JAVA_HOME'\]\) must be a Mapping\.$"),
        (
            lambda: StreamsConfig({}, np.array(["a", "b"])),
            ConfigException,
            r"^The where \(array.*\) of settings must be a map",
        ),
        (
            lambda: StreamsConfig.of_state(STATE, {"num.standby.replicas": "x"}, where="app.properties"),
            ConfigException,
            r"^The where \('app.properties'\) of settings must be a map",
        ),
        (
            lambda: ApplicationStateBuilder("x"),
            StateException,
            r"^The assignment_configs \('x'\) must be AssignmentConfigs",
        ),
        (
            lambda: ApplicationStateBuilder(now_ms="x"),
            StateException,
            r"^The now_ms \('x'\) must be an int of millisec",
        ),
        (
            lambda: ranked("sources"),
            StateException,
            r"^The partitions \('sources'\) must be 'source', 'changelog' or 'all'",
        ),
        (
            lambda: rack_problem(STATE.columns, None, 5),
            StateException,
            r"^The partitions \(5\) must be 'source', 'changelog'",
        ),
        (
            lambda: RackAwareOptimizationParams(STATE, "all", ("0_0",)),
            StateException,
            "^The tasks must be a list of TaskId",
        ),
        (
            lambda: RackAwareOptimizationParams(STATE, "all", (), -1),
            ConfigException,
            r"^The traffic cost override \(-1\) must",
        ),
        (lambda: PLACED.shortages("1"), ConfigException, r"^The replicas \('1'\) must be an int from 0 to"),
        (lambda: GroupLeader(Sticky, CONFIGS, {TASK: 5}), GroupException, "^The tasks .* must be a list of TaskInfo"),
        (lambda: ConsumerMember.of("m", None), GroupException, r"^The subscription \(None\) must be a Subscription\.$"),
        (lambda: tell_error([], "1", ""), GroupException, r"^The code \('1'\) must be an int\.$"),
        (
            lambda: spread_over_consumers([GroupConsumer("m")], [], [], [], 5),
            GroupException,
            r"^The lags \(5\) must be a map",
        ),
        (
            lambda: split_numbers({"m": {"t": "01"}}),
            GroupException,
            r"owns of the topic 't' \('01'\) must be a list of ints",
        ),
        (
            lambda: ClientSpec("c").with_settings({}),
            ConfigException,
            "^The config must be a StreamsConfig, not of the type dict",
        ),
        (
            lambda: StreamsApplication.request_stop(_APPLICATION, 5),
            ConfigException,
            r"^The reason \(5\) of a stop must be a",
        ),
        (
            lambda: metrics_to_opentelemetry(Metrics("app"), 5),
            ConfigException,
            r"^The meter \(5\) must be one of OpenTelemetry",
        ),
    ],
)
def test_what_is_of_another_kind_is_named_when_it_is_made(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    """It was taken, and failed elsewhere or counted for something else; or it was an error from the inside."""
    with pytest.raises(error, match=message):
        call()


def test_numbers_of_numpy_are_ints_where_fields_are() -> None:
    assert Subscription(generation_id=np.int64(3)).generation_id == 3
    assert Claim({}, np.int32(3)).generation == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda root, topic: topic.read(None, 0, 1), r"^Topic t has partitions 0 to 1, not None\.$"),
        (lambda root, topic: topic.read(0, "0", 1), r"^The start \('0'\) of rows of topic t must be an int\.$"),
        (lambda root, topic: topic.read(0, 0, 1.5), r"^The end \(1\.5\) of rows of topic t must be an int\.$"),
        (lambda root, topic: topic.read(0, 0, 1, ["x"]), r"^Topic t has no columns \['x'\]; it has \['k'\]\.$"),
        (lambda root, topic: topic.read(0, 0, 1, 5), r"^Topic t has no columns \[5\]; it has"),
        (lambda root, topic: topic.end_offset(-1), r"^Topic t has partitions 0 to 1, not -1\.$"),
        (lambda root, topic: topic.segments("0"), r"^Topic t has partitions 0 to 1, not '0'\.$"),
        (lambda root, topic: topic.segments(0, "0"), r"^The start \('0'\) in topic t must be an int\.$"),
        (
            lambda root, topic: Topic.open(root, "t", columns=["k", "x"]),
            r"^Topic t has no columns \['x'\]; it has \['k'\]",
        ),
        (
            lambda root, topic: Topic.open(root, "t", np.zeros(2)),
            r"^The expected_id \(array.*\) of topic 't' must be a str or",
        ),
        (
            lambda root, topic: TopicBuilder.extend(root, "t", "v"),
            r"^The new column \('v'\) of topic t must be a Field\.$",
        ),
    ],
)
def test_what_a_topic_does_not_have_is_named(tmp_path: Path, call: Callable[[Path, Any], object], message: str) -> None:
    """They were errors of lists and of Arrow; the end of partition -1 was that of the last one."""
    topic = write_topic(tmp_path, "t", TABLE, partitions=2, key=["k"])
    with pytest.raises(TopicException, match=message):
        call(tmp_path, topic)
    assert topic.read(0, 0, topic.end_offset(0), "k").schema.names == ["k"]


@pytest.mark.parametrize("clients", [np.array([1, 2]), pd.Series([1, 2]), pd.NA, None, {}, "ab"])
def test_clients_that_are_none_are_refused(clients: Any) -> None:
    with pytest.raises(
        ClientException, match=r"(?s)^The clients \(.*\) must be an int, or a list of ClientSpec objects"
    ):
        client_specs(clients, StreamsConfig({}))
