"""Refusals of operators of other domains: the node, a reason and a way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import ModelProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.rewrites.operator_sets.contrib.refused import CONTRIB_REASONS
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS
from tests.plugin.onnx_model.builders import FLOAT, MS, model, node


@pytest.mark.parametrize(
    ("operator", "domain", "message"),
    [
        ("BeamSearch", MS, "runs a decoder an unknown number of times; export the decoder"),
        ("PagedAttention", MS, "keeps keys and values .*export the model without a cache"),
        ("SparseToDenseMatMul", MS, "not supported; export the model without"),
        ("Conv", "com.ms.internal.nhwc", "ORT_ENABLE_EXTENDED"),
        ("ATen", "org.pytorch.aten", "calls a function of PyTorch.*export the model"),
        ("EfficientNMS_TRT", "TRT", "operator set 'TRT', which is not known; export the model"),
    ],
)
def test_refusal_names_node_reason_and_way_out(
    operator: str, domain: str, message: str, save_and_load: Callable[[ModelProto | bytes], ModelProto]
) -> None:
    built = model([node(operator, ["x"], ["y"], domain=domain, name="odd")], [("x", (2, 3), FLOAT)], ["y"])
    if domain != MS:
        built.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(UnsupportedModelError, match=rf"node 'odd' \({domain}\.{operator}\) .*{message}"):
        save_and_load(built)


def test_no_operator_is_both_lowered_and_refused() -> None:
    assert not CONTRIB_OPERATORS & set(CONTRIB_REASONS)
