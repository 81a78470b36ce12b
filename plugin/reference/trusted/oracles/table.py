"""Who is trusted for which operator, and why.

ONNX Runtime's CPU kernel is trusted wherever there is one, but for the exceptions of this table. Where there is none,
an operator is computed by its definition below; in a narrow float type by its kernel in float32, with results rounded
once; else by ``onnx.reference``, but for what is known to be wrong there. The definitions are written from ONNX
Runtime's kernels, their tests and schemas, and from ONNX's text, and never from the rewrites that they judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto

from sartor.onnx_model.graphs.walk import messages, nodes
from sartor.reference.trusted.oracles import (
    activations,
    attention,
    convolutions,
    experts,
    fills,
    masked_decoding,
    normalisations,
    packed_attention,
    quantised,
)
from sartor.reference.trusted.oracles.call import Definition

_MICROSOFT = "com.microsoft"
_WIDE_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
NARROW_FLOATS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""Types in which an operator without a kernel is computed in float32 and rounded."""
# Attributes that name the element type of a result.
_TYPES = frozenset({"dtype", "output_datatype", "output_dtype", "to"})
# Bits of codes in blocks that there is a kernel for, and the largest block of codes of the fewest bits.
_BITS, _LARGEST_OF_TWO = (2, 4, 8), 256
# Position of the group indices among the inputs.
_GROUPS = 4
_FOUR_BITS = frozenset({TensorProto.INT4, TensorProto.UINT4})

Operator = tuple[str, str]
"""A domain, empty for the standard one, and the operator's name."""


@dataclass(frozen=True)
class Oracle:
    """An operator's definition.

    Attributes:
        compute: the definition.
        source: what it was written from.
    """

    compute: Definition
    source: str


@dataclass(frozen=True)
class Deviation:
    """Nodes on which ONNX Runtime has a kernel and deviates from the definition.

    Attributes:
        applies: whether a node is one of them, by the element types of its inputs.
        compute: the definition.
        reason: how ONNX Runtime deviates.
    """

    applies: Callable[[NodeProto, Sequence[int | None]], bool]
    compute: Definition
    reason: str


def _is_cut(node: NodeProto, types: Sequence[int | None]) -> bool:
    to = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)
    return to in _FOUR_BITS and types[0] in (_WIDE_FLOATS | NARROW_FLOATS)


def _is_cut_like(node: NodeProto, types: Sequence[int | None]) -> bool:
    return types[1] in _FOUR_BITS and types[0] in (_WIDE_FLOATS | NARROW_FLOATS)


def _has_no_kernel(node: NodeProto, types: Sequence[int | None]) -> bool:
    """Whether a MatMulNBits has bits or blocks that ONNX Runtime's kernel refuses, or 2 bits whose groups are indices:
    these it multiplies by other numbers."""
    del types
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    bits, block = numbers.get("bits", 4), numbers.get("block_size", 0)
    has_groups = len(node.input) > _GROUPS and bool(node.input[_GROUPS])
    return bits not in _BITS or (bits == min(_BITS) and (block > _LARGEST_OF_TWO or has_groups))


DEVIATIONS: Mapping[Operator, Deviation] = {
    ("", "Cast"): Deviation(
        _is_cut, quantised.cut_to_four_bits, "it rounds floats to integers of four bits, where ONNX drops the fraction"
    ),
    ("", "CastLike"): Deviation(_is_cut_like, quantised.cut_to_four_bits, "as of Cast, which it becomes there"),
    (_MICROSOFT, "MatMulNBits"): Deviation(
        _has_no_kernel,
        quantised.product_by_blocks,
        "its CPU kernel takes 2, 4 and 8 bits, of which 2 in blocks of up to 256, but not 2 with group indices",
    ),
    (_MICROSOFT, "DecoderMaskedMultiHeadAttention"): Deviation(
        lambda node, types: masked_decoding.deviates(node),
        masked_decoding.masked_decoding,
        "its CPU kernel takes no packed operands and no caches that grow, and adds other rows to scores of beams",
    ),
    (_MICROSOFT, "MultiHeadAttention"): Deviation(
        lambda node, types: packed_attention.is_packed(node),
        packed_attention.packed_attention,
        "its CPU kernel takes no packed keys and values",
    ),
    (_MICROSOFT, "QMoE"): Deviation(
        lambda node, types: experts.rounds_tokens(node),
        experts.quantised_experts,
        "its CPU kernel rounds tokens to 8 bits before weights of 8 bits in blocks, whatever accuracy_level says",
    ),
}
"""What ONNX Runtime is not trusted with, though it has a kernel."""

_KERNEL = "the CUDA kernel and its tests in ONNX Runtime"

