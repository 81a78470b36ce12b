"""Products of pairs of 16-bit numbers are exact, whatever the numbers, sizes, strips and vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS, WORD_PAIRS, WordPairElement
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.widened.pairs import WordPairConvolution, WordPairProduct
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, layers, load
from tests.codegen.routines.narrow import run_stored
from tests.plugin.onnx_model.builders import FLOAT, model, node

HOST = Target.create("cpu", "host")
# Vectors of 32 bytes, of 64, and of 16.
CPUS = ("x86-64-v3", "skylake-avx512", "x86-64-v2")
ELEMENTS = (WORD_PAIRS, WIDE_WORD_PAIRS)
COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "8"))
"""Layers of each vector length; a thorough run has some hundreds."""


@dataclass(frozen=True)
class Drawn:
    """A convolution, or a product if it has no kernel.

    Attributes:
        image: shape of the image, or of the LHS.
        channels: of the result.
        kernel: taps along H and W.
        strides, dilations: along H and W.
        pads: above, left, below and right.
        extreme: whether all numbers are at the ends of their types, so that sums are as large as they can be.
        zero: zero point of the image.
    """

    image: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, ...]
    extreme: bool
    zero: int

    @property
    def filters(self) -> tuple[int, ...]:
        """Shape of the filters."""
        return (self.channels, self.image[1], *self.kernel) if self.kernel else (self.image[1], self.channels)


def _drawn(seed: int) -> Drawn:
    random = np.random.default_rng(seed)

    def some(least: int, most: int) -> int:
        return int(random.integers(least, most, endpoint=True))

    depth, channels, extreme = some(2, 40), some(1, 40), bool(seed % 3 == 0)
    zero = (-128, 127, 0, some(-128, 127))[some(0, 3)]
    if seed % 4 == 0:
        return Drawn((some(1, 30), some(2, 300)), channels, (), (1, 1), (1, 1), (), extreme, zero)
    kernel = (1, 1) if seed % 4 == 1 else (some(1, 4), some(1, 4))
    strides, dilations = (some(1, 2), some(1, 2)), (some(1, 2), some(1, 2))
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    image = (some(1, 2), depth, reach[0] + some(0, 9), reach[1] + some(0, 9))
    pads = (0, 0, 0, 0) if seed % 4 == 1 else tuple(some(0, 3) for _ in range(4))
    return Drawn(image, channels, kernel, strides, dilations, pads, extreme, zero)


def _numbers(shape: tuple[int, ...], ends: tuple[int, int], seed: int, *, extreme: bool) -> Array:
    """Numbers between both ends, or all at one end for each channel of the result."""
    random = np.random.default_rng(seed)
    if extreme:
        return np.broadcast_to(np.asarray(random.choice(ends)), shape).astype(np.float32)
    return random.integers(*ends, shape, endpoint=True).astype(np.float32)


def _filters(of: Drawn, seed: int) -> Array:
    found = np.array(_numbers(of.filters, (-128, 127), seed, extreme=of.extreme))
    # With a number beside the one at the end, the scale of every channel is one.
    first = found[:, 0, 0, 0] if of.kernel else found[0]
    first[...] = np.where(first == np.float32(127), 126, -127)
    return found


def _model(seeds: range) -> ModelProto:
    nodes, inputs, outputs, constants = [], [], [], {}
    for seed in seeds:
        of = _drawn(seed)
        constants[f"w{seed}"] = _filters(of, seed)
        inputs.append((f"x{seed}", of.image, FLOAT))
        outputs.append(f"y{seed}")
        given = [f"x{seed}", f"w{seed}"]
        if of.kernel:
            sizes = {"strides": of.strides, "dilations": of.dilations, "pads": of.pads}
            nodes.append(node("Conv", given, [f"y{seed}"], name=f"layer{seed}", **sizes))
        else:
            nodes.append(node("MatMul", given, [f"y{seed}"], name=f"layer{seed}"))
    return model(nodes, inputs, outputs, constants)


def _expected(of: Drawn, image: Array, filters: Array) -> Array:
    """The sums by definition, in 64 bits."""
    numbers, weights = image.astype(np.int64), filters.astype(np.int64)
    if not of.kernel:
        return (numbers @ weights).astype(np.float32)
    top, left, below, right = of.pads
    padded = np.pad(numbers, ((0, 0), (0, 0), (top, below), (left, right)))
    reach = [(size - 1) * step + 1 for size, step in zip(of.kernel, of.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: of.strides[0], :: of.strides[1], :: of.dilations[0], :: of.dilations[1]]
    sums: Array = np.einsum("ncxyhw,ochw->noxy", windows, weights)
    return sums.astype(np.float32)


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
        offered = routine.parameters(layer.task, target)
        assert isinstance(offered, list), (layer.name, offered)
        for number, parameters in enumerate([*offered[:1], *_extremes()]):
            built = routine.build(layer.task, parameters, target)
            assert isinstance(built, Implementation), (layer.name, parameters, built)
            found[f"{number}{element.is_wide}"] = built
    return found


def _unsupported(target: Target) -> set[str]:
    """Extensions that the target's code uses and this CPU lacks."""
    of, here = (machine_of(each, "f32").features for each in (target, HOST))
    return {each for each in of - here if each.startswith(("sse", "avx", "fma"))}


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_are_those_of_the_definition(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := _unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    first = CPUS.index(cpu) * 10_000
    seeds = range(first, first + COUNT)
    formed = layers({"drawn": lambda: _model(seeds)})
    subjects = {each.name: Subject(each, weights, _implementations(each, target)) for each, weights in formed}
    assert len(subjects) == COUNT
    program = load(subjects, target)
    wrong = {}
    for name, subject in subjects.items():
        seed = int(name.removeprefix("layer"))
        of = _drawn(seed)
        numbers = QuantisedRange(1.0, of.zero, "int8")
        image = _numbers(of.image, (-128 - of.zero, 127 - of.zero), seed + 1, extreme=of.extreme)
        expected = _expected(of, image, _filters(of, seed))
        for each in subject.implementations:
            given = run_stored(program, subject, each, [image], {0: numbers})
            if not np.array_equal(given, expected):
                wrong[name, each] = of, float(np.abs(given - expected).max())
    assert wrong == {}


def test_a_faster_instruction_is_preferred() -> None:
    found: Mapping[str, bool] = {
        cpu: any(isinstance(each.refusal(machine_of(Target.create("cpu", cpu), "f32")), Rejected) for each in ELEMENTS)
        for cpu in (*CPUS, "haswell", "znver3", "alderlake", "cascadelake", "znver4")
    }
    assert found == {
        **dict.fromkeys((*CPUS, "haswell", "znver3"), False),
        **dict.fromkeys(("alderlake", "cascadelake", "znver4"), True),
    }
