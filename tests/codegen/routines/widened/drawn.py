"""Random layers in 8 bits, their numbers, and their sums by definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.machine import machine_of
from sartor.runtime.driver.signature import Array
from sartor.tuning.calibration.quantised_range import QuantisedRange
from tests.codegen.routines.harness import Subject, load
from tests.codegen.routines.harness import layers as layers_of
from tests.codegen.routines.narrow import run_stored
from tests.plugin.onnx_model.builders import FLOAT, model, node
from tests.thorough import in_turns

# So few layers are tried by several kernels.
_FEW = 50
HOST = Target.create("cpu", "host")


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
        is_apart: whether each channel is convolved by itself.
    """

    image: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, ...]
    extreme: bool
    zero: int
    is_apart: bool = False

    @property
    def filters(self) -> tuple[int, ...]:
        """Shape of the filters."""
        depth = 1 if self.is_apart else self.image[1]
        return (self.channels, depth, *self.kernel) if self.kernel else (depth, self.channels)


Wrong = tuple[str, str, Drawn, float]
"""A layer, an implementation, what was drawn, and the largest difference."""


def drawn(seed: int) -> Drawn:
    """A convolution or product of random sizes."""
    random = np.random.default_rng(seed)

    def some(least: int, most: int) -> int:
        return int(random.integers(least, most, endpoint=True))

    depth, channels, extreme = some(2, 40), some(1, 40), bool(seed % 3 == 0)
    zero = (-128, 127, 0, some(-128, 127))[some(0, 3)]
    # Images and matrices of one channel have kernels of their own.
    channels = max(channels, 2)
    if seed % 4 == 0:
        return Drawn((some(1, 30), some(2, 300)), channels, (), (1, 1), (1, 1), (), extreme, zero)
    kernel = (1, 1) if seed % 4 == 1 else (some(1, 4), some(1, 4))
    strides, dilations = (some(1, 2), some(1, 2)), (some(1, 2), some(1, 2))
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    image = (some(1, 2), depth, reach[0] + some(0, 9), reach[1] + some(0, 9))
    pads = (0, 0, 0, 0) if seed % 4 == 1 else tuple(some(0, 3) for _ in range(4))
    return Drawn(image, channels, kernel, strides, dilations, pads, extreme, zero)


def drawn_apart(seed: int) -> Drawn:
    """A depthwise convolution of random sizes, of windows one or two pixels apart and two or more taps wide."""
    random = np.random.default_rng(seed)

    def some(least: int, most: int) -> int:
        return int(random.integers(least, most, endpoint=True))

    kernel, strides = (some(1, 5), some(2, 7)), (some(1, 3), some(1, 2))
    channels = some(2, 70)
    zero = (-128, 127, 0, some(-128, 127))[some(0, 3)]
    image = (some(1, 2), channels, kernel[0] + some(0, 9), kernel[1] + some(0, 19))
    pads = tuple(some(0, 4) for _ in range(4))
    return Drawn(image, channels, kernel, strides, (1, 1), pads, bool(seed % 3 == 0), zero, is_apart=True)


def numbers(shape: tuple[int, ...], ends: tuple[int, int], seed: int, *, extreme: bool) -> Array:
    """Numbers between both ends, or all at one end for each channel of the result."""
    random = np.random.default_rng(seed)
    if extreme:
        return np.broadcast_to(np.asarray(random.choice(ends)), shape).astype(np.float32)
    return random.integers(*ends, shape, endpoint=True).astype(np.float32)


def filters(of: Drawn, seed: int) -> Array:
    """Integers of a layer's filters."""
    found = np.array(numbers(of.filters, (-128, 127), seed, extreme=of.extreme))
    # With a number beside the one at the end, the scale of every channel is one.
    first = found[:, 0, 0, 0] if of.kernel else found[0]
    first[...] = np.where(first == np.float32(127), 126, -127)
    return found


