"""Traits of routines, and the properties that a descriptor determines."""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import replace

import pytest

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.variants.routine import Rounding, Storing
from sartor.codegen.ir.variants.traits import LOWERED, FormatClass, Traits
from sartor.codegen.routine_registry import described, families, size_names
from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION, ROUTINES, routines_for


def test_routines_of_one_name_and_type_differ_in_nothing_that_is_looked_up() -> None:
    found: defaultdict[tuple[str, str | None], set[Traits]] = defaultdict(set)
    for routine in ROUTINES:
        storage = routine.storage if isinstance(routine, Storing) else None
        arithmetic = routine.arithmetic if isinstance(routine, Rounding) else None
        found[routine.name, arithmetic or storage].add(replace(routine.traits, beside_kernels=frozenset()))
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
    others = {"winograd", "subgroup_winograd", "open_winograd", *in_each_call}
    # Rows of 16 bits with a scale for each block differ from f32 in more than the order of sums, too.
    words = {"block_words", "block_word_pairs"}
    assert transforming == {*transformed, *fused, *others, *words, *(f"half_{each}" for each in fused)}


def test_kernels_that_multiply_in_groups_name_their_instruction() -> None:
    pairs = ("half_pairs", "word_pairs", "byte_pairs")
    parts = ("tiles", "dots", "block_words", *pairs, "fused_winograd_neon", "fused_winograd_bytes")
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
