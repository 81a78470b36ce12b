"""A node of each of ONNX Runtime's operators, from which tests make models in each type that its schema allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto

Array = np.ndarray[Any, Any]
Operand = Sequence[int] | Array | None


@dataclass(frozen=True)
class Sample:
    """A node.

    Attributes:
        operands: in the order of the schema: the shape of an input, the values of a constant (which are cast to the
            type), or None for one that is left out.
        results: how many there are.
        attributes: of the node.
        allowed: element types by type name, where the schema allows some that no kernel has.
        names: type names of operands, where the schema gives one for several.
    """

    operands: Sequence[Operand]
    results: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    allowed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    names: Sequence[str] = ()


def _values(*shape: int) -> Array:
    return np.arange(int(np.prod(shape))).reshape(shape) % 3 + 1


_X, _ROW = (2, 3, 8), _values(8)
_IMAGE, _LAST = (1, 4, 6, 6), (1, 6, 6, 4)
_ONE = np.asarray(1.0)
_NONE = np.asarray(0)
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_PAIR = (_X, _ONE, _NONE, _X, _ONE, _NONE, _ONE, _NONE)
_UNARY = (_X, _ONE, _NONE, _ONE, _NONE)
_TABLES = (_values(9, 8), _values(7, 8), _values(2, 8))
_IDS = (2, 3)

SAMPLES: Mapping[str, Sample] = {
    "Attention": Sample([_X, _values(8, 24), _values(24)], attributes={"num_heads": 2}),
    "BiasAdd": Sample([(2, 3, 320), _values(320), (2, 3, 320)]),
    "BiasGelu": Sample([_X, _ROW]),
    "BiasSoftmax": Sample([_X, (1, 1, 8)], attributes={"axis": 2, "is_inner_broadcast": 1}),
    "BiasSplitGelu": Sample([_X, _ROW]),
    "CDist": Sample([(3, 8), (4, 8)], attributes={"metric": "euclidean"}),
    "ConvTransposeWithDynamicPads": Sample([_IMAGE, _values(4, 2, 3, 3), np.array([1, 1, 0, 0])]),
    "DecoderMaskedMultiHeadAttention": Sample(
        [*[(2, 1, 8)] * 3, None, None, (2, 2, 5, 4), (2, 2, 5, 4), np.array([3])],
        3,
        {"num_heads": 2, "past_present_share_buffer": 1},
    ),
    "DequantizeLinear": Sample([_X, _ONE, _NONE]),
    "DynamicQuantizeLSTM": Sample(
        [
            *((4, 2, 3), _values(1, 3, 20), _values(1, 5, 20), None, None, None, None, None),
            *(_values(1), np.zeros(1), _values(1), np.zeros(1)),
        ],
        results=3,
        attributes={"hidden_size": 5},
    ),
    "DynamicQuantizeMatMul": Sample([_X, _values(8, 5), _ONE, _NONE, _values(5)]),
    "EmbedLayerNormalization": Sample([_IDS, _IDS, *_TABLES, _ROW, _ROW, _IDS], 3),
    "ExpandDims": Sample([_X, np.asarray(1)]),
    "FastGelu": Sample([_X, _ROW]),
    "FusedConv": Sample([_IMAGE, _values(2, 4, 3, 3), _values(2)], attributes={"activation": "Relu"}),
    "FusedGemm": Sample([(3, 8), _values(8, 5), _values(5)], attributes={"activation": "Relu"}, allowed={"T": _FLOATS}),
    "FusedMatMul": Sample([_X, (2, 5, 8)], attributes={"transB": 1, "alpha": 0.5}),
    "GatherBlockQuantized": Sample(
        [_values(9, 16), _IDS, _values(9, 1)], attributes={"bits": 4, "block_size": 32, "quantize_axis": 1}
    ),
    "GatherND": Sample([_X, np.array([[0, 1], [1, 2]])]),
    "Gelu": Sample([_X]),
    "GemmFastGelu": Sample([_X, _values(8, 5), _values(5)]),
    "GridSample": Sample([_IMAGE, (1, 3, 5, 2)], allowed={"T1": [TensorProto.FLOAT], "T2": [TensorProto.FLOAT]}),
    "GroupNorm": Sample([_LAST, _values(4), _values(4)], attributes={"groups": 2, "activation": 0}),
    "GroupQueryAttention": Sample(
        [(1, 3, 32), (1, 3, 16), (1, 3, 16), None, None, np.array([2], np.int32), np.array(3, np.int32)],
        3,
        attributes={"num_heads": 4, "kv_num_heads": 2},
    ),
    "Inverse": Sample([(2, 3, 3)]),
    "LayerNormalization": Sample([_X, _ROW, _ROW]),
    "MatMulInteger16": Sample([(3, 8), _values(8, 5)]),
    "MatMulIntegerToFloat": Sample([_X, _values(8, 5), _ONE, _ONE, _NONE, _NONE, _values(5)]),
    "MatMulNBits": Sample(
        [(2, 3, 32), _values(5, 1, 16), _values(5, 1)], attributes={"K": 32, "N": 5, "bits": 4, "block_size": 32}
    ),
    "MoE": Sample(
        [(3, 8), (3, 4), _values(4, 5, 8), _values(4, 5), _values(4, 8, 5), _values(4, 8)], attributes={"k": 2}
    ),
    "MultiHeadAttention": Sample([_X, _X, _X, _values(24)], attributes={"num_heads": 2}),
    "NhwcConv": Sample([_LAST, _values(2, 3, 3, 4), _values(2)]),
    "NhwcFusedConv": Sample([_LAST, _values(2, 4, 3, 3), _values(2)], attributes={"activation": "Relu"}),
    "NhwcMaxPool": Sample([_LAST], attributes={"kernel_shape": [2, 2]}),
    "Pad": Sample([(3, 8), np.array([1, 0, 0, 2])]),
    "QAttention": Sample(
        [_X, _values(8, 24), _values(24), _ONE, _ONE, None, _NONE, _NONE], attributes={"num_heads": 2}
    ),
    "QEmbedLayerNormalization": Sample([_IDS, _IDS, *_TABLES, _ROW, _ROW, _IDS, *[_ONE] * 5, *[_NONE] * 5], 2),
    "QMoE": Sample(
        [(3, 32), (3, 2), _values(2, 64, 16), _values(2, 64, 1), None, _values(2, 32, 16), _values(2, 32, 1)],
        attributes={"k": 1, "block_size": 32, "activation_type": "swiglu", "swiglu_fusion": 1},
        allowed={"T1": [TensorProto.UINT8]},
    ),
    "QGemm": Sample([(3, 8), _ONE, _NONE, _values(8, 5), _ONE, _NONE, _values(5), _ONE, _NONE]),
    "QLinearAdd": Sample(_PAIR),
    "QLinearAveragePool": Sample([_IMAGE, *_UNARY[1:]], attributes={"kernel_shape": [2, 2]}),
    "QLinearConcat": Sample(
        [_ONE, _NONE, _X, _ONE, _NONE, _X, _ONE, _NONE],
        attributes={"axis": 1},
        names=["TF", "T8", "T8", "TF", "T8", "T8", "TF", "T8"],
    ),
    "QLinearConv": Sample(
        [_LAST, _ONE, _NONE, _values(2, 4, 3, 3), _ONE, _NONE, _ONE, _NONE, _values(2)], attributes={"channels_last": 1}
    ),
    "QLinearGlobalAveragePool": Sample([_LAST, *_UNARY[1:]], attributes={"channels_last": 1}),
    "QLinearLeakyRelu": Sample(_UNARY),
    "QLinearMul": Sample(_PAIR),
    "QLinearReduceMean": Sample(_UNARY, attributes={"axes": [1], "keepdims": 0}),
    "QLinearSigmoid": Sample(_UNARY),
    "QLinearSoftmax": Sample(_UNARY, attributes={"opset": 13}),
    "QLinearWhere": Sample([_X, *_PAIR]),
    "QuantizeLinear": Sample([_X, _ONE, _NONE]),
    "QuickGelu": Sample([_X]),
    "Range": Sample([_NONE, np.asarray(6), np.asarray(2)]),
    "RotaryEmbedding": Sample([(2, 3, 8), np.tile(np.arange(3), (2, 1)), _values(5, 4), _values(5, 4)]),
    "SampleOp": Sample([_X]),
    "SimplifiedLayerNormalization": Sample([_X, _ROW]),
    "SkipGroupNorm": Sample(
        [_LAST, _values(4), _values(4), _LAST, _values(4)], 2, attributes={"groups": 2, "activation": 1}
    ),
    "SkipLayerNormalization": Sample([_X, _X, _ROW, _ROW, _ROW]),
    "SkipSimplifiedLayerNormalization": Sample([_X, _X, _ROW, _ROW]),
    "TorchEmbedding": Sample([_values(9, 8), _IDS]),
    "TransposeMatMul": Sample([_X, (2, 8, 5)], attributes={"transA": 0}),
    "Trilu": Sample([_X]),
    "UnfoldTensor": Sample([_X], attributes={"dim": 2, "size": 3, "step": 2}),
}
