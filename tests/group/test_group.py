"""The leader of a group: tasks, states, refusals, callbacks, consumers."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from task_assignor.builtin_assignors import StickyTaskAssignor
from task_assignor.group import (
    AssignmentRejectedException,
    GroupClient,
    GroupConsumer,
    GroupException,
    GroupLeader,
    StreamsLeader,
    SubTopologyShape,
    make_tasks,
    plan_topics,
    spread_over_consumers,
)
from task_assignor.group.consumers import (
    ConsumerMember,
    CopartitionedAssignor,
    GroupTopics,
    RangeAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
)
from task_assignor.sdk import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    ProcessId,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
    TaskId,
    TopicPartition,
)
from tests.budget import examples

ONE, TWO, THREE = (ProcessId(uuid.UUID(int=number)) for number in (1, 2, 3))
SHAPES = [SubTopologyShape("join", ("a", "b"), {"s": "s-log"}), SubTopologyShape("map", ("c",))]
TASKS = make_tasks(SHAPES, {"a": 2, "b": 2, "c": 1})
STATEFUL, OTHER, STATELESS = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)
Placement = Mapping[ProcessId, list[AssignedTask]]
ACTIVE, STANDBY = AssignedTask.Type.ACTIVE, AssignedTask.Type.STANDBY


class Scripted(TaskAssignor):
    """Answers what it is told to, and notes what it was given and told."""

    answer: ClassVar[Callable[[ApplicationState], Any]]
    states: ClassVar[list[ApplicationState]] = []
    told: ClassVar[list[tuple[GroupAssignment, GroupSubscription, AssignmentError]]] = []

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        Scripted.states.append(application_state)
        answer = Scripted.answer(application_state)
        assert isinstance(answer, TaskAssignment) or not isinstance(answer, Exception)
        return answer

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        Scripted.told.append((assignment, subscription, error))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Scripted.states, Scripted.told = [], []


def _answer(placement: Placement) -> None:
    assignment = TaskAssignment([KafkaStreamsAssignment.of(client, tasks) for client, tasks in placement.items()])
    Scripted.answer = lambda _: assignment


def _leader(assignor: Callable[[], TaskAssignor] = Scripted, standbys: int = 0) -> GroupLeader:
    return GroupLeader(assignor, AssignmentConfigs(num_standby_replicas=standbys), TASKS)


def _client(process: ProcessId, consumers: int = 1, **more: Any) -> GroupClient:
    names = [f"{process.id.int}-{number}" for number in range(consumers)]
    return GroupClient(process, tuple(GroupConsumer(name) for name in names), **more)


def _active(*tasks: TaskId) -> list[AssignedTask]:
    return [AssignedTask(task, ACTIVE) for task in tasks]


# Tasks.


def test_a_task_has_its_partition_of_every_source_and_changelog() -> None:
    assert list(TASKS) == [STATEFUL, OTHER, STATELESS]
    partitions = [(str(found.topic_partition), found.is_source) for found in TASKS[OTHER].topic_partitions]
    assert partitions == [("a-1", True), ("b-1", True), ("s-log-1", False)]
    assert (TASKS[OTHER].is_stateful, TASKS[STATELESS].is_stateful) == (True, False)


def test_a_source_that_is_its_own_changelog_is_one_partition() -> None:
    tasks = make_tasks([SubTopologyShape("table", ("t",), {"s": "t"})], {"t": 1})
    (found,) = tasks[STATEFUL].topic_partitions
    assert (found.is_source, found.is_changelog) == (True, True)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ({"a": 2}, "reads the topic 'b', which does not exist"),
        ({"a": 2, "b": 0}, "The topic 'b' .* has no partitions"),
        ({"a": 2, "b": 3}, "not co-partitioned: 'a' has 2, 'b' has 3 partitions"),
    ],
)
def test_sources_that_are_not_co_partitioned_are_refused(partitions: dict[str, int], message: str) -> None:
    with pytest.raises(GroupException, match=message):
        make_tasks(SHAPES[:1], partitions)


def test_racks_of_fewer_partitions_than_there_are_make_no_tasks() -> None:
    shapes = [SubTopologyShape("reads", ("t",), {})]
    with pytest.raises(GroupException, match="racks of the topic 't' are those of 1 partition, but it has 2"):
        make_tasks(shapes, {"t": 2}, {"t": [frozenset("a")]})
    assert len(make_tasks(shapes, {"t": 2}, {"t": [frozenset("a"), None], "other": []})) == 2


# The state that the assignor is given.


def test_lags_are_end_minus_position_and_minus_two_for_running_tasks() -> None:
    _answer({ONE: _active(*TASKS), TWO: [], THREE: []})
    _leader().rebalance(
        [
            _client(ONE, previous_active={STATEFUL, STATELESS}, offset_sums={OTHER: 90}),
            _client(TWO, offset_sums={STATEFUL: 100, OTHER: 500}, rack_id="r", client_tags={"zone": "a"}),
            _client(THREE, consumers=2),
        ],
        {STATEFUL: 100, OTHER: 100},
        now_ms=77,
    )
    (state,) = Scripted.states
    clients = state.kafka_streams_states(compute_task_lags=True)
    lags = {client: dict(found.stateful_tasks_to_lag_sums) for client, found in clients.items()}
    assert lags == {
        ONE: {STATEFUL: -2, OTHER: 10},
        # A position beyond the end is not believed: Kafka takes the whole sum as lag.
        TWO: {STATEFUL: 0, OTHER: 100},
        THREE: {STATEFUL: 100, OTHER: 100},
    }
    assert clients[ONE].previous_active_tasks == (STATEFUL, STATELESS)
    assert clients[ONE].previous_standby_tasks == (OTHER,)
    assert (clients[TWO].rack_id, clients[TWO].client_tags["zone"], clients[THREE].num_processing_threads) == (
        "r",
        "a",
        2,
    )
    assert state.now_ms == 77


@pytest.mark.parametrize(("told", "lag"), [(-1, 101), (-4, 104), (-3, -3), (-(2**63), 2**63 - 1)])
def test_an_offset_sum_that_is_none_does_not_stop_the_group(told: int, lag: int) -> None:
    """One member that says nonsense ended the rebalance of all; Kafka reckons with it."""
    _answer({ONE: _active(*TASKS)})
    _leader().rebalance([_client(ONE, offset_sums={STATEFUL: told})], {STATEFUL: 100, OTHER: 100}, 0)
    (client,) = Scripted.states[0].kafka_streams_states(compute_task_lags=True).values()
    assert client.lag_for(STATEFUL) == lag


# What becomes of the answer.


def test_a_good_answer_reaches_the_members_and_the_callback() -> None:
    _answer({ONE: [*_active(STATEFUL, STATELESS), AssignedTask(OTHER, STANDBY)], TWO: _active(OTHER)})
    clients = [_client(ONE, consumers=2, previous_active={OTHER}), _client(TWO)]
    outcome = _leader().rebalance(reversed(clients), {}, 0)
    one = outcome.assignments[ONE]
    assert (one.active, one.standby, outcome.kept_because) == ((STATEFUL, STATELESS), (OTHER,), "")
    assert outcome.assignments[TWO].active == (OTHER,)
    ((assignment, subscription, error),) = Scripted.told
    assert error is AssignmentError.NONE
    given = {member: list(map(str, found.partitions)) for member, found in assignment.group_assignment.items()}
    # 1-1 has the standby; the stateless task goes to the first of two equals.
    assert given == {"1-0": ["a-0", "b-0", "c-0"], "1-1": [], "2-0": ["a-1", "b-1"]}
    assert {member: len(found.all) for member, found in one.consumers.items()} == {"1-0": 2, "1-1": 1}
    assert subscription.group_subscription["1-0"].topics == ("a", "b", "c")


def test_what_the_callback_changes_in_its_answer_reaches_nobody() -> None:
    """Nobody has looked at it: two clients got the same task."""
    answer = TaskAssignment([KafkaStreamsAssignment.of(ONE, _active(*TASKS)), KafkaStreamsAssignment.of(TWO)])
    Scripted.answer = lambda _: answer

    class Changes(Scripted):
        def on_assignment_computed(self, *_: object) -> None:
            answer.assignment[1].assign_task(AssignedTask(OTHER, ACTIVE))

    outcome = _leader(Changes).rebalance([_client(ONE), _client(TWO)], {}, 0)
    assert [outcome.assignments[client].active for client in (ONE, TWO)] == [tuple(TASKS), ()]


def test_owned_partitions_are_those_of_the_consumers_active_tasks() -> None:
    _answer({ONE: _active(*TASKS)})
    consumers = (GroupConsumer("m", [OTHER]), GroupConsumer("n", [STATELESS]))
    _leader().rebalance([GroupClient(ONE, consumers, previous_active=[OTHER, STATELESS])], {}, 0)
    ((_, subscription, _),) = Scripted.told
    owned = {member: found.owned_partitions for member, found in subscription.group_subscription.items()}
    assert owned == {"m": (TopicPartition("a", 1), TopicPartition("b", 1)), "n": (TopicPartition("c", 0),)}


@pytest.mark.parametrize(
    ("placement", "error", "shown"),
    [
        ({ONE: _active(*TASKS, TaskId(9, 9)), TWO: []}, AssignmentError.UNKNOWN_TASK_ID, False),
        ({ONE: _active(*TASKS), TWO: [], THREE: []}, AssignmentError.UNKNOWN_PROCESS_ID, False),
        ({ONE: _active(*TASKS)}, AssignmentError.MISSING_PROCESS_ID, True),
        ({ONE: _active(*TASKS), TWO: _active(OTHER)}, AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES, True),
        ({ONE: _active(*TASKS), TWO: [AssignedTask(STATELESS, STANDBY)]}, AssignmentError.INVALID_STANDBY_TASK, True),
    ],
)
def test_an_answer_that_kafka_refuses_is_told_to_the_callback_first(
    placement: Placement, error: AssignmentError, shown: bool
) -> None:
    """KIP-924: the callback sees the error, and the members' assignments unless they cannot be made; then it raises."""
    _answer(placement)
    with pytest.raises(AssignmentRejectedException) as caught:
        _leader().rebalance([_client(ONE), _client(TWO)], {}, 0)
    assert caught.value.error is error
    assert "Scripted" in str(caught.value)
    ((assignment, _, told),) = Scripted.told
    assert (told, bool(assignment.group_assignment)) == (error, shown)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (TaskAssignment([KafkaStreamsAssignment.of(ONE, _active(STATEFUL, OTHER))]), "1_0"),
        (None, "TaskAssignment"),
        ([], "TaskAssignment"),
    ],
)
def test_an_answer_that_only_we_refuse_is_not_shown_as_a_good_one(answer: Any, message: str) -> None:
    """A task that nobody owns would not be read, and Kafka would not say so."""
    Scripted.answer = lambda _: answer
    with pytest.raises(AssignmentRejectedException, match=message):
        _leader().rebalance([_client(ONE)], {}, 0)
    assert Scripted.told == []