ORACLES: Mapping[Operator, Oracle] = {
    ("", "Attention"): Oracle(attention.attention, "ONNX's text"),
    ("", "ConstantFill"): Oracle(fills.constant_fill, "ONNX 1.2's text of experimental operators"),
    ("", "GivenTensorFill"): Oracle(fills.given_tensor_fill, "ONNX 1.2's text of experimental operators"),
    (_MICROSOFT, "BiasAdd"): Oracle(activations.bias_add, _KERNEL),
    (_MICROSOFT, "BiasSoftmax"): Oracle(activations.bias_softmax, _KERNEL),
    (_MICROSOFT, "BiasSplitGelu"): Oracle(activations.bias_split_gelu, _KERNEL),
    (_MICROSOFT, "FusedConv"): Oracle(convolutions.fused_conv, "its schema, for activations that its kernel refuses"),
    (_MICROSOFT, "FusedGemm"): Oracle(activations.fused_gemm, "its schema, for activations that its kernel refuses"),
    (_MICROSOFT, "GemmFastGelu"): Oracle(activations.gemm_fast_gelu, _KERNEL),
    (_MICROSOFT, "GroupNorm"): Oracle(normalisations.group_norm, _KERNEL),
    (_MICROSOFT, "LayerNormalization"): Oracle(normalisations.layer_normalization, "ONNX's text"),
    (_MICROSOFT, "NhwcConv"): Oracle(convolutions.nhwc_conv, _KERNEL),
    (_MICROSOFT, "NhwcFusedConv"): Oracle(convolutions.nhwc_fused_conv, "its schema and the tests of its CPU kernel"),
    (_MICROSOFT, "QLinearReduceMean"): Oracle(quantised.qlinear_reduce_mean, "its schema"),
    (_MICROSOFT, "SimplifiedLayerNormalization"): Oracle(
        normalisations.simplified_layer_normalization, "ONNX Runtime's schema and its CPU kernel in the standard domain"
    ),
    (_MICROSOFT, "SkipGroupNorm"): Oracle(normalisations.skip_group_norm, _KERNEL),
    (_MICROSOFT, "TorchEmbedding"): Oracle(activations.torch_embedding, "its schema"),
}
"""Definitions of operators for which ONNX Runtime's CPU provider has no kernel, or none for some of their forms: it
refuses masks that are shorter than the keys of Attention."""

WRONG_IN_EVALUATOR: Mapping[str, str] = {
    "Attention": "the output of scores with a softcap",
    "BatchNormalization": "statistics of single elements (spatial=0)",
    "ConvTranspose": "output_padding with output_shape",
    "GRU": "clip, and lengths of sequences",
    "LSTM": "clip, input_forget, and lengths of sequences",
    "LayerNormalization": "sums in f16",
    "LogSoftmax": "axes before opset 13",
    "RNN": "clip, and lengths of sequences",
    "Softmax": "axes before opset 13",
}
"""Standard operators that ONNX's evaluator in Python is not trusted with, and what it gets wrong."""
_EVALUATED_DOMAINS = ("", "ai.onnx.preview", "ai.onnx.preview.training")


def definition_of(node: NodeProto) -> Definition | None:
    """The definition of a node's operator, if there is one; whether it is needed is not asked."""
    key = (node.domain, node.op_type)
    if key in ORACLES:
        return ORACLES[key].compute
    return DEVIATIONS[key].compute if key in DEVIATIONS else None


def is_evaluated(node: NodeProto) -> bool:
    """Whether ONNX's evaluator in Python is trusted with a node."""
    return node.domain in _EVALUATED_DOMAINS and node.op_type not in WRONG_IN_EVALUATOR


def deviates(node: NodeProto, types: Sequence[int | None]) -> bool:
    """Whether ONNX Runtime has a kernel for a node and is not trusted with it."""
    known = DEVIATIONS.get((node.domain, node.op_type))
    return known is not None and known.applies(node, types)


def _is_suspect(node: NodeProto) -> bool:
    """Whether ONNX Runtime may not be the one that computes a node, by its operator alone."""
    key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
    return bool(key[0]) or key in ORACLES or key in DEVIATIONS


def is_vouched_by_definitions(model: ModelProto) -> bool:
    """Whether something else than ONNX Runtime's kernels may have to compute a node of a model."""
    return any(_is_suspect(node) for node in nodes(model)) or _has_bfloat16(model)


def _has_bfloat16(model: ModelProto) -> bool:
    """Whether a tensor, a declared value or an attribute that names a type is of bfloat16, also in bodies."""
    return any(_is_bfloat16(message) for message, _ in messages(model))


def _is_bfloat16(message: Message) -> bool:
    if isinstance(message, TensorProto):
        return message.data_type == TensorProto.BFLOAT16
    if isinstance(message, TypeProto.Tensor):
        return message.elem_type == TensorProto.BFLOAT16
    return isinstance(message, AttributeProto) and message.name in _TYPES and message.i == TensorProto.BFLOAT16
