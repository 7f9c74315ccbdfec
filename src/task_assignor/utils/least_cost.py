"""`place_at_least_cost`: from `PlacementCosts` to an owner for every task, and what is wrong where nothing fits."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.flow import FlowError, InfeasibleFlowError
from task_assignor.engine.items import NOBODY, sums
from task_assignor.engine.places.min_cost import Placed, min_cost_places
from task_assignor.engine.places.problem import FORBIDDEN, PlacesProblem
from task_assignor.engine.places.weighted import Overload, place_weights, relaxed
from task_assignor.engine.row_costs import RowCosts
from task_assignor.sdk import ApplicationState, ProcessId, StateColumns
from task_assignor.sdk.arrays import distinct, distinct_and_numbers, rows_of
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.text import shown
from task_assignor.utils.given import check_has_clients
from task_assignor.utils.goals import Goal
from task_assignor.utils.history import previous_actives
from task_assignor.utils.placement import Placement
from task_assignor.utils.placement_costs import CostModelException, PlacementCosts
from task_assignor.utils.result import AssignmentResult


@attrs.define(eq=False, repr=False)
class LeastCostAssignment(AssignmentResult):
    """Active tasks placed at least cost: `cost_after` is what they cost, `lower_bound` what they cost at least.

    `Goal.ACTIVE_COST` is in `inexact` unless it is proven that nothing cheaper exists, and nothing as cheap with fewer moves.

    Attributes:
        moves: tasks that left their owner.
    """

    moves: int = attrs.field(default=0, kw_only=True)


def previous_owner(columns: StateColumns) -> Int64Array:
    """(T,) who had each task active: of several the newest generation, then the smallest process id; -1: nobody."""
    owner = np.full(len(columns.tasks), NOBODY, dtype=np.int64)
    claims = previous_actives(columns).newest()
    # The last of equal tasks wins.
    owner[claims.item[::-1]] = claims.owner[::-1]
    return owner


def place_at_least_cost(application_state: ApplicationState, costs: PlacementCosts) -> LeastCostAssignment:
    """Give every task an active owner so that all of them cost least, with the fewest moves among placements that cost so.

    The optimum is proven. Only with task weights the placement is good, and its distance from a lower bound known; so it is
    with more than 400 000 pairs of a class and a rack that is cheaper than its dearest, where racks are chosen first:
    proven if in no rack a client had more of the tasks that go there than it may have.

    Args:
        application_state: tasks, clients and history.
        costs: what it costs to have which task where, how much fits, what is fixed.

    Returns:
        A new assignment, with all clients of the state.

    Raises:
        CostModelException: the costs do not fit the state, or the tasks do not fit the capacities.
        TaskAssignmentException: there are tasks but no clients.

    Source of the idea: Firmament (OSDI 2016), whose cost models feed one flow network.
    """
    check_has_clients(application_state)
    question = _Question.of(application_state.columns, costs)
    owner = question.pinned.copy()
    free = np.flatnonzero(owner == NOBODY)
    found = question.place(free)
    owner[free] = found.place
    at = question.whole.item_costs(owner).tolist()
    fixed = np.flatnonzero(question.pinned != NOBODY).tolist()
    former = question.whole.item_place
    return LeastCostAssignment(
        Placement.of(application_state.columns, owner),
        cost_after=sum(at),
        lower_bound=found.cost + sum(at[task] for task in fixed),
        inexact=() if found.is_best else {Goal.ACTIVE_COST},
        moves=int(((owner != former) & (former >= 0)).sum()),
    )


@attrs.frozen(eq=False)
class _Question:
    """Costs that fit the state, with everything filled in.

    Args:
        columns: the state.
        names: (K,) numbers of the classes as they were given, ascending; rows of the problem have their places.
        whole: the flow model of all tasks, without weights.
        weight: (T,) weights of the tasks.
        weighted: whether they were given.
        pinned: (T,) client on which each task must be; -1: it is free.
    """

    columns: StateColumns
    names: Int64Array
    whole: PlacesProblem
    weight: Int64Array
    weighted: bool
    pinned: Int64Array

    @classmethod
    def of(cls, columns: StateColumns, costs: PlacementCosts) -> _Question:
        if not isinstance(costs, PlacementCosts):
            raise CostModelException(f"A cost model must give PlacementCosts, not {shown(costs)}.")
        tasks, clients, racks = len(columns.tasks), len(columns.clients), len(columns.clients.racks)
        _shape("task_class", costs.task_class, (tasks,))
        declared = [len(given) for given in (costs.rack, costs.stay, costs.move) if given is not None]
        # Where no cost says how many classes there are, any numbers may name them.
        names, task_class = distinct_and_numbers(costs.task_class)
        if declared:
            names, task_class = np.arange(max(int(names.max(initial=-1)) + 1, *declared)), costs.task_class
        classes = len(names)
        rack = _filled("rack", costs.rack, (classes, racks + 1))
        stay, move = _filled("stay", costs.stay, (classes,)), _filled("move", costs.move, (classes,))
        wrong = np.flatnonzero(stay > move)
        if len(wrong):
            number = int(wrong[0])
            raise CostModelException(
                f"Staying ({int(stay[number])}) must not cost more than moving ({int(move[number])}), but for class {number} "
                "it does. Maybe use a client cost, or capacity 0, to empty a client."
            )
        owner = previous_owner(columns) if costs.owner is None else costs.owner
        _shape("owner", owner, (tasks,))
        if len(owner) and int(owner.max()) >= clients:
            raise CostModelException(f"The owner ({int(owner.max())}) must be a client number below {clients}.")
        weight = np.ones(tasks, dtype=np.int64) if costs.weight is None else costs.weight
        _shape("weight", weight, (tasks,))
        lower, upper = _capacities(columns, costs, weight)
        client = _filled("client", costs.client, (clients,))
        row, place, cost = _exception_columns(columns, costs, names, are_all_classes=bool(declared))
        cell = np.where(columns.clients.rack < 0, racks, columns.clients.rack).astype(np.int64)
        whole = PlacesProblem(
            costs=_costs_in_racks(task_class, rack, cell),
            item_place=owner,
            move_cost=move,
            stay_cost=stay,
            place_cell=cell,
            place_cost=client,
            lower=lower,
            upper=upper,
            exception_row=row,
            exception_place=place,
            exception_cost=cost,
        )
        return cls(columns, names, whole, weight, costs.weight is not None, _pinned(columns, costs))

    @property
    def task_class(self) -> Int64Array:
        """(T,) row of each task."""
        return self.whole.costs.row

    def left(self, free: Int64Array) -> PlacesProblem:
        """The flow model of the free tasks, within the capacities that pinned tasks leave, without weights."""
        whole, fixed = self.whole, np.flatnonzero(self.pinned != NOBODY)
        taken = sums(self.pinned[fixed], self.weight[fixed], len(whole.upper))
        forbidden = whole.place_costs(self.task_class[fixed], self.pinned[fixed]) == FORBIDDEN
        if forbidden.any():
            task = int(fixed[np.flatnonzero(forbidden)[0]])
            raise CostModelException(
                f"Task {self._name(task)} is pinned to client {self._client(int(self.pinned[task]))}, where its class "
                f"{int(self.names[self.task_class[task]])} must not run."
            )
        over = np.flatnonzero(taken > whole.upper)
        if len(over):
            client = int(over[0])
            raise CostModelException(
                f"The tasks pinned to client {self._client(client)} need {int(taken[client])}, but its capacity is "
                f"{int(whole.upper[client])}."
            )
        return attrs.evolve(
            whole,
            costs=attrs.evolve(whole.costs, row=self.task_class[free]),
            item_place=whole.item_place[free],
            lower=np.maximum(whole.lower - taken, 0),
            upper=whole.upper - taken,
        )

    def place(self, free: Int64Array) -> Placed:
        """Clients of the tasks, and what they cost at least."""
        problem, weight = self.left(free), self.weight[free]
        self._check_sums(problem, sum(weight.tolist()) if self.weighted else len(free))
        if self.weighted and not len(free):
            return Placed(free, 0, is_best=False)
        try:
            if not self.weighted:
                return min_cost_places(problem)
            rounded, bound = relaxed(problem, weight)
        except InfeasibleFlowError:
            raise self._explained(attrs.evolve(problem, item_weight=weight), free) from None
        except FlowError as error:
            raise CostModelException(str(error)) from error
        found = place_weights(problem, rounded, weight)
        if isinstance(found, Overload):
            verb = "exists" if found.is_proven else "was found"
            raise CostModelException(
                f"No placement of the weights within the capacities {verb}: client {self._client(found.client)} would "
                f"get {found.load}, but must get from {int(problem.lower[found.client])} to "
                f"{int(problem.upper[found.client])}. Maybe leave more room between capacities."
            )
        return Placed(found, bound, is_best=False)

    def _check_sums(self, problem: PlacesProblem, total: int) -> None:
        what = "weight of the tasks" if self.weighted else "number of tasks"
        upper, lower = sum(problem.upper.tolist()), sum(problem.lower.tolist())
        if upper < total:
            raise CostModelException(
                f"The capacities of the {len(problem.upper)} clients leave room for {upper}, but the {what} to place is {total}. "
                "Maybe raise the upper capacities."
            )
        if lower > total:
            raise CostModelException(
                f"The clients must get at least {lower}, but the {what} to place is {total}. "
                "Maybe lower the lower capacities."
            )

    def _explained(self, problem: PlacesProblem, free: Int64Array) -> CostModelException:
        """What does not fit: the same tasks with one more place that costs 1, where all else is free of charge."""
        unknown = CostModelException("The capacities and exceptions leave no room for all tasks.")
        rows, clients = len(problem.costs), len(problem.upper)
        never = problem.exception_cost == FORBIDDEN
        relaxed = PlacesProblem(
            costs=RowCosts.of_table(problem.costs.row, np.tile([0, 1], (rows, 1))),
            item_place=problem.item_place,
            item_weight=problem.item_weight,
            move_cost=np.zeros(rows, dtype=np.int64),
            place_cell=np.repeat([0, 1], [clients, 1]),
            lower=np.zeros(clients + 1, dtype=np.int64),
            upper=np.append(problem.upper, 2**62),
            exception_row=problem.exception_row[never],
            exception_place=problem.exception_place[never],
            exception_cost=problem.exception_cost[never],
        )
        try:
            # With all the room there is; then with no more than must be used.
            place, filling = (
                min_cost_places(attrs.evolve(relaxed, upper=np.append(upper, 2**62))).place
                for upper in (problem.upper, problem.lower)
            )
        except FlowError:
            return unknown
        outside = free[place == clients]
        if len(outside):
            number = int(self.task_class[outside[0]])
            is_allowed = np.ones(clients, dtype=np.bool_)
            is_allowed[problem.exception_place[never & (problem.exception_row == number)]] = False
            allowed = np.flatnonzero(is_allowed)
            return CostModelException(
                f"{len(outside)} tasks do not fit, {int((self.task_class[outside] == number).sum())} of them of class "
                f"{int(self.names[number])} (such as {self._name(int(outside[0]))}): the {len(allowed)} clients where that class may run have room for "
                f"{sum(problem.upper[allowed].tolist())} in all. Maybe raise their capacities, or forbid fewer clients."
            )
        got = sums(filling[filling >= 0], self.weight[free][filling >= 0], clients + 1)
        short = np.flatnonzero(got[:-1] < problem.lower)
        if not len(short):
            return unknown
        client = int(short[0])
        what = "is weight" if self.weighted else "are tasks"
        return CostModelException(
            f"The lower capacities cannot all be met: client {self._client(client)} must get {int(problem.lower[client])}, but "
            f"there {what} for {int(got[client])} only that may run there and that no other client needs. Maybe lower it, "
            "or forbid fewer clients."
        )

    def _name(self, task: int) -> str:
        return str(self.columns.tasks.task_id(task))

    def _client(self, client: int) -> str:
        return str(self.columns.clients.process_ids[client])


def _shape(name: str, values: npt.NDArray[np.int64], expected: tuple[int, ...]) -> None:
    if values.shape != expected:
        raise CostModelException(f"The {name} must have the shape {expected}, but has {values.shape}.")


def _filled(name: str, values: Int64Array | None, shape: tuple[int, ...]) -> Int64Array:
    if values is None:
        return np.zeros(shape, dtype=np.int64)
    _shape(f"{name} costs", values, shape)
    return values


def _costs_in_racks(task_class: Int64Array, rack: Int64Array, cell: Int64Array) -> RowCosts:
    """What classes cost in the racks, and last without one, of which only those with clients matter."""
    used = distinct(cell)
    # Without a copy, if all racks are used: there may be millions of rows.
    table = rack[:, : len(used)] if int(used.max(initial=-1)) == len(used) - 1 else rack[:, used]
    costs = RowCosts.of_table(task_class, table)
    return attrs.evolve(costs, entry_cell=used[costs.entry_cell], cells=rack.shape[1])


def _capacities(columns: StateColumns, costs: PlacementCosts, weight: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Given, or the thread-weighted shares."""
    threads = columns.clients.num_processing_threads.tolist()
    total, all_threads = sum(weight.tolist()), max(sum(threads), 1)
    spare = 0 if costs.weight is None else int(weight.max(initial=0))
    floor = [total * each // all_threads for each in threads] if costs.weight is None else [0] * len(threads)
    ceil = [-(-total * each // all_threads) + spare for each in threads]
    lower = np.array(floor, dtype=np.int64) if costs.lower is None else costs.lower
    upper = np.array(ceil, dtype=np.int64) if costs.upper is None else costs.upper
    for name, values in (("lower", lower), ("upper", upper)):
        _shape(f"{name} capacities", values, (len(threads),))
    if costs.lower is None:
        lower = np.minimum(lower, upper)
    elif costs.upper is None:
        upper = np.maximum(lower, upper)
    wrong = np.flatnonzero(lower > upper)
    if len(wrong):
        client = int(wrong[0])
        raise CostModelException(
            f"The lower capacity ({int(lower[client])}) of client {columns.clients.process_ids[client]} must not be above its "
            f"upper one ({int(upper[client])})."
        )
    return lower, upper


def _exception_columns(
    columns: StateColumns, costs: PlacementCosts, names: Int64Array, *, are_all_classes: bool
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The exceptions of classes that may have tasks; where no cost says how many classes there are, any number is one."""
    rows: dict[tuple[int, int], int] = {}
    classes = int(names.max(initial=-1)) + 1
    for each in costs.exceptions:
        is_id = isinstance(each.process_id, ProcessId)
        client = columns.clients.find(each.process_id) if is_id else -1
        if client < 0:
            name = each.process_id if is_id else shown(each.process_id)
            raise CostModelException(f"There is an exception for client {name}, but no such client.")
        if type(each.task_class) is not int or each.task_class < 0 or (are_all_classes and each.task_class >= classes):
            raise CostModelException(
                f"There is an exception for class {shown(each.task_class)}, but the classes are 0 to {classes - 1}."
            )
        if (each.task_class, client) in rows:
            raise CostModelException(
                f"There are two exceptions for class {each.task_class} on client {each.process_id}."
            )
        rows[each.task_class, client] = FORBIDDEN if each.cost is None else each.cost
    with_tasks = [(*pair, cost) for pair, cost in sorted(rows.items()) if pair[0] < classes]
    table = np.array(with_tasks, dtype=np.int64).reshape(-1, 3)
    number = rows_of(names, table[:, 0])
    there = number >= 0
    return number[there], table[there, 1], table[there, 2]


def _pinned(columns: StateColumns, costs: PlacementCosts) -> Int64Array:
    pinned = np.full(len(columns.tasks), NOBODY, dtype=np.int64)
    for task_id, process_id in costs.pinned.items():
        task, client = columns.tasks.find(task_id), columns.clients.find(process_id)
        if task < 0:
            raise CostModelException(f"Task {task_id} is pinned to client {process_id}, but there is no such task.")
        if client < 0:
            raise CostModelException(f"Task {task_id} is pinned to client {process_id}, but there is no such client.")
        pinned[task] = client
    return pinned