def _raise(error: Exception) -> Callable[[ApplicationState], Any]:
    def answer(_: ApplicationState) -> Any:
        raise error

    return answer


def test_asked_to_try_again_it_keeps_the_former_assignment() -> None:
    """Without the clients that left; newcomers have nothing yet."""
    Scripted.answer = _raise(TaskAssignmentException("no rack yet"))
    had = GroupClient(ONE, (GroupConsumer("m", [STATEFUL, OTHER]),), [STATEFUL], {OTHER: 5})
    outcome = _leader().rebalance([had, _client(TWO, offset_sums={OTHER: 1})], {}, 0)
    assert outcome.kept_because == "no rack yet"
    assert [(found.active, found.standby) for found in outcome.assignments.values()] == [
        ((STATEFUL,), (OTHER,)),
        ((), ()),
    ]
    assert Scripted.told == []


def test_that_it_is_to_try_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It was 21 equal lines: it is asked again at once."""
    leader = _leader()
    again = _raise(TaskAssignmentException("no rack yet"))
    for answer in (again, again, _raise(TaskAssignmentException("no disk yet")), None, again):
        if answer is None:
            _answer({ONE: _active(STATEFUL, OTHER, STATELESS)})
        else:
            Scripted.answer = answer
        leader.rebalance([_client(ONE)], {}, 0)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.rpartition(": ")[2] for line in told] == ["no rack yet", "no disk yet", "no rack yet"]


@pytest.mark.parametrize(("generations", "owner"), [((3, 4), TWO), ((4, 3), ONE), ((None, 3), TWO), ((3, 3), ONE)])
def test_a_task_that_two_clients_say_is_theirs_stays_with_one(
    generations: tuple[int | None, int | None], owner: ProcessId
) -> None:
    """One of them has missed a rebalance; nobody may process what somebody else does."""
    Scripted.answer = _raise(TaskAssignmentException("no rack yet"))
    clients = [
        GroupClient(process, (GroupConsumer(f"{process}", [STATEFUL]),), [STATEFUL], generation=generation)
        for process, generation in zip((ONE, TWO), generations, strict=True)
    ]
    kept = _leader().rebalance(clients, {}, 0).assignments
    assert {process: found.active for process, found in kept.items() if found.active} == {owner: (STATEFUL,)}
    assert {process: found.standby for process, found in kept.items() if found.standby} == {
        process: (STATEFUL,) for process in (ONE, TWO) if process != owner
    }


def test_a_task_without_changelog_is_kept_as_active_only() -> None:
    """Of two clients that say it is theirs one keeps it; the other would get a standby that nothing keeps up to date."""
    Scripted.answer = _raise(TaskAssignmentException("no rack yet"))
    tasks = make_tasks([SubTopologyShape("unlogged", ("t",), {"s": None})], {"t": 1})
    clients = [GroupClient(one, (GroupConsumer(str(one), [STATEFUL]),), [STATEFUL]) for one in (ONE, TWO)]
    kept = GroupLeader(Scripted, AssignmentConfigs(), tasks).rebalance(clients, {}, 0).assignments
    assert [(found.active, found.standby) for found in kept.values()] == [((STATEFUL,), ()), ((), ())]


def test_goals_that_were_perhaps_not_reached_are_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assignments = [KafkaStreamsAssignment.of(ONE, _active(*TASKS))]
    caplog.set_level(logging.INFO, logger="task_assignor.group")
    said = "Perhaps not reached exactly: A_GOAL, B_GOAL."

    Scripted.answer = lambda _: TaskAssignment(assignments)
    assert _leader().rebalance([_client(ONE)], {}, 0).inexact == frozenset()
    assert said not in caplog.text
    Scripted.answer = lambda _: TaskAssignment(assignments, inexact={"B_GOAL", "A_GOAL"})
    assert _leader().rebalance([_client(ONE)], {}, 0).inexact == {"A_GOAL", "B_GOAL"}
    assert f"The assignor Scripted: {said}" in caplog.messages


def test_any_other_exception_of_the_assignor_ends_the_group_with_its_name() -> None:
    Scripted.answer = _raise(ValueError("zone 7"))
    told = r"The assignor Scripted failed with ValueError: zone 7 \(.*test_group\._raise.*, line \d+\)$"
    with pytest.raises(AssignmentRejectedException, match=told):
        _leader().rebalance([_client(ONE)], {}, 0)


def test_an_assignor_that_gives_something_wrong_learns_its_own_line() -> None:
    """It was that of the check in this package."""
    Scripted.answer = lambda _: AssignedTask("0_0", AssignedTask.Type.ACTIVE)  # type: ignore[arg-type]
    with pytest.raises(
        AssignmentRejectedException, match=r"TaskId.parse\(text\) \(.*test_group\..*<lambda>, line \d+\)$"
    ):
        _leader().rebalance([_client(ONE)], {}, 0)


class Unsayable(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


class UnsayableGiveUp(Unsayable, TaskAssignmentException):
    """The same, asking to try again."""


def test_an_exception_that_cannot_say_what_it_is_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What its `__str__` raised came out raw, or in place of the log's line."""
    Scripted.answer = _raise(UnsayableGiveUp())
    assert _leader().rebalance([_client(ONE)], {}, 0).kept_because == "UnsayableGiveUp"
    assert "Logging error" not in capfd.readouterr().err
    Scripted.answer = _raise(Unsayable())
    with pytest.raises(
        AssignmentRejectedException, match=r"The assignor Scripted failed with Unsayable \(.*, line \d+\)$"
    ):
        _leader().rebalance([_client(ONE)], {}, 0)

    def refuses(*_: object) -> None:
        raise UnsayableGiveUp

    monkeypatch.setattr(Scripted, "on_assignment_computed", refuses)
    Scripted.answer = lambda _: TaskAssignment([KafkaStreamsAssignment.of(ONE, _active(*TASKS))])
    told = r"failed in on_assignment_computed with UnsayableGiveUp \(.*\.refuses, line \d+\)$"
    with pytest.raises(AssignmentRejectedException, match=told):
        _leader().rebalance([_client(ONE)], {}, 0)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (KeyError("zone"), r"^The assignor shop\.Mine cannot be made: KeyError: 'zone'$"),
        (SystemExit(3), "cannot be made: SystemExit: 3"),
        (None, r"^What should make the assignor shop\.Mine made None, which is no TaskAssignor object\. Maybe"),
        (Scripted, r"made .*\.Scripted, which is no TaskAssignor object"),
    ],
)
def test_a_factory_that_makes_no_assignor_is_told_as_a_failure_of_it(made: object, said: str) -> None:
    """What it raised came out raw: hosts that know two ways to fail met a third one."""

    def make() -> Any:
        if isinstance(made, BaseException):
            raise made
        return made

    with pytest.raises(AssignmentRejectedException, match=said):
        GroupLeader(make, AssignmentConfigs(), TASKS, "shop.Mine").rebalance([_client(ONE)], {}, 0)


