"""A small model that selects its branch by an input, as detectors of speech do by the sample rate."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, helper, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, INT64, ints, model, node, weights

RATE = 16000


def rate_model(slow: tuple[int, int] = (4, 5)) -> ModelProto:
    """``y`` of shape [2, 3] at the sample rate 16000, else ``slow``, from ``x`` of shape [1, 8] and a scalar ``sr``."""
    equal = node("Equal", ["sr", "rate"], ["is_fast"])
    choice = node("If", ["is_fast"], ["y"], name="choice", then_branch=_branch(2, 3), else_branch=_branch(*slow))
    inputs = [("x", (1, 8), FLOAT), ("sr", (), INT64)]
    return model([equal, choice], inputs, ["y"], {"rate": np.array(RATE, np.int64)})


def _branch(rows: int, columns: int) -> GraphProto:
    """A matrix product of the samples in so many rows."""
    nodes = [
        node("Reshape", ["x", "shape"], ["framed"], name=f"frame{rows}"),
        node("MatMul", ["framed", "weight"], ["product"], name=f"product{rows}"),
    ]
    constants = {"shape": ints(rows, -1), "weight": weights(8 // rows, columns, seed=rows)}
    return helper.make_graph(
        nodes,
        f"branch{rows}",
        [],
        [helper.make_tensor_value_info("product", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
