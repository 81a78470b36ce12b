"""Cases that are written otherwise: in bodies, functions and older files, with few bits, and as a recurrence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node
from tests.plugin.reference.exact.integers import extreme, wide
from tests.plugin.reference.exact.saturating_cases import INT32, KINDS, Case, Graph

LEFT, RIGHT = extreme("u8", 5, 70), extreme("s8", 70, 9, seed=1)
PRODUCT = (wide(LEFT) @ wide(RIGHT)).astype(np.int32)
# Sums of float32, in an order that the definition leaves open.
_ROUNDING = 2e-6


def nested_cases() -> Iterator[Case]:
    """All cases."""
    yield _in_branch()
    yield _in_loop()
    yield _in_function()
    yield _of_old_file()
    yield _of_unknown_type()
    yield from _few_bits()
    yield _recurrence()


def _in_branch() -> Case:
    """Both operands lie outside the body that multiplies them."""
    product = node("MatMulInteger", ["a", "b"], ["inner"])
    zeros = node("Constant", [], ["zeros"], value=numpy_helper.from_array(np.zeros((5, 9), np.int32)))
    outputs = [[helper.make_tensor_value_info(name, INT32, None)] for name in ("inner", "zeros")]
    then = helper.make_graph([product], "then", [], outputs[0])
    other = helper.make_graph([zeros], "other", [], outputs[1])
    graph = Graph(feeds={"a": LEFT, "yes": np.array(True)})
    graph.inputs = [("a", LEFT.shape, KINDS["u8"]), ("yes", (), TensorProto.BOOL)]
    graph.constant("b", RIGHT)
    graph.nodes.append(node("If", ["yes"], ["y"], then_branch=then, else_branch=other))
    return graph.case("in a branch", ("y", None, INT32), PRODUCT)


def _in_loop() -> Case:
    """The weights are a constant of the body."""
    weights = [numpy_helper.from_array(RIGHT, "b")]
    nodes = [
        node("MatMulInteger", ["a", "b"], ["product"]),
        node("Add", ["sum", "product"], ["next"]),
        node("Identity", ["on"], ["still"]),
    ]
    given = [("step", (), TensorProto.INT64), ("on", (), TensorProto.BOOL), ("sum", (5, 9), INT32)]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape, kind in given]
    outputs = [
        helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
        helper.make_tensor_value_info("next", INT32, (5, 9)),
    ]
    body = helper.make_graph(nodes, "body", inputs, outputs, weights)
    graph = Graph(feeds={"a": LEFT}, inputs=[("a", LEFT.shape, KINDS["u8"])])
    names = [graph.constant("steps", np.int64(3)), graph.constant("yes", True), graph.constant("none", 0 * PRODUCT)]
    graph.nodes.append(node("Loop", names, ["y"], body=body))
    return graph.case("in a loop", ("y", None, INT32), 3 * PRODUCT)


def _in_function() -> Case:
    product = helper.make_node("MatMulInteger", ["p", "q"], ["r"])
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Multiply", ["p", "q"], ["r"], [product], imports)
    graph = Graph(feeds={"a": LEFT}, inputs=[("a", LEFT.shape, KINDS["u8"])])
    graph.nodes.append(node("Multiply", ["a", graph.constant("b", RIGHT)], ["y"], domain="local"))
    case = graph.case("in a function", ("y", None, INT32), PRODUCT)
    built = ModelProto.FromString(case.model.SerializeToString())
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("local", 1))
    return replace(case, model=built)


def _of_old_file() -> Case:
    """Of the first operator set with such products; its constants are also inputs."""
    graph = Graph(feeds={"a": LEFT}, inputs=[("a", LEFT.shape, KINDS["u8"]), ("b", RIGHT.shape, KINDS["s8"])])
    graph.nodes.append(node("MatMulInteger", ["a", graph.constant("b", RIGHT)], ["y"]))
    case = graph.case("of an old file", ("y", None, INT32), PRODUCT, opset=10)
    case.model.ir_version = 3
    return case


def _of_unknown_type() -> Case:
    """The weights come out of a node whose second result says nothing of their type by its first operand."""
    graph = Graph(feeds={"a": LEFT, "yes": np.array([True])})
    graph.inputs = [("a", LEFT.shape, KINDS["u8"]), ("yes", (1,), TensorProto.BOOL)]
    names = ["yes", graph.constant("first", RIGHT), graph.constant("second", -RIGHT)]
    graph.nodes += [node("Where", names, ["b"]), node("MatMulInteger", ["a", "b"], ["y"])]
    return graph.case("of a type that is inferred", ("y", None, INT32), PRODUCT)


def _few_bits() -> Iterator[Case]:
    random = np.random.default_rng(0)
    x, packed = random.standard_normal((3, 64)).astype(np.float32), random.integers(0, 256, (9, 2, 16), np.uint8)
    scales = random.uniform(0.5, 1, (9, 2)).astype(np.float32)
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(9, 2, 32).astype(np.int64) - 8
    expected = x.astype(np.float64) @ (numbers * scales[:, :, None].astype(np.float64)).reshape(9, 64).T
    graph = Graph(feeds={"x": x}, inputs=[("x", x.shape, FLOAT)])
    names = ["x", graph.constant("packed", packed), graph.constant("scales", scales.ravel())]
    attributes = {"K": 64, "N": 9, "bits": 4, "block_size": 32, "accuracy_level": 4}
    graph.nodes.append(node("MatMulNBits", names, ["y"], domain=MS, **attributes))
    yield graph.case("MatMulNBits", ("y", None, FLOAT), expected.astype(np.float32), error=_ROUNDING)
    yield _pair_of_few_bits(x, numbers.reshape(9, 64).T, scales.T, expected.astype(np.float32))


def _pair_of_few_bits(x: Array, numbers: Array, scales: Array, expected: Array) -> Case:
    """ONNX Runtime's optimisations make MatMulNBits of it."""
    nodes = [
        node("DequantizeLinear", ["w", "scales"], ["floats"], axis=0, block_size=32),
        node("MatMul", ["x", "floats"], ["y"]),
    ]
    built = model(nodes, [("x", x.shape, FLOAT)], ["y"], {"scales": scales}, opset=21)
    built.ir_version = 10
    built.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, numbers.shape, numbers.ravel().tolist()))
    return Case("4 bits", built, {"x": x}, expected, error=_ROUNDING, wrong="optimised")


