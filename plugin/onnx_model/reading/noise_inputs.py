"""Makes random operators read inputs: what they draw is then the caller's to give, and the same for every runtime.

Numbers that were drawn when a model is compiled would be the same in each inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic.computed_length import data_sized
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset
from sartor.onnx_model.graphs.infer import infer_shapes, without_weights
from sartor.onnx_model.graphs.noise import record_noise
from sartor.onnx_model.graphs.walk import describe_node, graphs, nodes, subgraphs
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from sartor.runtime.driver.noise import NORMAL, UNIFORM, Noise

RANDOM_OPERATORS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_STANDARD_DOMAINS = ("", "ai.onnx")
# Since then shapes are operands, and sums along an axis.
_SHAPES_ARE_INPUTS, _TOTALS = 5, 11
_AXES_ARE_INPUTS = 13
_LIKE = "Like"


def feed_noise(model: ModelProto) -> tuple[Noise, ...]:
    """Replace random operators by inputs, in place: ``<node>/noise``, of float32; returns the new inputs.

    RandomNormal, RandomUniform and their likes give the input itself, in the operator's type. Bernoulli and Multinomial
    compare it, uniform from 0 to 1, with their probabilities. An input whose shape is computed declares none; what
    reads it reshapes it, or takes as much of it as a length that is computed from data says. The distributions are
    recorded in the model's metadata, where ``noise_of`` finds them.

    Raises:
        UnsupportedModelError: if numbers are drawn within a loop, or for an opset without the operators to write it.
    """
    if not any(_is_random(node) for node in nodes(model)):
        return ()
    if model.functions:
        inline_functions(model)
    known = without_weights(model)
    infer_shapes(known)
    main = GraphEditor(model.graph)
    types = {name: kind for graph in graphs(known) for name, kind in _element_types(graph)}
    writer = _Writer(main, types, opset(model), data_sized(model))
    _replace(model.graph, None, writer)
    model.graph.input.extend(writer.inputs)
    record_noise(model, writer.noise)
    return tuple(writer.noise)


def _is_random(node: NodeProto) -> bool:
    return node.op_type in RANDOM_OPERATORS and node.domain in _STANDARD_DOMAINS


def _element_types(graph: GraphProto) -> Iterator[tuple[str, int]]:
    for value in (*graph.value_info, *graph.input, *graph.output):
        yield value.name, value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        yield tensor.name, tensor.data_type


def _replace(graph: GraphProto, outer: GraphEditor | None, writer: _Writer) -> None:
    editor = writer.main if outer is None else GraphEditor(graph, outer)
    for node in editor.nodes:
        for body in subgraphs(node):
            if node.op_type != "If" and (drawing := next(filter(_is_random, nodes(body)), None)) is not None:
                raise UnsupportedModelError(
                    f"{describe_node(drawing)} draws random numbers in each step of {describe_node(node)}; draw those "
                    "of all steps before it, and read one row in each"
                )
    editor.rewrite(lambda node: writer.written(node, editor) if _is_random(node) else None)
    for node in graph.node:
        for body in subgraphs(node):
            _replace(body, editor, writer)


@dataclass
class _Writer:
    """Writes the nodes that take the place of random operators, and collects the inputs that these read.

    Attributes:
        main: of the graph that gets the inputs.
        types: element types by name of value.
        version: of the standard operators.
        data_sized: the values that are as long as data says.
        inputs, noise: what was added so far.
    """

    main: GraphEditor
    types: Mapping[str, int]
    version: int
    data_sized: frozenset[str]
    inputs: list[ValueInfoProto] = field(default_factory=list)
    noise: list[Noise] = field(default_factory=list)

    def written(self, node: NodeProto, editor: GraphEditor) -> list[NodeProto]:
        if self.version < (_TOTALS if node.op_type == "Multinomial" else _SHAPES_ARE_INPUTS):
            raise UnsupportedModelError(f"{describe_node(node)} draws random numbers; export it with a newer opset")
        if not node.name:
            node.name = node.output[0]
        emit = Emitter(editor, node)
        if node.op_type == "Multinomial":
            self._multinomial(emit)
        elif node.op_type == "Bernoulli":
            self._bernoulli(emit)
        else:
            self._drawn(emit)
        return emit.nodes

    def _drawn(self, emit: Emitter) -> None:
        node, options = emit.node, attributes(emit.node)
        is_like = node.op_type.endswith(_LIKE)
        first, second = ("mean", "scale") if "Normal" in node.op_type else ("low", "high")
        noise = Noise(
            "",
            NORMAL if "Normal" in node.op_type else UNIFORM,
            float(options.get(first, 0.0)),
            float(options.get(second, 1.0)),
        )
        name = self._input(node, noise, None if is_like else options["shape"])
        kind = options.get("dtype") or (self.types.get(node.input[0], 0) if is_like else 0) or TensorProto.FLOAT
        if is_like:
            is_last = kind == TensorProto.FLOAT
            shape = emit("Shape", node.input[0], part="shape")
            output = node.output[0] if is_last else ""
            part = "" if is_last else "noise"
            if node.input[0] in self.data_sized:
                name = emit("Slice", name, emit("Sub", shape, shape, part="start"), shape, part=part, output=output)
            else:
                name = emit("Reshape", name, shape, part=part, output=output)
            if is_last:
                return
        if kind == TensorProto.FLOAT:
            emit("Identity", name, output=node.output[0])
        else:
            emit("Cast", name, output=node.output[0], to=kind)

    def _bernoulli(self, emit: Emitter) -> None:
        node = emit.node
        source = self.types.get(node.input[0], 0) or TensorProto.FLOAT
        noise = self._input(node, Noise("", UNIFORM, 0.0, 1.0), None)
        drawn = emit("Reshape", noise, emit("Shape", node.input[0], part="shape"), part="noise")
        # A probability in double precision may be between two numbers of float32.
        wide = TensorProto.DOUBLE if source == TensorProto.DOUBLE else TensorProto.FLOAT
        pair = [
            name if kind == wide else emit("Cast", name, part="wide", to=wide)
            for name, kind in ((drawn, TensorProto.FLOAT), (node.input[0], source))
        ]
        emit(
            "Cast",
            emit("Less", *pair, part="below"),
            output=node.output[0],
            to=attributes(node).get("dtype") or source,
        )

    def _multinomial(self, emit: Emitter) -> None:
        """Classes by the number of steps of the cumulated probabilities that a number from 0 to 1 has passed.

        Operands: [batch, classes], logarithms of probabilities up to a constant. Result: [batch, samples].
        """
        node, options = emit.node, attributes(emit.node)
        samples = int(options.get("sample_size", 1))
        noise = self._input(node, Noise("", UNIFORM, 0.0, 1.0), None)
        logits = node.input[0]
        if self.types.get(logits, TensorProto.FLOAT) != TensorProto.FLOAT:
            logits = emit("Cast", logits, part="single", to=TensorProto.FLOAT)
        sizes = emit("Shape", logits, part="shape")
        batch = emit("Gather", sizes, emit.constant([0], "first"), part="batch", axis=0)
        rows = emit("Concat", batch, emit.constant([samples, 1], "samples"), part="rows", axis=0)
        drawn = emit("Reshape", noise, rows, part="noise")
        axis = emit.constant(np.asarray(1, np.int64), "axis")
        passed = emit("CumSum", emit("Softmax", logits, part="chances", axis=1), axis, part="total")
        # Without the last one, which rounding may leave below one.
        bounds = [emit.constant([bound], "bound") for bound in (0, -1, 1)]
        passed = emit("Slice", passed, *bounds, part="steps")
        passed = emit("Reshape", passed, emit.constant([0, 1, -1], "columns"), part="columns")
        below = emit("Less", drawn, passed, part="below")
        counted = emit("Cast", emit("Not", below, part="above"), part="ones", to=TensorProto.INT64)
        if self.version < _AXES_ARE_INPUTS:
            count = emit("ReduceSum", counted, part="count", axes=[2], keepdims=0)
        else:
            count = emit("ReduceSum", counted, emit.constant([2], "along"), part="count", keepdims=0)
        emit("Cast", count, output=node.output[0], to=options.get("dtype") or TensorProto.INT32)

    def _input(self, node: NodeProto, noise: Noise, shape: list[int] | None) -> str:
        """Add an input; returns its name."""
        name = self.main.fresh(f"{node.name}/noise")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        seed = attributes(node).get("seed")
        self.noise.append(replace(noise, name=name, seed=None if seed is None else float(seed)))
        return name
