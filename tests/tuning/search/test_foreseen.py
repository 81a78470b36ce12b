"""Which variants' code is written where nothing is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.search.cost_model import CostModel
from sartor.tuning.search.shipped.foreseen import Foreseen
from sartor.tuning.search.shipped.likeness import shipped_guide

TARGET = Target.create("cpu", "x86-64-v4")


@pytest.mark.parametrize("model", [None, shipped_guide("x86-64-v4", 1)], ids=["analytic", "learned"])
def test_of_each_routine_the_fastest_by_prediction_is_left(
    model: CostModel | None, imported_of: Callable[[str], ImportedModel]
) -> None:
    imported, policy = imported_of("residual"), CompileConfig(target=TARGET, threads=1).planning
    chosen = Foreseen(model, core_of(TARGET))
    whole = find_candidates(imported, policy, everything=False)
    narrow = find_candidates(imported, policy, everything=False, narrow=chosen)
    fewer = 0
    for case in tuned_cases(imported.graph, whole.variants):
        kept = {each.routine: each.descriptor for each in narrow.variants[case.key]}
        assert narrow.variants[case.key][0].descriptor == case.variants[0].descriptor
        fewer += len(case.variants) - len(kept)
        if model is None:
            continue
        for routine, name in kept.items():
            own = [each.described for each in case.variants if each.routine == routine]
            seconds = dict(zip((each.descriptor for each in own), model.seconds(case.facts, own), strict=True))
            assert name not in seconds or seconds[name] <= 1.001 * min(seconds.values())
    assert fewer > len(whole.variants)


def test_a_model_is_trained_once() -> None:
    assert shipped_guide("x86-64-v4", 1) is shipped_guide("x86-64-v4", 1)
    assert shipped_guide("no such machine", 1) is None
