"""Shape inference without copying weights: it needs only their shapes, and the values of small tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    checker,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.graph import GraphEditor, opset, static_shape
from sartor.onnx_model.graphs.guarded_slices import bodies_slice_negative, inferred_types, slices_negative
from sartor.onnx_model.graphs.limits import MAX_DIMENSION
from sartor.onnx_model.graphs.resized_shapes import has_resizes, shape_in_f32, stand_in_for_resized
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node, graphs, subgraphs
from sartor.onnx_model.operator_types.registered import known_operators

# Inference reads the values of shape operands (targets of Reshape, axes, pads …). A tensor with more elements than this
# is a weight.
_VALUES_KEPT = 1024
# Propagation of data makes a message for each element of every vector that it meets, 160 bytes of memory: for shapes
# that is nothing, for a vector of 33 million elements it is 5 GiB.
_LONG_VECTOR = 1 << 20
_INFERENCE = re.compile(r"\(op_type:\w+, node name: (?P<node>.*?)\): (?:\[\w+\] )?(?P<reason>.*)")
_MADE_UP = "unk__"
# Their result has the type and the shape of their first operand.
_WITHOUT_INFERENCE = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
# A product of f32 by a weight that is not: of ONNX Runtime's, kept as it is.
_CONTRIB, _ENCODED_PRODUCT = "com.microsoft", "MatMulNBits"
_STEPS = 4
# The types of sizes.
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def infer_shapes(model: ModelProto) -> None:
    """Infer the type and shape of every value of ``model`` from its inputs.

    Outputs of nodes whose shapes contradict each other are left without a shape.

    Args:
        model: edited in place.

    Raises:
        UnsupportedModelError: inference fails on the model as a whole.
    """
    for graph in graphs(model):
        _type_loop_outputs(graph)
    inferred = _inferred(model)
    if may_learn_from_data(inferred):
        inferred = _inferred(model, inferred, data_prop=True)
    _take_types(model.graph, inferred.graph)


def forget_shapes(model: ModelProto) -> None:
    """Remove the declared shapes of computed values and outputs, in place."""
    for graph in graphs(model):
        del graph.value_info[:]
    for value in model.graph.output:
        # Writing to the type of a sequence would make it a tensor.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def may_learn_from_data(model: ModelProto) -> bool:
    """Whether to infer the types of ``model`` again with propagation of data.

    It tells nothing if all shapes are known, and must not write out long vectors.

    Args:
        model: with the types that inference finds without propagation.
    """
    return _leaves_shapes_open(model) and not _spells_out_vectors(model)


def _leaves_shapes_open(model: ModelProto) -> bool:
    """Whether the shape of a value that the model computes is not known, or may be computed in a body."""
    graph = model.graph
    known = {value.name for value in (*graph.value_info, *graph.output) if static_shape(value.type) is not None}
    return any(
        any(name and name not in known for name in node.output) or any(True for _ in subgraphs(node))
        for node in graph.node
    )


def _spells_out_vectors(model: ModelProto) -> bool:
    """Whether propagation of data through ``model`` would write out vectors that are too long for shapes.

    Args:
        model: with the types that inference finds without propagation. Where these leave a length open, a vector may
            have as many elements as the largest tensor.
    """
    lengths, largest, is_open = [0], 0, False
    for kind, dims in _known_types(model):
        sizes = [dim.dim_value for dim in dims]
        largest = max(largest, math.prod(sizes))
        lengths.extend(sizes if len(sizes) == 1 else ())
        is_open = is_open or (len(sizes) == 1 and not dims[0].HasField("dim_value") and kind not in _INTEGERS)
    return max(lengths) > _LONG_VECTOR or (is_open and largest > _LONG_VECTOR)


def _known_types(model: ModelProto) -> Iterator[tuple[int, Sequence[TensorShapeProto.Dimension]]]:
    """Element type and sizes of every value whose rank is known, also in subgraphs."""
    for graph in graphs(model):
        for value in (*graph.input, *graph.value_info, *graph.output):
            if _has_shape(value):
                kind = value.type.tensor_type
                yield kind.elem_type, kind.shape.dim
        for tensor in graph.initializer:
            yield tensor.data_type, [TensorShapeProto.Dimension(dim_value=size) for size in tensor.dims]


def range_length(start: float, limit: float, delta: float) -> float:
    """The number of elements of a Range, which may be more than memory holds; 0 if it has none or makes no sense."""
    length = (limit - start) / delta if delta else 0.0
    return max(0.0, math.ceil(length) if math.isfinite(length) else length)


def check_shapes(model: ModelProto) -> None:
    """Refuse nodes whose types or shapes contradict each other.

    Raises:
        UnsupportedModelError: naming the node and what does not fit.
    """
    # To propagate data, inference would read weights.
    _inferred(model, check_type=True, strict_mode=True)


def _inferred(model: ModelProto, known: ModelProto | None = None, **options: bool) -> ModelProto:
    """A copy with the types of all values; ``known`` and the options are those of ``inferred_types``."""
    skeleton = without_weights(model)
    replaced = {} if options.get("check_type") else _as_standard(skeleton.graph)
    try:
        with known_operators(node for graph in graphs(skeleton) for node in graph.node):
            inferred = _with_resized(skeleton, replaced, known, options)
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError) as error:
        raise UnsupportedModelError(_contradiction(_first_line(error), model)) from None
    for index, node in replaced.items():
        inferred.graph.node[index].CopyFrom(node)
    return inferred


def _with_resized(
    skeleton: ModelProto, replaced: dict[int, NodeProto], known: ModelProto | None, options: Mapping[str, bool]
) -> ModelProto:
    """Infer types, with the sizes that runtimes give to results of Resize; adds the nodes that stand-ins replace."""
    if has_resizes(skeleton.graph):
        types = inferred_types(skeleton)
        while resized := stand_in_for_resized(skeleton.graph, types.graph):
            replaced.update(resized)
            types = inferred_types(skeleton)
    return inferred_types(skeleton, known, **options)


def _as_standard(graph: GraphProto) -> dict[int, NodeProto]:
    """Write operators whose results ONNX cannot infer as others of the same type, in place; returns the nodes by their
    index."""
    replaced: dict[int, NodeProto] = {}
    for index, node in enumerate(graph.node):
        standard = _standard(node, graph)
        if standard is not None:
            replaced[index] = NodeProto.FromString(node.SerializeToString())
            graph.node[index].CopyFrom(standard)
    return replaced


def _standard(node: NodeProto, graph: GraphProto) -> NodeProto | None:
    """A standard operator whose result has the type of a node's; None for those that ONNX can infer."""
    if node.op_type in _WITHOUT_INFERENCE and not node.domain and node.input:
        return helper.make_node("Identity", node.input[:1], node.output[:1], node.name)
    sizes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type != _ENCODED_PRODUCT or node.domain != _CONTRIB or not {"K", "N"} <= sizes.keys():
        return None
    weight = f"{node.output[0]}:weight"
    graph.initializer.append(TensorProto(name=weight, data_type=TensorProto.FLOAT, dims=[sizes["K"], sizes["N"]]))
    return helper.make_node("MatMul", [node.input[0], weight], node.output[:1], node.name)


