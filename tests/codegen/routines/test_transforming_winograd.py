"""Winograd's method by filters that are stored as in the model, which the kernel transforms."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers, load, relative_errors, run

HOST = Target.create("cpu")
CASES = ("conv3x3_residual", "conv3x3_batch", "conv3x3_odd_channels")
# Workgroups that partition tiles, and such that partition panels; several blocks of tiles, and one.
TILINGS: tuple[Parameters, ...] = tuple(
    {
        "height": height,
        "width": width,
        "columns": 2,
        "vectors": 1,
        "block": block,
        "groups": 2,
        "panels": panels,
        "unroll": 2,
    }
    for height, width, block, panels in ((2, 2, 2, 1), (4, 4, 4, 2), (6, 6, 64, 2), (2, 4, 4, 3), (4, 2, 2, 2))
)

# All of them on the first case; the others differ in batch and channels.
TRIED = dict(zip(CASES, ((0, 1, 2, 3, 4), (1, 3), (2, 4)), strict=True))
# In blocks of channels: three sizes of tiles, of which the first partitions tiles and the others panels.
TRIED_BLOCKED = {CASES[0]: (0, 2, 3)}


def _code(layer: Layer, parameters: Parameters, *, transforms: bool, blocked: bool = False) -> Implementation:
    built = FusedWinograd(blocked=blocked, transforms_filters=transforms).build(layer.task, parameters, HOST)
    assert isinstance(built, Implementation), built
    return built


def _subject(layer: Layer, weights: Mapping[str, Array]) -> Subject:
    stock = Stock().build(layer.task, {}, HOST)
    assert isinstance(stock, Implementation), stock
    code = {"stock": stock}
    for number in TRIED[layer.name]:
        code[f"plain {number}"] = _code(layer, TILINGS[number], transforms=True)
        code[f"transformed {number}"] = _code(layer, TILINGS[number], transforms=False)
    for number in TRIED_BLOCKED.get(layer.name, ()):
        code[f"blocked {number}"] = _code(layer, TILINGS[number], transforms=True, blocked=True)
    return Subject(layer, weights, code)


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    found = layers()
    return {layer.name: _subject(layer, weights) for layer, weights in found if layer.name in CASES}


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_filters_that_were_transformed_before(
    case: str, subjects: dict[str, Subject], program: Program
) -> None:
    subject = subjects[case]
    inputs = subject.inputs()
    assert all(error < 1e-3 for error in relative_errors(program, subject).values())
    for number in TRIED[case]:
        expected = run(program, subject, f"transformed {number}", inputs)
        found = run(program, subject, f"plain {number}", inputs)
        # Filters were transformed in double precision, and here in single.
        assert np.abs(found - expected).max() < 1e-5 * max(np.abs(expected).max(), 1.0)


def test_channels_in_blocks_are_tried_in_their_layout(subjects: dict[str, Subject]) -> None:
    for number in TRIED_BLOCKED[CASES[0]]:
        code = subjects[CASES[0]].implementations[f"blocked {number}"]
        assert code.output.layout == code.inputs[0].layout != "nhwc"


def test_filters_take_the_bytes_that_they_have_in_the_model(subjects: dict[str, Subject]) -> None:
    subject = subjects[CASES[0]]
    filters = subject.layer.task.weights[0]
    for number, parameters in enumerate(TILINGS):
        plain, transformed = (
            subject.implementations[f"{name} {number}"].packings[0].type_of(filters)
            for name in ("plain", "transformed")
        )
        points = (int(str(parameters["height"])) + 2) * (int(str(parameters["width"])) + 2)
        assert plain.bytes * points == transformed.bytes * 9
        assert plain.elements >= filters.elements