class _Forgetful(TaskAssignment):
    def __init__(self) -> None:
        pass


class _Leaves(TaskAssignment):
    @property
    def inexact(self) -> Any:
        raise SystemExit


@pytest.mark.parametrize(
    ("answer", "said"),
    [(_Forgetful, "Attr"), (lambda: _Leaves([KafkaStreamsAssignment.of(ONE, _active(*TASKS))]), "SystemExit")],
)
def test_an_answer_that_cannot_be_read_is_refused(answer: Callable[[], TaskAssignment], said: str) -> None:
    """A class of the assignor's own, which forgot what it inherits: it was an `AttributeError` of ours."""
    Scripted.answer = lambda _: answer()
    with pytest.raises(
        AssignmentRejectedException, match=f"The answer of the assignor Scripted cannot be read: {said}"
    ):
        _leader().rebalance([_client(ONE)], {}, 0)


def test_the_earliest_followup_deadline_counts() -> None:
    entries = [KafkaStreamsAssignment.of(ONE, _active(*TASKS)), KafkaStreamsAssignment.of(TWO)]
    answer = TaskAssignment([entries[0].with_followup_rebalance(900), entries[1].with_followup_rebalance(400)])
    Scripted.answer = lambda _: answer
    outcome = _leader().rebalance([_client(ONE), _client(TWO)], {}, 0)
    assert outcome.followup_deadline_ms == 400
    assert outcome.assignments[ONE].followup_deadline_ms == 900


