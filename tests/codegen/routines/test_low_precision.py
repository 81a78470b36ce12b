"""Routines that store bf16 compute what ONNX Runtime computes of the same rounded numbers, but for their last rounding.

All activations and weights are numbers of bf16, so that products are exact, and sums in f32 as good as ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, choices_of, variants_of
from sartor.codegen.kernels.isa.amx import INTEGER
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.codegen.routines.amx.tile_convolution import TileConvolution
from sartor.codegen.routines.amx.tile_product import TileProduct
from sartor.runtime.driver.amx import MATRIX_FEATURES, unusable
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.module import open_module
from sartor.tuning.records.hardware import host
from tests.codegen.routines.harness import (
    Found,
    Subject,
    compiled,
    layers,
    load,
    opened,
    results_by_onnx_runtime,
    run,
)
from tests.codegen.routines.kernel_cases import kernel_cases
from tests.codegen.routines.low_precision_cases import (
    EXTREME_TILES,
    KERNEL_CASES,
    low_precision_cases,
    low_precision_model,
)
from tests.codegen.routines.narrow import rounded_subject, wrong
from tests.importing import imported_model
from tests.thorough import in_turns, tried, with_each_routine

HOST = replace(Target.create("cpu"), withheld=unusable(MATRIX_FEATURES))
AVX2 = Target.create("cpu", "x86-64-v3")
WITH_TILES = Target.create("cpu", "sapphirerapids")
STOCK = ROUTINES[0]
CASES = [*KERNEL_CASES, *low_precision_cases().names[len(kernel_cases().names) :]]

NO_TILES = f"{', '.join(unusable(MATRIX_FEATURES))}: the CPU has none, or its operating system refuses them"
needs_tiles = pytest.mark.skipif(bool(unusable(["amx-bf16"])), reason=NO_TILES)

# Rounding to eight bits, and sums of f32 in another order.
ROUNDING, REORDERING = 2.0**-8, 1e-5
# The error function for results in bf16, relative to the largest number that it is multiplied by.
ROUGH_ERF = 2e-4

# Further parameter sets are tried on these, the first one on the others.
THOROUGH = ("seven_rows", "few_stride2", "many_rows", "apart_stride3", "scores", "heads")
# These are tried on a third of the others.
OFTEN = ("direct", "direct_by_bf16", "dots", "product", "product_by_bf16")
FOR_OTHER_CPUS = (
    *(
        "uneven_window",
        "images3",
        "squeeze_excite",
        "one_pixel1x1",
        "apart_stride3",
        "max_uneven_padding",
        "odd",
        "many",
    ),
    *("few1", "few3", "depth33", "single_row", "joined_few", "softmax"),
)
# They multiply, but not as kernels do.
REFUSED = ("depth1", "column1", "one_number")


def _rounded(array: Array) -> Array:
    return array.astype(ml_dtypes.bfloat16).astype(array.dtype) if array.dtype == np.float32 else array


def _model() -> ModelProto:
    """Of rounded weights."""
    model = low_precision_model()
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(_rounded(numpy_helper.to_array(weight)), weight.name))
    return model


def _stock(layer: Layer, target: Target) -> dict[str, Implementation]:
    """Candidate 0."""
    stock = STOCK.build(layer.task, {}, target)
    assert isinstance(stock, Implementation)
    return {"stock": stock}


def _variants(layer: Layer, target: Target, config: pytest.Config | None = None) -> dict[str, Implementation]:
    """What the routines over bf16 offer, but for one that rounds more than once; a ``config`` chooses."""
    found: dict[str, Implementation] = {}
    for routine in LOW_PRECISION["bf16"]:
        if routine.name == "fused_winograd_dots":
            continue
        variants = [each for each in variants_of(routine, layer.task, target) if isinstance(each, Variant)]
        kept = variants[:1]
        if config is not None and layer.name in THOROUGH:
            kept = tried(variants, THOROUGH.index(layer.name), config)
        found |= {each.descriptor: each.implementation for each in kept}
    return found


def _extremes(layer: Layer) -> dict[str, Implementation]:
    found: dict[str, Implementation] = {}
    routine = TileProduct() if layer.task.kind is LayerKind.CONTRACTION else TileConvolution()
    for parameters in EXTREME_TILES.get(layer.name, []):
        built = routine.build(layer.task, parameters, HOST)
        assert isinstance(built, Implementation), (layer.name, parameters, built)
        found[f"extreme{sorted(parameters.items())}"] = built
    return found


def _wrong(program: Program, subject: Subject) -> dict[str, float]:
    """The worst difference, as a multiple of what is allowed, of each implementation that is not right."""
    inputs = [_rounded(each) for each in subject.inputs()]
    right = run(program, subject, "stock", inputs) if subject.expected is None else subject.expected
    expected = right.astype(np.float64)
    inexact = ROUGH_ERF if "math.erf" in subject.layer.task.body else REORDERING
    allowed = ROUNDING * np.abs(expected) + inexact * np.abs(expected).max()
    assert allowed.any()
    worst = {
        name: float((np.abs(run(program, subject, name, inputs) - expected) / allowed).max())
        for name in subject.implementations
    }
    return {name: each for name, each in worst.items() if not each <= 1}


def _subject(
    found: Found, name: str, implementations: Mapping[str, Implementation], expected: Array | None = None
) -> Subject:
    layer, weights = found[name]
    return Subject(layer, {key: _rounded(each) for key, each in weights.items()}, implementations, expected)


@pytest.fixture(scope="module")
def found() -> Found:
    return {layer.name: (layer, weights) for layer, weights in layers({"low": _model})}


@pytest.fixture(scope="module")
def expected() -> Mapping[str, Array]:
    return results_by_onnx_runtime(imported_model(_model()), _rounded)


@pytest.fixture(scope="module")
def offered(found: Found, pytestconfig: pytest.Config) -> dict[str, dict[str, Implementation]]:
    return {name: _variants(found[name][0], HOST, pytestconfig) for name in CASES}


@pytest.fixture(scope="module")
def subjects(
    found: Found,
    offered: Mapping[str, dict[str, Implementation]],
    expected: Mapping[str, Array],
    pytestconfig: pytest.Config,
) -> dict[str, Subject]:
    """Candidate 0 tells what is right where another layer's result is read."""
    chosen = {
        name: each if name in THOROUGH else in_turns(each, turn, pytestconfig, OFTEN)
        for turn, (name, each) in enumerate(offered.items())
    }
    variants = with_each_routine(offered, chosen)
    stock = {name: {} if name in expected else _stock(found[name][0], HOST) for name in CASES}
    return {name: _subject(found, name, variants[name] | stock[name], expected.get(name)) for name in CASES}


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


