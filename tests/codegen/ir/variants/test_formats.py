"""The table of algorithms and formats, the traits of routines, and what variants in 8 bits count for."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from dataclasses import replace

import pytest

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.packing import Packing, Quantise, Round, Step
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.formats import Algorithm, Format, Layout, Work, absences, alone, excluding, kernel
from sartor.codegen.ir.variants.rounding import STORED, rounding_of
from sartor.codegen.ir.variants.routine import Implementation, Rounding, Storing, Variant
from sartor.codegen.ir.variants.traits import LOWERED, FormatClass, Traits
from sartor.codegen.routine_registry import described, families, size_names
from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION, PAIRS, ROUTINES, routines_for
from sartor.codegen.routines import algorithms as by
from sartor.codegen.routines import formats as of
from sartor.codegen.routines.iree.stock import Stock


def test_each_pair_exists_once_or_has_a_reason() -> None:
    assert [pair for pair, count in Counter(PAIRS).items() if count > 1] == []
    algorithms, formats = ({pair[side] for pair in PAIRS} for side in (0, 1))
    absent = list(absences(PAIRS))
    assert len(PAIRS) + len(absent) == len(algorithms) * len(formats)
    assert [one for one in absent if not one.reason] == []


def test_no_pair_exists_that_a_reason_excludes() -> None:
    assert [(algorithm.name, form.name) for algorithm, form in PAIRS if excluding(algorithm, form)] == []


def test_algorithms_formats_and_routines_have_names_of_their_own() -> None:
    for named in ({algorithm for algorithm, _ in PAIRS}, {form for _, form in PAIRS}):
        assert max(Counter(one.name for one in named).values()) == 1
    assert len(PAIRS) == len(ROUTINES) == len(set(ROUTINES))


@pytest.mark.parametrize(
    ("algorithm", "form", "reason"),
    [
        (by.JOIN, of.I8_DOTS, "it multiplies by no weights"),
        (by.IMPLICIT, of.BY_F16, "it is for cuda, and the format for cpu"),
        (by.PRODUCT, of.BLOCKED, "it has no form for images in blocks of channels beside its own layout"),
        (by.RECURRENT, of.BF16, "not written: rounding adds up over the steps"),
        (by.DIRECT, of.IN_BLOCKS, "codes in blocks are decoded by kernels of their own"),
        (by.DIRECT, of.I8_DOTS, None),
    ],
)
def test_a_pair_that_does_not_exist_says_why(algorithm: Algorithm, form: Format, reason: str | None) -> None:
    reasons = {(one.algorithm, one.form): one.reason for one in absences(PAIRS)}
    assert reasons.get((algorithm.name, form.name)) == reason


def test_a_pair_that_was_forgotten_is_noticed() -> None:
    (one,) = absences([(by.DIRECT, of.OWN), (by.DIRECT, of.BF16), (by.WINDOW, of.OWN)])
    assert (one.algorithm, one.form, one.reason) == ("window", "bf16", "")
    excluded = replace(of.OWN, name="elsewhere", layout=Layout.PLANES)
    assert excluding(by.DIRECT, excluded) == "it has no form for images in planes beside its own layout"
    assert excluding(Algorithm("a", alone(Stock), "", Work.LOWERED), of.BY_I8) == Work.LOWERED.value


def test_a_format_reaches_the_routine_whole() -> None:
    with pytest.raises(TypeError, match="weights"):
        Algorithm("stock", kernel(Stock)).routine(of.BY_F16)


def variant(descriptor: str, dtype: str, *packings: tuple[Step, ...]) -> Variant:
    schema = Schema("cpu", dtype, "nhwc")
    code = Implementation("", (schema,), (schema,), tuple(map(Packing, packings)))
    return Variant(descriptor, "cpu", dtype, code, described(descriptor).traits)


@pytest.mark.parametrize(
    ("found", "rounding"),
    [
        (variant("cpu:i8/conv2d.dots{}", "i8", (Quantise(0, 16, ()),), ()), "i8"),
        (variant("cpu:i8/conv2d.direct{}", "i8", (), ()), STORED),
        (variant("cpu:i8/pool.window{}", "i8"), "i8"),
        (variant("cpu:i8/conv2d.fused_winograd_dots{}", "i8", (Round("bf16"),)), "i8"),
        (variant("cpu:bf16/conv2d.direct{}", "bf16", ()), "bf16"),
        (variant("cpu:f32/conv2d.direct{}", "f32", ()), "f32"),
    ],
)
def test_filters_that_stay_what_they_are_do_not_count(found: Variant, rounding: str) -> None:
    assert rounding_of(found) == rounding


def test_routines_of_one_name_and_type_differ_in_nothing_that_is_looked_up() -> None:
    found: defaultdict[tuple[str, str | None], set[Traits]] = defaultdict(set)
    for routine in ROUTINES:
        storage = routine.storage if isinstance(routine, Storing) else None
        arithmetic = routine.arithmetic if isinstance(routine, Rounding) else None
        # Of these two nothing is looked up by the name: they belong to the routine that has a task.
        traits = replace(routine.traits, beside_kernels=frozenset(), opens=False)
        found[routine.name, arithmetic or storage].add(traits)
    assert {key: traits for key, traits in found.items() if len(traits) > 1} == {}


def test_every_routine_is_asked_about_some_layers() -> None:
    asked = {*routines_for(LOW_PRECISION), *FUSED_ROUTINES}
    assert asked == set(ROUTINES)
    assert list(LOW_PRECISION) == ["tf32", "bf16", "i8", *FOUR_BITS.values(), "f16"]


def test_traits_reach_workers_and_do_not_change() -> None:
    for routine in ROUTINES:
        assert pickle.loads(pickle.dumps(routine.traits)) == routine.traits
        assert routine.traits == routine.traits


@pytest.mark.parametrize(
    ("descriptor", "family", "format_class"),
    [
        ("cpu:f32/conv2d.direct_blocked{columns=4}", "direct", ("f32", True, False)),
        ("cpu:bf16/conv2d.tiles{columns=4}", "tiles", ("bf16", False, False)),
        ("cpu:bf16/conv2d.tiles_of_bf16{columns=4}", "tiles", ("bf16", False, True)),
        ("cpu:i8/matmul.dots_to_f32{columns=4}", "dots", ("i8", False, True)),
        ("cpu:i8/conv2d.whole_tiles{columns=4}", "tiles", ("i8", False, True)),
        ("cpu:i8/conv2d.whole_direct{columns=4}", "direct", ("i8", False, True)),
        ("cpu:i8/block.stock_to_whole", "stock", ("i8", False, True)),
        ("cpu:i8/conv2d.fused_winograd_bytes{columns=4}", "fused_winograd", ("i8", False, False)),
        ("cpu:f32/conv2d.nhwc", None, ("f32", False, False)),
        ("f32/conv2d.direct", "direct", ("f32", False, False)),
    ],
)
def test_a_descriptor_tells_family_and_format_class(
    descriptor: str, family: str | None, format_class: FormatClass
) -> None:
    found = described(descriptor)
    assert found.traits.family == family
    assert found.format_class == format_class


def test_a_type_that_is_the_models_own_is_no_precision() -> None:
    assert described("cpu:f64/conv2d.stock").traits == ROUTINES[0].traits
    assert described("cpu:i64/block.rowwise{groups=2}").parameters == {"groups": 2}


@pytest.mark.parametrize("descriptor", ["", "probe", "cpu:f32/conv2d.forgotten{columns=4}"])
def test_a_routine_that_does_not_exist_any_more_counts_as_a_lowering(descriptor: str) -> None:
    assert described(descriptor).traits == LOWERED


def test_only_what_rounds_or_transforms_says_so() -> None:
    rounding = {routine.name for routine in ROUTINES if routine.traits.rounds_between}
    transformed = {"fused_winograd_dots", "fused_winograd_neon", "fused_winograd_bytes"}
    assert rounding == {*transformed, "half_pairs"}
    transforming = {routine.name for routine in ROUTINES if routine.traits.transforms}
    fused = {"fused_winograd", "fused_winograd_blocked"}
    in_each_call = {routine.name for routine in ROUTINES if routine.traits.transforms_filters}
    assert in_each_call == {"transforming_winograd", "transforming_winograd_blocked"}
    others = {
        "winograd",
        "subgroup_winograd",
        "open_winograd",
        "convolution_or_winograd",
        "winograd_by_size",
        *in_each_call,
    }
    # Rows of 16 bits with a scale for each block differ from f32 in more than the order of sums, too.
    words = {"block_words", "block_word_pairs"}
    assert transforming == {*transformed, *fused, *others, *words, *(f"half_{each}" for each in fused)}


def test_kernels_that_multiply_in_groups_name_their_instruction() -> None:
    pairs = ("half_pairs", "word_pairs", "byte_pairs")
    parts = ("tiles", "dots", "block_words", "words_by_i4", *pairs, "fused_winograd_neon", "fused_winograd_bytes")
    for routine in ROUTINES:
        is_named = any(part in routine.name for part in parts)
        assert (routine.traits.instruction is not None) == is_named, routine.name


def test_families_come_in_the_order_of_the_list() -> None:
    assert families()[:3] == ("stock", "direct", "product")
    assert {"tiled", "tiles", "dots", "separable", "window", "fused_winograd"} <= set(families())


def test_the_cost_model_sees_every_size_once() -> None:
    names = size_names()
    assert len(set(names)) == len(names)
    assert {"lines", "unroll", "block", "band", "pixels"} <= set(names)
    unnamed = [routine.name for routine in ROUTINES if routine.traits.cost is not None and not routine.traits.sizes]
    assert not unnamed
