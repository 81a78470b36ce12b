"""Lower precision within a budget: a trained network keeps its accuracy, and plans say what was given up for what."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.artifact import Artifact
from sartor.codegen.ir.packing import Quantise, Round
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import UsageError
from sartor.pipeline import compile_model, replay_plan
from sartor.policies import Precision
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.session import Session
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.errors.error_measures import ErrorMeasure, MeasureKind
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.limits import Quantity
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.selection.programming.infeasible import LimitError
from tests.digits import Digits, digits_model, trained
from tests.importing import imported_model
from tests.plugin.calling import assert_refused, call, parsed

Compiled = Callable[[Precision], Artifact]

CALIBRATED = 48
STEP = "measuring what rounding does"
# What layers are computed in, by their names.
TYPES = {
    Precision.BF16: {"*": "bf16"},
    Precision.F16: {"*": "f16"},
    Precision.INT8: {"*": "i8"},
    Precision.MIXED: {"conv*": "i8", "[!c]*": "bf16"},
}
BUDGETS = {Precision.BF16: 1e-2, Precision.F16: 2e-3, Precision.INT8: 1e-1, Precision.MIXED: 1e-1}
MOST_LOST = 0.005


@dataclass(frozen=True)
class Trained:
    """The digits' network, its samples and what it is tested on."""

    model: Path
    samples: Path
    config: CompileConfig
    tested: Digits

    def accuracy(self, run: Any) -> float:
        found = [int(np.argmax(run({"image": image[None]})[0])) for image in self.tested.images]
        return float(np.mean(np.array(found) == self.tested.labels))

    def compiled_accuracy(self, module: Path) -> float:
        with Session(module, threads=1) as session:
            return self.accuracy(lambda feeds: session.run(None, feeds))

    def image(self, folder: Path) -> Path:
        """A file with one image that the network was not trained on."""
        path = folder / "image.npz"
        np.savez(path, image=self.tested.images[:1])
        return path

    def narrow(self, precision: Precision, **settings: Any) -> CompileConfig:
        """Each layer in one type: which of two times is less is not left to the machine."""
        pins = tuple(Pin(layers, f"cpu:{dtype}/*") for layers, dtype in TYPES[precision].items())
        return replace(self.config, precision=precision, pins=pins, **settings)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("digits")
    train, tested = Digits.load()
    onnx.save(digits_model(trained(train)), folder / "digits.onnx")
    np.savez(folder / "samples.npz", image=train.images[:CALIBRATED])
    config = CompileConfig(
        threads=1, jobs=2, database=folder / "t.db", calibration=folder / "samples.npz", max_error=1e-2
    )
    return Trained(folder / "digits.onnx", folder / "samples.npz", config, tested)


@pytest.fixture(scope="module")
def within_budget(digits: Trained) -> Compiled:
    """The network in one type within the type's budget, compiled once."""

    @functools.cache
    def made(precision: Precision) -> Artifact:
        config = digits.narrow(precision, max_error=BUDGETS[precision])
        return compile_model(digits.model, digits.model.parent / f"{precision}.vmfb", config)

    return made


@pytest.mark.parametrize("precision", TYPES)
def test_a_trained_network_keeps_its_accuracy(digits: Trained, precision: Precision, within_budget: Compiled) -> None:
    before = digits.accuracy(ReferenceModel(digits.model, threads=1))
    assert before > 0.97
    budget = BUDGETS[precision]
    artifact = within_budget(precision)
    assert {layer.dtype for layer in artifact.plan.layers} == set(TYPES[precision].values())
    assert artifact.error is not None
    assert 0 < artifact.error <= budget
    assert artifact.samples == CALIBRATED
    assert digits.compiled_accuracy(artifact.path) >= before - MOST_LOST


def test_the_plan_says_what_each_layer_gives_up_for_what(
    digits: Trained, within_budget: Compiled, tmp_path: Path
) -> None:
    artifact = within_budget(Precision.BF16)
    module = artifact.path
    assert all(layer.error and layer.saved is not None for layer in artifact.plan.layers)
    assert sum(layer.error or 0 for layer in artifact.plan.layers) > (artifact.error or 0)
    shown = call("sartor", "inspect", module)
    assert all(column in shown.stdout for column in ("type", "saves ms", "bf16"))
    # What the module may err by without a word is what is usual in bf16.
    options = ["--vs", digits.model, "--inputs", digits.image(tmp_path), "--threads", 1, "--layers", "--json"]
    layers = parsed(call("sartor", "compare", module, *options))["layers"]
    assert [layer["contribution"] for layer in layers] == [layer.error for layer in artifact.plan.layers]
    assert all(layer["saved_ms"] is not None for layer in layers)


