"""`StreamsConfig`: what is known, what it means, and that everything wrong is said at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from task_assignor.sdk import (
    ApplicationState,
    ApplicationStateBuilder,
    AssignmentConfigs,
    ConfigException,
    ConfigProblem,
    HostInfo,
    ProcessId,
    StreamsConfig,
    TaskAssignor,
    once,
)
from task_assignor.sdk.config_keys import KNOWN_KEYS, OTHER_KAFKA_KEYS
from task_assignor.testing import assignment_configs
from tests.sdk.own_settings import Own, problems


def test_nothing_need_be_set() -> None:
    config = StreamsConfig({})
    assert config.assignment_configs == AssignmentConfigs()
    assert (config.client_rack, config.host_info, config.num_stream_threads) == (None, None, 1)
    assert (dict(config.client_tags), dict(config.originals)) == ({}, {})
    assert isinstance(config.task_assignor(), config.task_assignor_class)


def test_every_known_setting_arrives() -> None:
    config = StreamsConfig(
        {
            "application.id": "app",
            "application.server": "example:80",
            "client.rack": "a",
            "client.tag.zone": "z",
            "client.tag.cluster": "c",
            "num.stream.threads": 4,
            "acceptable.recovery.lag": 5,
            "max.warmup.replicas": 3,
            "num.standby.replicas": 1,
            "probing.rebalance.interval.ms": 70_000,
            "rack.aware.assignment.tags": ["zone", "cluster"],
            "rack.aware.assignment.traffic_cost": 10,
            "rack.aware.assignment.non_overlap_cost": 1,
            "rack.aware.assignment.strategy": "min_traffic",
            "task.assignor.class": Own,
        }
    )
    assert config.application_id == "app"
    assert config.host_info == HostInfo("example", 80)
    assert config.client_rack == "a"
    assert config.client_tags == {"cluster": "c", "zone": "z"}
    assert config.num_stream_threads == 4
    assert config.task_assignor_class is Own
    assert config.assignment_configs == AssignmentConfigs(
        acceptable_recovery_lag=5,
        max_warmup_replicas=3,
        num_standby_replicas=1,
        probing_rebalance_interval_ms=70_000,
        rack_aware_assignment_tags=("zone", "cluster"),
        rack_aware_traffic_cost=10,
        rack_aware_non_overlap_cost=1,
        rack_aware_assignment_strategy="min_traffic",
    )


def test_a_file_gives_the_same_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text(
        "# settings\nnum.standby.replicas = 1\nclient.tag.zone: a \nrack.aware.assignment.tags = zone\n"
        "rack.aware.assignment.traffic_cost=10\nacceptable.recovery.lag=+9223372036854775807\n"
        "anything.else = as it is\ntask.assignor.class = sticky\n",
        encoding="utf-8",
    )
    config = StreamsConfig.from_properties(path)
    assert config.assignment_configs.num_standby_replicas == 1
    assert config.assignment_configs.acceptable_recovery_lag == 2**63 - 1
    assert config.assignment_configs.rack_aware_traffic_cost == 10
    assert config.client_tags == {"zone": "a"}
    assert config.originals["anything.else"] == "as it is"


def test_a_problem_of_a_file_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("\nmax.warmup.replicas=0\n#\nnum.standby.replica=1\n", encoding="utf-8")
    with pytest.raises(ConfigException) as caught:
        StreamsConfig.from_properties(path)
    assert [f"{path}:2", f"{path}:4"] == [problem.where for problem in caught.value.problems]
    assert f"{path}:2: The setting max.warmup.replicas ('0') must be" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("acceptable.recovery.lag", [-1, 2**63, "x", "", "1.0", 1.0, True, None, [], "1_000", "٣"]),
        ("max.warmup.replicas", [0, -1, 2**31, "zero", 0.5, False, None]),
        ("num.standby.replicas", [-1, 2**31, "-1", "one", True, {}, None, "9" * 5000]),
        ("num.stream.threads", [0, -1, "0", None, True]),
        ("probing.rebalance.interval.ms", [59_999, "59999", 2**63, None]),
        ("rack.aware.assignment.traffic_cost", [-1, 0.5, "x", True, 2**31]),
        ("rack.aware.assignment.non_overlap_cost", [-1, 0.5, "", True, 2**31]),
        ("rack.aware.assignment.strategy", ["", "NONE", "balance", 1, None]),
        ("rack.aware.assignment.tags", [1, [1], [""], "a,,b", "a,a", None, {"a"}]),
        ("application.id", ["", "  ", 3, "../../up", "/etc", "a/b", ".", "..", "a b", "é", "x" * 250]),
        ("state.dir", ["s3://bucket/x", "file:///x", "~/x", 3]),
        ("application.server", ["host", "host:", ":80", "host:99999", "host:x", 80, "a b:80", f"{'h' * 65536}:80"]),
        ("client.rack", [1, None, True]),
        ("client.tag.zone", ["", 1, None, "x" * 31]),
        ("client.tag.", ["a"]),
        ("client.tag." + "k" * 21, ["a"]),
    ],
)
def test_wrong_types_and_ranges_are_problems_that_name_key_and_value(key: str, values: list[Any]) -> None:
    for value in values:
        found = problems({key: value})
        assert [(key, value)] == [problem[:2] for problem in found], value
        assert all(expected for _, _, expected, _ in found)


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        ("acceptable.recovery.lag", " 7 ", 7),
        ("num.standby.replicas", np.int64(2), 2),
        ("rack.aware.assignment.traffic_cost", None, None),
        ("rack.aware.assignment.strategy", " none ", "none"),
        ("rack.aware.assignment.tags", "", ()),
        ("rack.aware.assignment.tags", (), ()),
        ("application.server", "[::1]:80", "[::1]:80"),
        ("client.rack", " a ", "a"),
    ],
)
def test_texts_are_parsed_as_kafka_parses_them(key: str, given: object, expected: object) -> None:
    assert expected == StreamsConfig({key: given}).values[key]


def test_an_ipv6_server_is_host_and_port() -> None:
    assert StreamsConfig({"application.server": "[::1]:80"}).host_info == HostInfo("::1", 80)


def test_one_error_lists_everything_that_is_wrong() -> None:
    found = problems(
        {
            "num.standby.replicas": "x",
            "max.warmup.replicas": 0,
            "task.assignor.class": "nothing.like.it",
            "rack.aware.assignment.tags": "zone",
            "num.standby.replica": 1,
            "client.tag.other": "",
        }
    )
    assert [key for key, _, _, _ in found] == [
        "client.tag.other",
        "max.warmup.replicas",
        "num.standby.replica",
        "num.standby.replicas",
        "rack.aware.assignment.tags",
        "task.assignor.class",
    ]


def test_every_rack_tag_needs_its_client_tag() -> None:
    ((key, _, expected, advice),) = problems({"rack.aware.assignment.tags": "zone,cluster", "client.tag.cluster": "c"})
    assert (key, expected) == ("rack.aware.assignment.tags", "a list of tags that are set as client.tag.* too")
    assert "client.tag.zone" in advice
    assert "client.tag.cluster" not in advice


def test_there_are_at_most_five_client_tags() -> None:
    tags = {f"client.tag.t{number}": "x" for number in range(6)}
    assert [(key, advice) for key, _, _, advice in problems(tags)] == [("client.tag.t5", "There are 6.")]
    tags.popitem()
    assert len(StreamsConfig(tags).client_tags) == 5


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("num.standby.replica", "num.standby.replicas"),
        ("num.standbys.replicas", "num.standby.replicas"),
        ("num_standby_replicas", "num.standby.replicas"),
        ("NUM.STANDBY.REPLICAS", "num.standby.replicas"),
        ("max.warmup.replica", "max.warmup.replicas"),
        ("task.asignor.class", "task.assignor.class"),
        ("task.assigner.class", "task.assignor.class"),
        ("rack.aware.assignment.traffic.cost", "rack.aware.assignment.traffic_cost"),
        ("rack.aware.assignment.tag", "rack.aware.assignment.tags"),
        ("acceptable.recovery.lags", "acceptable.recovery.lag"),
        ("probing.rebalance.interval", "probing.rebalance.interval.ms"),
        ("aplication.id", "application.id"),
        ("client.racks", "client.rack"),
        ("client.tags.zone", "client.tag.zone"),
        ("clients.tag.zone", "client.tag.zone"),
        ("client.tag", "client.tag.<name>"),
        ("num.stream.thread", "num.stream.threads"),
    ],
)
def test_a_near_miss_of_a_known_key_is_a_problem_that_names_it(key: str, meant: str) -> None:
    found = [advice for name, _, _, advice in problems({key: "x"}) if name == key]
    assert [f"Maybe {meant} is meant." in advice for advice in found] == [True]


def test_settings_of_another_assignor_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside another assignor than the one that declares them they did nothing, and nobody said so."""
    monkeypatch.setattr(once, "_named", set())
    given = {"task.assignor.class": "sticky", "stream.join.groups": "0,1", "client.tag.zone": "a", "my.own": "1"}
    (tmp_path / "app.properties").write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    StreamsConfig.from_properties(tmp_path / "app.properties")
    StreamsConfig(given)
    StreamsConfig({**given, "task.assignor.class": "stream-join"})
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "task_assignor.builtin_assignors.sticky.StickyTaskAssignor does not declare this setting of stream-join, so it most "
        "likely does nothing: stream.join.groups."
    )