@pytest.mark.parametrize("case", CASES)
def test_every_routine_computes_the_layer(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    assert ({*subject.implementations} <= {"stock"}) == (case in REFUSED), list(subject.implementations)
    assert _wrong(program, subject) == {}


@pytest.mark.parametrize("case", CASES)
def test_results_are_stored_as_they_are_described(case: str, subjects: dict[str, Subject]) -> None:
    for name, implementation in subjects[case].implementations.items():
        stored = "bf16" if name.startswith("cpu:bf16/") else subjects[case].task.results[0].dtype
        assert implementation.output.dtype == stored
        assert bool(implementation.needs) == (".tiles" in name)


@needs_tiles
def test_tiles_of_any_size_compute_the_layer(found: Found) -> None:
    stock = {name: _stock(found[name][0], HOST) for name in EXTREME_TILES}
    chosen = {name: _subject(found, name, stock[name] | _extremes(found[name][0])) for name in EXTREME_TILES}
    content = compiled(chosen, HOST)
    for threads in (1, 4):
        program = opened(content, HOST, threads)
        assert {name: _wrong(program, each) for name, each in chosen.items()} == {name: {} for name in chosen}


@needs_tiles
def test_convolutions_and_products_have_tiles(found: Found) -> None:
    without = {
        name: layer.name
        for name, layer in ((name, found[name][0]) for name in CASES)
        if layer.task.kind in (LayerKind.CONVOLUTION, LayerKind.CONTRACTION)
        and not any(".tiles{" in each for each in _variants(layer, HOST))
    }
    # A single row is not worth a copy.
    assert set(without) == {*REFUSED, "vectors"}


@pytest.mark.skipif(not {"avx2", "fma"} <= set(host().features), reason="this CPU has no AVX2")
def test_routines_for_avx2_compute_the_layers(found: Found) -> None:
    """LLVM has no instruction that converts bf16 there."""
    variants = {name: _variants(found[name][0], AVX2) for name in FOR_OTHER_CPUS}
    assert all(variants.values())
    stock = {name: _stock(found[name][0], AVX2) for name in FOR_OTHER_CPUS}
    chosen = {name: _subject(found, name, stock[name] | variants[name]) for name in FOR_OTHER_CPUS}
    program = load(chosen, AVX2)
    assert {name: _wrong(program, each) for name, each in chosen.items()} == {name: {} for name in chosen}


@pytest.mark.skipif(bool(unusable(["amx-int8"])), reason="there is no AMX for 8 bits that this process may use")
@pytest.mark.parametrize("case", ["padded1x1", "padded_rows1x1"])
def test_padding_is_zero_in_8_bits_too(case: str, found: Found) -> None:
    layer, weights = found[case]
    routine = TileConvolution(storage="i8", element=INTEGER)
    offered = {
        each.descriptor: each.implementation
        for each in variants_of(routine, layer.task, HOST)
        if isinstance(each, Variant)
    }
    assert offered
    subject = rounded_subject(Subject(layer, weights, _stock(layer, HOST) | offered), "i8")
    assert wrong(load({case: subject}, HOST), subject, "i8") == {}


def test_tiles_compile_on_any_machine(found: Found) -> None:
    names = ("few_stride2", "seven_rows", "depth33_1x1", "single_row", "context")
    variants = {name: _variants(found[name][0], WITH_TILES) for name in names}
    assert all(any(".tiles{" in each for each in implementations) for implementations in variants.values())
    module = open_module(compiled({name: _subject(found, name, variants[name]) for name in names}, WITH_TILES))
    assert len(module.functions) >= 2 * len(names)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (AVX2, "the CPU has no amx-bf16"),
        (
            replace(WITH_TILES, withheld=("amx-bf16",)),
            "the operating system does not let programs use the CPU's amx-bf16",
        ),
    ],
)
def test_where_there_are_no_tiles_routines_say_why(found: Found, target: Target, reason: str) -> None:
    assert choices_of(TileConvolution(), found["seven_rows"][0].task, target) == Rejected(reason)
    assert choices_of(TileProduct(), found["single_row"][0].task, target) == Rejected(reason)


