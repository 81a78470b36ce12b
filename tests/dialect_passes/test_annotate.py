"""What the candidates of a network are, and why others are none."""

from __future__ import annotations

from collections.abc import Callable

from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.dialect_passes.annotate import annotate, annotated_module
from sartor.frontend.imported_model import ImportedModel


def test_rejections_and_candidates_can_be_read(imported_of: Callable[[str], ImportedModel]) -> None:
    graph = imported_of("shuffle").graph
    candidates = annotate(graph, routines_for(()), Target.create("cpu"))
    assert all(each.reason for each in candidates.rejections)
    assert all(listed[0].descriptor.endswith(".stock") for listed in candidates.variants.values())
    text = annotated_module(graph, candidates)
    assert text.count("sartor.candidates") == len(graph.layers)
