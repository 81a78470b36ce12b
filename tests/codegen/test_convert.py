"""The layout rewrite: physical signatures where it applies, a reason where it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sartor.codegen.convert import Converted, convert_images, has_images
from sartor.codegen.layer import Layer
from sartor.codegen.routine import Rejected
from sartor.front_job import Front

FrontOf = Callable[[str], Front]


def layer(front: Front, name: str) -> Layer:
    return next(each for each in front.graph.layers if each.name == name)


def test_a_converted_layer_has_a_physical_signature(front_of: FrontOf) -> None:
    task = layer(front_of("residual"), "conv2").task
    converted = convert_images(task, "nhwc")
    assert isinstance(converted, Converted)
    code = converted.implementation()
    assert (code.inputs, code.output) == (("nhwc", "nhwc"), "nhwc")
    head = code.body.partition("{")[0]
    assert "(%arg0: tensor<1x6x6x16xf32>, %arg1: tensor<1x6x6x16xf32>, " in head
    assert "-> tensor<1x6x6x16xf32>" in head
    assert "tensor<3x3x16x16xf32>" in head
    filters = next(each for each in task.weights if len(each.shape) == 4)
    packing = code.packings[task.weights.index(filters)]
    assert packing.type_of(filters).shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("model", "name", "layout", "reason"),
    [
        ("hard_swish", "conv", "nchw16c", "3 channels do not divide into blocks of 16"),
        ("one_channel", "conv", "nchw16c", "1 channels do not divide"),
        ("split", "left", "nchw16c", "a slice of blocked channels"),
    ],
)
def test_a_layer_that_is_tied_to_its_layout_says_how(
    model: str, name: str, layout: str, reason: str, front_of: FrontOf
) -> None:
    answer = convert_images(layer(front_of(model), name).task, layout)
    assert isinstance(answer, Rejected)
    assert reason in answer.reason


def test_the_task_itself_is_not_changed(front_of: FrontOf) -> None:
    task = layer(front_of("residual"), "conv1").task
    before = task.body
    first, second = convert_images(task, "nhwc"), convert_images(task, "nhwc")
    assert isinstance(first, Converted)
    assert isinstance(second, Converted)
    assert first.implementation() == second.implementation()
    assert task.body == before


def test_only_rank_4_tensors_are_images(front_of: FrontOf) -> None:
    assert has_images(layer(front_of("residual"), "conv1").task)
    assert not has_images(layer(front_of("softmax"), "y").task)