def _recurrence() -> Case:
    """Its inputs have the numbers 0 to 255, so that their step is 1; its states are rounded to no step that is exact.

    So the weights of the states are zeros, and what is left is the product of the inputs.
    """
    size, given, steps = 8, 70, 1
    x, w = extreme("u8", steps, 2, given).astype(np.float32), extreme("s8", given, 4 * size, seed=1)
    x[0, 0, :2] = 0, 255
    scale = np.float32(2.0**-18)
    graph = Graph(feeds={"x": x}, inputs=[("x", x.shape, FLOAT)])
    names = ["x", graph.constant("w", w[None]), graph.constant("r", np.zeros((1, size, 4 * size), np.int8))]
    names += ["", "", "", "", ""]
    for letter in "wr":
        names += [
            graph.constant(f"{letter}_scale", np.full(1, scale)),
            graph.constant(f"{letter}_zero", np.zeros(1, np.int8)),
        ]
    graph.nodes.append(node("DynamicQuantizeLSTM", names, ["y"], domain=MS, hidden_size=size))
    gates = (x[0].astype(np.int64) @ wide(w)) * float(scale)
    entry, output, _, cell = np.split(gates, 4, axis=-1)
    state = _sigmoid(entry) * np.tanh(cell)
    expected = (_sigmoid(output) * np.tanh(state))[None, None].astype(np.float32)
    return graph.case("DynamicQuantizeLSTM", ("y", None, FLOAT), expected, error=1e-5)


def _sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-values)))
