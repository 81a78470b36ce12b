"""Inlines the functions that a model defines."""

from __future__ import annotations

from collections.abc import Mapping

import onnx.inliner
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.names import name_inlined
from sartor.onnx_model.graphs.walk import nodes

_FunctionId = tuple[str, str, str]


def inline_functions(model: ModelProto) -> tuple[str, ...]:
    """Inline calls of model-local functions; returns the names of the calls.

    ``load_model`` has checked that this ends and that the result is not too large.

    Raises:
        UnsupportedModelError: a function cannot be inlined.
    """
    local = {_id(function): function for function in model.functions}
    calls = [node for node in nodes(model.graph) if _id(node) in local]
    called = tuple(node.name or node.op_type for node in calls)
    callers = {output: node.name for node in calls for output in node.output if output and node.name}
    if not called:
        del model.functions[:]
        return ()
    _keep_called(model, local)
    _give_defaults(model, local)
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


def _id(item: FunctionProto | NodeProto) -> _FunctionId:
    return item.domain, item.name if isinstance(item, FunctionProto) else item.op_type, item.overload


def _keep_called(model: ModelProto, local: Mapping[_FunctionId, FunctionProto]) -> None:
    """Remove functions that nothing calls, which may not be valid."""
    called: set[_FunctionId] = set()
    waiting: list[GraphProto | FunctionProto] = [model.graph]
    while waiting:
        found = {_id(node) for node in nodes(waiting.pop())} & local.keys() - called
        called |= found
        waiting += [local[each] for each in sorted(found)]
    kept = [function for function in model.functions if _id(function) in called]
    del model.functions[:]
    model.functions.extend(kept)


def _give_defaults(model: ModelProto, local: Mapping[_FunctionId, FunctionProto]) -> None:
    """Write the default values of functions' attributes into the calls, as ``onnx.inliner`` 1.23 ignores them."""
    for node in nodes(model):
        function = local.get(_id(node))
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(each for each in (function.attribute_proto if function else ()) if each.name not in given)
