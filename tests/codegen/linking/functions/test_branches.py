"""Modules whose layers branch by data, by each function that callers may call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.stock_module import run_once
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.workers.calls import call, open_pool
from tests.codegen.linking.test_stitching import build, split
from tests.plugin.onnx_model.builders import run, weights

# The first choice is by what a layer computes, the second by an input; both branches of each compute tensors.
_CHOICES = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[4,16] x, int64 rate) => (float[4,16] y, float[4,16] z)
<int64 two = {2}, float nought = {0}> {
    product = MatMul (x, w)
    mean = ReduceMean <keepdims = 0> (product)
    is_positive = Greater (mean, nought)
    is_two = Equal (rate, two)
    first = If (is_positive) <
        then_branch = positive () => (float[4,16] a) { a = Tanh (product) },
        else_branch = negative () => (float[4,16] b) { b = Neg (product) }
    >
    z = If (is_two) <
        then_branch = second () => (float[4,16] c) { c = Tanh (product) },
        else_branch = other () => (float[4,16] d) { d = Add (x, first) }
    >
    y = MatMul (first, w)
}"""
_SECONDS = 60.0


def test_a_run_that_writes_into_given_memory_ends(tmp_path: Path) -> None:
    """IREE put the wait for the end before what signals it, and a small model's run never ended."""
    model, path, files = parser.parse_model(_CHOICES), tmp_path / "model.onnx", NetFiles(tmp_path / "net.vmfb", None)
    model.graph.initializer.append(numpy_helper.from_array(weights(16, 16), "w"))
    onnx.save(model, path)
    imported = run_import(path, {}, None)
    assert isinstance(imported, ImportedModel), imported
    build(imported, split(imported), files)
    cases = [{"x": sign * np.ones((4, 16), np.float32), "rate": np.array(rate)} for sign in (1, -1) for rate in (1, 2)]
    with open_pool(1) as (pool, _):
        for feeds in cases:
            arguments = {"module": files.module, "feeds": feeds, "device": "cpu"}
            for actual, expected in zip(
                call(pool, run_once, arguments, "running", _SECONDS), run(model, feeds).values(), strict=True
            ):
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    with Session(files.module, threads=1) as session:
        bound = session.bind(cases[0])
        for feeds in cases:
            for name, array in feeds.items():
                bound.inputs[name].copy_from(array)
            bound.run()
            for name, expected in run(model, feeds).items():
                np.testing.assert_allclose(bound.outputs[name].to_host(), expected, rtol=1e-5, atol=1e-6)
