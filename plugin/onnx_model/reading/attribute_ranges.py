"""Refuses attributes out of their operator's range, by which ONNX's, ONNX Runtime's and IREE's own code crashes,
does not end, or computes something else than the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import AttributeProto, NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.limits import MAX_DIMENSION, MAX_RANK
from sartor.onnx_model.graphs.walk import describe_node

_Range = tuple[int, int]

# Values of tensors, and ends of a Slice, which stand for "to the end" if they are very large.
_ANY = frozenset({"Constant", "Slice"})
# In other domains integers may be data, such as the keys of ai.onnx.ml's LabelEncoder.
_DOMAINS = ("", "ai.onnx")
_TYPES = max(TensorProto.DataType.values())
# ONNX Runtime tries each number of words that an n-gram skips, and writes a number for each index.
_MOST_SKIPPED, _MOST_INDICES = 1 << 16, 1 << 24

_MOST_QUOTED = 60

_AXIS: _Range = (-MAX_RANK, MAX_RANK)
_FLAG: _Range = (0, 1)
_COUNT: _Range = (1, MAX_DIMENSION)
_ORDINAL: _Range = (0, MAX_DIMENSION)
_TYPE: _Range = (1, _TYPES)
_TYPE_OR_NONE: _Range = (0, _TYPES)
_SIZE: _Range = (-MAX_DIMENSION, MAX_DIMENSION)
_WHOLE: _Range = (-(2**63), 2**63 - 1)

_NAMED: Mapping[_Range, tuple[str, ...]] = {
    _AXIS: ("axes", "axis", "batch_axis", "time_axis"),
    _FLAG: (
        *("align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box"),
        *("count_include_pad", "detect_negative", "detect_positive", "exclude_outside", "exclusive", "fmod"),
        *("input_forget", "interleaved", "inverse", "is_causal", "is_test", "keepdims", "largest", "layout"),
        *("linear_before_reset", "new_axis", "noop_with_empty_axes", "onesided", "periodic", "reverse", "saturate"),
        *("select_last_index", "sorted", "spatial", "storage_order", "training_mode", "transA", "transB", "upper"),
    ),
    _COUNT: (
        *("blocksize", "dilations", "group", "groups", "hidden_size", "kernel_shape", "kv_num_heads", "num_groups"),
        *("num_heads", "num_outputs", "offset_group", "output_height", "output_width", "p", "pooled_shape"),
        *("q_num_heads", "size", "strides"),
    ),
    _ORDINAL: ("batch_dims", "block_size", "output_padding", "perm", "rotary_embedding_dim", "sampling_ratio"),
    _TYPE: ("dtype", "output_datatype", "stash_type", "to"),
    _TYPE_OR_NONE: ("output_dtype", "precision", "softmax_precision"),
}
_BY_NAME: Mapping[str, _Range] = {name: given for given, names in _NAMED.items() for name in names}
_BY_OPERATOR: Mapping[tuple[str, str], _Range] = {
    # A Conv is cropped by negative pads; to ONNX Runtime those of this one are an error.
    ("ConvInteger", "pads"): _ORDINAL,
    # Ends of what is taken, as of a Slice.
    ("Shape", "end"): _WHOLE,
    ("Shape", "start"): _WHOLE,
    ("TfIdfVectorizer", "max_gram_length"): _COUNT,
    ("TfIdfVectorizer", "max_skip_count"): (0, _MOST_SKIPPED),
    ("TfIdfVectorizer", "min_gram_length"): _COUNT,
    ("TfIdfVectorizer", "ngram_counts"): _ORDINAL,
    ("TfIdfVectorizer", "ngram_indexes"): (0, _MOST_INDICES),
    ("TfIdfVectorizer", "pool_int64s"): _WHOLE,
}
# The largest float32: NaN and infinities are out of range.
_MOST = 3.4028234663852886e38
# What the operator's definition makes of other numbers, ONNX Runtime takes for a switch, or computes NaN.
_REAL_BY_OPERATOR: Mapping[tuple[str, str], tuple[float, float]] = {
    ("Attention", "scale"): (-_MOST, _MOST),
    ("Attention", "softcap"): (0.0, _MOST),
    ("Clip", "max"): (-math.inf, math.inf),
    ("Clip", "min"): (-math.inf, math.inf),
    ("Elu", "alpha"): (-_MOST, _MOST),
    ("LRN", "alpha"): (-_MOST, _MOST),
    ("LRN", "beta"): (-_MOST, _MOST),
    ("LRN", "bias"): (-_MOST, _MOST),
    ("LeakyRelu", "alpha"): (-_MOST, _MOST),
}
_AUTO_PADS = ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID")
# By other words ONNX Runtime or IREE crashes, or refuses the node without the word.
_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    **{(operator, "auto_pad"): _AUTO_PADS for operator in ("AveragePool", "Conv", "ConvInteger", "ConvTranspose")},
    **{(operator, "auto_pad"): _AUTO_PADS for operator in ("LpPool", "MaxPool", "QLinearConv")},
    ("DepthToSpace", "mode"): ("CRD", "DCR"),
    ("Pad", "mode"): ("constant", "edge", "reflect", "wrap"),
    ("Resize", "mode"): ("cubic", "linear", "nearest"),
}


def check_attribute_ranges(node: NodeProto) -> None:
    """Check the integers among a node's attributes, and numbers and words by which operators are not defined.

    Raises:
        UnsupportedModelError: one is out of range; the message names the node and the attribute.
    """
    if node.domain not in _DOMAINS or node.op_type in _ANY:
        return
    for attribute in node.attribute:
        # In a function, the value comes from the call.
        if attribute.ref_attr_name:
            continue
        key = node.op_type, attribute.name
        _check_range(node, attribute.name, _integers(attribute), _BY_OPERATOR.get(key) or _BY_NAME.get(key[1], _SIZE))
        if attribute.type == AttributeProto.FLOAT and key in _REAL_BY_OPERATOR:
            _check_range(node, attribute.name, [attribute.f], _REAL_BY_OPERATOR[key])
        if key == ("Einsum", "equation") and attribute.type == AttributeProto.STRING:
            _check_equation(node, attribute.s.decode(errors="replace"))
        if attribute.type == AttributeProto.STRING and key in _WORDS:
            _check_word(node, attribute.name, attribute.s.decode(errors="replace"), _WORDS[key])


def _check_range(node: NodeProto, name: str, values: Sequence[float], given: tuple[float, float]) -> None:
    least, most = given
    for value in values:
        if not least <= value <= most:
            raise UnsupportedModelError(
                f"{describe_node(node)} has {value} as its attribute '{name}', which may be {least} to {most}; "
                "export the model again"
            )


def _check_word(node: NodeProto, name: str, value: str, given: Sequence[str]) -> None:
    # To ONNX Runtime an empty word is as none.
    if value and value not in given:
        raise UnsupportedModelError(
            f"{describe_node(node)} has {value!r} as its attribute '{name}', which may be {', '.join(given)}; "
            "export the model again"
        )


def _check_equation(node: NodeProto, equation: str) -> None:
    """Refuse equations of other signs: over single dots, ONNX's inference of shapes and ONNX Runtime do not end."""
    read, _, written = equation.partition("->")
    for term in (*read.split(","), written):
        letters = term.replace(" ", "").replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise UnsupportedModelError(
                f"{describe_node(node)} has {_shortened(equation)!r} as its attribute 'equation', whose term "
                f"{_shortened(term.strip())!r} is not letters with at most one '...'; export the model again"
            )


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_QUOTED else text[:_MOST_QUOTED] + "…"


def check_attribute_types(node: NodeProto, declared: Mapping[str, int]) -> None:
    """Check that a node's attributes have the types that its operator declares; others are not looked at.

    Raises:
        UnsupportedModelError: one has another; the message names the node and the attribute.
    """
    for attribute in node.attribute:
        expected = declared.get(attribute.name, attribute.type)
        if attribute.type != expected and not attribute.ref_attr_name:
            name = AttributeProto.AttributeType.Name
            raise UnsupportedModelError(
                f"{describe_node(node)} has {name(attribute.type)} as its attribute '{attribute.name}', which is "
                f"{name(expected)} in ONNX; export the model again"
            )


def _integers(attribute: AttributeProto) -> list[int]:
    return [attribute.i] if attribute.type == AttributeProto.INT else list(attribute.ints)
