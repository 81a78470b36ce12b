"""Quantised operators that ONNX Runtime computes otherwise than their names say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.conftest import Prepare

_SHAPES = {"x": [1, 6, 6, 6], "y": [1, 6, 4, 3]}


def test_averages_that_count_padding_and_round_up_are_refused(prepare_quickly: Prepare) -> None:
    options: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "pads": [1, 0, 1, 1],
        "strides": [2, 2],
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    operands = {"s": np.float32(0.03), "z": np.uint8(5)}
    node = helper.make_node(
        *("QLinearAveragePool", ["x", "s", "z", "s", "z"], ["y"]), name="mean", domain="com.microsoft", **options
    )
    values = [helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name, shape in _SHAPES.items()]
    constants = [numpy_helper.from_array(np.asarray(each), name) for name, each in operands.items()]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(UnsupportedModelError, match=r"node 'mean' .* counts padding and rounds up"):
        prepare_quickly(helper.make_model(graph, opset_imports=opsets, ir_version=9))
