"""Of decoders that were merged the branch is taken that reads caches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from sartor.onnx_model.states.cache_branch import CHOICE, take_cached_branch
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.exported_decoders import HEADS, WIDTH, merged_whisper, whisper


def outputs(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    reference = OnnxRuntimeReference(model.SerializeToString(), threads=1)
    known = {name: array for name, array in feeds.items() if name in reference.input_names}
    return dict(zip(reference.output_names, reference(known), strict=True))


def test_the_branch_that_reads_caches_is_taken() -> None:
    random, model = np.random.default_rng(0), merged_whisper()
    caches = [value.name for value in model.graph.input if value.name.startswith("past")]
    feeds: dict[str, Array] = {name: random.standard_normal((1, HEADS, 3, WIDTH)).astype(np.float32) for name in caches}
    feeds |= {"input_ids": np.array([[4]]), "encoder_hidden_states": np.ones((1, 3, HEADS * WIDTH), np.float32)}
    right = outputs(model, {**feeds, CHOICE: np.array([True])})
    fixed = take_cached_branch(model)
    assert [each.spec.name for each in fixed] == [CHOICE, "encoder_hidden_states"]
    assert (fixed[0].values, fixed[1].spec.shape) == ((True,), (0, 0, HEADS * WIDTH))
    given = outputs(model, feeds)
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