def test_tiles_are_not_for_a_single_row_or_whole_numbers_times_activations(found: Found) -> None:
    parameters = EXTREME_TILES["single_row"][2]
    assert TileProduct().build(found["vectors"][0].task, parameters, WITH_TILES) == Rejected(
        "a single row does not justify a copy of the RHS"
    )
    integers = choices_of(TileProduct(storage="i8", element=INTEGER), found["scores"][0].task, WITH_TILES)
    assert integers == Rejected("integers are multiplied by weights only")


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"pixels": 8}, "tiles are larger than the result"),
        ({"lines": 8}, "tiles are larger than the result"),
        ({"vectors": 7}, "blocks are larger than AMX's tiles"),
        ({"tiles": 2, "vectors": 3}, "blocks are larger than AMX's tiles"),
        ({"depth": 34}, "blocks are larger than AMX's tiles"),
    ],
)
def test_tiles_that_the_unit_does_not_hold_are_refused(found: Found, sizes: dict[str, int], reason: str) -> None:
    parameters = {**EXTREME_TILES["seven_rows"][0], **sizes}
    assert TileConvolution().build(found["seven_rows"][0].task, parameters, WITH_TILES) == Rejected(reason)


@pytest.mark.parametrize("case", ["seven_rows", "single_row", "apart_stride3", "softmax"])
def test_only_results_of_f32_are_stored_in_another_type(case: str, found: Found) -> None:
    task = found[case][0].task
    half = replace(task, results=(replace(task.results[0], dtype="f16"),))
    answers = [choices_of(routine, half, WITH_TILES) for routine in LOW_PRECISION["bf16"]]
    assert all(isinstance(each, Rejected) for each in answers)
    assert Rejected("its results are not all f32") in answers
