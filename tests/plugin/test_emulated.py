"""Models and networks for AArch64 give under emulation what ONNX Runtime gives here.

Images are small, blocks that repeat are left out, and the encoder is short, so that they compile and run in seconds;
``SARTOR_AARCH64_FULL=1`` takes the networks as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from benchmarks.networks.graph import Body, assemble
from benchmarks.networks.lenet import lenet5
from benchmarks.networks.mobilenet import mobilenet_v2
from benchmarks.networks.squeezenet import squeezenet
from benchmarks.networks.transformer import bert
from benchmarks.zoo import sample_inputs
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.tuning.selection.problem.pin import Pin
from tests.emulated import Emulator, emulator
from tests.plugin.quantised_models import dynamic_network, network, one_convolution

EMULATOR = emulator()
MATRIX, DOTS = "neon_matrix_dots", "neon_dots"
BY_DOTS = (Pin("*conv*", f"*.{DOTS}{{*"), Pin("product", f"*.{DOTS}{{*"))


@pytest.mark.parametrize(
    ("make", "cpu", "pins", "routines"),
    [
        (network, "neoverse-v1", (), {"conv1": MATRIX, "conv2": MATRIX, "product": MATRIX}),
        (network, "neoverse-v1", BY_DOTS, {"conv1": DOTS, "conv2": DOTS, "product": DOTS}),
        (one_convolution, "neoverse-n1", (), {"conv": DOTS}),
        (dynamic_network, "neoverse-v1", (), {"conv1": f"whole_{MATRIX}", "product1": f"whole_{MATRIX}"}),
    ],
    ids=["static", "pinned", "without_i8mm", "dynamic"],
)
def test_quantised_models_are_right_under_emulation(
    make: Callable[[], ModelProto], cpu: str, pins: tuple[Pin, ...], routines: Mapping[str, str], tmp_path: Path
) -> None:
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(make(), model)
    target = Target.create("cpu", f"aarch64:{cpu}")
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db", target=target, pins=pins)
    plan = compile_model(model, module, config).plan
    chosen = {layer.layer: layer.variant.partition(".")[2].partition("{")[0] for layer in plan.layers}
    assert {layer: chosen[layer] for layer in routines} == routines
    if not isinstance(EMULATOR, Emulator):
        pytest.skip(EMULATOR)
    reference = ReferenceModel(model, threads=1)
    (source,) = onnx.load(model).graph.input
    shape = [each.dim_value for each in source.type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    found, (expected,) = EMULATOR.run(module, "main_graph", [x]), reference({"x": x})
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


IS_FULL = os.environ.get("SARTOR_AARCH64_FULL") == "1"
# Winograd's sums have terms larger than their results.
MAX_ERROR = 1e-3

NETWORKS: dict[str, tuple[Body, Callable[..., None], str, set[str]]] = {
    "lenet5": (lenet5, lenet5, "cortex-a55", {"direct", "product"}),
    "squeezenet": (squeezenet, partial(squeezenet, size=64), "cortex-a76", {"direct", "window", "join"}),
    "mobilenet_v2": (mobilenet_v2, partial(mobilenet_v2, size=32, most_repeats=2), "apple-m1", {"direct", "product"}),
    "bert": (bert, partial(bert, tokens=16, layers=1, vocabulary=100), "neoverse-v1", {"product", "rowwise"}),
}


@pytest.mark.skipif(isinstance(EMULATOR, str), reason=str(EMULATOR))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_right_under_emulation(name: str, tmp_path: Path) -> None:
    assert isinstance(EMULATOR, Emulator)
    full, reduced, cpu, routines = NETWORKS[name]
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    network = assemble(name, full if IS_FULL else reduced, version="test")
    onnx.save(network, model)
    target = Target.create("cpu", f"aarch64:{cpu}")
    config = CompileConfig(threads=1, jobs=2, database=tmp_path / "tuning.db", target=target)
    plan = compile_model(model, module, config).plan
    assert plan.basis == f"predicted by the cost model for aarch64:{cpu}, nothing was measured"
    assert routines <= {layer.variant.partition(".")[2].partition("{")[0] for layer in plan.layers}
    feeds = sample_inputs(network, 3)
    arguments = [feeds[each.name] for each in network.graph.input]
    found = EMULATOR.run(module, "main_graph", arguments)
    (expected,) = ReferenceModel(model, threads=1)(feeds)
    assert np.abs(found - expected).max() <= MAX_ERROR * np.abs(expected).max()
