"""Networks that are written in half precision compute what they compute in float32, up to rounding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from benchmarks.half_precision import halved
from benchmarks.zoo import NETWORKS, sample_inputs
from tests.plugin.onnx_model.builders import relative_error, run


@pytest.mark.parametrize(("name", "kind"), [("f16", TensorProto.FLOAT16), ("bf16", TensorProto.BFLOAT16)])
def test_weights_are_narrow_and_callers_see_float32(name: str, kind: int) -> None:
    whole = NETWORKS["lenet5"]()
    narrow = halved(whole, name)
    onnx.checker.check_model(narrow, full_check=True)
    assert {tensor.data_type for tensor in narrow.graph.initializer} == {kind}
    assert [*narrow.graph.input, *narrow.graph.output] == [*whole.graph.input, *whole.graph.output]


def test_results_differ_by_roundings() -> None:
    whole = NETWORKS["lenet5"]()
    feeds = sample_inputs(whole)
    (result,), (right,) = (run(model, feeds).values() for model in (halved(whole, "f16"), whole))
    assert 0 < relative_error(result, right) < 5e-3
    assert not np.isnan(result).any()
