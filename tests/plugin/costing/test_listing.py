"""What the candidates of a network are, and why others are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.annotate import annotated_module
from sartor.frontend.imported_model import ImportedModel
from tests.importing import imported_model
from tests.tiny_models import Builder


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
