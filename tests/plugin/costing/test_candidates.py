"""Which variants are candidates, by what a plan minimises or must keep to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.import_job import run_import
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.workers.protocol import WorkerError
from tests.codegen.routines.layer_cases import Cases

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
def test_filters_are_transformed_in_each_call_only_where_bytes_count(
    settings: dict[str, Any], offered: bool, tmp_path: Path
) -> None:
    cases = Cases()
    cases.convolution("conv", (1, 16, 20, 18), 32)
    path = tmp_path / "model.onnx"
    onnx.save(cases.model(), path)
    imported = run_import(path, {}, None, target=CONFIG.target)
    assert not isinstance(imported, WorkerError)
    policy = replace(CONFIG, **settings).planning
    found = find_candidates(imported, policy, everything=False).variants
    assert any(each.traits.transforms_filters for variants in found.values() for each in variants) == offered
    everything = find_candidates(imported, policy).variants
    assert any(each.traits.transforms_filters for variants in everything.values() for each in variants)