def test_every_rebalance_has_a_fresh_assignor() -> None:
    made: list[Scripted] = []

    def factory() -> Scripted:
        made.append(Scripted())
        return made[-1]

    _answer({ONE: _active(*TASKS)})
    leader = _leader(factory)
    leader.rebalance([_client(ONE)], {}, 0)
    leader.rebalance([_client(ONE)], {}, 0)
    assert len({id(assignor) for assignor in made}) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConsumerMember([1], ["t"]), r"The id of a member \(\[1\]\) must be a string"),  # type: ignore[arg-type]
        (lambda: ConsumerMember("m", ["t", [1]]), r"Each topic of a member \(\[1\]\) must be a string"),  # type: ignore[list-item]
        (lambda: ConsumerMember("m", None), r"The topics of a member \(None\) must be several strings"),  # type: ignore[arg-type]
        (lambda: ConsumerMember("m", ["t"], "x"), r"The user data of the member .m. \(.x.\) must be bytes, or None"),  # type: ignore[arg-type]
        (lambda: GroupConsumer([1]), r"The id of a member \(\[1\]\) must be a string"),  # type: ignore[arg-type]
        (lambda: GroupConsumer("m", [[1]]), r"The previous tasks \(\[\[1\]\]\) must be a list of TaskId"),  # type: ignore[list-item]
        (lambda: GroupConsumer("m", ["0_0"]), r"The previous tasks \(\['0_0'\]\) must be a list of TaskId"),  # type: ignore[list-item]
        (lambda: GroupClient(ONE, GroupConsumer("m")), "The consumers of a client .* must be a list of GroupConsumer"),  # type: ignore[arg-type]
        (lambda: GroupClient(ONE, "m"), r"The consumers of a client \('m'\) must be a list of GroupConsumer"),  # type: ignore[arg-type]
        (lambda: _offsets([STATEFUL]), r"The offset_sums of a client \(.*\) must be a mapping from TaskIds to ints"),
        (lambda: _offsets({STATEFUL: "1"}), r"The offset_sums of a client must be .* but one is TaskId\(0_0\): '1'"),
        (lambda: _offsets({STATEFUL: math.nan}), r"The offset_sums of a client must be .*: nan"),
        (lambda: RangeAssignor().assign({"t": 1}, []), r"The topics \(\{'t': 1\}\) must be GroupTopics"),  # type: ignore[arg-type]
        (lambda: RangeAssignor().assign(GroupTopics({}), {"m": 1}), r"The members .* must be a list of ConsumerMember"),  # type: ignore[dict-item]
        (lambda: GroupTopics(["t"]), r"The topics \(\['t'\]\) must be a mapping"),  # type: ignore[arg-type]
        (lambda: GroupTopics({1: 1}), r"The name of a topic \(1\) must be a string"),  # type: ignore[dict-item]
        *(
            (
                lambda assignor=assignor: assignor.user_data({"t": [0]}, 1),
                r"must be an Assignment. Maybe answer.to_assignment",
            )
            for assignor in (StickyAssignor(), StickyStreamJoinAssignor(), CopartitionedAssignor())
        ),
        (
            lambda: GroupTopics({"t": 1}, {"t": ["a"]}),
            r"The racks of the topic 't' \(\['a'\]\) must be a list that has, for each partition, several strings",
        ),
    ],
)
def test_members_of_other_types_are_refused(make: Callable[[], object], message: str) -> None:
    """They were errors of Python somewhere else, of things that cannot be hashed or encoded."""
    with pytest.raises(GroupException, match=message):
        make()


