"""Attributes out of range, which ended the process in ONNX's or IREE's code: refused by node and attribute."""

from __future__ import annotations

import pytest
from onnx import NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.reading.attribute_ranges import check_attribute_ranges
from tests.plugin.onnx_model.builders import node


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (node("Conv", ["x", "w"], ["y"], group=0), r"'conv' \(Conv\) has 0 as its attribute 'group', which may be 1"),
        (node("DepthToSpace", ["x"], ["y"], blocksize=2**32), "has 4294967296 as its attribute 'blocksize'"),
        (node("Concat", ["x", "x"], ["y"], axis=2**40), "attribute 'axis', which may be -32 to 32"),
        (node("Squeeze", ["x"], ["y"], axes=[0, -(2**33)]), "has -8589934592 as its attribute 'axes'"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[2**31, 1]), "has 2147483648 as its attribute 'kernel_shape'"),
        (node("LSTM", ["x", "w", "r"], ["y"], hidden_size=-3), "has -3 as its attribute 'hidden_size'"),
    ],
    ids=lambda value: value.op_type if isinstance(value, NodeProto) else "",
)
def test_refusal_names_node_and_attribute(built: NodeProto, message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        check_attribute_ranges(built)


def test_values_that_mean_something_are_accepted() -> None:
    check_attribute_ranges(node("Slice", ["x"], ["y"], starts=[-(2**63)], ends=[2**63 - 1], axes=[0]))
    check_attribute_ranges(node("Constant", [], ["y"], value_int=2**62))
    check_attribute_ranges(node("Softmax", ["x"], ["y"], axis=-1))
    check_attribute_ranges(node("TfIdfVectorizer", ["x"], ["y"], pool_int64s=[2**40]))
    keys = node("LabelEncoder", ["x"], ["y"], keys_int64s=[2**40])
    keys.domain = "ai.onnx.ml"
    check_attribute_ranges(keys)
    # A function's attribute has its value where the function is called.
    called = node("Conv", ["x", "w"], ["y"], group=0)
    called.attribute[0].ref_attr_name = "groups"
    check_attribute_ranges(called)
