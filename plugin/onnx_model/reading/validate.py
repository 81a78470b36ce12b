"""Refuses models that are damaged, too large or recursive, or use unknown operators, before other code reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from google.protobuf.message import Message
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, defs

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.limits import MAX_DIMENSION, MAX_FUNCTION_DEPTH, MAX_MODEL_BYTES, MAX_NODES
from sartor.onnx_model.graphs.tensor_data import check_stored_data, stored_bytes
from sartor.onnx_model.graphs.walk import describe_node, messages, nodes, tensors
from sartor.onnx_model.operator_types.schemas import BLOCKED_DOMAIN, CONTRIB_DOMAIN, UNDECLARED_CONTRIB
from sartor.onnx_model.reading.attribute_ranges import check_attribute_ranges, check_attribute_types
from sartor.onnx_model.reading.external_data import is_external
from sartor.onnx_model.rewrites.operator_sets.classical.operators import (
    CLASSICAL,
    CLASSICAL_DOMAIN,
    CLASSICAL_REASONS,
)
from sartor.onnx_model.rewrites.operator_sets.contrib.blocked import BLOCKED_OPERATORS
from sartor.onnx_model.rewrites.operator_sets.contrib.refused import CONTRIB_REASONS, DOMAIN_REASONS
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS
from sartor.onnx_model.rewrites.operator_sets.expand_standard import PREVIEW, PREVIEW_DOMAIN
from sartor.onnx_model.rewrites.operator_sets.experimental import EXPERIMENTAL, LAST_OPSET, REFUSED
from sartor.onnx_model.rewrites.operator_sets.training import OPTIMISERS, TRAINING_DOMAIN

_STANDARD_DOMAINS = ("", "ai.onnx")
# Operators of other domains that can be compiled.
_KNOWN_OPERATORS: Mapping[str, Collection[str]] = {
    BLOCKED_DOMAIN: BLOCKED_OPERATORS,
    CLASSICAL_DOMAIN: CLASSICAL,
    CONTRIB_DOMAIN: CONTRIB_OPERATORS,
    PREVIEW_DOMAIN: PREVIEW,
    TRAINING_DOMAIN: OPTIMISERS,
}

_REASONS: Mapping[str, Mapping[str, str]] = {CLASSICAL_DOMAIN: CLASSICAL_REASONS, CONTRIB_DOMAIN: CONTRIB_REASONS}
"""Why operators of these domains are refused."""

_FunctionId = tuple[str, str, str]


def check_structure(model: ModelProto) -> None:
    """Check counts, names and declared sizes, before any weights are read.

    Raises:
        UnsupportedModelError: one of them is wrong.
    """
    _check_text(model)
    count = sum(1 for _ in nodes(model))
    if count > MAX_NODES:
        raise UnsupportedModelError(f"the model has {count} nodes, more than the {MAX_NODES} that are supported")
    sizes = [(stored_bytes(tensor, what), is_external(tensor)) for tensor, what in tensors(model)]
    # What lies in other files is bounded by these, when it is read.
    total = sum(size for size, is_beside in sizes if not is_beside)
    if total > MAX_MODEL_BYTES:
        raise UnsupportedModelError(
            f"the model declares {total} bytes of weights, more than the {MAX_MODEL_BYTES} that are read"
        )
    if not model.graph.output:
        raise UnsupportedModelError("the model has no outputs; nothing would be computed")


def check_model(model: ModelProto) -> None:
    """Check data, dimensions, opsets, functions and operators of a model whose external data has been read.

    Sizes that it declares as negative are open then.

    Raises:
        UnsupportedModelError: one of them is wrong; the message names the tensor or node.
    """
    for tensor, what in tensors(model):
        check_stored_data(tensor, what)
    _check_dimensions(model)
    _check_functions(model)
    functions = {_function_id(function) for function in model.functions}
    _check_operators(model.graph, _opsets(model.opset_import), functions)
    for function in _called(model):
        _check_operators(function, _opsets(function.opset_import), functions)


def _check_text(model: ModelProto) -> None:
    """Refuse names that are not UTF-8: reading one later would give bytes or raise UnicodeDecodeError."""
    try:
        valid = all(_is_text(message) for message, _ in messages(model))
    except UnicodeDecodeError:
        valid = False
    if not valid:
        raise UnsupportedModelError("the model has a name that is not valid text; the file is damaged")


def _is_text(message: Message) -> bool:
    for field in message.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING:
            value = getattr(message, field.name)
            if not all(isinstance(text, str) for text in (value if field.is_repeated else (value,))):
                return False
    return True


def _check_dimensions(model: ModelProto) -> None:
    """Refuse sizes that nothing can have, and open negative ones: so some exporters write what is not known."""
    for message, owner in messages(model):
        if isinstance(message, TensorShapeProto.Dimension) and message.dim_value > MAX_DIMENSION:
            where = f" of {owner}" if owner else ""
            raise UnsupportedModelError(f"a declared shape{where} has the impossible dimension {message.dim_value}")
        if isinstance(message, TensorShapeProto.Dimension) and message.dim_value < 0:
            message.ClearField("dim_value")


def _function_id(item: FunctionProto | NodeProto) -> _FunctionId:
    name = item.name if isinstance(item, FunctionProto) else item.op_type
    return _standard(item.domain), name, item.overload


def _standard(domain: str) -> str:
    return "" if domain in _STANDARD_DOMAINS else domain


def _check_functions(model: ModelProto) -> None:
    """Check that inlining ends and does not grow the graph exponentially (A calls B twice, B calls C twice …)."""
    bodies = {_function_id(function): function for function in model.functions}
    if len(bodies) < len(model.functions):
        identities = Counter(map(_function_id, model.functions))
        (_, name, _), _ = identities.most_common(1)[0]
        raise UnsupportedModelError(f"the model defines the function {name!r} twice; the file is damaged")
    sizes: dict[_FunctionId, int] = {}
    for identity in bodies:
        _inlined_size(identity, bodies, sizes, ())
    total = sum(sizes.get(_function_id(node), 1) for node in nodes(model.graph))
    if total > MAX_NODES:
        raise UnsupportedModelError(f"the model expands to {total} nodes, more than the {MAX_NODES} that are supported")


def _inlined_size(
    identity: _FunctionId,
    bodies: Mapping[_FunctionId, FunctionProto],
    sizes: dict[_FunctionId, int],
    callers: tuple[_FunctionId, ...],
) -> int:
    if identity in callers:
        raise UnsupportedModelError(f"the model's function {identity[1]!r} calls itself, which ONNX does not allow")
    if len(callers) > MAX_FUNCTION_DEPTH:
        raise UnsupportedModelError(f"the model's functions call each other more than {MAX_FUNCTION_DEPTH} deep")
    if identity not in sizes:
        inner = partial(_inlined_size, bodies=bodies, sizes=sizes, callers=(*callers, identity))
        called = [_function_id(node) for node in nodes(bodies[identity])]
        sizes[identity] = sum(inner(callee) if callee in bodies else 1 for callee in called)
    if sizes[identity] > MAX_NODES:
        raise UnsupportedModelError(
            f"the model's function {identity[1]!r} expands to {sizes[identity]} nodes, more than the {MAX_NODES} "
            "that are supported"
        )
    return sizes[identity]


def _called(model: ModelProto) -> list[FunctionProto]:
    """The functions that the graph calls, directly or by others; what is in the others does not matter."""
    bodies = {_function_id(function): function for function in model.functions}
    functions: dict[_FunctionId, FunctionProto] = {}
    waiting = [_function_id(node) for node in nodes(model.graph)]
    while waiting:
        identity = waiting.pop()
        if identity in bodies and identity not in functions:
            functions[identity] = bodies[identity]
            waiting += [_function_id(node) for node in nodes(bodies[identity])]
    return list(functions.values())


def _opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    versions = {_standard(item.domain): item.version for item in imports}
    newest = defs.onnx_opset_version()
    version = versions.get("")
    if version is not None and not 1 <= version <= newest:
        raise UnsupportedModelError(f"the model uses ONNX opset {version}; opsets 1 to {newest} are known")
    return versions


def _check_operators(body: GraphProto | FunctionProto, opsets: Mapping[str, int], functions: set[_FunctionId]) -> None:
    for node in nodes(body):
        if _function_id(node) not in functions:
            _check_operator(node, opsets)
            check_attribute_ranges(node)


def _check_operator(node: NodeProto, opsets: Mapping[str, int]) -> None:
    domain = _standard(node.domain)
    if reason := DOMAIN_REASONS.get(domain) or _REASONS.get(domain, {}).get(node.op_type):
        raise UnsupportedModelError(f"{describe_node(node)} {reason}")
    if domain and domain not in _KNOWN_OPERATORS:
        raise UnsupportedModelError(
            f"{describe_node(node)} is from the operator set {domain!r}, which is not known; "
            "export the model with standard operators, or with the operator as an ONNX function"
        )
    if domain:
        if node.op_type in _KNOWN_OPERATORS[domain]:
            return
        if domain == CONTRIB_DOMAIN:
            raise UnsupportedModelError(
                f"{describe_node(node)} is an ONNX Runtime operator that is not supported; "
                "export the model without ONNX Runtime's own fusions"
            )
        raise UnsupportedModelError(f"{describe_node(node)} is an operator that is not supported")
    if "" not in opsets:
        raise UnsupportedModelError(
            f"the model declares no version of the ONNX operators that {describe_node(node)} uses; "
            "export it with an opset_import"
        )
    if node.op_type in EXPERIMENTAL and opsets[""] <= LAST_OPSET:
        return
    if node.op_type in REFUSED:
        raise UnsupportedModelError(
            f"{describe_node(node)} {REFUSED[node.op_type]}; export the model with opset 17, or without this operator"
        )
    try:
        declared = _declared(node.op_type, opsets[""])
    except defs.SchemaError:
        if node.op_type in UNDECLARED_CONTRIB:
            return
        raise UnsupportedModelError(
            f"{describe_node(node)} is not an operator of ONNX opset {opsets['']}; "
            "export the model with operators of the opset that it declares"
        ) from None
    if missing := sorted(declared.required - {attribute.name for attribute in node.attribute}):
        raise UnsupportedModelError(f"{describe_node(node)} lacks the attribute '{missing[0]}'; export the model again")
    check_attribute_types(node, declared.types)


@dataclass(frozen=True)
class _Declared:
    """What a standard operator declares about its attributes.

    Attributes:
        required: those that it must have; what reads a model later relies on them.
        types: ``AttributeProto.AttributeType`` by name.
    """

    required: frozenset[str]
    types: Mapping[str, int]


@cache
def _declared(operator: str, opset: int) -> _Declared:
    """What an operator of an opset declares.

    Raises:
        SchemaError: if the opset has no such operator.
    """
    # The stubs do not know that the types are an enumeration.
    attributes: Mapping[str, Any] = defs.get_schema(operator, opset, "").attributes
    required = frozenset(name for name, attribute in attributes.items() if attribute.required)
    return _Declared(required, {name: int(attribute.type.value) for name, attribute in attributes.items()})
