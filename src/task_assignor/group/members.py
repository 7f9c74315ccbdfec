"""What the members of a group tell their leader, as values; how they tell it (wire, pickle, ...) is the host's business."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from task_assignor.group.errors import GroupException, check_text, list_of
from task_assignor.sdk import HostInfo, ProcessId, TaskId
from task_assignor.sdk.checks import check_fields
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.text import shown


# Without type variables: mypy's attrs plug-in cannot solve those.
def _frozenset(tasks: Iterable[TaskId]) -> frozenset[TaskId]:
    # Texts would be the names of no tasks, and what was there would count for nothing.
    found = list_of("previous tasks", TaskId, tasks)
    return tasks if isinstance(tasks, frozenset) else frozenset(found)


def _consumers(consumers: Iterable[GroupConsumer]) -> tuple[GroupConsumer, ...]:
    return list_of("consumers of a client", GroupConsumer, consumers)


def _offset_sums(sums: Mapping[TaskId, int]) -> Mapping[TaskId, int]:
    if not isinstance(sums, Mapping):
        raise GroupException(f"The offset_sums of a client ({shown(sums)}) must be a mapping from TaskIds to ints.")
    found = {task: plain_int(offset) for task, offset in sums.items()}
    for task, offset in found.items():
        if not isinstance(task, TaskId) or type(offset) is not int:
            raise GroupException(
                f"The offset_sums of a client must be a mapping from TaskIds to ints, but one is {shown(task)}: {shown(offset)}."
            )
    return found


@attrs.frozen
class GroupConsumer:
    """A consumer of a client: one of its threads.

    Args:
        member_id: its id in the group.
        previous_tasks: tasks that this consumer had, active or standby.
    """

    member_id: str
    previous_tasks: frozenset[TaskId] = attrs.field(default=frozenset(), converter=_frozenset)

    def __attrs_post_init__(self) -> None:
        check_text("The id of a member", self.member_id)


@attrs.frozen
class GroupClient:
    """A client (a KafkaStreams process) of the group.

    Args:
        process_id: its identity.
        consumers: its consumers; their number is its weight.
        previous_active: tasks that are active on it.
        offset_sums: changelog offsets, summed over stores, of all task state that it has (standbys and state left on
            disk); tasks in `previous_active` need none: they are running, their lag is -2; one that is given counts.
        rack_id: its rack, if known.
        client_tags: its tags.
        host_info: where it answers queries, if it does.
        generation: generation in which it got its previous tasks (KIP-341, Generation Marker); None: all clients say the same.
    """

    process_id: ProcessId
    consumers: tuple[GroupConsumer, ...] = attrs.field(converter=_consumers)
    previous_active: frozenset[TaskId] = attrs.field(default=frozenset(), converter=_frozenset)
    offset_sums: Mapping[TaskId, int] = attrs.field(factory=dict, converter=_offset_sums)
    rack_id: str | None = None
    client_tags: Mapping[str, str] = attrs.field(factory=dict)
    host_info: HostInfo | None = None
    generation: int | None = None

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.process_id, ProcessId):
            raise GroupException(
                f"The process_id of a client ({shown(self.process_id)}) must be a ProcessId. Maybe use ProcessId.parse(text)."
            )
        check_fields(
            self,
            GroupException,
            rack_id=(str, None),
            client_tags=Mapping,
            host_info=(HostInfo, None),
            generation=(int, None),
        )
        if not self.consumers:
            raise GroupException(f"The client {self.process_id} has no consumers.")

    @property
    def previous_standby(self) -> frozenset[TaskId]:
        """Every task of which it has state without running it, as in Kafka."""
        return frozenset(self.offset_sums) - self.previous_active


def check_members(clients: Iterable[GroupClient]) -> None:
    """Raise GroupException if a process id or member id is there twice."""
    processes: set[ProcessId] = set()
    members: set[str] = set()
    for client in clients:
        if client.process_id in processes:
            raise GroupException(f"The process id {client.process_id} is in the group twice.")
        processes.add(client.process_id)
        for consumer in client.consumers:
            if consumer.member_id in members:
                raise GroupException(f"The member id {consumer.member_id!r} is in the group twice.")
            members.add(consumer.member_id)
