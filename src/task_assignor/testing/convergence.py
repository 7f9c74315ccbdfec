"""A cluster on paper that rebalances until nothing changes, for any assignor. Nothing runs here: what is assigned is done at once.

After the rules of Kafka's `TaskAssignorConvergenceTest`: between two rebalances every active task, standby and warm-up
that was assigned becomes fully caught up; a client that leaves keeps its state and can come back with it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

import attrs

from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    ConfigException,
    ProcessId,
    StateException,
    StreamsConfig,
    TaskAssignment,
    TaskId,
    UnknownClientError,
)
from task_assignor.sdk.checks import check_flag, whole_number
from task_assignor.sdk.text import counted, listed, shown
from task_assignor.testing.answers import Assignor, instance_of
from task_assignor.testing.builders import (
    END_OFFSET_SUM,
    ConfigArguments,
    a_client,
    a_stateful_task,
    a_stateless_task,
    client_spec,
    client_specs,
    process_id_of,
    task_specs,
)
from task_assignor.testing.drawing import ClientTags, checked_tags, checked_topologies, draw_tags
from task_assignor.testing.random_states import seeded_choices
from task_assignor.testing.specs import ClientSpec, TaskSpec, seeded, state_of
from task_assignor.validation import report_violations


class NotConvergedError(AssertionError):
    """A cluster did not come to rest, or an answer on the way was wrong; the message ends with the whole history."""


@attrs.frozen
class Rebalance:
    """One rebalance of a cluster.

    Args:
        number: from 1.
        state: what the assignor was given.
        assignment: what it answered.
        follow_up: it asked for a follow-up rebalance.
    """

    number: int
    state: ApplicationState = attrs.field(repr=False)
    assignment: TaskAssignment = attrs.field(repr=False)
    follow_up: bool

    def __str__(self) -> str:
        lines = [f"rebalance {self.number}{', asks for a follow-up' if self.follow_up else ''}"]
        for each in sorted(self.assignment, key=lambda each: each.process_id):
            roles = [
                f"{role.value.lower()}: {' '.join(str(task.id) for task in tasks)}"
                for role in AssignedTask.Type
                if (tasks := [task for task in each.tasks.values() if task.type is role])
            ]
            lines.append(f"    {each.process_id}  {'; '.join(roles) or 'nothing'}")
        return "\n".join(lines)


class Cluster:
    """The clients of an application, and what they have after each rebalance.

    Args:
        tasks: the tasks; ids stand for stateful tasks. Those with a changelog but without an end offset sum get
            `END_OFFSET_SUM`.
        clients: the clients at the beginning; numbers stand for clients that had nothing. A number alone: so many of
            them, from 1.
        configs: the settings; None: Kafka's defaults.
        story: a name, or a seed, that messages begin with, so that a failure can be repeated.

    Raises:
        ConfigException: the configs are no `AssignmentConfigs`.
        StateException: tasks or clients are not a list, or a client is there twice.
        TaskIdFormatException: a text is no task id.
    """

    def __init__(
        self,
        tasks: Iterable[TaskSpec | str | TaskId],
        clients: Iterable[ClientSpec | ProcessId | int] | int,
        configs: AssignmentConfigs | None = None,
        *,
        story: str = "cluster",
    ) -> None:
        if not isinstance(configs, AssignmentConfigs | None):
            raise ConfigException(
                f"The configs ({shown(configs)}) must be AssignmentConfigs or None. Maybe AssignmentConfigs(**configs)."
            )
        self.tasks = tuple(_with_end_offset(task) for task in task_specs(tasks))
        self.configs = AssignmentConfigs() if configs is None else configs
        self.story = story
        self._clients: dict[ProcessId, ClientSpec] = {}
        self._dropped: dict[ProcessId, ClientSpec] = {}
        self._rebalances: list[Rebalance] = []
        self._history: list[object] = []
        self._with_changelog = {task.task_id for task in self.tasks if task.has_changelog}
        for client in client_specs(clients):
            self.add(client)

    @property
    def clients(self) -> tuple[ClientSpec, ...]:
        """The clients that are there, by process id, with what they have."""
        return tuple(self._clients[process_id] for process_id in sorted(self._clients))

    @property
    def dropped(self) -> tuple[ProcessId, ...]:
        """The clients that left and can come back, by process id."""
        return tuple(sorted(self._dropped))

    @property
    def rebalances(self) -> tuple[Rebalance, ...]:
        """All rebalances so far."""
        return tuple(self._rebalances)

    @property
    def history(self) -> str:
        """Everything that happened so far, for people."""
        return "\n".join(f"  {line}" for line in self._history)

    def add(self, client: ClientSpec | ProcessId | int) -> None:
        """A client joins; a number or a process id stands for one that had nothing.

        Raises:
            StateException: it is there already, it left and can only come back, or it is no client.
        """
        joining = client_spec(client)
        if joining.process_id in self._clients:
            raise StateException(f"The client {joining.process_id} is there already.")
        if joining.process_id in self._dropped:
            raise StateException(
                f"The client {joining.process_id} left, and what it had is on its disk. Use resurrect, or another "
                "process id for a client that has nothing."
            )
        self._clients[joining.process_id] = joining
        self._history.append(f"client {joining.process_id} joins")

    def drop(self, process_id: ProcessId | int) -> None:
        """A client, by its process id or number, leaves; what it has stays on its disk.

        Raises:
            UnknownClientError: it is not there.
        """
        client = _taken(self._clients, process_id, "there")
        self._dropped[client.process_id] = client
        self._history.append(f"client {client.process_id} leaves")

    def resurrect(self, process_id: ProcessId | int) -> None:
        """A client that left, by its process id or number, comes back with what it had then.

        Raises:
            UnknownClientError: it did not leave.
        """
        client = _taken(self._dropped, process_id, "among those that left")
        self._clients[client.process_id] = client
        self._history.append(f"client {client.process_id} comes back")

    def state(self) -> ApplicationState:
        """What the next rebalance would be given."""
        now_ms = len(self._rebalances) * self.configs.probing_rebalance_interval_ms
        return state_of(self.tasks, self._clients.values(), self.configs, now_ms)

    def rebalance(self, assignor: Assignor) -> Rebalance:
        """One rebalance; afterwards all clients have what was assigned to them, caught up.

        Args:
            assignor: an assignor, or what makes a fresh one, such as its class.

        Raises:
            ConfigException: the assignor is none, and makes none.
            NotConvergedError: the answer has an error, or is not a `TaskAssignment`.
            StateException: tasks and clients make no state (a task twice, a value that is wrong).
            Exception: whatever the assignor raises; its notes say what happened.
        """
        state = self.state()
        try:
            assignment = instance_of(assignor).assign(state)
        except Exception as error:
            error.add_note(
                f"{self.story}: rebalance {len(self._rebalances) + 1} failed\nWhat happened:\n{self.history}"
            )
            raise
        report = report_violations(state, assignment)
        if report.errors:
            self._fail(f"rebalance {len(self._rebalances) + 1} went wrong. {report}")
        # An assignor may go on with what it answered; what happened stays as it was.
        assignment = TaskAssignment(map(copy.copy, assignment), inexact=assignment.inexact)
        follow_up = any(each.followup_rebalance_deadline_ms is not None for each in assignment)
        done = Rebalance(len(self._rebalances) + 1, state, assignment, follow_up)
        self._rebalances.append(done)
        self._history.append(done)
        for each in assignment:
            self._clients[each.process_id] = self._caught_up(self._clients[each.process_id], each.tasks.values())
        return done

    def settle(self, assignor: Assignor, limit: int, *, heed_follow_ups: bool = True) -> int:
        """Rebalance until a rebalance neither asks for a follow-up nor changes anything.

        Args:
            assignor: an assignor, or what makes a fresh one, such as its class.
            limit: at most so many rebalances, not counting the last one, which shows that nothing changes any more.
            heed_follow_ups: a requested follow-up means that more is to come. False for assignors that always ask.

        Returns:
            The number of rebalances, not counting the last one.

        Raises:
            ConfigException: the assignor is none and makes none, or `limit` is not an int from 0.
            NotConvergedError: they were not enough, or an answer has an error.
        """
        whole_number("limit", limit, 0)
        check_flag("heed_follow_ups", heed_follow_ups, error=ConfigException)
        for count in range(limit + 1):
            before = self._placement()
            done = self.rebalance(assignor)
            changed = self._placement() != before
            if not changed and not (heed_follow_ups and done.follow_up):
                return count
        asks = (
            ""
            if changed
            else "; nothing changes, but the last one asks for a follow-up (heed_follow_ups=False lets it)"
        )
        return self._fail(f"not at rest after {counted(limit, 'rebalance')}{asks}")

    def _placement(self) -> dict[ProcessId, tuple[frozenset[TaskId], frozenset[TaskId]]]:
        """The active tasks and the standbys that each client has."""
        return {
            process_id: (frozenset(client.previous_active_tasks), frozenset(client.previous_standby_tasks))
            for process_id, client in self._clients.items()
        }

    def _caught_up(self, client: ClientSpec, assigned: Iterable[AssignedTask]) -> ClientSpec:
        tasks = list(assigned)
        active = [task.id for task in tasks if task.type is AssignedTask.Type.ACTIVE]
        standby = [task.id for task in tasks if task.type is AssignedTask.Type.STANDBY]
        lags = dict.fromkeys(standby, 0) | dict.fromkeys(active, LATEST_OFFSET)
        stateful: list[TaskId] = [task_id for task_id in lags if task_id in self._with_changelog]
        names = sorted(client.consumers)
        return attrs.evolve(
            client,
            previous_active_tasks=active,
            previous_standby_tasks=standby,
            consumers={name: tuple(stateful[number :: len(names)]) for number, name in enumerate(names)},
            task_lags={task_id: lags[task_id] for task_id in stateful},
            generation=len(self._rebalances),
        )

    def _fail(self, problem: str) -> int:
        raise NotConvergedError(f"{self.story}: {problem}\nWhat happened:\n{self.history}")


def _taken(clients: dict[ProcessId, ClientSpec], process_id: ProcessId | int, where: str) -> ClientSpec:
    """The client, which is removed."""
    wanted = process_id_of(process_id)
    if wanted not in clients:
        names = listed(str(client) for client in clients)
        raise UnknownClientError(f"The client {wanted} is not {where}. These are: {names}.")
    return clients.pop(wanted)


def _with_end_offset(task: TaskSpec) -> TaskSpec:
    if task.has_changelog and task.end_offset_sum is None:
        return attrs.evolve(task, end_offset_sum=END_OFFSET_SUM)
    return task


def run_random_story(
    assignor: Assignor,
    seed: int,
    *,
    check: Callable[[Cluster], None] | None = None,
    heed_follow_ups: bool = True,
    client_tags: ClientTags | None = None,
    topologies: Sequence[str | None] = (),
    **configs: Unpack[ConfigArguments],
) -> Cluster:
    """A cluster whose clients leave, join and come back at random, and that must come to rest after each event.

    As in Kafka's test: up to ten clients with one thread each, up to ten stateless and ten stateful tasks, up to ten events.
    The limits are Kafka's: one rebalance at the beginning, then 2 * (S + S * R) for S stateful tasks and R standbys.

    Args:
        assignor: an assignor, or what makes a fresh one, such as its class.
        seed: equal seeds give equal stories.
        check: called each time the cluster has come to rest; may raise `AssertionError`.
        heed_follow_ups: as in `Cluster.settle`.
        client_tags: tag -> what its value is drawn from for each client; None: the client has no such tag. Apart from
            the tags, the story stays the same.
        topologies: names of topologies, one of which is drawn for every sub-topology; None: an unnamed one. Empty: all are
            unnamed. Apart from the names, the tasks stay the same.
        **configs: further settings, as `AssignmentConfigs` takes them.

    Returns:
        The cluster at the end of the story.

    Raises:
        NotConvergedError: an answer has an error, the limit did not suffice, or `check` failed; names the seed and
            all else that is needed to repeat it.
        ConfigException: the assignor, the seed, a setting, the client_tags, the topologies or another argument are wrong.
    """
    if not (check is None or callable(check)):
        raise ConfigException(f"The check ({shown(check)}) must be a function that takes the cluster, or None.")
    check_flag("heed_follow_ups", heed_follow_ups, error=ConfigException)
    rng = seeded(seed)
    tags = checked_tags({} if client_tags is None else client_tags)
    tag_choices = seeded_choices(f"tags/{seed}")
    topology_choices = seeded_choices(f"topologies/{seed}")
    names = checked_topologies(topologies) or (None,)

    def new_topology() -> str | None:
        return topology_choices.element(names)

    def new_client(number: int) -> ClientSpec:
        return a_client(number, rack=rng.choice(racks), tags=draw_tags(tag_choices, tags))

    racks = [f"rack-{number}" for number in range(rng.randint(1, 5))]
    first_clients = rng.randint(1, 10)
    stateless = _random_tasks(rng, rng.randint(1, 10), 0, racks, new_topology, a_stateless_task)
    stateful = _random_tasks(rng, rng.randint(1, 10), 100, racks, new_topology, a_stateful_task)
    drawn: ConfigArguments = {
        "acceptable_recovery_lag": 100,
        "num_standby_replicas": rng.randint(0, first_clients),
        "max_warmup_replicas": rng.randint(1, len(stateful)),
        "probing_rebalance_interval_ms": 60_000,
    }
    number = first_clients
    cluster = Cluster(
        [*stateless, *stateful],
        [new_client(client) for client in range(1, number + 1)],
        AssignmentConfigs(**(drawn | configs)),
        story=_story(assignor, seed, configs, heed_follow_ups, client_tags, topologies),
    )
    limit = 2 * len(stateful) * (1 + cluster.configs.num_standby_replicas)
    _settle(cluster, assignor, 1, check, heed_follow_ups)
    for _ in range(rng.randint(1, 10)):
        if rng.random() < 0.5:
            present = [client.process_id for client in cluster.clients]
            for process_id in rng.sample(present, rng.randint(0, len(present) - 1)):
                cluster.drop(process_id)
        else:
            for _ in range(rng.randint(1, 3)):
                if cluster.dropped and rng.random() < 0.5:
                    cluster.resurrect(rng.choice(cluster.dropped))
                else:
                    number += 1
                    cluster.add(new_client(number))
        _settle(cluster, assignor, limit, check, heed_follow_ups)
    return cluster


def _story(
    assignor: Assignor,
    seed: int,
    configs: ConfigArguments,
    heed_follow_ups: bool,
    client_tags: ClientTags | None,
    topologies: Sequence[str | None],
) -> str:
    """The call that tells the story again, but for the check."""
    given = {"heed_follow_ups": heed_follow_ups, "client_tags": client_tags, "topologies": topologies}
    usual = {"heed_follow_ups": True, "client_tags": None, "topologies": ()}
    named = [f"{name}={value!r}" for name, value in {**given, **configs}.items() if value != usual.get(name, ...)]
    made_by = getattr(assignor, "__self__", None)
    told = f"{made_by!r}.task_assignor" if isinstance(made_by, StreamsConfig) else shown(assignor)
    return f"run_random_story({', '.join([told, str(seed), *named])})"


def _random_tasks(
    rng: random.Random,
    count: int,
    first: int,
    racks: list[str],
    new_topology: Callable[[], str | None],
    make: Callable[..., TaskSpec],
) -> list[TaskSpec]:
    """Tasks in sub-topologies of random sizes; every task has its own two racks."""
    tasks: list[TaskSpec] = []
    subtopology = first
    while len(tasks) < count:
        name = new_topology()
        for partition in range(rng.randint(1, count - len(tasks))):
            replicas = rng.sample(racks, min(2, len(racks)))
            tasks.append(make(TaskId(subtopology, partition, name), racks=replicas))
        subtopology += 1
    return tasks


def _settle(
    cluster: Cluster,
    assignor: Assignor,
    limit: int,
    check: Callable[[Cluster], None] | None,
    heed_follow_ups: bool,
) -> None:
    cluster.settle(assignor, limit, heed_follow_ups=heed_follow_ups)
    if check is None:
        return
    try:
        check(cluster)
    except AssertionError as error:
        raise NotConvergedError(f"{cluster.story}: {error}\nWhat happened:\n{cluster.history}") from error
