"""Depthwise convolutions by pairs of 16-bit numbers are exact, whatever the numbers, sizes, tiles and vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, choices_of
from sartor.codegen.routines.vector.window import PairedWindow, SlidingWindow
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.layer_cases import Cases
from tests.codegen.routines.narrow import rounded_by_channel, run_stored
from tests.codegen.routines.widened.drawn import drawn_apart, some_of, unsupported, wrong_layers

# Vectors of 32 bytes, of 64, and of 16.
CPUS = ("x86-64-v3", "skylake-avx512", "x86-64-v2")
COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "6"))
"""Layers of each vector length."""
_TOGETHER = 50
# Sums as they are, which f32 has exactly; and results in 8 bits.
_SUMS, _ROUNDED = PairedWindow("window_word_pairs", output="f32"), PairedWindow("window_word_pairs")
_WINDOW = SlidingWindow(storage="i8")


def _extremes() -> Iterator[Parameters]:
    """Tiles that nobody would choose, and more workgroups than there are rows or panels."""
    for columns, vectors, rows, panels in ((1, 1, 9, 2), (5, 2, 2, 1), (4, 3, 3, 9)):
        sizes = {"columns": columns, "vectors": vectors, "row_groups": rows, "panel_groups": panels}
        yield {"lines": 1, "unroll": 1, **sizes}


def _implementations(layer: Layer, target: Target, routine: PairedWindow) -> dict[str, Implementation]:
    offered = choices_of(routine, layer.task, target)
    assert isinstance(offered, list), (layer.name, offered)
    found = {}
    for number, parameters in enumerate([*offered[:2], *_extremes()]):
        built = routine.build(layer.task, parameters, target)
        if isinstance(built, Rejected):
            # A tile may read more of a wide drawn layer than the stack holds.
            assert "exceed the stack" in built.reason, (layer.name, parameters, built)
            continue
        assert isinstance(built, Implementation), (layer.name, parameters, built)
        found[f"{number}"] = built
    assert found, layer.name
    return found


def _target(cpu: str) -> Target:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    return target


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_are_those_of_the_definition(cpu: str, pytestconfig: pytest.Config) -> None:
    target, first = _target(cpu), 50_000 + CPUS.index(cpu) * 10_000
    end = first + COUNT
    parts = [range(start, end)[:_TOGETHER] for start in range(first, end, _TOGETHER)]

    def tried(layer: Layer, turn: int) -> Mapping[str, Implementation]:
        return some_of(_implementations(layer, target, _SUMS), turn, COUNT, pytestconfig)

    chosen = [{seed: drawn_apart(seed) for seed in seeds} for seeds in parts]
    assert [each for part in chosen for each in wrong_layers(part, target, tried)] == []


def test_results_in_8_bits_are_those_of_single_numbers_but_for_ties() -> None:
    target, cases = _target("x86-64-v3"), Cases()
    cases.convolution("usual", (1, 24, 9, 9), 24, groups=24)
    cases.convolution("apart", (1, 40, 10, 11), 40, stride=2, groups=40)
    cases.convolution("residual", (1, 20, 8, 5), 20, residual=True, groups=20)
    numbers = QuantisedRange(0.05, -113, "int8")
    subjects = {
        layer.name: Subject(
            layer,
            {name: _of_8_bits(each) for name, each in weights.items()},
            {"single": _single(layer, target), **_implementations(layer, target, _ROUNDED)},
        )
        for layer, weights in layers({"cases": cases.model})
    }
    assert set(subjects) == set(cases.names)
    program = load(subjects, target)
    ranges = {0: numbers, 1: numbers, None: QuantisedRange(0.11, 3, "int8")}
    for name, subject in subjects.items():
        found = {each: run_stored(program, subject, each, subject.inputs(), ranges) for each in subject.implementations}
        assert len(np.unique(found["0"])) > 10
        for each, result in found.items():
            if each != "single":
                np.testing.assert_array_equal(result, found["0"], f"{name}, {each}")
        apart = np.abs(found["0"] - found["single"])
        assert apart.max() < 0.12
        assert np.mean(apart > 0) < 0.003, name


def _single(layer: Layer, target: Target) -> Implementation:
    offered = choices_of(_WINDOW, layer.task, target)
    assert isinstance(offered, list)
    built = _WINDOW.build(layer.task, offered[0], target)
    assert isinstance(built, Implementation)
    return built


def _of_8_bits(weight: np.ndarray) -> np.ndarray:
    """Filters by channel, ``[C, KH, KW]``, as numbers of 8 bits."""
    return rounded_by_channel(weight[:, np.newaxis])[:, 0] if weight.ndim == 3 else weight


def test_what_pairs_do_not_suit_is_refused() -> None:
    cases = Cases()
    cases.convolution("dilated", (1, 16, 9, 9), 16, dilation=2, groups=16)
    cases.convolution("dilated along H", (1, 16, 9, 9), 16, dilation=(2, 1), groups=16)
    cases.convolution("far", (1, 16, 9, 13), 16, stride=3, groups=16)
    cases.convolution("column", (1, 16, 9, 9), 16, (3, 1), pads=[1, 0, 1, 0], groups=16)
    cases.convolution("wide", (1, 32, 4, 1900), 32, groups=32)
    cases.convolution("usual", (1, 24, 9, 9), 24, groups=24)
    target = Target.create("cpu", "x86-64-v3")
    (one, *_) = _extremes()
    formed = {layer.name: layer.task for layer, _ in layers({"cases": cases.model})}
    for name, task in formed.items():
        offered = choices_of(_ROUNDED, task, target)
        built = offered if isinstance(offered, Rejected) else _ROUNDED.build(task, one, target)
        assert isinstance(built, Rejected) == (name != "usual"), name
    for cpu in ("alderlake", "znver4"):
        assert isinstance(choices_of(_ROUNDED, formed["usual"], Target.create("cpu", cpu)), Rejected)
