"""What a consumer-level assignor would do with the members and topics of a group; documents like those of `tests/vectors`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from task_assignor.cli.json_values import JsonValue
from task_assignor.cli.output import (
    FINDING,
    FINE,
    place_of,
    write_error,
    write_json,
    write_line,
    write_pretty,
)
from task_assignor.cli.planning import ASSIGNOR_KEY, STANDBYS_KEY, error_to_json, read_settings
from task_assignor.group import GroupException
from task_assignor.group.consumers import (
    AssignmentMetrics,
    ConsumerAssignment,
    ConsumerAssignor,
    ConsumerMember,
    CooperativeStickyAssignor,
    CopartitionedAssignor,
    GroupTopics,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    StickyStreamJoinAssignor,
    measure,
)
from task_assignor.group.wire import (
    CopartitionedUserData,
    StickyUserData,
    StreamJoinUserData,
    decode_copartitioned_user_data,
    decode_stream_join_epoch,
    encode_copartitioned_user_data,
    encode_sticky_user_data,
    encode_stream_join_user_data,
)
from task_assignor.sdk import SnapshotException, StateRecord, StreamsException, registered_assignors
from task_assignor.sdk.assignor_classes import registrations
from task_assignor.sdk.config_def import given_value
from task_assignor.sdk.config_keys import KNOWN_KEYS
from task_assignor.sdk.integers import INT32_MAX
from task_assignor.sdk.text import counted, listed, printable, shown

# The last two are notes for readers, of what is in the user data.
_MEMBER: Final = frozenset(
    {"id", "topics", "owned", "generation", "claims", "user_data", "rack", "instance", "previous", "epoch"}
)
_CLAIMS: Final = frozenset({"generation", "owned", "standby", "version"})
# A document may hold more, as the vectors do; what looks like one of these is a slip of the hand.
_GROUP: Final = frozenset({"id", "kind", "topics", "members", "racks"})
_ASSIGNORS: Final[Mapping[str, Callable[[], ConsumerAssignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    "stream-join": StickyStreamJoinAssignor,
    "copartitioned": CopartitionedAssignor,
}


def is_group(document: Any) -> bool:
    """Whether a document has the members and topics of a group, and not the tasks of an application."""
    return isinstance(document, dict) and "members" in document and "topics" in document and "tasks" not in document


@attrs.frozen
class GroupPlan:
    """What became of one group."""

    assignor: ConsumerAssignor
    assignment: ConsumerAssignment
    metrics: AssignmentMetrics
    unknown_topics: Sequence[str] = ()

    def to_json(self, record: StateRecord) -> dict[str, Any]:
        """The answer as one JSON object."""
        answer: dict[str, Any] = {} if record.id is None else {"id": record.id}
        answer |= {
            "assignor": self.assignor.name,
            "assignment": dict(self.assignment.items()),
            "metrics": attrs.asdict(self.metrics),
        }
        told = self.assignment.user_data
        if isinstance(self.assignor, StickyStreamJoinAssignor):
            answer["epoch"] = decode_stream_join_epoch(next(iter(told.values()), None))
        elif isinstance(self.assignor, CopartitionedAssignor):
            answer["standby"] = {member: decode_copartitioned_user_data(told[member]).standby for member in told}
        return answer

    def table(self) -> Table:
        """Members and what they get."""
        table = Table(box=None, pad_edge=False)
        for column in ("member", "partitions", "topics"):
            table.add_column(column, overflow="fold")
        for member, owned in self.assignment.items():
            topics = "  ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in owned.items())
            table.add_row(
                escape(printable(member)), str(sum(map(len, owned.values()))), escape(printable(topics)) or "-"
            )
        return table

    def summary(self) -> str:
        """The numbers in a sentence."""
        found = self.metrics
        return (
            f"{counted(found.partitions, 'partition')}, {found.min} to {found.max} per member; {found.kept} stay, "
            f"{found.moved} move, {found.withheld} wait for the next rebalance."
        )


class GroupPlanner:
    """Asks a consumer-level assignor about any number of groups.

    Args:
        settings: settings in Kafka's keys; without an assignor each document says it as `kind`.
        file: a `.properties` file with more of them, of an application: the assignor that it names is one of tasks.

    Raises:
        ConfigException: the file cannot be read.
    """

    def __init__(self, settings: Mapping[str, object], file: Path | None = None) -> None:
        whole = {**({} if file is None else read_settings(file)[0]), **settings}
        self._name = settings.get(ASSIGNOR_KEY)
        self._standbys = whole.get(STANDBYS_KEY)
        self._keys = sorted(settings)

    @property
    def is_only_for_groups(self) -> bool:
        """Whether the name is that of a consumer-level assignor, and of no task assignor."""
        return self._name in _ASSIGNORS and self._name not in registered_assignors()

    @property
    def unused(self) -> list[str]:
        """A sentence for each setting that changes nothing in a group, whose assignor has been named."""
        return self._unused(str(self._name))

    def unused_in(self, group: Mapping[str, object]) -> list[str]:
        """The same of one group, whose assignor may be said in its document."""
        return self._unused(str(self._name or group.get("kind")))

    def _unused(self, name: str) -> list[str]:
        used = {ASSIGNOR_KEY} | ({STANDBYS_KEY} if name == "copartitioned" else set())
        return [f"The setting {key} changes nothing in a consumer group." for key in self._keys if key not in used]

    def why_no_group(self, record: StateRecord) -> str:
        """What is wrong with a document that is no group where only groups can be meant."""
        if record.error is not None and not isinstance(record.document, dict):
            return str(record.error)
        several = registrations().get(str(self._name), [])
        if len(several) > 1:
            return (
                f"$: Several packages register the task assignor {self._name} "
                f"({', '.join(point.value for point in several)}). Give the dotted path."
            )
        return (
            f"$: The document must be a consumer group, with topics and members: the assignor {self._name} decides about no "
            f"tasks. Task assignors are: {listed(registered_assignors())}."
        )

    def plan(self, document: JsonValue) -> GroupPlan:
        """The plan for a group.

        Raises:
            SnapshotException: the document is wrong, or names no assignor.
            ConfigException: the number of standbys is none.
        """
        document.check_slips(_GROUP)
        name = str(self._name or (document["kind"].text_or_none() or "").replace("_", "-"))
        if name not in _ASSIGNORS:
            raise SnapshotException(
                f"$: The assignor of a consumer group ({shown(name) if name else 'not given'}) must be one of: "
                f"{listed(_ASSIGNORS)}. Maybe use --assignor."
            )
        try:
            assignor = self._assignor(name)
            topics = GroupTopics(
                {topic: count.whole(low=0, high=INT32_MAX) for topic, count in document["topics"].members()},
                _racks(document["racks"]),
            )
            members = [_member(name, member) for member in document["members"]]
            assignment = assignor.assign(topics, members)
            unknown = {topic for member in members for topic in member.topics} - topics.counts.keys()
            return GroupPlan(assignor, assignment, measure(assignor, topics, members, assignment), sorted(unknown))
        except GroupException as error:
            raise SnapshotException(f"$: {error}") from None

    def _assignor(self, name: str) -> ConsumerAssignor:
        if name == "copartitioned" and self._standbys is not None:
            count = given_value(KNOWN_KEYS[STANDBYS_KEY], {STANDBYS_KEY: self._standbys})
            assert isinstance(count, int)
            return CopartitionedAssignor(count)
        return _ASSIGNORS[name]()


def consumer_assignors() -> str:
    """The names of the consumer-level assignors, as part of a sentence."""
    return listed(_ASSIGNORS)


def show_group(planner: GroupPlanner, record: StateRecord, *, as_json: bool, file: str) -> int:
    """Write the plan for a group, or why there is none; returns the exit code."""
    try:
        found = planner.plan(JsonValue(record.document))
    except StreamsException as error:
        show_error(record, str(error), as_json=as_json, file=file)
        return FINDING
    if as_json:
        write_json(found.to_json(record))
    else:
        title = [] if record.id is None else [Text(printable(str(record.id)), style="bold")]
        write_pretty(*title, found.table(), found.summary())
        if found.unknown_topics:
            there = "is subscribed to, but is" if len(found.unknown_topics) == 1 else "are subscribed to, but are"
            write_line(printable(f"{listed(found.unknown_topics)} {there} not among the topics."))
    return FINE


def show_error(record: StateRecord, error: str, *, as_json: bool, file: str) -> None:
    """Write why there is no plan for a document."""
    if as_json:
        write_json(error_to_json(record.id, record.line, error))
    else:
        write_error(f"{place_of(file, record.line)}: {error}")


def _racks(value: JsonValue) -> dict[str, list[tuple[str, ...] | None]]:
    if value.is_null:
        return {}
    return {
        topic: [None if racks.is_null else racks.texts() for racks in partitions]
        for topic, partitions in value.members()
    }


def _member(assignor: str, value: JsonValue) -> ConsumerMember:
    value.check_names(_MEMBER)
    data = value["user_data"].bytes_or_none()
    owned, generation = value["owned"].numbers_by_topic(), value["generation"].int32(-1)
    if data is None and not value["claims"].is_null:
        data = _user_data(assignor, value["claims"])
    return ConsumerMember(
        value["id"].text(),
        value["topics"].texts(),
        data,
        owned,
        generation,
        value["rack"].text_or_none(),
        value["instance"].text_or_none(),
    )


def _user_data(assignor: str, claims: JsonValue) -> bytes | None:
    """What a member that says this writes for its assignor; a cooperative one says it in its subscription."""
    claims.check_names(_CLAIMS)
    owned, generation = claims["owned"].numbers_by_topic(), claims["generation"].int32(-1)
    if assignor == "sticky":
        old = not claims["version"].is_null and claims["version"].whole() == 0
        return encode_sticky_user_data(StickyUserData(owned, None if old else generation))
    if assignor == "stream-join":
        numbers = sorted({number for numbers in owned.values() for number in numbers})
        return encode_stream_join_user_data(StreamJoinUserData(tuple(numbers), max(generation, 0)))
    if assignor == "copartitioned":
        standby = claims["standby"].numbers_by_topic()
        return encode_copartitioned_user_data(CopartitionedUserData(owned, standby, generation))
    return None


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers, runs of them as ranges.

    Examples:
        >>> _ranges([0, 1, 2, 5])
        '0..2,5'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("..".join(map(str, part)) for part in parts)
