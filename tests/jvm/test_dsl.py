"""The ready-made processors beside the DSL of Kafka Streams 4.3.1: the same records, and what each of both gives.

Where they differ on purpose, a rule says so, named like its heading in docs/deviations.md: from our result, or from what was asked,
it makes what Kafka gives, exactly. `tests/runtime/test_beside_the_dsl.py` has an example of each.

`make test` asks for some scenarios of each operator, `make test-jvm-long` for thousands with other seeds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import pytest

from task_assignor.runtime.arrow.merging import crossings, times_so_far
from tests.budget import examples, requested_examples
from tests.jvm.dsl import Out, Place, Row, Scenario, Step, kafka, ours, random_scenario
from tests.jvm.jvm import Jvm
from tests.runtime.test_beside_the_dsl import EXAMPLES, Example, shown
from tests.runtime.test_merging import by_heads

pytestmark = pytest.mark.jvm
# The usual run is the same everywhere; a long run has a seed of its own, which every failure names.
SEED = random.SystemRandom().randrange(2**32) if requested_examples() else 1
LATER: Final = 1_000
"""A record so much after all others closes all windows."""


def _scenarios(operator: str, count: int) -> Iterator[tuple[Scenario, random.Random]]:
    for number in range(examples(count)):
        scenario = random_scenario(operator, f"{SEED}/{operator}/{number}")
        yield scenario, random.Random(f"batches of {scenario.name}")


def _all(steps: Iterable[Step]) -> list[Out]:
    return [out for step in steps for out in step.out]


def _by_batch(mine: Sequence[Step], theirs: Sequence[Step]) -> Iterator[tuple[list[Out], list[Out]]]:
    """What came out of each of our batches, and of the same records in Kafka."""
    begin = 0
    for step in mine:
        yield step.out, _all(theirs[begin : step.upto + 1])
        begin = step.upto + 1
    assert not _all(theirs[begin:])


def _order(jvm: Jvm, sources: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """In which order a task of Kafka's takes records that are all there: source and offset."""
    places = [(number, offset) for number, times in enumerate(sources) for offset in range(len(times))]
    records = [[f"t{place[0]}", None, number, sources[place[0]][place[1]]] for number, place in enumerate(places)]
    answer = jvm.ask_json({"dsl": "order", "atOnce": True, "records": records})
    assert answer.exception is None, answer
    return [places[int(row[5])] for row in answer.value["rows"]]


