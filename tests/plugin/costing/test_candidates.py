"""Which variants are candidates, by what a plan minimises or must keep to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.tuning.selection.problem.cost import Objective
from tests.codegen.routines.layer_cases import Cases
from tests.importing import imported_model

CONFIG = CompileConfig(threads=1)


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        ({}, False),
        ({"objective": Objective.COLD}, True),
        ({"objective": Objective.COLD_LATENCY}, True),
        ({"objective": Objective.MEMORY}, True),
        ({"memory_limit": 1 << 30}, True),
    ],
)
def test_filters_are_transformed_in_each_call_only_where_bytes_count(settings: dict[str, Any], offered: bool) -> None:
    cases = Cases()
    cases.convolution("conv", (1, 16, 20, 18), 32)
    imported = imported_model(cases.model(), target=CONFIG.target)
    policy = replace(CONFIG, **settings).planning
    found = find_candidates(imported, policy, everything=False).variants
    assert any(variant.traits.transforms_filters for variants in found.values() for variant in variants) == offered
    everything = find_candidates(imported, policy).variants
    assert any(variant.traits.transforms_filters for variants in everything.values() for variant in variants)
