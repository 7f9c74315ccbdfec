"""One operator over some records, twice: by a ready-made processor of ours, and by the DSL of Kafka Streams in the JVM.

What both give is told in the same words, `Out`. What they are given differs in two things, which docs/deviations.md tells of. A row of
a stream in which all is null is a row for us; for Kafka it would be no record, so it gets a number in its place (`stand_in`). And a
record without a key moves our time; so where time decides, Kafka gets it under a key of its own (`NO_KEY`), of which nothing is told.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs
import pyarrow as pa

from task_assignor.runtime import (
    Aggregate,
    Aggregation,
    DeadLetters,
    Forwarded,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamTableJoin,
    SubTopology,
    TableAggregation,
    TableChanges,
    TableJoin,
    TimeWindows,
    TopicSpec,
    WindowedAggregation,
    WindowedJoin,
)
from task_assignor.runtime.processors.windows import Windows
from tests.jvm.jvm import Jvm
from tests.runtime.memory_task import MemoryChain, MemoryTask
from tests.runtime.test_merging import by_heads

NO_KEY: Final = "?"
SCHEMA: Final = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])
SOURCES: Final = {
    "streams": ("l", "r"),
    "lookup": ("t", "s"),
    "tables": ("l", "r"),
    "running": ("s",),
    "groups": ("t",),
    "windows": ("s",),
    "sliding": ("s",),
    "sessions": ("s",),
    "chain": ("t", "s"),
}
"""Of each operator the topics, in the order in which they come at equal times."""


class Row(NamedTuple):
    """A record."""

    key: str | None
    value: int | None
    time: int


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    offset: int


class Out(NamedTuple):
    """What came out.

    Args:
        what: which of several aggregates; empty: a join.
        key: the key.
        window: of a window its start and its end.
        value: of a join both sides; None: the key is gone.
        time: the newest time of what it is made of; None: not compared.
    """

    what: str
    key: str | None
    window: tuple[int, int] | None
    value: str | None
    time: int | None


@attrs.frozen
class Scenario:
    """What is asked.

    Args:
        name: what it takes to have it again.
        operator: one of `SOURCES`.
        options: what it is told, ms.
        logs: of each topic its records.
        first: of each topic how many of them a first run finds there, before a second one finds all; empty: there is one run.
    """

    name: str
    operator: str
    options: Mapping[str, Any]
    logs: Mapping[str, Sequence[Row]]
    first: Mapping[str, int] = attrs.field(factory=dict)

    def order(self) -> list[Place]:
        """In which order the records come."""
        topics = SOURCES[self.operator]
        begins, order = dict.fromkeys(topics, 0), []
        for ends in (self.first, {}):
            parts = [self.logs[topic][begins[topic] : ends.get(topic)] for topic in topics]
            heads = by_heads([[row.time for row in rows] for rows in parts])
            order += [Place(topics[source], begins[topics[source]] + row) for source, row in heads]
            begins = {topic: begins[topic] + len(rows) for topic, rows in zip(topics, parts, strict=True)}
        return order

    def row(self, place: Place) -> Row:
        """The record there."""
        return self.logs[place.topic][place.offset]

    def given(self, place: Place) -> tuple[str | None, int | None]:
        """What Kafka gets as the key and the value of the record there."""
        row = self.row(place)
        is_table = self.operator == "tables" or place.topic == "t"
        value = stand_in(self.operator, row.time) if row.value is None and not is_table else row.value
        is_timed = self.operator in ("windows", "sliding", "sessions", "chain")
        return NO_KEY if row.key is None and is_timed else row.key, value


def stand_in(operator: str, time: int) -> int:
    """The number for a row without a value; of a join one that says which row it was."""
    return -1 - time if operator in ("streams", "lookup", "chain") else -1


class Step(NamedTuple):
    """What came out of the records from the one before up to this one, both counted from 0 in the order of all."""

    upto: int
    out: list[Out]


def kafka(jvm: Jvm, scenario: Scenario, without: Collection[Place] = (), *, as_it_is: bool = False) -> list[Step]:
    """What Kafka gives: a step for each record.

    Args:
        jvm: the JVM.
        scenario: what is asked.
        without: records that it does not get.
        as_it_is: it gets keys and values that are null.
    """
    order = scenario.order()
    given = [(number, place) for number, place in enumerate(order) if place not in without]
    records = [
        [place.topic, *(scenario.row(place)[:2] if as_it_is else scenario.given(place)), scenario.row(place).time]
        for _, place in given
    ]
    answer = jvm.ask_json({"dsl": scenario.operator, **scenario.options, "records": records})
    assert answer.exception is None, answer
    steps = [Step(number, []) for number in range(len(order))]
    for number, what, key, start, end, value, time in answer.value["rows"]:
        if key != NO_KEY:
            window = None if start is None else (start, end)
            steps[given[number][0]].out.append(_out(scenario, what, key, window, value, time))
    return steps


def ours(scenario: Scenario, rng: random.Random) -> tuple[list[Step], frozenset[Place]]:
    """What ours gives, with batches and restarts at random: a step for each batch; and which records were too late."""
    topics = SOURCES[scenario.operator]
    specs = {topic: TopicSpec(topic, 4, SCHEMA, ("k",), "at") for topic in topics}
    logs = {topic: _table(scenario.logs[topic]) for topic in topics}
    task = _task(scenario, specs)
    steps, most = [], rng.choice([2, 5, 12, 30])
    for there in ({topic: rows.slice(0, scenario.first.get(topic)) for topic, rows in logs.items()}, logs):
        while sum(task.read.values()) < sum(rows.num_rows for rows in there.values()):
            found = task.advance(there, {topic: rng.randint(1, most) for topic in topics})
            steps.append(Step(sum(task.read.values()) - 1, _told(scenario, found)))
            if rng.random() < 0.2:
                task.start()
    return steps, frozenset(Place(one["topic"], one["offset"]) for one in task.outputs.get("late", []))


def _table(rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table([pa.array(x, field.type) for x, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _longer(text: str, record: Any) -> str:
    return f"{text}{-1 if record['v'] is None else record['v']};"


_AGGREGATES: Final = {
    "count": Aggregate.count(),
    "values": Aggregate.count("v"),
    "sum": Aggregate.sum("v"),
    "newest": Aggregate.max("at"),
}
_FOLD: Final = {"fold": Aggregate.fold(_longer, "", pa.string())}


def _held(text: str, record: Any) -> str:
    """The values that a group has, in the order in which they came."""
    value = f"[{record['v']}]"
    return text + value if record["change"] > 0 else text.replace(value, "", 1)


_HELD: Final = {"held": Aggregate.fold(_held, "", pa.string())}
TOLD: Final = {
    "running": ("count", "sum", "fold"),
    "groups": ("count", "sum", "held"),
    "windows": ("count", "fold"),
    "sliding": ("count", "sum"),
    "sessions": ("count", "sum"),
    "chain": ("count", "fold"),
}
"""Of each aggregation what is compared."""


def _pair(text: str, record: Any) -> str:
    """The text of a join of both sides as Kafka's joiner makes it, with the values that it gets."""
    sides = (stand_in("lookup", record["at"]) if record["v"] is None else record["v"], record["v_right"])
    return text + " ".join("null" if side is None else str(side) for side in sides) + ";"


