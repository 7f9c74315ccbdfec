"""The leader of a group: from members and tasks, through a `TaskAssignor`, to every member's tasks. Sans-IO.

It opens no socket and reads no clock: the host (our own runtime, later a Kafka group) brings members, end offsets and
the time, and carries the answer to the members. Source: KIP-924; `StreamsPartitionAssignor` for the order of events.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import attrs

from task_assignor.group.errors import (
    AssignmentRejectedException,
    GroupException,
    check_configs,
    check_makes_assignors,
    check_mapping,
    list_of,
)
from task_assignor.group.members import GroupClient, check_members
from task_assignor.group.threads import ConsumerTasks, spread_over_consumers
from task_assignor.sdk import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
    ApplicationState,
    ApplicationStateBuilder,
    AssignedTask,
    Assignment,
    AssignmentConfigs,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    ProcessId,
    StreamsConfig,
    Subscription,
    TaskAssignment,
    TaskAssignmentException,
    TaskAssignor,
    TaskId,
    TaskInfo,
    TopicPartition,
)
from task_assignor.sdk.hidden import cause_without_secrets, without_secrets
from task_assignor.sdk.integers import INT64_MAX
from task_assignor.sdk.logs import logger_of
from task_assignor.sdk.text import failure, failure_at, perhaps_inexact, said, shown
from task_assignor.validation import ValidationReport, report_violations

_log = logger_of(__name__)
_UNREADABLE = frozenset({AssignmentError.UNKNOWN_PROCESS_ID, AssignmentError.UNKNOWN_TASK_ID})
"""With these Kafka does not compute the members' assignments; the callback sees an empty one."""


@attrs.frozen
class ClientAssignment:
    """What one client is to do.

    Args:
        active: tasks it processes, sorted.
        standby: tasks of which it keeps a copy of the state, sorted.
        consumers: member id -> the tasks of that consumer.
        followup_deadline_ms: when it shall trigger a rebalance, ms since the epoch; None: not at all.
    """

    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]
    consumers: Mapping[str, ConsumerTasks]
    followup_deadline_ms: int | None = None


@attrs.frozen
class GroupRebalance:
    """What came of a rebalance.

    Args:
        assignments: what each client is to do.
        kept_because: "" normally. Else the assignor raised `TaskAssignmentException` with this message: the former
            assignment stays (clients that left are gone from it, new ones have nothing), and the host shall try again
            at once.
        state: what the assignor was given.
        report: what the validation found, warnings included; None if the assignment was kept.
        inexact: codes of goals that the assignor perhaps did not reach exactly (`TaskAssignment.inexact`).
    """

    assignments: Mapping[ProcessId, ClientAssignment]
    kept_because: str
    state: ApplicationState
    report: ValidationReport | None = None
    inexact: frozenset[str] = frozenset()

    @property
    def followup_deadline_ms(self) -> int | None:
        """The earliest follow-up rebalance that a client asks for; None: nobody does."""
        deadlines = [found.followup_deadline_ms for found in self.assignments.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)