def test_the_order_of_records(jvm: Jvm) -> None:
    """`by_heads`, after which all else here is ordered, is that of Kafka's `PartitionGroup`; of equal times it has no order."""
    for number in range(examples(40)):
        rng = random.Random(f"{SEED}/{number}")
        count = rng.randint(2, 4)
        # No two sources have equal times.
        times = [[count * rng.randint(0, 12) + source for _ in range(rng.randint(1, 12))] for source in range(count)]
        assert _order(jvm, times) == by_heads([list(one) for one in times]), times
    assert _order(jvm, [[5, 5], [5, 5], [5, 5]]) == [(0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (1, 1)]


def test_schedules(jvm: Jvm) -> None:
    """Stream time calls after the same records, with the same time."""
    for number in range(examples(40)):
        rng = random.Random(f"{SEED}/{number}")
        interval, now, times = rng.choice([1, 3, 10, 100]), rng.choice([0, 7, 1_000]), []
        for _ in range(rng.randint(1, 20)):
            now += rng.choice([0, 1, 2, 5, 40])
            times.append(max(now - rng.choice([0, 0, 3, 20]), 0))
        question = {"dsl": "schedule", "interval": interval, "records": [["s", "a", 1, time] for time in times]}
        answer = jvm.ask_json(question)
        assert answer.exception is None, answer
        newest = times_so_far(np.array(times))
        calls = [count - 1 for (count,) in crossings([newest], None, interval)]
        assert [[row, int(newest[row])] for row in calls] == answer.value["rows"], question


def test_a_stream_and_a_table(jvm: Jvm) -> None:
    """Equal row by row, also after records out of order: of each key the last offset counts."""
    for scenario, rng in _scenarios("lookup", 40):
        mine, _ = ours(scenario, rng)
        for one, other in _by_batch(mine, kafka(jvm, scenario)):
            assert one == other, scenario


def test_two_tables(jvm: Jvm) -> None:
    """Equal row by row; there is one rule."""
    for scenario, rng in _scenarios("tables", 40):
        mine, _ = ours(scenario, rng)
        for one, other in _by_batch(mine, _a_deletion_of_what_is_not_there_is_no_row(kafka(jvm, scenario))):
            assert one == other, scenario


def _a_deletion_of_what_is_not_there_is_no_row(theirs: Iterable[Step]) -> list[Step]:
    there: set[str | None] = set()
    found = []
    for step in theirs:
        found.append(Step(step.upto, [out for out in step.out if out.value is not None or out.key in there]))
        for out in step.out:
            (there.discard if out.value is None else there.add)(out.key)
    return found


def test_groups_of_a_table(jvm: Jvm) -> None:
    """After each batch of ours each group has what Kafka has told of it last; there is one rule."""
    for scenario, rng in _scenarios("groups", 40):
        mine, _ = ours(scenario, rng)
        there: set[str | None] = set()
        for one, other in _by_batch(mine, kafka(jvm, scenario)):
            found = {out[:2]: out for out in one}
            assert found == _a_group_of_a_table_that_has_no_row_left_is_gone({out[:2]: out for out in other}, there), (
                scenario
            )


def _a_group_of_a_table_that_has_no_row_left_is_gone(
    theirs: Mapping[tuple[str, str | None], Out], there: set[str | None]
) -> dict[tuple[str, str | None], Out]:
    """What Kafka has told of groups last; `there` are those that have been told with rows."""
    gone = {key for (what, key), out in theirs.items() if what == "count" and out.value == "0"}
    unseen = gone - there
    there |= {key for _, key in theirs} - gone
    there -= gone
    return {
        place: out._replace(value=None) if out.key in gone else out
        for place, out in theirs.items()
        if out.key not in unseen
    }


def test_running_aggregates(jvm: Jvm) -> None:
    """After each batch of ours each group has what Kafka has told of it last."""
    for scenario, rng in _scenarios("running", 40):
        mine, _ = ours(scenario, rng)
        for one, other in _by_batch(mine, kafka(jvm, scenario)):
            assert {out[:2]: out for out in one} == {out[:2]: out for out in other}, scenario
            assert len({out[:2] for out in one}) == len(one), scenario


def test_time_windows(jvm: Jvm) -> None:
    """Equal batch by batch, by `suppress` and by `EmitStrategy.onWindowClose`, with late records too."""
    for scenario, rng in _scenarios("windows", 60):
        mine, _ = ours(scenario, rng)
        for one, other in _by_batch(mine, kafka(jvm, scenario)):
            assert Counter(_windows_begin_before_1970_too(one)) == Counter(other), scenario


@pytest.mark.thorough
def test_sliding_windows(jvm: Jvm) -> None:
    """Equal batch by batch to `EmitStrategy.onWindowClose`; `suppress` follows a rule."""
    for drawn, rng in _scenarios("sliding", 60):
        scenario = _without_late(drawn, rng)
        mine, late = ours(scenario, rng)
        assert not late
        theirs = kafka(jvm, scenario)
        if scenario.options["final"] == "close":
            for one, other in _by_batch(mine, theirs):
                assert Counter(one) == Counter(other), scenario
        else:
            expected = _suppressed_a_millisecond_earlier(scenario, _all(mine))
            assert expected == _suppressed_a_millisecond_earlier(scenario, _all(theirs)), scenario


def _suppressed_a_millisecond_earlier(scenario: Scenario, found: Iterable[Out]) -> dict[tuple[object, ...], Out]:
    """Of windows those that are closed in both ways, and to which nothing came in the millisecond between; Kafka gives some twice."""
    grace, now, changed = scenario.options["grace"], -LATER, set()
    for row in scenario.logs["s"]:
        if row.time + grace == now:
            changed.add((row.key, row.time))
        now = max(now, row.time)
    return {
        out[:3]: out
        for out in found
        if out.window and out.window[1] + grace < now and (out.key, out.window[1]) not in changed
    }


def _without_late(scenario: Scenario, rng: random.Random) -> Scenario:
    _, late = ours(scenario, rng)
    logs = {
        topic: [row for offset, row in enumerate(rows) if Place(topic, offset) not in late]
        for topic, rows in scenario.logs.items()
    }
    return attrs.evolve(scenario, logs=logs, first={})


def test_a_late_record_is_in_sliding_windows_that_are_open(jvm: Jvm) -> None:
    """In Kafka in those alone that an earlier record has made, or in later ones of which it is no part; nothing differs before it."""
    differ = 0
    for drawn, rng in _scenarios("sliding", 40):
        scenario = attrs.evolve(drawn, options={**drawn.options, "final": "close"})
        mine, late = ours(scenario, rng)
        one, other = Counter(_all(mine)), Counter(_all(kafka(jvm, scenario)))
        rows = [scenario.row(place) for place in late]
        for out in (one - other) + (other - one):
            assert out.window is not None
            assert any(row.key == out.key and row.time <= out.window[1] for row in rows), scenario
            differ += 1
        assert {out[:3] for out in other} <= {out[:3] for out in one}, scenario
    assert differ


@pytest.mark.thorough
def test_windows_over_a_join_with_a_table(jvm: Jvm) -> None:
    """A chain of two operators, equal batch by batch."""
    for scenario, rng in _scenarios("chain", 60):
        mine, _ = ours(scenario, rng)
        for one, other in _by_batch(mine, kafka(jvm, scenario)):
            assert Counter(_windows_begin_before_1970_too(one)) == Counter(other), scenario


def _windows_begin_before_1970_too(mine: Iterable[Out]) -> list[Out]:
    return [out for out in mine if out.window is not None and out.window[0] >= 0]


def test_sessions(jvm: Jvm) -> None:
    """Equal batch by batch to `EmitStrategy.onWindowClose`; `suppress` follows a rule."""
    for scenario, rng in _scenarios("sessions", 60):
        mine, late = ours(scenario, rng)
        theirs = kafka(jvm, scenario, late)
        if scenario.options["final"] == "close":
            for one, other in _by_batch(mine, theirs):
                assert Counter(one) == Counter(other), scenario
        else:
            assert Counter(_counts(mine)) == Counter(_sessions(scenario, late, 1)), scenario
            assert Counter(_counts(theirs)) == Counter(_sessions(scenario, late, 0)), scenario


def _counts(steps: Iterable[Step]) -> list[Out]:
    return [out for out in _all(steps) if out.what == "count"]


def _sessions(scenario: Scenario, late: Collection[Place], longer: int) -> list[Out]:
    """A session is open one millisecond longer: the sessions that are closed.

    Args:
        scenario: what is asked.
        late: records that are left out.
        longer: how much longer than in Kafka a session is open, ms.
    """
    gap, grace = scenario.options["gap"], scenario.options["grace"]
    found: list[tuple[str, int, int, int]] = []
    newest = -LATER
    for place in scenario.order():
        key, _, time = scenario.row(place)
        if key is not None and place not in late:
            near = [
                one
                for one in found
                if one[0] == key and one[1] - gap <= time <= one[2] + gap and one[2] + gap + grace + longer > newest
            ]
            found = [one for one in found if one not in near]
            start, end = min([time, *(one[1] for one in near)]), max([time, *(one[2] for one in near)])
            found.append((key, start, end, 1 + sum(one[3] for one in near)))
        newest = max(newest, time)
    return [
        Out("count", key, (start, end), str(count), end)
        for key, start, end, count in found
        if end + gap + grace + longer <= newest
    ]


def test_two_streams(jvm: Jvm) -> None:
    """The same pairs, batch by batch; the same rows without a partner once all windows are closed, in Kafka never earlier."""
    for drawn, rng in _scenarios("streams", 100):
        scenario = _closed_at_the_end(drawn, rng)
        mine, late = ours(scenario, rng)
        theirs = kafka(jvm, scenario, late)
        join = _Join(scenario, late)
        expected = join.in_kafka(_all(mine))
        assert Counter(expected) == Counter(_all(theirs)), scenario
        so_far: Counter[Out] = Counter()
        for one, other in _by_batch(mine, theirs):
            assert Counter(join.pairs(one)) == Counter(filter(_is_pair, other)), scenario
            so_far.update(out for out in one if not _is_pair(out))
            so_far.subtract(out for out in other if not _is_pair(out) and out not in join.hasty)
            assert min(so_far.values(), default=0) >= 0, scenario


def _is_pair(out: Out) -> bool:
    return out.value is not None and "null" not in out.value


def _closed_at_the_end(scenario: Scenario, rng: random.Random) -> Scenario:
    """With one record more, which closes all windows before it."""
    log = rng.choice(list(scenario.logs))
    last = max((row.time for rows in scenario.logs.values() for row in rows), default=0)
    return attrs.evolve(scenario, logs={**scenario.logs, log: [*scenario.logs[log], Row("end", 0, last + LATER)]})


@attrs.frozen
class _Side:
    """A row of a join, as its result has it."""

    topic: str
    key: str | None
    value: str

    @property
    def alone(self) -> str:
        """What the result has if there is no partner."""
        return f"{self.value} null" if self.topic == "l" else f"null {self.value}"


def _sides(out: Out) -> list[_Side]:
    assert out.value is not None
    found = zip("lr", out.value.split(" "), strict=True)
    return [_Side(topic, out.key, value) for topic, value in found if value != "null"]


class _Join:
    """From our result of a join of two streams to Kafka's.

    Args:
        scenario: what is asked.
        late: records that are left out.
    """

    def __init__(self, scenario: Scenario, late: Collection[Place]) -> None:
        self._asked = scenario.options
        self._came: dict[_Side, int] = {}
        self._time: dict[_Side, int] = {}
        self._newest: list[dict[str, int]] = []
        """Of each topic the newest time up to each record, without those that have no key."""
        newest, latest, passed = dict.fromkeys("lr", -LATER), -LATER, []
        for place in scenario.order():
            if place in late:
                continue
            row = scenario.row(place)
            latest = max(latest, row.time)
            if row.key is not None:
                newest[place.topic] = max(newest[place.topic], row.time)
                side = _Side(place.topic, row.key, str(scenario.given(place)[1]))
                self._came[side], self._time[side] = len(self._newest), row.time
                if row.time + self._asked["after" if place.topic == "l" else "before"] < latest:
                    passed.append(side)
            self._newest.append(dict(newest))
        self._passed = passed
        """Rows that come when their window has passed, whatever the grace is."""
        self.hasty: set[Out] = set()
        """Rows that Kafka gives without a partner earlier than we do, or when they have one."""

    def pairs(self, mine: Iterable[Out]) -> list[Out]:
        """Those of ours that Kafka gives."""
        return [out for out in mine if _is_pair(out) and self._a_pair_at_the_edge_is_a_pair(out)]

    def in_kafka(self, mine: Iterable[Out]) -> list[Out]:
        """What it gives when all windows are closed."""
        mine = list(mine)
        pairs = self.pairs(mine)
        alone = {out for out in mine if not _is_pair(out)}
        partners: dict[_Side, int] = {}
        for out in pairs:
            one, other = _sides(out)
            both = max(self._came[one], self._came[other])
            for side in (one, other):
                partners[side] = min(both, partners.get(side, both))
        lost = {side for out in mine if _is_pair(out) for side in _sides(out) if side not in partners}
        self.hasty = self._given_alone(lost) | self._a_row_out_of_order_waits_for_its_partner(partners)
        return [*pairs, *(alone | self.hasty)]

    def _given_alone(self, sides: Iterable[_Side]) -> set[Out]:
        shown = {"inner": "", "left": "l", "outer": "lr"}[self._asked["how"]]
        return {Out("", side.key, None, side.alone, self._time[side]) for side in sides if side.topic in shown}

    def _a_pair_at_the_edge_is_a_pair(self, out: Out) -> bool:
        """Whether it is one in Kafka, which keeps rows for as long as both parts of the window and the grace."""
        first, second = sorted(_sides(out), key=self._came.__getitem__)
        kept: int = self._asked["before"] + self._asked["after"] + self._asked["grace"]
        return self._newest[self._came[second]][first.topic] < self._time[first] + kept

    def _a_row_out_of_order_waits_for_its_partner(self, partners: dict[_Side, int]) -> set[Out]:
        """What Kafka gives at once, since none has come before."""
        return self._given_alone(
            side for side in self._passed if side not in partners or partners[side] > self._came[side]
        )


@pytest.mark.parametrize("operator", ["streams", "sessions"])
def test_late_records_are_left_out(jvm: Jvm, operator: str) -> None:
    """Kafka takes some; what differs by that has one in it, or had no partner but a late one."""
    taken = 0
    for drawn, rng in _scenarios(operator, 20):
        scenario = attrs.evolve(_closed_at_the_end(drawn, rng), options={**drawn.options, "final": "close"})
        _, late = ours(scenario, rng)
        without, every = (Counter(_all(kafka(jvm, scenario, left_out))) for left_out in (late, ()))
        more, less = every - without, without - every
        taken += bool(more)
        if operator == "sessions":
            for out in more:
                assert any(_is_in(scenario.row(place), out) for place in late), scenario
            for out in less:
                assert any(_is_within(out, other) for other in more), scenario
        else:
            names = {_Side(one.topic, scenario.row(one).key, str(scenario.given(one)[1])) for one in late}
            for out in more:
                assert names.intersection(_sides(out)), scenario
            for out in less:
                assert any(_is_pair(other) and set(_sides(out)) < set(_sides(other)) for other in more), scenario
    assert taken > 0.1 * examples(20)


def _is_in(row: Row, out: Out) -> bool:
    assert out.window is not None
    return row.key == out.key and out.window[0] <= row.time <= out.window[1]


def _is_within(out: Out, other: Out) -> bool:
    assert out.window is not None
    assert other.window is not None
    return out.key == other.key and other.window[0] <= out.window[0] <= out.window[1] <= other.window[1]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.heading)
def test_each_difference_is_one(jvm: Jvm, example: Example) -> None:
    """What `tests/runtime/test_beside_the_dsl.py` says of Kafka."""
    assert shown(kafka(jvm, example.scenario, as_it_is=True)) == example.kafka


def test_over_windows_kafka_counts_a_row_without_values_too(jvm: Jvm) -> None:
    logs = {"s": [Row("a", None, 3), Row("a", 1, 4), Row("end", 0, 20)]}
    options = {"size": 10, "advance": 10, "grace": 0, "final": "suppress"}
    assert shown(kafka(jvm, Scenario("", "windows", options, logs), as_it_is=True)) == ["a 0..10 2"]
