"""Quantised models run in integers: which variants their layers may run, and what these compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Implementation, Variant, variants_of
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS, DotElement
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.codegen.routines.vector.product import RowScaledProduct
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.imported_model import ImportedModel
from sartor.pipeline import compile_model, replay_plan
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.policies import Precision
from sartor.precision.eligibility import eligibility
from sartor.profiling.builder import Builder
from sartor.progress import silent
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.session import Session
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import WorkerPool
from tests import grouped_models
from tests.importing import imported_model
from tests.plugin.quantised_models import dynamic_network, network, one_convolution, product_beside_floats
from tests.tiny_models import Builder as ModelBuilder

# A CPU with AMX, whatever this machine is.
CONFIG = CompileConfig(target=Target.create("cpu", "sapphirerapids"), threads=1, jobs=1)
STEP = 6 / 255


def _float_product() -> ModelProto:
    b = ModelBuilder()
    b.op("MatMul", "y", "x", b.weight(16, 20))
    return b.model([("x", (6, 16))], [("y", (6, 20))])


def _descriptors(candidates: Candidates, layer: Layer) -> list[str]:
    return [each.descriptor for each in candidates.variants[layer.task.key]]


def _multiplying(imported: ImportedModel) -> list[Layer]:
    return [layer for layer in imported.graph.layers if layer.task.kind in ("convolution", "contraction")]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_layers_of_a_quantised_model_may_run_in_8_bits(kind: str) -> None:
    imported = imported_model(network(kind))
    candidates = find_candidates(imported, CONFIG.planning, everything=False)
    assert imported.is_quantised
    layers = _multiplying(imported)
    assert len(layers) == 3
    for layer in layers:
        assert any(descriptor.startswith("cpu:i8/") for descriptor in _descriptors(candidates, layer)), layer.name


@pytest.mark.parametrize(("cpu", "kind"), [("x86-64-v3", "factor_word_pairs"), ("cascadelake", "factor_dots")])
def test_a_product_that_adds_floats_reads_its_quantised_operand_in_8_bits(cpu: str, kind: str) -> None:
    """It rounds nothing: the operand is multiples of its scale already. In a model of floats it would be rounded."""
    config = replace(CONFIG, target=Target.create("cpu", cpu))
    quantised = imported_model(product_beside_floats(), target=config.target)
    (layer,) = _multiplying(quantised)
    candidates = find_candidates(quantised, config.planning, everything=False)
    assert any(f".{kind}{{" in descriptor for descriptor in _descriptors(candidates, layer))
    floats = imported_model(_float_product(), target=config.target)
    (layer,) = _multiplying(floats)
    candidates = find_candidates(floats, config.planning, everything=False)
    assert not any("factor" in descriptor for descriptor in _descriptors(candidates, layer))


def test_integers_of_ranges_that_are_found_at_run_time_are_read_by_one_kernel_each() -> None:
    """What reads an operand in 8 bits by a range of samples is the same code there by another name."""
    config = replace(CONFIG, target=Target.create("cpu", "x86-64-v3"))
    imported = imported_model(dynamic_network(), target=config.target)
    candidates = find_candidates(imported, config.planning, everything=False)
    for layer in _multiplying(imported):
        assert any(".whole_word_pairs{" in descriptor for descriptor in _descriptors(candidates, layer))
        assert not any(".factor_" in descriptor for descriptor in _descriptors(candidates, layer))


def test_no_layer_of_a_float_model_may(imported_of: Callable[[str], ImportedModel]) -> None:
    imported = imported_of("residual")
    candidates = find_candidates(imported, CONFIG.planning, everything=False)
    assert not imported.is_quantised
    assert not any("i8" in each.descriptor for found in candidates.variants.values() for each in found)


def test_layers_between_the_transforms_of_winograd_are_not_rounded(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(grouped_models.dense(), path)
    asked = AskedChildren((Pin("conv", "*/childnet.winograd*"),))
    imported = imported_model(path, asked=asked, target=CONFIG.target)
    candidates = find_candidates(imported, CONFIG.planning).variants
    is_eligible = eligibility(imported, Precision.BF16)
    (whole,) = imported.graph.layers
    assert any(is_eligible(whole, each) for each in candidates[whole.task.key] if each.dtype == "bf16")
    for net in imported.graph.childnets:
        for layer in net.graph.layers:
            assert {each.dtype for each in candidates[layer.task.key] if is_eligible(layer, each)} == {"f32"}


def test_weights_beyond_8_bits_stay_floats_unless_8_bits_are_asked_for() -> None:
    imported = imported_model(one_convolution(zero=70))
    (layer,) = _multiplying(imported)
    found = find_candidates(imported, CONFIG.planning).variants[layer.task.key]
    quantising = [each for each in found if each.descriptor.startswith("cpu:i8/conv2d.tiles{")]
    assert quantising
    asked = replace(CONFIG, precision=Precision.INT8)
    assert not any(eligibility(imported, CONFIG.precision)(layer, each) for each in quantising)
    assert all(eligibility(imported, asked.precision)(layer, each) for each in quantising)
    exact = imported_model(one_convolution(zero=128))
    (layer,) = _multiplying(exact)
    assert all(eligibility(exact, CONFIG.precision)(layer, each) for each in quantising)


def test_pairs_of_products_are_added_in_16_bits_where_weights_keep_them_small() -> None:
    """Of two neighbours that are more than 128 together products are added in 32 bits, whatever is permitted."""
    config = replace(CONFIG, target=Target.create("cpu", "x86-64-v3"))
    imported = imported_model(one_convolution(zero=128), target=config.target)
    (layer,) = _multiplying(imported)
    found = find_candidates(imported, config.planning).variants[layer.task.key]
    offered = {
        kind: [each for each in found if f".{kind}{{" in each.descriptor] for kind in ("word_pairs", "byte_pairs")
    }
    assert all(offered.values())
    (name, *_) = layer.weights
    numbers = np.zeros(imported.weights[name].shape, np.float32)
    numbers[:, 0] = 65
    for beside, expected in ((64, {"word_pairs"}), (63, {"word_pairs", "byte_pairs"})):
        numbers[:, 1] = beside
        changed = replace(imported, weights={**imported.weights, name: numbers * np.float32(0.25)})
        for precision in (Precision.F32, Precision.INT8):
            is_eligible = eligibility(changed, precision)
            may = {kind for kind, variants in offered.items() if all(is_eligible(layer, each) for each in variants)}
            assert may == expected, (beside, precision)


def test_tiles_of_six_pixels_are_multiplied_exactly_where_weights_keep_sums_small() -> None:
    config = replace(CONFIG, target=Target.create("cpu", "x86-64-v3"))
    imported = imported_model(one_convolution(zero=128, depth=120, size=(37, 41)), target=config.target)
    (layer,) = _multiplying(imported)
    found = find_candidates(imported, config.planning).variants[layer.task.key]
    tiles = [each for each in found if ".winograd_word_pairs{" in each.descriptor]
    assert {dict(each.parameters)["height"] for each in tiles} == {3, 4}
    (name, *_) = layer.weights
    numbers = np.full(imported.weights[name].shape, 127, np.float32)
    numbers[:, 0, 0, 0] = 126
    for sign, expected in ((1, {3}), (np.where(np.arange(120) % 2, 1, -1)[:, None, None], {3, 4})):
        changed = replace(imported, weights={**imported.weights, name: sign * numbers * np.float32(0.25)})
        for precision in (Precision.F32, Precision.INT8):
            is_eligible = eligibility(changed, precision)
            assert {dict(each.parameters)["height"] for each in tiles if is_eligible(layer, each)} == expected


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.float16, {"f16"}), (ml_dtypes.bfloat16, {"f16", "bf16"}), (None, set())]
)
@pytest.mark.parametrize("precision", [Precision.F32, Precision.INT8])
def test_weights_are_stored_narrow_where_that_loses_nothing(
    dtype: type | None, expected: set[str], precision: Precision
) -> None:
    model = _float_product()
    for weight in model.graph.initializer if dtype is not None else ():
        numbers = numpy_helper.to_array(weight)
        weight.CopyFrom(numpy_helper.from_array(numbers.astype(dtype).astype(np.float32), weight.name))
    imported = imported_model(model)
    (layer,) = _multiplying(imported)
    may_run = eligibility(imported, precision)
    found = find_candidates(imported, CONFIG.planning).variants[layer.task.key]
    narrow = [each for each in found if each.traits.weights is not None and each.dtype == "f32"]
    assert {each.traits.weights for each in narrow} == {"f16", "bf16"}
    assert {each.traits.weights for each in narrow if may_run(layer, each)} == expected


@pytest.mark.parametrize("precision", [Precision.INT8_WEIGHTS, Precision.MIXED_WEIGHTS])
def test_only_filters_are_stored_in_8_bits_where_that_is_asked_for(
    precision: Precision, imported_of: Callable[[str], ImportedModel]
) -> None:
    imported = imported_of("residual")
    policy = replace(CONFIG, precision=precision).planning
    found = find_candidates(imported, policy, everything=False).variants
    may_run = eligibility(imported, precision)
    layers = {layer.name: layer for layer in imported.graph.layers}
    narrow = {name: [each for each in found[layer.task.key] if each.dtype == "i8"] for name, layer in layers.items()}
    assert any(narrow.values())
    assert all(variant.traits.weights == "i8" for variants in narrow.values() for variant in variants)
    assert all(may_run(layers[name], variant) for name, variants in narrow.items() for variant in variants)
    # Neither without being asked, nor values beside filters.
    assert not any(eligibility(imported, Precision.F32)(layers[name], each) for name in narrow for each in narrow[name])
    everything = find_candidates(imported, CONFIG.planning).variants
    rounding = [
        (layer, each)
        for layer in layers.values()
        for each in everything[layer.task.key]
        if each.dtype == "i8" and each.traits.weights is None
    ]
    assert rounding
    assert not any(may_run(*pair) for pair in rounding)


@pytest.mark.parametrize(("model", "rows"), [(network, True), (dynamic_network, False), (_float_product, True)])
def test_rows_find_ranges_where_8_bits_are_asked_for(model: Callable[[], ModelProto], rows: bool) -> None:
    """Exact sums of integers are never rounded; floats need no range of a calibration."""
    imported = imported_model(model())
    products = [each for each in _multiplying(imported) if each.task.kind == "contraction"]
    offered = [
        (layer, variant) for layer in products for variant in variants_of(RowScaledProduct(), layer.task, CONFIG.target)
    ]
    pairs = [(layer, each) for layer, each in offered if isinstance(each, Variant)]
    assert pairs
    for precision in (Precision.F32, Precision.INT8_WEIGHTS, Precision.MIXED_WEIGHTS):
        assert not any(eligibility(imported, precision)(*pair) for pair in pairs), precision
    assert [eligibility(imported, Precision.INT8)(*pair) for pair in pairs] == [rows] * len(pairs)


def test_a_quantised_model_is_tuned_checked_and_replayed(tmp_path: Path) -> None:
    model, module = tmp_path / "model.onnx", tmp_path / "net.vmfb"
    onnx.save(network(), model)
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db")
    artifact = compile_model(model, module, config)
    assert artifact.error is not None
    assert artifact.error < 5e-2
    first = module.read_bytes()
    replay_plan(model, artifact.plan, module, config)
    assert module.read_bytes() == first


def test_products_with_a_range_of_run_time_may_run_in_8_bits() -> None:
    imported = imported_model(dynamic_network())
    candidates = find_candidates(imported, CONFIG.planning, everything=False)
    layers = _multiplying(imported)
    assert imported.is_quantised
    assert len(layers) == 4
    for layer in layers:
        found = _descriptors(candidates, layer)
        assert any(".whole_tiles{" in each for each in found), layer.name
        assert any(".whole_dots{" in each for each in found), layer.name


def test_sums_of_whole_numbers_are_not_rounded_on_the_way() -> None:
    """No filter is transformed, and no zero point, scale or weighed sum is stored in fewer bits than f32."""
    imported = imported_model(dynamic_network())
    config = replace(CONFIG, precision=Precision.MIXED)
    candidates = find_candidates(imported, config.planning)
    is_eligible, layers = eligibility(imported, config.precision), {each.name: each for each in imported.graph.layers}

    def permitted(name: str) -> set[str]:
        layer = layers[name]
        found = [each for each in candidates.variants[layer.task.key] if is_eligible(layer, each)]
        return {each.descriptor.partition("{")[0] for each in found}

    offered = {each.descriptor.partition("{")[0] for each in candidates.variants[layers["conv1"].task.key]}
    assert any("winograd" in each for each in offered), offered
    assert "cpu:bf16/conv2d.tiles" in offered
    # Whole numbers of 8 bits are stored in bf16 without loss, so that f32 by such filters is exact.
    assert not any("winograd" in each or each.startswith("cpu:bf16/") for each in permitted("conv1"))
    assert {"cpu:f32/conv2d.direct", "cpu:i8/conv2d.whole_tiles"} <= permitted("conv1")
    for name in layers:
        if name.endswith(("/zeros", "/min", "/max", "/below", "/divide")):
            assert all(each.startswith("cpu:f32/") or each.endswith("_to_whole") for each in permitted(name)), name


@pytest.mark.parametrize("element", [BFLOAT_DOTS, INTEGER_DOTS])
def test_whole_numbers_are_not_rounded_on_the_way_unless_8_bits_are_asked_for(element: DotElement) -> None:
    imported = imported_model(network())
    config = replace(CONFIG, target=Target.create("cpu", "cooperlake"))
    layer = next(each for each in _multiplying(imported) if each.name == "conv2")
    name = "fused_winograd_dots" if element is BFLOAT_DOTS else "fused_winograd_bytes"
    routine = FusedWinograd(name, storage="i8", element=element)
    sizes = {"height": 2, "width": 2, "columns": 3, "vectors": 1, "block": 6, "groups": 2, "panels": 1, "unroll": 2}
    code = routine.build(layer.task, {**sizes}, config.target)
    assert isinstance(code, Implementation)
    variant = Variant(f"cpu:i8/conv2d.{name}", "cpu", "i8", code, routine.traits)
    assert eligibility(imported, Precision.INT8)(layer, variant)
    assert not eligibility(imported, config.precision)(layer, variant)


def test_other_quantised_models_are_not_offered_what_is_for_those() -> None:
    imported = imported_model(network())
    # Ranges that are found by samples may have any scale.
    imported = replace(imported, ranges=dict.fromkeys(imported.ranges, QuantisedRange(1.0, 0, "int8")))
    found = find_candidates(imported, CONFIG.planning, everything=False).variants.values()
    assert not any("whole" in variant.descriptor for variants in found for variant in variants)


@pytest.mark.parametrize("routine", ["tiles", "dots"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_network_in_8_bits_is_within_a_step(kind: str, routine: str, tmp_path: Path) -> None:
    imported = imported_model(network(kind))
    names = [each.name for each in _multiplying(imported)]
    host = CompileConfig(threads=1, jobs=1, pins=tuple(Pin(name, f"cpu:i8/*.{routine}{{*") for name in names))
    candidates = find_candidates(imported, host.planning, everything=False)
    offered = [
        any(f".{routine}{{" in descriptor for descriptor in _descriptors(candidates, layer))
        for layer in _multiplying(imported)
    ]
    if not all(offered):
        pytest.skip(f"this CPU multiplies no integers by {routine}")
    recipe = guessed_recipe(imported, candidates.variants, host.planning)
    with WorkerPool(1) as pool:
        (built,) = Builder(imported, pool, tmp_path, host.header, silent).build([recipe])
    expected = ReferenceModel(imported.path, threads=1)(imported.samples)[0]
    with Session(built.files.module, threads=1) as session:
        found = session.run(None, imported.samples)[0]
    assert len(np.unique(expected)) > 5
    assert np.abs(found - expected).max() <= 1.01 * STEP


@pytest.mark.parametrize(
    ("name", "shapes"),
    [("micro_kws_m_static_qdq", {"serving_default_input:0": (1, 1960)}), ("micro_kws_m_static_qoperator", {})],
)
def test_a_real_quantised_model_runs_in_8_bits(
    name: str, shapes: dict[str, tuple[int, ...]], model_folder: Path, tmp_path: Path
) -> None:
    imported = imported_model(model_folder / f"{name}.onnx", shapes)
    names = [layer.name for layer in imported.graph.layers if layer.task.kind == "convolution"]
    host = CompileConfig(threads=1, jobs=1, pins=tuple(Pin(each, "cpu:i8/*") for each in names))
    recipe = guessed_recipe(
        imported, find_candidates(imported, host.planning, everything=False).variants, host.planning
    )
    assert len(names) == 3
    with WorkerPool(1) as pool:
        (built,) = Builder(imported, pool, tmp_path, host.header, silent).build([recipe])
    # Softmax is a step off where ONNX Runtime looks it up in a table.
    reference = ReferenceModel(imported.path, threads=1, optimises=False)
    with Session(built.files.module, threads=1) as session:
        for seed in range(20):
            feeds = sample_inputs(ModelProto.FromString(imported.skeleton), seed)
            np.testing.assert_array_equal(session.run(None, feeds)[0], reference(feeds)[0])


def test_a_dynamic_network_in_8_bits_is_onnx_runtimes(tmp_path: Path) -> None:
    """Not one sum differs, so that outputs differ as their scales are multiplied in another order."""
    imported = imported_model(dynamic_network())
    pins = tuple(Pin(name, "cpu:i8/*whole*") for name in ("conv[12]", "product[01]", "*_quantised/divide"))
    config = CompileConfig(threads=1, jobs=1, pins=pins)
    candidates = find_candidates(imported, config.planning, everything=False)
    recipe = guessed_recipe(imported, candidates.variants, config.planning)
    with WorkerPool(1) as pool:
        (built,) = Builder(imported, pool, tmp_path, config.header, silent).build([recipe])
    reference = ReferenceModel(imported.path, threads=1)
    with Session(built.files.module, threads=1) as session:
        for seed in range(3):
            feeds = sample_inputs(onnx.load(imported.path), seed)
            (expected,), (found,) = reference(feeds), session.run(None, feeds)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
