"""Finds the node for which ONNX Runtime refuses a model, as some of its messages do not say which."""

from __future__ import annotations

import math

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import GraphEditor, static_shape
from sartor.onnx_model.graphs.walk import describe_node, subgraphs
from sartor.runtime.reference import OnnxRuntimeReference

# Weights are not needed to create a node, and values of shapes and axes are.
_VALUES_KEPT = 1024
# A session of one node takes about a millisecond.
_MOST_TRIED = 1000
# A node is run only if it reads no more than takes a moment.
_MOST_READ = 2**22
# Types of which a zero is like any other number: integers may be steps, divisors or indices.
_PLAIN = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
_NOT_IMPLEMENTED = "Could not find an implementation"


def naming_refused_node(error: UnsupportedModelError, model: ModelProto) -> UnsupportedModelError:
    """The refusal of a model by ONNX Runtime, with the first node that it refuses alone for the same reason.

    Args:
        error: of ``OnnxRuntimeReference``; returned as it is if it names a node.
        model: the refused model, or its prepared form.
    """
    if "node '" in str(error):
        return error
    editor, seen = GraphEditor(model.graph), set[bytes]()
    for node in editor.nodes:
        alone = _model_of(node, editor, model)
        kind = _kind(node, alone)
        if kind in seen or any(True for _ in subgraphs(node)):
            continue
        if len(seen) == _MOST_TRIED:
            break
        seen.add(kind)
        try:
            OnnxRuntimeReference(alone.SerializeToString(), threads=1, cuts=False)
        except UnsupportedModelError as refusal:
            if str(refusal) == str(error):
                lead, _, reason = str(error).partition(": ")
                return UnsupportedModelError(f"{lead}: {describe_node(node)}: {reason}")
    return error


def reason_alone(node: NodeProto, model: ModelProto) -> str:
    """Why a node is not valid in ONNX Runtime's words; an empty text if it is, or that is not known.

    It is loaded alone. If it reads numbers of which no value is special, it also runs, on zeros: some operators check
    shapes only then. What ONNX Runtime merely does not implement may be valid.

    Args:
        node: of the main graph.
        model: with types of what the node reads.
    """
    editor = GraphEditor(model.graph)
    alone = _model_of(node, editor, model)
    types = {value.name: value.type for value in alone.graph.input}
    shapes = [static_shape(type_of_value) for type_of_value in types.values()]
    known = [shape for shape in shapes if shape is not None]
    if any(True for _ in subgraphs(node)) or len(known) < len(shapes) or sum(map(math.prod, known)) > _MOST_READ:
        return ""
    try:
        reference = OnnxRuntimeReference(alone.SerializeToString(), threads=1, optimises=False, cuts=False)
        kinds = [type_of_value.tensor_type.elem_type for type_of_value in types.values()]
        if all(kind in _PLAIN for kind in kinds):
            zeros = (
                np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind)) for shape, kind in zip(known, kinds, strict=True)
            )
            reference(dict(zip(types, zeros, strict=True)))
    except (UnsupportedModelError, UsageError) as error:
        said = str(error).partition(": ")[2]
        reason = said.partition("): ")[2] if said.startswith("node '") else said
        return "" if _NOT_IMPLEMENTED in reason else reason
    return ""


def _model_of(node: NodeProto, editor: GraphEditor, model: ModelProto) -> ModelProto:
    """A model of one node, whose large weights are inputs."""
    graph = GraphProto(name="one", node=[node])
    for name in dict.fromkeys(operand for operand in node.input if operand):
        tensor = editor.tensor(name)
        if tensor is not None and math.prod(tensor.dims) <= _VALUES_KEPT:
            graph.initializer.append(tensor)
        elif tensor is not None:
            graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        else:
            graph.input.append(helper.make_value_info(name, editor.type(name) or TypeProto()))
    graph.output.extend(helper.make_value_info(name, editor.type(name) or TypeProto()) for name in node.output if name)
    return ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)


def _kind(node: NodeProto, alone: ModelProto) -> bytes:
    """What nodes that ONNX Runtime creates alike have in common: all but the names."""
    types = [value.type.SerializeToString() for value in alone.graph.input]
    values = [initializer.raw_data or initializer.SerializeToString() for initializer in alone.graph.initializer]
    attributes = [attribute.SerializeToString() for attribute in node.attribute]
    return b"\0".join([node.op_type.encode(), node.domain.encode(), *attributes, *types, *values])
