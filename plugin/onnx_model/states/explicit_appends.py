"""Writes attention over caches that grow as nodes, ONNX Runtime's operators and ONNX's own: what appends to a cache is
one of them.

Each becomes the operator for grouped queries, and that becomes nodes (``appending_attention.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onnx import ModelProto, NodeProto, TensorProto

from sartor.onnx_model.graphs.graph import GraphEditor, attributes, opset, optional_input
from sartor.onnx_model.rewrites.operator_sets.contrib.cached_codes import has_codes, unsupported_codes
from sartor.onnx_model.states.appending_attention import (
    COMPUTED,
    PAST_KEY,
    PAST_VALUE,
    Attention,
    Hidden,
    SeveralPositions,
)
from sartor.onnx_model.states.attention_forms import MICROSOFT, Form, common_form
from sartor.onnx_model.states.call_sizes import tokens_of
from sartor.onnx_model.states.standard_attention import StandardAttention

OPERATOR = "GroupQueryAttention"
_K_SCALE, _LAST_SCALE = 12, 13
_ATTRIBUTES = frozenset(
    {
        *("do_rotary", "kv_num_heads", "num_heads", "rotary_interleaved", "scale"),
        *("local_window_size", "smooth_softmax", "softcap"),
    }
)
# Of norms whose weights are inputs that are absent.
_UNREAD = frozenset({"k_norm_epsilon", "q_norm_epsilon", "qk_norm_epsilon"})
# Values that say that the node does nothing else, as exporters write them out.
_OFF: dict[str, tuple[float | str, ...]] = {
    "causal": (0, 1),
    "k_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
    "kv_cache_bit_width": (0, 8),
    "qk_output": (0,),
    "sliding_window_cache": (0,),
    "v_quant_type": ("NONE", "PER_TENSOR", "PER_CHANNEL"),
}
_RANK, _STACKED_RANK = 4, 5
_AXES_ARE_INPUTS = 13


def append_explicitly(model: ModelProto, *, several: bool = False) -> tuple[str, ...]:
    """Replace attentions over caches that are inputs of open length; returns the names of their nodes.

    Args:
        model: changed in place.
        several: whether a call has several new positions.
    """
    editor, hidden = GraphEditor(model.graph), Hidden()
    tokens = tokens_of(model)
    kind = partial(SeveralPositions if several else Attention, hidden, tokens)
    standard = StandardAttention(tokens, several=several)
    # What forms are written with takes axes as inputs.
    is_new = opset(model) >= _AXES_ARE_INPUTS

    def rule(node: NodeProto) -> list[NodeProto] | None:
        form = (common_form(node, editor) if is_new else None) or Form([], node, [])
        before, grouped, after = standard.grouped(form.node, editor) or ([], form.node, [])
        written = _explicit(grouped, editor, kind)
        if written is None:
            return None
        if grouped is not node:
            standard.keep(grouped)
        return [*form.before, *before, *written, *after, *form.after]

    return editor.rewrite(rule)


def _explicit(
    node: NodeProto, editor: GraphEditor, kind: Callable[[NodeProto, GraphEditor, int], Attention]
) -> list[NodeProto] | None:
    if node.op_type != OPERATOR or node.domain != MICROSOFT or not _is_usual(node):
        return None
    if has_codes(node) and (unsupported_codes(node, editor) or not _is_single(node, editor)):
        return None
    names = [optional_input(node, index) for index in (PAST_KEY, PAST_VALUE)]
    dims, rank = [_dims(name, editor) for name in names], _STACKED_RANK if names[0] == names[1] else _RANK
    if any(len(dim) != rank or dim[-2] or not dim[-1] for dim in dims):
        return None
    return kind(node, editor, dims[0][-1]).nodes()


def _is_usual(node: NodeProto) -> bool:
    """Whether the node has nothing that its nodes would not compute, as a window of no key."""
    settings = attributes(node)
    if settings.get("local_window_size", -1) == 0 or (
        settings.get("local_window_size", -1) > 0 and not settings.get("causal", 1)
    ):
        return False
    named = all(name in _ATTRIBUTES | _UNREAD or value in _OFF.get(name, ()) for name, value in settings.items())
    others = any((*node.input[_LAST_SCALE + 1 :], *node.output[3:]))
    others |= not has_codes(node) and any(node.input[_K_SCALE:])
    return named and not others and all(len(node.output) > index for index in (1, 2))


def _is_single(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether attention computes in float32, as the scales of codes are: its operands or tables tell."""
    kinds = {editor.element_type(name) for index in COMPUTED if (name := optional_input(node, index))}
    return TensorProto.FLOAT in kinds and kinds <= {0, TensorProto.FLOAT}


def _dims(name: str, editor: GraphEditor) -> list[int]:
    """Sizes of an input, 0 where they are open; none of what is no input."""
    kind = editor.type(name) if name and editor.producer(name) is None else None
    return [] if kind is None else [max(0, dim.dim_value) for dim in kind.tensor_type.shape.dim]
