"""Training as arithmetic: one step of Adagrad, Adam or momentum for each tensor, and normalisation of batches.

Definitions: https://github.com/onnx/onnx/blob/main/docs/Operators.md#aionnxpreviewtraining
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, editors, optional_input
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.structure.eliminate_identity import is_inference

TRAINING_DOMAIN = "ai.onnx.preview.training"


def expand_training(model: ModelProto) -> tuple[str, ...]:
    """Lower optimisers, batch normalisation in training mode, and masks of what Dropout keeps outside of it.

    Returns the names of the nodes.
    """
    changed: list[str] = []
    for editor in editors(model.graph):
        changed.extend(editor.rewrite(lambda node, editor=editor: _expanded(node, editor)))  # type: ignore[misc]
    return tuple(changed)


def _expanded(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    if not node.domain and node.op_type == "BatchNormalization" and attributes(node).get("training_mode"):
        return _batch_statistics(node, editor)
    if not node.domain and node.op_type == "Dropout":
        return _all_kept(node, editor)
    if node.domain != TRAINING_DOMAIN or node.op_type not in OPTIMISERS:
        return None
    step, states = OPTIMISERS[node.op_type], _STATES[node.op_type]
    rate, count, *tensors = node.input
    number = len(tensors) // (states + 2)
    emit = Emitter(editor, node)
    for index in range(number):
        value, gradient, *state = tensors[index::number]
        step(_Step(emit, rate, count, value, gradient, state, list(node.output[index::number])))
    return emit.nodes


def _all_kept(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """The mask apart, which is true everywhere at inference: onnxslim takes it for the values.

    In training mode IREE draws numbers also where a ratio of 0 drops none.
    """
    mask = node.output[1] if len(node.output) > 1 else ""
    if not (mask or optional_input(node, 2)) or not is_inference(node, editor):
        return None
    emit = Emitter(editor, node)
    emit("Identity", node.input[0], output=node.output[0])
    if not mask:
        return emit.nodes
    true = helper.make_tensor("true", TensorProto.BOOL, [1], [True])
    emit("ConstantOfShape", emit("Shape", node.input[0], part="shape"), part="mask", output=mask, value=true)
    return emit.nodes


def _batch_statistics(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Normalise by the batch's own mean and variance, and mix them into the running ones."""
    source, scale, bias, mean, variance = node.input
    shape, settings = editor.shape(source), attributes(node)
    if shape is None:
        return None
    if 0 in shape:
        raise UnsupportedModelError(f"{describe_node(node)} takes the mean of a batch without elements")
    emit, rank = Emitter(editor, node), len(shape)
    axes = emit.constant([axis for axis in range(rank) if axis != 1], "axes")
    part = emit.like(shape[1] / math.prod(shape), source, "part")
    column = emit.constant([1, -1, *[1] * (rank - 2)], "column")
    batch_mean = emit("Mul", emit("ReduceSum", source, axes, part="sum"), part, part="mean")
    centred = emit("Sub", source, batch_mean, part="centre")
    squares = emit("Mul", centred, centred, part="square")
    batch_variance = emit("Mul", emit("ReduceSum", squares, axes, part="squares"), part, part="variance")
    epsilon = emit.like(settings.get("epsilon", 1e-5), source, "epsilon")
    deviation = emit("Sqrt", emit("Add", batch_variance, epsilon, part="guard"), part="deviation")
    scaled = emit("Mul", emit("Div", centred, deviation), emit("Reshape", scale, column, part="scale"), part="scaled")
    emit("Add", scaled, emit("Reshape", bias, column, part="bias"), part="shift", output=node.output[0])
    share = settings.get("momentum", 0.9)
    pairs = ((mean, batch_mean), (variance, batch_variance))
    for output, (running, own) in zip(node.output[1:], pairs, strict=False):
        kept = emit("Mul", running, emit.like(share, running, "share"), part="kept")
        flat = emit("Reshape", own, emit.constant([-1], "flat"), part="flat")
        added = emit("Mul", flat, emit.like(1 - share, running, "rest"), part="added")
        emit("Add", kept, added, part="running", output=output)
    return emit.nodes


