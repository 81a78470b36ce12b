"""Pairs of products in 16 bits are exact by weights that are proven to keep them small, and by no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.packing import Quantise, cut
from sartor.codegen.ir.proven_pairs import MOST_OF_A_PAIR, QuantisePairs
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.isa.small_pairs import SMALL_PAIRS, SmallPairElement
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.product import Product
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers
from tests.codegen.routines.widened.drawn import Drawn, Wrong, drawn, model_of, unsupported, wrong_sums

CPUS = ("x86-64-v3", "x86-64-v2")
_LARGE = replace(SMALL_PAIRS, needs_small_pairs=False)


def _at_ends(of: Drawn, seed: int) -> Array:
    """Filters at both ends of what pairs may be, and any in between, each channel by a scale of one."""
    random = np.random.default_rng(seed)
    ends = np.asarray([-64, 64] if of.extreme else range(-64, 65))
    found = random.choice(ends, of.filters).astype(np.float32)
    first = found[:, 0, 0, 0] if of.kernel else found[0]
    first[...] = 63
    return found


def _implementations(layer: Layer, element: SmallPairElement, target: Target) -> dict[str, Implementation]:
    make = Product if layer.task.kind is LayerKind.CONTRACTION else Direct
    routine = IntegerFactor(make("bytes", storage="i8", element=element))
    offered = choices_of(routine, layer.task, target)
    assert isinstance(offered, list), (layer.name, offered)
    built = {str(each): routine.build(layer.task, each, target) for each in offered[:1]}
    found = {name: each for name, each in built.items() if isinstance(each, Implementation)}
    assert found == built
    return found


def _wrong(
    chosen: Mapping[int, Drawn], weights: Mapping[int, Array], element: SmallPairElement, target: Target
) -> list[Wrong]:
    formed = [each for each in layers({"one": lambda: model_of(chosen, weights)}) if each[0].task.weights]
    subjects = {layer.name: Subject(layer, own, _implementations(layer, element, target)) for layer, own in formed}
    assert len(subjects) == len(chosen)
    return wrong_sums(subjects, chosen, target, weights)


@pytest.mark.parametrize("cpu", CPUS)
def test_sums_are_those_of_the_definition(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    seeds = range(CPUS.index(cpu) * 12, CPUS.index(cpu) * 12 + 12)
    chosen = {seed: of for seed in seeds if (of := drawn(seed)).image[1] >= SMALL_PAIRS.group}
    weights = {seed: _at_ends(of, seed) for seed, of in chosen.items()}
    assert {of.extreme for of in chosen.values()} == {False, True}
    assert _wrong(chosen, weights, SMALL_PAIRS, target) == []


def test_larger_pairs_saturate() -> None:
    """By the same kernel without the proof, pairs of 127 by the largest numbers give too small sums."""
    target, of = (
        Target.create("cpu", "x86-64-v3"),
        Drawn((1, 8, 2, 3), 16, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), True, -128),
    )
    weights = np.full(of.filters, 127, np.float32)
    weights[:, 0] = 126
    assert len(_wrong({1: of}, {1: weights}, _LARGE, target)) == 1


def test_weights_of_larger_pairs_are_rounded_and_are_not_exact() -> None:
    steps = cut(((2, 8), (3, 4), (1,), (1,)), (0, 4, 5, 2, 1, 3))
    weight = np.zeros((13, 10, 1, 1), np.float32)
    weight[:, 0], weight[:, 1], weight[:, 9] = 1, 64, -127
    packing = QuantisePairs(0, 8, steps, (2, 3))
    assert packing.is_exact(weight)
    np.testing.assert_array_equal(packing.apply(weight), Quantise(0, 8, steps, (2, 3)).apply(weight))
    # Neighbours in a pair count, and others do not.
    weight[12, 2] = 64
    assert packing.is_exact(weight)
    weight[12, 8] = 2
    assert not packing.is_exact(weight)
    assert Quantise(0, 8, steps, (2, 3)).is_exact(weight)
    random = np.random.default_rng(0).standard_normal((13, 10, 1, 1)).astype(np.float32)
    for each in (weight, random):
        integers = packing.apply(each)[:, : 3 * 8 * 4].astype(np.int16).reshape(-1, 2)
        assert np.abs(integers).sum(axis=1).max() <= MOST_OF_A_PAIR


def test_a_faster_instruction_is_preferred() -> None:
    refused = {
        cpu: isinstance(SMALL_PAIRS.refusal(machine_of(Target.create("cpu", cpu))), Rejected)
        for cpu in (*CPUS, "skylake-avx512", "alderlake", "znver4")
    }
    assert refused == dict(zip(refused, (False, False, False, True, True), strict=True))
