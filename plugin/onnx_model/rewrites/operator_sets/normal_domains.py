"""Normalises the spelling of operator domains."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.graph import opset
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.operator_types.schemas import CONTRIB_DOMAIN, UNDECLARED_CONTRIB

_LAYER_NORMALIZATION_OPSET = 17


def normal_domains(model: ModelProto) -> tuple[str, ...]:
    """Write the standard domain as the empty string, and give ONNX Runtime's operators without a domain its domain.

    Returns:
        The names of nodes that got ONNX Runtime's domain.
    """
    version = opset(model)
    for item in model.opset_import:
        item.domain = "" if item.domain == "ai.onnx" else item.domain
    changed: list[str] = []
    for node in nodes(model):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
        if lacks_domain(node, version):
            node.domain = CONTRIB_DOMAIN
            changed.append(node.name)
    declare_contrib(model)
    return tuple(changed)


def declare_contrib(model: ModelProto) -> None:
    """Import ONNX Runtime's domain if it is used: shape inference requires that, ONNX Runtime does not."""
    used = any(node.domain == CONTRIB_DOMAIN for node in nodes(model))
    if used and all(item.domain != CONTRIB_DOMAIN for item in model.opset_import):
        model.opset_import.append(helper.make_opsetid(CONTRIB_DOMAIN, 1))


def lacks_domain(node: NodeProto, version: int) -> bool:
    """Whether a node is one of ONNX Runtime's operators without its domain, in a model of an opset."""
    is_standard = node.op_type == "LayerNormalization" and version >= _LAYER_NORMALIZATION_OPSET
    return not node.domain and node.op_type in UNDECLARED_CONTRIB and not is_standard
