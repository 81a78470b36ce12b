"""Attributes out of range, which ended the process in ONNX's or IREE's code: refused by node and attribute."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.reading.attribute_ranges import check_attribute_ranges
from sartor.onnx_model.reading.validate import check_model
from tests.plugin.onnx_model.builders import X, model, node


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (node("Conv", ["x", "w"], ["y"], group=0), r"'conv' \(Conv\) has 0 as its attribute 'group', which may be 1"),
        (node("DepthToSpace", ["x"], ["y"], blocksize=2**32), "has 4294967296 as its attribute 'blocksize'"),
        (node("Concat", ["x", "x"], ["y"], axis=2**40), "attribute 'axis', which may be -32 to 32"),
        (node("Squeeze", ["x"], ["y"], axes=[0, -(2**33)]), "has -8589934592 as its attribute 'axes'"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[2**31, 1]), "has 2147483648 as its attribute 'kernel_shape'"),
        (node("LSTM", ["x", "w", "r"], ["y"], hidden_size=-3), "has -3 as its attribute 'hidden_size'"),
        (node("ReduceMax", ["x"], ["y"], keepdims=-1), r"has -1 as its attribute 'keepdims', which may be 0 to 1;"),
        (node("Cast", ["x"], ["y"], to=0), r"has 0 as its attribute 'to', which may be 1 to \d+;"),
        (node("EyeLike", ["x"], ["y"], dtype=0), "has 0 as its attribute 'dtype'"),
        (
            node("Resize", ["x", "", "s"], ["y"], mode="foo"),
            "has 'foo' as its attribute 'mode', which may be cubic, linear, nearest;",
        ),
        (
            node("Conv", ["x", "w"], ["y"], auto_pad="SAME"),
            "has 'SAME' as its attribute 'auto_pad', which may be NOTSET",
        ),
        (node("LRN", ["x"], ["y"], size=0), "has 0 as its attribute 'size'"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[2], dilations=[2**40]), "as its attribute 'dilations'"),
        (node("TfIdfVectorizer", ["x"], ["y"], ngram_counts=[0, -(2**31)]), "as its attribute 'ngram_counts'"),
        (node("TfIdfVectorizer", ["x"], ["y"], max_skip_count=2**40), "attribute 'max_skip_count', which may be 0"),
        (node("Attention", ["x"], ["y"], softcap=-1.0), "has -1.0 as its attribute 'softcap', which may be 0.0 to"),
        (node("Attention", ["x"], ["y"], softcap=float("nan")), "has nan as its attribute 'softcap'"),
        (node("Attention", ["x"], ["y"], scale=float("nan")), "has nan as its attribute 'scale'"),
        (node("LRN", ["x"], ["y"], alpha=float("inf")), "has inf as its attribute 'alpha'"),
        (node("Elu", ["x"], ["y"], alpha=float("nan")), "has nan as its attribute 'alpha'"),
        (node("LeakyRelu", ["x"], ["y"], alpha=float("inf")), "has inf as its attribute 'alpha'"),
        (node("Clip", ["x"], ["y"], min=float("nan")), "has nan as its attribute 'min'"),
        (node("ConvInteger", ["x", "w"], ["y"], pads=[-1] * 4), "has -1 as its attribute 'pads'"),
        (node("TfIdfVectorizer", ["x"], ["y"], ngram_indexes=[2**31]), "as its attribute 'ngram_indexes'"),
        (node("Einsum", ["x", "x"], ["y"], equation="ab..cd,d->a"), "'equation', whose term 'ab..cd' is not letters"),
        (node("Einsum", ["x"], ["y"], equation="a...b...->a"), r"whose term 'a\.\.\.b\.\.\.' is not letters"),
        (node("Einsum", ["x"], ["y"], equation="ab->a->b"), "whose term 'a->b' is not letters"),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else "",
)
def test_refusal_names_node_and_attribute(built: NodeProto, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        check_attribute_ranges(built)


def test_an_attribute_of_another_type_is_refused_by_name() -> None:
    built = model([node("TopK", ["x", "k"], ["v", "i"], axis=1.5)], X, ["v", "i"], {"k": np.array([1])})
    with pytest.raises(UnsupportedModelError, match=r"'topk' \(TopK\) has FLOAT as its attribute 'axis', which is INT"):
        check_model(built)


def test_values_that_mean_something_are_accepted() -> None:
    check_attribute_ranges(node("Slice", ["x"], ["y"], starts=[-(2**63)], ends=[2**63 - 1], axes=[0]))
    check_attribute_ranges(node("Constant", [], ["y"], value_int=2**62))
    check_attribute_ranges(node("Shape", ["x"], ["y"], start=-(2**63), end=2**63 - 1))
    check_attribute_ranges(node("Softmax", ["x"], ["y"], axis=-1))
    check_attribute_ranges(node("Attention", ["x"], ["y"], scale=-0.5, softcap=0.0))
    check_attribute_ranges(node("Pad", ["x"], ["y"], value=-np.inf))
    for equation in ("ij,jk->ik", "...ij , ...jk -> ...ik", "ii", "", "bIj,bjK"):
        check_attribute_ranges(node("Einsum", ["x"], ["y"], equation=equation))
    check_attribute_ranges(node("Clip", ["x"], ["y"], min=-np.inf, max=np.inf))
    check_attribute_ranges(node("TfIdfVectorizer", ["x"], ["y"], pool_int64s=[2**40]))
    keys = node("LabelEncoder", ["x"], ["y"], keys_int64s=[2**40])
    keys.domain = "ai.onnx.ml"
    check_attribute_ranges(keys)
    # A function's attribute has its value where the function is called.
    called = node("Conv", ["x", "w"], ["y"], group=0)
    called.attribute[0].ref_attr_name = "groups"
    check_attribute_ranges(called)