def _offsets(sums: Any) -> GroupClient:
    return GroupClient(ONE, (GroupConsumer("m"),), offset_sums=sums)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ("t",)), r"The name of a sub-topology \(\['a'\]\) must be a string"),
        (("a", "orders"), r"The topics of a sub-topology \('orders'\) must be several strings. Maybe \('orders',\)"),
        (("a", None), r"The topics of a sub-topology \(None\) must be several strings"),
        (("a", (["t"],)), r"Each topic of a sub-topology \(\['t'\]\) must be a string"),
        (("a", ("t",), ["c"]), r"The changelogs of a sub-topology \(\['c'\]\) must be a mapping from stores to topics"),
        (("a", ("t",), "c"), r"The changelogs of a sub-topology \('c'\) must be a mapping from stores to topics"),
        (("a", ("t",), {"s": ["c"]}), "The changelogs of a sub-topology .* must be a mapping from stores to topics"),
        (("a", ("t",), {}, 3), r"The topology of a sub-topology \(3\) must be a string"),
        (("a", ("t",), {}, None, "r"), r"The topics of a sub-topology \('r'\) must be several strings"),
        (("a", ("t",), {}, None, (), (), "1"), r"The number of a sub-topology \('1'\) must be an int from 0"),
    ],
)
def test_sub_topologies_of_other_types_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """One topic in place of several was taken for its letters; others were errors of Python in the middle of a rebalance."""
    with pytest.raises(GroupException, match=message):
        SubTopologyShape(*arguments)


