"""Which conversions a choice of variants needs."""

from __future__ import annotations

from collections.abc import Callable

from sartor.codegen.routines import routines_for
from sartor.codegen.target import Target
from sartor.dialect_passes.annotate import annotate
from sartor.front_job import Front
from sartor.tuning.adapts import adapts_between

FrontOf = Callable[[str], Front]


def test_chosen_layouts_are_adapted_at_both_ends(front_of: FrontOf) -> None:
    graph = front_of("residual").graph
    variants = annotate(graph, routines_for(()), Target.create("cpu")).variants
    by_layout = {
        layer.name: next(each for each in variants[layer.task.key] if each.implementation.output.layout == "nhwc")
        for layer in graph.layers
    }
    found = [
        (str(edge), kind.source.layout, kind.target.layout) for edge, kind in adapts_between(graph, by_layout, "cpu")
    ]
    assert [each[1:] for each in found] == [("nchw", "nhwc"), ("nchw", "nhwc"), ("nhwc", "nchw")]
    assert "output:y" in found[-1][0]
