"""`PlacementCosts`: what it costs to have which task where, in checked numbers. Nothing is solved here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from task_assignor.engine.flow import FlowError, whole_numbers
from task_assignor.sdk import ProcessId, StreamsException, TaskId
from task_assignor.sdk.columns import Int64Array
from task_assignor.sdk.integers import plain_int
from task_assignor.sdk.text import shown

MOST_EXCEPTIONS: Final = 1_000_000
LARGEST_COST: Final = 2**40
LARGEST_WEIGHT: Final = 2**40


class CostModelException(StreamsException, ValueError):
    """A cost model gave something that cannot be used, or leaves no room for all tasks; the message says what and which."""


@attrs.frozen
class ClientCost:
    """What tasks of one class cost on one client, in place of the costs of its rack and of the client.

    Args:
        task_class: number of the class.
        process_id: the client.
        cost: whole number from 0; None: tasks of the class must not run there.
    """

    task_class: int = attrs.field(converter=plain_int)
    process_id: ProcessId
    cost: int | None = attrs.field(converter=plain_int)


def _checked(name: str, values: npt.ArrayLike, low: int, high: int) -> Int64Array:
    try:
        return whole_numbers(name, values, low, high)
    except FlowError as error:
        raise CostModelException(str(error)) from None


def _class_numbers(values: npt.ArrayLike) -> Int64Array:
    return _checked("task classes", values, 0, 2**31)


def _rack_costs(values: npt.ArrayLike | None) -> Int64Array | None:
    if values is None:
        return None
    try:
        table = np.asarray(values)
    except ValueError:
        raise CostModelException(
            "The rack costs must be a table of classes and racks, all rows of one length."
        ) from None
    if table.ndim != 2:
        raise CostModelException(
            f"The rack costs must be a table of classes and racks, but their shape is {table.shape}."
        )
    return _checked("rack costs", table.reshape(-1), 0, LARGEST_COST).reshape(table.shape)


def _client_costs(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("client costs", values, 0, LARGEST_COST)


def _stay_costs(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("costs of staying", values, 0, LARGEST_COST)


def _move_costs(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("costs of moving", values, 0, LARGEST_COST)


def _owners(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("owners", values, -1, 2**31)


def _lower(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("lower capacities", values, 0, 2**62)


def _upper(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("upper capacities", values, 0, 2**62)


def _weights(values: npt.ArrayLike | None) -> Int64Array | None:
    return None if values is None else _checked("weights", values, 1, LARGEST_WEIGHT)


def _exceptions(values: Iterable[ClientCost]) -> tuple[ClientCost, ...]:
    if not isinstance(values, Iterable):
        raise CostModelException(f"The exceptions ({shown(values)}) must be a list of ClientCost.")
    exceptions = tuple(values)
    if len(exceptions) > MOST_EXCEPTIONS:
        raise CostModelException(
            f"There are {len(exceptions)} exceptions for pairs of class and client, more than {MOST_EXCEPTIONS}. "
            "Maybe use costs of racks or of clients, or classes of their own."
        )
    for each in exceptions:
        if not isinstance(each, ClientCost):
            raise CostModelException(f"An exception ({shown(each)}) must be a ClientCost.")
        if each.cost is not None and (type(each.cost) is not int or not 0 <= each.cost <= LARGEST_COST):
            raise CostModelException(
                f"The cost ({shown(each.cost)}) of class {each.task_class} on client {each.process_id} must be an int from 0 to "
                f"2^40, or None (must not run there)."
            )
    return exceptions


def _pinned(values: Mapping[TaskId, ProcessId]) -> Mapping[TaskId, ProcessId]:
    if not isinstance(values, Mapping):
        raise CostModelException(f"The pinned tasks ({shown(values)}) must be a mapping of TaskId to ProcessId.")
    for task, client in values.items():
        if not isinstance(task, TaskId) or not isinstance(client, ProcessId):
            raise CostModelException(
                f"The pinned tasks must be a mapping of TaskId to ProcessId, but one is {shown(task)}: {shown(client)}."
            )
    return dict(values)


@attrs.frozen(eq=False, kw_only=True)
class PlacementCosts:
    """What it costs to have which task where, how much fits, and what is fixed. Numbers are whole and at least 0.

    The cost of a task on a client is the rack's cost for its class + the client's cost, or the exception's cost if there is
    one; plus, for a task that a client owned, the class's staying cost there, or its moving cost anywhere else.

    Args:
        task_class: (T,) class of each task, by task number. Tasks of one class cost the same everywhere. Any numbers from 0 to
            2^31, if none of `rack`, `stay` and `move` is given; else those of their rows.
        rack: (K, R + 1) cost of a task of the class in the rack, by rack number of the state; the last column is for clients
            without rack. None: 0.
        client: (C,) cost of a task on the client, whatever its class. None: 0.
        stay: (K,) cost of a task that stays; at most `move`. None: 0.
        move: (K,) cost of a task that leaves its owner. None: 0.
        exceptions: costs of pairs of class and client that differ from that.
        owner: (T,) client that owns each task; -1: nobody. None: the previous active owner (newest generation first).
        lower: (C,) least number of tasks, or least weight, per client. None: floor of the client's thread-weighted share;
            with weights 0.
        upper: (C,) most of it. None: ceil of the share; with weights plus the largest weight, so that a placement exists.
        weight: (T,) weight of each task, at least 1. None: 1, and the result is a proven optimum.
        pinned: task -> client on which it must be.

    Raises:
        CostModelException: a number is of the wrong kind or out of range.
    """

    task_class: Int64Array = attrs.field(converter=_class_numbers)
    rack: Int64Array | None = attrs.field(default=None, converter=_rack_costs)
    client: Int64Array | None = attrs.field(default=None, converter=_client_costs)
    stay: Int64Array | None = attrs.field(default=None, converter=_stay_costs)
    move: Int64Array | None = attrs.field(default=None, converter=_move_costs)
    exceptions: tuple[ClientCost, ...] = attrs.field(default=(), converter=_exceptions)
    owner: Int64Array | None = attrs.field(default=None, converter=_owners)
    lower: Int64Array | None = attrs.field(default=None, converter=_lower)
    upper: Int64Array | None = attrs.field(default=None, converter=_upper)
    weight: Int64Array | None = attrs.field(default=None, converter=_weights)
    pinned: Mapping[TaskId, ProcessId] = attrs.field(factory=dict, converter=_pinned)
