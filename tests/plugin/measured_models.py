"""Small networks whose outputs hold values of several orders of magnitude, and the same with rounding in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from sartor.onnx_model.graphs.infer import infer_shapes
from tests.plugin.onnx_model.builders import FLOAT, Array, ints, model, node, run, weights

ANCHORS, CLASSES = 256, 20
BOXES = 4
LOWEST = float(np.finfo(np.float32).min)
_MULTIPLYING = ("Conv", "Gemm", "MatMul")


def detector() -> ModelProto:
    """Boxes up to 520 and scores up to 1 in one output [1, 24, 256], as YOLO's exports have them."""
    grid = np.stack(np.meshgrid(np.arange(16), np.arange(16))).reshape(1, 2, ANCHORS)
    constants = {
        "w": weights(32, 8, 3, 3, seed=1, scale=0.12),
        "boxes_w": weights(BOXES, 32, 1, 1, seed=2, scale=0.2),
        "scores_w": weights(CLASSES, 32, 1, 1, seed=3, scale=0.4),
        "scores_b": np.linspace(-7.0, -1.0, CLASSES, dtype=np.float32),
        "grid": np.concatenate([grid, np.ones_like(grid)], axis=1).astype(np.float32),
        "stride": np.float32(32),
        "flat_boxes": ints(1, BOXES, ANCHORS),
        "flat_scores": ints(1, CLASSES, ANCHORS),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="stem", pads=[1] * 4),
        node("Relu", ["c"], ["f"]),
        node("Conv", ["f", "boxes_w"], ["b0"], name="boxes"),
        node("Reshape", ["b0", "flat_boxes"], ["b1"], name="flat_boxes"),
        node("Add", ["b1", "grid"], ["b2"]),
        node("Mul", ["b2", "stride"], ["b3"]),
        node("Conv", ["f", "scores_w", "scores_b"], ["s0"], name="scores"),
        node("Reshape", ["s0", "flat_scores"], ["s1"], name="flat_scores"),
        node("Sigmoid", ["s1"], ["s2"]),
        node("Concat", ["b3", "s2"], ["y"], axis=1),
    ]
    return model(nodes, [("x", (1, 8, 16, 16), FLOAT)], [("y", (1, BOXES + CLASSES, ANCHORS), FLOAT)], constants)


def heads() -> ModelProto:
    """Two heads of other scales: a map [1, 6, 16, 16] whose channels go from 1e-3 to 100, and an embedding [1, 32]."""
    constants = {
        "w": weights(32, 8, 3, 3, seed=1, scale=0.12),
        "map_w": weights(6, 32, 3, 3, seed=2, scale=0.1) * np.logspace(-3, 2, 6, dtype=np.float32).reshape(6, 1, 1, 1),
        "embedding_w": weights(32, 32, seed=3, scale=0.2),
        "flat": ints(1, 32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="stem", pads=[1] * 4),
        node("Relu", ["c"], ["f"]),
        node("Conv", ["f", "map_w"], ["map"], name="map", pads=[1] * 4),
        node("GlobalAveragePool", ["f"], ["p"]),
        node("Reshape", ["p", "flat"], ["e"]),
        node("MatMul", ["e", "embedding_w"], ["embedding"]),
    ]
    outputs = [("map", (1, 6, 16, 16), FLOAT), ("embedding", (1, 32), FLOAT)]
    return model(nodes, [("x", (1, 8, 16, 16), FLOAT)], outputs, constants)


def perceptron(tail: list[NodeProto], columns: int, rows: int = 1, gain: float = 1.0, **constants: Array) -> ModelProto:
    """Two layers and a tail that makes ``y`` [rows, columns] of the logits ``z``."""
    known = {
        "w1": weights(32, 64, seed=4, scale=0.2),
        "w2": weights(64, columns, seed=5, scale=0.2 * gain),
        **constants,
    }
    nodes = [
        node("MatMul", ["x", "w1"], ["h0"], name="first"),
        node("Relu", ["h0"], ["h"]),
        node("MatMul", ["h", "w2"], ["z"], name="second"),
        *tail,
    ]
    return model(nodes, [("x", (rows, 32), FLOAT)], [("y", (rows, columns), FLOAT)], known)


def masked(value: float, *, added: bool = False) -> ModelProto:
    """Logits [4, 64] of which three in four are masked by a value, which replaces them or is added."""
    mask = np.arange(64)[None] % 4 > 0
    if added:
        shift = np.where(mask, np.float32(value), np.float32(0)).astype(np.float32)
        return perceptron([node("Add", ["z", "shift"], ["y"])], 64, 4, shift=shift)
    tail = [node("Where", ["mask", "value", "z"], ["y"])]
    return perceptron(tail, 64, 4, mask=mask, value=np.array(value, np.float32))


def softmax() -> ModelProto:
    """A classifier [4, 40] that is sure of what it says."""
    return perceptron([node("Softmax", ["z"], ["y"], axis=-1)], 40, 4, gain=3.0)


