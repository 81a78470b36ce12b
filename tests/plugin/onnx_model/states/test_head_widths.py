"""The elements of a head that ONNX Runtime's model builder leaves open follow from the product before the attention."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, NodeProto

from sartor.onnx_model.states.head_widths import know_widths

_FOLDER = Path(__file__).parents[3] / "library_files"
_WIDTH, _SYMBOL = 16, "kv_cache_dim"


def _loaded(name: str) -> ModelProto:
    return onnx.load(_FOLDER / f"{name}.onnx", load_external_data=False)


def _attention(model: ModelProto) -> NodeProto:
    return next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")


def _widths(model: ModelProto) -> set[int | str]:
    """The last dimensions of caches."""
    values = [*model.graph.input, *model.graph.output]
    caches = [value for value in values if value.name.startswith(("past", "present"))]
    assert caches
    dims = [value.type.tensor_type.shape.dim[-1] for value in caches]
    return {dim.dim_param or dim.dim_value for dim in dims}


@pytest.mark.parametrize("name", ["genai_llama_fp32", "genai_llama_int4"])
def test_widths_follow_from_the_product_of_packed_heads(name: str) -> None:
    model = _loaded(name)
    assert _widths(model) == {_SYMBOL}
    know_widths(model)
    assert _widths(model) == {_WIDTH}


def test_widths_follow_from_the_product_of_queries_apart() -> None:
    """Then all its columns are queries'."""
    model = _loaded("genai_llama_int4")
    node = _attention(model)
    product = next(each for each in model.graph.node if node.input[0] in each.output)
    heads = next(attribute.i for attribute in node.attribute if attribute.name == "num_heads")
    next(attribute for attribute in product.attribute if attribute.name == "N").i = heads * 24
    node.input[1], node.input[2] = "keys", "values"
    know_widths(model)
    assert _widths(model) == {24}


@pytest.mark.parametrize("columns", [0, 129])
def test_widths_stay_open_where_columns_are_unknown_or_no_whole_heads(columns: int) -> None:
    model = _loaded("genai_llama_int4")
    (read,) = _attention(model).input[:1]
    product = next(each for each in model.graph.node if read in each.output)
    next(attribute for attribute in product.attribute if attribute.name == "N").i = columns
    know_widths(model)
    assert _widths(model) == {_SYMBOL}


def test_widths_stay_open_without_a_product() -> None:
    model = _loaded("genai_llama_fp32")
    _attention(model).input[0] = "given"
    know_widths(model)
    assert _widths(model) == {_SYMBOL}
