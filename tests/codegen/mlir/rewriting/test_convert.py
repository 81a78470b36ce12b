"""The layout rewrite: physical signatures where it applies, a reason where it does not."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import Layer, LayerKind, Task, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.rewriting.convert import Converted, convert_images, has_images
from sartor.codegen.subgraphs.fusion import task_of
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.shared_filters import dense, depthwise
from tests.importing import ImportedOf


def layer(imported: ImportedModel, name: str) -> Layer:
    return next(each for each in imported.graph.layers if each.name == name)


def test_a_converted_layer_has_a_physical_signature(imported_of: ImportedOf) -> None:
    task = layer(imported_of("residual"), "conv2").task
    converted = convert_images(task, "nhwc")
    assert isinstance(converted, Converted)
    code = converted.implementation("cpu")
    schema = Schema("cpu", "f32", "nhwc")
    assert (code.inputs, code.outputs) == ((schema, schema), (schema,))
    head = code.body.partition("{")[0]
    assert "(%arg0: tensor<1x6x6x16xf32>, %arg1: tensor<1x6x6x16xf32>, " in head
    assert "-> tensor<1x6x6x16xf32>" in head
    assert "tensor<3x3x16x16xf32>" in head
    filters = next(weight for weight in task.weights if len(weight.shape) == 4)
    packing = code.packings[task.weights.index(filters)]
    assert packing.type_of(filters).shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("model", "name", "layout", "reason"),
    [
        ("hard_swish", "conv", "nchw16c", "3 channels do not divide into blocks of 16"),
        ("one_channel", "conv", "nchw16c", "1 channels do not divide"),
    ],
)
def test_a_layer_that_is_tied_to_its_layout_says_how(
    model: str, name: str, layout: str, reason: str, imported_of: ImportedOf
) -> None:
    answer = convert_images(layer(imported_of(model), name).task, layout)
    assert isinstance(answer, Rejected)
    assert reason in answer.reason


def _slice(first: int, count: int) -> Task:
    """Every row of ``count`` of 64 channels."""
    image, part = TensorType((1, 64, 4, 4), "f32"), TensorType((1, count, 4, 4), "f32")
    text = f"""util.func public @layer(%arg0: {image}) -> {part} {{
  %part = tensor.extract_slice %arg0[0, {first}, 0, 0] [1, {count}, 4, 4] [1, 1, 1, 1] : {image} to {part}
  util.return %part : {part}
}}"""
    return task_of(LayerKind.TOLERANT, text, (image,), (), (part,))


def test_a_slice_of_whole_blocks_of_channels_is_one_of_blocks() -> None:
    converted = convert_images(_slice(32, 16), "nchw16c")
    assert isinstance(converted, Converted)
    assert "[0, 2, 0, 0, 0] [1, 1, 4, 4, 16] [1, 1, 1, 1, 1]" in converted.implementation("cpu").body


@pytest.mark.parametrize(("first", "count"), [(8, 16), (0, 8), (16, 24)])
def test_a_slice_does_not_cut_a_block(first: int, count: int) -> None:
    answer = convert_images(_slice(first, count), "nchw16c")
    assert isinstance(answer, Rejected)
    assert "block" in answer.reason


@pytest.mark.parametrize(
    ("task", "reason"),
    [(dense(), "the filters are read elsewhere too"), (depthwise(), "a weight is read in two layouts")],
)
def test_filters_that_are_also_added_keep_their_layout(task: Task, reason: str) -> None:
    assert convert_images(task, "nhwc") == Rejected(reason)


def test_the_task_itself_is_not_changed(imported_of: ImportedOf) -> None:
    task = layer(imported_of("residual"), "conv1").task
    before = task.body
    first, second = convert_images(task, "nhwc"), convert_images(task, "nhwc")
    assert isinstance(first, Converted)
    assert isinstance(second, Converted)
    assert first.implementation("cpu") == second.implementation("cpu")
    assert task.body == before


def test_only_rank_4_tensors_are_images(imported_of: ImportedOf) -> None:
    assert has_images(layer(imported_of("residual"), "conv1").task)
    assert not has_images(layer(imported_of("softmax"), "y").task)
