"""Networks that are written in half precision compute what they compute in float32, up to rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.half_precision import halved, written
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


def test_a_file_in_half_precision_is_taken_as_it_is(tmp_path: Path) -> None:
    whole = NETWORKS["lenet5"]()
    narrow = halved(whole, "f16")
    # As older files have it: values among the inputs, and inputs in f16.
    narrow.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in narrow.graph.initializer
    )
    narrow.ir_version = 3
    file = tmp_path / "net.onnx"
    onnx.save(narrow, file)
    files = written(str(file), tmp_path)
    assert [*files] == ["f32", "f16", "bf16"]
    assert files["f16"] == file
    types = {name: {tensor.data_type for tensor in onnx.load(each).graph.initializer} for name, each in files.items()}
    assert types == {"f32": {TensorProto.FLOAT}, "f16": {TensorProto.FLOAT16}, "bf16": {TensorProto.BFLOAT16}}
    wide = onnx.load(files["f32"])
    feeds = sample_inputs(wide)
    (result,), (right,) = (run(model, feeds).values() for model in (wide, whole))
    assert 0 < relative_error(result, right) < 5e-3
    onnx.checker.check_model(onnx.load(files["bf16"]), full_check=True)