class _Groups(MemoryTask):
    """The rows of a table in groups by what is in them: the task of the table, and behind it that of the groups."""

    def __init__(self, spec: TopicSpec) -> None:
        wide = attrs.evolve(spec, schema=spec.schema.append(pa.field("g", pa.string())))
        changes = TableChanges(table="t", bad_records="skip")
        regrouped = changes.sub_topology("c", Repartitioned("moved", key="g", partitions=4), wide)
        moved = regrouped.spec_of("moved", wide)
        totals = TableAggregation(
            source="moved", aggregates={name: {**_AGGREGATES, **_HELD}[name] for name in TOLD["groups"]}
        )
        self._totals = MemoryTask(totals.sub_topology("a", "out", moved), {"moved": moved})
        super().__init__(regrouped, {"t": wide})

    def start(self) -> None:
        """As on other clients, both."""
        super().start()
        self._totals.start()

    def process(self, batch: Mapping[str, pa.Table]) -> pa.Table | None:
        """One batch of both; what the groups' has given."""
        groups = [None if value is None else f"g{value % 3}" for value in batch["t"].column("v").to_pylist()]
        made = super().process({"t": batch["t"].append_column("g", pa.array(groups, pa.string()))})
        return None if made is None else self._totals.process({"moved": made})


def _task(scenario: Scenario, specs: Mapping[str, TopicSpec]) -> MemoryTask:
    if scenario.operator == "groups":
        return _Groups(specs["t"])
    if scenario.operator != "chain":
        return MemoryTask(_sub_topology(scenario, specs), specs)
    asked = scenario.options
    join = StreamTableJoin(stream="s", table="t", how=asked["how"], table_columns="v", bad_records="skip")
    pairs = join.sub_topology("j", Forwarded("pairs"), specs.values())
    windows = WindowedAggregation(
        source="pairs",
        windows=TimeWindows(asked["size"], asked["advance"]),
        aggregates=_AGGREGATES | {"fold": Aggregate.fold(_pair, "", pa.string())},
        grace_ms=asked["grace"],
        bad_records="skip",
        late_records=DeadLetters("late"),
    )
    return MemoryChain(pairs, windows.sub_topology("a", "out", [pairs.spec_of("pairs", specs)]), specs)


