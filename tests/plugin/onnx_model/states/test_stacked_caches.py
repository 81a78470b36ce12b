"""Caches that exporters stack, choose by a branch, or give heads of widths of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from sartor.onnx_model.states.cache_branch import CHOICE, take_cached_branch
from sartor.onnx_model.states.grown_caches import Growing, growing_caches
from sartor.onnx_model.states.head_widths import know_widths
from sartor.onnx_model.states.stacked_caches import append_to_stacks
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.exported_decoders import HEADS, WIDTH, merged_whisper, whisper

_HEADS, _WIDTH, _PAST, _NEW = 2, 4, 3, 2


def stacked(*, splits: bool = False, order: tuple[int, int] = (0, 1), version: int = 17) -> ModelProto:
    """Keys and values of a call are appended to those of ``past_0``, and attended to.

    Args:
        splits: whether both are taken by Split, as PyTorch's unbind is exported.
        order: in which both are stacked.
        version: of ONNX's operators.
    """
    held = {"zero": np.array([0]), "first": np.array(0), "second": np.array(1), "axes": np.array([0])}
    named = version < 13

    def axes(operator: str, name: str, output: str) -> NodeProto:
        given: dict[str, Any] = {"axes": [0]} if named else {}
        return helper.make_node(operator, [name, *([] if named else ["axes"])], [output], name=output, **given)

    halves = ("past_key", "past_value")
    if splits:
        taken = [helper.make_node("Split", ["past_0"], ["one", "other"], name="split", axis=0)]
        taken += [axes("Squeeze", name, half) for name, half in zip(("one", "other"), halves, strict=True)]
    else:
        places = zip(("first", "second"), halves, strict=True)
        taken = [helper.make_node("Gather", ["past_0", place], [half], name=half, axis=0) for place, half in places]
    joined = ["keys", "values"]
    nodes = [
        *taken,
        helper.make_node("Concat", ["past_key", "key"], ["keys"], name="keys", axis=-2),
        helper.make_node("Transpose", ["keys"], ["turned"], name="turned", perm=[0, 1, 3, 2]),
        helper.make_node("Softplus", ["turned"], ["read"], name="read"),
        helper.make_node("Softplus", ["key"], ["value"], name="value"),
        helper.make_node("Concat", ["past_value", "value"], ["values"], name="values", axis=-2),
        helper.make_node("MatMul", ["read", "values"], ["y"], name="product"),
        *(axes("Unsqueeze", name, f"raised_{name}") for name in joined),
        helper.make_node("Concat", [f"raised_{joined[each]}" for each in order], ["present_0"], name="stack", axis=0),
    ]
    shapes = {"past_0": (2, 1, _HEADS, "past", _WIDTH), "key": (1, _HEADS, "new", _WIDTH)}
    ends = {"y": (1, _HEADS, _WIDTH, _WIDTH), "present_0": (2, 1, _HEADS, "total", _WIDTH)}
    inputs, results = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in listed.items()]
        for listed in (shapes, ends)
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "stacked", inputs, results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def outputs(model: ModelProto) -> list[Array]:
    random = np.random.default_rng(0)
    shapes = {"past_0": (2, 1, _HEADS, _PAST, _WIDTH), "key": (1, _HEADS, _NEW, _WIDTH)}
    given = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return OnnxRuntimeReference(model.SerializeToString(), threads=1)(given)


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("version", [11, 17])
def test_one_node_appends_to_both(version: int, *, splits: bool) -> None:
    model = stacked(splits=splits, version=version)
    assert append_to_stacks(model) == ("stack",)
    onnx.checker.check_model(model)
    assert growing_caches(model, {}, finds=True) == (Growing("past_0", "present_0", 3, "present_0"),)
    for one, other in zip(outputs(model), outputs(stacked(splits=splits, version=version)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_values_before_keys_stay_as_they_are() -> None:
    assert append_to_stacks(stacked(order=(1, 0))) == ()


def cache_branch_outputs(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    reference = OnnxRuntimeReference(model.SerializeToString(), threads=1)
    known = {name: array for name, array in feeds.items() if name in reference.input_names}
    return dict(zip(reference.output_names, reference(known), strict=True))


def test_the_branch_that_reads_caches_is_taken() -> None:
    random, model = np.random.default_rng(0), merged_whisper()
    caches = [value.name for value in model.graph.input if value.name.startswith("past")]
    feeds: dict[str, Array] = {name: random.standard_normal((1, HEADS, 3, WIDTH)).astype(np.float32) for name in caches}
    feeds |= {"input_ids": np.array([[4]]), "encoder_hidden_states": np.ones((1, 3, HEADS * WIDTH), np.float32)}
    right = cache_branch_outputs(model, {**feeds, CHOICE: np.array([True])})
    fixed = take_cached_branch(model)
    assert [each.spec.name for each in fixed] == [CHOICE, "encoder_hidden_states"]
    assert (fixed[0].values, fixed[1].spec.shape) == ((True,), (0, 0, HEADS * WIDTH))
    given = cache_branch_outputs(model, feeds)
    assert {*given} == {name for name in right if "encoder" not in name}
    for name, array in given.items():
        np.testing.assert_array_equal(array, right[name])


def test_what_a_loop_computes_of_an_input_that_its_body_reads_is_still_an_output() -> None:
    model = merged_whisper()
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["again"]),
            helper.make_node("Cast", ["input_ids"], ["id"], to=TensorProto.FLOAT),
        ],
        "body",
        [_value("turn", TensorProto.INT64, []), _value("on", TensorProto.BOOL, [])],
        [_value("again", TensorProto.BOOL, []), _value("id", TensorProto.FLOAT, None)],
    )
    model.graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [2]))
    model.graph.node.append(helper.make_node("Loop", ["turns", ""], ["ids"], body=body))
    model.graph.output.append(_value("ids", TensorProto.FLOAT, None))
    assert take_cached_branch(model)
    assert "ids" in {value.name for value in model.graph.output}


def _value(name: str, element: int, shape: list[int] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def test_other_models_stay_as_they_are() -> None:
    before = whisper()
    assert not take_cached_branch(before)
    assert before == whisper()
    selecting = merged_whisper()
    selecting.graph.node.append(helper.make_node("Not", [CHOICE], ["other"]))
    assert not take_cached_branch(selecting), "the input is read as a value"
    numbered = merged_whisper()
    numbered.graph.input[-1].type.tensor_type.elem_type = TensorProto.INT64
    assert not take_cached_branch(numbered)


_FOLDER = Path(__file__).parents[3] / "library_files"
_HEAD_WIDTHS_WIDTH, _SYMBOL = 16, "kv_cache_dim"


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
    assert _widths(model) == {_HEAD_WIDTHS_WIDTH}


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
