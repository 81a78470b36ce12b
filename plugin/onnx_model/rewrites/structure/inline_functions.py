"""Inlines the functions that a model defines."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx.inliner
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.names import name_inlined
from sartor.onnx_model.graphs.walk import nodes

_LOG = logging.getLogger(__name__)
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
    _fill_calls(model, local)
    declared = {item.domain: item.version for item in model.opset_import}
    try:
        inlined = onnx.inliner.inline_local_functions(model, convert_version=True)
    except RuntimeError as error:
        # Its message is of the inliner's own code, with C++ paths.
        _LOG.debug("onnx.inliner: %s", error)
        raise UnsupportedModelError(
            f"the function of node '{called[0]}' cannot be inlined by ONNX's own inliner; check the model with "
            "onnx.checker, or export it without functions of its own"
        ) from None
    model.CopyFrom(inlined)
    name_inlined(model, callers)
    present = {item.domain for item in model.opset_import}
    missing = [helper.make_opsetid(domain, version) for domain, version in declared.items() if domain not in present]
    model.opset_import.extend(missing)
    return called


def _id(item: FunctionProto | NodeProto) -> _FunctionId:
    return item.domain, item.name if isinstance(item, FunctionProto) else item.op_type, item.overload


def _fill_calls(model: ModelProto, local: Mapping[_FunctionId, FunctionProto]) -> None:
    """Write default values of attributes into calls, and keep the functions that are called; others may not be valid.

    ``onnx.inliner`` 1.23 ignores defaults. A function that passes on an attribute that its call leaves out leaves it
    out as well, and is copied for such calls.
    """
    made: dict[tuple[_FunctionId, tuple[str, ...]], FunctionProto] = {}
    waiting: list[GraphProto | FunctionProto] = [model.graph]
    while waiting:
        for node in nodes(waiting.pop()):
            function = local.get(_id(node))
            if function is None:
                continue
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(default for default in function.attribute_proto if default.name not in given)
            absent = tuple(sorted({*function.attribute} - given))
            key = (_id(function), absent)
            if key not in made:
                made[key] = _without(function, absent)
                waiting.append(made[key])
            node.op_type = made[key].name
    del model.functions[:]
    model.functions.extend(made.values())


def _without(function: FunctionProto, absent: tuple[str, ...]) -> FunctionProto:
    """A function in which nodes do not have the attributes that they would take from absent ones."""
    copy = FunctionProto()
    copy.CopyFrom(function)
    if absent:
        copy.name = f"{function.name}/without/{'/'.join(absent)}"
    for node in nodes(copy):
        kept = [attribute for attribute in node.attribute if attribute.ref_attr_name not in absent]
        del node.attribute[:]
        node.attribute.extend(kept)
    return copy
