"""Products of groups of numbers in vector registers, and their stand-ins, compute what candidate 0 computes."""

from __future__ import annotations

import os

import pytest

from sartor.codegen.ir.layer import Layer, LayerKind
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, Variant, choices_of, variants_of
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.codegen.routines.storing.integers import IntegerFactor
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.product import Product
from tests.codegen.routines.harness import Found, Subject, layers, load
from tests.codegen.routines.kernel_cases import EXTREME, kernel_model
from tests.codegen.routines.layer_cases import Cases
from tests.codegen.routines.narrow import rounded_subject, wrong
from tests.codegen.routines.widened.drawn import Wrong, drawn, model_of, unsupported, wrong_sums

KERNELS = ("dots", "dots_to_f32", "direct", "product", "window")

# What a CPU has for a type: instructions for vectors of 64 bytes, or of 32, or none.
CPUS = [
    ("host", "bf16"),
    ("host", "i8"),
    ("host", "f16"),
    ("cooperlake", "bf16"),
    ("cascadelake", "i8"),
    ("alderlake", "i8"),
    ("x86-64-v3", "bf16"),
    ("x86-64-v3", "i8"),
    ("x86-64-v3", "f16"),
]

CASES = ("uneven_padding", "uneven_window", "channels3", "channels5", "apart_stride3", "max_uneven_padding", "odd")
CASES_OF_HOST = (
    *CASES,
    "channels3_stride2",
    "larger_kernel_odd",
    "wide_padding",
    "stride3",
    "panels",
    "prime1x1",
    "padded1x1",
    "squeeze_excite",
    "vector",
    "many",
)
EXTREMES = ("uneven_padding", "padded1x1", "channels3_stride2", "odd")
"""Those that are computed with the register tiles of ``EXTREME`` too."""

HOST = Target.create("cpu", "host")
DOTS = {each.dtype: each for each in (BFLOAT_DOTS, INTEGER_DOTS)}
STOCK = ROUTINES[0]


def _dots(dtype: str) -> Direct:
    return Direct("dots", storage=dtype, element=DOTS[dtype])


def _variants(layer: Layer, target: Target, dtype: str) -> dict[str, Implementation]:
    stock = STOCK.build(layer.task, {}, target)
    assert isinstance(stock, Implementation)
    found = {"stock": stock}
    for routine in LOW_PRECISION[dtype]:
        if routine.name in KERNELS:
            variants = [variant for variant in variants_of(routine, layer.task, target) if isinstance(variant, Variant)]
            found |= {variant.descriptor: variant.implementation for variant in variants[:1]}
    return found


def _extremes(layer: Layer, target: Target, dtype: str) -> dict[str, Implementation]:
    tilings: list[Parameters] = list(EXTREME["images3"]["direct"])
    routine = Product("dots", storage=dtype, element=_dots(dtype).element) if layer.name == "odd" else _dots(dtype)
    found = {}
    if layer.name == "channels3_stride2":
        # Tiles of a single pixel would not do for every window.
        tilings = tilings[1:]
    for parameters in tilings[:4] if layer.name == "odd" else tilings:
        built = routine.build(layer.task, parameters, target)
        assert isinstance(built, Implementation), (layer.name, parameters, built)
        found[f"extreme{sorted(parameters.items())}"] = built
    return found


def _subjects(found: Found, target: Target, dtype: str) -> dict[str, Subject]:
    subjects = {}
    for name in CASES_OF_HOST if target == HOST else CASES:
        layer, weights = found[name]
        implementations = _variants(layer, target, dtype)
        if name in EXTREMES and target == HOST and _has_dots(target, dtype):
            implementations |= _extremes(layer, target, dtype)
        subjects[name] = rounded_subject(Subject(layer, weights, implementations), dtype)
    return subjects


def _has_dots(target: Target, dtype: str) -> bool:
    return dtype in DOTS and DOTS[dtype].refusal(machine_of(target)) is None


def _vector_features(target: Target) -> set[str]:
    """Extensions that kernels use; those of the operating system may be missing."""
    return {feature for feature in machine_of(target).features if feature.startswith(("sse", "avx", "fma", "f16c"))}


@pytest.fixture(scope="module")
def found() -> Found:
    models = {"kernels": kernel_model}
    return {layer.name: (layer, weights) for layer, weights in layers(models)}


@pytest.mark.parametrize(("cpu", "dtype"), CPUS)
def test_kernels_compute_the_layers(found: Found, cpu: str, dtype: str) -> None:
    target = Target.create("cpu", cpu)
    missing = _vector_features(target) - _vector_features(HOST)
    if missing:
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    subjects = _subjects(found, target, dtype)
    program = load(subjects, target)
    assert {name: wrong(program, subject, dtype) for name, subject in subjects.items()} == {
        name: {} for name in subjects
    }


