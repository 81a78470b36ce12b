"""A layer whose sums start from a tensor that an op behind them reads, too, as of a maximum with zeros."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.routines import ROUTINES, routines_for
from tests.codegen.routines.harness import Subject, layers, load, run
from tests.tiny_models import Builder

HOST = Target.create("cpu")
SHAPE = (1, 16, 64, 64)


def _model() -> ModelProto:
    b = Builder()
    zeros = b.op("ConstantOfShape", "zeros", b.constant(np.array(SHAPE)))
    sums = b.op("Conv", "sums", "x", b.weight(16, 16, 3, 3), pads=[1, 1, 1, 1])
    b.op("Max", "y", sums, zeros)
    return b.model([("x", SHAPE)], [("y", SHAPE)])


def test_kernels_compute_what_stock_code_does() -> None:
    (found,) = layers({"net": _model})
    layer, weights = found
    codes: dict[str, Implementation] = {}
    for routine in (ROUTINES[0], *routines_for(())):
        variants = [variant for variant in variants_of(routine, layer.task, HOST) if isinstance(variant, Variant)]
        if routine is ROUTINES[0] or routine.name in ("direct", "fused_winograd"):
            codes |= {variant.descriptor: variant.implementation for variant in variants[:1]}
    assert len(codes) > 1
    subject = Subject(layer, weights, codes)
    program = load({"net": subject}, HOST)
    (x,) = subject.inputs()
    expected, *others = (run(program, subject, code, [x]) for code in codes)
    assert (expected == 0).any()
    for other in others:
        np.testing.assert_allclose(other, expected, rtol=1e-3, atol=1e-3)
