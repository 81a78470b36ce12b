"""Small models whose length follows from data: sounds have durations that add up to the number of frames."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

SOUNDS, WIDTH = 16, 8


class Noise(Enum):
    """How a model comes by noise."""

    CUT = "cut"
    """An input that is as long as its caller likes, and is cut."""
    DRAWN = "drawn"
    NONE = "none"


def speaking(noise: Noise = Noise.CUT, seed: int = 0) -> ModelProto:
    """Sounds, ``ids`` `[1, sounds]`, to ``frames`` `[1, frames, WIDTH]`, as exporters of VITS write it: durations,
    their sum, a path of zeros and ones, and noise."""
    random = np.random.default_rng(seed)
    weights = {
        "table": random.standard_normal((SOUNDS, WIDTH)).astype(np.float32),
        "to_duration": 0.5 * random.standard_normal((WIDTH, 1)).astype(np.float32),
        "last": random.standard_normal((WIDTH, WIDTH)).astype(np.float32),
        "zero": np.asarray(0, np.int64),
        "one": np.asarray(1, np.int64),
        "first_axis": np.asarray([0]),
        "axis": np.asarray([1]),
        "last_axis": np.asarray([2]),
        "outer_axes": np.asarray([0, 2]),
        "half": np.asarray(0.5, np.float32),
    }
    nodes = [
        _node("Gather", ["table", "ids"], "sounds"),
        _node("MatMul", ["sounds", "to_duration"], "logarithms"),
        _node("Squeeze", ["logarithms", "last_axis"], "squeezed"),
        _node("Exp", ["squeezed"], "exact"),
        _node("Ceil", ["exact"], "durations"),
        _node("ReduceSum", ["durations", "axis"], "totals", keepdims=0),
        _node("Cast", ["totals"], "whole_totals", to=TensorProto.INT64),
        _node("Clip", ["whole_totals", "one"], "lengths"),
        _node("ReduceMax", ["lengths"], "length", keepdims=0),
        _node("Range", ["zero", "length", "one"], "places"),
        _node("Cast", ["places"], "numbers", to=TensorProto.FLOAT),
        _node("Unsqueeze", ["numbers", "outer_axes"], "columns"),
        _node("CumSum", ["durations", "one"], "summed"),
        _node("Unsqueeze", ["summed", "axis"], "ends"),
        _node("Unsqueeze", ["durations", "axis"], "rows"),
        _node("Sub", ["ends", "rows"], "begins"),
        _node("Less", ["columns", "ends"], "before_end"),
        _node("GreaterOrEqual", ["columns", "begins"], "from_begin"),
        _node("And", ["before_end", "from_begin"], "inside"),
        _node("Cast", ["inside"], "path", to=TensorProto.FLOAT),
        _node("MatMul", ["path", "sounds"], "rows_of_frames"),
        _node("Transpose", ["rows_of_frames"], "means", perm=[0, 2, 1]),
        *_noised(noise),
        _node("Transpose", ["noised"], "turned", perm=[0, 2, 1]),
        _node("MatMul", ["turned", "last"], "product"),
        _node("Tanh", ["product"], "frames"),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "sounds"])]
    if noise is Noise.CUT:
        inputs.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, [1, WIDTH, "most_frames"]))
    output = helper.make_tensor_value_info("frames", TensorProto.FLOAT, [1, "frames", WIDTH])
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "speaking", inputs, [output], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _noised(noise: Noise) -> list[NodeProto]:
    if noise is Noise.NONE:
        return [_node("Identity", ["means"], "noised")]
    if noise is Noise.DRAWN:
        drawn = _node("RandomNormalLike", ["means"], "drawn")
    else:
        drawn = _node("Unsqueeze", ["length", "first_axis"], "ends_at")
    cut = [_node("Slice", ["noise", "first_axis", "ends_at", "last_axis"], "drawn")] if noise is Noise.CUT else []
    return [drawn, *cut, _node("Mul", ["drawn", "half"], "scaled"), _node("Add", ["means", "scaled"], "noised")]


def _node(operator: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, [output], name=f"{output}_node", **attributes)
