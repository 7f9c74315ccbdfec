"""A cluster on paper that rebalances until nothing changes, for any assignor. Nothing runs here: what is assigned is done at once.

After the rules of Kafka's `TaskAssignorConvergenceTest`: between two rebalances every active task, standby and warm-up
that was assigned becomes fully caught up; a client that leaves keeps its state and can come back with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import attrs

from task_assignor.sdk import (
    LATEST_OFFSET,
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    ProcessId,
    TaskAssignment,
    TaskAssignor,
    TaskId,
)
from task_assignor.testing.assertions import Assignor
from task_assignor.testing.builders import END_OFFSET_SUM, a_client, a_stateful_task, a_stateless_task
from task_assignor.testing.drawing import ClientTags, checked_tags, draw_tags
from task_assignor.testing.random_states import seeded_choices
from task_assignor.testing.specs import ClientSpec, TaskSpec, state_of
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
        tasks: the tasks; those with a changelog but without an end offset sum get `END_OFFSET_SUM`.
        clients: the clients at the beginning.
        configs: the settings; None: Kafka's defaults.
        story: a name, or a seed, that messages begin with, so that a failure can be repeated.
    """

    def __init__(
        self,
        tasks: Iterable[TaskSpec],
        clients: Iterable[ClientSpec],
        configs: AssignmentConfigs | None = None,
        *,
        story: str = "cluster",
    ) -> None:
        self.tasks = tuple(_with_end_offset(task) for task in tasks)
        self.configs = AssignmentConfigs() if configs is None else configs
        self.story = story
        self._clients: dict[ProcessId, ClientSpec] = {}
        self._dropped: dict[ProcessId, ClientSpec] = {}
        self._rebalances: list[Rebalance] = []
        self._history: list[object] = []
        self._with_changelog = {task.task_id for task in self.tasks if task.has_changelog}
        for client in clients:
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

    def add(self, client: ClientSpec) -> None:
        """A client joins."""
        self._clients[client.process_id] = client
        self._history.append(f"client {client.process_id} joins")

    def drop(self, process_id: ProcessId) -> None:
        """A client leaves; what it has stays on its disk."""
        self._dropped[process_id] = self._clients.pop(process_id)
        self._history.append(f"client {process_id} leaves")

    def resurrect(self, process_id: ProcessId) -> None:
        """A client that left comes back, with what it had then."""
        self._clients[process_id] = self._dropped.pop(process_id)
        self._history.append(f"client {process_id} comes back")

    def state(self) -> ApplicationState:
        """What the next rebalance would be given."""
        now_ms = len(self._rebalances) * self.configs.probing_rebalance_interval_ms
        return state_of(self.tasks, self._clients.values(), self.configs, now_ms)

    def rebalance(self, assignor: Assignor) -> Rebalance:
        """One rebalance; afterwards all clients have what was assigned to them, caught up.

        Args:
            assignor: an assignor, or what makes a fresh one, such as its class.

        Raises:
            NotConvergedError: the answer has an error.
        """
        state = self.state()
        instance = assignor if isinstance(assignor, TaskAssignor) else assignor()
        assignment = instance.assign(state)
        report = report_violations(state, assignment)
        if report.errors:
            self._fail(f"rebalance {len(self._rebalances) + 1} went wrong. {report}")
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
            NotConvergedError: they were not enough, or an answer has an error.
        """
        last = None
        for count in range(limit + 1):
            done = self.rebalance(assignor)
            placement = {each.process_id: dict(each.tasks) for each in done.assignment}
            if placement == last and not (heed_follow_ups and done.follow_up):
                return count
            last = placement
        return self._fail(f"not at rest after {limit} rebalances")

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
    **configs: object,
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
        **configs: further settings, as `AssignmentConfigs` takes them.

    Returns:
        The cluster at the end of the story.

    Raises:
        NotConvergedError: an answer has an error, the limit did not suffice, or `check` failed; names the seed.
        StateException: the client_tags are of another form.
    """
    rng = random.Random(seed)
    tags = checked_tags({} if client_tags is None else client_tags)
    tag_choices = seeded_choices(f"tags/{seed}")

    def new_client(number: int) -> ClientSpec:
        return a_client(number, rack=rng.choice(racks), tags=draw_tags(tag_choices, tags))

    racks = [f"rack-{number}" for number in range(rng.randint(1, 5))]
    first_clients = rng.randint(1, 10)
    stateless = _random_tasks(rng, rng.randint(1, 10), 0, racks, a_stateless_task)
    stateful = _random_tasks(rng, rng.randint(1, 10), 100, racks, a_stateful_task)
    standbys = rng.randint(0, first_clients)
    settings: dict[str, object] = {
        "acceptable_recovery_lag": 100,
        "max_warmup_replicas": rng.randint(1, len(stateful)),
        "num_standby_replicas": standbys,
        "probing_rebalance_interval_ms": 60_000,
    } | configs
    number = first_clients
    cluster = Cluster(
        [*stateless, *stateful],
        [new_client(client) for client in range(1, number + 1)],
        AssignmentConfigs(**settings),  # type: ignore[arg-type]
        story=f"run_random_story with seed {seed}",
    )
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
        _settle(cluster, assignor, 2 * len(stateful) * (1 + standbys), check, heed_follow_ups)
    return cluster


def _random_tasks(
    rng: random.Random, count: int, first: int, racks: list[str], make: Callable[..., TaskSpec]
) -> list[TaskSpec]:
    """Tasks in sub-topologies of random sizes; every task has its own two racks."""
    tasks: list[TaskSpec] = []
    subtopology = first
    while len(tasks) < count:
        for partition in range(rng.randint(1, count - len(tasks))):
            replicas = rng.sample(racks, min(2, len(racks)))
            tasks.append(make(TaskId(subtopology, partition), racks=replicas))
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
