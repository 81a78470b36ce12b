"""Every rewrite on tiny models: the prepared model computes what the original computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import relative_error, run
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Load, Prepare
from tests.plugin.onnx_model.quantized_cases import DYNAMIC, QUANTISED

# One rounding to float16 of a value that ONNX Runtime rounds too.
_HALF_TOLERANCE = 2.0**-10
_TOLERANCE = 1e-5


@pytest.mark.parametrize("name", sorted(CASES))
def test_prepared_model_computes_the_same(name: str, save_and_load: Load, prepare_quickly: Prepare) -> None:
    original = CASES[name]()
    feeds = sample_inputs(original, 1)
    expected = run(original, feeds)
    prepared = prepare_quickly(save_and_load(original))
    actual = run(prepared.model, feeds)
    half = original.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    for output in prepared.outputs:
        assert output.shape == expected[output.name].shape
        error = relative_error(actual[output.name], expected[output.name])
        assert error <= (_HALF_TOLERANCE if half else _TOLERANCE), output.name


@pytest.mark.parametrize("name", sorted(QUANTISED))
def test_quantised_operator_differs_by_at_most_one_step(name: str, prepare_quickly: Prepare) -> None:
    original = QUANTISED[name]()
    feeds = sample_inputs(original, 1)
    expected = run(original, feeds)["y"]
    prepared = prepare_quickly(original).model
    steps = np.abs(run(prepared, feeds)["y"].astype(np.int64) - expected.astype(np.int64))
    assert len(np.unique(expected)) > 3
    assert steps.max() <= 1
    assert (steps > 0).mean() <= 0.2
    assert not any(node.domain or node.op_type.startswith(("QLinear", "QGemm")) for node in prepared.graph.node)


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_quantised_operator_with_float_result(name: str, prepare_quickly: Prepare) -> None:
    original = DYNAMIC[name]()
    feeds = sample_inputs(original, 1)
    actual = run(prepare_quickly(original).model, feeds)
    assert relative_error(actual["y"], run(original, feeds)["y"]) <= _TOLERANCE


@pytest.mark.parametrize("name", ["QLinearConv", "ConvTranspose", "LSTM", "Resize", "Pad", "FusedConv"])
def test_essential_node_keeps_the_name(name: str, prepare_quickly: Prepare) -> None:
    built = {
        "QLinearConv": QUANTISED["conv_int8_channel"],
        "ConvTranspose": CASES["convtranspose_grouped_pads_dilations"],
        "LSTM": CASES["LSTM_forward"],
        "Resize": CASES["resize_nearest_align_corners_floor_13"],
        "Pad": CASES["pad_reflect"],
        "FusedConv": CASES["ms_fused_conv_Relu"],
    }[name]()
    original = next(node.name for node in built.graph.node if node.op_type == name)
    assert original in [node.name for node in prepare_quickly(built).model.graph.node]