def _sub_topology(scenario: Scenario, specs: Mapping[str, TopicSpec]) -> SubTopology:
    asked = scenario.options
    late = DeadLetters("late")
    match scenario.operator:
        case "streams":
            return WindowedJoin(
                left="l",
                right="r",
                how=asked["how"],
                before_ms=asked["before"],
                after_ms=asked["after"],
                left_grace_ms=asked["grace"],
                right_grace_ms=asked["grace"],
                late_records=late,
            ).sub_topology("j", "out")
        case "lookup":
            join = StreamTableJoin(stream="s", table="t", how=asked["how"], table_columns="v", bad_records="skip")
            return join.sub_topology("j", "out", specs.values())
        case "tables":
            tables = TableJoin(left="l", right="r", how=asked["how"], bad_records="skip")
            return tables.sub_topology("j", "out", specs.values())
        case "running":
            running = Aggregation(source="s", aggregates=_AGGREGATES | _FOLD, bad_records="skip")
            return running.sub_topology("a", "out", specs.values())
    windows: Windows
    match scenario.operator:
        case "sessions":
            windows = SessionWindows(asked["gap"])
        case "sliding":
            windows = SlidingWindows(asked["difference"])
        case _:
            windows = TimeWindows(asked["size"], asked["advance"])
    return WindowedAggregation(
        source="s",
        windows=windows,
        aggregates=_AGGREGATES | (_FOLD if isinstance(windows, TimeWindows) else {}),
        grace_ms=asked["grace"],
        bad_records="skip",
        late_records=late,
    ).sub_topology("a", "out", specs.values())


