"""Expands quantised operators, those of classical machine learning and ONNX Runtime's own to standard ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import UnknownTypeError
from sartor.onnx_model.graphs.graph import GraphEditor, editors
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.graphs.open_shapes import why_open
from sartor.onnx_model.graphs.walk import describe_node, nodes
from sartor.onnx_model.operator_types.schemas import CONTRIB_DOMAIN
from sartor.onnx_model.rewrites.number_types import quantized
from sartor.onnx_model.rewrites.number_types.quantized import Lowering
from sartor.onnx_model.rewrites.operator_sets.classical.operators import CLASSICAL_DOMAIN, classical
from sartor.onnx_model.rewrites.operator_sets.contrib.attention import ATTENTION
from sartor.onnx_model.rewrites.operator_sets.contrib.blocks.block_quantised import BLOCK_QUANTISED, is_kept
from sartor.onnx_model.rewrites.operator_sets.contrib.counterparts import COUNTERPARTS
from sartor.onnx_model.rewrites.operator_sets.contrib.experts import EXPERTS, EXPERTS_ALIKE
from sartor.onnx_model.rewrites.operator_sets.contrib.fused_floats import FUSED_FLOATS
from sartor.onnx_model.rewrites.operator_sets.contrib.group_norm import GROUP_NORM
from sartor.onnx_model.rewrites.operator_sets.contrib.grouped_attention import GROUPED_ATTENTION
from sartor.onnx_model.rewrites.operator_sets.contrib.inverse import INVERSE
from sartor.onnx_model.rewrites.operator_sets.contrib.masked_decoding import MASKED_DECODING
from sartor.onnx_model.rewrites.operator_sets.contrib.quantised_attention import QUANTISED_ATTENTION
from sartor.onnx_model.rewrites.operator_sets.contrib.rotary import ROTARY
from sartor.onnx_model.rewrites.recurrence.recurrent import unrolled_quantised

_Lowerings = Mapping[str, Mapping[str, Lowering]]
"""By domain and operator."""

_LOWERINGS: _Lowerings = {
    "": quantized.STANDARD,
    CONTRIB_DOMAIN: {
        **quantized.CONTRIB,
        **ATTENTION,
        **BLOCK_QUANTISED,
        **COUNTERPARTS,
        **EXPERTS,
        **FUSED_FLOATS,
        **GROUP_NORM,
        **GROUPED_ATTENTION,
        **INVERSE,
        **MASKED_DECODING,
        **QUANTISED_ATTENTION,
        **ROTARY,
        "DynamicQuantizeLSTM": unrolled_quantised,
    },
}
CONTRIB_OPERATORS = frozenset(_LOWERINGS[CONTRIB_DOMAIN])


def expand_alike(model: ModelProto) -> tuple[str, ...]:
    """As ``expand_operators``, to the same nodes whatever the sizes of the model's inputs are."""
    return expand_operators(model, EXPERTS_ALIKE)


def expand_operators(model: ModelProto, own: Mapping[str, Lowering] = MappingProxyType({})) -> tuple[str, ...]:
    """Expand every operator in the tables, until nothing changes, as an expansion may need another one's shapes.

    Args:
        model: is changed.
        own: expansions of operators of ONNX Runtime in the place of those in the tables.

    Returns:
        The names of the expanded nodes.

    Raises:
        UnsupportedModelError: an expansion needs an unknown shape, or the node has options that are not supported.
    """
    changed, contrib = list[str](), {**_LOWERINGS[CONTRIB_DOMAIN], **own}
    lowerings = {**_LOWERINGS, CONTRIB_DOMAIN: contrib, CLASSICAL_DOMAIN: classical(_classical_version(model))}
    while True:
        infer_shapes(model)
        expanded = [name for editor in editors(model.graph) for name in _expand(editor, lowerings)]
        changed.extend(expanded)
        if not expanded:
            break
    _check_none_left(model, lowerings)
    _drop_domain(model)
    return tuple(changed)


def _classical_version(model: ModelProto) -> int:
    return next((item.version for item in model.opset_import if item.domain == CLASSICAL_DOMAIN), 1)


def _expand(editor: GraphEditor, lowerings: _Lowerings) -> tuple[str, ...]:
    def rule(node: NodeProto) -> list[NodeProto] | None:
        lowering = lowerings.get(node.domain, {}).get(node.op_type)
        try:
            return lowering(node, editor) if lowering else None
        except UnknownTypeError:
            # It may be known when what computes it is expanded.
            return None

    return editor.rewrite(rule)


def _check_none_left(model: ModelProto, lowerings: _Lowerings) -> None:
    for editor in editors(model.graph):
        for node in editor.nodes:
            if node.op_type in lowerings.get(node.domain, {}) and not is_kept(node, editor):
                raise UnsupportedModelError(
                    f"{describe_node(node)} can only be expanded where the shapes of its inputs are known: "
                    f"{why_open(node.input, editor)}"
                )


def _drop_domain(model: ModelProto) -> None:
    """Remove declarations of domains that no node is of any more."""
    used = {"", "ai.onnx", *(node.domain for node in nodes(model.graph))}
    for index in reversed(range(len(model.opset_import))):
        if model.opset_import[index].domain not in used:
            del model.opset_import[index]
