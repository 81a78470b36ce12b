"""Quantised networks as onnxruntime's tools write them: the same bits as ONNX Runtime, in floats and in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.onnx_model.quantisation.quantised_values import take_out_quantisation
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.verdicts import budget_of_model
from sartor.progress import silent
from sartor.reference.tie_spread import tie_spread
from sartor.reference.tolerance import MOST_BY_ITSELF
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.session import Session
from sartor.samples.checked_samples import checked_samples
from sartor.samples.sample_sets import sample_set
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, Array, model, node, run
from tests.plugin.onnx_model.conftest import Prepare, prepare_quickly  # noqa: F401 a fixture
from tests.plugin.quantised_networks import CONVOLUTIONS, POOLINGS, Form, dynamic, forms, image, quantised

SEEDS = range(100, 116)
# In steps. Sums of up to 72 products in another order differ by less.
NEAR = 2.0**-12
HOST = Target.create("cpu")
MULTIPLYING = ("conv", "last", "product")
BY_CHANNEL = Form("qdq", "int8", "int8", by_channel=True, symmetric=False, reduced=True)
BY_TENSOR = Form("qoperator", "uint8", "int8", by_channel=False, symmetric=False, reduced=True)
INTEGER = dict.fromkeys((*CONVOLUTIONS, *POOLINGS, "product"), "cpu:i8/*")


def _prepared(path: Path, prepare: Prepare) -> ModelProto:
    prepared = prepare(onnx.load(path)).model
    take_out_quantisation(prepared)
    return prepared


def _reference(built: ModelProto) -> ReferenceModel:
    """ONNX Runtime without its optimisations, with exact products of integers."""
    return ReferenceModel(built.SerializeToString(), threads=1, optimises=False, cuts=False)


def _ties(prepared: ModelProto, feeds: dict[str, Array]) -> int:
    """How many numbers are next to a tie when they are rounded."""
    shown = ModelProto()
    shown.CopyFrom(prepared)
    rounded = [each.input[0] for each in shown.graph.node if each.op_type == "Round"]
    assert rounded
    shown.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in rounded)
    values = run(shown, feeds)
    quotients = np.concatenate([values[name].ravel().astype(np.float64) for name in rounded])
    return int(np.count_nonzero(np.abs(quotients - np.floor(quotients) - 0.5) < NEAR))


@pytest.mark.parametrize("form", list(forms()), ids=str)
def test_prepared_models_compute_what_onnx_defines(form: Form, tmp_path: Path, prepare_quickly: Prepare) -> None:  # noqa: F811
    path = quantised(form, tmp_path)
    defined, computed = _reference(onnx.load(path)), _reference(_prepared(path, prepare_quickly))
    for seed in SEEDS:
        feeds = {"x": image(seed)}
        np.testing.assert_array_equal(computed(feeds)[0], defined(feeds)[0])


def test_a_pair_that_is_lost_is_seen(tmp_path: Path, prepare_quickly: Prepare) -> None:  # noqa: F811
    path = quantised(BY_CHANNEL, tmp_path)
    prepared = _prepared(path, prepare_quickly)
    for index, each in enumerate(prepared.graph.node):
        if each.op_type != "Round":
            continue
        faulty = ModelProto()
        faulty.CopyFrom(prepared)
        faulty.graph.node[index].op_type = "Identity"
        right, found = run(onnx.load(path), {"x": image(0)})["y"], run(faulty, {"x": image(0)})["y"]
        assert not np.array_equal(right, found), each.name


def test_ties_move_outputs_by_few_steps(tmp_path: Path, prepare_quickly: Prepare) -> None:  # noqa: F811
    path = quantised(BY_CHANNEL, tmp_path)
    prepared = _prepared(path, prepare_quickly)
    steps = {initializer.name: onnx.numpy_helper.to_array(initializer) for initializer in prepared.graph.initializer}
    (scale,) = (steps[each.input[1]] for each in prepared.graph.node if "y" in each.output)
    smallest = min(float(np.abs(run(prepared, {"x": image(seed)})["y"]).max()) for seed in SEEDS[:4])
    spread = tie_spread(prepared.SerializeToString(), [{"x": image(seed)} for seed in SEEDS[:4]])
    assert 0 < spread < 4 * scale / smallest


def _built(path: Path, folder: Path, pins: dict[str, str], cpu: str = "host") -> tuple[Session, Recipe]:
    """The network with the variants that are expected to be fastest, none of which was measured."""
    imported = imported_model(path)
    listed = tuple(Pin(f"{name}*", routines) for name, routines in pins.items())
    config = CompileConfig(Target.create("cpu", cpu), threads=1, jobs=1, pins=listed)
    recipe = guessed_recipe(
        imported, find_candidates(imported, config.planning, everything=False).variants, config.planning
    )
    with WorkerPool(1) as pool:
        (built,) = Builder(imported, pool, folder, config.header, silent).build([recipe])
    return Session(built.files.module, threads=1), recipe


def _assert_equal(session: Session, path: Path, prepared: ModelProto) -> None:
    """Outputs are ONNX Runtime's to the last bit, with its optimisations or without; only samples with a number next to
    a tie may differ, and few of them do."""
    references = [ReferenceModel(path, threads=1, optimises=number) for number in (True, False)]
    differing: list[int] = []
    for seed in SEEDS:
        feeds = {"x": image(seed)}
        (found,) = session.run(None, feeds)
        if not any(np.array_equal(found, reference(feeds)[0]) for reference in references):
            assert _ties(prepared, feeds) > 0, f"sample {seed} differs, and nothing in it is next to a tie"
            differing.append(seed)
    assert len(differing) <= len(SEEDS) // 4, differing


CASES = [
    (BY_CHANNEL, {"*": "cpu:f32/*.stock"}),
    (BY_CHANNEL, INTEGER),
    (BY_TENSOR, INTEGER),
]


@pytest.mark.parametrize(("form", "pins"), CASES, ids=["stock", "i8-qdq", "i8-qoperator"])
def test_modules_give_the_bits_of_onnx_runtime(
    form: Form,
    pins: dict[str, str],
    tmp_path: Path,
    prepare_quickly: Prepare,  # noqa: F811
) -> None:
    path = quantised(form, tmp_path)
    prepared = _prepared(path, prepare_quickly)
    session, recipe = _built(path, tmp_path, pins)
    if pins is INTEGER:
        assert sum(variant.dtype == "i8" for variant in recipe.variants.values()) >= len(INTEGER)
    _assert_equal(session, path, prepared)


@pytest.mark.skipif(INTEGER_DOTS.refusal(machine_of(HOST)) is not None, reason="this CPU has no VNNI")
@pytest.mark.parametrize("form", list(forms()), ids=str)
def test_code_for_other_cpus_gives_the_bits_of_code_with_vnni(form: Form, tmp_path: Path) -> None:
    """Without VNNI, and with AVX-VNNI in place of AVX-512 where this CPU has it."""
    path = quantised(form, tmp_path)
    sessions = []
    names = {"host": "", "x86-64-v3": "_pairs"}
    if "avxvnni" in machine_of(HOST).features:
        names["alderlake"] = "dots"
    for cpu, name in names.items():
        folder = tmp_path / cpu
        folder.mkdir()
        session, recipe = _built(path, folder, {}, cpu)
        sessions.append(session)
        if form.kind == "int8":
            # Both convolutions that are not depthwise, and the product; the depthwise one may compute in f32.
            found = [
                variant.descriptor
                for variant in recipe.variants.values()
                if variant.traits.instruction is not None and "window_" not in variant.descriptor
            ]
            assert sum(name in each for each in found) == len(MULTIPLYING)
    for seed in SEEDS:
        first, *others = (session.run(None, {"x": image(seed)})[0] for session in sessions)
        for other in others:
            np.testing.assert_array_equal(first, other)


def test_ranges_of_run_time_give_whole_numbers_of_onnx_runtime(tmp_path: Path, prepare_quickly: Prepare) -> None:  # noqa: F811
    path = dynamic(tmp_path, by_channel=True)
    prepared = _prepared(path, prepare_quickly)
    session, _ = _built(path, tmp_path, {})
    for seed in SEEDS:
        feeds = {"x": image(seed)}
        (found,), (right,) = session.run(None, feeds), ReferenceModel(path, threads=1)(feeds)
        # Scales are multiplied one after the other, which rounds otherwise than their product does.
        close = np.abs(found - right).max() <= 1e-6 * np.abs(right).max()
        assert close or _ties(prepared, feeds) > 0, f"sample {seed} differs, and nothing in it is next to a tie"


def _weights_only(folder: Path, block: int) -> Path:
    """A product by weights of 8 bits, with a scale for each column, or for each block of rows, and all else in f32."""
    random = np.random.default_rng(0)
    stored = random.integers(-127, 127, (32, 20), np.int8)
    scales = random.uniform(0.01, 0.02, (32 // block, 20) if block else 20).astype(np.float32)
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [node("DequantizeLinear", ["w", "s"], ["d"], name="d", **attributes)]
    nodes.append(node("MatMul", ["x", "d"], ["y"], name="product"))
    path = folder / "weights.onnx"
    onnx.save(model(nodes, [("x", (3, 32), FLOAT)], ["y"], {"w": stored, "s": scales}, opset=21), path)
    return path


@pytest.mark.parametrize(("block", "operator"), [(0, "MatMul"), (16, "MatMulNBits")])
def test_weights_of_8_bits_alone_are_dequantised_exactly(
    block: int,
    operator: str,
    tmp_path: Path,
    prepare_quickly: Prepare,  # noqa: F811
) -> None:
    """Here those with a scale for each column; those in blocks stay as they are, for kernels that read them so."""
    path = _weights_only(tmp_path, block)
    prepared = prepare_quickly(onnx.load(path)).model
    take_out_quantisation(prepared)
    feeds = {"x": np.eye(3, 32, dtype=np.float32)}
    assert [item.op_type for item in prepared.graph.node] == [operator]
    np.testing.assert_array_equal(run(prepared, feeds)["y"], run(onnx.load(path), feeds)["y"])


def test_ties_are_measured_on_the_samples_that_are_compared(tmp_path: Path) -> None:
    """Also drawn samples fill the ranges that the model quantises its inputs to, whatever its pairs become."""
    imported = imported_model(quantised(BY_CHANNEL, tmp_path))
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "t.db")
    drawn = sample_set(imported, None, narrow=True)
    np.testing.assert_array_equal(drawn.first["x"], imported.samples["x"])
    assert drawn.tie_spread == imported.tie_spread > 0
    given = np.concatenate([image(seed) for seed in SEEDS[:2]])
    np.savez(tmp_path / "given.npz", x=1e-3 * given)
    with WorkerPool(1) as pool:
        faint = checked_samples(imported, tmp_path / "given.npz", pool, narrow=False)
    assert faint.tie_spread not in (0.0, imported.tie_spread)
    # Both ties move more than a bound allows by itself; beyond it the layers decide.
    for each in (faint, drawn):
        budget = budget_of_model(config.error_budget, imported, each)
        assert (budget.accepted, budget.asks_layers) == (MOST_BY_ITSELF, True)
