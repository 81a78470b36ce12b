"""Products of pairs of 16-bit numbers are exact, whatever the numbers, sizes, strips and vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from sartor.codegen.ir.layer import Layer, LayerKind, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, choices_of
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS, WORD_PAIRS, WordPairElement
from sartor.codegen.kernels.widened.packing import pack_pairs
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.widened.pairs import WordPairConvolution, WordPairProduct
from tests.codegen.routines.widened.drawn import Drawn, drawn, some_of, unsupported, wrong_layers

# Vectors of 32 bytes, of 64, and of 16.
CPUS = ("x86-64-v3", "skylake-avx512", "x86-64-v2")
ELEMENTS = (WORD_PAIRS, WIDE_WORD_PAIRS)
COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "8"))
"""Layers of each vector length; a thorough run has some hundreds, each of which one kernel computes."""
_TOGETHER = 50


def _routine(layer: Layer, element: WordPairElement) -> IntegerFactor:
    is_product = layer.task.kind is LayerKind.CONTRACTION
    return IntegerFactor((WordPairProduct if is_product else WordPairConvolution)("pairs", element=element))


def _extremes() -> Iterator[Parameters]:
    """Strips and tiles that nobody would choose, and more workgroups than there is work."""
    names = ("band", "columns", "vectors", "row_groups", "panel_groups", "unroll")
    for row in ((1, 1, 1, 9, 1, 1), (3, 2, 2, 2, 3, 2), (5, 4, 3, 1, 99, 1), (7, 9, 1, 3, 2, 4)):
        yield dict(zip(names, row, strict=True))


def _implementations(layer: Layer, target: Target) -> dict[str, Implementation]:
    found = {}
    for element in ELEMENTS:
        routine = _routine(layer, element)
        offered = choices_of(routine, layer.task, target)
        assert isinstance(offered, list), (layer.name, offered)
        for number, parameters in enumerate([*offered[:1], *_extremes()]):
            built = routine.build(layer.task, parameters, target)
            assert isinstance(built, Implementation), (layer.name, parameters, built)
            found[f"{number}{element.is_wide}"] = built
    return found


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_are_those_of_the_definition(cpu: str, pytestconfig: pytest.Config) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    first = CPUS.index(cpu) * 10_000
    end = first + COUNT
    parts = [range(start, end)[:_TOGETHER] for start in range(first, end, _TOGETHER)]

    def tried(layer: Layer, turn: int) -> Mapping[str, Implementation]:
        return some_of(_implementations(layer, target), turn, COUNT, pytestconfig)

    chosen = [{seed: drawn(seed) for seed in seeds} for seeds in parts]
    assert [each for part in chosen for each in wrong_layers(part, target, tried)] == []


def test_taps_of_an_odd_number_of_channels_are_one_sequence() -> None:
    """With any padding, more than a kernel has taps, and pixels that no window reads."""
    adjoined, apart = (
        pack_pairs(TensorType((16, 3, 5, 7), "f32"), 16, 8, WORD_PAIRS, adjoins=each).strides.panel
        for each in (True, False)
    )
    assert (adjoined - 128, apart - 128) == (5 * 11 * 32, 5 * 14 * 32)
    target = Target.create("cpu", "x86-64-v3")
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    chosen = dict(
        enumerate(
            [
                Drawn((2, 3, 9, 10), 17, (7, 7), (2, 2), (1, 1), (3, 3, 3, 3), False, -128),
                Drawn((1, 3, 5, 6), 9, (3, 3), (1, 1), (1, 1), (0, 4, 1, 0), True, 7),
                Drawn((1, 5, 4, 5), 8, (2, 3), (1, 3), (2, 1), (1, 0, 0, 0), False, 127),
                Drawn((1, 7, 3, 2), 3, (1, 2), (1, 1), (1, 1), (0, 0, 0, 5), False, 0),
            ]
        )
    )
    assert wrong_layers(chosen, target, lambda layer, _: _implementations(layer, target)) == []


def test_a_faster_instruction_is_preferred() -> None:
    found: Mapping[str, bool] = {
        cpu: any(isinstance(each.refusal(machine_of(Target.create("cpu", cpu))), Rejected) for each in ELEMENTS)
        for cpu in (*CPUS, "haswell", "znver3", "alderlake", "cascadelake", "znver4")
    }
    assert found == {
        **dict.fromkeys((*CPUS, "haswell", "znver3"), False),
        **dict.fromkeys(("alderlake", "cascadelake", "znver4"), True),
    }
