"""Inlines the functions that a model defines."""

from __future__ import annotations

import onnx.inliner
from onnx import ModelProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.names import name_inlined
from sartor.onnx_model.graphs.walk import nodes


def inline_functions(model: ModelProto) -> tuple[str, ...]:
    """Inline calls of model-local functions; returns the names of the calls.

    ``load_model`` has checked that this ends and that the result is not too large.

    Raises:
        UnsupportedModelError: a function cannot be inlined.
    """
    local = {(function.domain, function.name) for function in model.functions}
    calls = [node for node in nodes(model.graph) if (node.domain, node.op_type) in local]
    called = tuple(node.name or node.op_type for node in calls)
    callers = {output: node.name for node in calls for output in node.output if output and node.name}
    if not called:
        del model.functions[:]
        return ()
    declared = {item.domain: item.version for item in model.opset_import}
    try:
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    except RuntimeError as error:
        raise UnsupportedModelError(f"the model's function '{called[0]}' cannot be inlined: {error}") from None
    model.CopyFrom(inlined)
    name_inlined(model, callers)
    present = {item.domain for item in model.opset_import}
    missing = [helper.make_opsetid(domain, version) for domain, version in declared.items() if domain not in present]
    model.opset_import.extend(missing)
    return called
