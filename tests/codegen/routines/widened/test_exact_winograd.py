"""Winograd's method in integers of 16 bits is exact, whatever the numbers, sizes and tiles."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest

from sartor.codegen.analysis.convolution import Convolution
from sartor.codegen.ir.layer import Layer, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd, WordPairWinograd
from sartor.codegen.routines.widened.pairs import WordPairConvolution
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.narrow import run_stored
from tests.codegen.routines.widened.drawn import Drawn, filters, model_of, numbers, unsupported, wrong_sums
from tests.plugin.onnx_model.builders import FLOAT, model, node

COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "4"))
"""Layers of each vector length; a thorough run has some hundreds, each of which one kernel computes."""
_FEW, _TOGETHER = 50, 50
_NAMES = ("height", "width", "columns", "vectors", "block", "groups", "panels", "unroll")
# The last tile of each is of one, two or more pixels more than the result has.
_TILES = {
    (3, 3): ((2, 2), (4, 4), (3, 3)),
    (2, 2): ((3, 3), (5, 5), (2, 2)),
    (1, 3): ((1, 2), (1, 4), (1, 3)),
    (3, 1): ((2, 1), (4, 1), (3, 1)),
    (2, 3): ((3, 2), (5, 4), (2, 4)),
    (4, 4): ((3, 3), (2, 2), (3, 2)),
}


def _drawn(seed: int) -> Drawn:
    random = np.random.default_rng(seed)

    def some(least: int, most: int) -> int:
        return int(random.integers(least, most, endpoint=True))

    kernel = list(_TILES)[some(0, len(_TILES) - 1)]
    image = (some(1, 2), some(16, 50), *(size + some(0, 8) for size in kernel))
    pads = tuple(some(0, 2) for _ in range(4))
    return Drawn(image, some(16, 40), kernel, (1, 1), (1, 1), pads, seed % 3 == 0, some(-128, 127))


def _implementations(layer: Layer, kernel: tuple[int, ...], target: Target) -> dict[str, Implementation]:
    routine = IntegerFactor(WordPairWinograd())
    found = {}
    tiles = _TILES[kernel[0], kernel[1]]
    rows = ((1, 1, 2, 1, 9, 1), (3, 2, 6, 3, 1, 2), (4, 1, 4, 2, 2, 1))
    for index, (tile, row) in enumerate(zip(tiles, rows, strict=True)):
        parameters = dict(zip(_NAMES, (*tile, *row), strict=True))
        built = routine.build(layer.task, parameters, target)
        assert isinstance(built, Implementation), (layer.name, parameters, built)
        found[str(index)] = built
    return found


def _tried(turn: int, offered: dict[str, Implementation]) -> dict[str, Implementation]:
    """All kernels of a layer, or one in turn if there are many layers."""
    return offered if COUNT <= _FEW else dict([[*offered.items()][turn % len(offered)]])


@pytest.mark.parametrize("cpu", ["x86-64-v3", "skylake-avx512"])
def test_sums_are_those_of_the_definition(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    wrong = []
    for start in range(0, COUNT, _TOGETHER):
        chosen = {seed: _drawn(seed) for seed in range(start, min(COUNT, start + _TOGETHER))}
        formed = layers({"drawn": partial(model_of, chosen)})
        subjects = {
            each.name: Subject(
                each,
                weights,
                _tried(turn, _implementations(each, chosen[int(each.name.removeprefix("layer"))].kernel, target)),
            )
            for turn, (each, weights) in enumerate(formed)
        }
        wrong += wrong_sums(subjects, chosen, target)
    assert wrong == []


def test_sums_are_right_up_to_the_largest_that_filters_may_give() -> None:
    """Beyond it bits are lost, and the packing tells so."""
    target = Target.create("cpu", "x86-64-v3")
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    largest = (2**25 - 1) // 255
    # Seeds for which every pixel is 255 more than the zero point.
    seeds = [seed for seed in range(20) if numbers((1,), (0, 255), seed + 1, extreme=True)[0] == 255][:2]
    chosen = {seed: Drawn((1, 117, 6, 7), 16, (3, 3), (1, 1), (1, 1), (1,) * 4, True, -128) for seed in seeds}
    weights = {seed: _summing(chosen[seed], total) for seed, total in zip(seeds, (largest, largest + 500), strict=True)}
    subjects, fits = {}, []
    for layer, packed in layers({"drawn": partial(model_of, chosen, weights)}):
        parameters = dict(zip(_NAMES, (4, 4, 2, 2, 4, 1, 1, 1), strict=True))
        built = IntegerFactor(WordPairWinograd()).build(layer.task, parameters, target)
        assert isinstance(built, Implementation)
        subjects[layer.name] = Subject(layer, packed, {"four": built})
        seed = int(layer.name.removeprefix("layer"))
        fits.append((seed, next(each for each in built.packings if each.summing).fits(weights[seed])))
    assert fits == [(seeds[0], True), (seeds[1], False)]
    assert [name for name, *_ in wrong_sums(subjects, chosen, target, weights)] == [f"layer{seeds[1]}"]


def _summing(of: Drawn, total: int) -> np.ndarray:
    """Filters of 8 bits that add to a total in each channel, half of them in magnitude."""
    count = of.filters[1] * 9
    one = np.full(count, 127, np.float32)
    one[0] = 126
    excess = int(one.sum()) - total
    assert excess >= 0
    whole, rest = divmod(excess, 127)
    one[count - whole :] = 0
    one[count - whole - 1] -= rest
    assert int(one.sum()) == total
    return np.broadcast_to(one.reshape(1, of.filters[1], 3, 3), of.filters).copy()


def test_results_in_8_bits_are_those_of_direct_convolution() -> None:
    """With a bias of integers, one that is none, and rounding as a quantised model has it, whose ties decide."""
    target, of = (
        Target.create("cpu", "x86-64-v3"),
        Drawn((2, 17, 9, 10), 19, (3, 3), (1, 1), (1, 1), (1,) * 4, False, 3),
    )
    step = np.float32(640)
    constants = {"w": filters(of, 0), "s": step, "low": np.float32(-128), "high": np.float32(127)}
    nodes = []
    for name, bias in (("whole", 320.0), ("real", 0.3)):
        constants[f"b{name}"] = np.arange(of.channels, dtype=np.float32) * np.float32(bias)
        nodes += [
            node("Conv", ["x", "w", f"b{name}"], [f"c{name}"], name=name, pads=of.pads),
            node("Div", [f"c{name}", "s"], [f"q{name}"]),
            node("Round", [f"q{name}"], [f"r{name}"]),
            node("Clip", [f"r{name}", "low", "high"], [f"k{name}"]),
            node("Mul", [f"k{name}", "s"], [f"y{name}"]),
        ]
    formed = layers({"one": lambda: model(nodes, [("x", of.image, FLOAT)], ["ywhole", "yreal"], constants)})
    strips = {"band": 3, "columns": 4, "vectors": 2, "row_groups": 1, "panel_groups": 1, "unroll": 1}
    tiles = dict(zip(_NAMES, (2, 2, 3, 2, 6, 1, 2, 1), strict=True))
    routines = {"winograd": (WordPairWinograd(), tiles), "direct": (WordPairConvolution("word_pairs"), strips)}
    subjects = {}
    for layer, weights in formed:
        built = {name: routine.build(layer.task, sizes, target) for name, (routine, sizes) in routines.items()}
        found = {name: each for name, each in built.items() if isinstance(each, Implementation)}
        assert found == built
        subjects[layer.name] = Subject(layer, weights, found)
    assert len(subjects) == 2
    program = load(subjects, target)
    image = numbers(of.image, (-131, 124), 1, extreme=False)
    ranges = {0: QuantisedRange(1.0, of.zero, "int8"), None: QuantisedRange(float(step), 0, "int8")}
    for subject in subjects.values():
        one, other = (run_stored(program, subject, name, [image], ranges) for name in routines)
        assert len(np.unique(one)) > 50
        np.testing.assert_array_equal(one, other)


def test_filters_of_16_bits_are_read_in_half_the_time() -> None:
    """Late in a network the method pays where in f32 it does not."""
    image, filters_of, result = (
        TensorType(shape, "f32") for shape in ((1, 512, 9, 9), (512, 512, 3, 3), (1, 512, 7, 7))
    )
    late = Convolution(image, filters_of, result, (1, 1), (1, 1), is_padded=True)
    machine = machine_of(Target.create("cpu", "x86-64-v3"))
    assert isinstance(FusedWinograd().tilings(late, machine), Rejected)
    offered = WordPairWinograd().tilings(late, machine)
    assert not isinstance(offered, Rejected)
    assert {(each.height, each.width) for each in offered} == {(2, 2)}
