"""Every routine computes what candidate 0 computes, in the layouts and from the packed weights it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Layer, Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, Variant, variant_of, variants_of
from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION, ROUTINES, routines_for
from sartor.codegen.routines.iree.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.iree_tiled.winograd import Winograd
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.codegen.routines.vector.window import SlidingWindow
from sartor.errors import DeviceError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, layers, load, relative_errors
from tests.codegen.routines.layer_cases import all_cases, half_cases
from tests.hash_seeds import printed_under_hash_seeds
from tests.thorough import in_turns, tried, with_each_routine

HOST = Target.create("cpu")
VULKAN = Target.create("vulkan")
# Filters that are stored narrow have a test of their own: random ones are not of so few bits.
OWN_PRECISION = tuple(each for each in routines_for(()) if each.traits.weights is None)
CASES = (*all_cases().names, *half_cases().names)

# Further parameter sets are tried on these, only the first one on the others: compiling them takes most of the time.
THOROUGH = ("conv3x3_residual", "conv1x1_residual", "linear_gelu")
# These are tried on a third of the others.
OFTEN = ("direct", "direct_blocked", "nchwc", "nhwc", "tiled", "transposed")
# Their parameters are tried by test_transforming_winograd.py.
TRIED_ELSEWHERE = ("transforming_winograd", "transforming_winograd_blocked")
PATCHES = ("conv3x3_stride_asymmetric", "conv1x1_batch", "half_conv3x3")
WINOGRAD = ("conv3x3_residual", "conv3x3_batch", "conv3x3_odd_channels")
ON_VULKAN = ("conv3x3_batch", "linear_gelu")

FOR_CPUS = (
    "tiled",
    "nchwc",
    "direct_blocked",
    "window_blocked",
    "fused_winograd",
    "fused_winograd_blocked",
    "transforming_winograd",
    "transforming_winograd_blocked",
    "join_blocked",
    "join_slices",
    "join_slices_blocked",
    "join_enlarged",
    "join_enlarged_blocked",
    "single",
    "single_blocked",
    "single_planes",
    "few",
    "few_blocked",
    "few_planes",
    "recurrent",
)

# Sums in another order; Winograd's sums have terms larger than their result. Products of f16 are added up in f32 and
# rounded to f16 once, or twice where a bias follows.
MAX_ERROR = {"f32": 1e-5, "winograd": 1e-3, "f16": 2 * 2.0**-10}


def _implementations(layer: Layer, target: Target, config: pytest.Config | None = None) -> dict[str, Implementation]:
    found: dict[str, Implementation] = {}
    for routine in OWN_PRECISION:
        variants = [each for each in variants_of(routine, layer.task, target) if isinstance(each, Variant)]
        kept = variants[:1]
        if config is not None and layer.name in THOROUGH and routine.name not in TRIED_ELSEWHERE:
            kept = tried(variants, THOROUGH.index(layer.name), config)
        found |= {each.descriptor.partition(".")[2]: each.implementation for each in kept}
    return found


def _in_turns(layer: Layer, offered: dict[str, Implementation], config: pytest.Config) -> dict[str, Implementation]:
    if layer.name not in CASES or layer.name in THOROUGH:
        return offered
    return in_turns(offered, CASES.index(layer.name), config, OFTEN)


def _extra(layer: Layer) -> dict[str, Implementation]:
    """Code that would not be tried on so small a layer, or on a CPU, but is right there."""
    found: dict[str, Implementation] = {}
    if layer.name in WINOGRAD:
        tiles = (2, 4, 6) if layer.name in THOROUGH else (4,)
        found |= {f"winograd{{tile={tile}}}": _winograd(layer.task, tile, HOST) for tile in tiles}
        found |= {f"winograd fused{{tile={tile}}}": _fused_winograd(layer.task, tile) for tile in tiles}
    if layer.name == WINOGRAD[0]:
        found["winograd of IREE"] = _winograd(layer.task, 6, VULKAN)
    if layer.name in PATCHES:
        built = Im2colMatmul().build(layer.task, {}, VULKAN)
        assert isinstance(built, Implementation), built
        found["im2col_matmul"] = built
    return found


def _winograd(task: Task, tile: int, target: Target) -> Implementation:
    built = Winograd().build(task, {"tile": tile}, target)
    assert isinstance(built, Implementation), built
    return built


def _fused_winograd(task: Task, tile: int) -> Implementation:
    parameters = {
        "height": tile,
        "width": tile,
        "columns": 4,
        "vectors": 3,
        "block": 8,
        "groups": 2,
        "panels": 1,
        "unroll": 2,
    }
    built = FusedWinograd().build(task, parameters, HOST)
    assert isinstance(built, Implementation), built
    return built


def _wrong(errors: Mapping[str, float], dtype: str) -> dict[str, float]:
    bounds = {name: MAX_ERROR["winograd" if "winograd" in name else dtype] for name in errors}
    return {name: error for name, error in errors.items() if not error <= bounds[name]}


@pytest.fixture(scope="module")
def found_layers() -> dict[str, tuple[Layer, Mapping[str, Array]]]:
    return {layer.name: (layer, weights) for layer, weights in layers()}


@pytest.fixture(scope="module")
def offered(
    found_layers: dict[str, tuple[Layer, Mapping[str, Array]]], pytestconfig: pytest.Config
) -> dict[str, dict[str, Implementation]]:
    return {name: _implementations(layer, HOST, pytestconfig) for name, (layer, _) in found_layers.items()}


@pytest.fixture(scope="module")
def subjects(
    found_layers: dict[str, tuple[Layer, Mapping[str, Array]]],
    offered: Mapping[str, dict[str, Implementation]],
    pytestconfig: pytest.Config,
) -> dict[str, Subject]:
    """Every layer by the name of its case."""
    chosen = {name: _in_turns(layer, offered[name], pytestconfig) for name, (layer, _) in found_layers.items()}
    return {
        name: Subject(found_layers[name][0], found_layers[name][1], each | _extra(found_layers[name][0]))
        for name, each in with_each_routine(offered, chosen).items()
    }


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    return load(subjects, HOST)


@pytest.mark.parametrize("case", CASES)
def test_every_variant_computes_the_layer(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    assert _wrong(relative_errors(program, subject), subject.task.inputs[0].dtype) == {}


@pytest.mark.vulkan
def test_variants_for_vulkan_compute_the_layer(
    found_layers: dict[str, tuple[Layer, Mapping[str, Array]]], pytestconfig: pytest.Config
) -> None:
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    chosen = {name: found_layers[name] for name in ON_VULKAN}
    found = {
        name: Subject(layer, weights, _in_turns(layer, _implementations(layer, VULKAN, pytestconfig), pytestconfig))
        for name, (layer, weights) in chosen.items()
    }
    program = load(found, VULKAN)
    wrong = {name: _wrong(relative_errors(program, each), "f32") for name, each in found.items()}
    assert wrong == {name: {} for name in ON_VULKAN}


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (
            "conv3x3_residual",
            {
                "direct",
                "direct_blocked",
                "fused_winograd",
                "fused_winograd_blocked",
                "transforming_winograd",
                "transforming_winograd_blocked",
                "winograd",
                "nhwc",
                "nchwc",
            },
        ),
        (
            "conv3x3_batch",
            {
                "direct",
                "direct_blocked",
                "fused_winograd",
                "fused_winograd_blocked",
                "transforming_winograd",
                "transforming_winograd_blocked",
                "winograd",
                "nhwc",
                "nchwc",
            },
        ),
        ("conv1x1_residual", {"direct", "direct_blocked", "tiled", "nhwc", "nchwc"}),
        ("conv1x1_odd_channels", {"direct", "tiled", "nhwc"}),
        ("depthwise5x5_batch", {"window", "window_blocked", "nhwc", "nchwc"}),
        ("linear_gelu", {"product", "tiled", "transposed"}),
        ("linear_one_row", {"product", "tiled", "transposed"}),
        ("gemm", {"product", "tiled", "transposed"}),
        ("attention", {"product", "tiled"}),
        ("max_pool", {"window", "window_blocked", "nhwc", "nchwc"}),
        ("half_conv3x3", {"half_direct", "half_direct_blocked", "nhwc", "nchwc"}),
        ("half_linear", {"half_product", "tiled", "transposed"}),
    ],
)
def test_layers_have_the_candidates_that_suit_them(case: str, names: set[str], subjects: dict[str, Subject]) -> None:
    task = subjects[case].task
    accepting = {
        routine.name
        for routine in OWN_PRECISION
        if any(isinstance(each, Variant) for each in variants_of(routine, task, HOST))
    }
    assert accepting == {"stock", *names}


@pytest.mark.parametrize("device", ["cpu", "vulkan", "cuda"])
def test_a_refusal_says_why(device: str, subjects: dict[str, Subject]) -> None:
    target = Target.create(device)
    for subject in subjects.values():
        for routine in OWN_PRECISION:
            for answer in variants_of(routine, subject.task, target):
                assert not isinstance(answer, Rejected) or len(answer.reason.split()) >= 4, answer


def test_a_window_of_several_rows_at_a_time_is_refused(subjects: dict[str, Subject]) -> None:
    """Its kernel would leave all but the first of them as they were."""
    given = {"lines": 2, "columns": 4, "vectors": 1, "row_groups": 1, "panel_groups": 1, "unroll": 1}
    found = variant_of(SlidingWindow(), subjects["max_pool"].task, given, HOST)
    assert found == Rejected("a window slides along one row of the result at a time, not 2")
    assert isinstance(variant_of(SlidingWindow(), subjects["max_pool"].task, {**given, "lines": 1}, HOST), Variant)


def test_no_cpu_tiles_reach_another_device(subjects: dict[str, Subject]) -> None:
    for subject in subjects.values():
        for routine in OWN_PRECISION:
            for answer in variants_of(routine, subject.task, VULKAN):
                assert isinstance(answer, Rejected) or "iree_cpu" not in answer.implementation.body
                assert isinstance(answer, Rejected) or routine.name not in FOR_CPUS


def test_descriptors_are_unique_within_a_task(subjects: dict[str, Subject]) -> None:
    for subject in subjects.values():
        answers = [each for routine in OWN_PRECISION for each in variants_of(routine, subject.task, HOST)]
        descriptors = [each.descriptor for each in answers if isinstance(each, Variant)]
        assert len(descriptors) == len(set(descriptors))
        assert descriptors[0].endswith(".stock")


def test_the_list_names_every_routine_of_the_folder() -> None:
    folder = Path(import_module("sartor.codegen.routines").__file__ or "").parent
    files = {path.stem for path in folder.glob("*/*.py")} - {"__init__"}
    listed = (*routines_for(LOW_PRECISION), *FUSED_ROUTINES)
    assert {type(routine).__module__.rpartition(".")[2] for routine in listed} == files
    assert type(ROUTINES[0]).__name__ == type(FUSED_ROUTINES[0]).__name__ == "Stock"


def test_what_kernels_are_known_by_does_not_depend_on_the_hash_seed() -> None:
    script = "from sartor.codegen.routines import LOW_PRECISION, routines_for; print(routines_for(LOW_PRECISION))"
    seen = printed_under_hash_seeds(script)
    assert "dpbf16ps" in seen[0]
    assert len(set(seen)) == 1
