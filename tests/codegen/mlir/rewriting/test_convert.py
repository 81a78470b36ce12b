"""Rewrites: of layouts, with a reason where they do not apply, and of layers in wider types."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer, LayerKind, Task, TensorType
from sartor.codegen.ir.packing import Packing, Round, Transpose
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.convert import Converted, convert_images, has_images
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.rewriting.widened import widened
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


def test_a_changed_rewrite_leaves_the_next_one_alone(imported_of: Callable[[str], ImportedModel]) -> None:
    task = next(layer.task for layer in imported_of("residual").graph.layers if layer.name == "conv2")
    changed, before = Rewrite.plain(task), str(Rewrite.plain(task).module)
    filters = next(index for index, weight in enumerate(task.weights) if len(weight.shape) == 4)
    changed.pack(filters, (), "tensor<1xf32>")
    first = next(iter(body_of(changed.function).operations)).operation
    first.attributes["changed"] = changed.function.attributes["sym_name"]
    assert "changed" in str(changed.module)
    assert "tensor<1xf32>" in str(changed.module)
    assert str(Rewrite.plain(task).module) == before


def test_a_weight_is_not_packed_in_two_ways() -> None:
    rewrite, steps = Rewrite.plain(dense()), (Transpose((2, 3, 1, 0)),)
    for _ in range(2):
        rewrite.set_packing(0, steps)
    with pytest.raises(ValueError, match="read in two layouts"):
        rewrite.set_packing(0, ())
    rewrite.extend_packing(0, (Round("f16"),))
    assert rewrite.packings == [Packing((*steps, Round("f16")))]


HALF, FLOAT = TensorType((4, 8), "f16"), TensorType((4, 8), "f32")
_LOOP = (
    "linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], "
    'iterator_types = ["parallel", "parallel"]}} ins(%{source} : {before}) outs(%{room} : {after}) {{\n'
    "  ^bb0(%in: {before_type}, %out: {after_type}):\n    {body}\n    linalg.yield %new : {after_type}\n  }} -> {after}"
)


def _loop(source: str, before: TensorType, after: TensorType, body: str) -> str:
    types = {"before_type": before.dtype, "after_type": after.dtype}
    return _LOOP.format(source=source, room=f"room_{after.dtype}", before=before, after=after, body=body, **types)


def _task(*lines: str, given: TensorType = HALF, result: TensorType = HALF) -> Task:
    text = "\n  ".join(
        [
            f"util.func public @layer(%arg0: {given}) -> {result} {{",
            f"%room_f16 = tensor.empty() : {HALF}",
            f"%room_f32 = tensor.empty() : {FLOAT}",
            *lines,
            f"util.return %last : {result}",
        ]
    )
    return Task("key", LayerKind.TOLERANT, f"{text}\n}}", (given,), (), (result,))


def _scaled(constant: str) -> Task:
    multiply = f"%factor = arith.constant {constant} : f16\n    %new = arith.mulf %in, %factor : f16"
    return _task(f"%last = {_loop('arg0', HALF, HALF, multiply)}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.000980e+00", 1.0009765625), ("0xFC00", -np.inf), ("-6.550400e+04", -65504.0), ("0x0001", 2.0**-24)],
)
def test_constants_keep_all_of_their_bits(text: str, value: float) -> None:
    wide = widened(_scaled(text))
    assert isinstance(wide, Task)
    (found,) = re.findall(r"arith\.constant (\S+) : f32", wide.body)
    number = np.uint32(int(found, 16)).view(np.float32) if found.startswith("0x") else np.float32(found)
    assert number == value


def test_nothing_is_left_of_the_narrow_type() -> None:
    wide = widened(_scaled("1.5"))
    assert isinstance(wide, Task)
    assert "f16" not in wide.body
    assert (wide.inputs, wide.results) == ((FLOAT,), (FLOAT,))
    assert wide.key != _scaled("1.5").key


def test_rounding_between_operations_is_left_out() -> None:
    task = _task(
        f"%0 = {_loop('arg0', HALF, FLOAT, '%new = arith.extf %in : f16 to f32')}",
        f"%1 = {_loop('0', FLOAT, FLOAT, '%new = math.sqrt %in : f32')}",
        f"%2 = {_loop('1', FLOAT, HALF, '%new = arith.truncf %in : f32 to f16')}",
        f"%last = {_loop('2', HALF, HALF, '%new = arith.addf %in, %in : f16')}",
    )
    wide = widened(task)
    assert isinstance(wide, Task)
    assert wide.body.count("linalg.generic") == 2
    assert "bitcast" not in wide.body


@pytest.mark.parametrize("in_one_loop", [True, False])
def test_rounding_on_purpose_is_kept(in_one_loop: bool) -> None:
    widen, shorten = "%new = arith.extf %in : f16 to f32", "%new = arith.truncf %in : f32 to f16"
    both = "%short = arith.truncf %in : f32 to f16\n    %new = arith.extf %short : f16 to f32"
    between = (
        [f"%2 = {_loop('0', FLOAT, FLOAT, both)}"]
        if in_one_loop
        else [f"%1 = {_loop('0', FLOAT, HALF, shorten)}", f"%2 = {_loop('1', HALF, FLOAT, widen)}"]
    )
    found = widened(
        _task(f"%0 = {_loop('arg0', HALF, FLOAT, widen)}", *between, f"%last = {_loop('2', FLOAT, HALF, shorten)}")
    )
    assert isinstance(found, Rejected)
    assert "widens them again" in found.reason


def test_a_layer_of_f32_is_not_widened() -> None:
    found = widened(
        _task(f"%last = {_loop('arg0', FLOAT, FLOAT, '%new = math.sqrt %in : f32')}", given=FLOAT, result=FLOAT)
    )
    assert isinstance(found, Rejected)


@pytest.mark.parametrize("function", ["floor", "ceil", "roundeven", "trunc"])
def test_what_is_rounded_to_integers_stays(function: str) -> None:
    """A sum of f32 just above a half is the half in f16, and falls to the other side."""
    found = widened(_task(f"%last = {_loop('arg0', HALF, HALF, f'%new = math.{function} %in : f16')}"))
    assert isinstance(found, Rejected)
    assert "rounds them to integers" in found.reason