@pytest.mark.parametrize("key", sorted(OTHER_KAFKA_KEYS))
def test_other_settings_of_kafka_are_no_near_misses(key: str) -> None:
    assert StreamsConfig({key: "x"}).originals == {key: "x"}


@pytest.mark.parametrize(
    "key",
    [
        "consumer.client.rack",
        "main.consumer.max.poll.records",
        "producer.acks",
        "topic.replication.factor",
        "my.limit",
        "x",
        "spark.executor.cores",
        "group.id",
        "group.instance.id",
    ],
)
def test_other_unknown_keys_are_none_either(key: str) -> None:
    value = object()
    assert StreamsConfig({key: value}).originals[key] is value


def test_no_known_key_is_a_near_miss_of_another() -> None:
    for key in KNOWN_KEYS.values():
        if key.default is not None:
            assert StreamsConfig({key.name: key.default}).values[key.name] == key.default


def test_unknown_keys_reach_configure_as_they_are_and_known_ones_parsed() -> None:
    anything = [1, 2]
    config = StreamsConfig(
        {"task.assignor.class": Own, "any.thing": anything, "num.standby.replicas": " 1 ", "own.limit": "5"}
    )
    assignor = config.task_assignor()
    assert isinstance(assignor, Own)
    assert assignor.configs["any.thing"] is anything
    assert dict(assignor.configs) == {
        "task.assignor.class": Own,
        "any.thing": anything,
        "num.standby.replicas": 1,
        "own.limit": 5,
        "own.flag": False,
        "own.modes": (),
        "own.helper": None,
    }