def _told(scenario: Scenario, rows: Sequence[Mapping[str, Any]]) -> list[Out]:
    """Our rows in the words of both."""
    told = []
    for row in rows:
        if scenario.operator not in TOLD:
            times = [row[at] for at in ("at", "at_right") if row.get(at) is not None]
            sides = [_side(scenario, row[value], row.get(at)) for value, at in (("v", "at"), ("v_right", "at_right"))]
            # A table whose values are all null has no such key.
            told.append(_out(scenario, "", row["k"], None, " ".join(sides) if times else None, max(times, default=0)))
            continue
        if scenario.operator == "groups":
            values = {what: None if row[what] is None else str(row[what]) for what in TOLD["groups"]}
            told += [_out(scenario, what, row["g"], None, value, 0) for what, value in values.items()]
            continue
        window = (row["window_start"], row["window_end"]) if "window_start" in row else None
        values = {**row, "sum": (row["sum"] or 0) + stand_in(scenario.operator, 0) * (row["count"] - row["values"])}
        told += [
            _out(scenario, what, row["k"], window, str(values[what]), row["newest"]) for what in TOLD[scenario.operator]
        ]
    return told


def _side(scenario: Scenario, value: int | None, at: int | None) -> str:
    """Of a join one side; "null": there is none."""
    found = stand_in(scenario.operator, at) if value is None and at is not None else value
    return "null" if found is None else str(found)


def _out(
    scenario: Scenario, what: str, key: str | None, window: tuple[int, int] | None, value: str | None, time: int
) -> Out:
    """Of tables a result has the times of its sides; that of a deletion is in none of them. A group has none."""
    is_timed = scenario.operator != "groups" and not (scenario.operator == "tables" and "null" in (value or ""))
    has_time = value is not None and is_timed
    return Out(what, key, window, value, time if has_time else None)


def random_scenario(operator: str, name: str) -> Scenario:
    """One of everything: records out of order and late, equal times, times near 1970, keys and values that are null.

    Args:
        operator: one of `SOURCES`.
        name: another one, another scenario.
    """
    rng = random.Random(name)
    grace = rng.choice([0, 0, 2, 5, 12])
    before, size = rng.randint(-3, 8), rng.randint(1, 12)
    options: dict[str, Any] = {"grace": grace}
    match operator:
        case "streams":
            after = rng.randint(-before, 8) if rng.random() < 0.3 else rng.randint(0, 8)
            options |= {"how": rng.choice(["inner", "left", "outer"]), "before": before, "after": max(after, -before)}
        case "lookup":
            options["how"] = rng.choice(["inner", "left"])
        case "tables":
            options["how"] = rng.choice(["inner", "left", "outer"])
        case "windows" | "chain":
            options["how"] = "left"
            options |= {"size": size, "advance": rng.randint(1, size), "final": rng.choice(["suppress", "close"])}
        case "sliding":
            # With a difference of 0 Kafka fails at the first record.
            options |= {"difference": rng.randint(1, 12), "final": rng.choice(["suppress", "close"])}
        case "sessions":
            options |= {"gap": rng.randint(0, 8), "final": rng.choice(["suppress", "close"])}
    keys = [*"abc", *rng.choice(([], [None]))]
    nulls = rng.choice([0, 0.2])
    # Windows of a join that begin or end before 1970, and sliding ones, are others in Kafka.
    start = rng.choice({"streams": [20, 100], "sliding": [100]}.get(operator, [0, 3, 100]))
    most = rng.choice([0, grace, grace + 4, grace + 30])
    numbers = iter(range(1, 1000))
    logs = {}
    for topic in SOURCES[operator]:
        now = start
        rows: list[Row] = []
        for _ in range(rng.randint(0, 25)):
            now += rng.choice([0, 0, 1, 2, 3, 7])
            time = max(now - rng.choice([0, rng.randint(0, most)]), start // 20 * 10)
            key, value = rng.choice(keys), next(numbers)
            # Of a join each row can be told from the others.
            is_new = operator != "streams" or all((key, time) != (row.key, row.time) for row in rows)
            rows.append(Row(key, None if is_new and rng.random() < nulls else value, time))
        logs[topic] = rows
    first = {topic: rng.randint(0, len(rows)) for topic, rows in logs.items()} if rng.random() < 0.3 else {}
    return Scenario(name, operator, options, logs, first)