@pytest.mark.parametrize(
    ("cpu", "dtype", "offered"),
    [
        ("cooperlake", "bf16", {"dots", "direct"}),
        ("cooperlake", "i8", {"dots"}),
        ("cascadelake", "bf16", {"direct"}),
        ("cascadelake", "i8", {"dots"}),
        ("alderlake", "i8", {"dots"}),
        ("x86-64-v3", "i8", {"direct"}),
        ("x86-64-v3", "f16", {"direct"}),
    ],
)
def test_routines_are_those_that_the_cpu_is_good_at(found: Found, cpu: str, dtype: str, offered: set[str]) -> None:
    task, target = found["images3"][0].task, Target.create("cpu", cpu)
    routines = [each for each in LOW_PRECISION[dtype] if each.name in KERNELS]
    assert {
        routine.name for routine in routines if not isinstance(choices_of(routine, task, target), Rejected)
    } == offered


def test_too_few_channels_are_left_to_others(found: Found) -> None:
    task, target = found["channels1"][0].task, Target.create("cpu", "cascadelake")
    parameters = EXTREME["images3"]["direct"][0]
    assert _dots("i8").build(task, parameters, target) == Rejected(
        "it has 1 input channels, too few to multiply 4 at once"
    )
    assert not isinstance(choices_of(Direct(storage="i8"), task, target), Rejected)


def test_pixels_of_three_channels_need_one_beside_them() -> None:
    cases = Cases()
    cases.convolution("alone", (1, 3, 24, 7), 24, (22, 1), pads=[0] * 4)
    cases.convolution("apart", (2, 3, 11, 13), 24, (5, 5), dilation=2)
    (alone, weights), (apart, others) = layers({"few": cases.model})
    target, tiling = Target.create("cpu", "cascadelake"), EXTREME["images3"]["direct"]
    assert _dots("i8").build(alone.task, tiling[0], target) == Rejected(
        "a pixel of the tile has no neighbour in its row"
    )
    if not _has_dots(HOST, "i8"):
        pytest.skip("this CPU has no VNNI")
    subjects = {}
    for layer, given in ((alone, weights), (apart, others)):
        found = _variants(layer, HOST, "i8")
        for number in (1, 2, 4):
            built = _dots("i8").build(layer.task, tiling[number], HOST)
            assert isinstance(built, Implementation), built
            found[f"extreme{number}"] = built
        subjects[layer.name] = rounded_subject(Subject(layer, given, found), "i8")
    program = load(subjects, HOST)
    assert {name: wrong(program, subject, "i8") for name, subject in subjects.items()} == {"alone": {}, "apart": {}}


def test_fewer_sizes_are_tried_beside_amx(found: Found) -> None:
    task = found["images3"][0].task
    many, few = (choices_of(_dots("i8"), task, Target.create("cpu", cpu)) for cpu in ("cascadelake", "sapphirerapids"))
    assert isinstance(many, list)
    assert isinstance(few, list)
    assert few == many[:2]


# AVX-VNNI, whose vectors have 32 bytes, and VNNI in vectors of 64.
RANDOM_DOTS_CPUS = ("alderlake", "cascadelake")
COUNT = int(os.environ.get("SARTOR_PAIR_LAYERS", "8"))
"""Layers of each vector length; a thorough run has some hundreds."""
_TOGETHER = 50


def _implementation(layer: Layer, turn: int, target: Target) -> Implementation:
    """One of the variants that are offered, in turn."""
    make = Product if layer.task.kind is LayerKind.CONTRACTION else Direct
    routine = IntegerFactor(make("dots", storage="i8", element=INTEGER_DOTS))
    offered = choices_of(routine, layer.task, target)
    assert isinstance(offered, list), (layer.name, offered)
    built = routine.build(layer.task, offered[turn % len(offered)], target)
    assert isinstance(built, Implementation), (layer.name, built)
    return built


def _wrong(seeds: range, target: Target) -> list[Wrong]:
    chosen = {seed: of for seed in seeds if (of := drawn(seed)).image[1] >= INTEGER_DOTS.group}
    formed = [each for each in layers({"drawn": lambda: model_of(chosen)}) if each[0].task.weights]
    subjects = {
        layer.name: Subject(layer, weights, {"dots": _implementation(layer, turn, target)})
        for turn, (layer, weights) in enumerate(formed)
    }
    assert len(subjects) == len(chosen)
    return wrong_sums(subjects, chosen, target)


@pytest.mark.parametrize("cpu", RANDOM_DOTS_CPUS)
def test_sums_are_those_of_the_definition(cpu: str) -> None:
    target = Target.create("cpu", cpu)
    if missing := unsupported(target):
        pytest.skip(f"this CPU has no {', '.join(sorted(missing))}")
    assert INTEGER_DOTS.exists_on(machine_of(target))
    first = RANDOM_DOTS_CPUS.index(cpu) * 10_000
    parts = [range(first, first + COUNT)[start : start + _TOGETHER] for start in range(0, COUNT, _TOGETHER)]
    wrong = [each for seeds in parts for each in _wrong(seeds, target)]
    assert wrong == []