def test_layers_in_8_bits_are_compared_each_with_its_own_ranges(
    digits: Trained, within_budget: Compiled, tmp_path: Path
) -> None:
    module = within_budget(Precision.INT8).path
    options = ["--vs", digits.model, "--inputs", digits.image(tmp_path), "--threads", 1, "--max-error", 1e-1, "--json"]
    found = parsed(call("sartor", "compare", module, *options, "--layers", "--bisect", 1e-6))
    errors = [(each["relative_error"], each["error_alone"]) for each in found["layers"]]
    assert len(errors) == len(found["layers"]) > 4
    assert all(0 < each < 1e-1 for pair in errors for each in pair)
    assert found["bisection"]["first"]["layer"] == found["layers"][0]["layer"]


def test_a_chain_in_8_bits_stays_in_8_bits(digits: Trained, tmp_path: Path) -> None:
    # Products of rows read and write f32, as they find their ranges when they run, and so do filters alone in 8 bits,
    # whose names end with their type.
    pins = (Pin("conv*", "cpu:i8/*[!8d]{*"), Pin("[!c]*", "cpu:i8/*"))
    config = replace(digits.narrow(Precision.INT8, max_error=BUDGETS[Precision.INT8]), pins=pins)
    plan = compile_model(digits.model, tmp_path / "net.vmfb", config).plan
    layers = {layer.layer for layer in plan.layers if not any(part in layer.variant for part in ("row_dots", "_by_i8"))}
    between = [adapt for adapt in plan.adapts if {adapt.producer, adapt.consumer} <= layers]
    assert len(layers) > 2
    assert all(schema.startswith("cpu:i8@") for each in between for schema in (each.source, each.target))
    assert len(between) < len(plan.layers) - 1


@pytest.mark.parametrize("method", [CalibrationMethod.PERCENTILE, CalibrationMethod.MSE, CalibrationMethod.ENTROPY])
def test_other_ranges_are_verified_anew(
    digits: Trained, method: CalibrationMethod, within_budget: Compiled, tmp_path: Path
) -> None:
    """The same code by other ranges is another module."""
    config = digits.narrow(Precision.INT8, max_error=BUDGETS[Precision.INT8])
    before = within_budget(Precision.INT8)
    artifact = compile_model(digits.model, tmp_path / "net.vmfb", replace(config, calibration_method=method))
    assert artifact.plan.ranges != before.plan.ranges
    assert artifact.error is not None
    assert artifact.error != before.error
    assert artifact.error <= BUDGETS[Precision.INT8]


