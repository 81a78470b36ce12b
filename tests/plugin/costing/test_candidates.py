"""What the candidates of a network are by what a plan minimises, and why others are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.annotate import annotated_module
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.selection.problem.cost import Objective
from tests.codegen.routines.layer_cases import Cases
from tests.importing import imported_model
from tests.tiny_models import Builder

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


def test_rejections_and_candidates_can_be_read(imported_of: Callable[[str], ImportedModel]) -> None:
    graph = imported_of("shuffle").graph
    candidates = list_candidates(graph, routines_for(()), Target.create("cpu"))
    assert all(rejection.reason for rejection in candidates.rejections)
    assert all(listed[0].descriptor.endswith(".stock") for listed in candidates.variants.values())
    text = annotated_module(graph, candidates)
    assert text.count("sartor.candidates") == len(graph.layers)


def test_layers_without_elements_are_left_to_stock_code(tmp_path: Path) -> None:
    b = Builder()
    b.op("Relu", "y", b.op("Conv", "conv", "x", b.weight(3, 0, 3, 3)))
    onnx.save(b.model([("x", (1, 0, 5, 5))], [("y", (1, 3, 3, 3))]), tmp_path / "net.onnx")
    imported = imported_model(tmp_path / "net.onnx", {"x": (1, 0, 5, 5)})
    found = list_candidates(imported.graph, routines_for(("bf16", "i8")), Target.create("cpu"))
    for listed in found.variants.values():
        assert [each.descriptor.endswith(".stock") for each in listed] == [True]
    assert {rejection.reason for rejection in found.rejections} == {"a tensor of it has no elements"}