class GroupLeader:
    """Computes assignments. It keeps nothing of assignments between rebalances: what was before, the members say.

    Args:
        assignor_factory: makes a fresh, configured assignor, for example `StreamsConfig(...).task_assignor`, whose secrets
            no error shows then.
        configs: settings that matter for assignment.
        tasks: all tasks to be assigned.
        assignor_name: what to call the assignor where none could be made.
        on_state: told of every state before the assignor is given it, in the thread that asks.

    Attributes:
        assignor_name: the same.

    Raises:
        GroupException: an argument is of another kind.
    """

    def __init__(
        self,
        assignor_factory: Callable[[], TaskAssignor],
        configs: AssignmentConfigs,
        tasks: Mapping[TaskId, TaskInfo],
        assignor_name: str = "of the group",
        on_state: Callable[[ApplicationState], None] | None = None,
    ) -> None:
        check_makes_assignors(assignor_factory)
        check_configs(configs)
        if not (on_state is None or callable(on_state)):
            raise GroupException(f"The on_state ({shown(on_state)}) must be a function, or None.")
        check_mapping("tasks", tasks, "task ids to TaskInfo, as make_tasks gives it")
        list_of("tasks", TaskInfo, tasks.values())
        self.assignor_name = assignor_name
        self._on_state = on_state
        self._told: str | None = None
        """Why the assignor wanted to keep the assignment, if it did the last time."""
        self._assignor_factory = assignor_factory
        config = getattr(assignor_factory, "__self__", None)
        self._settings = config.originals if isinstance(config, StreamsConfig) else {}
        self._configs = configs
        self._tasks = MappingProxyType({task: tasks[task] for task in sorted(tasks)})
        self._stateful = frozenset(task for task, info in tasks.items() if info.is_stateful)
        self._logged = frozenset(task for task, info in tasks.items() if info.has_changelog)
        self._source_partitions = {
            task: sorted(found.topic_partition for found in info.topic_partitions if found.is_source)
            for task, info in tasks.items()
        }

    @property
    def tasks(self) -> Mapping[TaskId, TaskInfo]:
        """All tasks to be assigned, in task-id order."""
        return self._tasks

    def rebalance(
        self, clients: Iterable[GroupClient], end_offset_sums: Mapping[TaskId, int] | None, now_ms: int
    ) -> GroupRebalance:
        """Ask the assignor, check its answer, and make the members' assignments of it.

        Args:
            clients: the clients of the group, at least one.
            end_offset_sums: task -> end offsets of its changelogs, summed; 0 where missing. None: they could not be
                looked up, so no lag is known.
            now_ms: time, milliseconds since the epoch.

        Returns:
            What each client is to do.

        Raises:
            AssignmentRejectedException: the answer breaks a rule of Kafka's or of ours (a task that nobody owns), or
                the assignor cannot be made or failed with anything but `TaskAssignmentException`.
            GroupException: the members do not fit together, or an argument is of another kind.
        """
        if end_offset_sums is not None:
            check_mapping("end_offset_sums", end_offset_sums, "task ids to offsets")
        members = sorted(list_of("clients", GroupClient, clients), key=lambda client: client.process_id)
        check_members(members)
        ends = None if end_offset_sums is None else self._ends(end_offset_sums)
        state = self._state(members, ends, now_ms)
        if self._on_state is not None:
            self._on_state(state)
        assignor = self._assignor()
        name = type(assignor).__qualname__
        try:
            answer = assignor.assign(state)
        except TaskAssignmentException as error:
            why = without_secrets(said(error), self._settings)
            # It is asked again soon, and mostly says the same.
            level = logging.DEBUG if why == self._told else logging.WARNING
            _log.log(level, "The assignor %s asks to keep the assignment and to try again: %s", name, why)
            self._told = why
            return GroupRebalance(self._former(members), why, state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (`sys.exit`, or a panic of a library: it is the assignor's, not ours)
            raise self._rejection(f"The assignor {name} failed with {failure_at(error)}") from self._cause(error)
        if inspect.isawaitable(answer):
            _close(answer)
            raise AssignmentRejectedException(
                f"The assignor {name} returned a coroutine, not a TaskAssignment. Maybe write `def assign` in place of "
                "`async def assign`."
            )
        try:
            report = report_violations(state, answer)
            # Made before anything else of the assignor runs: what the callback changes in its answer, nobody has looked at.
            is_readable = report.kafka_error is not None and report.kafka_error not in _UNREADABLE
            given = self._assignments(members, answer, ends) if is_readable else {}
            inexact = answer.inexact if is_readable else frozenset()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (a class of its own, say without the `__init__` of what it inherits from)
            raise self._rejection(
                f"The answer of the assignor {name} cannot be read: {failure(error)}"
            ) from self._cause(error)
        self._tell_and_check(assignor, members, given, report)
        self._told = None
        for violation in report.warnings:
            _log.info("The assignor %s: %s", name, violation)
        if inexact:
            _log.info("The assignor %s: %s", name, perhaps_inexact(inexact))
        return GroupRebalance(given, "", state, report, inexact)

    # What the code of an assignor says of its failure may hold any of its settings.

    def _rejection(self, text: str) -> AssignmentRejectedException:
        return AssignmentRejectedException(without_secrets(text, self._settings))

    def _cause(self, error: BaseException) -> BaseException:
        return cause_without_secrets(error, self._settings)

    def _assignor(self) -> TaskAssignor:
        try:
            assignor: object = self._assignor_factory()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 (its constructor and its `configure` are somebody else's code)
            raise self._rejection(
                f"The assignor {self.assignor_name} cannot be made: {failure(error)}"
            ) from self._cause(error)
        if not isinstance(assignor, TaskAssignor):
            raise AssignmentRejectedException(
                f"What should make the assignor {self.assignor_name} made {shown(assignor)}, which is no TaskAssignor object. "
                "Maybe give what makes one, such as its class."
            )
        return assignor

    def _ends(self, end_offset_sums: Mapping[TaskId, int]) -> dict[TaskId, int]:
        return {task: end_offset_sums.get(task, 0) for task, info in self._tasks.items() if info.has_changelog}

    def _state(self, members: list[GroupClient], ends: Mapping[TaskId, int] | None, now_ms: int) -> ApplicationState:
        builder = ApplicationStateBuilder(self._configs, now_ms)
        for task, info in self._tasks.items():
            builder.add_task_info(info, 0 if ends is None and info.has_changelog else (ends or {}).get(task))
        for client in members:
            builder.add_client(
                client.process_id,
                num_processing_threads=len(client.consumers),
                consumers={
                    consumer.member_id: [task for task in consumer.previous_tasks if task in self._stateful]
                    for consumer in client.consumers
                },
                host_info=client.host_info,
                rack_id=client.rack_id,
                client_tags=client.client_tags,
                previous_active_tasks=client.previous_active,
                previous_standby_tasks=client.previous_standby,
                task_lags=None if ends is None else _lags(client, ends),
                generation=client.generation,
            )
        return builder.build()

    def _tell_and_check(
        self,
        assignor: TaskAssignor,
        members: list[GroupClient],
        given: Mapping[ProcessId, ClientAssignment],
        report: ValidationReport,
    ) -> None:
        """The callback, then the refusal if there is a reason for one: the order of KIP-924."""
        error = report.kafka_error
        name = type(assignor).__qualname__
        # An answer that only we refuse is not shown to the callback as a good one.
        if error is not None and (report.is_valid or error is not AssignmentError.NONE) and _listens(assignor):
            try:
                assignor.on_assignment_computed(self._group_assignment(given), self._subscription(members), error)
            except KeyboardInterrupt:
                raise
            except BaseException as problem:  # noqa: BLE001 (as above)
                raise self._rejection(
                    f"The assignor {name} failed in on_assignment_computed with {failure_at(problem)}"
                ) from self._cause(problem)
        if not report.is_valid:
            raise AssignmentRejectedException(
                f"The assignor {name} gave an assignment that cannot be used.\n{report.to_text()}",
                AssignmentError.NONE if error is None else error,
            )

    def _assignments(
        self, members: list[GroupClient], answer: TaskAssignment, ends: Mapping[TaskId, int] | None
    ) -> dict[ProcessId, ClientAssignment]:
        # If a client is there twice, the last entry wins, as in Kafka; only the callback of a refused answer sees that.
        entries = {entry.process_id: entry for entry in answer.assignment}
        result = {}
        for client in members:
            entry = entries.get(client.process_id)
            placed = () if entry is None else entry.tasks.values()
            active = tuple(sorted(task.id for task in placed if task.type is AssignedTask.Type.ACTIVE))
            standby = tuple(sorted(task.id for task in placed if task.type is AssignedTask.Type.STANDBY))
            deadline = None if entry is None else entry.followup_rebalance_deadline_ms
            lags = self._previous_lags(client, ends)
            consumers = spread_over_consumers(client.consumers, active, standby, self._logged, lags)
            result[client.process_id] = ClientAssignment(active, standby, consumers, deadline)
        return result

    def _previous_lags(self, client: GroupClient, ends: Mapping[TaskId, int] | None) -> Mapping[TaskId, int]:
        """Lag of each task with a changelog that its consumers had; -3 if it is not known, as in Kafka."""
        had = self._logged & {task for consumer in client.consumers for task in consumer.previous_tasks}
        lags = _lags(client, dict.fromkeys(had, 0) if ends is None else ends)
        if ends is None:
            return {task: lag if lag == LATEST_OFFSET else UNKNOWN_OFFSET_SUM for task, lag in lags.items()}
        return {task: lags.get(task, ends[task]) for task in had}

    def _former(self, members: list[GroupClient]) -> dict[ProcessId, ClientAssignment]:
        # Of several who say that a task is theirs it stays with the one who was told last.
        newest = sorted(
            members, key=lambda client: -1 if client.generation is None else client.generation, reverse=True
        )
        owner: dict[TaskId, ProcessId] = {}
        for client in newest:
            for task in client.previous_active:
                owner.setdefault(task, client.process_id)
        result = {}
        everything = frozenset(self._tasks)
        for client in members:
            had = {task for consumer in client.consumers for task in consumer.previous_tasks if task in self._tasks}
            own = {task for task in client.previous_active if owner[task] == client.process_id}
            active = tuple(sorted(task for task in own if task in self._tasks))
            standby = tuple(sorted(task for task in had - set(active) if task in self._logged))
            # All as it is: where a consumer names a task as its own, there it stays.
            consumers = spread_over_consumers(client.consumers, active, standby, everything)
            result[client.process_id] = ClientAssignment(active, standby, consumers)
        return result

    def _group_assignment(self, assignments: Mapping[ProcessId, ClientAssignment]) -> GroupAssignment:
        whole: dict[str, Assignment] = {}
        for assignment in assignments.values():
            for member, tasks in assignment.consumers.items():
                whole[member] = Assignment(self._partitions(tasks.active))
        return GroupAssignment(whole)

    def _subscription(self, members: list[GroupClient]) -> GroupSubscription:
        topics = sorted({partition.topic for found in self._source_partitions.values() for partition in found})
        return GroupSubscription(
            {
                consumer.member_id: Subscription(
                    tuple(topics),
                    None,
                    self._partitions(client.previous_active & consumer.previous_tasks),
                    -1 if client.generation is None else client.generation,
                    client.rack_id,
                )
                for client in members
                for consumer in client.consumers
            }
        )

    def _partitions(self, tasks: Iterable[TaskId]) -> tuple[TopicPartition, ...]:
        return tuple(sorted(found for task in tasks for found in self._source_partitions.get(task, ())))


def _listens(assignor: TaskAssignor) -> bool:
    """Whether it has a callback of its own: what that is told of a million tasks takes longer to make than their assignment."""
    return getattr(assignor.on_assignment_computed, "__func__", None) is not TaskAssignor.on_assignment_computed


def _close(coroutine: object) -> None:
    """So that Python does not warn that it was never awaited."""
    if inspect.iscoroutine(coroutine):
        coroutine.close()


def _lags(client: GroupClient, ends: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """Lag of each task of which the client has state; the others have the end offset sum as lag.

    As in Kafka: -2 for a running active task; a client that claims more than the end is not believed.
    """
    lags = {}
    for task, offset in client.offset_sums.items():
        if task in ends:
            is_sum = offset not in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM)
            behind = min(ends[task] - offset, INT64_MAX) if offset <= ends[task] else ends[task]
            lags[task] = behind if is_sum else offset
    for task in client.previous_active:
        if task in ends and task not in client.offset_sums:
            lags[task] = LATEST_OFFSET
    return lags
