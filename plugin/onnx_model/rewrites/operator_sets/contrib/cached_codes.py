"""Caches in 8 bits of ONNX Runtime's GroupQueryAttention: codes and scales of keys and values.

New rows are rounded before they are attended to, as what a later call reads of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import NodeProto, TensorProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input

_PAST = (3, 4)
_SCALES = (12, 13)
_KINDS = ("k_quant_type", "v_quant_type")
_BITS = 8
_LEAST, _MOST = -128, 127


def has_codes(node: NodeProto) -> bool:
    """Whether the caches of a GroupQueryAttention are codes."""
    return any(attributes(node).get(kind, "NONE") != "NONE" for kind in _KINDS)


def unsupported_codes(node: NodeProto, editor: GraphEditor) -> str:
    """Why the codes of a node's caches cannot be read; empty if they can."""
    settings = attributes(node)
    if any(settings.get(kind, "NONE") not in ("PER_TENSOR", "PER_CHANNEL") for kind in _KINDS):
        return "caches of which one alone has codes"
    if settings.get("kv_cache_bit_width", _BITS) != _BITS:
        return f"caches of {settings['kv_cache_bit_width']} bits"
    caches = [name for index in _PAST if (name := optional_input(node, index))]
    if not all(optional_input(node, index) for index in _SCALES):
        return "codes without scales"
    if any(editor.element_type(name) not in (0, TensorProto.INT8) for name in caches):
        return "codes of another type than int8"
    return ""


@dataclass(frozen=True)
class CachedCodes:
    """The codes of the keys or of the values of one node.

    Attributes:
        emit: collects nodes.
        scale: name of the scales, [1, heads or 1, 1, width of a head or 1].
        like: name of a value of the type that attention computes in.
    """

    emit: Emitter
    scale: str
    like: str

    @staticmethod
    def of(emit: Emitter, index: int, groups: int, width: int, like: str) -> CachedCodes:
        """Those of keys, ``index`` 0, or of values, 1."""
        is_whole = attributes(emit.node)[_KINDS[index]] == "PER_TENSOR"
        shape = emit.constant([1, 1, 1, 1] if is_whole else [1, groups, 1, width], "scale_shape")
        scale = emit("Reshape", emit.node.input[_SCALES[index]], shape, part="scale_of_codes")
        kind = helper.np_dtype_to_tensor_dtype(emit.dtype(like))
        return CachedCodes(emit, emit("Cast", scale, part="scale_of_codes", to=kind), like)

    def rounded(self, rows: str) -> str:
        """The codes of rows, [batch, heads, positions, width of a head], as numbers of the type of the attention."""
        emit = self.emit
        near = emit("Round", emit("Div", rows, self.scale, part="to_codes"), part="nearest_codes")
        least, most = (emit.like(bound, self.like, "bound") for bound in (_LEAST, _MOST))
        return emit("Clip", near, least, most, part="codes")

    def stored(self, codes: str, output: str = "") -> str:
        """Codes as caches have them."""
        return self.emit("Cast", codes, part="stored_codes", output=output, to=TensorProto.INT8)

    def read(self, stored: str) -> str:
        """Codes as numbers of the type of the attention."""
        kind = helper.np_dtype_to_tensor_dtype(self.emit.dtype(self.like))
        return self.emit("Cast", stored, part="read_codes", to=kind)

    def values(self, codes: str) -> str:
        """What such numbers stand for."""
        return self.emit("Mul", codes, self.scale, part="of_codes")