def infer_node(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> dict[str, TypeProto]:
    """Infer the types of one standard operator's outputs, by output name; empty if an input's type is unknown."""
    shape = shape_in_f32(node, editor)
    if shape is not None:
        return {node.output[0]: helper.make_tensor_type_proto(editor.element_type(node.input[0]), shape)}
    try:
        return _infer_strictly(node, editor, version)
    except _FAILURES:
        return {}


_FAILURES = (defs.SchemaError, shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError)


def _infer_strictly(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> dict[str, TypeProto]:
    read = {name for name in node.input if name}
    types = {name: kind for name in read if (kind := editor.type(name)) is not None}
    if node.domain or len(types) != len(read) or any(slices_negative(node, kind) for kind in types.values()):
        return {}
    if bodies_slice_negative(node):
        return {}
    values = {
        name: tensor for name in types if (tensor := editor.tensor(name)) and math.prod(tensor.dims) <= _VALUES_KEPT
    }
    schema = defs.get_schema(node.op_type, version.version, "")
    return dict(shape_inference.infer_node_outputs(schema, node, types, values, opset_imports=[version]))


def without_weights(model: ModelProto) -> ModelProto:
    """A copy of the model whose weights have types and no values. Small ones, which inference may read, keep theirs."""
    skeleton = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = skeleton.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.value_info.extend(model.graph.value_info)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _VALUES_KEPT:
            graph.initializer.append(tensor)
        else:
            graph.initializer.append(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    _shorten_steps(graph)
    return skeleton


def _shorten_steps(graph: GraphProto) -> None:
    """Limit the steps of a ``Slice`` to what passes any dimension: with larger ones, inference counts without end."""
    steps = {node.input[_STEPS] for node in graph.node if node.op_type == "Slice" and len(node.input) > _STEPS}
    for tensor in graph.initializer:
        if tensor.name in steps and tensor.data_type == TensorProto.INT64:
            values = to_array(tensor)
            if np.abs(values.astype(np.float64)).max(initial=0.0) > MAX_DIMENSION:
                tensor.CopyFrom(numpy_helper.from_array(values.clip(-MAX_DIMENSION, MAX_DIMENSION), tensor.name))


def _contradiction(message: str, model: ModelProto) -> str:
    """The sentence for what inference says, which names the node by its name alone."""
    match = _INFERENCE.search(message)
    node = next(
        (candidate for candidate in model.graph.node if match is not None and candidate.name == match["node"]), None
    )
    if match is None or node is None:
        refused = _first_refused(model)
        what = f"the model's shapes contradict each other at {describe_node(refused)}" if refused else _CONTRADICTION
        return f"{what}: {message}; export the model again"
    return f"{describe_node(node)} contradicts the types or shapes around it: {match['reason']}; export the model again"


_CONTRADICTION = "the model's shapes contradict each other"


def _first_refused(model: ModelProto) -> NodeProto | None:
    """The first node whose types cannot be inferred from its operands alone; inference does not always name it."""
    editor = GraphEditor(model.graph)
    version = helper.make_opsetid("", opset(model))
    for node in editor.nodes:
        try:
            for name, kind in _infer_strictly(node, editor, version).items():
                editor.set_type(name, kind)
        except _FAILURES:
            return node
    return None


def _take_types(graph: GraphProto, inferred: GraphProto) -> None:
    has_bodies = any(_has_body(node) for node in inferred.node)
    if has_bodies:
        del graph.node[:]
        graph.node.extend(inferred.node)
    del graph.output[:]
    graph.output.extend(inferred.output)
    signature = {value.name for value in (*graph.input, *graph.output)}
    known = [
        value
        for value in inferred.value_info
        if value.name not in signature and _has_shape(value) and not _is_made_up(value)
    ]
    del graph.value_info[:]
    graph.value_info.extend(known)
    _type_constant_outputs(graph)


def _type_loop_outputs(graph: GraphProto) -> None:
    """Set types of loops' results whose bodies declare that they keep their shape, which inference does not read."""
    described = {value.name: value for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if node.op_type != "Loop" or node.domain:
            continue
        body = next(subgraphs(node), GraphProto())
        carried = zip(node.output, body.input[2:], body.output[1:], strict=False)
        for name, before, after in carried:
            kept, known = static_shape(before.type), described.get(name)
            if not name or kept is None or kept != static_shape(after.type):
                continue
            if known is None:
                graph.value_info.append(ValueInfoProto(name=name, type=before.type))
            elif not _has_shape(known):
                known.type.CopyFrom(before.type)


def _is_made_up(value: ValueInfoProto) -> bool:
    """Whether inference gave a name to a size that it does not know; it would keep the name where it can know later."""
    return value.type.HasField("tensor_type") and any(
        dim.dim_param.startswith(_MADE_UP) for dim in value.type.tensor_type.shape.dim
    )


def _type_constant_outputs(graph: GraphProto) -> None:
    """Set types of outputs that were folded to constants; inference sets types of computed values only."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for value in graph.output:
        if value.name in constants:
            tensor = constants[value.name]
            value.type.CopyFrom(helper.make_tensor_type_proto(tensor.data_type, tensor.dims))


def _has_shape(value: ValueInfoProto) -> bool:
    return not value.type.HasField("tensor_type") or value.type.tensor_type.HasField("shape")


def _has_body(node: NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