def test_stock_tools_run_a_module_in_8_bits(digits: Trained, within_budget: Compiled, tmp_path: Path) -> None:
    module, image = within_budget(Precision.INT8).path, digits.tested.images[:1]
    with Session(module, threads=1) as session:
        (expected,) = session.run(None, {"image": image})
    np.save(tmp_path / "x.npy", image)
    files = [f"--module={module}", f"--input=@{tmp_path / 'x.npy'}", f"--output=@{tmp_path / 'y.npy'}"]
    tool = [str(Path(sys.executable).parent / "iree-run-module"), "--device=local-task", "--function=main_graph"]
    subprocess.run([*tool, *files], check=True, capture_output=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_what_was_found_out_once_is_not_found_out_again(digits: Trained, tmp_path: Path) -> None:
    config = digits.narrow(Precision.BF16, max_error=1.1e-2)
    compile_model(digits.model, tmp_path / "net.vmfb", config)
    steps: list[str] = []
    compile_model(digits.model, tmp_path / "net.vmfb", config, lambda step, done, total: steps.append(step))
    assert STEP not in steps
    assert "profiling plans" not in steps
    assert steps.count("compiling plans") == 1
    assert steps[-1] == "verifying the module", "the very file that is published is always run"


def test_a_budget_that_nothing_keeps_names_the_nearest(digits: Trained, tmp_path: Path) -> None:
    narrow = digits.narrow(Precision.BF16, max_error=1e-5)
    with pytest.raises(LimitError, match=r"error limit of 1e-05 cannot be met.*allow that much") as refused:
        compile_model(digits.model, tmp_path / "net.vmfb", narrow)
    assert not (tmp_path / "net.vmfb").exists()
    least = refused.value.nearest[Quantity.ERROR]
    artifact = compile_model(digits.model, tmp_path / "net.vmfb", replace(narrow, max_error=least))
    assert artifact.error == least


def test_a_tight_budget_leaves_exact_layers(digits: Trained, tmp_path: Path) -> None:
    """Only some layers may choose, so that a plan that uses the budget is a mixture."""
    pins = tuple(Pin(name, "cpu:bf16/*") for name in ("pool1", "pool2"))
    config = replace(digits.config, precision=Precision.BF16, pins=pins, max_error=4e-3)
    config = replace(config, pareto=(Quantity.LATENCY, Quantity.ERROR))
    artifact = compile_model(digits.model, tmp_path / "net.vmfb", config)
    assert artifact.error is not None
    assert 0 < artifact.error <= 4e-3
    assert {layer.layer for layer in artifact.plan.layers if layer.dtype == "bf16"} >= {"pool1", "pool2"}
    assert artifact.pareto is not None
    assert artifact.pareto.points
    assert all(point.error is not None and 0 < point.error <= 4e-3 for point in artifact.pareto.points)


@pytest.mark.parametrize("measure", [MeasureKind.COSINE, MeasureKind.TOP1, MeasureKind.USER])
def test_every_measure_bounds_the_shipped_module(digits: Trained, measure: MeasureKind, tmp_path: Path) -> None:
    path = tmp_path / "measure.py"
    path.write_text("def squares(outputs, expected):\n    return float(((outputs[0] - expected[0]) ** 2).mean())\n")
    chosen = ErrorMeasure.parse(f"{path}:squares" if measure is MeasureKind.USER else measure.value)
    config = digits.narrow(Precision.BF16, max_error=2e-2, error_measure=chosen)
    artifact = compile_model(digits.model, tmp_path / "net.vmfb", config)
    assert artifact.measure == chosen
    assert artifact.error is not None
    assert artifact.error <= 2e-2
    assert replay_plan(digits.model, artifact.plan, tmp_path / "again.vmfb", config).error == artifact.error


def test_f32_is_verified_on_all_samples_too(digits: Trained, tmp_path: Path) -> None:
    options = ["--calibration", digits.samples, "--threads", 1, "--tuning-db", digits.config.database, "--json"]
    summary = parsed(call("compile-to-vmfb", digits.model, "-o", tmp_path / "net.vmfb", *options))
    assert (summary["samples"], summary["error_measure"]) == (CALIBRATED, "relative")
    assert summary["relative_error"] == summary["error"] < 1e-4
    with Session(tmp_path / "net.vmfb", threads=1) as session:
        assert session.manifest is not None
        plan = Plan.from_json(session.manifest.plan, "the module")
        features = session.manifest.features
    assert {layer.dtype for layer in plan.layers} == {"f32"}
    assert all(layer.error is None and layer.saved is None for layer in plan.layers)
    assert all(layer.variant.startswith("cpu:f32/") for layer in plan.layers)
    schemas = {schema for adapt in plan.adapts for schema in (adapt.source, adapt.target)}
    assert {schema.partition("@")[0] for schema in schemas} <= {"cpu:f32"}
    assert (plan.ranges, features) == ({}, ())


def test_nothing_narrower_is_even_asked_for_in_f32(digits: Trained) -> None:
    """What is not among the candidates is in no plan: code, schemas, weights and permissions of the system."""
    config = replace(digits.config, precision=Precision.F32)
    imported = imported_model(digits.model, target=config.target)
    variants = [
        each
        for found in find_candidates(imported, config.planning, everything=False).variants.values()
        for each in found
    ]
    assert len(variants) > len(imported.graph.layers)
    for variant in variants:
        code = variant.implementation
        assert variant.dtype == "f32"
        assert {schema.dtype for schema in (*code.inputs, *code.outputs)} == {"f32"}
        assert not any(isinstance(step, Round | Quantise) for packing in code.packings for step in packing.steps)
        assert (code.ranges, code.needs) == ((), ())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--calibration", "absent.npz"], "--calibration 'absent.npz' is not there"),
        (["--error-measure", "beauty"], "'beauty' is no error measure"),
        (["--plan", "p.json", "--calibration-method", "mse"], "--calibration-method"),
        (["--precision", "bf16", "--calibration-method", "mse"], "give --precision int8 or mixed"),
    ],
)
def test_nonsense_is_refused_before_any_work(digits: Trained, tmp_path: Path, options: list[str], said: str) -> None:
    result = call("compile-to-vmfb", digits.model, "-o", tmp_path / "net.vmfb", *options, folder=tmp_path)
    assert_refused(result, 2, said)


def test_samples_must_fit_the_model(digits: Trained, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", image=np.zeros((3, 1, 9, 9), np.float32))
    with pytest.raises(UsageError, match=re.escape("input 'image' expects float32[1, 1, 8, 8]")):
        compile_model(digits.model, tmp_path / "net.vmfb", replace(digits.config, calibration=tmp_path / "other.npz"))
