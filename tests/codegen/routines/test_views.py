"""Layers that move nothing where an image has its channels last: which are taken, and that they give what others do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Variant, variants_of
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.iree.view import View
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node

_TARGET = Target.create("cpu")
_ROUTINES = (
    Stock(),
    View("from", reads=True),
    View("to", writes=True),
    View("between", reads=True, writes=True),
)
# Shapes of what is read and of the result, the permutation, and the routines that take it.
_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], set[str]]] = {
    "head": ((2, 18, 5, 7), (2, 105, 6), (0, 2, 3, 1), {"from"}),
    "last": ((1, 18, 5, 7), (1, 5, 7, 18), (0, 2, 3, 1), {"from"}),
    "first": ((2, 5, 7, 3), (2, 3, 5, 7), (0, 3, 1, 2), {"to"}),
    "line": ((1, 12, 1, 9), (9, 1, 12), (3, 0, 2, 1), {"from"}),
    "split": ((1, 12, 4, 6), (1, 3, 8, 12), (0, 2, 3, 1), {"from"}),
    "point": ((1, 1, 1, 1), (), (0, 2, 3, 1), set()),
    "turned": ((1, 6, 4, 5), (1, 5, 4, 6), (0, 3, 2, 1), set()),
    "rows_first": ((2, 6, 4, 5), (8, 30), (0, 2, 1, 3), set()),
    "batch_last": ((2, 6, 4, 5), (4, 5, 2, 6), (2, 3, 0, 1), set()),
    "uneven": ((1, 6, 4, 5), (1, 3, 40), (0, 1, 3, 2), set()),
}


def _model(name: str) -> ModelProto:
    before, after, order, _ = _CASES[name]
    nodes = [node("Transpose", ["x"], ["t"], perm=list(order)), node("Reshape", ["t", "shape"], ["y"])]
    return model(nodes, [("x", before, FLOAT)], [("y", after, FLOAT)], {"shape": ints(*after)})


@pytest.mark.parametrize("name", _CASES)
def test_a_view_is_taken_where_the_bytes_are_the_same_and_gives_what_moving_does(name: str) -> None:
    (found,) = layers({name: partial(_model, name)})
    layer, weights = found
    answers = {routine.name: list(variants_of(routine, layer.task, _TARGET)) for routine in _ROUTINES}
    codes = {name: each.implementation for name, (each,) in answers.items() if isinstance(each, Variant)}
    assert set(codes) == {"stock", *_CASES[name][-1]}
    assert all(isinstance(each, Rejected | Variant) for listed in answers.values() for each in listed)
    subject = Subject(layer, weights, codes)
    program = load({"net": subject}, _TARGET)
    inputs = subject.inputs()
    expected = run(program, subject, "stock", inputs)
    for other in set(codes) - {"stock"}:
        np.testing.assert_array_equal(run(program, subject, other, inputs), expected)


def test_what_computes_or_repeats_is_no_view() -> None:
    negated = [node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]), node("Neg", ["t"], ["y"])]
    repeated = [node("Expand", ["x", "shape"], ["y"])]
    built = {
        "negated": partial(model, negated, [("x", (1, 6, 4, 5), FLOAT)], [("y", (1, 4, 5, 6), FLOAT)]),
        "repeated": partial(
            model, repeated, [("x", (1, 1, 4, 5), FLOAT)], [("y", (1, 6, 4, 5), FLOAT)], {"shape": ints(1, 6, 4, 5)}
        ),
    }
    for layer, _ in layers(built):
        for routine in _ROUTINES[1:]:
            assert all(isinstance(variant, Rejected) for variant in variants_of(routine, layer.task, _TARGET))
