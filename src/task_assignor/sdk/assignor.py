"""The plug-in interface: `TaskAssignor`, what it is told back, and the values of the callback."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import attrs

from task_assignor.sdk.checks import Kind, all_of, check_fields
from task_assignor.sdk.errors import StateException
from task_assignor.sdk.ids import TopicPartition
from task_assignor.sdk.text import shown

if TYPE_CHECKING:
    from task_assignor.sdk.assignment import TaskAssignment
    from task_assignor.sdk.config_def import ConfigKey
    from task_assignor.sdk.state import ApplicationState


class AssignmentError(enum.Enum):
    """What Kafka's validation says of an assignment.

    Attributes:
        NONE: it found nothing.
        ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES: several clients have the same active task.
        INVALID_STANDBY_TASK: a stateless task is a standby somewhere.
        MISSING_PROCESS_ID: a process of the input is not in the answer.
        UNKNOWN_PROCESS_ID: a process of the answer is not in the input.
        UNKNOWN_TASK_ID: a task of the answer is not in the input.

    Source: KIP-924, Assignment Validation; `TaskAssignor.AssignmentError`.
    """

    NONE = "NONE"
    ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES = "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES"
    INVALID_STANDBY_TASK = "INVALID_STANDBY_TASK"
    MISSING_PROCESS_ID = "MISSING_PROCESS_ID"
    UNKNOWN_PROCESS_ID = "UNKNOWN_PROCESS_ID"
    UNKNOWN_TASK_ID = "UNKNOWN_TASK_ID"


# Converters without type variables: mypy's attrs plug-in cannot solve those, and users' own calls would be errors.
def _partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return all_of("partitions of a member", TopicPartition, partitions)


def _topics(topics: Iterable[str]) -> tuple[str, ...]:
    return all_of("topics of a Subscription", str, topics)


def _assignments(values: Mapping[str, Assignment]) -> Mapping[str, Assignment]:
    return _of_members("group_assignment", Assignment, values)


def _subscriptions(values: Mapping[str, Subscription]) -> Mapping[str, Subscription]:
    return _of_members("group_subscription", Subscription, values)


def _of_members(what: str, kind: type[Kind], values: Mapping[str, Kind]) -> Mapping[str, Kind]:
    if not isinstance(values, Mapping):
        raise StateException(f"The {what} ({shown(values)}) must be a mapping from member ids to {kind.__name__}.")
    all_of(f"member ids of the {what}", str, values)
    all_of(f"values of the {what}", kind, values.values())
    return MappingProxyType(dict(values))


@attrs.frozen
class Assignment:
    """What one member of the group gets (Kafka's `ConsumerPartitionAssignor.Assignment`).

    Args:
        partitions: partitions to consume.
        user_data: encoded extra data, or None.

    Raises:
        StateException: the partitions are no list of these, or the user data no bytes.
    """

    partitions: tuple[TopicPartition, ...] = attrs.field(default=(), converter=_partitions)
    user_data: bytes | None = None

    def __attrs_post_init__(self) -> None:
        check_fields(self, StateException, user_data=(bytes, None))


@attrs.frozen
class GroupAssignment:
    """What each member of the group gets: member id -> `Assignment`. Empty if it could not be computed."""

    group_assignment: Mapping[str, Assignment] = attrs.field(factory=dict, converter=_assignments)

    def __reduce__(self) -> tuple[type[GroupAssignment], tuple[dict[str, Assignment]]]:
        return type(self), (dict(self.group_assignment),)


@attrs.frozen
class Subscription:
    """What one member of the group asked for (Kafka's `ConsumerPartitionAssignor.Subscription`).

    Args:
        topics: topics the member subscribes to.
        user_data: encoded extra data, or None.
        owned_partitions: partitions the member owned when it joined.
        generation_id: generation of `owned_partitions`; -1: unknown.
        rack_id: rack of the member, or None.
        group_instance_id: static member id, or None.

    Raises:
        StateException: topics or partitions are no list of these, or something else is of another kind.
    """

    topics: tuple[str, ...] = attrs.field(default=(), converter=_topics)
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = attrs.field(default=(), converter=_partitions)
    generation_id: int = -1
    rack_id: str | None = None
    group_instance_id: str | None = None

    def __attrs_post_init__(self) -> None:
        text = (str, None)
        check_fields(
            self, StateException, user_data=(bytes, None), generation_id=int, rack_id=text, group_instance_id=text
        )


@attrs.frozen
class GroupSubscription:
    """What the members of the group asked for: member id -> `Subscription`."""

    group_subscription: Mapping[str, Subscription] = attrs.field(factory=dict, converter=_subscriptions)

    def __reduce__(self) -> tuple[type[GroupSubscription], tuple[dict[str, Subscription]]]:
        return type(self), (dict(self.group_subscription),)


class TaskAssignor(ABC):
    """Decides which client runs which task. Subclass it and name the class in `task.assignor.class`.

    `assign` is the whole contract. A fresh instance is made for every rebalance, without arguments, and configured
    with the application's settings, as in Kafka: keep nothing in it between rebalances. The answer must be a function
    of the `ApplicationState` alone; the time is `state.now_ms`.

    Source: KIP-924, User APIs, `TaskAssignor`.

    Attributes:
        config_keys: settings of its own that the assignor declares; they are checked when the settings are built.
    """

    config_keys: ClassVar[Sequence[ConfigKey]] = ()

    def configure(self, configs: Mapping[str, object]) -> None:
        """Take the application's settings; called once, before `assign`. Does nothing by default.

        `StreamsConfig(...)` calls it, too, of an instance of its own and without a limit of time: leave long work to `assign`.

        Args:
            configs: all settings by Kafka's keys. Known keys and those declared in `config_keys` are parsed (with
                their defaults filled in for the latter), the others are as the user gave them.
        """

    @abstractmethod
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place the tasks on the clients.

        Args:
            application_state: tasks, clients, settings, time.

        Returns:
            One `KafkaStreamsAssignment` for every client of the state.

        Raises:
            TaskAssignmentException: keep the assignment unchanged and try again at once.
        """

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Observe what became of the answer. Does nothing by default.

        Args:
            assignment: what the members get; empty if an error prevented its computation.
            subscription: what the members asked for.
            error: what the validation found. Unless it is NONE, a `StreamsException` follows this call.

        Source: KIP-924, Observing The Final Assignment.
        """