def test_every_assignor_is_a_fresh_one() -> None:
    config = StreamsConfig({"task.assignor.class": Own})
    first, second = config.task_assignor(), config.task_assignor()
    assert first is not second
    assert first != second


def test_settings_are_a_mapping_of_strings() -> None:
    for wrong in ("app.properties", [("a", 1)], None):
        with pytest.raises(ConfigException, match=r"Maybe use StreamsConfig\.from_properties"):
            StreamsConfig(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigException, match=r"The key of a setting \(3\)"):
        StreamsConfig({3: "x"})  # type: ignore[dict-item]


def test_an_application_id_is_asked_for_only_where_it_is_needed() -> None:
    with pytest.raises(ConfigException, match=r"application\.id"):
        _ = StreamsConfig({}).application_id


def test_what_was_given_is_kept_and_cannot_be_changed() -> None:
    given: dict[str, object] = {"num.standby.replicas": "1"}
    config = StreamsConfig(given)
    given.clear()
    assert config.originals == {"num.standby.replicas": "1"}
    for mapping in (config.originals, config.values, config.client_tags):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # type: ignore[index]


def test_values_are_all_known_settings_in_order() -> None:
    assert list(StreamsConfig({}).values) == sorted(
        set(KNOWN_KEYS) | {key.name for key in StreamsConfig({}).task_assignor_class.config_keys}
    )


def a_state(configs: AssignmentConfigs | None = None, **tags: str) -> ApplicationState:
    client = ProcessId.parse("00000000-0000-0000-0000-000000000001")
    return ApplicationStateBuilder(configs).add_client(client, client_tags=tags).build()


@given(assignment_configs())
def test_settings_of_a_state_are_the_states(configs: AssignmentConfigs) -> None:
    assert configs == StreamsConfig.of_state(a_state(configs)).assignment_configs


def test_settings_over_those_of_a_state() -> None:
    state = a_state(AssignmentConfigs(num_standby_replicas=2, max_warmup_replicas=5))
    config = StreamsConfig.of_state(state, {"num.standby.replicas": "1"})
    assert AssignmentConfigs(num_standby_replicas=1, max_warmup_replicas=5) == config.assignment_configs


def test_a_rack_tag_over_a_state_must_be_one_of_its_clients_tags() -> None:
    config = StreamsConfig.of_state(a_state(zone="a"), {"rack.aware.assignment.tags": "zone"})
    assert config.assignment_configs.rack_aware_assignment_tags == ("zone",)
    with pytest.raises(ConfigException, match="No client has the tag cluster; tags of clients are: zone"):
        StreamsConfig.of_state(a_state(zone="a"), {"rack.aware.assignment.tags": "cluster"})


def test_a_rack_tag_that_the_state_has_already_may_stay() -> None:
    state = a_state(AssignmentConfigs(rack_aware_assignment_tags=["zone"]))
    assert StreamsConfig.of_state(state).assignment_configs == state.assignment_configs


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.lists(st.text(max_size=3), max_size=3),
    st.just(Own),
    st.just(object()),
)
keys = st.one_of(
    st.sampled_from([*KNOWN_KEYS, "client.tag.zone", "client.tag.", "own.limit", "num.standby.replica"]),
    st.text(max_size=8),
)


@given(st.dictionaries(keys, values, max_size=6))
def test_any_settings_are_taken_or_refused_with_problems_about_given_keys(settings: dict[str, object]) -> None:
    found: tuple[ConfigProblem, ...] = ()
    config = None
    try:
        config = StreamsConfig(settings)
    except ConfigException as error:
        found = error.problems
    assert bool(found) == (config is None)
    assert {problem.key for problem in found} <= {*settings, "task.assignor.class"}
    if config is not None:
        assert config.originals == settings
        assert isinstance(config.task_assignor(), TaskAssignor)


@pytest.mark.parametrize("build", [lambda: StreamsConfig({}), lambda: StreamsConfig({"task.assignor.class": Own})])
def test_equal_settings_are_equal(build: Callable[[], StreamsConfig]) -> None:
    assert build() == build()
    assert build() != StreamsConfig({"num.standby.replicas": 1})
    assert repr(StreamsConfig({"a": 1})) == "StreamsConfig({'a': 1})"
