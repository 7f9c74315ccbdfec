"""Whatever a topology is made of and however it is run, its outputs are those of a plain computation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from task_assignor.runtime import SubTopology
from tests.budget import requested_examples
from tests.runtime import random_topologies
from tests.runtime.plain_streams import Expected, Step
from tests.runtime.random_operators import KINDS, RandomTopology
from tests.runtime.random_topologies import check, drawn_of, expected_of

SEEDS = (2, 66, 638)
SMALL = 168
LONG = min(requested_examples() or 200, 200)


@pytest.mark.parametrize("seed", SEEDS)
def test_outputs_are_those_of_a_plain_computation(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path)


def test_these_seeds_have_all_operators() -> None:
    """Those with outputs have rows there, records are bad as well as late; topics grow and gain columns, and letters go elsewhere."""
    kinds, reasons = set[str](), set[str]()
    for stages in map(drawn_of, SEEDS):
        expected = expected_of(stages)
        reasons |= {row["reason"] for one in expected.values() for row in one.rows if "reason" in row}
        for step in stages[-1].steps:
            outputs = step.declared.outputs if isinstance(step.declared, SubTopology) else ()
            if not outputs or outputs[0].name not in expected or expected[outputs[0].name].rows:
                kinds.add(step.kind)
        assert any({*topic.stages} == {0, 1} for topic in stages[-1].topics.values())
        assert any(topic.gained for topic in stages[-1].topics.values())
        before, after = ([output_names(step) for step in drawn.steps] for drawn in stages)
        assert before != after
    assert kinds == KINDS
    assert reasons == {"bad", "late"}


def output_names(step: Step) -> list[str]:
    return [output.name for output in getattr(step.declared, "outputs", ())]


def test_a_difference_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way, with the rows and the topology."""

    def wrong(stages: Sequence[RandomTopology]) -> dict[str, Expected]:
        expected = expected_of(stages)
        expected["out-n0"].rows[0]["id"] = -1
        return expected

    monkeypatch.setattr(random_topologies, "expected_of", wrong)
    with pytest.raises(AssertionError, match="at_once, output out-n0: 1 rows missing") as told:
        check(SMALL, tmp_path)
    for said in ("with_trouble, output out-n0: 1 rows missing", "output out-n0: 1 rows extra", "'id': -1", "-> out-n0"):
        assert said in str(told.value)
    assert "all-f-n1" not in str(told.value).split("the topology:")[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(LONG))
def test_outputs_are_those_of_a_plain_computation_whatever_the_seed(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path)
