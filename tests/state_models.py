"""Tiny models that leave something behind for their next call."""

from __future__ import annotations

import numpy as np
import onnx.parser
from onnx import ModelProto, helper, numpy_helper

COUNTER = """
<ir_version: 9, opset_import: ["" : 19]>
counter (float[1,4] x, float[1,4] total_in, int64[1] steps_in, bool[2] odd_in)
    => (float[1,4] before, float[1,4] total_out, int64[1] steps_out, float[1,4] same, bool[2] odd_out, float[1,4] mean)
{
    one = Constant <value: tensor = int64[1] {1}> ()
    before = Identity (total_in)
    total_out = Add (total_in, x)
    same = Identity (total_out)
    steps_out = Add (steps_in, one)
    odd_out = Not (odd_in)
    count = Cast <to = 1> (steps_out)
    mean = Div (total_out, count)
}
"""
"""The sum and the number of its inputs; outputs that equal a state before and after the call."""

COUNTER_STATES = {"total_in": "total_out", "steps_in": "steps_out", "odd_in": "odd_out"}


def counter() -> ModelProto:
    return onnx.parser.parse_model(COUNTER)


def recurrent(hidden: int = 8, features: int = 6, steps: int = 3) -> ModelProto:
    """An LSTM whose states have the names that PyTorch's examples give them."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((1, 4 * hidden, features)) / 2,
        "r": random.standard_normal((1, 4 * hidden, hidden)) / 3,
        "b": random.standard_normal((1, 8 * hidden)) / 4,
    }
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h", "c"], ["all", "hn", "cn"], name="lstm", hidden_size=hidden
    )
    flat = helper.make_node("Squeeze", ["all", "axis"], ["y"], name="flat")
    given = {"x": (steps, 1, features), "h": (1, 1, hidden), "c": (1, 1, hidden)}
    made = {"y": (steps, 1, hidden), "hn": (1, 1, hidden), "cn": (1, 1, hidden)}
    taken, left = (
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in each.items()] for each in (given, made)
    )
    held = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    held.append(numpy_helper.from_array(np.array([1], np.int64), "axis"))
    graph = helper.make_graph([node, flat], "recurrent", taken, left, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


DELAY = """
<ir_version: 9, opset_import: ["" : 19]>
delay (float[1,4] x, float[1,4] before_in) => (float[1,4] y, float[1,4] before_out)
{
    y = Sub (x, before_in)
    before_out = Identity (x)
}
"""
"""The difference from the last input, which is the state as it is."""