def small_sigmoid() -> ModelProto:
    """Scores [1, 40] all below what ONNX Runtime's Sigmoid is off by."""
    tail = [node("Add", ["z", "low"], ["t"]), node("Sigmoid", ["t"], ["y"])]
    return perceptron(tail, 40, low=np.array(-21, np.float32))


def batch() -> ModelProto:
    """Two entries [2, 48], of which the second is 1e-4 of the first."""
    return perceptron([node("Mul", ["z", "size"], ["y"])], 48, 2, size=np.array([[1.0], [1e-4]], np.float32))


def single() -> ModelProto:
    """One number for each row, [32, 1]."""
    return perceptron([node("Identity", ["z"], ["y"])], 1, 32)


def not_numbers() -> ModelProto:
    """Logits [4, 40] of which three in four are not numbers."""
    return perceptron([node("Add", ["z", "nan"], ["y"])], 40, 4, nan=np.where(np.arange(40) % 4, np.nan, 0).astype("f"))


MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "detector": detector,
    "heads": heads,
    "softmax": softmax,
    "small_sigmoid": small_sigmoid,
    "batch": batch,
    "single": single,
    "not_numbers": not_numbers,
    "masked_lowest": lambda: masked(LOWEST),
    "masked_infinite": lambda: masked(-np.inf),
    "masked_1e4": lambda: masked(-1e4),
    "masked_added": lambda: masked(-1e4, added=True),
}


def rounded(built: ModelProto, kind: int) -> ModelProto:
    """With everything that is multiplied rounded to 16 bits."""

    def steps(name: str) -> list[NodeProto]:
        narrow = node("Cast", [name], [f"{name}_n"], name=f"{name}_n", to=kind)
        return [narrow, node("Cast", [f"{name}_n"], [f"{name}_r"], name=f"{name}_r", to=TensorProto.FLOAT)]

    return _with_rounded(built, steps, weights_too=True)


def quantised(built: ModelProto, feeds: Mapping[str, Array]) -> ModelProto:
    """With everything that is multiplied in 8 bits: activations by their range, weights by that of each channel."""
    shown = ModelProto()
    shown.CopyFrom(built)
    constants = {tensor.name for tensor in built.graph.initializer}
    names = {name for each in built.graph.node if each.op_type in _MULTIPLYING for name in each.input[:2]} - constants
    given = {value.name for value in built.graph.input}
    shown.graph.output.extend(ValueInfoProto(name=name) for name in sorted(names - given))
    infer_shapes(shown)
    values = {**feeds, **run(shown, feeds)}
    found = ModelProto()
    found.CopyFrom(built)
    for name in sorted(names):
        low, high = min(float(values[name].min()), 0.0), max(float(values[name].max()), 0.0)
        step = (high - low) / 255
        found.graph.initializer.append(numpy_helper.from_array(np.array(step, np.float32), f"{name}_s"))
        found.graph.initializer.append(numpy_helper.from_array(np.array(round(-low / step), np.uint8), f"{name}_z"))
    for tensor in found.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.ndim > 1 and array.dtype == np.float32 and tensor.name.endswith(("w", "w1", "w2")):
            axes = tuple(range(1, 4)) if array.ndim == 4 else (0,)
            scale = np.abs(array).max(axis=axes, keepdims=True) / 127
            tensor.CopyFrom(numpy_helper.from_array((np.rint(array / scale) * scale).astype(np.float32), tensor.name))

    def steps(name: str) -> list[NodeProto]:
        numbers = [f"{name}_s", f"{name}_z"]
        narrow = node("QuantizeLinear", [name, *numbers], [f"{name}_n"], name=f"{name}_n")
        return [narrow, node("DequantizeLinear", [f"{name}_n", *numbers], [f"{name}_r"], name=f"{name}_r")]

    return _with_rounded(found, steps, weights_too=False)


def inexact(built: ModelProto, share: float) -> ModelProto:
    """With all weights that are multiplied off by up to a share, as if products were as inexact as that."""
    found = ModelProto()
    found.CopyFrom(built)
    names = {each.input[1] for each in built.graph.node if each.op_type in _MULTIPLYING}
    random = np.random.default_rng(11)
    for tensor in found.graph.initializer:
        if tensor.name in names:
            array = numpy_helper.to_array(tensor)
            off = array * (1 + share * random.uniform(-1, 1, array.shape))
            tensor.CopyFrom(numpy_helper.from_array(off.astype(np.float32), tensor.name))
    return found


def _with_rounded(built: ModelProto, steps: Callable[[str], list[NodeProto]], *, weights_too: bool) -> ModelProto:
    found = ModelProto()
    found.CopyFrom(built)
    nodes: list[NodeProto] = []
    done: set[str] = set()
    for each in list(found.graph.node):
        if each.op_type in _MULTIPLYING:
            for index in range(1 + weights_too):
                name = each.input[index]
                if name not in done:
                    nodes.extend(steps(name))
                    done.add(name)
                each.input[index] = f"{name}_r"
        nodes.append(each)
    del found.graph.node[:]
    found.graph.node.extend(nodes)
    return found
