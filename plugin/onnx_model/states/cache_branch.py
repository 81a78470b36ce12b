"""Takes the branch for calls behind others of decoders that Optimum merges: a file has a decoder that takes caches and
another one that takes none, and an input says which of both computes a call.

A module that keeps caches computes all calls by the former. What it gives without computing it, in place of what the
latter alone computes, is no output then, and what it does not read no input.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import ModelProto, TensorProto, helper

from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.graphs.walk import names_read
from sartor.onnx_model.rewrites.control_flow.inline_if import inline_if
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.runtime.driver.bound_input import BoundInput
from sartor.runtime.driver.signature import TensorSpec

CHOICE = "use_cache_branch"
"""The name of the input that says whether caches are read."""


def take_cached_branch(model: ModelProto) -> tuple[BoundInput, ...]:
    """Take the branch, in place.

    Returns:
        What the model takes by inputs that it no longer has, and what those may be that it does not read; nothing for
        other models.
    """
    editor = GraphEditor(model.graph)
    choice = next((value for value in model.graph.input if value.name == CHOICE), None)
    readers = editor.consumers(CHOICE)
    if choice is None or not readers or editor.element_type(CHOICE) != TensorProto.BOOL:
        return ()
    if any(node.op_type != "If" or list(node.input) != [CHOICE] for node in readers):
        return ()
    chosen = np.ones([max(1, dim.dim_value) for dim in choice.type.tensor_type.shape.dim], np.bool_)
    model.graph.input.remove(choice)
    GraphEditor(model.graph).set_constant(CHOICE, chosen)
    inline_if(model)
    _drop_uncomputed_outputs(model)
    drop_unused(model)
    return _bound(CHOICE, chosen), *_unread(model)


def _bound(name: str, array: Array) -> BoundInput:
    return BoundInput(TensorSpec(name, array.dtype.name, array.shape), tuple(array.ravel().tolist()))


def _drop_uncomputed_outputs(model: ModelProto) -> None:
    """Drop outputs that are constants, or inputs by another name."""
    editor, graph = GraphEditor(model.graph), model.graph
    inputs = {value.name for value in graph.input}
    computed = set(inputs)
    for node in editor.nodes:
        # The body of a loop may read an input that is no operand of it.
        if not computed.isdisjoint(names_read(node)) and (node.op_type != "Identity" or node.input[0] not in inputs):
            computed.update(node.output)
    for value in [value for value in graph.output if value.name not in computed]:
        graph.output.remove(value)


def _unread(model: ModelProto) -> Iterator[BoundInput]:
    """Drop inputs that nothing reads; yields values that they may have, which have no elements where sizes are open."""
    editor = GraphEditor(model.graph)
    for value in [*model.graph.input]:
        if not editor.consumers(value.name) and not editor.is_output(value.name):
            tensor = value.type.tensor_type
            sizes = [max(0, dim.dim_value) for dim in tensor.shape.dim]
            yield _bound(value.name, np.zeros(sizes, helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
            model.graph.input.remove(value)