def model_of(layers: Mapping[int, Drawn], weights: Mapping[int, Array] | None = None) -> ModelProto:
    """A model of layers beside each other, by their seeds, which are part of their names, and their filters, if these
    are other than ``filters`` draws."""
    nodes, inputs, outputs, constants = [], [], [], {}
    for seed, of in layers.items():
        constants[f"w{seed}"] = filters(of, seed) if weights is None else weights[seed]
        inputs.append((f"x{seed}", of.image, FLOAT))
        outputs.append(f"y{seed}")
        given = [f"x{seed}", f"w{seed}"]
        if of.kernel:
            sizes: dict[str, tuple[int, ...] | int] = {
                "strides": of.strides,
                "dilations": of.dilations,
                "pads": of.pads,
                "group": of.channels if of.is_apart else 1,
            }
            nodes.append(node("Conv", given, [f"y{seed}"], name=f"layer{seed}", **sizes))
        else:
            nodes.append(node("MatMul", given, [f"y{seed}"], name=f"layer{seed}"))
    return model(nodes, inputs, outputs, constants)


def expected(of: Drawn, image: Array, weights: Array) -> Array:
    """The sums by definition, in 64 bits."""
    pixels, factors = image.astype(np.int64), weights.astype(np.int64)
    if not of.kernel:
        return (pixels @ factors).astype(np.float32)
    top, left, below, right = of.pads
    padded = np.pad(pixels, ((0, 0), (0, 0), (top, below), (left, right)))
    reach = [(size - 1) * step + 1 for size, step in zip(of.kernel, of.dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: of.strides[0], :: of.strides[1], :: of.dilations[0], :: of.dilations[1]]
    if of.is_apart:
        return np.asarray(np.einsum("ncxyhw,chw->ncxy", windows, factors[:, 0]), np.float32)
    sums: Array = np.einsum("ncxyhw,ochw->noxy", windows, factors)
    return sums.astype(np.float32)


def wrong_sums(
    subjects: Mapping[str, Subject],
    layers: Mapping[int, Drawn],
    target: Target,
    weights: Mapping[int, Array] | None = None,
) -> list[Wrong]:
    """Layers and implementations whose sums of products are not those of the definition, and by how much."""
    program = load(subjects, target)
    wrong = []
    for seed, of in layers.items():
        subject, ends = subjects[f"layer{seed}"], (-128 - of.zero, 127 - of.zero)
        image = numbers(of.image, ends, seed + 1, extreme=of.extreme)
        sums = expected(of, image, filters(of, seed) if weights is None else weights[seed])
        # Rows and columns that no window reads are cut off by a layer before.
        read = image[tuple(map(slice, subject.task.inputs[0].shape))]
        for each in subject.implementations:
            given = run_stored(program, subject, each, [read], {0: QuantisedRange(1.0, of.zero, "int8")})
            if not np.array_equal(given, sums):
                wrong.append((f"layer{seed}", each, of, float(np.abs(given - sums).max())))
    return wrong


def wrong_layers(
    chosen: Mapping[int, Drawn], target: Target, tried: Callable[[Layer, int], Mapping[str, Implementation]]
) -> list[Wrong]:
    """Drawn layers whose sums are wrong in what is ``tried`` of each, by its number."""
    formed = [each for each in layers_of({"drawn": lambda: model_of(chosen)}) if each[0].task.weights]
    subjects = {layer.name: Subject(layer, weights, tried(layer, turn)) for turn, (layer, weights) in enumerate(formed)}
    assert len(subjects) == len(chosen)
    return wrong_sums(subjects, chosen, target)


def some_of(
    offered: Mapping[str, Implementation], turn: int, count: int, config: pytest.Config
) -> Mapping[str, Implementation]:
    """Where there are many layers, one kernel of each, which takes a tenth of the time; all kernels take turns."""
    if count <= _FEW:
        return in_turns(offered, turn, config)
    name = [*offered][turn % len(offered)]
    return {name: offered[name]}


def unsupported(target: Target) -> set[str]:
    """Extensions that the target's code uses and this CPU lacks."""
    of, here = (machine_of(each).features for each in (target, HOST))
    return {each for each in of - here if each.startswith(("sse", "avx", "fma"))}