def test_sub_topologies_that_are_no_list_of_them_are_refused() -> None:
    for shapes in (SHAPES[0], "ab", [TASKS]):
        with pytest.raises(GroupException, match=r"The sub-topologies \(.*\) must be a list of SubTopologyShape"):
            StreamsLeader(Scripted, AssignmentConfigs(), shapes)  # type: ignore[arg-type]
    with pytest.raises(GroupException, match="The sub-topology 'a' reads no topic"):
        make_tasks([SubTopologyShape("a", ())], {})


@pytest.mark.parametrize("count", ["2", 2.0, None, True, [0, 1]])
def test_numbers_of_partitions_are_ints(count: Any) -> None:
    for made_of in (make_tasks, plan_topics):
        with pytest.raises(GroupException, match=r"The number of partitions of the topic 't' \(.*\) must be an int"):
            made_of([SubTopologyShape("reads", ("t",))], {"t": count})
    counted = make_tasks([SubTopologyShape("reads", ("t",))], {"t": np.int64(2)})  # type: ignore[dict-item]
    assert list(counted) == [TaskId(0, 0), TaskId(0, 1)]


def test_members_that_are_there_twice_are_refused() -> None:
    _answer({ONE: _active(*TASKS)})
    with pytest.raises(GroupException, match="process id 00000000-0000-0000-0000-000000000001 is in the group twice"):
        _leader().rebalance([_client(ONE), _client(ONE)], {}, 0)
    with pytest.raises(GroupException, match="member id 'm' is in the group twice"):
        _leader().rebalance([GroupClient(process, (GroupConsumer("m"),)) for process in (ONE, TWO)], {}, 0)
    with pytest.raises(GroupException, match="has no consumers"):
        GroupClient(ONE, ())


