"""Depthwise convolutions of 8 bits whose rows become f32 once have the bits of those that convert where they read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, choices_of
from sartor.codegen.routines.vector.window import ConvertedWindow, SlidingWindow
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.layer_cases import Cases
from tests.codegen.routines.narrow import run_stored
from tests.codegen.routines.widened.drawn import unsupported

# Vectors of 32 bytes without AVX-512, whose bytes are narrowed together, of 16, and of 64.
CPUS = ("x86-64-v3", "x86-64-v2", "skylake-avx512")
_RANGES: Mapping[int | None, QuantisedRange] = {
    0: QuantisedRange(0.05, -113, "int8"),
    None: QuantisedRange(0.11, 3, "int8"),
}
_WINDOW = SlidingWindow(storage="i8")
_CONVERTED = ConvertedWindow(storage="i8")
# More workgroups than there are rows or panels, tiles that do not divide a row, and panels that are not full.
_EXTREMES = ((1, 1, 9, 2), (5, 2, 2, 1), (4, 3, 3, 9))


def _cases() -> Cases:
    cases = Cases()
    cases.convolution("usual", (1, 24, 9, 9), 24, groups=24)
    cases.convolution("uneven", (2, 19, 5, 7), 19, pads=[2, 0, 1, 3], groups=19)
    cases.convolution("larger", (1, 37, 6, 11), 37, (5, 5), pads=[2] * 4, groups=37)
    cases.convolution("two_rows", (2, 5, 4, 6), 5, (2, 3), pads=[0, 1, 0, 1], groups=5)
    cases.convolution("beyond", (1, 16, 2, 3), 16, (3, 3), pads=[4] * 4, groups=16)
    cases.convolution("residual", (1, 20, 8, 5), 20, residual=True, groups=20)
    return cases


def _extremes() -> list[Parameters]:
    return [
        {"lines": 1, "columns": columns, "vectors": vectors, "row_groups": rows, "panel_groups": panels, "unroll": 1}
        for columns, vectors, rows, panels in _EXTREMES
    ]


def _implementations(layer: Layer, target: Target) -> dict[str, Implementation]:
    offered = choices_of(_CONVERTED, layer.task, target)
    assert isinstance(offered, list), (layer.name, offered)
    found = {"window": _WINDOW.build(layer.task, offered[0], target)}
    for each in (*offered[:2], *_extremes()):
        found[str(sorted(each.items()))] = _CONVERTED.build(layer.task, each, target)
    built = {name: each for name, each in found.items() if isinstance(each, Implementation)}
    assert built == found
    return built


@pytest.mark.parametrize("cpu", CPUS)
def test_bits_are_those_of_windows_that_convert_where_they_read(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    cases = _cases()
    subjects = {
        layer.name: Subject(layer, weights, _implementations(layer, target))
        for layer, weights in layers({"cases": cases.model})
    }
    assert set(subjects) == set(cases.names)
    program = load(subjects, target)
    for name, subject in subjects.items():
        # A residual has the image's range.
        ranges = {**_RANGES, 1: _RANGES[0]}
        right, *others = (
            run_stored(program, subject, each, subject.inputs(), ranges) for each in subject.implementations
        )
        assert len(np.unique(right)) > 10
        for each, found in zip([*subject.implementations][1:], others, strict=True):
            np.testing.assert_array_equal(found, right, f"{name}, {each}")


def test_windows_that_convert_little_twice_are_left_to_others() -> None:
    cases = Cases()
    cases.convolution("stride2", (1, 16, 9, 9), 16, stride=2, groups=16)
    cases.convolution("dilated", (1, 16, 9, 9), 16, dilation=2, groups=16)
    cases.convolution("row", (1, 16, 9, 9), 16, (1, 3), pads=[0, 1, 0, 1], groups=16)
    target = Target.create("cpu", "x86-64-v3")
    found = {layer.name: choices_of(_CONVERTED, layer.task, target) for layer, _ in layers({"cases": cases.model})}
    assert {name: isinstance(each, Rejected) for name, each in found.items()} == dict.fromkeys(cases.names, True)


def test_rows_that_exceed_the_stack_are_refused() -> None:
    cases = Cases()
    cases.convolution("wide", (1, 32, 4, 900), 32, groups=32)
    ((layer, _),) = layers({"cases": cases.model})
    found = _CONVERTED.build(layer.task, _extremes()[1], Target.create("cpu", "x86-64-v3"))
    assert found == Rejected("the rows that a window reads exceed the stack")