class _Step:
    """One step on one tensor: its operands, and arithmetic with numbers among the attributes."""

    def __init__(
        self, emit: Emitter, rate: str, count: str, value: str, gradient: str, state: list[str], outputs: list[str]
    ) -> None:
        self.emit, self.value, self.state, self.outputs = emit, value, state, outputs
        self.options = attributes(emit.node)
        # The rate, the count and the tensors have types of their own.
        element = emit.editor.element_type(value) or TensorProto.FLOAT
        is_same = emit.editor.element_type(rate) in (element, TensorProto.UNDEFINED)
        self.rate = rate if is_same else self("Cast", rate, to=element)
        self.count = self("Cast", count, to=element)
        regular = self("Mul", value, self.number("norm_coefficient", 0.0))
        self.gradient = self("Add", regular, gradient)

    def __call__(self, operator: str, *inputs: str, output: str = "", **options: Any) -> str:
        part = "" if output == self.outputs[0] else operator.lower()
        return self.emit(operator, *inputs, part=part, output=output, **options)

    def number(self, name: str, default: float) -> str:
        return self.constant(self.options.get(name, default))

    def constant(self, value: float) -> str:
        return self.emit.like(value, self.value, "number")

    def started(self) -> str:
        """Whether this is not the first step."""
        return self("Greater", self.count, self.constant(0.0))

    def mixed(self, name: str, default: float, old: str, new: str, output: str) -> str:
        """``a old + (1 - a) new``."""
        share = self.options.get(name, default)
        kept, added = self("Mul", old, self.constant(share)), self("Mul", new, self.constant(1 - share))
        return self("Add", kept, added, output=output)

    def unbiased(self, name: str, default: float) -> str:
        """``1 - a ** count``."""
        power = self("Pow", self.number(name, default), self.count)
        return self("Sub", self.constant(1.0), power)


def _adagrad(step: _Step) -> None:
    one = step.constant(1.0)
    decayed = step("Add", one, step("Mul", step.count, step.number("decay_factor", 0.0)))
    rate = step("Div", step.rate, decayed)
    squares = step("Mul", step.gradient, step.gradient)
    total = step("Add", step.state[0], squares, output=step.outputs[1])
    root = step("Add", step("Sqrt", total), step.number("epsilon", 1e-6))
    change = step("Div", step("Mul", rate, step.gradient), root)
    step("Sub", step.value, change, output=step.outputs[0])


def _adam(step: _Step) -> None:
    mean = step.mixed("alpha", 0.9, step.state[0], step.gradient, step.outputs[1])
    squares = step("Mul", step.gradient, step.gradient)
    variance = step.mixed("beta", 0.999, step.state[1], squares, step.outputs[2])
    root = step("Add", step("Sqrt", variance), step.number("epsilon", 1e-6))
    bias = step("Div", step("Sqrt", step.unbiased("beta", 0.999)), step.unbiased("alpha", 0.9))
    rate = step("Where", step.started(), step("Mul", step.rate, bias), step.rate)
    moved = step("Sub", step.value, step("Mul", rate, step("Div", mean, root)))
    kept = step.constant(1 - step.options.get("norm_coefficient_post", 0.0))
    step("Mul", moved, kept, output=step.outputs[0])


def _momentum(step: _Step) -> None:
    alpha = step.number("alpha", 0.0)
    factor = step("Where", step.started(), step.number("beta", 0.0), step.constant(1.0))
    kept, added = step("Mul", alpha, step.state[0]), step("Mul", factor, step.gradient)
    velocity = step("Add", kept, added, output=step.outputs[1])
    if step.options.get("mode") == "nesterov":
        velocity = step("Add", step.gradient, step("Mul", alpha, velocity))
    step("Sub", step.value, step("Mul", step.rate, velocity), output=step.outputs[0])


OPTIMISERS: Mapping[str, Callable[[_Step], None]] = {"Adagrad": _adagrad, "Adam": _adam, "Momentum": _momentum}
"""Operators of the domain that are known."""

_STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}