def test_what_the_sticky_assignor_gave_stays_when_a_client_joins_and_leaves() -> None:
    leader = _leader(StickyTaskAssignor, standbys=1)
    first = leader.rebalance([_client(ONE), _client(TWO)], {}, 0).assignments
    clients = [
        _client(process, previous_active=found.active, offset_sums=dict.fromkeys(found.standby, 0))
        for process, found in first.items()
    ]
    again = leader.rebalance(clients, {}, 0).assignments
    assert {process: found.active for process, found in first.items()} == {
        process: found.active for process, found in again.items()
    }
    alone = leader.rebalance(clients[:1], {}, 0).assignments
    assert set(alone[ONE].active) == set(TASKS)


# Consumers.


@given(st.data())
@settings(max_examples=examples(40))
def test_consumers_get_every_task_once_evenly_and_keep_what_they_had(data: st.DataObject) -> None:
    tasks = [TaskId(group, partition) for group in range(3) for partition in range(6)]
    stateful = frozenset(task for task in tasks if task.subtopology < 2)
    active = data.draw(st.lists(st.sampled_from(tasks), unique=True))
    standby = data.draw(st.lists(st.sampled_from([task for task in tasks if task in stateful]), unique=True))
    standby = [task for task in standby if task not in active]
    owner = {task: data.draw(st.integers(0, 5)) for task in tasks}
    names = [f"m{number}" for number in range(data.draw(st.integers(1, 5)))]
    consumers = [
        GroupConsumer(name, [task for task in tasks if owner[task] == number]) for number, name in enumerate(names)
    ]
    spread = spread_over_consumers(consumers, active, standby, stateful)
    assert spread == spread_over_consumers(reversed(consumers), reversed(active), reversed(standby), stateful)
    assert sorted(active) == sorted(task for found in spread.values() for task in found.active)
    assert sorted(standby) == sorted(task for found in spread.values() for task in found.standby)
    loads = [len(found.all) for found in spread.values()]
    assert max(loads) - min(loads) <= 1
    again = [GroupConsumer(name, found.all) for name, found in spread.items()]
    stateful_active = [task for task in active if task in stateful]
    settled = spread_over_consumers(again, stateful_active, [], stateful)
    assert settled == spread_over_consumers(
        [GroupConsumer(name, found.all) for name, found in settled.items()], stateful_active, [], stateful
    ), "what is even stays where it is"
