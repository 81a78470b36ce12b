"""One spelling for operator domains."""

from __future__ import annotations

from onnx import ModelProto

from sartor.onnx_model.graph import opset
from sartor.onnx_model.rewrites.expand_operators import CONTRIB_DOMAIN, UNDECLARED_CONTRIB
from sartor.onnx_model.walk import nodes

_LAYER_NORMALIZATION_OPSET = 17


def normal_domains(model: ModelProto) -> tuple[str, ...]:
    """Spell the standard domain as the empty string, and ONNX Runtime's undeclared operators as its own."""
    version = opset(model)
    for item in model.opset_import:
        item.domain = "" if item.domain == "ai.onnx" else item.domain
    changed: list[str] = []
    for node in nodes(model):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
        if not node.domain and node.op_type in UNDECLARED_CONTRIB and not _standard(node.op_type, version):
            node.domain = CONTRIB_DOMAIN
            changed.append(node.name)
    return tuple(changed)


def _standard(operator: str, version: int) -> bool:
    return operator == "LayerNormalization" and version >= _LAYER_NORMALIZATION_OPSET
